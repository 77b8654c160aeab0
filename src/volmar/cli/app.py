"""The commands and their arguments; what they do is in a file of their name."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from volmar._files import printable
from volmar._memory import explained_memory
from volmar._version import __version__
from volmar.cli.as_options import as_options
from volmar.cli.options import (
    FLAG,
    Columns,
    Drop,
    Force,
    Id,
    Kinds,
    Missing,
    MissingOption,
    Number,
    RawIds,
    Scale,
    ScaleOption,
    Seed,
    Source,
)
from volmar.cli.signals import exit_code

# What typer raises for an option that it cannot take: the base of what it shows in public.
_BAD_USAGE: Any = typer.BadParameter.__base__


class _OneLine(TyperGroup):
    """Commands whose wrong options are reported in one line, as other invalid input is."""

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
            raise KeyboardInterrupt from None  # between options and commands
        sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    """Print one line on the error stream, if there still is one, and no endless line."""
    line = printable(text)
    line = line if len(line) <= 2000 else f"{line[:1200]} ... {line[-700:]}"
    with suppress(OSError):
        typer.echo(line, err=True)


def _bad_usage(error: Any, given: list[str]) -> str:
    """Return what is wrong with an option, with the value that it was given."""
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
    help="Discriminative clustering, with certificates.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

# What users can fix; anything else is a bug, and shows its traceback.
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
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from.")
    ] = False,
) -> None:
    del version  # handled by its callback
    context.obj = {"debug": debug}


@contextmanager
def _clean(command: str, context: typer.Context) -> Iterator[None]:
    """End with a line instead of a traceback on invalid input."""
    try:
        with _lines_of_warnings(context.obj["debug"]):
            yield
    except KeyboardInterrupt as stop:
        # Those who know what is complete say so by it.
        _complain(f"volmar {command}: stopped{stop}.")
        raise typer.Exit(exit_code()) from None
    except BrokenPipeError:
        raise typer.Exit(1) from None  # the reader of our output has gone
    except WRONG_INPUT as error:
        if context.obj["debug"]:
            raise
        told = error
        if isinstance(error, MemoryError):
            told = explained_memory(error, "the command")
        text = " ".join(str(told).split()) or type(error).__name__
        _complain(f"volmar {command}: {as_options(text)}")
        raise typer.Exit(2) from None


@contextmanager
def _lines_of_warnings(debug: bool) -> Iterator[None]:
    """Print warnings as a line each at the end, and none where the command fails."""
    if debug:
        yield
        return
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        yield
    from volmar.cli.console import say

    texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    for text in dict.fromkeys(texts):
        say(f"warning: {' '.join(text.split())}")


def _kinds(given: list[str] | None) -> dict[str, str]:
    """Return kinds of columns from NAME=KIND; a name may hold an = itself."""
    from volmar.cli.console import UsageError

    kinds = {}
    for text in given or ():
        name, sign, kind = text.rpartition("=")
        if not sign or not name:
            raise UsageError(f"--kind takes NAME=KIND, zip=categorical say, got {text!r}.")
        kinds[name] = kind
    return kinds


def _listed(given: list[str] | None) -> list[str]:
    """Return names that were given one by one or with commas."""
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]


def _preparation(
    columns: list[str] | None,
    drop: list[str] | None,
    id_column: str | None,
    kinds: list[str] | None,
    scale: Scale,
    missing: Missing,
) -> dict[str, Any]:
    """Return the parameters of the preparation of a table."""
    return {
        "columns": _listed(columns) or None,
        "drop": _listed(drop) or None,
        "id_column": id_column,
        "kinds": _kinds(kinds) or None,
        "scale": scale.value,
        "missing": missing.value,
    }


@app.command()
def cluster(
    context: typer.Context,
    source: Source,
    method: Annotated[
        str, typer.Option("--method", "-m", help="Any clusterer of the library by its name.")
    ] = "MSPC",
    n_clusters: Number = "auto",
    split_anyway: Annotated[
        bool,
        typer.Option("--split-anyway", metavar=FLAG, help="Split in two even without evidence."),
    ] = False,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            metavar="LEVEL",
            help="Level of the tests of auto: probability that one group is split (default 0.05).",
        ),
    ] = None,
    max_clusters: Annotated[
        int | None,
        typer.Option("--max-clusters", min=1, help="Maximum number of clusters of auto."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="COLUMN",
            help="Column with the labels of some rows, empty for the others.",
        ),
    ] = None,
    must_link: Annotated[
        str | None,
        typer.Option(
            "--must-link", metavar="COLUMN", help="Column of group ids: a group stays together."
        ),
    ] = None,
    min_size: Annotated[
        str | None,
        typer.Option("--min-size", metavar="SIZE", help="Minimum rows of a cluster, or share."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Maximum rows of a cluster, or share."),
    ] = None,
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Parameter of the method; repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Labels, scores and confidences: .csv, .tsv, .parquet."),
    ] = None,
    append: Annotated[
        bool,
        typer.Option(
            "--append", metavar=FLAG, help="Write the rows, with a column cluster, to -o."
        ),
    ] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="HTML page that explains the clusters.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Model for volmar predict.")] = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Folder for PNG and SVG of every picture.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option("--json", help="JSON file with the results.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Address of a dask scheduler.")
    ] = None,
    raw_ids: RawIds = False,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Cluster a table, and say why to trust the clusters.

    Every method finds the number of clusters itself (--n-clusters auto): each split is tested on
    held-out rows, and rows without evidence for groups stay one cluster. The default method, MSPC,
    does not depend on the units of the columns and takes time linear in the rows.
    A folder of Parquet or CSV files is read block by block; rows that fit into a quarter of the
    memory are kept there.
    """
    with _clean("cluster", context):
        from volmar.cli.cluster import ClusterFiles, cluster_file
        from volmar.cli.methods import make_method, parse_number, parse_settings, parse_size
        from volmar.table_clusterer import TableClusterer

        clusterer = TableClusterer(
            parse_number(n_clusters, minimum=1),
            clusterer=make_method(method, 2, seed, parse_settings(settings or [])),
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
    model: Annotated[Path, typer.Argument(help="What volmar cluster --save wrote.")],
    source: Source,
    id_column: Id = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Labels: .csv, .tsv, .parquet.")
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            "--reject",
            metavar="LEVEL",
            help="Label rows -1 that belong to no cluster: those with a p-value of at most this "
            "(0.01 rejects about 1 % of ordinary rows).",
        ),
    ] = None,
    raw_ids: RawIds = False,
    force: Force = False,
) -> None:
    """Put new rows into the clusters of a saved model."""
    with _clean("predict", context):
        from volmar.cli.predict import predict_file

        predict_file(
            model,
            source,
            id_column=id_column,
            out=out,
            force=force,
            raw_ids=raw_ids,
            reject=reject,
        )


@app.command()
def score(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A table (see volmar cluster), or a model and a new table.")
    ],
    new: Annotated[
        str | None, typer.Argument(help="A new table to compare with that of the model.")
    ] = None,
    labels: Annotated[Path | None, typer.Option("--labels", help="Table of labels.")] = None,
    truth: Annotated[
        Path | None, typer.Option("--truth", help="Table of true classes, to compare with.")
    ] = None,
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    seed: Seed = 0,
    test: Annotated[
        bool,
        typer.Option(
            "--test/--no-test",
            help="Test which clusters are separated and which to merge; -1 is noise.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON.")] = False,
) -> None:
    """Score a labelling, with or without true classes, and test which clusters are real.

    With a model of volmar cluster --save and a new table (volmar score MODEL NEW), report what has
    changed since the fit: shares of the clusters, distances, columns that moved.
    """
    with _clean("score", context):
        if new is not None:
            from volmar.cli.drift import drift_file

            _refuse_options(context, "MODEL NEW", {"source", "new", "as_json"})
            drift_file(source, new, as_json=as_json)
            return
        from volmar.cli.score import check_labels, score_file

        labels = check_labels(source, labels)
        score_file(
            source,
            labels,
            truth=truth,
            **_preparation(columns, drop, id_column, kinds, scale, missing),
            seed=seed,
            test=test,
            as_json=as_json,
        )


def _refuse_options(context: typer.Context, call: str, taken: set[str]) -> None:
    """Refuse options that a form of a command has no use for."""
    from volmar.cli.console import UsageError

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
        list[str] | None, typer.Option("--method", "-m", help="A method; repeatable.")
    ] = None,
    n_clusters: Number = "auto",
    columns: Columns = None,
    drop: Drop = None,
    id_column: Id = None,
    kinds: Kinds = None,
    scale: ScaleOption = Scale.auto,
    missing: MissingOption = Missing.impute,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Labels, a column for each method: .csv, .tsv, .parquet."
        ),
    ] = None,
    raw_ids: RawIds = False,
    seed: Seed = 0,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON.")] = False,
) -> None:
    """Run several methods side by side: scores without labels, agreement, time."""
    with _clean("compare", context):
        from volmar.cli.compare import compare_file

        compare_file(
            source,
            _listed(methods),
            n_clusters=n_clusters,
            **_preparation(columns, drop, id_column, kinds, scale, missing),
            out=out,
            force=force,
            raw_ids=raw_ids,
            seed=seed,
            as_json=as_json,
        )


@app.command()
def info(context: typer.Context) -> None:
    """Show versions and installed extras."""
    with _clean("info", context):
        from volmar.cli.info import show_info

        show_info()


@app.command()
def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write into.", file_okay=False)] = Path(
        "demo"
    ),
    n_samples: Annotated[int, typer.Option(min=20, max=5000, help="Rows of the table.")] = 600,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Cluster a built-in table, and compare methods on shapes.

    Runs volmar cluster on customers.csv, which it makes, and writes labels.csv, report.html,
    model.volmar and clusters.png. methods.png shows k-means and others beside our methods.
    """
    with _clean("demo", context):
        from volmar.cli.demo import run_demo

        run_demo(out, n_samples=n_samples, seed=seed, force=force)
