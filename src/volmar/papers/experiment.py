"""Experiments as declarative files, and the cells they unfold into."""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import product
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One run: a data set, a sampling of it, a method with its parameters, a seed.

    Attributes
    ----------
    experiment, dataset, method : str
        Where the cell belongs.
    column : {"hindsight", "label-free"}
        A setting of the paper's grid, or the estimator's default.
    estimator : str
        Name in `volmar`.
    parameters : mapping
        The estimator's parameters.
    similarity : mapping or None
        Parameters of `volmar.graphs.make_similarity`, whose matrix the estimator is given as
        precomputed; None for the estimator's own.
    sampling : mapping
        Arguments of `volmar.datasets.load`.
    metric : str
        Name in `volmar.metrics`.
    seed : int
        Random state of the estimator.
    """

    experiment: str
    dataset: str
    method: str
    column: str
    estimator: str
    parameters: Mapping[str, Any]
    similarity: Mapping[str, Any] | None
    sampling: Mapping[str, Any]
    metric: str
    seed: int

    @property
    def key(self) -> str:
        """What identifies the cell in a store: a hash of everything that defines it."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Experiment:
    """A table of a paper, as read from its file.

    Attributes
    ----------
    name, title, paper, table, metric, note : str
        What it is; `paper` and `table` are those of the published figures.
    datasets : mapping of str to mapping
        Data sets, with what is special about each.
    similarities : mapping of str to mapping
        Named grids of similarities; lists are grids, everything else is fixed.
    methods : mapping of str to mapping
        Methods by the paper's names.
    n_realizations : int
        Samplings of each data set.
    """

    name: str
    title: str
    paper: str
    table: str
    metric: str
    note: str
    datasets: Mapping[str, Mapping[str, Any]]
    similarities: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Mapping[str, Any]]
    n_realizations: int

    def cells(self, n_realizations: int | None = None) -> Iterator[Cell]:
        """Unfold into cells, sampling by sampling, so that a part of a run is a smaller table."""
        for realization in range(1, (n_realizations or self.n_realizations) + 1):
            for (dataset, special), (method, spec) in product(
                self.datasets.items(), self.methods.items()
            ):
                grid = self.similarities[special.get("similarity", "default")]
                common = {
                    "experiment": self.name,
                    "dataset": dataset,
                    "method": method,
                    "estimator": spec["estimator"],
                    "sampling": {"realization": realization, **special.get("load", {})},
                    "metric": self.metric,
                    "seed": realization,
                }
                for similarity in unfold(grid):
                    fixed = {spec["matrix"]: "precomputed", **spec.get("fixed", {})}
                    yield Cell(
                        column="hindsight", parameters=fixed, similarity=similarity, **common
                    )
                yield Cell(column="label-free", parameters={}, similarity=None, **common)


def unfold(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the lists in `grid`; other values are the same in all of them."""
    axes = [value if isinstance(value, list) else [value] for value in grid.values()]
    for values in product(*axes):
        yield dict(zip(grid, values, strict=True))


def list_experiments() -> list[str]:
    """Names of the experiments that `load_experiment` knows."""
    folder = files("volmar.papers") / "experiments"
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name[0] != "_")


def load_experiment(name: str) -> Experiment:
    """Read an experiment by its name.

    Examples
    --------
    >>> from volmar.papers import load_experiment
    >>> experiment = load_experiment("mvc-jmlr-2013-table-2")
    >>> list(experiment.methods)
    ['KM', 'NSC']
    >>> len(list(experiment.cells(n_realizations=1)))
    112
    """
    if name not in list_experiments():
        raise ValueError(
            f"no experiment is named {name!r}; there are: {', '.join(list_experiments())}."
        )
    text = (files("volmar.papers") / "experiments" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_experiment(name, text)


def parse_experiment(name: str, text: str) -> Experiment:
    """Read an experiment from the text of its file."""
    raw = tomllib.loads(text)
    n_realizations = raw.pop("sampling")["realizations"]
    note = " ".join(raw.pop("note", "").split())
    return Experiment(name=name, n_realizations=n_realizations, note=note, **raw)


def published(paper: str, table: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Figures of a published table: (data set, method) to (value, standard error)."""
    figures = {}
    with (files("volmar.papers") / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["paper"], row["table"]) == (paper, table) and row["value"]:
                error = float(row["standard_error"]) if row["standard_error"] else None
                figures[row["dataset"], row["method"]] = (float(row["value"]), error)
    return figures
