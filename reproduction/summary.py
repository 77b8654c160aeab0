"""From results to the lines of a table, with the printed values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import mean

import numpy as np

from reproduction.experiment import COLUMNS, Experiment
from reproduction.files import published, published_cells
from reproduction.results import (
    NOTHING,
    Line,
    Results,
    Side,
    Summary,
    at_common,
    common_values,
    value_of,
)
from reproduction.store import NO_DATA

# Words for the label-free default; "as good" includes "better".
AS_GOOD, WORSE = "as good as printed", "worse than printed"
ON_BOTH = "correlation of MSP and accuracy"


def make_lines(results: Results) -> list[Line]:
    """Return the lines of a table: every method that is run or printed, on every data set."""
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
        lines.append(
            _remarked(_judged(results, line, printed=(dataset, method) in extra), experiment)
        )
    order = list(experiment.datasets)
    return sorted(lines, key=lambda line: order.index(line.dataset))


def _compared(side: Side, paper: Summary, *, times: bool) -> Side:
    """Add a side's distance from the printed value."""
    if paper.mean is None or side.summary.mean is None:
        return side
    if times:
        # Some printed times are rounded to 0.
        return replace(side, difference=side.seconds / paper.mean) if paper.mean else side
    difference = side.summary.mean - paper.mean
    # A single sampling has no standard error.
    own = side.summary.standard_error
    error = None if own is None else math.hypot(own, paper.standard_error or 0.0)
    return replace(side, difference=difference, distance=difference / error if error else None)


def _judged(results: Results, line: Line, *, printed: bool) -> Line:
    """Add a line's verdicts, or the reason why it is empty."""
    experiment = results.experiment
    if line.hindsight.summary.mean is None and line.label_free.summary.mean is None:
        verdict, reason = _emptiness(results, line, printed=printed)
        return replace(line, verdict=verdict, label_free_verdict="not run", reason=reason)
    if line.paper.mean is None:
        reason = "the paper has no value" if printed else ""
        word = "not printed"
        return replace(line, verdict=word, label_free_verdict=word, reason=reason)
    if experiment.view == "times":
        ratio = line.hindsight.difference or line.label_free.difference
        verdict = "not printed" if ratio is None else "faster" if ratio < 1.0 else "slower"
        return replace(line, verdict=verdict)
    line = _compared_words(experiment, line)
    if line.hindsight.summary.mean is None:
        verdict, reason = _emptiness(results, line)
        return replace(line, verdict=verdict, reason=reason)
    return line


def _remarked(line: Line, experiment: Experiment) -> Line:
    """Add the remark of the file on a line that is not empty."""
    remarks = experiment.remarks
    remark = remarks.get(f"{line.method}/{line.dataset}") or remarks.get(line.method)
    return line if remark is None or line.reason else replace(line, reason=remark)


def _compared_words(experiment: Experiment, line: Line) -> Line:
    """Add the words for points by which both columns are worse than printed."""
    excess, default = worse_by(experiment, line.hindsight), worse_by(experiment, line.label_free)
    verdict, word = "", "not run"
    if excess is not None:
        far = "better than printed" if excess < 0 else "worse than printed"
        verdict = "reproduced" if abs(excess) <= experiment.tolerance else far
    if default is not None:
        word = AS_GOOD if default <= experiment.tolerance else WORSE
    return replace(line, verdict=verdict, label_free_verdict=word)


def worse_by(experiment: Experiment, side: Side) -> float | None:
    """Return the points by which a side is worse than printed; negative if it is better."""
    if side.difference is None:
        return None
    return -side.difference if experiment.prints_agreements else side.difference


def _emptiness(results: Results, line: Line, *, printed: bool = True) -> tuple[str, str]:
    """Return verdict and reason of a line without values."""
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
        reason = f"{reason + '; ' if reason else ''}the paper has no value either"
    return "not run", reason or "not run yet"


def _is_quick(experiment: Experiment, line: Line) -> bool:
    """Return whether a quick run has cells of a line."""
    part = replace(experiment, datasets={line.dataset: experiment.datasets[line.dataset]})
    methods = experiment.methods[line.method].get("best_of", (line.method,))
    return any(cell.method in methods for cell in part.cells())


def _correlations(results: Results) -> Iterator[Line]:
    """Return a line per group of data sets: the correlation of accuracy and MSP.

    With a common parameter, lines for each of its values follow that of the chosen one.
    """
    experiment = results.experiment
    for group, sets in experiment.groups.items():
        printed = experiment.printed.get(group)
        paper = Summary(None if printed is None else 100 * printed, None, 0)
        sides = {
            column: _compared(Side(_correlation(results, sets, column)), paper, times=False)
            for column in COLUMNS
        }
        line = Line(group, ON_BOTH, paper, sides["hindsight"], sides["label-free"], "")
        if line.hindsight.summary.mean is None:
            few = "fewer than three data sets have run, or all gave the same"
            yield replace(line, verdict="not run", label_free_verdict="not run", reason=few)
            continue
        picked = ""
        if results.common is not None:
            picked = f"at {experiment.common} = {results.common:g}, the best for the mean accuracy"
        if printed is None:
            line = replace(line, verdict="not printed", label_free_verdict="not printed")
        else:
            line = _compared_words(experiment, line)
        yield replace(line, reason=picked)
        for value in common_values(experiment) if experiment.common else ():
            at = Results(replace(experiment, common=""), at_common(experiment, results.all, value))
            side = _compared(Side(_correlation(at, sets, "hindsight")), paper, times=False)
            one = Line(
                group, f"at {experiment.common} = {value:g}", paper, side, Side(), "not run"
            )
            if side.summary.mean is not None and printed is not None:
                one = _compared_words(experiment, one)
            yield replace(one, label_free_verdict="not run")


def _correlation(results: Results, sets: Iterable[str], column: str) -> Summary:
    """Return the correlation of accuracy and separation probability over data sets, in percent."""
    pairs = [pair for one in sets if (pair := accuracy_and_msp(results, one, column))]
    # Values that differ only by rounding have no correlation.
    if len(pairs) <= 2 or np.ptp(pairs, axis=0).min() <= 1e-9:
        return NOTHING
    return Summary(100 * float(np.corrcoef(np.transpose(pairs))[0, 1]), None, len(pairs))


def accuracy_and_msp(results: Results, dataset: str, column: str) -> tuple[float, float] | None:
    """Return accuracy and separation probability on a data set, in percent; None if not run."""
    for method in results.experiment.methods:
        chosen = list(results.columns.get((dataset, method, column), {}).values())
        if chosen:
            accuracy = 100 - 100 * mean(value_of(r) for r in chosen)
            return accuracy, 100 * mean(r.measures["msp"] for r in chosen)
    return None
