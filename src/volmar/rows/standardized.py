"""Rows in units of their standard deviations, scaled implicitly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._eigen import eigenvalues
from volmar._memory import available_memory
from volmar.rows.anywhere import centered_with_moments
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import DenseRows

# Number of columns up to which a square matrix is assumed to fit in memory.
FITTING_COLUMNS = 2000
# A feature is constant if its standard deviation is at most this fraction of |mean| + deviation.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Standardized:
    """A row source seen as z = (x - mean) / scale, without constant features.

    Attributes
    ----------
    rows : RowSource
        The source, centred at its weighted mean.
    moments : Moments
        Moments of the rows about that mean (zero in centred coordinates).
    mean, scale : ndarray of shape (d,)
        Weighted mean and standard deviation of each feature. Constant features have scale 1.
    kept : ndarray of shape (p,)
        Indices of the features that are not constant.
    correlation : ndarray of shape (p, p)
        Correlation matrix of the kept features: the covariance of z.
    """

    rows: RowSource
    moments: Moments
    mean: NDArray
    scale: NDArray
    kept: NDArray
    correlation: NDArray

    @property
    def kept_variance(self) -> float:
        """Fraction of the variance that is kept, which is always 1 here."""
        return 1.0

    @property
    def size(self) -> int:
        """Number of coordinates of z."""
        return self.correlation.shape[0]

    def coefficients(self, w: NDArray) -> NDArray:
        """Return a direction w of z, (p,) or (p, k), as a direction of x, (d,) or (d, k).

        Coefficients of constant features are 0.
        """
        full = np.zeros((self.scale.size, *w.shape[1:]))
        full[self.kept] = (w.T / self.scale[self.kept]).T
        return full

    def direction(self, normal: NDArray) -> NDArray:
        """Return a direction (d,) or (d, k) of x as a direction of z."""
        return (normal.T * self.scale).T[self.kept]

    def of_rows(self, w: NDArray) -> NDArray:
        """Return a direction w of z as a direction of `rows`."""
        return self.coefficients(w)

    def from_rows(self, sums: NDArray) -> NDArray:
        """Return a combination of `rows`, (d,) or (d, k), as a combination of z."""
        return ((sums.T / self.scale).T)[self.kept]

    def own_units_direction(self, v: NDArray) -> NDArray:
        """Return sum_i v_i (x_i - mean), in the original units, as a direction of z.

        The result is scaled by a power of two, since squares of the original units may overflow.
        """
        return (self.combine(v).T * relative_scale(self.scale[self.kept]) ** 2).T

    def scores(self, w: NDArray) -> NDArray:
        """Return z'w for every row, in one pass."""
        return self.rows.scores(self.of_rows(w))

    def combine(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i in one pass, of shape (p,), or (p, k) for v of shape (n, k)."""
        return self.from_rows(self.rows.combine(v))

    def transform(self, X: Any) -> NDArray:
        """Return z for the given rows, dense or CSR, in their dtype."""
        rows = X.toarray() if sparse.issparse(X) else X
        centred = (rows - self.mean).astype(rows.dtype, copy=False)
        if self.kept.size < self.scale.size:
            centred = centred[:, self.kept]
        return (centred / self.scale[self.kept]).astype(rows.dtype, copy=False)

    def difference_of_means(self, part: Moments) -> NDArray:
        """Return the mean in z of a subset, given its moments, minus the mean of all other rows.

        Since all rows together are centred, it is sum total / (weight (total - weight)).
        """
        total, weight = self.moments.weight, part.weight
        return self.from_rows(part.sum) * (total / (weight * (total - weight)))

    def mean_and_covariance(self, part: Moments) -> tuple[NDArray, NDArray]:
        """Return mean and covariance in z of a subset, given its moments about the same centre."""
        scale = self.scale[self.kept]
        covariance = part.covariance()
        if self.kept.size < self.scale.size:
            covariance = covariance[np.ix_(self.kept, self.kept)]
        covariance /= scale
        covariance /= scale[:, None]
        return part.mean[self.kept] / scale, covariance


def relative_scale(scale: NDArray) -> NDArray:
    """Return units divided by a power of two near the largest, so that their squares fit.

    The division is exact.
    """
    return np.ldexp(scale, -int(np.frexp(np.abs(scale).max(initial=0.0))[1]))


def is_varying(deviations: NDArray, mean: NDArray, constant: float = CONSTANT) -> NDArray:
    """Return which features are not constant."""
    return deviations > constant * (np.abs(mean) + deviations)


def standardized(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return `rows` in units of their standard deviations.

    Rows in memory with more columns than rows are represented in a basis of their span
    (`row_space`), which needs the Gram matrix of the rows instead of the moments of the columns.
    For more than 2000 such rows (500 if sparse), or if a d × d matrix does not fit in memory, the
    basis consists of the 100 leading principal directions (`leading_space`).

    Parameters
    ----------
    rows : RowSource
        Any row source, with its sample weights.
    known : tuple of RowSource and Moments, optional
        The result of `centered_with_moments`, if it has been computed already.

    Returns
    -------
    Standardized

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import as_rows, standardized
    >>> z = standardized(as_rows(np.array([[0.0, 5.0, 1.0], [2.0, 5.0, 3.0], [4.0, 5.0, 2.0]])))
    >>> z.kept
    array([0, 2])
    >>> z.correlation.round(2)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    from volmar.rows.row_space import is_wide, leading_space, span_of_rows

    if known is None and is_wide(rows):
        return span_of_rows(rows)
    d = rows.n_features
    is_large = d > FITTING_COLUMNS and 4 * 8 * d**2 > available_memory()
    if known is None and is_large and isinstance(rows, (DenseRows, SparseRows)):
        return leading_space(rows)
    return standardized_columns(rows, known)


def exactly_standardized(
    rows: RowSource, known: tuple[RowSource, Moments] | None = None
) -> Standardized:
    """Return `rows` in units of their standard deviations, without dropping any direction.

    In contrast to `standardized`, rows with more columns than rows are represented in their whole
    span, for any number n of rows, in O(n² d + n³) time. A MemoryError is raised if the matrices
    do not fit in memory.
    """
    from volmar.rows.row_space import is_wide, row_space

    if known is None and is_wide(rows):
        return row_space(rows)
    return standardized_columns(rows, known)


def standardized_columns(
    rows: RowSource, known: tuple[RowSource, Moments] | None = None
) -> Standardized:
    """Return `rows` in units of standard deviations, from the d × d moments of their columns."""
    centred, moments = known or centered_with_moments(rows)
    mean = rows.mean()
    covariance = moments.covariance()
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    kept = np.flatnonzero(is_varying(deviations, mean))
    scale = np.where(np.isin(np.arange(mean.size), kept), deviations, 1.0)
    correlation = covariance[np.ix_(kept, kept)] / np.outer(deviations[kept], deviations[kept])
    return Standardized(centred, moments, mean, scale, kept, correlation)


def evenly_scaled(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return centred `rows` with the same unit for all features: the largest deviation.

    The unit is sqrt(e1), where e1 is the largest eigenvalue of the covariance, so that the matrix
    e1 I becomes the identity. Unlike the diagonal of the covariance, e1 does not depend on the
    basis of the features, which a kernel does not determine.

    Parameters
    ----------
    rows : RowSource
        Any row source, with its sample weights.
    known : tuple of RowSource and Moments, optional
        As in `standardized`.

    Returns
    -------
    Standardized
        With every feature kept.
    """
    d = rows.n_features
    centred, moments = known or centered_with_moments(rows)
    mean = rows.mean()
    covariance = moments.covariance()
    e1 = float(eigenvalues(covariance, (d - 1, d - 1))[0])
    # Rows that differ only by rounding keep the unit 1.
    e1 = e1 if e1 > np.finfo(rows.dtype).eps * float(mean @ mean) else 1.0
    scale = np.full(d, np.sqrt(e1))
    return Standardized(centred, moments, mean, scale, np.arange(d), covariance / e1)
