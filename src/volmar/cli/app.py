"""The commands and their arguments; what they do is in a file of their name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from volmar._version import __version__

app = typer.Typer(
    name="volmar",
    help="Discriminative clustering, with certificates.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"volmar {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del version  # handled by its callback


def _refuse(command: str, error: Exception) -> NoReturn:
    """End with a line instead of a traceback: what is wrong is not in the program."""
    typer.echo(f"volmar {command}: {error}", err=True)
    raise typer.Exit(2) from None


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write into.", file_okay=False)] = Path(
        "demo"
    ),
    n_samples: Annotated[int, typer.Option(min=20, max=5000, help="Rows of each set.")] = 500,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of data and methods.")] = 0,
) -> None:
    """Cluster built-in data and write labels.csv, clusters.png and report.html."""
    from volmar.cli.demo import run_demo

    try:
        run_demo(out, n_samples=n_samples, seed=seed)
    except OSError as error:
        _refuse("demo", error)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="What to run; without it, a list.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder that keeps the cells.", file_okay=False)
    ] = Path("results"),
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")] = 1,
    realizations: Annotated[
        int | None,
        typer.Option(min=1, help="Samplings of each set and size; the paper's own if not given."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this data set; repeatable.")] = None,
) -> None:
    """Run a table or figure of the papers again; an interrupted run goes on where it stopped."""
    from volmar.cli.reproduce import list_all
    from volmar.cli.reproduce import reproduce as run

    if name is None:
        list_all()
        return
    try:
        run(name, out=out, jobs=jobs, realizations=realizations, only=only or [])
    except (ValueError, OSError) as error:
        _refuse("reproduce", error)
