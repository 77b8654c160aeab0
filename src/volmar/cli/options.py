"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Scale = StrEnum("Scale", ["none", "standard", "minmax", "auto"])
Missing = StrEnum("Missing", ["error", "drop", "impute", "indicator"])

# Flags take no value, and the help should not look as if they did.
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
    typer.Option("--columns", help="Column to use; repeat, or separate by commas."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Column to leave out; repeat, or separate by commas."),
]
Id = Annotated[str | None, typer.Option("--id", help="Column that names the rows.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="NAME=KIND",
        help="Kind of a column: numeric, ordinal, categorical, boolean, date, text, id or "
        "ignore; repeatable.",
    ),
]
ScaleOption = Annotated[Scale, typer.Option("--scale", help="How columns are scaled.")]
MissingOption = Annotated[Missing, typer.Option("--missing", help="How to handle missing values.")]
Force = Annotated[bool, typer.Option("--force", metavar=FLAG, help="Overwrite files.")]
RawIds = Annotated[
    bool,
    typer.Option(
        "--raw-ids",
        metavar=FLAG,
        help="Write ids and texts that a spreadsheet would run as formulas without an apostrophe.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**32 - 1, help="Random seed.")]
Number = Annotated[
    str, typer.Option("--n-clusters", "-k", help="Number of clusters, or auto to test for it.")
]
