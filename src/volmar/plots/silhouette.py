"""Plot of the silhouettes of rows, sorted within clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from volmar._checks import shortened
from volmar.diagnostics.silhouettes import silhouettes
from volmar.plots.display import COLOURS, Display, hide_spines, labels_of

# Maximum number of clusters with names.
MAX_NAMED = 30


@dataclass(eq=False, repr=False)
class SilhouetteDisplay(Display):
    """Silhouettes of rows as sorted bars, with one block per cluster.

    The silhouette of a row compares its mean distance to the rows of the nearest other cluster
    with its mean distance to the rows of its own cluster. It is near 1 well inside a cluster, 0 at
    the border, and negative if the row is closer to another cluster. Distances are Euclidean in
    the units of the columns, as in `sklearn.metrics.silhouette_score`, so columns with different
    units should be scaled first. Silhouettes favour round clusters of equal width, and do not test
    whether clusters are real.

    Parameters
    ----------
    clusters : list
        Labels of the clusters.
    values : list of ndarray
        Silhouettes of the rows of each cluster, largest first.
    shares : ndarray of shape (k,)
        Share of all rows in each cluster, the height of its block.
    mean : float
        Mean silhouette of all rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

    Examples
    --------
    >>> from volmar import MSPC
    >>> from volmar.datasets import make_blobs
    >>> from volmar.plots import SilhouetteDisplay
    >>> X, _ = make_blobs(300, centers=3, random_state=0)
    >>> display = SilhouetteDisplay.from_estimator(MSPC(3, random_state=0).fit(X), X)
    >>> display.ax_.get_xlabel()
    'silhouette'
    """

    clusters: list[Any]
    values: list[NDArray]
    shares: NDArray
    mean: float

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, ax: Any = None, **parameters: Any
    ) -> SilhouetteDisplay:
        """Plot the silhouettes of the clusters of a fitted estimator.

        Parameters
        ----------
        estimator : fitted clusterer or pipeline
            Its `labels_` are used if `X` has as many rows, else its predictions for `X`. For a
            pipeline, distances are computed in the input of its last step.
        X : array of shape (n, d)
            The training rows, or new rows.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        **parameters
            `max_rows` and `random_state` of `from_labels`.
        """
        check_is_fitted(estimator)
        steps = getattr(estimator, "steps", None)
        if steps is not None:
            X, estimator = estimator[:-1].transform(X) if len(steps) > 1 else X, steps[-1][1]
        return cls.from_labels(X, labels_of(estimator, X), ax=ax, **parameters)

    @classmethod
    def from_labels(
        cls,
        X: ArrayLike,
        labels: ArrayLike,
        *,
        max_rows: int = 2000,
        random_state: int | np.random.RandomState | None = 0,
        ax: Any = None,
    ) -> SilhouetteDisplay:
        """Plot the silhouettes of given clusters.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows, dense or CSR.
        labels : array of shape (n,)
            Cluster of each row, with at least two clusters.
        max_rows : int, default=2000
            Approximate maximum number of rows. If there are more, a sample is used, with at least
            ten rows of each cluster.
        random_state : int, RandomState or None, default=0
            Random seed of the sample.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        """
        found = silhouettes(X, labels, max_rows=max_rows, random_state=random_state)
        return cls(found.clusters, found.values, found.shares, found.mean).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> SilhouetteDisplay:
        """Draw on `ax`, or on a new figure."""
        k = len(self.clusters)
        ax = self._set_axes(ax)
        gap = 0.02 if k <= MAX_NAMED else 0.0
        top = 0.0
        places = []
        for i, (values, share) in enumerate(zip(self.values, self.shares, strict=True)):
            edges = top + share * np.linspace(0.0, 1.0, len(values) + 1)
            colour = COLOURS[i % len(COLOURS)]
            ax.stairs(values, edges, orientation="horizontal", fill=True, color=colour)
            places.append(top + share / 2)
            top += share + gap
        ax.axvline(0.0, color="0.4", lw=0.8)
        ax.axvline(self.mean, color="0.15", lw=1.2, ls="--", label=f"mean {self.mean:.2f}")
        ax.set_ylim(top - gap, 0.0)
        low = min((float(one.min()) for one in self.values), default=0.0)
        ax.set_xlim(min(0.0, 1.05 * low), 1.0)
        if k <= MAX_NAMED:
            words = [
                f"{shortened(str(label), 24)}: {values.mean():.2f}"
                for label, values in zip(self.clusters, self.values, strict=True)
            ]
            # A label may contain dollar signs.
            ax.set_yticks(places, words, parse_math=False)
            ax.set_ylabel("cluster: mean silhouette")
        else:
            ax.set_yticks([])
            ax.set_ylabel(f"{k} clusters")
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("silhouette")
        ax.legend(fontsize="small", loc="lower right")
        hide_spines(ax, "top", "right", "left")
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches."""
        return 6.0, float(np.clip(2.2 + 0.35 * len(self.clusters), 3.0, 12.0))
