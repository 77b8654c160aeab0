"""Linear feature spaces: rows, dense or sparse, in memory or in blocks, and mapped rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.margin.feature_space.space import FeatureSpace, Hyperplane, plain, solve_definite
from volmar.rows.anywhere import as_rows, constant_vector, features_of, mapped_scores, take_rows
from volmar.rows.standardized import RowSpace, row_space

# Kernels with k(x, x) = 1.
EQUAL_LENGTHS = ("rbf", "laplacian", "cosine")
# A combination of rows, and their spread, below these multiples of the rounding error of the mean
# are rounding.
ROUNDINGS, SPREAD_ROUNDINGS = 8.0, 64.0
# Up to this many rows, with this ratio of columns to rows, the Gram matrix takes less time than
# the passes of a fit.
SPANNED_ROWS, SPANNED_RATIO = 500, 4


class Shift:
    """Feature map that subtracts a vector from the rows and keeps their dtype."""

    def __init__(self, offset: NDArray):
        self.offset = offset

    def transform(self, X: Any) -> NDArray:
        """Return the rows minus the vector."""
        return (X - self.offset).astype(X.dtype)


@dataclass(frozen=True)
class LinearHyperplane(Hyperplane):
    """x'coef + intercept, with one column of coefficients per cluster if more than two."""

    coef: NDArray
    intercept: Any

    def __call__(self, X: Any) -> NDArray:
        """Return x'coef + intercept."""
        return as_rows(X).scores(self.coef) + X.dtype.type(self.intercept)


class LinearSpace(FeatureSpace):
    """Rows of a data matrix or BlockTable, centred implicitly at their (weighted) mean.

    With ``center=False`` they are not centred.
    """

    combines_sparse = True

    def __init__(self, X: Any, weights: Any = None, *, center: bool = True):
        self._given, self.is_centered = X, center
        rows = as_rows(X, sample_weight=weights)
        self._mean = rows.mean() if center else np.zeros(rows.n_features)
        if center and not sparse.issparse(X) and X.dtype == np.float32:
            # Number of rows from which the standard deviation is estimated.
            few = X[:: max(1, len(X) // 1000)] - self._mean
            spread = np.sqrt(np.mean(np.einsum("ij,ij->i", few, few)))
            # Float32 rows are shifted if their mean is more than this many standard deviations
            # from zero, because they would lose too many digits.
            if np.linalg.norm(self._mean) > 30.0 * spread:
                X = features_of(Shift(self._mean), X)
                rows = as_rows(X, sample_weight=weights)
        self.X, self.weights = X, weights
        self.rows = rows.centered() if center else rows
        self.n_rows, self.dtype = rows.n_rows, rows.dtype
        self.n_coordinates = rows.n_features
        self.shares = None if rows.weights is None else rows.weights / rows.total_weight
        self.n_passes = 0
        # Rounding error of a centred row at the mean.
        self._eps_of_mean = float(np.finfo(rows.dtype).eps * np.linalg.norm(rows.mean()))

    def full(self, value: float) -> Any:
        """Return a vector with the same value for every row."""
        return constant_vector(self.rows, value, self.dtype)

    def prefetch(self, f: Callable[[], Any]) -> None:
        """If passes are expensive, compute all results that `f` requests in a single pass."""
        n_passes = self.n_passes
        self.rows.prefetch(f)
        self.n_passes = n_passes

    def vector(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i, shape (d,) or (d, k)."""
        self.n_passes += 1
        a = self.rows.combine(v)
        if np.linalg.norm(a) <= ROUNDINGS * self._eps_of_mean * float(np.abs(v).sum()):
            a[:] = 0.0
        return a

    def vectors_of(self, index: NDArray, v: Any, k: int) -> NDArray:
        """Return combinations of some rows, one for each k columns of coefficients (m, j k)."""
        some = as_rows(take_rows(self.X, index))
        some.offset = self.rows.offset
        combined = some.combine(v)
        return combined.reshape(len(combined), -1, k).swapaxes(0, 1)

    def inner(self, vector: NDArray, others: Sequence[NDArray]) -> NDArray:
        """Return the inner products of a vector with others."""
        return np.array([vector.ravel() @ other.ravel() for other in others])

    def combination(self, vectors: Sequence[NDArray], weights: NDArray) -> NDArray:
        """Return the combination, shape (d,) or (d, k)."""
        w = weights[0] * vectors[0]
        for weight, vector in zip(weights[1:], vectors[1:], strict=True):
            if weight:
                w += weight * vector
        return w

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row."""
        self.n_passes += 1
        return self.rows.scores(w)

    # ------------------------------------------------------------------ of a fit

    def hyperplane(self, normal: NDArray, rho: float, t: Any) -> LinearHyperplane:
        """Return coefficients and intercept."""
        coef = normal / rho
        return LinearHyperplane(coef, plain(t / rho - coef.T @ self._mean))

    def start_rows(self) -> Any:
        """Return the rows."""
        return self.X

    def reweighted(self, weights: NDArray) -> LinearSpace:
        """Return the same rows with other weights."""
        return LinearSpace(self._given, weights, center=self.is_centered)

    def sampled(self, chosen: NDArray) -> LinearSpace:
        """Return some of the rows."""
        few = take_rows(self.X, chosen)
        if few is self.X:
            return self
        weights = None if self.weights is None else self.weights[chosen]
        part = LinearSpace(few, weights, center=self.is_centered)
        part.has_equal_lengths = self.has_equal_lengths
        return part

    # ------------------------------------------------------------------ of a regression

    def mean_square(self) -> float:
        """Return the weighted mean of |z_i|^2, or 0 if it is rounding."""
        square = float(self.rows.mean_squared_norm())
        offset = 0.0 if self.rows.offset is None else float(np.linalg.norm(self.rows.offset))
        rounding = SPREAD_ROUNDINGS * float(np.finfo(self.dtype).eps) * offset
        return square if square > rounding**2 else 0.0

    def newton_direction(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        """Return x with (I + stiffness sum_A (z_i - m)(z_i - m)') x = g, m the mean of A."""
        if not active.any():
            return g.copy()
        self.n_passes += 1
        moments = self.rows.moments(active, center=np.zeros(g.size))
        H = stiffness * (moments.second - np.outer(moments.sum, moments.sum / moments.weight))
        H.flat[:: g.size + 1] += 1.0
        return solve_definite(H, g, self.dtype)


class SpannedSpace(LinearSpace):
    """Rows in a basis of their span, for few rows with many columns.

    Margins are those of the rows, and a product with the rows takes O(n²) time instead of O(n d).
    """

    def __init__(self, span: RowSpace, weights: Any = None):
        super().__init__(span.T, weights)
        self.span = span

    def reweighted(self, weights: NDArray) -> SpannedSpace:
        """Return the same rows with other weights."""
        return SpannedSpace(self.span, weights)

    def hyperplane(self, normal: NDArray, rho: float, t: Any) -> LinearHyperplane:
        """Return coefficients of the columns, and the intercept."""
        found = super().hyperplane(normal, rho, t)
        coef = self.span.coefficients(found.coef)
        return LinearHyperplane(coef, plain(found.intercept - coef.T @ self.span.mean))


def linear_space(X: Any, weights: Any = None) -> LinearSpace:
    """Return the rows, or few dense rows with many columns in a basis of their span."""
    span = span_of(X, weights)
    return LinearSpace(X, weights) if span is None else SpannedSpace(span, weights)


def span_of(X: Any, weights: Any) -> RowSpace | None:
    """Return few dense rows with many columns in a basis of their span; None for other rows."""
    if not isinstance(X, np.ndarray):
        return None
    n, d = X.shape
    if n > SPANNED_ROWS or SPANNED_RATIO * n > d:
        return None
    return row_space(as_rows(X, sample_weight=weights), standardize=False)


@dataclass(frozen=True)
class FeatureHyperplane(Hyperplane):
    """A linear function of features."""

    feature_map: Any
    linear: LinearHyperplane

    def __call__(self, X: Any) -> NDArray:
        """Return z(x)'coef + intercept, tile by tile."""
        f = mapped_scores(self.feature_map, X, self.linear.coef)
        return f + f.dtype.type(self.linear.intercept)


class LandmarkSpace(LinearSpace):
    """Rows under a fitted feature map, whose features are stored."""

    def __init__(
        self, feature_map: Any, features: Any, weights: Any = None, *, center: bool = True
    ):
        super().__init__(features, weights, center=center)
        self.feature_map = feature_map
        kernel = feature_map.kernel
        self.has_equal_lengths = isinstance(kernel, str) and kernel in EQUAL_LENGTHS

    def reweighted(self, weights: NDArray) -> LandmarkSpace:
        """Return the same rows with other weights."""
        return LandmarkSpace(self.feature_map, self._given, weights, center=self.is_centered)

    def hyperplane(self, normal: NDArray, rho: float, t: Any) -> Any:
        """Return the feature map with coefficients and intercept."""
        return FeatureHyperplane(self.feature_map, super().hyperplane(normal, rho, t))
