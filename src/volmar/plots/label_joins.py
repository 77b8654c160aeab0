"""Dendrogram of given clusters: which are separated, and which should be merged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar._checks import shortened
from volmar.evidence import LabelTestResult, label_test
from volmar.plots.display import COLOURS, Display, hide_spines

# Styles of separated and merged joins: blue or vermilion, and as a second cue the line style.
SEPARATED: dict[str, Any] = {"color": COLOURS[0], "ls": "-"}
MERGED: dict[str, Any] = {"color": COLOURS[1], "ls": "--"}


class LabelTestDisplay(Display):
    r"""Dendrogram of given clusters with the p-value of each join.

    Clusters at solid blue joins are separated. Those at dashed vermilion joins are not, and should
    be merged. The position of a join is the number of joins below it on its longest branch, plus
    one.

    Parameters
    ----------
    result : LabelTestResult
        Result of `volmar.label_test`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import LabelTestDisplay
    >>> X, _ = make_blobs(300, centers=3, random_state=0)
    >>> labels = KMeans(4, n_init=10, random_state=0).fit_predict(X)
    >>> display = LabelTestDisplay.from_labels(X, labels, random_state=0)
    >>> display.ax_.get_title()
    '4 clusters, 3 separated groups'
    """

    def __init__(self, result: LabelTestResult):
        self.result = result

    @classmethod
    def from_labels(
        cls, X: Any, labels: ArrayLike, *, ax: Any = None, **parameters: Any
    ) -> LabelTestDisplay:
        """Test given labels, and plot the result.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows.
        labels : array of shape (n,)
            Cluster of each row.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        **parameters
            Parameters of `volmar.label_test`.
        """
        return cls(label_test(X, labels, **parameters)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> LabelTestDisplay:
        """Draw on `ax`, or on a new figure."""
        from matplotlib.lines import Line2D

        order, steps = self._order(), self._steps()
        k, depth = len(order), max(steps, default=0)
        ax = self._set_axes(ax)
        y = {label: float(k - 1 - i) for i, label in enumerate(order)}
        x = dict.fromkeys(order, 0)
        for join, step in zip(self.result.tree, steps, strict=True):
            left, right = join.left[0], join.right[0]
            style = SEPARATED if join.is_real else MERGED
            ends = [x[left], step, step, x[right]], [y[left], y[left], y[right], y[right]]
            ax.plot(*ends, lw=2.0, **style)
            middle = 0.5 * (y[left] + y[right])
            if k <= 40:
                text, colour = f"p = {join.p_value:.2g}", style["color"]
                box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour}
                placed = {"ha": "center", "va": "center", "fontsize": "small", "zorder": 4}
                ax.text(step, middle, text, color=colour, bbox=box, **placed)
            for label in (*join.left, *join.right):
                x[label], y[label] = step, middle
        ax.set_xlim(0.0, depth + 0.6)
        ax.set_ylim(-0.6, k - 0.4)
        ax.set_xticks([])
        self._name_clusters(ax, order)
        n_real = self.result.n_real
        found = "one group" if n_real == 1 else f"{n_real} separated groups"
        ax.set_title(f"{k} cluster{'s' if k > 1 else ''}, {found}", fontsize="medium")
        handles = [
            Line2D([], [], label=label, lw=2.0, **style)
            for label, style in (("separated", SEPARATED), ("not separated: merge", MERGED))
        ]
        where = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "ncols": 2}
        ax.legend(handles=handles, fontsize="small", frameon=False, **where)
        hide_spines(ax)
        ax.tick_params(axis="y", length=0)
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches."""
        k, depth = len(self.result.clusters), max(self._steps(), default=0)
        width, height = np.clip([1.1 * depth + 2.5, 0.35 * k + 1.6], [5.0, 2.5], [25.0, 30.0])
        return float(width), float(height)

    def _steps(self) -> list[int]:
        """Return for each join the number of joins on its longest branch, itself included."""
        reached = dict.fromkeys(self.result.clusters, 0)
        steps = []
        for join in self.result.tree:
            steps.append(1 + max(reached[join.left[0]], reached[join.right[0]]))
            reached.update(dict.fromkeys((*join.left, *join.right), steps[-1]))
        return steps

    def _order(self) -> list[Any]:
        """Return the clusters in an order in which the two sides of each join are adjacent."""
        row = {label: [label] for label in self.result.clusters}
        for join in self.result.tree:
            together = row[join.left[0]] + row[join.right[0]]
            row.update(dict.fromkeys(together, together))
        return row[self.result.clusters[0]]

    def _name_clusters(self, ax: Any, order: list[Any]) -> None:
        if len(order) > 80:
            ax.set_yticks([])
            ax.set_ylabel(f"{len(order)} clusters")
            return
        sizes = dict(zip(self.result.clusters, self.result.sizes, strict=True))
        words = [f"{shortened(str(label), 30)} ({sizes[label]} rows)" for label in order]
        # A label may contain dollar signs.
        ax.set_yticks(range(len(order) - 1, -1, -1), words, parse_math=False)
