"""Statements of a paper's text, checked against a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from reproduction.experiment import COLUMN_NAMES, COLUMNS, Experiment, Statement
from reproduction.results import Line, Point
from reproduction.summary import ON_BOTH

TIE = 1e-9
# Levels by place, by data set and series.
Levels = dict[tuple[str, str], dict[float | None, float]]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper's text, checked.

    Attributes
    ----------
    says : str
        The statement.
    hindsight, label_free : bool or None
        Whether it holds under the paper's protocol and without labels; None if too few cells were
        run to check it.
    detail : str
        The numbers on which the check is based.
    """

    says: str
    hindsight: bool | None
    label_free: bool | None
    detail: str


def check_statement(
    statement: Statement, experiment: Experiment, points: Sequence[Point], lines: Sequence[Line]
) -> Claim:
    """Check a statement in both columns."""
    held: dict[str, bool | None] = {}
    details = []
    for column in COLUMNS:
        levels = _levels(experiment, points, lines, column, statement.quantity)
        held[column], detail = _holds(statement, experiment, levels)
        if detail:
            details.append(f"{COLUMN_NAMES[column]}: {detail}")
    return Claim(statement.says, held["hindsight"], held["label-free"], "; ".join(details))


def _levels(
    experiment: Experiment,
    points: Sequence[Point],
    lines: Sequence[Line],
    column: str,
    quantity: str,
) -> Levels:
    """Return the levels of every series on every data set, by the place on the axis."""
    known: Levels = {}
    if experiment.groups:
        # A group's correlation is a line, not a point.
        for line in lines:
            if line.method != ON_BOTH:
                continue
            side = line.hindsight if column == "hindsight" else line.label_free
            if side.summary.mean is not None:
                known[line.dataset, line.dataset] = {None: side.summary.mean}
        return known
    wanted = "" if experiment.view == "measures" else quantity
    for point in points:
        if point.column == column and wanted in ("", point.quantity):
            known.setdefault((point.dataset, point.series), {})[point.x] = point.spread.mean
    return known


def _holds(
    statement: Statement, experiment: Experiment, levels: Levels
) -> tuple[bool | None, str]:
    """Return whether a statement holds, and the numbers on which the check is based."""
    everywhere = (statement.of,) if experiment.groups else tuple(experiment.datasets)
    held, numbers = [], []
    for dataset in statement.on or everywhere:
        for place, left, other in _pairs(statement, dataset, levels):
            right = statement.factor * other + statement.margin
            # A tie is neither below nor above.
            held.append(right - left > TIE if statement.is_below else left - right > TIE)
            numbers.append(f"{left:.3g} against {right:.3g} on {dataset}{place}")
    if not held:
        return None, ""
    holds = sum(held) >= statement.share * len(held) - 1e-9
    if len(held) == 1:
        return holds, numbers[0]
    if not statement.pointwise:
        return holds, f"{sum(held)} of {len(held)} data sets"
    first = "" if all(held) else f", the first exception {numbers[held.index(False)]}"
    return holds, f"{sum(held)} of {len(held)} points{first}"


def _pairs(
    statement: Statement, dataset: str, levels: Levels
) -> Iterator[tuple[str, float, float]]:
    """Return both sides of a statement on a data set: means, or pairs by named place."""
    left = levels.get((dataset, statement.of), {})
    wanted: Collection[float | None] = statement.at or left
    places = [[x] for x in wanted] if statement.pointwise else [wanted]
    for at in places:
        pair = _pair(statement, dataset, levels, at)
        if pair is not None:
            only = at[0] if isinstance(at, list) else None
            yield "" if only is None else f" at {only:g}", *pair


def _pair(
    statement: Statement, dataset: str, levels: Levels, at: Collection[float | None]
) -> tuple[float, float] | None:
    """Return both sides of a statement on a data set, at given places or those of both sides."""
    left = levels.get((dataset, statement.of), {})
    if not isinstance(statement.than, str):
        value = _mean_at(left, at)
        return None if value is None else (value, float(statement.than))
    other = dataset if (dataset, statement.than) in levels else statement.than
    right = levels.get((other, statement.than), {})
    than_at: Collection[float | None] = statement.than_at or at
    if not statement.than_at:
        at = than_at = [x for x in at if x in right]
    one, two = _mean_at(left, at), _mean_at(right, than_at)
    return None if one is None or two is None else (one, two)


def _mean_at(level: Mapping[float | None, float], at: Collection[float | None]) -> float | None:
    values = [level[x] for x in at if x in level]
    return mean(values) if values else None
