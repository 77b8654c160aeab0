"""How rows are seen by a margin method: as they are, under a kernel, or under a feature map."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.base.kernel import KernelExpansion
from volmar.margin.engine.descent import MarginResult
from volmar.margin.feature_space.sources import CutSource, KernelSource, LinearSource
from volmar.rows import as_rows, features_of, mapped_scores, take_rows

__all__ = ["ExactKernelView", "FeatureView", "Hyperplane", "LinearView", "View"]

# Float32 rows this many of their own spreads away from zero lose too many digits to it.
FAR_AWAY = 30.0
# Rows from which the spread is told, roughly.
SPREAD_ROWS = 1000
# Kernels with k(x, x) = 1.
EQUAL_LENGTHS = ("rbf", "laplacian", "cosine")
# Share of the largest kernel value below which a difference is rounding.
ROUNDING = 1e-9


class Shift:
    """Rows less a vector, in their own dtype: a feature map."""

    def __init__(self, offset: NDArray):
        self.offset = offset

    def transform(self, X: Any) -> NDArray:
        """Return the rows less the vector."""
        return (X - self.offset).astype(X.dtype)


class Hyperplane(ABC):
    """Scores of new rows in units of the margin; holds no more of the data than that needs."""

    @abstractmethod
    def __call__(self, X: Any) -> NDArray:
        """Return f(x) / rho of each row."""


class View(ABC):
    """The rows of a fit."""

    source: CutSource
    #: Whether all rows have the same length before centring, so that none is far from the others.
    has_equal_lengths: bool = False

    @abstractmethod
    def hyperplane(self, result: MarginResult) -> Hyperplane:
        """Return what scores new rows."""

    def start_rows(self) -> Any:
        """Return rows in which k-means can find a start, or None."""
        return None

    @abstractmethod
    def reweighted(self, weights: NDArray) -> View:
        """Return the same rows with other weights, which are their centre's, too."""

    def sampled(self, chosen: NDArray) -> View | None:  # noqa: ARG002 -- for those that can
        """Return a view of some rows, whose hyperplanes score `start_rows`; None if it cannot.

        The view itself, where it has all rows in memory and keeps nothing of what it was asked.
        """
        return None


def _plain(intercept: Any) -> Any:
    """Return one number as a float, and several as they are."""
    return intercept if np.ndim(intercept) else float(intercept)


@dataclass(frozen=True)
class LinearHyperplane(Hyperplane):
    """x'coef + intercept; a column of coefficients for each of more than two clusters."""

    coef: NDArray
    intercept: Any

    def __call__(self, X: Any) -> NDArray:
        """Return x'coef + intercept."""
        return as_rows(X).scores(self.coef) + X.dtype.type(self.intercept)


class LinearView(View):
    """Rows as they are, dense or CSR.

    Parameters
    ----------
    X : array of shape (n, d)
        The rows.
    weights : ndarray of shape (n,), optional
        Their weights.
    """

    def __init__(self, X: Any, weights: NDArray | None = None):
        self._given = X
        rows = as_rows(X, sample_weight=weights)
        self._mean = rows.mean()
        if not sparse.issparse(X) and X.dtype == np.float32:
            few = X[:: max(1, len(X) // SPREAD_ROWS)] - self._mean
            spread = np.sqrt(np.mean(np.einsum("ij,ij->i", few, few)))
            if np.linalg.norm(self._mean) > FAR_AWAY * spread:
                X = features_of(Shift(self._mean), X)
                rows = as_rows(X, sample_weight=weights)
        self.X, self.weights = X, weights
        self.source = LinearSource(rows)

    def reweighted(self, weights: NDArray) -> LinearView:
        """Return the same rows with other weights."""
        return LinearView(self._given, weights)

    def hyperplane(self, result: MarginResult) -> LinearHyperplane:
        """Return coefficients and intercept."""
        coef = result.normal / result.rho
        return LinearHyperplane(coef, _plain(result.t / result.rho - coef.T @ self._mean))

    def start_rows(self) -> Any:
        """Return the rows."""
        return self.X

    def sampled(self, chosen: NDArray) -> LinearView:
        """Return some of the rows."""
        few = take_rows(self.X, chosen)
        if few is self.X:
            return self
        part = LinearView(few, None if self.weights is None else self.weights[chosen])
        part.has_equal_lengths = self.has_equal_lengths
        return part


@dataclass(frozen=True)
class FeatureHyperplane(Hyperplane):
    """A linear function of features."""

    feature_map: Any
    linear: LinearHyperplane

    def __call__(self, X: Any) -> NDArray:
        """Return z(x)'coef + intercept, tile by tile."""
        f = mapped_scores(self.feature_map, X, self.linear.coef)
        return f + f.dtype.type(self.linear.intercept)


class FeatureView(LinearView):
    """Rows under a fitted feature map, whose features are held.

    Parameters
    ----------
    feature_map : FeatureMap
        The map.
    features : ndarray of shape (n, D)
        Features of the rows.
    weights : ndarray of shape (n,), optional
        Their weights.
    """

    def __init__(self, feature_map: Any, features: NDArray, weights: NDArray | None = None):
        super().__init__(features, weights)
        self.feature_map = feature_map
        kernel = feature_map.kernel
        self.has_equal_lengths = isinstance(kernel, str) and kernel in EQUAL_LENGTHS

    def reweighted(self, weights: NDArray) -> FeatureView:
        """Return the same rows with other weights."""
        return FeatureView(self.feature_map, self._given, weights)

    def hyperplane(self, result: MarginResult) -> Any:
        """Return the map with coefficients and intercept."""
        return FeatureHyperplane(self.feature_map, super().hyperplane(result))


@dataclass(frozen=True)
class KernelHyperplane(Hyperplane):
    """sum_j coef_j k(x_j, x) + intercept; a column for each of more than two clusters."""

    expansion: KernelExpansion
    coef: NDArray
    intercept: Any

    def __call__(self, X: Any) -> NDArray:
        """Return the expansion's value."""
        f = self.expansion(X, self.coef)
        return f + f.dtype.type(self.intercept)


class ExactKernelView(View):
    """Rows in the feature space of a kernel, by the whole kernel matrix.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Kernel matrix.
    expansion : KernelExpansion
        Kernel sums over new rows.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
    """

    def __init__(self, K: NDArray, expansion: KernelExpansion, weights: NDArray | None = None):
        self.expansion = expansion
        shares = None if weights is None else weights / weights.sum()
        self.source: KernelSource = KernelSource(K, shares)
        self.has_equal_lengths = bool(np.ptp(K.diagonal()) <= ROUNDING * self.source.K.max())

    def reweighted(self, weights: NDArray) -> ExactKernelView:
        """Return the same rows with other weights."""
        return ExactKernelView(self.source.K, self.expansion, weights)

    def hyperplane(self, result: MarginResult) -> KernelHyperplane:
        """Return dual coefficients and intercept.

        f(x) = sum_j v_j k(x_j, x) less its (weighted) mean over the training rows, plus t: the
        coefficients have sum zero, so that the mean embedding drops out of them.
        """
        v = result.normal[0]
        p = self.source.p
        K = self.source.K
        mean = p @ (K @ v.astype(K.dtype, copy=False))
        intercept = _plain((result.t - mean) / result.rho)
        return KernelHyperplane(self.expansion, v / result.rho, intercept)

    def start_rows(self) -> Any:
        """Return the training rows, where there are any."""
        return self.expansion.rows
