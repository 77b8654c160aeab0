"""Run the papers' tables and figures again, print the results and write the pages."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from reproduction.expected import Expected, read_expected
from reproduction.experiment import PAPERS, Cell, Experiment
from reproduction.figure_display import PaperFigureDisplay, has_picture
from reproduction.files import list_experiments, load_experiment
from reproduction.page import to_markdown, write_reproduction
from reproduction.results import Line
from reproduction.runner import run_cells, stored_results
from reproduction.store import CellResult, Store
from reproduction.verdict import Reproduction
from volmar._files import write_atomically
from volmar.cli.console import Screen, refuse_files, say, screen, written

COLUMNS = ("data", "method", "paper", "protocol", "label-free", "/KMeans", "as printed?", "free?")
EXPLANATION = (
    "In %, mean ± standard error. Protocol: the paper's protocol, with the best setting of its "
    "grid for each sampling picked by the labels; label-free: the estimator's default. /KMeans: "
    "time of a label-free fit over KMeans(n_init=10) in this run. As printed: within the "
    "tolerance under the paper's protocol; free: no worse than that without labels."
)

# Short forms that fit in a column.
VERDICTS = {
    "reproduced": "yes",
    "as good as printed": "yes",
    "better than printed": "better",
    "worse than printed": "worse",
}


@dataclass(frozen=True)
class Request:
    """Options of a run.

    Attributes
    ----------
    out : Path
        Folder of the results.
    jobs : int
        Number of processes.
    realizations : int or None
        Number of samplings. If None, that of the paper.
    only : tuple of str
        Names of data sets. If empty, all data sets.
    quick : bool
        Whether to run one sampling and few settings only.
    run : bool
        Whether to run missing cells. If False, stored results are shown.
    retry : bool
        Whether to run failed cells again.
    pack : bool
        Whether to compress the results at the end.
    page : Path or None
        File to which the Markdown page is written as well.
    """

    out: Path
    jobs: int = 1
    realizations: int | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    run: bool = True
    retry: bool = False
    pack: bool = False
    page: Path | None = None


def list_all() -> None:
    """Print the experiments, one per line."""
    known = read_expected()
    rows = [("id", "paper", "what", "cells", "time", "quick")]
    for name in list_experiments():
        experiment = load_experiment(name)
        what = f"Table {experiment.table}" if experiment.table else f"Figure {experiment.figure}"
        n_cells = sum(1 for _ in experiment.cells())
        cells, times = str(n_cells), _times(known.get(experiment.source))
        if experiment.source != name:
            cells = f"as {experiment.source.removeprefix(f'{experiment.paper}-')}"
        if experiment.source != name or not n_cells:
            times = ("-", "-")
        rows.append((name, PAPERS[experiment.paper].short, what, cells, *times))
    console = screen()
    _print_aligned(console, rows)
    console.print("Times are of one core; -j 2 takes about half.")


def _print_aligned(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns of sufficient width: truncated names could not be copied."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        texts = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        console.print("  ".join(texts).rstrip(), markup=False)


def _times(expected: Expected | None) -> tuple[str, str]:
    if expected is None:
        return "?", "?"
    return duration(expected.seconds), duration(expected.quick_seconds)


def duration(seconds: float) -> str:
    """Return seconds as text in a suitable unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def reproduce(names: Sequence[str], request: Request) -> None:
    """Run the cells that are missing in `request.out`, then print and write the results."""
    experiments = [_part(load_experiment(name), request) for name in names]
    # Checks before the first cell is computed that results can be stored there.
    request.out.mkdir(parents=True, exist_ok=True)
    refuse_files({"--page": request.page}, force=True)
    for source in {experiment.source for experiment in experiments if request.run}:
        _store(source, request).path.open("ab").close()
    results = _run(experiments, request)
    shown = [
        Reproduction.of(one, list(results[one.source].values()), n_cells=len(_cells(one, request)))
        for one in experiments
    ]
    console = screen()
    for one in shown:
        _print(console, one, whole=len(shown) == 1)
    _write(shown, request)
    if request.pack:
        for source in dict.fromkeys(experiment.source for experiment in experiments):
            _pack(load_experiment(source), request)
    _refuse_nothing(shown)


def _store(source: str, request: Request) -> Store:
    return Store(request.out / f"{source}.jsonl")


def _pack(experiment: Experiment, request: Request) -> None:
    """Compress results, without cells that the current experiment file does not define."""
    n_realizations = max(request.realizations or 0, experiment.n_realizations)
    keys = {cell.key for cell in experiment.cells(n_realizations)}
    _store(experiment.source, request).pack(keys)


def _cells(experiment: Experiment, request: Request) -> list[Cell]:
    return list(experiment.cells(request.realizations))


def _run(
    experiments: Sequence[Experiment], request: Request
) -> dict[str, Mapping[str, CellResult]]:
    """Run missing cells with progress bars, and return the results of every source of cells."""
    sources = {experiment.source: experiment for experiment in experiments}
    if not request.run:
        return {
            source: stored_results(_cells(one, request), _store(source, request))
            for source, one in sources.items()
        }
    results: dict[str, Mapping[str, CellResult]] = {}
    with _bars(request) as bar:
        known = read_expected()
        costs = {source: _cost(known.get(source), request) for source in sources}
        everything = bar.add_task(
            "everything, in core seconds", total=sum(costs.values()), visible=len(costs) > 1
        )
        for i, (source, experiment) in enumerate(sources.items()):
            before = sum(list(costs.values())[:i])
            task = bar.add_task(source)

            def report(
                done: int,
                n: int,
                *,
                source: str = source,
                before: float = before,
                task: TaskID = task,
            ) -> None:
                bar.update(task, completed=done, total=n)
                bar.update(everything, completed=before + costs[source] * done / max(n, 1))

            results[source] = run_cells(
                _cells(experiment, request),
                _store(source, request),
                jobs=request.jobs,
                progress=report,
                retry=request.retry,
            )
            bar.remove_task(task)
            if len(sources) > 1 and not bar.console.is_terminal:
                say(f"{i + 1} of {len(sources)}: {source} done")
    return results


def _cost(expected: Expected | None, request: Request) -> float:
    """Return the expected seconds of an experiment, for the overall progress bar."""
    if expected is None:
        return 60.0
    return max(expected.quick_seconds if request.quick else expected.seconds, 1.0)


@contextmanager
def _bars(request: Request) -> Iterator[Progress]:
    """Show progress bars; an interrupt prints a line that explains how to continue."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=Screen(stderr=True), transient=True) as bar:
            yield bar
    except KeyboardInterrupt:
        kept = f"; {request.out} keeps what is done. Run it again to go on"
        raise KeyboardInterrupt(kept) from None


def _print(console: Console, shown: Reproduction, *, whole: bool) -> None:
    """Print a verdict, and the table if it is the only one."""
    if whole and shown.lines:
        console.print(shown.experiment.title, markup=False)
        times = shown.experiment.view == "times"
        _print_aligned(console, [COLUMNS, *(_row(line, times=times) for line in shown.lines)])
        console.print(shown.experiment.note, markup=False)
        console.print(EXPLANATION)
        for (method, reason), where in _reasons(shown.lines).items():
            console.print(f"{method} not run ({', '.join(where)}): {reason}.", markup=False)
    console.print(f"{shown.experiment.name}: {shown.verdict.sentence}", markup=False)
    if whole:
        for claim in shown.claims:
            held = {True: "yes", False: "no", None: "not checked"}
            both = f"paper's protocol {held[claim.hindsight]}, label-free {held[claim.label_free]}"
            detail = f" ({claim.detail})" if claim.detail else ""
            console.print(f"  {claim.says}: {both}{detail}", markup=False)
    for failure in shown.failures[:3]:
        console.print(f"  failed {failure}", markup=False)


def _reasons(lines: Sequence[Line]) -> dict[tuple[str, str], list[str]]:
    """Return the data sets on which a method has no line, by method and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line.verdict in ("not run", "failed"):
            reasons.setdefault((line.method, line.reason.rstrip(".")), []).append(line.dataset)
    return reasons


def _row(line: Line, *, times: bool) -> tuple[str, ...]:
    paper = str(line.paper)
    words = line.verdict, line.label_free_verdict or "-"
    verdicts = [VERDICTS.get(word, word) for word in words]
    if line.hindsight.summary.mean is None and line.label_free.summary.mean is None:
        return line.dataset, line.method, paper, "-", "-", "-", *verdicts
    if times and line.paper.mean is not None:
        paper = f"{line.paper.mean:g} s"
    sides = [line.hindsight, line.label_free]
    figures = [_number(side.seconds, " s") if times else str(side.summary) for side in sides]
    relation = _number(line.label_free.relation)
    return line.dataset, line.method, paper, *figures, relation, *verdicts


def _number(value: float, unit: str = "") -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}{unit}" if value >= 10 else f"{value:.2g}{unit}"


def _write(shown: Sequence[Reproduction], request: Request) -> None:
    """Write the pages and their plots."""
    stem = shown[0].experiment.name if len(shown) == 1 else "reproduction"
    stem += "-quick" if request.quick else ""
    pictures = _draw(shown, request)
    command = _command(request, [one.experiment.name for one in shown])
    for path in write_reproduction(
        shown, request.out, command=command, pictures=pictures, stem=stem
    ):
        written(path)
    if request.page is not None:
        relative = {
            name: Path(os.path.relpath(path, request.page.parent)).as_posix()
            for name, path in pictures.items()
        }
        text = to_markdown(shown, command=command, pictures=relative)
        write_atomically(request.page, text, force=True)
        written(request.page)


def _command(request: Request, names: list[str]) -> str:
    """Return the command that computes the results shown, independent of their folder."""
    options = [f"--only {one}" for one in request.only]
    if request.realizations:
        options.append(f"--realizations {request.realizations}")
    if request.quick:
        options.append("--quick")
    what = ["--all"] if names == list_experiments() else names
    return " ".join(["python -m reproduction", *what, *options])


def _draw(shown: Sequence[Reproduction], request: Request) -> dict[str, Path]:
    """Draw the figures, or print the reason why there are none."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        say("no pictures: matplotlib is not installed (pip install 'volmar[plot]')")
        return {}
    pictures = {}
    for one in shown:
        if not has_picture(one):
            continue
        display = PaperFigureDisplay(one)
        figure = Figure(figsize=display.size, layout="constrained")
        FigureCanvasAgg(figure)
        display.plot(figure=figure)
        suffix = "-quick" if request.quick else ""
        path = request.out / f"{one.experiment.name}{suffix}.png"
        # Without the version of matplotlib, the same plot gives the same file.
        buffer = io.BytesIO()
        figure.savefig(buffer, dpi=90, metadata={"Software": None})
        write_atomically(path, buffer.getvalue(), force=True)
        pictures[one.experiment.name] = path
    return pictures


def _refuse_nothing(shown: Sequence[Reproduction]) -> None:
    """Raise an error if no method has a result."""
    if any(one.n_cells for one in shown) and not any(one.points for one in shown):
        failures = [failure for one in shown for failure in one.failures]
        nothing = "there is no result; run it without --no-run."
        raise ValueError(failures[0] if failures else nothing)


def _part(experiment: Experiment, request: Request) -> Experiment:
    """Return an experiment restricted to the requested data sets and samplings."""
    unknown = sorted(set(request.only) - set(experiment.datasets))
    if unknown:
        raise ValueError(
            f"--only: {', '.join(unknown)} is not a data set of {experiment.name}; it has: "
            f"{', '.join(experiment.datasets)}."
        )
    if request.only:
        kept = {name: experiment.datasets[name] for name in request.only}
        experiment = replace(experiment, datasets=kept)
    return replace(experiment, quick=request.quick)
