"""The tree over given clusters, drawn: which are separated, and which should be merged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from volmar.diagnostics import LabelTestResult, label_test
from volmar.plots.clusters import COLOURS, new_axes

# Separated and merged: Okabe and Ito's blue and vermilion, and a second sign, the line style.
SEPARATED, MERGED = {"color": COLOURS[0], "ls": "-"}, {"color": COLOURS[1], "ls": "--"}
# Up to as many clusters there is room for the p-value at each join, and for the sizes.
MOST_WRITTEN, MOST_NAMED = 25, 60


class LabelTestDisplay:
    r"""A dendrogram of given clusters with the p-value of each join.

    Solid blue joins are separated, dashed vermilion ones are not: their clusters should be merged.
    The height of a join is the distance of its two tested groups in standard deviations within
    groups, or that of the highest join below it where that is more.

    Parameters
    ----------
    result : LabelTestResult
        Of `volmar.diagnostics.label_test`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of `ax_`.

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
        """Test given labels, and draw the result.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows.
        labels : array of shape (n,)
            Cluster of each row.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        **parameters
            Of `volmar.diagnostics.label_test`.
        """
        return cls(label_test(X, labels, **parameters)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> LabelTestDisplay:
        """Draw on `ax`, or on a new figure."""
        from matplotlib.lines import Line2D

        order = self._order()
        k = len(order)
        if ax is None:
            ax = new_axes((float(np.clip(0.75 * k, 5.0, 30.0)), 4.2))
        sizes = dict(zip(self.result.clusters, self.result.sizes, strict=True))
        x = {label: float(i) for i, label in enumerate(order)}
        y = dict.fromkeys(order, 0.0)
        # Tops of the subtrees, by the number of the subtree that each cluster is in.
        for join in self.result.tree:
            left, right = join.left[0], join.right[0]
            height = max(join.distance, y[left], y[right])
            style = SEPARATED if join.is_real else MERGED
            ax.plot(
                [x[left], x[left], x[right], x[right]],
                [y[left], height, height, y[right]],
                lw=2.0,
                **style,
            )
            middle = 0.5 * (x[left] + x[right])
            if k <= MOST_WRITTEN:
                ax.annotate(
                    f"p = {join.p_value:.2g}",
                    (middle, height),
                    (0, 3),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize="small",
                    color=style["color"],
                )
            for label in (*join.left, *join.right):
                x[label], y[label] = middle, height
        ax.set_xlim(-0.6, k - 0.4)
        ax.set_ylim(0.0, 1.18 * max([*y.values(), 1e-3]))
        self._name_clusters(ax, order, sizes)
        ax.set_ylabel("distance / deviation within groups")
        ax.set_title(_title(k, self.result.n_real), fontsize="medium")
        handles = [
            Line2D([], [], label=label, lw=2.0, **style)
            for label, style in (("separated", SEPARATED), ("not separated: merge", MERGED))
        ]
        ax.legend(handles=handles, fontsize="small", loc="upper left", frameon=False)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _order(self) -> list[Any]:
        """Return the clusters so that the sides of every join are beside each other."""
        row = {label: [label] for label in self.result.clusters}
        for join in self.result.tree:
            together = row[join.left[0]] + row[join.right[0]]
            row.update(dict.fromkeys(together, together))
        return row[self.result.clusters[0]]

    def _name_clusters(self, ax: Any, order: list[Any], sizes: dict[Any, int]) -> None:
        if len(order) > MOST_NAMED:
            ax.set_xticks([])
            ax.set_xlabel(f"{len(order)} clusters")
            return
        words = [f"{label}\n{sizes[label]}" for label in order]
        longest = max(len(word) for text in words for word in text.split("\n"))
        ax.set_xticks(range(len(order)), words, rotation=90 if longest > 8 else 0, parse_math=False)
        ax.tick_params(axis="x", length=0)
        ax.set_xlabel("cluster and its number of rows")


def _title(k: int, n_real: int) -> str:
    found = "one group" if n_real == 1 else f"{n_real} separated groups"
    return f"{k} cluster{'s' if k > 1 else ''}, {found}"
