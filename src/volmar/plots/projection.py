"""Decision scores of rows, as a histogram."""

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

__all__ = ["ProjectionDisplay", "bin_edges", "has_margin"]

DARK = "0.15"
# Share of the highest bar that is kept free above the bars, for words.
ROOM_ABOVE = 0.25


@dataclass(eq=False, repr=False)
class ProjectionDisplay(Display):
    """Histogram of the decision scores of rows, stacked by cluster.

    Two clusters: the score itself, with the border at 0. More: the best score of a row less its
    second best, which is 0 at a border. Lines show what the scores are measured in: the margin
    for methods of maximum margin; the means of the two clusters, with the probability that tells
    them apart, for MSPC.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        What is counted.
    labels : ndarray of shape (n,)
        Cluster of each row.
    marks : sequence of float, default=()
        Where the margin is.
    mark_name : str, default="margin"
        What `marks` are called.
    means : (float, float), optional
        Means of the scores of the two clusters.
    probability : float, optional
        Probability with which the two are told apart.
    axis_name : str, default="decision score"
        What is counted, in words.

    Attributes
    ----------
    counts_ : ndarray of shape (n_shown, n_bins)
        Heights of the bars, a row for each cluster that rows are in.
    edges_ : ndarray of shape (n_bins + 1,)
        Edges of the bars; none crosses the border.
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

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
        """Draw the scores that a fitted estimator gives to rows.

        Parameters
        ----------
        estimator : fitted estimator or pipeline
            Of this library or any other, with a `decision_function`. Rows are in the cluster that
            their scores say, which for training rows may differ from `labels_` where a row is on
            the wrong side of a soft margin.
        X : array of shape (n, d)
            The training rows, or new ones.
        bins : int, optional
            About how many bars; from the spread of the scores if not given.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        """
        check_is_fitted(estimator)
        name = type(estimator).__name__
        if not hasattr(estimator, "decision_function"):
            raise ValueError(
                f"estimator must have a decision_function, and {name} has none. Use an estimator "
                "of this library, or ClusterDisplay."
            )
        scores = np.asarray(estimator.decision_function(X))
        if scores.ndim == 2 and scores.shape[1] == 2:
            scores = scores[:, 1] - scores[:, 0]
        if not scores.any():
            raise ValueError(
                f"this {name} scores all rows 0: it found one cluster, and there is no border to "
                "draw. Ask for n_clusters=2."
            )
        model = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        marks, mark_name = _marks(model, joint=scores.ndim == 2)
        more: dict[str, Any] = {"axis_name": "best score less the second best"}
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
            About how many bars; from the spread of the scores if not given.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
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
        self._draw_bars(ax, clusters)
        top = float(self.counts_.sum(axis=0).max())
        ax.set_ylim(0.0, (1.0 + ROOM_ABOVE) * top)
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
        # Beside the bars: above them are the words of the separation.
        ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        hide_spines(ax, "top", "right")
        return self

    def _draw_bars(self, ax: Any, clusters: NDArray) -> None:
        below = np.zeros(self.counts_.shape[1])
        for label, heights in zip(clusters, self.counts_, strict=True):
            ax.bar(
                self.edges_[:-1],
                heights,
                width=np.diff(self.edges_),
                bottom=below,
                align="edge",
                color=COLOURS[int(label) % len(COLOURS)],
                alpha=0.85,
                linewidth=0.3,
                edgecolor="white",
                label=f"cluster {label} ({heights.sum()})",
            )
            below = below + heights

    def _draw_means(self, ax: Any, means: tuple[float, float], reach: list[float]) -> None:
        """Draw the means, and between them how well the clusters are told apart."""
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
    """Where the margin is, and what it is called.

    Of clusters found by splitting again a row's best score is its distance s to the nearest
    border and the second best is -s: a margin of 1 on either side of the border is s = 1, and a
    difference of 2. Of clusters found together the margin is a difference of 1.
    """
    if not has_margin(model):
        return (), "margin"
    # The regression of IterSVR has labels of -1 and 1 for targets, and no margin between them.
    name = "targets" if type(model).__name__ == "IterSVR" else "margin"
    if not joint:
        return (-1.0, 1.0), name
    return (2.0 if isinstance(model.result_, RecursiveResult) else 1.0,), name


def has_margin(model: Any) -> bool:
    """Whether scores are in units of the margin: of all methods of that family."""
    return type(model).__module__.startswith("volmar.margin.")


def _separation(
    model: Any, scores: NDArray, labels: NDArray
) -> tuple[tuple[float, float] | None, float | None]:
    """Means of the scores of both clusters, and the probability of MSPC, for it alone."""
    if type(model).__name__ != "MSPC" or np.ptp(labels) == 0:
        return None, None
    means = float(scores[labels == 0].mean()), float(scores[labels == 1].mean())
    of_split = model if hasattr(model, "msp_") else model.tree_.root.model
    return means, float(of_split.msp_)


def _edges(scores: NDArray, bins: int | None) -> NDArray:
    """Return edges of equal bars, one of them at the border.

    Without a given number: Freedman and Diaconis' rule or the root of the number of rows, the
    larger of the two, between 10 and 60 bars.
    """
    low, high = min(float(scores.min()), 0.0), max(float(scores.max()), 0.0)
    if bins is None:
        width = 2.0 * float(np.subtract(*np.percentile(scores, [75, 25]))) / np.cbrt(scores.size)
        by_spread = np.ceil((scores.max() - scores.min()) / width) if width > 0 else 1.0
        bins = int(np.clip(max(by_spread, np.sqrt(scores.size)), 10, 60))
    edges = bin_edges(low, high, bins)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # rounding loses no row
    return edges


def bin_edges(low: float, high: float, n_bins: int) -> NDArray:
    """Return edges of about `n_bins` bins of one width, one edge at 0; low <= 0 <= high."""
    width = (high - low) / n_bins or 1.0
    first, last = int(np.floor(low / width + 1e-9)), int(np.ceil(high / width - 1e-9))
    return width * np.arange(first, max(last, first + 1) + 1)
