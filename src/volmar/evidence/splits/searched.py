"""Rows as the search for splits sees them: standardised, dithered, and of few dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar._memory import require_memory
from volmar.evidence.dither import column_resolutions, dithered

__all__ = ["SearchedRows", "n_searched", "searched_rows"]

# Rows that a search looks at: so many entries, within these limits.
MOST_ENTRIES, FEWEST_ROWS, MOST_ROWS = 2_000_000, 300, 2000
# Dimensions that are searched: all columns, or so many leading principal components.
MOST_DIMENSIONS = 100
# Of more columns than rows there are fewer components, one for so many rows but so many at least:
# in as many dimensions as rows, every split of them looks perfect.
ROWS_A_DIMENSION, FEWEST_DIMENSIONS = 5, 5
# A column whose standard deviation is below this share of its largest value is constant.
CONSTANT = 1e-12


def n_searched(n_features: int) -> int:
    """Return how many rows a search looks at, at most."""
    return int(np.clip(MOST_ENTRIES // max(n_features, 1), FEWEST_ROWS, MOST_ROWS))


@dataclass(frozen=True, eq=False)
class SearchedRows:
    """Rows in the coordinates of the search.

    Attributes
    ----------
    T : ndarray of shape (n, r)
        Standardised columns, or the leading principal components of many of them.
    noisy : ndarray of shape (n, r)
        The same of dithered rows (`volmar.evidence.dithered`): gaps are looked for in these.
    columns : ndarray of shape (n, p)
        Dithered standardised columns.
    basis : ndarray of shape (p, r) or None
        Principal directions; None where T has the columns themselves.
    mean, scale : ndarray of shape (d,)
        Of the columns; constant ones have the scale 0.
    """

    T: NDArray[np.float64]
    noisy: NDArray[np.float64]
    columns: NDArray[np.float64]
    basis: NDArray[np.float64] | None
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    def coefficients(self, t: NDArray) -> NDArray[np.float64]:
        """Return directions (r,) or (r, k) of T as directions (d,) or (d, k) of the rows."""
        return self.of_columns(t if self.basis is None else self.basis @ t)

    def of_columns(self, w: NDArray) -> NDArray[np.float64]:
        """Return directions (p,) or (p, k) of the columns as directions of the rows."""
        full = np.zeros((self.scale.size, *w.shape[1:]))
        kept = self.scale > 0
        full[kept] = (w.T / self.scale[kept]).T
        return full


def searched_rows(X: Any, rng: np.random.Generator) -> SearchedRows:
    """Return rows in the coordinates of the search; at most `n_searched` of them, at random.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    rng : Generator
        Draws the rows and the noise.
    """
    n, d = X.shape
    most = n_searched(d)
    require_memory(
        8.0 * d * (3 * min(n, most) + MOST_DIMENSIONS),
        f"{min(n, most)} rows of {d} features",
        "Reduce the features first, with sklearn.decomposition.TruncatedSVD say.",
    )
    if n > most:
        X = X[np.sort(rng.choice(n, most, replace=False))]
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
    mean = dense.mean(axis=0, dtype=np.float64)
    Z = dense - mean
    peak = np.abs(Z).max(axis=0, initial=0.0)
    safe = np.where(peak > 0, peak, 1.0)
    scale = np.sqrt(np.mean((Z / safe) ** 2, axis=0)) * safe  # squares of any magnitude
    varies = scale > CONSTANT * np.maximum(np.abs(mean), peak)
    Z = Z[:, varies] / scale[varies]
    scale = np.where(varies, scale, 0.0)
    columns = dithered(Z, column_resolutions(Z), rng)
    most = MOST_DIMENSIONS
    if Z.shape[1] > len(Z):
        most = min(most, max(FEWEST_DIMENSIONS, len(Z) // ROWS_A_DIMENSION))
    if Z.shape[1] <= most:
        return SearchedRows(Z, columns, columns, None, mean, scale)
    basis = _principal_directions(Z, most)
    T = Z @ basis
    noisy = T if columns is Z else columns @ basis
    return SearchedRows(T, noisy, columns, basis, mean, scale)


def _principal_directions(Z: NDArray, most: int) -> NDArray[np.float64]:
    """Return at most so many leading principal directions (p, r) of centred rows."""
    n, p = Z.shape
    if p <= n:
        values, vectors = linalg.eigh(Z.T @ Z, subset_by_index=[p - most, p - 1])
        return vectors[:, values > 1e-10 * values[-1]]
    most = min(most, n)
    values, vectors = linalg.eigh(Z @ Z.T, subset_by_index=[n - most, n - 1])
    kept = values > 1e-10 * values[-1]
    return Z.T @ (vectors[:, kept] / np.sqrt(values[kept]))
