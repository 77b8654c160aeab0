"""From results to the lines of a table and the points of a figure, beside what is printed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean, stdev

import numpy as np
from scipy import stats

from reproduction.experiment import COLUMNS, Experiment
from reproduction.files import published, published_cells
from reproduction.measures import Spread
from reproduction.store import NO_DATA, CellResult

LEVEL = 0.05
ON_BOTH = "correlation of MSP and accuracy"


@dataclass(frozen=True)
class Summary:
    """Mean, standard error and number of values; mean is None without any."""

    mean: float | None
    standard_error: float | None
    n: int

    @classmethod
    def of(cls, values: Collection[float]) -> Summary:
        """Sum up values."""
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
    """One column of a line, hindsight or label-free.

    Attributes
    ----------
    summary : Summary
        Mean and standard error over the samplings.
    seconds : float
        Mean time of a fit (in hindsight: of the settings that were best); NaN without any.
    relation : float
        Those seconds over the ones that KMeans(n_init=10) took on the same rows in the same run.
    difference : float or None
        Ours minus the paper's, in points; of times, ours over the paper's.
    distance : float or None
        The difference in its standard errors; None where there is no error.
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
        What the line is of.
    paper : Summary
        What is printed; its mean is None where nothing is.
    hindsight, label_free : Side
        What came out.
    verdict : str
        One of "reproduced", "only in hindsight", "better than printed", "worse than printed", "not
        printed", "not run" and "failed"; of times "faster" and "slower".
    reason : str
        Why the line is empty; "" where it is not.
    """

    dataset: str
    method: str
    paper: Summary
    hindsight: Side
    label_free: Side
    verdict: str
    reason: str = ""


@dataclass(frozen=True)
class Point:
    """A point of a reproduced figure.

    Attributes
    ----------
    dataset, series, column : str
        A data set, a method of it (a measure where measures are shown), and which of its columns.
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
    """Results of an experiment in order: what stands in which column of which line.

    Parameters
    ----------
    experiment : Experiment
        Says which setting is the best.
    results : iterable of CellResult
        Of its cells.
    """

    def __init__(self, experiment: Experiment, results: Iterable[CellResult]):
        self.experiment = experiment
        # Data set, method and column to samplings to the result that stands for each.
        self.columns: dict[tuple[str, str, str], dict[str, CellResult]] = defaultdict(dict)
        self.failures: dict[tuple[str, str], list[CellResult]] = defaultdict(list)
        self.reference: dict[tuple[str, str], float] = {}
        sign = -1.0 if experiment.larger_is_better else 1.0
        for r in results:
            cell = r.cell
            if r.value is None:
                self.failures[cell.dataset, cell.method].append(r)
                continue
            if cell.column == "reference":
                self.reference[cell.dataset, cell.rows_key] = r.seconds
                continue
            column = self.columns[cell.dataset, cell.method, cell.column]
            known = column.get(cell.sampling_key)
            if known is None or sign * r.value < sign * _value(known):
                column[cell.sampling_key] = r

    def side(self, dataset: str, method: str, column: str) -> Side:
        """Sum up what came out in a column, without what it is compared with."""
        chosen = self.columns.get((dataset, method, column), {})
        seconds = [r.seconds for r in chosen.values()]
        units = [self.reference.get((dataset, r.cell.rows_key)) for r in chosen.values()]
        known = [unit for unit in units if unit is not None]
        spent = mean(seconds) if seconds else math.nan
        return Side(
            summary=Summary.of([100 * _value(r) for r in chosen.values()]),
            seconds=spent,
            relation=spent / mean(known) if known and len(known) == len(units) else math.nan,
        )

    def comparable(self, dataset: str, column: str) -> set[str]:
        """Best method of a data set, and those that the experiment's t-test does not tell from it.

        The paired test takes the samplings that both methods have.
        """
        if not self.experiment.test:
            return set()
        columns = {
            method: {key: _value(r) for key, r in self.columns[dataset, method, column].items()}
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
        """Every quantity of every method, at every place of the axis."""
        experiment = self.experiment
        percent = {m for panel in experiment.panels if panel.percent for m in panel.measures}
        for dataset, method, column in product(experiment.datasets, experiment.methods, COLUMNS):
            chosen = self.columns.get((dataset, method, column), {})
            at: dict[float | None, list[CellResult]] = defaultdict(list)
            for r in chosen.values():
                at[r.cell.x].append(r)
            for x in sorted(at, key=lambda place: place or 0.0):
                value = [100 * _value(r) for r in at[x]]
                yield Point(dataset, method, column, x, "value", Spread.of(value))
                seconds = [r.seconds for r in at[x]]
                yield Point(dataset, method, column, x, "seconds", Spread.of(seconds))
                for measure in experiment.measures:
                    factor = 100.0 if measure in percent else 1.0
                    spread = Spread.of([factor * r.measures[measure] for r in at[x]])
                    series = measure if experiment.view == "measures" else method
                    yield Point(dataset, series, column, x, measure, spread)


def _value(result: CellResult) -> float:
    if result.value is None:
        raise ValueError(f"the cell failed: {result.status}")
    return result.value


def _alike(one: Mapping[str, float], other: Mapping[str, float], *, paired: bool) -> bool:
    """Whether Student's t-test at 5 % does not separate two methods."""
    a, b = list(one.values()), list(other.values())
    if paired:
        common = sorted(one.keys() & other.keys())
        a, b = [one[key] for key in common], [other[key] for key in common]
    if min(len(a), len(b)) < 2:
        return False
    spread = np.ptp(np.subtract(a, b)) if paired else max(np.ptp(a), np.ptp(b))
    if spread < 1e-12:
        # Without any variance the statistic is undefined: only equal means are alike.
        return abs(mean(a) - mean(b)) < 1e-12
    if paired:
        test = stats.ttest_rel(a, b)
    else:
        test = stats.ttest_ind_from_stats(mean(a), stdev(a), len(a), mean(b), stdev(b), len(b))
    return bool(test.pvalue > LEVEL)


def make_lines(results: Results) -> list[Line]:
    """Lines of a table: every method that is run or printed, on every data set."""
    experiment = results.experiment
    if experiment.view == "correlation":
        return list(_correlations(results))
    figures = published(experiment.paper, experiment.table)
    cells = [(d, m) for d in experiment.datasets for m in experiment.methods]
    printed = published_cells(experiment.paper, experiment.table)
    extra = [cell for cell in printed if cell[0] in experiment.datasets]
    lines = []
    marks = {
        (dataset, column): results.comparable(dataset, column)
        for dataset in experiment.datasets
        for column in COLUMNS
    }
    for dataset, method in dict.fromkeys([*cells, *extra]):
        value, error = figures.get((dataset, method), (None, None))
        paper = Summary(value, error, 0)
        sides = {
            column: replace(
                _compared(
                    results.side(dataset, method, column), paper, times=experiment.view == "times"
                ),
                best=method in marks.get((dataset, column), ()),
            )
            for column in COLUMNS
        }
        line = Line(dataset, method, paper, sides["hindsight"], sides["label-free"], "")
        lines.append(_judged(results, line, printed=(dataset, method) in extra))
    order = list(experiment.datasets)
    return sorted(lines, key=lambda line: order.index(line.dataset))


def _compared(side: Side, paper: Summary, *, times: bool) -> Side:
    """Add a side's distance from what is printed."""
    if paper.mean is None or side.summary.mean is None:
        return side
    if times:
        # Some printed times are rounded to nothing.
        return replace(side, difference=side.seconds / paper.mean) if paper.mean else side
    difference = side.summary.mean - paper.mean
    # A single sampling says nothing of how far another would have been.
    own = side.summary.standard_error
    error = None if own is None else math.hypot(own, paper.standard_error or 0.0)
    return replace(side, difference=difference, distance=difference / error if error else None)


def _judged(results: Results, line: Line, *, printed: bool) -> Line:
    """Add a line's verdict, or the reason why it is empty."""
    experiment = results.experiment
    if line.hindsight.summary.mean is None and line.label_free.summary.mean is None:
        verdict, reason = _emptiness(results, line, printed=printed)
        return replace(line, verdict=verdict, reason=reason)
    if line.paper.mean is None:
        reason = "the paper has no figure" if printed else ""
        return replace(line, verdict="not printed", reason=reason)
    if experiment.view == "times":
        ratio = line.hindsight.difference or line.label_free.difference
        verdict = "not printed" if ratio is None else "faster" if ratio < 1.0 else "slower"
        return replace(line, verdict=verdict)
    excess = worse_by(experiment, line.hindsight)
    if excess is None:
        verdict, reason = _emptiness(results, line)
        return replace(line, verdict=verdict, reason=reason)
    default = worse_by(experiment, line.label_free)
    return replace(line, verdict=_verdict(excess, default, experiment.tolerance))


def _verdict(excess: float, default: float | None, tolerance: float) -> str:
    """Word for points by which hindsight and the label-free default are worse than printed."""
    if abs(excess) > tolerance:
        return ("better" if excess < 0 else "worse") + " than printed"
    return "reproduced" if default is not None and default <= tolerance else "only in hindsight"


def worse_by(experiment: Experiment, side: Side) -> float | None:
    """Points by which a side is worse than printed; negative where it is better."""
    if side.difference is None:
        return None
    return -side.difference if experiment.prints_agreements else side.difference


def _emptiness(results: Results, line: Line, *, printed: bool = True) -> tuple[str, str]:
    """Verdict and reason of a line without figures."""
    experiment = results.experiment
    failures = results.failures.get((line.dataset, line.method))
    if failures:
        status = failures[0].status
        return "not run" if status.startswith(NO_DATA) else "failed", status
    absent = experiment.absent
    reason = absent.get(f"{line.method}/{line.dataset}") or absent.get(line.method)
    if reason is None and line.method not in experiment.methods:
        reason = "the method is not declared"
    if reason is None and line.dataset not in experiment.methods[line.method].get(
        "datasets", experiment.datasets
    ):
        reason = "the file leaves it out"
    if reason is None and experiment.quick and not _is_quick(experiment, line):
        reason = "not part of a quick run"
    if line.paper.mean is None and printed:
        reason = f"{reason + '; ' if reason else ''}the paper has no figure either"
    return "not run", reason or "not run yet"


def _is_quick(experiment: Experiment, line: Line) -> bool:
    """Whether a quick run has cells of a line."""
    part = replace(experiment, datasets={line.dataset: experiment.datasets[line.dataset]})
    return any(cell.method == line.method for cell in part.cells())


def _correlations(results: Results) -> Iterator[Line]:
    """Make a line for each group of data sets: how accuracy and MSP go together."""
    experiment = results.experiment
    for group, sets in experiment.groups.items():
        printed = experiment.printed.get(group)
        paper = Summary(None if printed is None else 100 * printed, None, 0)
        sides = {}
        for column in COLUMNS:
            pairs = [pair for one in sets if (pair := accuracy_and_msp(results, one, column))]
            summary = NOTHING
            # Values that differ by rounding alone have no correlation.
            if len(pairs) > 2 and np.ptp(pairs, axis=0).min() > 1e-9:
                value = float(np.corrcoef(np.transpose(pairs))[0, 1])
                summary = Summary(100 * value, None, len(pairs))
            sides[column] = _compared(Side(summary), paper, times=False)
        line = Line(group, ON_BOTH, paper, sides["hindsight"], sides["label-free"], "")
        if line.hindsight.summary.mean is None:
            few = "fewer than three data sets have run, or all gave the same"
            yield replace(line, verdict="not run", reason=few)
            continue
        excess = worse_by(experiment, line.hindsight)
        default = worse_by(experiment, line.label_free)
        verdict = "not printed"
        if excess is not None:
            verdict = _verdict(excess, default, experiment.tolerance)
        yield replace(line, verdict=verdict)


def accuracy_and_msp(results: Results, dataset: str, column: str) -> tuple[float, float] | None:
    """Accuracy and separation probability on a data set, in percent; None where it is not run."""
    for method in results.experiment.methods:
        chosen = list(results.columns.get((dataset, method, column), {}).values())
        if chosen:
            accuracy = 100 - 100 * mean(_value(r) for r in chosen)
            return accuracy, 100 * mean(r.measures["msp"] for r in chosen)
    return None
