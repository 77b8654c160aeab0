"""A reproduced figure of a paper, in the paper's arrangement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduction.datasets import load
from reproduction.experiment import COLUMN_NAMES, COLUMNS
from reproduction.measures_display import MeasuresDisplay
from volmar.plots import ClusterDisplay
from volmar.plots.display import COLOURS, MARKERS, new_figure

if TYPE_CHECKING:
    from reproduction.results import Line, Point, Side
    from reproduction.verdict import Reproduction

# Thin yellow lines are not visible on white.
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#F0E442")
LEGEND_WIDTH = 1.6  # inches
# Curves are spread over this share of the smallest step of the axis: equal ones would overlap.
DODGE = 0.25
CIRCLES = {"linestyle": "", "marker": "o", "markersize": 4.5}
BAR_STYLE = {"label": "accuracy", "color": "#BBD5E8", "linewidth": 8}
MSP_STYLE = {"label": "MSP", "color": COLOURS[1], **CIRCLES}
PAPER_STYLE = {**CIRCLES, "label": "printed", "color": "black", "marker": "|", "markersize": 9}


class PaperFigureDisplay:
    """Plot of a reproduced figure, by the experiment's `view`.

    - "curves": one panel per data set and quantity, one curve per method; bars are standard
      errors.
    - "measures": as `MeasuresDisplay`, once for each column.
    - "times": seconds per fit of each data set and method, on a logarithmic axis.
    - "correlation": for each group of data sets bars of accuracy and circles of the maximum
      separation probability (MSP), and one against the other; under the paper's protocol, or
      label-free if nothing else was run.
    - "data": the data sets, coloured by class.

    The paper's protocol is solid and filled; label-free is dashed, hollow and lighter.

    Parameters
    ----------
    reproduction : Reproduction
        Results to draw.

    Attributes
    ----------
    figure_ : matplotlib Figure
        Figure of the plot.
    axes_ : list of matplotlib Axes
        The panels, from left to right and from top to bottom of each block.

    Examples
    --------
    >>> from reproduction import PaperFigureDisplay, Reproduction, load_experiment
    >>> data = Reproduction.of(load_experiment("mvc-jmlr-2013-figure-3"), [])
    >>> [ax.get_title() for ax in PaperFigureDisplay(data).plot().axes_]
    ['two-gaussians', 'two-moons', 'two-circles']
    """

    def __init__(self, reproduction: Reproduction):
        self.reproduction = reproduction

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches for the panels."""
        return self._drawing().size

    def plot(self, *, figure: Any = None) -> PaperFigureDisplay:
        """Draw on `figure`, which should have a constrained layout, or on a new one."""
        drawing = self._drawing()
        if figure is None:
            figure = new_figure(drawing.size)
        self.axes_: list[Any] = drawing.draw(figure)
        self.figure_ = figure
        return self

    def _drawing(self) -> Any:
        if not has_picture(self.reproduction):
            experiment = self.reproduction.experiment
            raise ValueError(
                f"reproduction of {experiment.name!r} (view {experiment.view!r}) has nothing to "
                "draw; ask has_picture first, or run its cells."
            )
        return DRAWINGS[self.reproduction.experiment.view](self.reproduction)


def has_picture(reproduction: Reproduction) -> bool:
    """Return whether there is something to draw: a figure with results, not a table.

    Parameters
    ----------
    reproduction : Reproduction
        Results to draw.

    Returns
    -------
    bool
    """
    experiment = reproduction.experiment
    if experiment.view not in DRAWINGS or (experiment.view == "times" and not experiment.figure):
        return False
    return bool(DRAWINGS[experiment.view](reproduction))


class _Panels:
    """Blocks of panels, each a wrapped grid, all as wide as the widest."""

    # Width and height of a panel in inches, and maximum number of panels side by side.
    panel = (2.9, 2.4)
    most = 4

    def __init__(self, *counts: int):
        self.counts = counts

    def __bool__(self) -> bool:
        return any(self.counts)

    @property
    def shape(self) -> tuple[int, int]:
        # The minimum number of rows, and then the minimum number of columns.
        wide = max(math.ceil(n / math.ceil(n / self.most)) for n in self.counts)
        return sum(math.ceil(n / wide) for n in self.counts), wide

    @property
    def size(self) -> tuple[float, float]:
        rows, wide = self.shape
        return max(self.panel[0] * wide, 3.6) + LEGEND_WIDTH, max(self.panel[1] * rows, 2.8)

    def places(self, figure: Any) -> Iterator[tuple[Any, bool, bool]]:
        """Place of each panel, whether it is the first in its row, the last in its column."""
        rows, wide = self.shape
        grid, row = figure.add_gridspec(rows, wide), 0
        for n in self.counts:
            for i in range(n):
                yield grid[row + i // wide, i % wide], i % wide == 0, i + wide >= n
            row += math.ceil(n / wide)


class _Curves(_Panels):
    """Blocks of quantities, panels of data sets, curves of methods."""

    def __init__(self, reproduction: Reproduction):
        self.experiment = experiment = reproduction.experiment
        quantities = experiment.quantities or ("value",)
        self.points = [p for p in _run(reproduction.points) if p.quantity in quantities]
        series = {p.series for p in self.points}
        self.series = [method for method in experiment.methods if method in series]
        self.columns = [c for c in COLUMNS if any(p.column == c for p in self.points)]
        drawn = {(p.quantity, p.dataset) for p in self.points}
        self.panels = [pair for pair in product(quantities, experiment.datasets) if pair in drawn]
        super().__init__(*Counter(quantity for quantity, _ in self.panels).values())

    def draw(self, figure: Any) -> list[Any]:
        axes, places = [], self.places(figure)
        for (quantity, dataset), (place, first, last) in zip(self.panels, places, strict=True):
            ax = figure.add_subplot(place)
            self._panel(ax, quantity, dataset)
            x_name = self.experiment.axis_label if last else ""
            _name_axes(ax, dataset, x_name, self._name(quantity) if first else "")
            axes.append(ax)
        _legend(figure, _entries(self.series, self.columns, line=True))
        return axes

    def _panel(self, ax: Any, quantity: str, dataset: str) -> None:
        points = [p for p in self.points if (p.quantity, p.dataset) == (quantity, dataset)]
        xs = np.unique([_x(p) for p in points])
        # A single value, or equal ones, have no range on a logarithmic axis.
        log = bool(self.experiment.axis_log and xs[0] > 0 and len(xs) > 1)
        if log:
            ax.set_xscale("log")
        values = [p.spread.mean for p in points]
        if quantity in self.experiment.log and max(values) > 1.001 * max(min(values), 0.0):
            ax.set_yscale("log")
        slots = [(i, column) for i in range(len(self.series)) for column in self.columns]
        for k, (i, column) in enumerate(slots):
            curve = [p for p in points if (p.series, p.column) == (self.series[i], column)]
            if curve:
                curve.sort(key=_x)
                ax.errorbar(
                    _dodged(list(map(_x, curve)), xs, (k + 0.5) / len(slots) - 0.5, log=log),
                    [p.spread.mean for p in curve],
                    yerr=[p.spread.standard_error or 0.0 for p in curve],
                    capsize=2,
                    **_style(i, column),
                )
        _mark_x(ax, xs, log=log)
        if all(p.x is None for p in points):
            ax.set_xticks([])

    def _name(self, quantity: str) -> str:
        names = {m: panel.axis for panel in self.experiment.panels for m in panel.measures}
        metric = f"{self.experiment.metric.replace('_', ' ')} (%)"
        return {**names, "value": metric, "seconds": "seconds a fit"}.get(quantity, quantity)


class _Measures:
    """The picture of `MeasuresDisplay` for each column."""

    def __init__(self, reproduction: Reproduction):
        panels = reproduction.experiment.panels
        drawn = {measure for panel in panels for measure in panel.measures}
        self.displays = {}
        for column in COLUMNS:
            points = [
                point
                for point in _run(reproduction.points)
                if point.column == column and point.quantity in drawn
            ]
            if points:
                self.displays[column] = MeasuresDisplay(points, panels)

    def __bool__(self) -> bool:
        return bool(self.displays)

    @property
    def size(self) -> tuple[float, float]:
        widths, heights = zip(*(display.size for display in self.displays.values()), strict=True)
        return max(widths), sum(heights)

    def draw(self, figure: Any) -> list[Any]:
        axes = []
        blocks = figure.subfigures(len(self.displays), 1, squeeze=False)[:, 0]
        for block, (column, display) in zip(blocks, self.displays.items(), strict=True):
            if len(blocks) > 1:
                block.suptitle(COLUMN_NAMES[column])
            axes += display.plot(figure=block).axes_
        return axes


class _Times:
    """Seconds per fit: one band per data set, with one row per method."""

    def __init__(self, reproduction: Reproduction):
        experiment = reproduction.experiment
        self.lines = [x for x in reproduction.lines if any(s.seconds > 0 for s in _sides(x))]
        datasets, methods = {x.dataset for x in self.lines}, {x.method for x in self.lines}
        self.datasets = [name for name in experiment.datasets if name in datasets]
        self.methods = [name for name in experiment.methods if name in methods]

    def __bool__(self) -> bool:
        return bool(self.lines)

    @property
    def size(self) -> tuple[float, float]:
        band = max(0.4, 0.12 * len(self.methods) + 0.1)
        return 6.5 + LEGEND_WIDTH, max(2.8, 0.8 + band * len(self.datasets))

    def draw(self, figure: Any) -> list[Any]:
        ax = figure.subplots()
        ax.set_xscale("log")
        for line in self.lines:
            i = self.methods.index(line.method)
            # Methods share 0.8 of a band; the columns are a quarter of a method's row apart.
            row = self.datasets.index(line.dataset) + 0.8 * ((i + 0.5) / len(self.methods) - 0.5)
            for column, side, shift in zip(COLUMNS, _sides(line), (-0.1, 0.1), strict=True):
                if side.seconds > 0:
                    ax.plot(side.seconds, row + shift / len(self.methods), **_style(i, column))
            if line.paper.mean:
                ax.plot(line.paper.mean, row, **PAPER_STYLE | {"color": LINE_COLOURS[i % 7]})
        for band in range(0, len(self.datasets), 2):
            ax.axhspan(band - 0.5, band + 0.5, color="0.95", zorder=0)
        ax.set_yticks(range(len(self.datasets)), self.datasets)
        ax.tick_params(axis="y", length=0)
        ax.set_ylim(len(self.datasets) - 0.5, -0.5)
        ax.set_xlabel("seconds a fit")
        ax.grid(visible=True, axis="x", linewidth=0.5, alpha=0.4)
        both = zip(COLUMNS, zip(*map(_sides, self.lines), strict=True), strict=True)
        columns = [column for column, sides in both if any(s.seconds > 0 for s in sides)]
        paper = [PAPER_STYLE] if any(line.paper.mean for line in self.lines) else []
        _legend(figure, _entries(self.methods, columns, line=False) + paper)
        return [ax]


class _Correlation(_Panels):
    """Per group, bars of accuracy with circles of MSP, and below a scatter plot of both."""

    def __init__(self, reproduction: Reproduction):
        points = _run(reproduction.points)
        self.column = next((c for c in COLUMNS if any(p.column == c for p in points)), "")
        values = {(p.series, p.dataset): p.spread.mean for p in points if p.column == self.column}
        self.groups = {}
        for group, names in reproduction.experiment.groups.items():
            both = [n for n in names if values.keys() >= {("accuracy", n), ("msp", n)}]
            if both:
                self.groups[group] = {n: (values["accuracy", n], values["msp", n]) for n in both}
        # The verdict uses the first line of a group.
        self.lines = {line.dataset: line for line in reversed(reproduction.lines)}
        super().__init__(len(self.groups))
        # Wide enough for the names of the data sets, with as many groups side by side as fit.
        most = max(map(len, self.groups.values()), default=0)
        self.panel = (float(np.clip(0.14 * most + 0.9, 3.4, 7.5)), 5.6)
        self.most = min(self.most, int(15.0 // self.panel[0]))

    def draw(self, figure: Any) -> list[Any]:
        axes, places = [], self.places(figure)
        for (group, pairs), (place, first, _) in zip(self.groups.items(), places, strict=True):
            above, below = place.subgridspec(2, 1).subplots()
            accuracy, msp = np.transpose(list(pairs.values()))
            self._bars(above, list(pairs), accuracy, msp)
            below.plot(msp, accuracy, color=COLOURS[0], **CIRCLES)
            title = f"{group}\n{self._correlation(group)}"
            _name_axes(above, title, above.get_xlabel(), "accuracy and MSP (%)" if first else "")
            _name_axes(below, "", "MSP (%)", "accuracy (%)" if first else "")
            axes += [above, below]
        _legend(figure, [BAR_STYLE, MSP_STYLE], "upper")
        return axes

    def _bars(self, ax: Any, names: list[str], accuracy: np.ndarray, msp: np.ndarray) -> None:
        at = np.arange(len(names))
        ax.bar(at, accuracy, color=BAR_STYLE["color"], width=0.75)
        ax.plot(at, msp, **MSP_STYLE)
        # Width of a name in points; below seven it is not legible.
        room = 72 * (self.panel[0] - 0.8) / len(names)
        if room >= 7.0:
            ax.set_xticks(at, names, rotation=90, fontsize=min(8.0, 0.85 * room))
        else:
            ax.set_xticks([])
            ax.set_xlabel(f"{len(names)} data sets")
        ax.set_xlim(-0.7, len(names) - 0.3)

    def _correlation(self, group: str) -> str:
        line = self.lines.get(group)
        ours = line and _sides(line)[COLUMNS.index(self.column)].summary
        if line is None or not ours or ours.mean is None:
            return "correlation unknown"
        printed = "" if line.paper.mean is None else f" (paper: {line.paper.mean / 100:.2f})"
        return f"correlation {ours.mean / 100:.2f}{printed}"


class _Data(_Panels):
    """The data sets, coloured by class."""

    panel = (3.1, 3.0)

    def __init__(self, reproduction: Reproduction):
        self.datasets = reproduction.experiment.datasets
        super().__init__(len(self.datasets))

    def draw(self, figure: Any) -> list[Any]:
        axes, n_classes, places = [], 0, self.places(figure)
        for (name, special), (place, *_) in zip(self.datasets.items(), places, strict=True):
            data = load(name, **special.get("load", {}))
            n_classes = max(n_classes, len(data.target_names))
            if data.X.shape[1] == 3:
                ax = figure.add_subplot(place, projection="3d")
                ax.set_zlabel("feature 2")
                display = ClusterDisplay(data.X, data.y, ("feature 0", "feature 1"))
                display.plot(ax=ax, legend=False)
                ax.tick_params(labelsize="x-small")
                ax.locator_params(nbins=4)
                # Axis labels are outside the box that the layout reserves.
                ax.set_box_aspect(None, zoom=0.85)
            else:
                ax = figure.add_subplot(place)
                ClusterDisplay.from_labels(data.X, data.y, ax=ax, legend=False)
                ax.locator_params(axis="y", nbins=5)
            ax.set_title(name, fontsize="medium")
            axes.append(ax)
        looks = zip(COLOURS, MARKERS, range(1, n_classes + 1), strict=False)
        styles = [{"color": c, "marker": m, "label": f"class {i}"} for c, m, i in looks]
        _legend(figure, [CIRCLES | style for style in styles])
        return axes


DRAWINGS: dict[str, Any] = {
    "curves": _Curves,
    "measures": _Measures,
    "times": _Times,
    "correlation": _Correlation,
    "data": _Data,
}


def _run(points: Iterable[Point]) -> list[Point]:
    return [p for p in points if p.spread.mean is not None and math.isfinite(p.spread.mean)]


def _sides(line: Line) -> tuple[Side, Side]:
    return line.hindsight, line.label_free


def _x(point: Point) -> float:
    return 0.0 if point.x is None else float(point.x)


def _dodged(at: Sequence[float], xs: np.ndarray, slot: float, *, log: bool) -> np.ndarray:
    """Move a curve by `slot`, from -1/2 to 1/2, within the range over which curves are spread."""
    scale = np.log10 if log else np.asarray
    step = np.diff(scale(xs)).min() if len(xs) > 1 else 1.0
    moved = scale(at) + DODGE * slot * step
    return 10.0**moved if log else moved


def _mark_x(ax: Any, xs: np.ndarray, *, log: bool) -> None:
    """Set ticks at the values, without those that would overlap with the next tick."""
    at, marked = np.log10(xs) if log else xs, [len(xs) - 1]
    for k in range(len(xs) - 2, -1, -1):
        if at[marked[-1]] - at[k] >= np.ptp(at) / 6.5:
            marked.append(k)
    ax.set_xticks(xs[marked], [_tick(x) for x in xs[marked]])
    ax.set_xticks([], minor=True)


def _tick(x: float) -> str:
    """Return a number as short text, because long ones would overlap."""
    return f"{x / 1000:.0f}k" if x >= 10_000 else f"{x:g}"


def _style(i: int | None, column: str, line: bool = True) -> dict[str, Any]:
    """Return the style of series i, grey circles for None; label-free is hollow and lighter."""
    first = column == COLUMNS[0]
    colour = "#737373" if i is None else LINE_COLOURS[i % len(LINE_COLOURS)]
    return {
        # The last two digits are the opacity, and not that of the marker's white face.
        "color": colour if first else f"{colour}99",
        "marker": "o" if i is None else MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markerfacecolor": colour if first else "white",
        "linestyle": ("-" if first else "--") if line else "",
        "linewidth": 1.3,
        "zorder": 3 if first else 2.5,
    }


def _legend(figure: Any, styles: Iterable[dict[str, Any]], height: str = "center") -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style) for style in styles]
    figure.legend(handles=handles, loc=f"outside right {height}", fontsize="small", handlelength=3)


def _entries(series: Sequence[str], columns: Sequence[str], line: bool) -> list[dict[str, Any]]:
    """Return legend entries of the series and the columns."""
    entries = [{"label": s, **_style(i, COLUMNS[0], line)} for i, s in enumerate(series)]
    return entries + [{"label": COLUMN_NAMES[c], **_style(None, c, line)} for c in columns]


def _name_axes(ax: Any, title: str, x_name: str, y_name: str) -> None:
    ax.set_title(title, fontsize="medium")
    ax.set_xlabel(fill(x_name, 34))
    ax.set_ylabel(fill(y_name, 24))
    if ax.get_yscale() == "linear":
        # A number of ticks that depends on the height would change after the layout.
        ax.locator_params(axis="y", nbins=5)
    ax.set_axisbelow(True)
    ax.grid(visible=True, linewidth=0.5, alpha=0.4)
