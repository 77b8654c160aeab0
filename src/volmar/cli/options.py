"""Options shared by several commands, and those of sizes and constraints."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Scale = StrEnum("Scale", ["none", "standard", "minmax", "auto"])
Missing = StrEnum("Missing", ["error", "drop", "impute", "indicator"])

# Metavar of a flag, which takes no value: the help shows nothing in its place.
FLAG = " "

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="CSV, TSV, Parquet, Excel, JSON, NPY, NPZ or svmlight file, a folder of Parquet or "
        "CSV files, or a built-in name (digits-3v8).",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", help="Columns to use, separated by commas; can be repeated."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Columns to leave out, separated by commas; can be repeated."),
]
Id = Annotated[str | None, typer.Option("--id", help="Column with the ids of the rows.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="NAME=KIND",
        help="Kind of a column: numeric, ordinal, categorical, boolean, date, text, id or "
        "ignore; can be repeated.",
    ),
]
ScaleOption = Annotated[Scale, typer.Option("--scale", help="How to scale the columns.")]
MissingOption = Annotated[Missing, typer.Option("--missing", help="How to handle missing values.")]
Force = Annotated[bool, typer.Option("--force", metavar=FLAG, help="Overwrite existing files.")]
RawIds = Annotated[
    bool,
    typer.Option(
        "--raw-ids",
        metavar=FLAG,
        help="Write ids and texts unchanged. By default, an apostrophe protects those that a "
        "spreadsheet would run as formulas.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Random seed.")]
Number = Annotated[
    str,
    typer.Option("--n-clusters", "-k", help="Number of clusters, or auto to find it by tests."),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="COLUMN",
        help="Column with known labels of some rows; empty for all others.",
    ),
]
MustLink = Annotated[
    str | None,
    typer.Option(
        "--must-link",
        metavar="COLUMN",
        help="Column of ids; rows with the same id stay in one cluster.",
    ),
]
MinSize = Annotated[
    str | None,
    typer.Option(
        "--min-size", metavar="SIZE", help="Minimum cluster size: rows, or share of all rows."
    ),
]
MaxSize = Annotated[
    str | None,
    typer.Option(
        "--max-size", metavar="SIZE", help="Maximum cluster size: rows, or share of all rows."
    ),
]
