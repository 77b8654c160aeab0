"""Plot that compares several numbers of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar.diagnostics import NumberComparison, compare_numbers
from volmar.diagnostics.compare_numbers import alluvium
from volmar.plots.display import COLOURS, MARKERS, hide_spines, new_figure

# Half the width of a block; adjacent numbers of clusters have a distance of 1.
HALF = 0.06
SCORES = (
    ("separation", "separation score"),
    ("silhouette", "silhouette"),
    ("stability", "stability (halves of the rows)"),
)


class NumberOfClustersDisplay:
    """Clusterings into 2, 3, ... clusters: how clusters divide, and their scores.

    In the upper plot, each block is a cluster, with a height proportional to its number of rows,
    and each band shows the rows shared by two clusters. The lower plot shows the scores. A filled
    marker means that all clusters are separated on held-out rows.

    Parameters
    ----------
    comparison : NumberComparison
        Result of `volmar.diagnostics.compare_numbers`.
    reference : array of int of shape (n_rows,), optional
        Clusters of the compared rows, from 0 on. A block has the colour of the reference cluster
        that contains most of its rows. By default, the reference is the clustering with the
        largest number of clusters that are all separated.

    Attributes
    ----------
    axes_, figure_ : ndarray of two matplotlib Axes, and Figure
        The axes of the two plots, and the figure.

    Examples
    --------
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import NumberOfClustersDisplay
    >>> X, _ = make_blobs(200, centers=3, random_state=0)
    >>> numbers = [2, 3, 4]
    >>> display = NumberOfClustersDisplay.from_estimator(None, X, numbers=numbers, random_state=0)
    >>> [text.get_text().split(chr(10))[1] for text in display.axes_[0].get_xticklabels()]
    ['2 separated', '3 separated', '3 separated']
    """

    def __init__(self, comparison: NumberComparison, reference: ArrayLike | None = None):
        self.comparison = comparison
        self.reference = reference

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, figure: Any = None, **parameters: Any
    ) -> NumberOfClustersDisplay:
        """Compare numbers of clusters, and plot the comparison.

        Parameters
        ----------
        estimator : clusterer or None
            The clusterer, which need not be fitted. If None, `MSPC`.
        X : array of shape (n, d)
            Rows.
        figure : matplotlib Figure, optional
            Figure to draw on. If None, a new figure is created.
        **parameters
            Parameters of `volmar.diagnostics.compare_numbers`.
        """
        return cls(compare_numbers(X, estimator, **parameters)).plot(figure=figure)

    def plot(self, *, figure: Any = None) -> NumberOfClustersDisplay:
        """Draw on `figure`, or on a new one."""
        if figure is None:
            figure = new_figure(self.size)
        axes = figure.subplots(2, 1, height_ratios=(1.6, 1.0))
        self._draw_flows(axes[0])
        self._draw_scores(axes[1])
        for ax in axes:
            ax.set_xlim(-0.4, len(self.comparison.found) - 0.6)
            hide_spines(ax, "top", "right", "left")
        self.axes_, self.figure_ = axes, figure
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches."""
        return max(5.0, 1.1 * len(self.comparison.found) + 1.5), 6.4

    def _draw_flows(self, ax: Any) -> None:
        given = None if self.reference is None else np.asarray(self.reference)
        blocks, flows = alluvium(self.comparison, given)
        t = np.linspace(0.0, 1.0, 30)
        bend = t * t * (3 - 2 * t)  # horizontal at both ends
        for flow in flows:
            x = flow.level + HALF + (1 - 2 * HALF) * t
            low, high = (a + (b - a) * bend for a, b in zip(flow.left, flow.right, strict=True))
            colour = COLOURS[flow.colour % len(COLOURS)]
            ax.fill_between(x, low, high, color=colour, alpha=0.35, linewidth=0)
        for block in blocks:
            colour = COLOURS[block.colour % len(COLOURS)]
            height = block.bottom - block.top
            ax.bar(block.level, height, width=2 * HALF, bottom=block.top, color=colour)
        found = self.comparison.found
        words = [
            f"{one.n_clusters}\n"
            + ("not tested" if one.n_supported is None else f"{one.n_supported} separated")
            for one in found
        ]
        ax.set_xticks(range(len(found)), words, fontsize="small")
        ax.tick_params(axis="x", length=0)
        ax.set_ylim(1.0, 0.0)
        ax.set_yticks([])
        ax.spines["bottom"].set_visible(False)
        n, n_all = self.comparison.rows.size, self.comparison.n_all
        of = f"{n:,} rows" if n == n_all else f"{n:,} of {n_all:,} rows"
        ax.set_title(f"{self.comparison.method}, {of}", fontsize="medium")

    def _draw_scores(self, ax: Any) -> None:
        found = self.comparison.found
        x = np.arange(len(found))
        is_real = np.array([one.is_supported for one in found])
        for i, (name, words) in enumerate(SCORES):
            y = np.array([getattr(one, name) for one in found])
            colour, marker = COLOURS[i], MARKERS[i]
            ax.plot(x, y, color=colour, marker=marker, mfc="white", ms=7, label=words)
            ax.plot(x[is_real], y[is_real], color=colour, marker=marker, ms=7, ls="")
        ax.set_xticks(x, [str(one.n_clusters) for one in found])
        ax.set_xlabel("number of clusters (filled markers: all of them separated)")
        ax.grid(axis="y", color="0.9")
        ax.set_axisbelow(True)
        ax.legend(
            fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.3), ncols=3, frameon=False
        )
