"""A paper's figure: measures of fitted estimators against the size of the samplings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from reproduction.experiment import Panel
from reproduction.results import Point
from volmar.plots.display import COLOURS, MARKERS, new_figure

# Width and height of a row of panels, in inches.
ROW_SIZE = (10.0, 3.4)
# Curves are moved apart by this share of the smallest step between two sizes: error bars of
# equal values would overlap.
DODGE = 0.06


class MeasuresDisplay:
    """Curves of an experiment's measures against the sample size, in panels.

    A panel of one measure has a curve of means and a curve of medians for each data set; a panel
    of several measures is drawn once for each data set, with a curve of means for each measure.
    Bars show the standard error of a mean, or the median absolute deviation divided by the square
    root of the number of samplings for a median.

    Parameters
    ----------
    points : sequence of Point
        Points of the curves; their series are measures.
    panels : sequence of Panel
        Panels of the figure.

    Attributes
    ----------
    figure_ : matplotlib Figure
        Figure of the plot.
    axes_ : list of matplotlib Axes
        The panels, from left to right and from top to bottom.

    Examples
    --------
    >>> from reproduction import MeasuresDisplay, Panel, Point, Spread
    >>> name = "iterations"
    >>> points = [
    ...     Point("two-moons", name, "hindsight", size, name, Spread.of([2.0, 3.0, size / 20]))
    ...     for size in (50, 100)
    ... ]
    >>> display = MeasuresDisplay(points, [Panel(name, (name,))]).plot()
    >>> display.axes_[0].get_xlabel(), display.axes_[0].get_ylabel()
    ('sample size (rows)', 'iterations')
    """

    def __init__(self, points: Sequence[Point], panels: Sequence[Panel]):
        self.points = points
        self.panels = panels

    def plot(self, *, figure: Any = None) -> MeasuresDisplay:
        """Draw on `figure`, or on a new one."""
        if figure is None:
            figure = new_figure(self.size)
        single, several = self._rows()
        rows = iter(figure.subfigures(bool(single) + len(several), 1, squeeze=False)[:, 0])
        letters = iter(ascii_lowercase)
        self.axes_: list[Any] = []
        if single:
            self._draw_single(next(rows), single, letters)
        for panel in several:
            self._draw_several(next(rows), panel, next(letters))
        self.figure_ = figure
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches for the panels."""
        single, several = self._rows()
        return ROW_SIZE[0], ROW_SIZE[1] * (bool(single) + len(several))

    def _rows(self) -> tuple[list[Panel], list[Panel]]:
        """Return the rows of panels: panels of one measure share a row, others have one each."""
        single = [panel for panel in self.panels if len(panel.measures) == 1]
        return single, [panel for panel in self.panels if len(panel.measures) > 1]

    def _datasets(self) -> list[str]:
        return list(dict.fromkeys(point.dataset for point in self.points))

    def _draw_single(self, row: Any, panels: Sequence[Panel], letters: Iterator[str]) -> None:
        datasets = self._datasets()
        axes = row.subplots(1, len(panels), squeeze=False)[0]
        for ax, panel in zip(axes, panels, strict=True):
            for i, dataset in enumerate(datasets):
                for median in (False, True):
                    position = 2 * i + median - (2 * len(datasets) - 1) / 2
                    self._curve(ax, dataset, panel.measures[0], i, position, median=median)
            _name_axes(ax, panel.axis, f"({next(letters)})")
            self.axes_.append(ax)
        handles = [
            *(_handle(i, label=dataset) for i, dataset in enumerate(datasets)),
            _handle(None, label="mean"),
            _handle(None, label="median", median=True),
        ]
        row.legend(handles=handles, loc="outside right center", fontsize="small")

    def _draw_several(self, row: Any, panel: Panel, letter: str) -> None:
        datasets = self._datasets()
        axes = row.subplots(1, len(datasets), squeeze=False, sharey=True)[0]
        for ax, dataset in zip(axes, datasets, strict=True):
            for i, measure in enumerate(panel.measures):
                self._curve(ax, dataset, measure, i, i - (len(panel.measures) - 1) / 2)
            _name_axes(ax, panel.axis if ax is axes[0] else "", f"({letter}) {dataset}")
            self.axes_.append(ax)
        handles = [_handle(i, label=measure) for i, measure in enumerate(panel.measures)]
        row.legend(handles=handles, loc="outside right center", fontsize="small")

    def _curve(
        self,
        ax: Any,
        dataset: str,
        measure: str,
        i: int,
        position: float,
        *,
        median: bool = False,
    ) -> None:
        """Draw the curve of one measure, `position` steps to the right of its sizes."""
        points = [p for p in self.points if (p.dataset, p.series) == (dataset, measure)]
        sizes = np.array([point.x for point in points], dtype=float)
        all_sizes = np.unique([float(point.x or 0) for point in self.points])
        step = np.diff(all_sizes).min() if len(all_sizes) > 1 else 1.0
        spreads = [point.spread for point in points]
        ax.errorbar(
            sizes + DODGE * step * position,
            [s.median if median else s.mean for s in spreads],
            yerr=[(s.median_error if median else s.standard_error) or 0.0 for s in spreads],
            capsize=2,
            **_style(i, median=median),
        )
        ax.set_xticks(all_sizes)


def _style(i: int | None, *, median: bool = False) -> dict[str, Any]:
    """Return the style of curve i, black circles for None; a median is dashed and hollow."""
    colour = "black" if i is None else COLOURS[i % len(COLOURS)]
    return {
        "color": colour,
        "marker": "o" if i is None else MARKERS[i % len(MARKERS)],
        "markersize": 5,
        "markerfacecolor": "white" if median else colour,
        "linestyle": "--" if median else "-",
        "linewidth": 1.2,
    }


def _handle(i: int | None, *, label: str, median: bool = False) -> Any:
    """Return an entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **_style(i, median=median))


def _name_axes(ax: Any, y_name: str, title: str) -> None:
    ax.set_xlabel("sample size (rows)")
    ax.set_ylabel(y_name)
    ax.set_title(title, fontsize="medium")
    ax.grid(visible=True, linewidth=0.5, alpha=0.4)
