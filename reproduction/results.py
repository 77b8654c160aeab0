"""Assignment of an experiment's results to lines and columns."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, stdev

import numpy as np
from scipy import stats

from reproduction.experiment import COLUMNS, Experiment
from reproduction.measures import Spread
from reproduction.store import CellResult

LEVEL = 0.05


@dataclass(frozen=True)
class Summary:
    """Mean, standard error and number of values; mean is None for no values."""

    mean: float | None
    standard_error: float | None
    n: int

    @classmethod
    def of(cls, values: Collection[float]) -> Summary:
        """Return the summary of values."""
        if not values:
            return cls(None, None, 0)
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(mean(values), error, len(values))

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.1f}" + (
            "" if self.standard_error is None else f" ± {self.standard_error:.1f}"
        )


NOTHING = Summary(None, None, 0)


@dataclass(frozen=True)
class Side:
    """One column of a line: under the paper's protocol (hindsight), or label-free.

    Attributes
    ----------
    summary : Summary
        Mean and standard error over the samplings.
    seconds : float
        Mean time of a fit (in hindsight: of the best settings); NaN without results.
    relation : float
        Those seconds relative to KMeans(n_init=10) on the same rows in the same run.
    difference : float or None
        Value of volmar minus the paper's, in points; for times, the ratio of the two.
    distance : float or None
        The difference in its standard errors; None if there is no error.
    best : bool
        Whether the method is the best on the data set, or comparable to it by the t-test.
    """

    summary: Summary = NOTHING
    seconds: float = math.nan
    relation: float = math.nan
    difference: float | None = None
    distance: float | None = None
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a reproduced table.

    Attributes
    ----------
    dataset, method : str
        Data set and method of the line.
    paper : Summary
        Printed value; its mean is None if there is none.
    hindsight, label_free : Side
        Results under the paper's protocol, and without labels.
    verdict : str
        Under the paper's protocol: "reproduced", "better than printed", "worse than printed",
        "not printed", "not run" or "failed"; for times "faster" or "slower".
    reason : str
        Reason why the line is empty, or a remark; may be "".
    label_free_verdict : str
        Without labels: "as good as printed" (or better), "worse than printed", "not printed" or
        "not run"; "" for times.
    """

    dataset: str
    method: str
    paper: Summary
    hindsight: Side
    label_free: Side
    verdict: str
    reason: str = ""
    label_free_verdict: str = ""


@dataclass(frozen=True)
class Point:
    """A point of a reproduced figure.

    Attributes
    ----------
    dataset, series, column : str
        Data set, method (or measure, if measures are shown), and column.
    x : float or None
        Place on the axis.
    quantity : str
        "value" (the metric, in percent), "seconds", or the name of a measure.
    spread : Spread
        Mean and median over the samplings.
    """

    dataset: str
    series: str
    column: str
    x: float | None
    quantity: str
    spread: Spread


class Results:
    """Results of an experiment, assigned to lines and columns.

    Parameters
    ----------
    experiment : Experiment
        Experiment, which defines the best setting.
    results : iterable of CellResult
        Results of its cells.

    Attributes
    ----------
    common : float, str or None
        Value of the parameter `experiment.common` that the labels choose for all data sets; None
        if there is no such parameter, or nothing was run.
    """

    def __init__(self, experiment: Experiment, results: Iterable[CellResult]):
        self.experiment = experiment
        self.all = list(results)
        self.common: float | str | None = None
        # Result of each sampling, by data set, method and column.
        self.columns: dict[tuple[str, str, str], dict[str, CellResult]] = defaultdict(dict)
        self.failures: dict[tuple[str, str], list[CellResult]] = defaultdict(list)
        self.reference: dict[tuple[str, str], float] = {}
        sign = -1.0 if experiment.larger_is_better else 1.0
        kept = self.all
        if experiment.common:
            self.common = _best_common(experiment, self.all)
            kept = at_common(experiment, self.all, self.common)
        for r in kept:
            cell = r.cell
            if r.value is None:
                self.failures[cell.dataset, cell.method].append(r)
                continue
            if cell.column == "reference":
                self.reference[cell.dataset, cell.rows_key] = r.seconds
                continue
            column = self.columns[cell.dataset, cell.method, cell.column]
            known = column.get(cell.sampling_key)
            if known is None or sign * r.value < sign * value_of(known):
                column[cell.sampling_key] = r
        for method, spec in experiment.methods.items():
            if "best_of" in spec:
                self._take_best(method, spec["best_of"])

    def _take_best(self, method: str, variants: Sequence[str]) -> None:
        """Set the results of a `best_of` method: the best at each place, label-free the first."""
        sign = -1.0 if self.experiment.larger_is_better else 1.0
        for dataset in self.experiment.datasets:
            for variant in variants:
                self.failures[dataset, method] += self.failures.get((dataset, variant), [])
            free = self.columns.get((dataset, variants[0], "label-free"), {})
            self.columns[dataset, method, "label-free"] = dict(free)
            at: dict[float | None, list[dict[str, CellResult]]] = defaultdict(list)
            for variant in variants:
                chosen = self.columns.get((dataset, variant, "hindsight"), {})
                for x in dict.fromkeys(r.cell.x for r in chosen.values()):
                    at[x].append({k: r for k, r in chosen.items() if r.cell.x == x})
            column = self.columns[dataset, method, "hindsight"]
            for found in at.values():
                means = [sign * mean(map(value_of, one.values())) for one in found]
                column.update(found[means.index(min(means))])

    def side(self, dataset: str, method: str, column: str) -> Side:
        """Return the summary of a column, without the comparison with the printed value."""
        chosen = self.columns.get((dataset, method, column), {})
        seconds = [r.seconds for r in chosen.values()]
        units = [self.reference.get((dataset, r.cell.rows_key)) for r in chosen.values()]
        known = [unit for unit in units if unit is not None]
        spent = mean(seconds) if seconds else math.nan
        return Side(
            summary=Summary.of([100 * value_of(r) for r in chosen.values()]),
            seconds=spent,
            relation=spent / mean(known) if known and len(known) == len(units) else math.nan,
        )

    def comparable(self, dataset: str, column: str) -> set[str]:
        """Return the best method of a data set, and those comparable to it by the t-test.

        The paired test uses the samplings that both methods have.
        """
        if not self.experiment.test:
            return set()
        columns = {
            method: {key: value_of(r) for key, r in self.columns[dataset, method, column].items()}
            for method in self.experiment.methods
            if self.columns.get((dataset, method, column))
        }
        if not columns:
            return set()
        choose = max if self.experiment.larger_is_better else min
        best = choose(columns, key=lambda method: mean(columns[method].values()))
        paired = self.experiment.test == "paired"
        return {
            method
            for method, values in columns.items()
            if method == best or _alike(values, columns[best], paired=paired)
        }

    def points(self) -> Iterator[Point]:
        """Return all quantities of all methods, at all places of the axis."""
        experiment = self.experiment
        percent = {m for panel in experiment.panels if panel.percent for m in panel.measures}
        for dataset, method, column in product(experiment.datasets, experiment.methods, COLUMNS):
            chosen = self.columns.get((dataset, method, column), {})
            at: dict[float | None, list[CellResult]] = defaultdict(list)
            for r in chosen.values():
                at[r.cell.x].append(r)
            for x in sorted(at, key=lambda place: place or 0.0):
                value = [100 * value_of(r) for r in at[x]]
                yield Point(dataset, method, column, x, "value", Spread.of(value))
                seconds = [r.seconds for r in at[x]]
                yield Point(dataset, method, column, x, "seconds", Spread.of(seconds))
                for measure in experiment.measures:
                    factor = 100.0 if measure in percent else 1.0
                    spread = Spread.of([factor * r.measures[measure] for r in at[x]])
                    series = measure if experiment.view == "measures" else method
                    yield Point(dataset, series, column, x, measure, spread)


def at_common(
    experiment: Experiment, results: Iterable[CellResult], value: float | str | None
) -> list[CellResult]:
    """Return the results without settings with other values of the common parameter."""
    name = experiment.common
    return [
        r
        for r in results
        if r.cell.column != "hindsight" or r.cell.parameters.get(name, value) == value
    ]


def common_values(experiment: Experiment) -> list[float | str]:
    """Return the values of the common parameter in the grids, in their order."""
    grids = [spec.get("grid", {}) for spec in experiment.methods.values()]
    listed = [grid.get(experiment.common, []) for grid in grids]
    return list(dict.fromkeys(value for values in listed for value in values))


def _best_common(experiment: Experiment, results: Sequence[CellResult]) -> float | str | None:
    """Return the common parameter with the best mean, among values run on the most sets."""
    plain = replace(experiment, common="")
    sign = -1.0 if experiment.larger_is_better else 1.0
    scores: dict[float | str, tuple[int, float]] = {}
    for value in common_values(experiment):
        at = Results(plain, at_common(experiment, results, value))
        means = [
            sign * mean(map(value_of, chosen.values()))
            for (_, _, column), chosen in at.columns.items()
            if column == "hindsight" and chosen
        ]
        if means:
            scores[value] = (-len(means), mean(means))
    return min(scores, key=lambda value: scores[value]) if scores else None


def value_of(result: CellResult) -> float:
    """Return the value of a cell that did not fail."""
    if result.value is None:
        raise ValueError(f"the cell failed: {result.status}")
    return result.value


def _alike(one: Mapping[str, float], other: Mapping[str, float], *, paired: bool) -> bool:
    """Return whether two methods do not differ in Student's t-test at 5 %."""
    a, b = list(one.values()), list(other.values())
    if paired:
        common = sorted(one.keys() & other.keys())
        a, b = [one[key] for key in common], [other[key] for key in common]
    if min(len(a), len(b)) < 2:
        return False
    spread = np.ptp(np.subtract(a, b)) if paired else max(np.ptp(a), np.ptp(b))
    if spread < 1e-12:
        # Without variance the statistic is undefined, and only equal means are comparable.
        return abs(mean(a) - mean(b)) < 1e-12
    if paired:
        test = stats.ttest_rel(a, b)
    else:
        test = stats.ttest_ind_from_stats(mean(a), stdev(a), len(a), mean(b), stdev(b), len(b))
    return bool(test.pvalue > LEVEL)
