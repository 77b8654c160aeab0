"""What a run of a paper's table says: its statements checked, and a verdict in one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from reproduction.claims import Claim, check_statement
from reproduction.experiment import COLUMNS, Experiment
from reproduction.measures import Spread
from reproduction.store import NO_DATA, CellResult
from reproduction.summary import (
    Line,
    Point,
    Results,
    accuracy_and_msp,
    make_lines,
    worse_by,
)


@dataclass(frozen=True)
class Verdict:
    """A verdict on a table or figure.

    Attributes
    ----------
    status : str
        "reproduced", "reproduced only in hindsight", "not reproduced", "shown" (there is nothing
        to compare with), "quick look" or "incomplete".
    sentence : str
        The same, with what it rests on.
    """

    status: str
    sentence: str


@dataclass(frozen=True)
class Reproduction:
    """A table or figure, run again: everything that pages and pictures are made from.

    Attributes
    ----------
    experiment : Experiment
        What was run.
    lines : tuple of Line
        Of the table.
    points : tuple of Point
        Of the figure.
    claims : tuple of Claim
        The text's statements, checked.
    verdict : Verdict
        In one sentence.
    n_cells, n_done, n_failed : int
        Cells that are wanted, have a result, and have one that is an error.
    failures : tuple of str
        The errors, with how often each occurred.
    seconds : float
        Of all cells together.
    versions : mapping of str to str
        What computed the cells.
    quick : bool
        Whether it is a quick run.
    """

    experiment: Experiment
    lines: tuple[Line, ...]
    points: tuple[Point, ...]
    claims: tuple[Claim, ...]
    verdict: Verdict
    n_cells: int
    n_done: int
    n_failed: int
    failures: tuple[str, ...]
    seconds: float
    versions: Mapping[str, str]
    quick: bool = False

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        results: Collection[CellResult],
        *,
        n_cells: int | None = None,
    ) -> Reproduction:
        """Sum up the results of an experiment.

        Parameters
        ----------
        experiment : Experiment
            What was wanted.
        results : collection of CellResult
            What is there of it.
        n_cells : int, optional
            Number of cells that were wanted; all cells of `experiment` if not given.
        """
        n_cells = sum(1 for _ in experiment.cells()) if n_cells is None else n_cells
        ordered = Results(experiment, results)
        is_data = experiment.view == "data"
        lines = () if is_data else tuple(make_lines(ordered))
        points = tuple(_msp_points(ordered) if experiment.groups else ordered.points())
        claims = tuple(
            check_statement(statement, experiment, points, lines)
            for statement in experiment.statements
        )
        failed = [r for r in results if r.failed]
        n_without = sum(r.status.startswith(NO_DATA) for r in results)
        return cls(
            experiment=experiment,
            lines=lines,
            points=points,
            claims=claims,
            verdict=_verdict(experiment, lines, claims, n_cells - len(results), n_without),
            n_cells=n_cells,
            n_done=len(results),
            n_failed=len(failed),
            failures=_grouped([r.status for r in failed]),
            seconds=sum(r.seconds for r in results),
            versions=_joined([r.versions for r in results]),
            quick=experiment.quick,
        )


def _grouped(errors: Sequence[str]) -> tuple[str, ...]:
    """Errors with how often each occurred; those that differ in their numbers alone are one."""
    kinds: dict[str, list[str]] = {}
    for error in sorted(errors):
        kinds.setdefault(re.sub(r"[0-9][0-9.e+-]*", "0", error), []).append(error)
    told = []
    for same in sorted(kinds.values(), key=lambda kind: (-len(kind), kind[0])):
        times = "time" if len(same) == 1 else "times"
        others = ", with other numbers elsewhere" if len(set(same)) > 1 else ""
        told.append(f"{len(same)} {times}{others}: {same[0]}")
    return tuple(told)


def _joined(several: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Versions of all results; several of one package are listed."""
    found: dict[str, set[str]] = {}
    for versions in {tuple(sorted(one.items())) for one in several}:
        for name, one in versions:
            found.setdefault(name, set()).add(one)
    return {name: ", ".join(sorted(found[name])) for name in sorted(found)}


def _msp_points(results: Results) -> list[Point]:
    """Accuracy and separation probability of every data set."""
    points = []
    for dataset in results.experiment.datasets:
        for column in COLUMNS:
            pair = accuracy_and_msp(results, dataset, column)
            if pair is not None:
                for series, value in zip(("accuracy", "msp"), pair, strict=True):
                    spread = Spread.of([value])
                    points.append(Point(dataset, series, column, None, "value", spread))
    return points


def _verdict(
    experiment: Experiment,
    lines: Sequence[Line],
    claims: Sequence[Claim],
    n_missing: int,
    n_without: int,
) -> Verdict:
    """Judge a table or figure by its printed figures, or else by its statements."""
    judged = [line for line in lines if _counts(experiment, line)]
    if experiment.view == "data":
        return Verdict("shown", "Shown: the paper's picture of the data has no figures.")
    if n_missing or n_without:
        told = [f"{n_missing} cells have not been run"] if n_missing else []
        told += [f"{n_without} cells had no data"] if n_without else []
        return Verdict("incomplete", f"Incomplete: {', '.join(told)}.")
    if judged and experiment.view != "times":
        status, told = _by_figures(experiment, judged, claims)
    elif any(claim.hindsight is not None for claim in claims):
        status, told = _by_claims(experiment, claims), [_tell(claims), *_speed(lines)]
    else:
        status, told = "shown", _speed(lines) or ["there is no figure to compare with"]
    text = "; ".join(one for one in told if one)
    if experiment.quick:
        few = "one sampling and part of the grid are too little for a verdict"
        return Verdict("quick look", f"Quick look: {text}; {few}.")
    reason = experiment.reason if status not in ("reproduced", "shown") else ""
    if status == "reproduced only in hindsight" and "label-free" not in experiment.columns:
        reason = "the labels pick among settings, and there is no label-free column"
    # Reasons are sentences of their own in their file; here they are the end of one.
    reasons = [_lowered(one) for one in reason.rstrip(".").split(". ")]
    tail = f", likely because {', and because '.join(reasons)}" if reason else ""
    return Verdict(status, f"{status.capitalize()}: {text}{tail}.")


def _by_figures(
    experiment: Experiment, judged: Sequence[Line], claims: Sequence[Claim]
) -> tuple[str, list[str]]:
    """Judge by printed figures, and say how many come out."""
    near = [line for line in judged if line.verdict in ("reproduced", "only in hindsight")]
    free = [line for line in judged if _reached(experiment, line)]
    status = _status(len(near), len(free), len(judged), experiment.needed)
    return status, [_figures(experiment, judged, near, free), _tell(claims)]


def _by_claims(experiment: Experiment, claims: Sequence[Claim]) -> str:
    """Judge by the statements of the text."""
    checked = [claim for claim in claims if claim.hindsight is not None]
    n_held = sum(bool(claim.hindsight) for claim in checked)
    n_free = sum(bool(claim.label_free) for claim in checked)
    if not _asks_labels(experiment):
        n_free = n_held
    return _status(n_held, n_free, len(checked), experiment.needed)


def _asks_labels(experiment: Experiment) -> bool:
    """Whether hindsight has a choice; without one, the paper's setting needs no labels."""
    settings = Counter(
        (cell.dataset, cell.method, cell.sampling_key)
        for cell in experiment.cells(1)
        if cell.column == "hindsight"
    )
    return "label-free" in experiment.columns or max(settings.values(), default=1) > 1


def _status(n_near: int, n_free: int, n: int, needed: float) -> str:
    if n_near < needed * n - 1e-9:
        return "not reproduced"
    return "reproduced" if n_free >= needed * n - 1e-9 else "reproduced only in hindsight"


def _counts(experiment: Experiment, line: Line) -> bool:
    """Whether the verdict rests on a line: those that failed count, those left out do not."""
    if line.paper.mean is None or line.verdict == "not run":
        return False
    return not experiment.judged or line.method in experiment.judged


def _reached(experiment: Experiment, line: Line) -> bool:
    """Whether the label-free default is no worse than printed, but for the tolerance."""
    excess = worse_by(experiment, line.label_free)
    return excess is not None and excess <= experiment.tolerance


def _figures(
    experiment: Experiment, judged: Sequence[Line], near: Sequence[Line], free: Sequence[Line]
) -> str:
    """How many figures come out as printed, by method and by part."""
    methods = list(dict.fromkeys(line.method for line in judged))
    shares = [
        f"{method} {sum(line.method == method for line in near)} of "
        f"{sum(line.method == method for line in judged)}"
        for method in methods
    ]
    for part, sets in experiment.parts.items():
        inside = sum(line.dataset in sets for line in near)
        shares.append(f"{part} {inside} of {sum(line.dataset in sets for line in judged)}")
    better = sum(line.verdict == "better than printed" for line in judged)
    return (
        f"{len(near)} of {len(judged)} figures are within {experiment.tolerance:g} points of the "
        f"print in hindsight ({', '.join(shares)})"
        + (f", {better} are better" if better else "")
        + f"; {len(free)} are no worse than that label-free"
    )


def _tell(claims: Sequence[Claim]) -> str:
    checked = [claim for claim in claims if claim.hindsight is not None]
    if not checked:
        return ""
    n_held = sum(bool(claim.hindsight) for claim in checked)
    free = [claim.label_free for claim in checked if claim.label_free is not None]
    end = f", {sum(free)} of {len(free)} label-free" if free else ""
    return f"{n_held} of {len(checked)} statements of the text hold in hindsight{end}"


def _speed(lines: Sequence[Line]) -> list[str]:
    """How much faster than printed, where times are."""
    ratios = [line.hindsight.difference for line in lines if line.verdict in ("faster", "slower")]
    known = [ratio for ratio in ratios if ratio]
    if not known:
        return []
    faster = sum(ratio < 1.0 for ratio in known)
    text = (
        f"{faster} of {len(known)} times are shorter than printed, and the printed time is "
        f"{1.0 / median(known):.3g} times ours in the median (another machine)"
    )
    return [text]


def _lowered(text: str) -> str:
    """Make the first letter small, unless it belongs to a name or a symbol."""
    first = text.split(" ", 1)[0]
    return text[:1].lower() + text[1:] if first[1:].islower() or len(first) == 1 else text
