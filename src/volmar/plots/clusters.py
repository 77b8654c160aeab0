"""Scatter plot of rows, coloured by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.preprocessing import scale

from volmar._input import check_matrix
from volmar.plots.display import COLOURS, MARKERS, Display, labels_of

# Maximum number of clusters in the legend; more do not fit.
MAX_NAMED = 16


class ClusterDisplay(Display):
    """Scatter plot of rows, with one colour and marker per cluster.

    Rows with more than two features are projected on their first two principal components.
    Features are standardised first by default: otherwise a feature with large values, such as an
    amount in dollars, would dominate the components. Most methods of volmar do not depend on
    units either.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        Coordinates of the rows.
    labels : ndarray of shape (n,)
        Cluster of each row.
    axis_names : (str, str)
        Names of the two coordinates.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        The axes and the figure of the plot.

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
        """Plot rows coloured by the clusters of a fitted estimator of any library.

        Parameters
        ----------
        estimator : fitted clusterer or pipeline
            Its `labels_` are used if `X` has as many rows, else its predictions for `X`.
        X : array of shape (n, d)
            The training rows, or new rows.
        standardize, ax, legend
            See `from_labels`.
        """
        more = {"standardize": standardize, "ax": ax, "legend": legend}
        labels = labels_of(estimator, X)
        return cls.from_labels(X, labels, title=type(estimator).__name__, **more)

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
        """Plot rows coloured by given labels.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows, dense or sparse. Column names of a data frame are used as axis names.
        labels : array of shape (n,)
            Cluster of each row.
        standardize : bool, default=True
            Whether to divide features by their standard deviations before the principal
            components are computed. Pass False if all features have the same unit, such as pixels.
            Sparse features are never standardised: they usually are word counts or weights, and
            rare words would dominate.
        ax : matplotlib Axes, optional
            Axes to draw on. If None, a new figure is created.
        title : str, optional
            Title of the axes.
        legend : bool, default=True
            Whether to draw a legend with the clusters and their sizes.
        """
        points, names = in_the_plane(X, standardize)
        labels = np.asarray(labels)
        if labels.shape != (points.shape[0],):
            raise ValueError(
                f"labels must have one label per row of X, shape ({points.shape[0]},), got shape "
                f"{labels.shape}."
            )
        return cls(points, labels, names).plot(ax=ax, title=title, legend=legend)

    def plot(
        self, *, ax: Any = None, title: str | None = None, legend: bool = True
    ) -> ClusterDisplay:
        """Draw on `ax`, or on a new figure; see `from_labels` for the parameters."""
        ax = self._set_axes(ax)
        size = float(np.clip(4000 / len(self.points), 4, 24))
        for i, label in enumerate(np.unique(self.labels)):
            rows = self.labels == label
            ax.scatter(
                *self.points[rows].T,
                s=size,
                c=COLOURS[i % len(COLOURS)],
                # Markers shift by one each time the colours start over, so no pair repeats.
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
            shown = handles[:MAX_NAMED]
            part = f"the first {MAX_NAMED} of {len(handles)}" if handles != shown else None
            ax.legend(handles=shown, title=part, fontsize="small", markerscale=2)
        if not self.axis_names[1]:
            ax.set_yticks([])
        return self

    @property
    def size(self) -> tuple[float, float]:
        """Suitable width and height in inches."""
        return 5.0, 4.0


def in_the_plane(X: Any, standardize: bool) -> tuple[np.ndarray, tuple[str, str]]:
    """Return the coordinates of rows in two dimensions, and the names of the axes."""
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
        if standardize:
            X = np.asarray(X, dtype=np.float64)
            X = scale(X / np.maximum(np.abs(X).max(axis=0), 1e-300))  # squares may overflow
        with np.errstate(all="ignore"):  # PCA divides by a total variance of 0
            points = PCA(2, random_state=0).fit_transform(X)
    return points, ("principal component 1", "principal component 2")
