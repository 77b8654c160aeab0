"""Experiments as declarative files, and the cells they unfold into."""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import product
from typing import Any

# Metrics of which more is better.
AGREEMENTS = ("normalized_mutual_information", "pair_f_measure", "rand_index")
# Published figures that are shares, not percentages.
SHARES = ("nmi", "rand_index", "f_beta_1.5")


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
        Name in `volmar`, or a dotted path into scikit-learn.
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
    measures : mapping of str to str
        What else is kept of the run: names, and attributes of the fitted estimator.
    metric_params : mapping
        Arguments of the metric.
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
    measures: Mapping[str, str] = field(default_factory=dict)
    metric_params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What identifies the cell in a store: a hash of everything that defines it."""
        parts = asdict(self)
        # Keys of results from before these were there stay.
        for name in ("measures", "metric_params"):
            if not parts[name]:
                del parts[name]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def sampling_key(self) -> str:
        """What settings on the same rows share; samplings of a whole set differ in their seed."""
        return str((sorted(self.sampling.items()), self.seed))


@dataclass(frozen=True)
class Panel:
    """A panel of a paper's figure: measures that share an axis.

    Attributes
    ----------
    axis : str
        Name of the axis, with its unit.
    measures : tuple of str
        Names of the measures.
    percent : bool
        Whether the measures are shares that are shown in percent.
    """

    axis: str
    measures: tuple[str, ...]
    percent: bool = False


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper, as read from its file.

    Attributes
    ----------
    name, title, paper, table, metric, note : str
        What it is; `paper` and `table` are those of the published figures, `table` is empty where
        none are.
    datasets : mapping of str to mapping
        Data sets, with what is special about each.
    similarities : mapping of str to mapping
        Named grids of similarities; lists are grids, everything else is fixed.
    methods : mapping of str to mapping
        Methods by the paper's names. In hindsight the parameters are `fixed` and one setting of
        `grid`, and `matrix`, where it is there, names the parameter that says that a similarity
        is given instead of rows: the one that the data set names, or else the method, or else
        "default". Label-free they are `default`. The paper prints nothing of an `unprinted` one.
    n_realizations : int
        Samplings of each data set, or of each size of each data set.
    whole_sets : bool
        Whether a sampling is the whole set with a seed of its own, not a part of the set.
    sizes : tuple of int
        Rows of a sampling, one size after the other; empty where the data set has a size.
    measures : mapping of str to str
        What a figure shows of the fitted estimators: names, and dotted attributes, either a number
        or n soft responses. With measures only the paper's settings are run, not the default.
    panels : tuple of Panel
        How the figure arranges the measures.
    metric_params : mapping
        Arguments of the metric.
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
    sizes: tuple[int, ...] = ()
    measures: Mapping[str, str] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    metric_params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def larger_is_better(self) -> bool:
        """Whether the metric is an agreement, not an error."""
        return self.metric in AGREEMENTS

    def cells(self, n_realizations: int | None = None) -> Iterator[Cell]:
        """Unfold into cells, sampling by sampling, so that a part of a run is a smaller table."""
        for sampling, seed in self._samplings(n_realizations or self.n_realizations):
            for (dataset, special), (method, spec) in product(
                self.datasets.items(), self.methods.items()
            ):
                common = {
                    "experiment": self.name,
                    "dataset": dataset,
                    "method": method,
                    "estimator": spec["estimator"],
                    "sampling": {**sampling, **special.get("load", {})},
                    "metric": self.metric,
                    "seed": seed,
                    "measures": self.measures,
                    "metric_params": self.metric_params,
                }
                for similarity, parameters in self._hindsight(special, spec):
                    yield Cell(
                        column="hindsight", parameters=parameters, similarity=similarity, **common
                    )
                if not self.measures:
                    default = spec.get("default", {})
                    yield Cell(column="label-free", parameters=default, similarity=None, **common)

    def _samplings(self, n_realizations: int) -> Iterator[tuple[dict[str, int], int]]:
        """Arguments of `volmar.datasets.load` and the seed of every sampling."""
        for realization in range(1, n_realizations + 1):
            sampling = {} if self.whole_sets else {"realization": realization}
            if not self.sizes:
                yield sampling, realization
            for size in self.sizes:
                yield {**sampling, "n_samples": size}, realization

    def _hindsight(
        self, special: Mapping[str, Any], spec: Mapping[str, Any]
    ) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Similarity and parameters of every setting of a method's grids on a data set."""
        fixed = spec.get("fixed", {})
        similarities: Iterable[dict[str, Any] | None] = [None]
        if "matrix" in spec:
            fixed = {spec["matrix"]: "precomputed", **fixed}
            similarities = unfold(self.similarities[similarity_name(special, spec)])
        for similarity, setting in product(similarities, unfold(spec.get("grid", {}))):
            yield similarity, {**fixed, **setting}


def similarity_name(special: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Name of the similarity of a method on a data set: the data set's word goes first."""
    return special.get("similarity", spec.get("similarity", "default"))


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
    ['KM', 'NSC', 'MVC-SL', 'LGMMC']
    >>> len(list(experiment.cells(n_realizations=1)))
    270
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
    experiment = Experiment(
        name=name,
        table=raw.pop("table", ""),
        n_realizations=sampling["realizations"],
        whole_sets=sampling.get("whole_sets", False),
        sizes=tuple(sampling.get("sizes", ())),
        note=" ".join(raw.pop("note", "").split()),
        similarities=raw.pop("similarities", {}),
        panels=tuple(
            Panel(panel["axis"], tuple(panel["measures"]), panel.get("percent", False))
            for panel in raw.pop("panels", ())
        ),
        **raw,
    )
    _check(experiment)
    return experiment


def _check(experiment: Experiment) -> None:
    """Refuse a file that names what it does not define."""
    if experiment.whole_sets and experiment.sizes:
        raise ValueError(
            f"{experiment.name}: sampling has both whole_sets and sizes={list(experiment.sizes)}; "
            "leave one of them out."
        )
    for special, (method, spec) in product(
        experiment.datasets.values(), experiment.methods.items()
    ):
        wanted = similarity_name(special, spec)
        if "matrix" in spec and wanted not in experiment.similarities:
            raise ValueError(
                f"{experiment.name}: method {method} needs the similarity {wanted!r}, and there "
                f"are: {', '.join(experiment.similarities) or 'none'}; add it, or name another."
            )
    if experiment.panels and not experiment.sizes:
        raise ValueError(
            f"{experiment.name}: panels show measures against the sample size, and sampling has "
            "no sizes; add them, or leave the panels out."
        )
    drawn = {measure for panel in experiment.panels for measure in panel.measures}
    unknown = sorted(drawn - set(experiment.measures))
    if unknown:
        raise ValueError(
            f"{experiment.name}: a panel shows {', '.join(unknown)}, and there are: "
            f"{', '.join(experiment.measures) or 'none'}; add it to [measures]."
        )


def published(paper: str, table: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Figures of a published table, in %: (data set, method) to (value, standard error)."""
    figures = {}
    with (files("volmar.papers") / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["paper"], row["table"]) == (paper, table) and row["value"]:
                error = float(row["standard_error"]) if row["standard_error"] else None
                # Agreements are printed as shares.
                factor = 100.0 if row["metric"] in SHARES else 1.0
                figures[row["dataset"], row["method"]] = (factor * float(row["value"]), error)
    return figures
