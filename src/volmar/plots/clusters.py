"""Rows in the plane, coloured by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD

from volmar._input import check_matrix
from volmar.plots.display import COLOURS, MARKERS, Display, labels_of

__all__ = ["ClusterDisplay", "in_the_plane"]

# Clusters in the legend, at most: more do not fit beside the points.
MOST_NAMED = 16


class ClusterDisplay(Display):
    """Scatter plot of rows, one colour and shape a cluster.

    Rows of more than two features are shown on their first two principal components, by default
    of standardised features: components of features as they are follow their units, so that a
    column in grams or dollars would be the picture. Most methods here do not depend on units.

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
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> from volmar import KernelKMeans
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.plots import ClusterDisplay
    >>> X, _ = make_two_moons(100, random_state=0)
    >>> display = ClusterDisplay.from_estimator(KernelKMeans(random_state=0).fit(X), X)
    >>> display.ax_.get_xlabel()
    'feature 0'
    """

    def __init__(self, points: NDArray, labels: NDArray, axis_names: tuple[str, str]):
        self.points = points
        self.labels = labels
        self.axis_names = axis_names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        standardize: bool = True,
        ax: Any = None,
        legend: bool = True,
    ) -> ClusterDisplay:
        """Draw rows coloured by a fitted estimator, of this library or any other.

        Parameters
        ----------
        estimator : fitted clusterer or pipeline
            Its `labels_` are shown where `X` has as many rows, else what it predicts for `X`.
        X : array of shape (n, d)
            The training rows, or new ones.
        standardize, ax, legend
            As for `from_labels`.
        """
        labels, title = labels_of(estimator, X), type(estimator).__name__
        return cls.from_labels(
            X, labels, standardize=standardize, ax=ax, title=title, legend=legend
        )

    @classmethod
    def from_labels(
        cls,
        X: ArrayLike,
        labels: ArrayLike,
        *,
        standardize: bool = True,
        ax: Any = None,
        title: str | None = None,
        legend: bool = True,
    ) -> ClusterDisplay:
        """Draw rows coloured by labels.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows, dense or sparse; the column names of a data frame become the axes' names.
        labels : array of shape (n,)
            Cluster of each row.
        standardize : bool, default=True
            Whether features are divided by their standard deviations before the principal
            components are taken. Pass False where all of them share a unit, such as pixels.
            Sparse features, which are counts or weights of words as a rule, are taken as they
            are: rare words would count most otherwise.
        ax : matplotlib Axes, optional
            Where to draw; a new figure if not given.
        title : str, optional
            Title of the axes.
        legend : bool, default=True
            Whether to say which colour is which cluster, and how large it is.
        """
        points, names = in_the_plane(X, standardize)
        labels = np.asarray(labels)
        if labels.shape != (points.shape[0],):
            raise ValueError(
                f"labels must hold one label a row of X, shape ({points.shape[0]},), got shape "
                f"{labels.shape}."
            )
        return cls(points, labels, names).plot(ax=ax, title=title, legend=legend)

    def plot(
        self, *, ax: Any = None, title: str | None = None, legend: bool = True
    ) -> ClusterDisplay:
        """Draw on `ax`, or on a new figure; the arguments are those of `from_labels`."""
        ax = self._set_axes(ax)
        size = float(np.clip(4000 / len(self.points), 4, 24))
        for i, label in enumerate(np.unique(self.labels)):
            rows = self.labels == label
            ax.scatter(
                *self.points[rows].T,
                s=size,
                c=COLOURS[i % len(COLOURS)],
                # Shapes shift by one each time the colours start over: no pair comes twice.
                marker=MARKERS[(i + i // len(COLOURS)) % len(MARKERS)],
                linewidths=0,
                alpha=0.8,
                label=f"cluster {label} ({rows.sum()})",
            )
        ax.set_xlabel(self.axis_names[0], parse_math=False)
        ax.set_ylabel(self.axis_names[1], parse_math=False)
        if title:
            ax.set_title(title)
        if legend:
            handles, _ = ax.get_legend_handles_labels()
            part = f"the first {MOST_NAMED} of {len(handles)}"
            ax.legend(
                handles=handles[:MOST_NAMED],
                title=part if len(handles) > MOST_NAMED else None,
                fontsize="small",
                markerscale=2,
            )
        if not self.axis_names[1]:
            ax.set_yticks([])
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches that suit the picture."""
        return 5.0, 4.0


def in_the_plane(X: Any, standardize: bool) -> tuple[np.ndarray, tuple[str, str]]:
    """Return where rows are drawn, and the names of the two axes."""
    if sparse.issparse(X) and X.shape[1] <= 2:
        X = X.toarray()
    if sparse.issparse(X):
        points = TruncatedSVD(2, random_state=0).fit_transform(X)
        return points, ("singular direction 1", "singular direction 2")
    given = X
    X = check_matrix(X, accept_sparse=False, is_scaled=False)
    names = [str(name) for name in getattr(given, "columns", ("feature 0", "feature 1"))]
    if X.shape[1] == 1:
        return np.column_stack([X[:, 0], np.zeros(len(X))]), (names[0], "")
    if X.shape[1] == 2:
        return X, (names[0], names[1])
    points = np.zeros((1, 2))
    if len(X) > 1:
        with np.errstate(all="ignore"):  # shares of a variance of 0, which nobody asks for
            points = PCA(2, random_state=0).fit_transform(_standardized(X) if standardize else X)
    return points, ("principal component 1", "principal component 2")


def _standardized(X: np.ndarray) -> np.ndarray:
    """Return features divided by their standard deviations; constant ones are 0."""
    X = np.asarray(X, dtype=np.float64)
    size = np.abs(X).max(axis=0)  # squares of huge values overflow
    X = X / np.where(size > 0, size, 1.0)
    X = X - X.mean(axis=0)
    spread = X.std(axis=0)
    varies = spread > 1e-12
    return np.where(varies, X / np.where(varies, spread, 1.0), 0.0)
