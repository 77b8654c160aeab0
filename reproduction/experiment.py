"""Experiments, as declared in their files, and their expansion into cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, NamedTuple, TypeVar


class Paper(NamedTuple):
    """Name of a paper, in short and in full."""

    short: str
    full: str


# Metrics for which larger values are better.
AGREEMENTS = ("normalized_mutual_information", "pair_f_measure", "rand_index")
VIEWS = ("table", "times", "curves", "measures", "data", "correlation")
COLUMNS = ("hindsight", "label-free")
# Names on pages and plots.
COLUMN_NAMES = {"hindsight": "paper's protocol", "label-free": "label-free"}
PAPERS = {
    "mvc-jmlr-2013": Paper(
        "Niu et al., JMLR 2013",
        "Niu, Dai, Shang and Sugiyama, JMLR 2013 (maximum volume clustering)",
    ),
    "mvc-aistats-2011": Paper(
        "Niu et al., AISTATS 2011",
        "Niu, Dai, Shang and Sugiyama, AISTATS 2011 (maximum volume clustering)",
    ),
    "mmc-multivariate-loss": Paper("Zhao et al.", "Zhao, Kwok and Zhang (multivariate losses)"),
    "mspc-aaai-2015": Paper(
        "Huang et al., AAAI 2015",
        "Huang, Zhang, Song and Chen, AAAI 2015 (maximin separation probability)",
    ),
    "skmmc-nnw": Paper("Wu and Zhang", "Wu and Zhang (SKMMC)"),
}
# Reference of all relative times, run on the rows of every sampling.
REFERENCE = "KMeans"
REFERENCE_CELL: dict[str, Any] = {
    "method": REFERENCE,
    "column": "reference",
    "estimator": "sklearn.cluster.KMeans",
    "parameters": {"n_clusters": 2, "n_init": 10},
    "similarity": None,
}
# Maximum numbers of values of an axis and of settings of a grid in a quick run.
QUICK_POINTS = 2
QUICK_SETTINGS = 3

Item = TypeVar("Item")


@dataclass(frozen=True)
class Cell:
    """One run: a data set, a sampling of it, a method with its parameters, a seed.

    Attributes
    ----------
    experiment, dataset, method : str
        Experiment, data set and method of the cell.
    column : {"hindsight", "label-free", "reference"}
        A setting of the paper's grid, the estimator's default, or k-means as the unit of time.
    estimator : str
        Name in `volmar`, or a dotted path into scikit-learn.
    parameters : mapping
        The estimator's parameters.
    similarity : mapping or None
        Parameters of `volmar.graphs.make_similarity`, whose matrix the estimator is given as
        precomputed. If None, it is given the rows.
    sampling : mapping
        Arguments of `volmar.datasets.load`; ``stretch`` is a factor of one feature, and
        ``feature`` its position in a seeded order.
    metric : str
        Name in `volmar.metrics`, rand_index or normalized_mutual_information.
    seed : int
        Random state of the estimator.
    x : float or None
        Place on the axis of a figure. None if there is no axis.
    measures : mapping of str to str
        Further results to store: names, and attributes of the fitted estimator.
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
    x: float | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    metric_params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Identifier of the cell in a store: a hash of its definition."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def rows_key(self) -> str:
        """Identifier of the rows of a cell; samplings of a whole set differ in the seed."""
        return str((sorted(self.sampling.items()), self.seed))

    @property
    def sampling_key(self) -> str:
        """Identifier of rows and place on the axis: the labels choose among its settings."""
        return f"{self.rows_key} {self.x}"


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
class Axis:
    """Horizontal axis of a figure.

    Attributes
    ----------
    kind : {"none", "size", "stretch", "parameter"}
        No axis, number of rows of a sampling, factor of one feature, or a parameter.
    values : tuple of float
        Places on the axis.
    label : str
        Its name, with its unit.
    parameter : str
        Name of the parameter.
    log : bool
        Whether it is logarithmic.
    """

    kind: str = "none"
    values: tuple[float, ...] = ()
    label: str = ""
    parameter: str = ""
    log: bool = False


@dataclass(frozen=True)
class Statement:
    """A statement of a paper's text about its figures, in a form that can be checked.

    On at least `share` of the data sets `on`, the mean of `quantity` of the series `of` over the
    places `at` is below (or above) `factor` times that of the series `than` (over the places
    `than_at`) plus `margin`. `than` may be a number. With `pointwise` each place is compared
    separately, as on a curve, and `share` is that of all places on all data sets.
    """

    says: str
    of: str
    than: str | float
    is_below: bool
    on: tuple[str, ...] = ()
    at: tuple[float, ...] = ()
    than_at: tuple[float, ...] = ()
    quantity: str = "value"
    factor: float = 1.0
    margin: float = 0.0
    share: float = 1.0
    pointwise: bool = False


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of a paper, as read from its file.

    Attributes
    ----------
    name, title, paper, table, figure, metric, note : str
        Description; `paper` and `table` are those of the published values. `note` lists
        deviations from the paper.
    view : str
        One of `VIEWS`: how the results are shown.
    source : str
        Name of the experiment that defines the cells: this one, or another one whose results
        are shown in a different way.
    datasets : mapping of str to mapping
        Data sets, with the options of each.
    similarities : mapping of str to mapping
        Named grids of similarities; lists are grids, everything else is fixed.
    methods : mapping of str to mapping
        Methods by the paper's names. Under the paper's protocol (the column "hindsight") the
        parameters are `fixed`, those that `on` has for the data set, and one setting of `grid`;
        `matrix` names the parameter that is set to "precomputed" if a similarity is given
        instead of rows: that of the data set, or else of the method, or else "default".
        Label-free, the parameters are `default`. A value "5/n" is 5 over the number of rows.
        `realizations`, `sizes`, `datasets` and `columns` restrict expensive methods. A method that
        has only `best_of` is not run: under the paper's protocol it is the best of these methods
        on each data set and at each place of the axis, by the mean over samplings; label-free it
        is the first of them.
    n_realizations : int
        Samplings of each data set, at each place of the axis.
    whole_sets : bool
        Whether a sampling is the whole set with a different seed, not a sample of the rows.
    axis : Axis
        Horizontal axis of a figure.
    columns : tuple of str
        Those of `COLUMNS` that are run.
    measures : mapping of str to str
        Results of fitted estimators shown in a figure: names, and dotted attributes, either a
        number or n soft responses.
    panels : tuple of Panel
        How a figure arranges the measures.
    quantities, log : tuple of str
        Quantities of curves ("value", "seconds" or measures), and those on a logarithmic axis.
    metric_params : mapping
        Arguments of the metric.
    tolerance : float
        Maximum difference in points for a value to count as reproduced.
    needed : float
        Minimum share of judged values that are reproduced, or of statements that hold.
    judged : tuple of str
        Methods on which the verdict rests; empty for all that are printed and run.
    parts : mapping of str to tuple of str
        Groups of data sets that the verdict lists separately.
    test : {"", "paired", "unpaired"}
        t-test by which methods that are comparable to the best are marked.
    absent, remarks : mapping of str to str
        Reason why a printed method (or method/data set) is not run, and remarks on lines of
        others.
    common : str
        Parameter for which the labels choose one value for all data sets together, if values of
        several data sets are compared with each other.
    groups, printed : mapping
        Data sets that are correlated with each other, and the printed correlations.
    statements : tuple of Statement
        Statements of the paper's text.
    reason, label_free_reason : str
        Likely reasons if it is not reproduced under the paper's protocol, or worse than printed
        without labels.
    quick : bool
        Whether only some cells of every data set and method are run.
    """

    name: str
    title: str
    paper: str
    metric: str
    datasets: Mapping[str, Mapping[str, Any]]
    table: str = ""
    figure: str = ""
    view: str = "table"
    source: str = ""
    note: str = ""
    reason: str = ""
    label_free_reason: str = ""
    similarities: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    n_realizations: int = 1
    whole_sets: bool = False
    axis: Axis = Axis()
    columns: tuple[str, ...] = COLUMNS
    measures: Mapping[str, str] = field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    quantities: tuple[str, ...] = ("value",)
    log: tuple[str, ...] = ()
    metric_params: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 2.0
    needed: float = 0.75
    judged: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    test: str = ""
    absent: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    common: str = ""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    printed: Mapping[str, float] = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    quick: bool = False

    @property
    def larger_is_better(self) -> bool:
        """Whether the metric is an agreement, not an error."""
        return self.metric in AGREEMENTS

    @property
    def prints_agreements(self) -> bool:
        """Whether larger printed values are better; correlations count as agreements."""
        return self.larger_is_better or self.view == "correlation"

    @property
    def axis_label(self) -> str:
        """Name of the horizontal axis of figures."""
        return self.axis.label

    @property
    def axis_log(self) -> bool:
        """Whether that axis is logarithmic."""
        return self.axis.log

    @property
    def sizes(self) -> tuple[float, ...]:
        """Return the sizes of samplings; empty if the data set has a fixed size."""
        return self.axis.values if self.axis.kind == "size" else ()

    def cells(self, n_realizations: int | None = None) -> Iterator[Cell]:
        """Return the cells, sampling by sampling, so that part of a run is a smaller table."""
        n_realizations = n_realizations or (1 if self.quick else self.n_realizations)
        for realization, x in product(range(1, n_realizations + 1), self.places()):
            for dataset, special in self.datasets.items():
                if self.methods and _wanted(special, realization, x, self.axis):
                    yield from self._sampled(dataset, special, realization, x)

    def places(self) -> Sequence[float | None]:
        """Places on the axis that are run."""
        if not self.axis.values:
            return [None]
        return _spread_out(self.axis.values, QUICK_POINTS) if self.quick else self.axis.values

    def _sampled(
        self, dataset: str, special: Mapping[str, Any], realization: int, x: float | None
    ) -> Iterator[Cell]:
        """Return the cells on one sampling of a data set."""
        sampling: dict[str, Any] = {} if self.whole_sets else {"realization": realization}
        if x is not None and self.axis.kind == "size":
            sampling["n_samples"] = int(x)
        if x is not None and self.axis.kind == "stretch":
            sampling.update(stretch=x, feature=realization)
        common: dict[str, Any] = {
            "experiment": self.source,
            "dataset": dataset,
            "sampling": {**sampling, **special.get("load", {})},
            "metric": self.metric,
            "seed": realization,
            "metric_params": self.metric_params,
        }
        # The rows are the same at every place of an axis of parameters.
        if self.axis.kind != "parameter" or x == self.axis.values[0]:
            yield Cell(**REFERENCE_CELL, x=x, **common)
        for method, spec in self.methods.items():
            if "best_of" in spec or dataset not in spec.get("datasets", self.datasets):
                continue
            if not _wanted(spec, realization, x, self.axis):
                continue
            columns = spec.get("columns", self.columns)
            named = {
                "method": method,
                "estimator": spec["estimator"],
                "x": x,
                "measures": self.measures,
            }
            if "hindsight" in columns:
                for similarity, parameters in self._hindsight(dataset, special, spec, x):
                    yield Cell(
                        column="hindsight",
                        parameters=parameters,
                        similarity=similarity,
                        **named,
                        **common,
                    )
            if "label-free" in columns:
                own = spec.get("default_on", {}).get(dataset, {})
                default = {**spec.get("default", {}), **own}
                yield Cell(
                    column="label-free", parameters=default, similarity=None, **named, **common
                )

    def _hindsight(
        self, dataset: str, special: Mapping[str, Any], spec: Mapping[str, Any], x: float | None
    ) -> Sequence[tuple[dict[str, Any] | None, dict[str, Any]]]:
        """Return similarity and parameters of every setting of a method's grids on a data set."""
        fixed = {**spec.get("fixed", {}), **spec.get("on", {}).get(dataset, {})}
        if self.axis.kind == "parameter":
            fixed[self.axis.parameter] = x
        similarities: Iterable[dict[str, Any] | None] = [None]
        if "matrix" in spec:
            fixed = {spec["matrix"]: "precomputed", **fixed}
            similarities = unfold(self.similarities[similarity_name(special, spec)])
        settings = [
            (similarity, {**fixed, **setting})
            for similarity, setting in product(similarities, unfold(spec.get("grid", {})))
        ]
        return _spread_out(settings, QUICK_SETTINGS) if self.quick else settings


def similarity_name(special: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the similarity of a method on a data set: that of the data set, if it has one."""
    return special.get("similarity", spec.get("similarity", "default"))


def unfold(grid: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return all combinations of the lists in `grid`; other values are constant."""
    axes = [value if isinstance(value, list) else [value] for value in grid.values()]
    for values in product(*axes):
        yield dict(zip(grid, values, strict=True))


def _wanted(spec: Mapping[str, Any], realization: int, x: float | None, axis: Axis) -> bool:
    """Return whether a data set or a method has this sampling at this place."""
    if realization > spec.get("realizations", realization):
        return False
    return axis.kind != "size" or x in spec.get("sizes", axis.values)


def _spread_out(items: Sequence[Item], n: int) -> Sequence[Item]:
    """Return at most n items at equal steps, from the first; the last is left out."""
    return items if len(items) <= n else [items[i * len(items) // n] for i in range(n)]
