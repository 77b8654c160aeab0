"""Tables of a reproduction page: lines with printed values, times, the ends of curves."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproduction.experiment import COLUMN_NAMES, COLUMNS
from reproduction.summary import AS_GOOD
from volmar._text import as_count, as_number

if TYPE_CHECKING:
    from reproduction.results import Line, Side
    from reproduction.verdict import Reproduction

LINE_TONES = {
    "reproduced": "good",
    "better than printed": "good",
    "faster": "good",
    AS_GOOD: "good",
    "worse than printed": "weak",
    "slower": "weak",
    "failed": "weak",
}
QUANTITIES = {"value": "value, %"}
# Longer tables of figures are summarised over data sets; longer ones of tables are folded.
LONGEST = 60
UNFOLDED = 24


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `tone` is its colour, `link` the target section."""

    text: str
    bold: bool = False
    tone: str = ""
    link: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; `left` marks left-aligned columns, and `notes` are printed below."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: frozenset[int]
    notes: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the table is short enough to be unfolded."""
        return len(self.rows) <= UNFOLDED


def make_grids(r: Reproduction) -> list[Grid]:
    """Return a table of lines, a summary of a figure's curves, or both."""
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
    """Return the word for a value that is missing."""
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
    """Return two numbers, paper's protocol / label-free; one word if both are missing."""
    sides = line.hindsight, line.label_free
    texts = [
        as_number(value, 2)
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
        word = line.label_free_verdict or "no verdict"
        rows.append(
            (*cells, _verdict(line, reasons), Cell(word, tone=LINE_TONES.get(word, "none")))
        )
    names = ("data", "method") if is_timed else ("group", "quantity")
    header = [*names, "paper"]
    header += [text for name in COLUMN_NAMES.values() for text in (name, "difference")]
    header += ["time over KMeans"] if is_timed else []
    header += ["verdict", "label-free verdict"]
    left = frozenset({0, 1, len(header) - 2, len(header) - 1})
    return Grid(_rows_of(rows), tuple(header), tuple(rows), left, _notes(reasons))


def _times_grid(r: Reproduction) -> Grid:
    reasons: dict[str, int] = {}
    rows = []
    units = {x.dataset: x.paper.mean for x in r.lines if x.method == "KM" and x.paper.mean}
    for line in r.lines:
        printed, sides = line.paper.mean, (line.hindsight, line.label_free)
        seconds = [as_number(s.seconds) if s.seconds > 0 else _word(line) for s in sides]
        faster = [printed / s.seconds if printed and s.seconds else None for s in sides]
        cells = [
            "not printed" if printed is None else as_number(printed),
            *seconds,
            "not printed" if printed is None else _pair(faster, line, "printed as 0"),
            _relation(line),
        ]
        if units:
            unit = units.get(line.dataset)
            cells.append(as_number(printed / unit, 2) if printed and unit else "not printed")
        figures = [_figure(text, line) for text in cells]
        names = Cell(line.dataset), Cell(line.method)
        rows.append((*names, *figures, _verdict(line, reasons)))
    header = ["data", "method", "paper, s", *(f"{name}, s" for name in COLUMN_NAMES.values())]
    header += [
        "printed over ours",
        "time over KMeans",
        *(["paper's time over its KM"] if units else []),
        "verdict",
    ]
    left = frozenset({0, 1, len(header) - 1})
    return Grid(_rows_of(rows), tuple(header), tuple(rows), left, _notes(reasons))


def _relation(line: Line) -> str:
    return _pair((line.hindsight.relation, line.label_free.relation), line)


def _verdict(line: Line, reasons: dict[str, int]) -> Cell:
    """Return the verdict, with the number of the note that gives the reason."""
    tone = LINE_TONES.get(line.verdict, "none")
    if not line.reason:
        return Cell(line.verdict, tone=tone)
    number = reasons.setdefault(without_folders(line.reason), len(reasons) + 1)
    return Cell(f"{line.verdict} ({number})", tone=tone)


def _notes(reasons: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"({number}) {reason}" for reason, number in reasons.items())


def _rows_of(rows: Sequence[Any]) -> str:
    return "Table of 1 row" if len(rows) == 1 else f"Table of {as_count(len(rows))} rows"


# ------------------------------------------------------------------------------ curves in short

# Points (place, mean, standard error) by column, by data set, series and quantity.
Curves = dict[tuple[str, str, str], dict[str, list[tuple[float | None, float, float | None]]]]


def _curves(r: Reproduction) -> Curves:
    """Return the data of a figure: its points, or its lines if it has none."""
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
    """Return the ends of every curve; for many curves their range over the data sets."""
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
    titles = [COLUMN_NAMES[column] for column in columns]
    header += titles if is_flat else ["along"]
    header += [] if is_flat else [f"{c}, {end}" for c in titles for end in ("first", "last")]
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
    notes = ("Minimum to maximum over the data sets; the picture shows each of them.",)
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
    """Return the first and the last value of a curve, or their ranges over several curves."""
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
    low, high = as_number(min(places), 4), as_number(max(places), 4)
    return low if low == high else f"{low} to {high}"


def _number(value: float, quantity: str) -> str:
    return _minus(f"{value:.1f}") if quantity == "value" else as_number(value)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def one_line(text: str) -> str:
    """Return text with single spaces."""
    return " ".join(str(text).split())


def without_folders(text: str) -> str:
    """Return one line that is the same on every machine: paths are reduced to their last part."""
    return re.sub(r"(?<![\w./:])/(?:[^\s/'\"]+/)+", "", one_line(text))
