"""The commands and their options."""

from __future__ import annotations

import platform
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperGroup

from volmar._files import printable
from volmar._memory import explained_memory
from volmar._version import __version__
from volmar.cli.console import UsageError, as_options, say, screen
from volmar.cli.signals import exit_code

_opt = typer.Option
File = Path | None
Names = list[str] | None
Scale = StrEnum("Scale", ["none", "standard", "minmax", "auto"])
Missing = StrEnum("Missing", ["error", "drop", "impute", "indicator"])

# Metavar of a flag, which takes no value: the help shows nothing in its place.
FLAG = " "

Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="CSV, TSV, Parquet, Excel, JSON, NPY, NPZ or svmlight file, or a folder of "
        "Parquet or CSV files.",
    ),
]
Columns = Annotated[
    Names, _opt("--columns", help="Columns to use, separated by commas; can be repeated.")
]
Drop = Annotated[
    Names, _opt("--drop", help="Columns to leave out, separated by commas; can be repeated.")
]
Id = Annotated[str | None, _opt("--id", help="Column with the ids of the rows.")]
Kinds = Annotated[
    Names,
    _opt(
        "--kind",
        metavar="NAME=KIND",
        help="Kind of a column: numeric, ordinal, categorical, boolean, date, text, id or "
        "ignore; can be repeated.",
    ),
]
ScaleOption = Annotated[Scale, _opt("--scale", help="How to scale the columns.")]
MissingOption = Annotated[Missing, _opt("--missing", help="How to handle missing values.")]
Force = Annotated[bool, _opt("--force", metavar=FLAG, help="Overwrite existing files.")]
RawIds = Annotated[
    bool,
    _opt(
        "--raw-ids",
        metavar=FLAG,
        help="Write ids and texts unchanged. By default, an apostrophe protects those that a "
        "spreadsheet would run as formulas.",
    ),
]
Seed = Annotated[int, _opt("--seed", min=0, max=2**32 - 1, help="Random seed.")]
Number = Annotated[
    str, _opt("--n-clusters", "-k", help="Number of clusters, or auto to find it by tests.")
]
Seeds = Annotated[
    str | None,
    _opt(
        "--seeds",
        metavar="COLUMN",
        help="Column with known labels of some rows; empty for all others.",
    ),
]
MustLink = Annotated[
    str | None,
    _opt(
        "--must-link",
        metavar="COLUMN",
        help="Column of ids; rows with the same id stay in one cluster.",
    ),
]
MinSize = Annotated[
    str | None,
    _opt("--min-size", metavar="SIZE", help="Minimum cluster size: rows, or share of all rows."),
]
MaxSize = Annotated[
    str | None,
    _opt("--max-size", metavar="SIZE", help="Maximum cluster size: rows, or share of all rows."),
]


# ---------------------------------------------------------------------- commands


# Base class of typer's usage errors; typer exports only its subclasses.
_BAD_USAGE: Any = typer.BadParameter.__base__


class _OneLine(TyperGroup):
    """Command group that reports invalid options in one line, like other invalid input."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        rest = (prog_name, complete_var, False, windows_expand_args)
        if not standalone_mode:
            return super().main(given, *rest, **extra)
        try:
            code = super().main(given or ["--help"], *rest, **extra)
        except _BAD_USAGE as error:
            named = [word for word in given[:1] if word in self.commands]
            command = " ".join(["volmar", *named])
            _complain(f"{command}: {_bad_usage(error, given)}. See {command} --help.")
            code = error.exit_code
        except typer.Abort:
            raise KeyboardInterrupt from None  # while options are parsed
        sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    """Print one line of at most 2,000 characters to stderr; ignore a closed stream."""
    line = printable(text)
    line = line if len(line) <= 2000 else f"{line[:1200]} ... {line[-700:]}"
    with suppress(OSError):
        typer.echo(line, err=True)


def _bad_usage(error: Any, given: list[str]) -> str:
    """Return the message about an invalid option, with the given value."""
    text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    options = getattr(getattr(error, "param", None), "opts", ())
    for word, following in zip(given, [*given[1:], ""], strict=True):
        name, sign, value = word.partition("=")
        value = value if sign else following
        if name in options and value and repr(value) not in text:
            return f"{text}, got {value!r}"
    return text


app = typer.Typer(
    name="volmar",
    cls=_OneLine,
    help="Cluster tables, and test whether the clusters are real.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Errors that users can fix. Any other error is a bug and shows its traceback.
WRONG_INPUT = (ValueError, TypeError, OSError, ImportError, MemoryError)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"volmar {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        _opt(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[bool, _opt("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version  # handled by its callback
    context.obj = {"debug": debug}


@contextmanager
def _clean(command: str, context: typer.Context) -> Iterator[None]:
    """On invalid input, exit with a one-line message instead of a traceback."""
    try:
        with _lines_of_warnings(context.obj["debug"]):
            yield
    except KeyboardInterrupt as stop:
        # The text of the interrupt lists what is complete.
        _complain(f"volmar {command}: stopped{stop}.")
        raise typer.Exit(exit_code()) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None  # the reader of stdout has closed the pipe
    except WRONG_INPUT as error:
        if context.obj["debug"]:
            raise
        shown = error
        if isinstance(error, MemoryError):
            shown = explained_memory(error, "the command")
        text = " ".join(str(shown).split()) or type(error).__name__
        _complain(f"volmar {command}: {as_options(text)}")
        raise typer.Exit(2) from None


@contextmanager
def _lines_of_warnings(debug: bool) -> Iterator[None]:
    """Print each warning as one line at the end; print none if the command fails."""
    if debug:
        yield
        return
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        # Unsupported features of Excel, which hold no values.
        warnings.filterwarnings("ignore", module="openpyxl")
        yield
    texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    for text in dict.fromkeys(texts):
        say(f"warning: {' '.join(text.split())}")


def _preparation(
    columns: Names,
    drop: Names,
    id_column: str | None,
    kinds: Names,
    scale: Scale,
    missing: Missing,
) -> dict[str, Any]:
    """Return the options as parameters of `volmar.tables.Preparation`."""
    found = {}
    for text in kinds or ():
        name, sign, kind = text.rpartition("=")  # a name may contain "="
        if not sign or not name:
            raise UsageError(f"--kind takes NAME=KIND, such as zip=categorical, got {text!r}.")
        found[name] = kind
    # `name_columns` splits columns and drop at commas once the table is read.
    options: dict[str, Any] = {"columns": columns, "drop": drop, "id_column": id_column}
    return options | {"kinds": found or None, "scale": scale.value, "missing": missing.value}


@app.command()
def cluster(
    context: typer.Context,
    source: Source,
    method: Annotated[
        str, _opt("--method", "-m", help="Name of the clusterer.")
    ] = "AutoClusterer",
    n_clusters: Number = "auto",
    split_anyway: Annotated[
        bool, _opt("--split-anyway", metavar=FLAG, help="Split in two even without evidence.")
    ] = False,
    alpha: Annotated[
        float | None,
        _opt(
            "--alpha",
            metavar="LEVEL",
            help="Significance level of -k auto: probability that a single group is split "
            "(default 0.05).",
        ),
    ] = None,
    max_clusters: Annotated[
        int | None, _opt("--max-clusters", min=1, help="Maximum number of clusters for -k auto.")
    ] = None,
    seeds: Seeds = None,
    must_link: MustLink = None,
    min_size: MinSize = None,
    max_size: MaxSize = None,
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    settings: Annotated[
        Names,
        _opt("--set", metavar="NAME=VALUE", help="Parameter of the method; can be repeated."),
    ] = None,
    out: Annotated[
        File,
        _opt(
            "--out", "-o", help="File for labels, scores and confidences (.csv, .tsv, .parquet)."
        ),
    ] = None,
    append: Annotated[
        bool,
        _opt(
            "--append",
            metavar=FLAG,
            help="Write the table itself to -o, with an added column 'cluster'.",
        ),
    ] = False,
    report: Annotated[
        File, _opt("--report", help="HTML report that explains the clusters.")
    ] = None,
    save: Annotated[
        File, _opt("--save", help="File for the model, used by volmar predict.")
    ] = None,
    pictures: Annotated[
        File, _opt("--pictures", help="Folder for all plots, as PNG and SVG.")
    ] = None,
    summary: Annotated[File, _opt("--json", help="JSON file for the results.")] = None,
    scheduler: Annotated[
        str | None, _opt("--scheduler", help="Address of a dask scheduler.")
    ] = None,
    raw_ids: RawIds = False,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Cluster a table, and test whether the clusters are real.

    By default (--n-clusters auto), tests find the number of clusters: each border
    must be significant and clearly sparser than its sides, and rows without
    evidence for groups stay in one cluster. The default method, AutoClusterer,
    finds clusters of any shape.

    A folder of Parquet or CSV files is read block by block. The prepared rows
    are kept in memory if they need at most a quarter of it.
    """
    with _clean("cluster", context):
        from volmar.cli.cluster import (
            ClusterFiles,
            cluster_file,
            make_method,
            parse_number,
            parse_settings,
            parse_size,
        )
        from volmar.table_clusterer import TableClusterer

        number = parse_number(n_clusters, minimum=1)
        clusterer = TableClusterer(
            number,
            clusterer=make_method(method, number, seed, parse_settings(settings or [])),
            **_preparation(columns, drop, id_column, kinds, scale, missing),
            alpha=alpha,
            max_clusters=max_clusters,
            seeds=seeds,
            must_link=must_link,
            min_cluster_size=parse_size("--min-size", min_size),
            max_cluster_size=parse_size("--max-size", max_size),
            random_state=seed,
        )
        cluster_file(
            source,
            clusterer,
            ClusterFiles(out, append, report, save, summary, pictures, force, raw_ids),
            split_anyway=split_anyway,
            scheduler=scheduler,
            command=shlex.join(["volmar", *sys.argv[1:]]),
        )


@app.command()
def predict(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model file from volmar cluster --save.")],
    source: Source,
    id_column: Id = None,
    out: Annotated[
        File, _opt("--out", "-o", help="File for labels (.csv, .tsv, .parquet).")
    ] = None,
    reject: Annotated[
        float | None,
        _opt(
            "--reject",
            metavar="LEVEL",
            help="Give the label -1 to rows that belong to no cluster, with a p-value of at most "
            "LEVEL. 0.01 rejects about 1 % of ordinary rows.",
        ),
    ] = None,
    raw_ids: RawIds = False,
    force: Force = False,
) -> None:
    """Assign new rows to the clusters of a saved model."""
    with _clean("predict", context):
        from volmar.cli.predict import predict_file

        options = {"force": force, "raw_ids": raw_ids}
        predict_file(model, source, id_column=id_column, out=out, reject=reject, **options)


@app.command()
def score(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="Table (see volmar cluster), or a model file before NEW.")
    ],
    new: Annotated[
        str | None, typer.Argument(help="New table to compare with the table of the model.")
    ] = None,
    labels: Annotated[File, _opt("--labels", help="Table of labels to score.")] = None,
    truth: Annotated[File, _opt("--truth", help="Table of true classes to compare with.")] = None,
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    seed: Seed = 0,
    test: Annotated[
        bool,
        _opt(
            "--test/--no-test",
            help="Test which clusters are separated and which should be merged. The label -1 is "
            "noise.",
        ),
    ] = True,
    as_json: Annotated[bool, _opt("--json", metavar=FLAG, help="Print JSON.")] = False,
) -> None:
    """Score a labelling, with or without true classes, and test which clusters are real.

    With a saved model and a new table (volmar score MODEL NEW), report what has
    changed since the fit: shares of the clusters, distances of rows from their
    centres, and distributions of the columns.
    """
    with _clean("score", context):
        if new is not None:
            from volmar.cli.score import drift_file

            _refuse_options(context, "MODEL NEW", {"source", "new", "as_json"})
            drift_file(source, new, as_json=as_json)
            return
        from volmar.cli.score import check_labels, score_file

        options = _preparation(columns, drop, id_column, kinds, scale, missing)
        options |= {"truth": truth, "seed": seed, "test": test, "as_json": as_json}
        score_file(source, check_labels(source, labels), **options)


def _refuse_options(context: typer.Context, call: str, taken: set[str]) -> None:
    """Raise an error for options that have no effect in this form of the command."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name not in taken and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{parameter.opts[0]} has no effect with volmar {context.command.name} {call}. "
                "Leave it out."
            )


@app.command()
def compare(
    context: typer.Context,
    source: Source,
    methods: Annotated[
        Names, _opt("--method", "-m", help="Method to run; can be repeated.")
    ] = None,
    n_clusters: Number = "auto",
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    out: Annotated[
        File,
        _opt(
            "--out", "-o", help="File for labels, with a column per method (.csv, .tsv, .parquet)."
        ),
    ] = None,
    raw_ids: RawIds = False,
    seed: Seed = 0,
    force: Force = False,
    as_json: Annotated[bool, _opt("--json", metavar=FLAG, help="Print JSON.")] = False,
) -> None:
    """Compare several methods: scores without true labels, agreement, time."""
    with _clean("compare", context):
        from volmar.cli.compare import compare_file

        # Each of the repeated options may list several names with commas.
        names = [name.strip() for text in methods or () for name in text.split(",")]
        options = _preparation(columns, drop, id_column, kinds, scale, missing)
        options |= {"n_clusters": n_clusters, "seed": seed, "as_json": as_json}
        options |= {"out": out, "force": force, "raw_ids": raw_ids}
        compare_file(source, [name for name in names if name], **options)


@app.command()
def info(context: typer.Context) -> None:
    """Show versions and installed extras."""
    with _clean("info", context):
        show_info()


@app.command()
def demo(
    context: typer.Context,
    out: Annotated[Path, _opt(help="Folder to write into.", file_okay=False)] = Path("demo"),
    n_samples: Annotated[int, _opt(min=20, max=5000, help="Number of rows of the table.")] = 600,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Cluster a generated table.

    Generates customers.csv, runs volmar cluster on it, and writes labels.csv,
    report.html, model.volmar and clusters.png.
    """
    with _clean("demo", context):
        from volmar.cli.demo import run_demo

        run_demo(out, n_samples=n_samples, seed=seed, force=force)


# ---------------------------------------------------------------------- info


# Distribution names of the libraries of each extra.
EXTRAS = {
    "cli": ("typer", "rich", "jinja2"),
    "plot": ("matplotlib",),
    "io": ("pandas", "pyarrow"),
    "dask": ("dask", "distributed"),
}
ALWAYS = ("numpy", "scipy", "scikit-learn", "joblib", "daqp")


def show_info() -> None:
    """Print the versions of volmar, Python and the libraries, and the missing extras."""
    table = Table(box=None, show_header=False)
    table.add_row("volmar", __version__)
    table.add_row("Python", f"{platform.python_version()} on {platform.system()}")
    for name in ALWAYS:
        table.add_row(name, _version(name) or "missing")
    for extra, names in EXTRAS.items():
        found = {name: _version(name) for name in names}
        text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
        missing = [name for name, version in found.items() if version is None]
        if missing:
            text += f"{'; ' if text else ''}missing {', '.join(missing)}"
            text += f" (pip install 'volmar[{extra}]')"
        table.add_row(f"extra {extra}", text)
    screen().print(table)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
