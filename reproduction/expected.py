"""Expected times of experiments, measured in a stored run and stored with the package.

``python -m reproduction.expected FOLDER`` writes the file again from the results in FOLDER.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from reproduction.experiment import Experiment
from reproduction.files import list_experiments, load_experiment
from reproduction.runner import stored_results
from reproduction.store import NO_DATA, Store
from volmar._files import write_atomically

FILE = "expected.csv"


@dataclass(frozen=True)
class Expected:
    """Seconds of all cells of an experiment on one core, for a full run and a quick one."""

    seconds: float
    quick_seconds: float


def read_expected() -> dict[str, Expected]:
    """Return the known times, by the names of the experiments that define cells."""
    with (files("reproduction") / FILE).open(encoding="utf-8") as file:
        return {
            row["experiment"]: Expected(float(row["seconds"]), float(row["quick_seconds"]))
            for row in csv.DictReader(file)
        }


def measure_expected(folder: Path) -> dict[str, Expected]:
    """Return the total times of the experiments that are complete in `folder`."""
    measured = {}
    for experiment in map(load_experiment, list_experiments()):
        if experiment.source != experiment.name:
            continue
        store = Store(folder / f"{experiment.name}.jsonl")
        times = [_seconds(one, store) for one in (experiment, replace(experiment, quick=True))]
        if times[0] is not None and times[1] is not None:
            measured[experiment.name] = Expected(times[0], times[1])
    return measured


def _seconds(experiment: Experiment, store: Store) -> float | None:
    cells = list(experiment.cells())
    if not cells:
        return None
    results = stored_results(cells, store)
    without = any(r.status.startswith(NO_DATA) for r in results.values())
    if without or len(results) < len(cells):
        return None
    return sum(r.seconds for r in results.values())


def write_expected(folder: Path, path: Path) -> None:
    """Write the file of the package."""
    rows = [
        f"{name},{one.seconds:.3g},{one.quick_seconds:.3g}"
        for name, one in measure_expected(folder).items()
    ]
    text = "\n".join(["experiment,seconds,quick_seconds", *rows, ""])
    write_atomically(path, text, force=True)


if __name__ == "__main__":
    write_expected(Path(sys.argv[1]), Path(str(files("reproduction") / FILE)))
