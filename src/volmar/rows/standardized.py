"""Rows in units of their standard deviations, without touching them."""

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

# Matrices of up to so many columns fit in memory, which need not be looked at.
FITTING_COLUMNS = 2000
# A feature whose standard deviation is below this share of its largest magnitude is constant.
CONSTANT = 1e-12


@dataclass(frozen=True)
class Standardized:
    """A row source seen as z = (x - mean) / scale, constant features left out.

    Attributes
    ----------
    rows : RowSource
        The source, centred at its weighted mean.
    moments : Moments
        Its moments about that mean (zero in centred coordinates).
    mean, scale : ndarray of shape (d,)
        Weighted mean and standard deviation of each feature; the scale of a constant one is 1.
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
        """Share of the variance that is seen: all of it."""
        return 1.0

    @property
    def size(self) -> int:
        """Number of coordinates of z."""
        return self.correlation.shape[0]

    def coefficients(self, w: NDArray) -> NDArray:
        """Return a direction w of z as one of x, shape (d,); constant features get 0.

        Several directions, shape (p, k), give (d, k).
        """
        full = np.zeros((self.scale.size, *w.shape[1:]))
        full[self.kept] = (w.T / self.scale[self.kept]).T
        return full

    def direction(self, normal: NDArray) -> NDArray:
        """Return a direction (d,) or (d, k) of x as one of z."""
        return (normal.T * self.scale).T[self.kept]

    def of_rows(self, w: NDArray) -> NDArray:
        """Return a direction w of z as one of `rows`."""
        return self.coefficients(w)

    def from_rows(self, sums: NDArray) -> NDArray:
        """Return a combination of `rows`, (d,) or (d, k), as one of z."""
        return ((sums.T / self.scale).T)[self.kept]

    def own_units_direction(self, v: NDArray) -> NDArray:
        """Return sum_i v_i (x_i - mean), in the features' own units, as a direction of z.

        Its length is left open by a power of two: squares of own units need not fit.
        """
        return (self.combine(v).T * relative_scale(self.scale[self.kept]) ** 2).T

    def scores(self, w: NDArray) -> NDArray:
        """Return z'w of every row: one pass."""
        return self.rows.scores(self.of_rows(w))

    def combine(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i, shape (p,), or (p, k) of v of shape (n, k): one pass."""
        return self.from_rows(self.rows.combine(v))

    def transform(self, X: Any) -> NDArray:
        """Return z of some rows, dense or CSR, in their dtype."""
        rows = X.toarray() if sparse.issparse(X) else X
        centred = (rows - self.mean).astype(rows.dtype, copy=False)
        if self.kept.size < self.scale.size:
            centred = centred[:, self.kept]
        return (centred / self.scale[self.kept]).astype(rows.dtype, copy=False)

    def difference_of_means(self, part: Moments) -> NDArray:
        """Return the mean in z of a part, from its moments, less that of all other rows.

        With the whole centred, it is sum total / (weight (total - weight)).
        """
        total, weight = self.moments.weight, part.weight
        return self.from_rows(part.sum) * (total / (weight * (total - weight)))

    def mean_and_covariance(self, part: Moments) -> tuple[NDArray, NDArray]:
        """Return the mean and covariance in z of a part's moments about the same centre."""
        scale = self.scale[self.kept]
        covariance = part.covariance()
        if self.kept.size < self.scale.size:
            covariance = covariance[np.ix_(self.kept, self.kept)]
        covariance /= scale
        covariance /= scale[:, None]
        return part.mean[self.kept] / scale, covariance


def relative_scale(scale: NDArray) -> NDArray:
    """Return units over a power of two near the largest: the same ones, but for a range that fits.

    Nothing is rounded.
    """
    return np.ldexp(scale, -int(np.frexp(np.abs(scale).max(initial=0.0))[1]))


def is_varying(deviations: NDArray, mean: NDArray, constant: float = CONSTANT) -> NDArray:
    """Return which features are not constant."""
    return deviations > constant * (np.abs(mean) + deviations)


def standardized(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return `rows` in standard deviations, from `centered_with_moments`.

    Rows in memory with more columns than rows are seen in a basis of their span (`row_space`):
    the Gram matrix of the rows takes the place of the moments of the columns. Of more than 2000
    such rows (500 sparse ones), and where a d × d matrix does not fit in memory, it is a basis of
    the 100 leading principal directions (`leading_space`).

    Parameters
    ----------
    rows : RowSource
        Any source; its sample weights count.
    known : tuple of RowSource and Moments, optional
        What `centered_with_moments` returns, where another pass has brought it.

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
    """Return `rows` in standard deviations as `standardized` does, but never a part of their span.

    More columns than rows are seen in the whole span of the rows, in O(n² d + n³) however many
    rows there are; what does not fit in memory is refused.
    """
    from volmar.rows.row_space import is_wide, row_space

    if known is None and is_wide(rows):
        return row_space(rows)
    return standardized_columns(rows, known)


def standardized_columns(
    rows: RowSource, known: tuple[RowSource, Moments] | None = None
) -> Standardized:
    """Return `rows` in standard deviations by the moments of their columns, a d × d matrix."""
    centred, moments = known or centered_with_moments(rows)
    mean = rows.mean()
    covariance = moments.covariance()
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    kept = np.flatnonzero(is_varying(deviations, mean))
    scale = np.where(np.isin(np.arange(mean.size), kept), deviations, 1.0)
    correlation = covariance[np.ix_(kept, kept)] / np.outer(deviations[kept], deviations[kept])
    return Standardized(centred, moments, mean, scale, kept, correlation)


def evenly_scaled(rows: RowSource, known: tuple[RowSource, Moments] | None = None) -> Standardized:
    """Return `rows` about their mean in one unit for all features: the largest deviation.

    The unit is sqrt(e1), with e1 the largest eigenvalue of the covariance, so that the matrix
    e1 I is the identity there. Unlike the diagonal of the covariance, it does not change with the
    basis of the features, which a kernel leaves open.

    Parameters
    ----------
    rows : RowSource
        Any source; its sample weights count.
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
    # Rows that differ by rounding only have no unit of their own.
    e1 = e1 if e1 > np.finfo(rows.dtype).eps * float(mean @ mean) else 1.0
    scale = np.full(d, np.sqrt(e1))
    return Standardized(centred, moments, mean, scale, np.arange(d), covariance / e1)
