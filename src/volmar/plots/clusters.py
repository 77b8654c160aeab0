"""Rows in the plane, coloured by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD

# Okabe and Ito's colours, told apart by most colour-blind readers; shapes tell them apart again.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")


class ClustersDisplay:
    """Scatter plot of rows, one colour and shape a cluster.

    Rows of more than two features are shown on their first two principal components.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        Where the rows are drawn.
    labels : ndarray of shape (n,)
        Cluster of each row.
    axis_names : (str, str)
        What the two coordinates are.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        The figure of `ax_`.

    Examples
    --------
    >>> from volmar import KernelKMeans
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.plots import ClustersDisplay
    >>> X, _ = make_two_moons(100, random_state=0)
    >>> display = ClustersDisplay.from_estimator(KernelKMeans(random_state=0).fit(X), X)
    >>> display.ax_.get_xlabel()
    'feature 0'
    """

    def __init__(self, points, labels, axis_names):
        self.points = points
        self.labels = labels
        self.axis_names = axis_names

    @classmethod
    def from_estimator(cls, estimator: Any, X: ArrayLike, *, ax: Any = None) -> ClustersDisplay:
        """Draw `X` coloured by a fitted estimator's `labels_`."""
        return cls.from_labels(X, estimator.labels_, ax=ax, title=type(estimator).__name__)

    @classmethod
    def from_labels(
        cls, X: ArrayLike, labels: ArrayLike, *, ax: Any = None, title: str | None = None
    ) -> ClustersDisplay:
        """Draw `X` coloured by `labels`."""
        points, names = _in_the_plane(X)
        labels = np.asarray(labels)
        if labels.shape != (points.shape[0],):
            raise ValueError(
                f"labels must hold one label a row of X, shape ({points.shape[0]},), got shape "
                f"{labels.shape}."
            )
        return cls(points, labels, names).plot(ax=ax, title=title)

    def plot(self, *, ax: Any = None, title: str | None = None) -> ClustersDisplay:
        """Draw on `ax`, or on a new figure."""
        if ax is None:
            ax = _new_axes()
        size = float(np.clip(4000 / len(self.points), 4, 24))
        for i, label in enumerate(np.unique(self.labels)):
            rows = self.labels == label
            ax.scatter(
                *self.points[rows].T,
                s=size,
                c=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                linewidths=0,
                alpha=0.8,
                label=f"cluster {label} ({rows.sum()})",
            )
        ax.set_xlabel(self.axis_names[0])
        ax.set_ylabel(self.axis_names[1])
        if title:
            ax.set_title(title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plotting needs matplotlib, which is not installed: pip install volmar[plot]"
        ) from error
    return pyplot.subplots(figsize=(5, 4), layout="constrained")[1]


def _in_the_plane(X: ArrayLike) -> tuple[np.ndarray, tuple[str, str]]:
    if sparse.issparse(X):
        points = TruncatedSVD(2, random_state=0).fit_transform(X)
        return points, ("singular direction 1", "singular direction 2")
    X = np.asarray(X)
    if X.shape[1] == 1:
        return np.column_stack([X[:, 0], np.zeros(len(X))]), ("feature 0", "")
    if X.shape[1] == 2:
        return X, ("feature 0", "feature 1")
    points = PCA(2, random_state=0).fit_transform(X)
    return points, ("principal component 1", "principal component 2")
