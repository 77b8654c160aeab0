"""``volmar reproduce``: run a paper's table or figure again, or go on with it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from volmar.papers import (
    CellResult,
    Experiment,
    MeasureLine,
    Store,
    list_experiments,
    load_experiment,
    run_cells,
    summarise,
    summarise_measures,
)

COLUMNS = ("data", "method", "paper", "hindsight", "label-free", "s/fit")
EXPLANATION = (
    "{metric} in %, mean ± standard error. Hindsight takes the paper's best setting for each "
    "sampling by the labels; label-free is the estimator's default."
)
METRICS = {
    "balanced_clustering_error": "Balanced error",
    "normalized_mutual_information": "Normalised mutual information",
    "pair_f_measure": "F measure of pairs",
    "rand_index": "Rand index",
}
MEASURE_EXPLANATION = (
    "Mean ± standard error, and median ± median absolute deviation over the root of the number of "
    "samplings."
)
Row = tuple[str, ...]


class Page(NamedTuple):
    """A table as it is printed, and what its columns mean."""

    header: Row
    rows: list[Row]
    explanation: str


def list_all() -> None:
    """Print what can be reproduced."""
    table = Table("name", "what", "cells")
    for name in list_experiments():
        experiment = load_experiment(name)
        table.add_row(name, experiment.title, str(len(list(experiment.cells()))))
    Console().print(table)


def reproduce(
    name: str, *, out: Path, jobs: int, realizations: int | None, only: list[str]
) -> None:
    """Run the cells of an experiment that `out` does not hold yet, then print and write it."""
    console = Console()
    experiment = _part(load_experiment(name), only)
    store = Store(out / f"{name}.jsonl")
    # Before the first cell is computed, not after: can results be kept there?
    out.mkdir(parents=True, exist_ok=True)
    store.path.open("ab").close()
    results = _run(experiment, store, console, jobs=jobs, realizations=realizations)
    page = _figures(experiment, results) if experiment.measures else _table(experiment, results)
    # 80 columns do not hold the errors of all measures; the file does.
    shown = _figures(experiment, results, errors=False) if experiment.measures else page
    table = Table(
        title=experiment.title, caption=experiment.note, box=box.SIMPLE_HEAD, pad_edge=False
    )
    for column in shown.header:
        table.add_column(column, no_wrap=column in COLUMNS[:2])
    for row in shown.rows:
        table.add_row(*row)
    console.print(table)
    console.print(shown.explanation)
    failed = [r for r in results if r.value is None]
    if failed:
        console.print(f"{len(failed)} cells failed; the first: {failed[0].status}", markup=False)
    path = store.path.with_suffix(".md")
    path.write_text(_markdown(page, experiment.note), encoding="utf-8")
    console.print(f"cells in {store.path}, table in {path}", highlight=False, soft_wrap=True)
    if experiment.panels:
        picture = _draw(store.path.with_suffix(".png"), experiment, results)
        console.print(picture, highlight=False, markup=False, soft_wrap=True)


def _run(
    experiment: Experiment, store: Store, console: Console, *, jobs: int, realizations: int | None
) -> list[CellResult]:
    """Run the cells that `store` does not hold yet, with a bar, and return all results."""
    # Ended from outside, take the workers along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(experiment.name)
        try:
            results = run_cells(
                experiment.cells(realizations),
                store,
                jobs=jobs,
                progress=lambda done, wanted: bar.update(task, completed=done, total=wanted),
            )
        except KeyboardInterrupt:
            bar.stop()
            message = f"stopped; {store.path} keeps what is done. Run it again to go on."
            console.print(message, soft_wrap=True)
            raise SystemExit(130) from None
    return list(results.values())


def _table(experiment: Experiment, results: Collection[CellResult]) -> Page:
    """Errors beside the paper's."""
    lines = summarise(experiment, results)
    n = max((line.label_free.n for line in lines), default=0)
    rows = [
        (
            line.dataset,
            line.method,
            *map(str, (line.paper, line.hindsight, line.label_free)),
            f"{line.seconds:.3f}",
        )
        for line in lines
    ]
    metric = METRICS.get(experiment.metric, "Error")
    return Page(COLUMNS, rows, f"{EXPLANATION.format(metric=metric)} Samplings a set: {n}.")


def _figures(
    experiment: Experiment, results: Collection[CellResult], *, errors: bool = True
) -> Page:
    """Means and medians of measures, with their errors or without."""
    lines: dict[Row, list[MeasureLine]] = {}
    for line in summarise_measures(experiment, results):
        method = (line.method,) if len(experiment.methods) > 1 else ()
        size = () if line.size is None else (str(line.size),)
        lines.setdefault((line.dataset, *method, *size), []).append(line)
    percent = [m for panel in experiment.panels if panel.percent for m in panel.measures]
    rows = []
    for key, group in lines.items():
        digits = [1 if line.measure in percent else 2 for line in group]
        means = [(line.spread.mean, line.spread.standard_error) for line in group]
        medians = [(line.spread.median, line.spread.median_error) for line in group]
        for name, pairs in (("mean", means), ("median", medians)):
            figures = (
                f"{value:.{d}f}" + (f" ± {error:.{d}f}" if errors and error is not None else "")
                for (value, error), d in zip(pairs, digits, strict=True)
            )
            rows.append((*key, name, *figures))
    header = (
        "data",
        *(["method"] if len(experiment.methods) > 1 else []),
        *(["n"] if experiment.sizes else []),
        "of",
        *experiment.measures,
    )
    n = max((line.spread.n for group in lines.values() for line in group), default=0)
    explanation = " ".join(
        [
            *([MEASURE_EXPLANATION] if errors else []),
            *([f"{', '.join(percent)}: error in %."] if percent else []),
            f"Samplings a set and size: {n}.",
        ]
    )
    return Page(header, rows, explanation)


def _markdown(page: Page, note: str) -> str:
    table = [page.header, ("---",) * len(page.header), *page.rows]
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([*lines, "", f"{page.explanation} {note}".rstrip(), ""])


def _draw(path: Path, experiment: Experiment, results: Collection[CellResult]) -> str:
    """Write the picture and say where it is, or why there is none."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "no picture: matplotlib is not installed (pip install 'volmar[plot]')"
    from volmar.plots import MeasuresDisplay

    lines = summarise_measures(experiment, results)
    if not lines:
        return "no picture: no cell gave a result"
    display = MeasuresDisplay(lines, experiment.panels)
    figure = Figure(figsize=display.size, layout="constrained")
    FigureCanvasAgg(figure)
    display.plot(figure=figure)
    figure.savefig(path, dpi=150)
    return f"picture in {path}"


def _part(experiment: Experiment, only: list[str]) -> Experiment:
    unknown = sorted(set(only) - set(experiment.datasets))
    if unknown:
        raise ValueError(
            f"--only: {', '.join(unknown)} is not a data set of {experiment.name}; it has: "
            f"{', '.join(experiment.datasets)}."
        )
    if not only:
        return experiment
    return replace(experiment, datasets={k: experiment.datasets[k] for k in only})
