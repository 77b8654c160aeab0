"""``volmar reproduce``: run a paper's table again, or go on with it."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from volmar.papers import (
    Experiment,
    Line,
    Store,
    list_experiments,
    load_experiment,
    run_cells,
    summarise,
)

COLUMNS = ("data", "method", "paper", "hindsight", "label-free", "s/fit")
EXPLANATION = (
    "Error in %, mean ± standard error. Hindsight takes the paper's best setting for each "
    "sampling by the labels; label-free is the estimator's default."
)


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
    """Run the cells of an experiment that `out` does not hold yet, then print the table."""
    console = Console()
    experiment = _part(load_experiment(name), only)
    store = Store(out / f"{name}.jsonl")
    # Before the first cell is computed, not after: can results be kept there?
    out.mkdir(parents=True, exist_ok=True)
    store.path.open("ab").close()
    # Ended from outside, take the workers along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name)
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
    lines = summarise(experiment, results.values())
    table = Table(title=experiment.title, caption=experiment.note)
    for column in COLUMNS:
        table.add_column(column, no_wrap=column in COLUMNS[:2])
    for line in lines:
        table.add_row(*_cells(line))
    console.print(table)
    console.print(EXPLANATION)
    failed = [r for r in results.values() if r.value is None]
    if failed:
        console.print(f"{len(failed)} cells failed; the first: {failed[0].status}")
    page = store.path.with_suffix(".md")
    page.write_text(_markdown(experiment, lines), encoding="utf-8")
    console.print(f"cells in {store.path}, table in {page}", highlight=False, soft_wrap=True)


def _cells(line: Line) -> tuple[str, ...]:
    summaries = (line.paper, line.hindsight, line.label_free)
    return (line.dataset, line.method, *map(str, summaries), f"{line.seconds:.3f}")


def _markdown(experiment: Experiment, lines: list[Line]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, lines)]
    n = max((line.label_free.n for line in lines), default=0)
    return "\n".join(
        [
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
            f"{EXPLANATION} Samplings a set: {n}. {experiment.note}",
            "",
        ]
    )


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
