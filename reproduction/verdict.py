"""Results of a reproduced table: checked statements and a verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from reproduction.claims import Claim, check_statement
from reproduction.experiment import COLUMNS, Experiment
from reproduction.measures import Spread
from reproduction.results import Line, Point, Results
from reproduction.store import NO_DATA, CellResult
from reproduction.summary import AS_GOOD, ON_BOTH, WORSE, accuracy_and_msp, make_lines


@dataclass(frozen=True)
class Verdict:
    """A verdict on a table or figure: two judgements, and the counts on which they are based.

    Attributes
    ----------
    status : str
        Under the paper's protocol: "reproduced" or "not reproduced"; "shown" (there is nothing to
        compare with), "quick look" or "incomplete" if no judgement is possible.
    label_free : str
        Without labels: "as good as printed" (or better), "worse than printed" or "not run"; ""
        if `status` is not a judgement.
    detail : str
        The counts, and likely reasons, in sentences.
    """

    status: str
    label_free: str
    detail: str

    @property
    def title(self) -> str:
        """Both judgements, without a full stop."""
        if not self.label_free:
            return self.status.capitalize()
        return (
            f"{self.status.capitalize()} under the paper's protocol; {self.label_free} without "
            "labels"
        )

    @property
    def sentence(self) -> str:
        """The judgements and the counts."""
        return f"{self.title}. {self.detail}"


@dataclass(frozen=True)
class Reproduction:
    """A reproduced table or figure: all data of pages and plots.

    Attributes
    ----------
    experiment : Experiment
        Experiment that was run.
    lines : tuple of Line
        Lines of the table.
    points : tuple of Point
        Points of the figure.
    claims : tuple of Claim
        The text's statements, checked.
    verdict : Verdict
        Under the paper's protocol, and without labels.
    n_cells, n_done, n_failed : int
        Numbers of cells in total, with a result, and with an error.
    failures : tuple of str
        The errors, with their counts.
    seconds : float
        Total time of all cells.
    versions : mapping of str to str
        Versions that computed the cells.
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
        """Return the summary of an experiment's results.

        Parameters
        ----------
        experiment : Experiment
            Experiment that was run.
        results : collection of CellResult
            Available results.
        n_cells : int, optional
            Total number of cells. If None, all cells of `experiment`.
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
    """Return errors with their counts; errors that differ only in numbers are merged."""
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
    """Return the versions of all results; several versions of a package are listed."""
    found: dict[str, set[str]] = {}
    for versions in {tuple(sorted(one.items())) for one in several}:
        for name, one in versions:
            found.setdefault(name, set()).add(one)
    return {name: ", ".join(sorted(found[name])) for name in sorted(found)}


def _msp_points(results: Results) -> list[Point]:
    """Return accuracy and separation probability of every data set."""
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
    """Judge a table or figure by its printed values, or else by its statements."""
    if experiment.view == "data":
        return Verdict("shown", "", "The paper's picture of the data has no values.")
    if n_missing or n_without:
        counts = [f"{n_missing} cells have not been run"] if n_missing else []
        counts += [f"{n_without} cells had no data"] if n_without else []
        return Verdict("incomplete", "", f"{', '.join(counts)}.")
    judged = [line for line in lines if _counts(experiment, line)]
    by_values = bool(judged) and experiment.view != "times"
    if by_values:
        status, label_free = _by_values(experiment, judged)
    elif any(claim.hindsight is not None for claim in claims):
        status, label_free = _by_claims(experiment, claims)
    else:
        status = label_free = ""
    sentences = [
        _sentence("Under the paper's protocol", [
            _values(experiment, judged) if by_values else "",
            _held([claim.hindsight for claim in claims], " of the text"),
        ]),
        _sentence("Without labels", [
            _label_free_values(judged) if by_values else "",
            _held([claim.label_free for claim in claims]),
        ]),
        *_speed(lines),
    ]  # fmt: skip
    text = " ".join(one for one in sentences if one)
    if experiment.quick:
        few = "One sampling and part of the grid are too little for a verdict."
        return Verdict("quick look", "", f"{text} {few}".strip())
    if not status:
        return Verdict("shown", "", text or "There is no value to compare with.")
    reasons = [
        ("Likely reasons", experiment.reason if status == "not reproduced" else ""),
        (
            "Likely reasons without labels",
            experiment.label_free_reason if label_free == WORSE else "",
        ),
    ]
    for name, reason in reasons:
        text += f" {name}: {reason.rstrip('.')}." if reason else ""
    return Verdict(status, label_free, text)


def _by_values(experiment: Experiment, judged: Sequence[Line]) -> tuple[str, str]:
    """Judge by printed values, under the paper's protocol and without labels."""
    near = sum(line.verdict == "reproduced" for line in judged)
    run = [line for line in judged if line.label_free.summary.mean is not None]
    good = sum(line.label_free_verdict == AS_GOOD for line in run)
    return _judge(experiment, near, len(judged), good, len(judged) if run else 0)


def _by_claims(experiment: Experiment, claims: Sequence[Claim]) -> tuple[str, str]:
    """Judge by the statements of the text, under the paper's protocol and without labels."""
    checked = [claim.hindsight for claim in claims if claim.hindsight is not None]
    free = [claim.label_free for claim in claims if claim.label_free is not None]
    return _judge(experiment, sum(checked), len(checked), sum(free), len(free))


def _judge(
    experiment: Experiment, n_near: int, n: int, n_good: int, n_free: int
) -> tuple[str, str]:
    enough = n_near >= experiment.needed * n - 1e-9
    status = "reproduced" if enough else "not reproduced"
    if not n_free:
        return status, "not run"
    return status, AS_GOOD if n_good >= experiment.needed * n_free - 1e-9 else WORSE


def _counts(experiment: Experiment, line: Line) -> bool:
    """Return whether a line counts for the verdict: failed ones do, left-out ones do not."""
    if line.paper.mean is None or line.verdict == "not run":
        return False
    if experiment.view == "correlation":
        # Other lines belong to values of the parameter that were not chosen.
        return line.method == ON_BOTH
    return not experiment.judged or line.method in experiment.judged


def _sentence(start: str, parts: Sequence[str]) -> str:
    known = [part for part in parts if part]
    return f"{start}, {'; '.join(known)}." if known else ""


def _values(experiment: Experiment, judged: Sequence[Line]) -> str:
    """Return the number of reproduced values, by method and by part, as text."""
    near = [line for line in judged if line.verdict == "reproduced"]
    methods = list(dict.fromkeys(line.method for line in judged))
    shares = [
        f"{method} {sum(line.method == method for line in near)} of "
        f"{sum(line.method == method for line in judged)}"
        for method in methods
    ]
    for part, sets in experiment.parts.items():
        inside = sum(line.dataset in sets for line in near)
        shares.append(f"{part} {inside} of {sum(line.dataset in sets for line in judged)}")
    words = {"better than printed": "better", "worse than printed": "worse", "failed": "failed"}
    found = Counter(line.verdict for line in judged)
    others = [f"{found[word]} {short}" for word, short in words.items() if found[word]]
    text = (
        f"{len(near)} of {len(judged)} values are within {experiment.tolerance:g} points of the "
        f"print ({', '.join(shares)})"
    )
    return ", ".join([text, *others])


def _label_free_values(judged: Sequence[Line]) -> str:
    if all(line.label_free.summary.mean is None for line in judged):
        return ""
    good = sum(line.label_free_verdict == AS_GOOD for line in judged)
    return f"{good} of {len(judged)} values are as good as printed or better"


def _held(held: Sequence[bool | None], of: str = "") -> str:
    """Return the number of checked statements that hold, as text."""
    checked = [one for one in held if one is not None]
    if not checked:
        return ""
    noun, verb = ("statement", "holds") if len(checked) == 1 else ("statements", "hold")
    return f"{sum(checked)} of {len(checked)} {noun}{of} {verb}"


def _speed(lines: Sequence[Line]) -> list[str]:
    """Return the speed-up over printed times, as text."""
    ratios = [line.hindsight.difference for line in lines if line.verdict in ("faster", "slower")]
    known = [ratio for ratio in ratios if ratio]
    if not known:
        return []
    faster = sum(ratio < 1.0 for ratio in known)
    text = (
        f"{faster} of {len(known)} times are shorter than printed, and the printed time is "
        f"{1.0 / median(known):.3g} times ours in the median (another machine)."
    )
    return [text]
