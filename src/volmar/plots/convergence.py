"""The objective of a fit, iteration by iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar.base.recursion import RecursiveResult
from volmar.plots.clusters import COLOURS, MARKERS, new_axes

# Beyond so many values their places on a line are not marked.
MARKED_UP_TO = 60


@dataclass(frozen=True)
class ConvergenceLine:
    """The objective along one run of a solver.

    Attributes
    ----------
    name : str
        What it is the run of.
    values : tuple of float
        The objective, in the order of the iterations.
    bound : float
        What no solution can undercut, `objective` less `gap`; NaN where nothing is certified.

    Examples
    --------
    >>> from volmar.plots import ConvergenceLine
    >>> ConvergenceLine("objective", (3.0, 1.0, 2.5, 2.1), bound=2.0).bounded_from
    2
    """

    name: str
    values: tuple[float, ...]
    bound: float = float("nan")

    @property
    def bounded_from(self) -> int:
        """First of the last values that are all at or above the bound, up to rounding."""
        values = np.asarray(self.values)
        below = np.flatnonzero(values < self.bound - 1e-9 * np.abs(values))
        return int(below[-1]) + 1 if below.size else 0


class ConvergenceDisplay:
    """The objective along the iterations of a fit, and its certified lower bound.

    The bound is `objective` less `gap` of `result_`, for methods that certify one; what it is a
    bound on is said by the class of the estimator. It is drawn under the last iterations, as far
    back as the objective is not below it: methods that raise a price in steps, as CPMMC does,
    have objectives of other problems before. Clusters found by splitting again have a line for
    each split, in units of its value at the end, because the objectives of parts of different
    sizes do not compare.

    Parameters
    ----------
    lines : sequence of ConvergenceLine
        The runs.
    step_name : str, default="iteration"
        What the values are counted by.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of `ax_`.

    Examples
    --------
    >>> from volmar import CPMMC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import ConvergenceDisplay
    >>> X, _ = make_blobs(200, centers=2, random_state=0)
    >>> model = CPMMC(random_state=0).fit(X)
    >>> display = ConvergenceDisplay.from_estimator(model)
    >>> len(display.lines[0].values) == model.n_iter_
    True
    """

    def __init__(self, lines: Sequence[ConvergenceLine], *, step_name: str = "iteration"):
        self.lines = lines
        self.step_name = step_name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted clusterer or pipeline
            Of this library, so that it has a `result_`.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.

        Returns
        -------
        ConvergenceDisplay
        """
        check_is_fitted(estimator)
        model = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        name = type(model).__name__
        result = getattr(model, "result_", None)
        if result is None:
            raise ValueError(
                f"estimator must have a result_ with a history, and {name} has none. Use a "
                "clusterer of this library."
            )
        if isinstance(result, RecursiveResult):
            splits = model.tree_.splits()
            results = [split.model.result_ for split in splits]
            names = [f"split {split.rank} ({split.n_rows} rows)" for split in splits]
        else:
            results, names = [result], ["objective"]
        lines = [
            ConvergenceLine(text, tuple(r.history), r.objective - r.gap)
            for text, r in zip(names, results, strict=True)
            if r.history
        ]
        if not lines:
            raise ValueError(
                f"the result_ of this {name} has no history: nothing was iterated, because it "
                "found or was asked for one cluster. Ask for n_clusters=2 or more."
            )
        is_counted = all(r.n_iter == len(r.history) for r in results)
        return cls(lines, step_name="iteration" if is_counted else "step").plot(ax=ax, title=name)

    def plot(self, *, ax: Any = None, title: str | None = None) -> ConvergenceDisplay:
        """Draw on `ax`, or on a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        title : str, optional
            Title of the axes.

        Returns
        -------
        ConvergenceDisplay
        """
        from matplotlib.ticker import MaxNLocator

        if ax is None:
            ax = new_axes((6.0, 3.6))
        several = len(self.lines) > 1
        for i, line in enumerate(self.lines):
            self._draw(ax, line, several, i)
        longest = max(len(line.values) for line in self.lines)
        # Two places at least: the axis of a single one would be marked in fractions.
        ax.set_xlim(0.5, max(longest, 2) + 0.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.ticklabel_format(axis="y", useOffset=False)
        ax.set_xlabel(self.step_name)
        ax.set_ylabel("objective / |its value at the end|" if several else "objective")
        ax.grid(visible=True, linewidth=0.5, alpha=0.4)
        if title:
            ax.set_title(title)
        if several or np.isfinite(self.lines[0].bound):
            ax.legend(fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Any, line: ConvergenceLine, several: bool, i: int) -> None:
        colour = COLOURS[i % len(COLOURS)]
        values = np.asarray(line.values, dtype=np.float64)
        unit = (abs(values[-1]) or 1.0) if several else 1.0
        has_bound = bool(np.isfinite(line.bound))
        ax.plot(
            np.arange(1, len(values) + 1),
            values / unit,
            color=colour,
            lw=1.5,
            marker=MARKERS[i % len(MARKERS)] if len(values) <= MARKED_UP_TO else None,
            markersize=4,
            label=line.name + (f", gap {_share(line)}" if several and has_bound else ""),
        )
        if has_bound:
            ax.plot(
                [line.bounded_from + 0.75, len(values) + 0.25],
                [line.bound / unit] * 2,
                color=colour,
                lw=1.4,
                ls="--",
                label="_" if several else f"lower bound, {_share(line)} below the end",
            )


def _share(line: ConvergenceLine) -> str:
    """Distance of the last value to the bound, in per cent of it where that says something."""
    end = line.values[-1]
    share = max(end - line.bound, 0.0) / (abs(end) or 1.0)
    return f"{100 * share:.2g} %" if share >= 1e-4 or share == 0.0 else f"{100 * share:.0e} %"
