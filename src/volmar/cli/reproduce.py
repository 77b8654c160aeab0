"""``volmar reproduce``: run a paper's table again, or go on with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from volmar.papers import (
    Experiment,
    Store,
    list_experiments,
    load_experiment,
    run_cells,
    summarise,
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
            console.print(f"stopped; {store.path} keeps what is done. Run it again to go on.")
            raise SystemExit(130) from None
    table = Table(title=experiment.title, caption=experiment.note)
    for column in ("data", "method", "paper", "hindsight", "label-free", "seconds a fit"):
        table.add_column(column)
    for line in summarise(experiment, results.values()):
        table.add_row(
            line.dataset,
            line.method,
            str(line.paper),
            str(line.hindsight),
            str(line.label_free),
            f"{line.seconds:.3f}",
        )
    console.print(table)
    console.print("error in %, mean ± standard error; hindsight picks the setting by the labels")
    failed = [r for r in results.values() if r.value is None]
    if failed:
        console.print(f"{len(failed)} cells failed; the first: {failed[0].status}")
    console.print(f"cells in {store.path}", highlight=False)


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
