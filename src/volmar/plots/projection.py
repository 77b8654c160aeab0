"""Histogram of the decision scores of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from volmar.base.recursion import RecursiveResult
from volmar.plots.display import COLOURS, Display, hide_spines

DARK = "0.15"


@dataclass(eq=False, repr=False)
class ProjectionDisplay(Display):
    """Histogram of the decision scores of rows, stacked by cluster.

    For two clusters, the decision score is shown, with the border at 0. For more clusters, the
    best score of a row minus its second best is shown, which is 0 at a border. Lines mark the
    margin for maximum margin methods, and the means of the two clusters for MSPC, with its
    separation probability.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores of the rows.
    labels : ndarray of shape (n,)
        Cluster of each row.
    marks : sequence of float, default=()
        Positions of the margin.
    mark_name : str, default="margin"
        Name of `marks` in the legend.
    means : (float, float), optional
        Means of the scores of the two clusters.
    probability : float, optional
        Separation probability of the two clusters.
    axis_name : str, default="decision score"
        Name of the axis of scores.

    Attributes
    ----------
    counts_ : ndarray of shape (n_shown, n_bins)
        Heights of the bars, with a row for each cluster that has rows.
    edges_ : ndarray of shape (n_bins + 1,)
        Edges of the bars; no bar crosses the border.
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

    Examples
    --------
    >>> from volmar import CPMMC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import ProjectionDisplay
    >>> X, _ = make_blobs(200, centers=2, random_state=0)
    >>> model = CPMMC(random_state=0).fit(X)
    >>> display = ProjectionDisplay.from_estimator(model, X)
    >>> int(display.counts_.sum()), display.marks
    (200, (-1.0, 1.0))
    """

    scores: NDArray
    labels: NDArray
    _: KW_ONLY
    marks: Sequence[float] = ()
    mark_name: str = "margin"
    means: tuple[float, float] | None = None
    probability: float | None = None
    axis_name: str = "decision score"

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, bins: int | None = None, ax: Any = None
    ) -> ProjectionDisplay:
        """Plot the scores of rows from a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator or pipeline
            An estimator with a `decision_function`, of any library. Clusters are those of the
            scores. They may differ from `labels_` for training rows on the wrong side of a soft
            margin.
        X : array of shape (n, d)
            The training rows, or new rows.
        bins : int, optional
            Approximate number of bars. If None, it depends on the spread of the scores.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        """
        check_is_fitted(estimator)
        name = type(estimator).__name__
        if not hasattr(estimator, "decision_function"):
            raise ValueError(
                f"estimator must have a decision_function, but {name} has none. Use an estimator "
                "of volmar, or ClusterDisplay."
            )
        scores = np.asarray(estimator.decision_function(X))
        if scores.ndim == 2 and scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        if not scores.any():
            raise ValueError(
                f"this {name} gives all rows the score 0: it found one cluster, so there is no "
                "border to draw. Fit it with n_clusters=2."
            )
        model = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        marks, mark_name = _marks(model, joint=scores.ndim == 2)
        more: dict[str, Any] = {"axis_name": "best score minus second best"}
        if scores.ndim == 2:
            labels = scores.argmax(axis=1)
            scores = np.diff(np.partition(scores, -2, axis=1)[:, -2:]).ravel()
        else:
            labels = (scores > 0).astype(np.int64)
            means, probability = _separation(model, scores, labels)
            more = {"means": means, "probability": probability}
        shown = cls(scores, labels, marks=marks, mark_name=mark_name, **more)
        return shown.plot(bins=bins, ax=ax, title=type(model).__name__)

    def plot(
        self, *, bins: int | None = None, ax: Any = None, title: str | None = None
    ) -> ProjectionDisplay:
        """Draw on `ax`, or on a new figure.

        Parameters
        ----------
        bins : int, optional
            Approximate number of bars. If None, it depends on the spread of the scores.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        title : str, optional
            Title of the axes.
        """
        if bins is not None and (isinstance(bins, bool) or int(bins) != bins or bins < 1):
            raise ValueError(f"bins must be a whole number of at least 1, got {bins!r}.")
        ax = self._set_axes(ax)
        scores = np.asarray(self.scores, dtype=np.float64)
        self.edges_ = _edges(scores, bins)
        clusters = np.unique(self.labels)
        self.counts_ = np.array(
            [np.histogram(scores[self.labels == c], self.edges_)[0] for c in clusters]
        )
        below = np.zeros(self.counts_.shape[1])
        style: dict[str, Any] = {"alpha": 0.85, "linewidth": 0.3, "edgecolor": "white"}
        style |= {"align": "edge", "width": np.diff(self.edges_)}
        for label, heights in zip(clusters, self.counts_, strict=True):
            colour, name = COLOURS[int(label) % len(COLOURS)], f"cluster {label} ({heights.sum()})"
            ax.bar(self.edges_[:-1], heights, bottom=below, color=colour, label=name, **style)
            below = below + heights
        top = float(self.counts_.sum(axis=0).max())
        ax.set_ylim(0.0, 1.25 * top)  # with room for text above the bars
        reach = [0.0, 1.1 * top]
        ax.plot([0.0, 0.0], reach, color=DARK, lw=1.6, label="border")
        for i, at in enumerate(self.marks):
            name = "_" if i else self.mark_name
            ax.plot([at, at], reach, color=DARK, lw=1.2, ls="--", label=name)
        if self.means is not None:
            self._draw_means(ax, self.means, reach)
        ax.set_xlabel(self.axis_name)
        ax.set_ylabel("rows")
        if title:
            ax.set_title(title)
        # Beside the bars, because the text on separation is above them.
        ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        hide_spines(ax, "top", "right")
        return self

    def _draw_means(self, ax: Any, means: tuple[float, float], reach: list[float]) -> None:
        """Draw the means, and between them the separation probability."""
        low, high = means
        for i, at in enumerate((low, high)):
            name = "_" if i else "means"
            ax.plot([at, at], reach, color=DARK, lw=1.2, ls=":", label=name)
        arrow = {"arrowstyle": "<->", "color": DARK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (low, reach[1]), (high, reach[1]), arrowprops=arrow)
        if self.probability is not None:
            words = f"separation probability {self.probability:.2f}"
            middle = (low + high) / 2
            ax.text(middle, 1.03 * reach[1], words, ha="center", va="bottom", fontsize="small")


def _marks(model: Any, *, joint: bool) -> tuple[tuple[float, ...], str]:
    """Return the positions of the margin, and its name.

    If clusters were found by recursive splits, the best score of a row is its distance s to the
    nearest border and the second best is -s. A margin of 1 on either side of the border is s = 1,
    a difference of 2. If clusters were found jointly, the margin is a difference of 1.
    """
    if not has_margin(model):
        return (), "margin"
    # IterSVR is a regression with targets -1 and 1, and has no margin between them.
    name = "targets" if type(model).__name__ == "IterSVR" else "margin"
    if not joint:
        return (-1.0, 1.0), name
    return (2.0 if isinstance(model.result_, RecursiveResult) else 1.0,), name


def has_margin(model: Any) -> bool:
    """Return whether scores are in units of the margin, as in all maximum margin methods."""
    return type(model).__module__.startswith("volmar.margin.")


def _separation(
    model: Any, scores: NDArray, labels: NDArray
) -> tuple[tuple[float, float] | None, float | None]:
    """Return the mean scores of both clusters and the MSP; None for other methods."""
    if type(model).__name__ != "MSPC" or np.ptp(labels) == 0:
        return None, None
    means = float(scores[labels == 0].mean()), float(scores[labels == 1].mean())
    of_split = model if hasattr(model, "msp_") else model.tree_.root.model
    return means, float(of_split.msp_)


def _edges(scores: NDArray, bins: int | None) -> NDArray:
    """Return the edges of bars of equal width, one edge at the border.

    If `bins` is None, the number of bars is the larger one of the Freedman-Diaconis rule and the
    square root of the number of rows, limited to 10 to 60.
    """
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    if bins is None:
        width = 2.0 * float(np.subtract(*np.percentile(scores, [75, 25]))) / np.cbrt(scores.size)
        by_spread = np.ceil((scores.max() - scores.min()) / width) if width > 0 else 1.0
        bins = int(np.clip(max(by_spread, np.sqrt(scores.size)), 10, 60))
    edges = bin_edges(low, high, bins)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # no row is lost by rounding
    return edges


def bin_edges(low: float, high: float, n_bins: int) -> NDArray:
    """Return the edges of about `n_bins` equal bins, one edge at 0; needs low <= 0 <= high."""
    width = (high - low) / n_bins or 1.0
    first, last = int(np.floor(low / width + 1e-9)), int(np.ceil(high / width - 1e-9))
    return width * np.arange(first, max(last, first + 1) + 1)
