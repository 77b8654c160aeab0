"""Experiments as declarative files, and the cells they unfold into."""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
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
        precomputed; None where it is given the rows.
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
        Methods by the paper's names. In hindsight the parameters are `fixed` and one setting of
        `grid`, and `matrix`, where it is there, names the parameter that says that a similarity
        is given instead of rows. Label-free they are `default`.
    n_realizations : int
        Samplings of each data set.
    whole_sets : bool
        Whether a sampling is the whole set with a seed of its own, not a part of the set.
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
    whole_sets: bool

    def cells(self, n_realizations: int | None = None) -> Iterator[Cell]:
        """Unfold into cells, sampling by sampling, so that a part of a run is a smaller table."""
        for realization in range(1, (n_realizations or self.n_realizations) + 1):
            for (dataset, special), (method, spec) in product(
                self.datasets.items(), self.methods.items()
            ):
                sampling = {} if self.whole_sets else {"realization": realization}
                common = {
                    "experiment": self.name,
                    "dataset": dataset,
                    "method": method,
                    "estimator": spec["estimator"],
                    "sampling": {**sampling, **special.get("load", {})},
                    "metric": self.metric,
                    "seed": realization,
                }
                for similarity, parameters in self._hindsight(special, spec):
                    yield Cell(
                        column="hindsight", parameters=parameters, similarity=similarity, **common
                    )
                default = spec.get("default", {})
                yield Cell(column="label-free", parameters=default, similarity=None, **common)

    def _hindsight(
        self, special: Mapping[str, Any], spec: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Similarity and parameters of every setting of a method's grids on a data set."""
        fixed = spec.get("fixed", {})
        similarities: Iterable[dict[str, Any] | None] = [None]
        if "matrix" in spec:
            fixed = {spec["matrix"]: "precomputed", **fixed}
            similarities = unfold(self.similarities[special.get("similarity", "default")])
        for similarity, setting in product(similarities, unfold(spec.get("grid", {}))):
            yield similarity, {**fixed, **setting}


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
    sampling = raw.pop("sampling")
    return Experiment(
        name=name,
        n_realizations=sampling["realizations"],
        whole_sets=sampling.get("whole_sets", False),
        note=" ".join(raw.pop("note", "").split()),
        similarities=raw.pop("similarities", {}),
        **raw,
    )


def published(paper: str, table: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Figures of a published table: (data set, method) to (value, standard error)."""
    figures = {}
    with (files("volmar.papers") / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["paper"], row["table"]) == (paper, table) and row["value"]:
                error = float(row["standard_error"]) if row["standard_error"] else None
                figures[row["dataset"], row["method"]] = (float(row["value"]), error)
    return figures
