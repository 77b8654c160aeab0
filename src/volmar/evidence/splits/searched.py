"""Preparation of rows for the search for splits: standardise, dither, reduce dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar._memory import require_memory
from volmar.evidence.dither import column_resolutions, dithered

__all__ = ["SearchedRows", "n_searched", "searched_rows"]

# A search uses at most MAX_ENTRIES entries, in MIN_ROWS to MAX_ROWS rows.
MAX_ENTRIES, MIN_ROWS, MAX_ROWS = 2_000_000, 300, 2000
# Maximum number of dimensions: all columns, or this number of leading principal components.
MAX_DIMENSIONS = 100
# With more columns than rows, there is one component per ROWS_PER_DIMENSION rows, and at least
# MIN_DIMENSIONS. In as many dimensions as rows, every split looks perfect.
ROWS_PER_DIMENSION, MIN_DIMENSIONS = 5, 5
# A column whose standard deviation is below this share of its largest value is constant.
CONSTANT = 1e-12


def n_searched(n_features: int) -> int:
    """Return the maximum number of rows that a search uses."""
    return int(np.clip(MAX_ENTRIES // max(n_features, 1), MIN_ROWS, MAX_ROWS))


@dataclass(frozen=True, eq=False)
class SearchedRows:
    """Rows in the coordinates of the search.

    Attributes
    ----------
    T : ndarray of shape (n, r)
        Standardised columns, or their leading principal components if there are many columns.
    noisy : ndarray of shape (n, r)
        The same coordinates of dithered rows (`volmar.evidence.dithered`), in which the search
        looks for gaps.
    columns : ndarray of shape (n, p)
        Dithered standardised columns.
    basis : ndarray of shape (p, r) or None
        Principal directions; None if T has the columns themselves.
    mean, scale : ndarray of shape (d,)
        Mean and standard deviation of the columns; 0 for the scale of constant columns.
    """

    T: NDArray[np.float64]
    noisy: NDArray[np.float64]
    columns: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def coefficients(self, t: NDArray) -> NDArray[np.float64]:
        """Convert directions (r,) or (r, k) of T to directions (d,) or (d, k) of the rows."""
        return self.of_columns(t if self.basis is None else self.basis @ t)

    def of_columns(self, w: NDArray) -> NDArray[np.float64]:
        """Convert directions (p,) or (p, k) of `columns` to directions of the rows."""
        full = np.zeros((self.scale.size, *w.shape[1:]))
        kept = self.scale > 0
        full[kept] = (w.T / self.scale[kept]).T
        return full


def searched_rows(X: Any, rng: np.random.Generator) -> SearchedRows:
    """Return a sample of at most `n_searched` rows in the coordinates of the search.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    rng : Generator
        Random generator of the sample and of the noise.
    """
    n, d = X.shape
    most = n_searched(d)
    require_memory(
        8.0 * d * (3 * min(n, most) + MAX_DIMENSIONS),
        f"{min(n, most)} rows of {d} features",
        "Reduce the features first, for example with sklearn.decomposition.TruncatedSVD.",
    )
    if n > most:
        X = X[np.sort(rng.choice(n, most, replace=False))]
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    mean = dense.mean(axis=0, dtype=np.float64)
    Z = dense - mean
    peak = np.abs(Z).max(axis=0, initial=0.0)
    safe = np.where(peak > 0, peak, 1.0)
    scale = np.sqrt(np.mean((Z / safe) ** 2, axis=0)) * safe  # squares do not overflow
    varies = scale > CONSTANT * np.maximum(np.abs(mean), peak)
    Z = Z[:, varies] / scale[varies]
    scale = np.where(varies, scale, 0.0)
    columns = dithered(Z, column_resolutions(Z), rng)
    most = MAX_DIMENSIONS
    if Z.shape[1] > len(Z):
        most = min(most, max(MIN_DIMENSIONS, len(Z) // ROWS_PER_DIMENSION))
    if Z.shape[1] <= most:
        return SearchedRows(Z, columns, columns, None, mean, scale)
    basis = _principal_directions(Z, most)
    T = Z @ basis
    noisy = T if columns is Z else columns @ basis
    return SearchedRows(T, noisy, columns, basis, mean, scale)


def _principal_directions(Z: NDArray, most: int) -> NDArray[np.float64]:
    """Return at most `most` leading principal directions (p, r) of centred rows."""
    n, p = Z.shape
    if p <= n:
        values, vectors = linalg.eigh(Z.T @ Z, subset_by_index=[p - most, p - 1])
        return vectors[:, values > 1e-10 * values[-1]]
    most = min(most, n)
    values, vectors = linalg.eigh(Z @ Z.T, subset_by_index=[n - most, n - 1])
    kept = values > 1e-10 * values[-1]
    return Z.T @ (vectors[:, kept] / np.sqrt(values[kept]))
