"""What a page of reproduced tables and figures says, section by section, in words and cells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproduction.experiment import PAPERS, Paper
from volmar.report.figures import as_count, as_figure

if TYPE_CHECKING:
    from reproduction.claims import Claim
    from reproduction.summary import Line, Side
    from reproduction.verdict import Reproduction

METRICS = {
    "clustering_error": "clustering error",
    "balanced_clustering_error": "balanced error",
    "normalized_mutual_information": "normalised mutual information",
    "rand_index": "Rand index",
    "pair_f_measure": "F measure of pairs",
}
# In the order in which they are counted and filtered, with the colour of each.
TONES = {
    "reproduced": "good",
    "reproduced only in hindsight": "fair",
    "not reproduced": "weak",
    "incomplete": "neutral",
    "quick look": "neutral",
    "shown": "neutral",
}
SHORT = {"reproduced only in hindsight": "only in hindsight"}
LINE_TONES = {
    "reproduced": "good",
    "better than printed": "good",
    "faster": "good",
    "only in hindsight": "fair",
    "worse than printed": "weak",
    "slower": "weak",
    "failed": "weak",
}
COLUMNS = ("hindsight", "label-free")
QUANTITIES = {"value": "value, %"}
# Longer tables of figures are summed up over data sets; longer ones of tables are folded.
LONGEST = 60
UNFOLDED = 24
ROMAN = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x")


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `tone` is its colour, `link` the section it leads to."""

    text: str
    bold: bool = False
    tone: str = ""
    link: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; columns are left-aligned where `left` says so, and `notes` stand below it."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: frozenset[int]
    notes: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the table is short enough to be unfolded."""
        return len(self.rows) <= UNFOLDED


@dataclass(frozen=True)
class Part:
    """The section of an experiment; `sentence` goes on where `status` ends."""

    name: str
    anchor: str
    paper: str
    heading: str
    status: str
    tone: str
    sentence: str
    claims: tuple[dict[str, str], ...]
    about: str
    grids: tuple[Grid, ...]
    note: str
    failures: tuple[str, ...]
    cells: str


def make_page(reproductions: Sequence[Reproduction]) -> dict[str, Any]:
    """Return what both outputs show."""
    names = [r.experiment.name for r in reproductions]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"reproductions={names}: give one experiment or more, each of them once.")
    known = list(PAPERS)
    ordered = sorted(reproductions, key=lambda r: _order(r.experiment))
    papers = list(dict.fromkeys(r.experiment.paper for r in ordered))
    papers.sort(key=lambda paper: known.index(paper) if paper in known else len(known))
    grouped = [
        (
            PAPERS.get(paper, Paper(paper, paper)).full,
            [_part(r) for r in ordered if r.experiment.paper == paper],
        )
        for paper in papers
    ]
    parts = [part for _, parts in grouped for part in parts]
    counts = {status: sum(part.status == status for part in parts) for status in TONES}
    versions: dict[str, list[str]] = {}
    for r in ordered:
        for package, version in r.versions.items():
            versions.setdefault(package, []).extend(version.split(", "))
    quick = sum(r.quick for r in reproductions)
    # Several tables and figures may show the same cells.
    runs = {r.experiment.source or r.experiment.name: r for r in reproductions}.values()
    return {
        "papers": grouped,
        "overview": _overview(parts),
        "headline": _headline(counts, len(parts)),
        "counts": {s: n for s, n in counts.items() if n},
        "tones": TONES,
        "short": SHORT,
        "n_parts": len(parts),
        "n_done": sum(r.n_done for r in runs),
        "n_cells": sum(r.n_cells for r in runs),
        "n_failed": sum(r.n_failed for r in runs),
        "versions": {p: ", ".join(sorted(set(found))) for p, found in versions.items()},
        "quick": quick and f"{quick} of {len(parts)} are quick runs: a small part of the cells, "
        "which says that everything works and little more.",
    }  # fmt: skip


def _order(experiment: Any) -> tuple[bool, float, str]:
    """Tables before figures, by their numbers."""
    number = (experiment.table or experiment.figure or "").lower()
    if number in ROMAN:
        number = str(1 + ROMAN.index(number))
    first = re.match(r"\d+", number)
    return not experiment.table, int(first[0]) if first else math.inf, experiment.name


def _headline(counts: Mapping[str, int], n_parts: int) -> str:
    n_compared = n_parts - counts["shown"] - counts["quick look"]
    n_reproduced = counts["reproduced"]
    if not n_compared and counts["quick look"]:
        return f"A quick look at {n_parts} tables and figures."
    if not n_compared:
        return "There is nothing to compare the tables and figures with."
    verb = "is" if n_reproduced == 1 else "are"
    noun = "table or figure" if n_compared == 1 else "tables and figures"
    others = ("reproduced only in hindsight", "not reproduced", "incomplete")
    parts = [f"{counts[s]} {SHORT.get(s, s)}" for s in others if counts[s]]
    return f"{n_reproduced} of {n_compared} {noun} {verb} {', '.join(['reproduced', *parts])}."


def _overview(parts: Iterable[Part]) -> Grid:
    rows = [
        (
            Cell(part.heading, link=part.anchor),
            Cell(part.paper),
            Cell(part.cells),
            Cell(part.status, tone=part.tone),
        )
        for part in parts
    ]
    header = ("table or figure", "paper", "cells done / wanted", "verdict")
    return Grid("Overview", header, tuple(rows), frozenset({0, 1, 3}))


def _part(r: Reproduction) -> Part:
    experiment = r.experiment
    cells = f"{as_count(r.n_done)} / {as_count(r.n_cells)}"
    return Part(
        name=experiment.name,
        anchor=re.sub(r"[^a-z0-9]+", "-", experiment.name.lower()).strip("-"),
        paper=PAPERS.get(experiment.paper, Paper(experiment.paper, "")).short,
        heading=_heading(experiment),
        status=r.verdict.status,
        tone=TONES.get(r.verdict.status, "neutral"),
        # Sentences begin with the status, which has a look of its own.
        sentence=re.sub(
            rf"^{re.escape(r.verdict.status)}\b", "", _one_line(r.verdict.sentence), flags=re.I
        ),
        claims=tuple(_claim(claim) for claim in r.claims),
        about=_about(r),
        grids=tuple(_grids(r)),
        note=_one_line(experiment.note),
        failures=tuple(_without_folders(text) for text in r.failures),
        cells=(cells if r.n_cells else "none needed")
        + (f" ({as_count(r.n_failed)} failed)" if r.n_failed else ""),
    )


def _heading(experiment: Any) -> str:
    kind = "Table" if experiment.table else "Figure"
    what = f"{kind} {experiment.table or experiment.figure}".strip()
    title = _one_line(experiment.title)
    start = re.search(rf"\b{re.escape(what)}(?!\w)", title)
    return title[start.start() :] if start else f"{what}: {title}"


def _claim(claim: Claim) -> dict[str, str]:
    held = {True: "holds", False: "does not hold", None: ""}
    both = claim.hindsight, claim.label_free
    if both == (None, None):
        word, tone = "could not be checked", "neutral"
    elif both == (True, True):
        word, tone = "holds in hindsight and label-free", "good"
    elif both == (False, False):
        word, tone = "does not hold", "weak"
    elif None not in both:
        word = "holds only in hindsight" if claim.hindsight else "holds only label-free"
        tone = "fair"
    elif claim.label_free is None:
        word = f"{held[claim.hindsight]} in hindsight; label-free was not run"
        tone = "good" if claim.hindsight else "weak"
    else:
        word = f"{held[claim.label_free]} label-free; hindsight was not run"
        tone = "good" if claim.label_free else "weak"
    says = _one_line(claim.says).rstrip(".")
    return {
        # A letter by itself is a symbol.
        "says": says[:1].upper() + says[1:] if says[1:2].isalpha() else says,
        "word": word,
        "tone": tone,
        "detail": _one_line(claim.detail),
    }


def _about(r: Reproduction) -> str:
    """Say what the figures of a section are, and how near is near enough."""
    experiment = r.experiment
    metric = METRICS.get(experiment.metric, experiment.metric.replace("_", " "))
    better = "higher" if experiment.larger_is_better else "lower"
    has_printed = any(line.paper.mean is not None for line in r.lines)
    share = f"{100 * experiment.needed:.0f} % of the"
    stated = f"; {share} statements have to hold" if r.claims else ""
    tolerance = stated
    if has_printed:
        points = f"{as_figure(experiment.tolerance)} points"
        tolerance = f"; the tolerance is {points}, for {share} judged figures"
    if experiment.view == "data":
        return "The data sets, coloured by class."
    if experiment.view == "times":
        return (
            "Seconds of one fit. Printed over ours says how many times faster a fit is here. The "
            "machines differ, so that the time over k-means on the same machine says more"
            f"{stated}."
        )
    if experiment.view == "correlation":
        return f"Figures are 100 times the correlation over data sets{tolerance}."
    if experiment.view in ("curves", "measures"):
        along = f", along {experiment.axis_label}" if experiment.axis_label else ""
        unit = f"; the {metric} is in per cent" if "value" in experiment.quantities else ""
        return (
            "The table has the first and the last point of each curve"
            f"{along}, mean ± standard error over samplings{unit}{stated}."
        )
    text = (
        f"Figures are the {metric} in per cent ({better} is better), mean ± standard error over "
        f"samplings{tolerance}. Differences are in points, and in standard errors (s.e.)."
    )
    if experiment.test:
        text += (
            " Bold is the best method of a data set and each that the "
            f"{experiment.test} t-test at 5 % does not tell from it, column by column."
        )
    return text


# ------------------------------------------------------------------------------ tables


def _grids(r: Reproduction) -> list[Grid]:
    """Return a table of lines, or of a figure's curves in short, or both."""
    experiment, grids = r.experiment, []
    is_long = bool(experiment.figure) and len(r.lines) > LONGEST
    if r.lines and experiment.view in ("table", "times", "correlation") and not is_long:
        grids.append(_times_grid(r) if experiment.view == "times" else _lines_grid(r))
    if experiment.view == "correlation" or not grids:
        curves = _curves(r)
        if curves:
            grids.append(_curves_grid(curves))
    return grids


def _word(line: Line) -> str:
    """Return what stands in the place of a figure that is not there."""
    return "failed" if line.verdict == "failed" else "not run"


def _figure(text: str, line: Line, bold: bool = False) -> Cell:
    return Cell(text, bold, "none" if text in (_word(line), "not printed", "not timed") else "")


def _difference(side: Side, line: Line) -> str:
    if side.summary.mean is None:
        return _word(line)
    if side.difference is None or line.paper.mean is None:
        return "not printed"
    # Adding 0 turns -0.0 into 0.0.
    text = _minus(f"{round(side.difference, 1) + 0.0:+.1f}")
    return text if side.distance is None else f"{text} ({abs(side.distance):.1f} s.e.)"


def _pair(values: Iterable[float | None], line: Line, missing: str = "not timed") -> str:
    """Two figures, hindsight / label-free; one word where neither is there."""
    sides = line.hindsight, line.label_free
    texts = [
        as_figure(value, 2)
        if value is not None and math.isfinite(value)
        else (_word(line) if side.summary.mean is None else missing)
        for value, side in zip(values, sides, strict=True)
    ]
    return texts[0] if texts[0] == texts[1] and texts[0][0].isalpha() else " / ".join(texts)


def _lines_grid(r: Reproduction) -> Grid:
    experiment = r.experiment
    reasons: dict[str, int] = {}
    rows = []
    is_timed = experiment.view != "correlation"
    for line in r.lines:
        printed = "not printed" if line.paper.mean is None else _minus(str(line.paper))
        cells = [Cell(line.dataset), Cell(line.method), _figure(printed, line)]
        for side in (line.hindsight, line.label_free):
            text = _word(line) if side.summary.mean is None else _minus(str(side.summary))
            cells.append(_figure(text, line, side.best and bool(experiment.test)))
            cells.append(_figure(_difference(side, line), line))
        if is_timed:
            cells.append(_figure(_relation(line), line))
        rows.append((*cells, _verdict(line, reasons)))
    names = ("data", "method") if is_timed else ("group", "figure")
    header = [*names, "paper", "hindsight", "difference", "label-free", "difference"]
    header += ["time over KMeans", "verdict"] if is_timed else ["verdict"]
    left = frozenset({0, 1, len(header) - 1})
    return Grid(_rows_of(rows), tuple(header), tuple(rows), left, _notes(reasons))


def _times_grid(r: Reproduction) -> Grid:
    reasons: dict[str, int] = {}
    rows = []
    units = {x.dataset: x.paper.mean for x in r.lines if x.method == "KM" and x.paper.mean}
    for line in r.lines:
        printed, sides = line.paper.mean, (line.hindsight, line.label_free)
        seconds = [as_figure(s.seconds) if s.seconds > 0 else _word(line) for s in sides]
        faster = [printed / s.seconds if printed and s.seconds else None for s in sides]
        cells = [
            "not printed" if printed is None else as_figure(printed),
            *seconds,
            "not printed" if printed is None else _pair(faster, line, "printed as 0"),
            _relation(line),
        ]
        if units:
            unit = units.get(line.dataset)
            cells.append(as_figure(printed / unit, 2) if printed and unit else "not printed")
        figures = [_figure(text, line) for text in cells]
        names = Cell(line.dataset), Cell(line.method)
        rows.append((*names, *figures, _verdict(line, reasons)))
    header = ["data", "method", "paper, s", "hindsight, s", "label-free, s", "printed over ours"]
    header += ["time over KMeans", *(["paper's time over its KM"] if units else []), "verdict"]
    left = frozenset({0, 1, len(header) - 1})
    return Grid(_rows_of(rows), tuple(header), tuple(rows), left, _notes(reasons))


def _relation(line: Line) -> str:
    return _pair((line.hindsight.relation, line.label_free.relation), line)


def _verdict(line: Line, reasons: dict[str, int]) -> Cell:
    """Return the verdict, with the number of the note that says why something is not there."""
    tone = LINE_TONES.get(line.verdict, "none")
    if not line.reason:
        return Cell(line.verdict, tone=tone)
    number = reasons.setdefault(_without_folders(line.reason), len(reasons) + 1)
    return Cell(f"{line.verdict} ({number})", tone=tone)


def _notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"({number}) {reason}" for reason, number in reasons.items())


def _rows_of(rows: Sequence[Any]) -> str:
    return "Table of 1 row" if len(rows) == 1 else f"Table of {as_count(len(rows))} rows"


# ------------------------------------------------------------------------------ curves in short

# Data set, series and quantity to column to points: place, mean and standard error.
Curves = dict[tuple[str, str, str], dict[str, list[tuple[float | None, float, float | None]]]]


def _curves(r: Reproduction) -> Curves:
    """Return what a figure draws: its points, or its lines where it has none."""
    experiment = r.experiment
    curves: Curves = {}
    chosen = {"curves": experiment.quantities, "measures": experiment.measures}
    wanted = chosen.get(experiment.view)
    for p in r.points:
        if not wanted or p.quantity in wanted:
            curve = curves.setdefault((p.dataset, p.series, p.quantity), {})
            curve.setdefault(p.column, []).append((p.x, p.spread.mean, p.spread.standard_error))
    if curves:
        return curves
    quantity = "seconds" if experiment.view == "times" else "value"
    for line in r.lines:
        for column, side in zip(COLUMNS, (line.hindsight, line.label_free), strict=True):
            summary = side.summary
            found = (summary.mean, summary.standard_error)
            mean, error = (side.seconds, None) if quantity == "seconds" else found
            if mean is not None and math.isfinite(mean):
                curve = curves.setdefault((line.dataset, line.method, quantity), {})
                curve.setdefault(column, []).append((None, mean, error))
    return curves


def _curves_grid(curves: Curves) -> Grid:
    """Return the ends of every curve; of many curves their range over the data sets."""
    groups: dict[tuple[str, str, str], list[Any]] = {}
    is_pooled = len(curves) > LONGEST
    for (dataset, series, quantity), curve in curves.items():
        groups.setdefault(("" if is_pooled else dataset, series, quantity), []).append(curve)
    columns = [c for c in COLUMNS if any(c in curve for curve in curves.values())]
    places = [at for curve in curves.values() for points in curve.values() for at, _, _ in points]
    is_flat = all(at is None for at in places)
    has_quantity = len({quantity for _, _, quantity in curves}) > 1
    header = ["data", "series", *(["quantity"] if has_quantity else [])]
    n_names = len(header)
    header += columns if is_flat else ["along"]
    header += [] if is_flat else [f"{c}, {end}" for c in columns for end in ("first", "last")]
    rows = []
    for (dataset, series, quantity), members in groups.items():
        n_sets = f"{len(members)} data set" + ("" if len(members) == 1 else "s")
        cells = [Cell(dataset or n_sets), Cell(series)]
        cells += [Cell(QUANTITIES.get(quantity, quantity))] if has_quantity else []
        cells += [] if is_flat else [Cell(_range_of(members))]
        for column in columns:
            texts = _end_texts([m[column] for m in members if column in m], quantity)
            cells += [
                Cell(text, tone="none" if text == "not run" else "") for text in texts[is_flat:]
            ]
        rows.append(tuple(cells))
    notes = ("Least to most over the data sets; the picture has every one of them.",)
    return Grid(
        _rows_of(rows),
        tuple(header),
        tuple(rows),
        frozenset(range(n_names)),
        notes if is_pooled else (),
    )


def _end_texts(
    found: list[list[tuple[float | None, float, float | None]]], quantity: str
) -> list[str]:
    """Return the first and the last value of a curve, or the range of those of several."""
    if not found:
        return ["not run", "not run"]
    ordered = [sorted(points, key=lambda point: point[0] or 0.0) for points in found]
    texts = []
    for end in (0, -1):
        values = sorted((points[end][1:] for points in ordered), key=lambda value: value[0])
        (low, error), (high, _) = values[0], values[-1]
        if len(values) == 1:
            spread = "" if error is None else f" ± {_number(error, quantity)}"
            texts.append(_number(low, quantity) + spread)
        else:
            texts.append(f"{_number(low, quantity)} to {_number(high, quantity)}")
    return texts


def _range_of(members: list[Any]) -> str:
    places = [
        at for m in members for points in m.values() for at, _, _ in points if at is not None
    ]
    if not places:
        return "one point"
    low, high = as_figure(min(places), 4), as_figure(max(places), 4)
    return low if low == high else f"{low} to {high}"


def _number(value: float, quantity: str) -> str:
    return _minus(f"{value:.1f}") if quantity == "value" else as_figure(value)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _without_folders(text: str) -> str:
    """Return one line that is the same on every machine: of a path its last part is left."""
    return re.sub(r"(?<![\w./:])/(?:[^\s/'\"]+/)+", "", _one_line(text))
