"""The direction in which rows look most like two groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar._memory import require_memory
from volmar.evidence.densities import N_BINS, binned, two_group_index, valleys_of

# Maximum number of rows of a search.
MAX_ROWS = 2000
# Maximum number of dimensions: all columns, or this number of leading principal components.
MAX_DIMENSIONS = 100
# Maximum number of single columns that are tried as directions.
MAX_COLUMNS = 100


def n_searched(n_features: int) -> int:
    """Return the maximum number of rows that a search uses, of at most two million entries."""
    return int(np.clip(2_000_000 // max(n_features, 1), 300, MAX_ROWS))


@dataclass(frozen=True, eq=False)
class SearchedRows:
    """Rows in the coordinates of the search.

    T are standardised `columns`, or their leading principal components along `basis` if there are
    many. The `scale` of constant columns is 0.
    """

    T: NDArray[np.float64]
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
    """Return a sample of at most `n_searched` rows: standardised, of few dimensions."""
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
    # A column whose standard deviation is below this share of its largest value is constant.
    varies = scale > 1e-12 * np.maximum(np.abs(mean), peak)
    Z = Z[:, varies] / scale[varies]
    scale = np.where(varies, scale, 0.0)
    most = MAX_DIMENSIONS
    if Z.shape[1] > len(Z):  # in as many dimensions as rows, every split looks perfect
        most = min(most, max(5, len(Z) // 5))
    if Z.shape[1] <= most:
        return SearchedRows(Z, Z, None, mean, scale)
    basis = _principal_directions(Z, most)
    return SearchedRows(Z @ basis, Z, basis, mean, scale)


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


def two_group_direction(rows: SearchedRows, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Find the direction with the largest `volmar.evidence.densities.two_group_index`.

    The search starts from single columns, principal directions and random directions. To improve a
    direction, the rows are cut along it in the deepest valley, or where two means fit best. The
    new direction is the linear discriminant of the two sides,
    :math:`(R + \lambda I)^{-1} (\mu_1 - \mu_0)` with R the correlation matrix.
    The result is in the units of the rows; zero if all columns are constant.
    """
    p, r = rows.columns.shape[1], rows.T.shape[1]
    if p == 0:
        return np.zeros(rows.scale.size)
    columns = _columns_to_look_at(rows, rng)
    R = rows.T.T @ rows.T / len(rows.T)
    _, vectors = linalg.eigh(R)
    random = rng.standard_normal((r, 6))
    factors = [linalg.cho_factor(R + reg * np.eye(r)) for reg in (1.0, 0.1)]
    directions = np.hstack([vectors[:, ::-1][:, :8], linalg.cho_solve(factors[0], random)])
    directions = _of_unit_length(directions)
    projections = np.hstack([rows.columns[:, columns], rows.T @ directions])
    index, cuts = _indices(projections)
    for _ in range(3):  # each round improves the best six directions
        best = np.argsort(-index, kind="stable")[:6]
        sides = projections[:, best] > cuts[best]
        sides = sides[:, sides.any(axis=0) & ~sides.all(axis=0)]
        counts = sides.sum(axis=0)
        difference = rows.T.T @ (sides / counts - ~sides / (len(sides) - counts))
        new = _of_unit_length(np.hstack([linalg.cho_solve(one, difference) for one in factors]))
        more = rows.T @ new
        new_index, new_cuts = _indices(more)
        directions, projections = np.hstack([directions, new]), np.hstack([projections, more])
        index, cuts = np.append(index, new_index), np.append(cuts, new_cuts)
    at = int(np.argmax(index))
    if at >= columns.size:
        return rows.coefficients(directions[:, at - columns.size])
    w = np.zeros(p)
    w[columns[at]] = 1.0
    return rows.of_columns(w)


def _columns_to_look_at(rows: SearchedRows, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return all columns, or the `MAX_COLUMNS` whose variance two means explain best."""
    n, p = rows.columns.shape
    if p <= MAX_COLUMNS:
        return np.arange(p)
    # A random sample, because rows may be sorted by group.
    few = rng.choice(n, min(n, 500), replace=False)
    ordered = np.sort(rows.columns[few].T, axis=1)
    _, explained = _two_means(ordered, np.full(ordered.shape, 1.0 / few.size))
    return np.sort(np.argsort(-explained, kind="stable")[:MAX_COLUMNS])


def _of_unit_length(directions: NDArray) -> NDArray:
    """Normalise directions (r, m), without zero directions."""
    norms = np.linalg.norm(directions, axis=0)
    return directions[:, norms > 0] / norms[norms > 0]


def _indices(projections: NDArray) -> tuple[NDArray, NDArray]:
    """Return the two-group index of each column, and its cut."""
    samples = binned(list(projections.T))
    places, _, _ = valleys_of(samples)
    cuts, _ = _two_means(np.broadcast_to(np.arange(N_BINS), samples.shares.shape), samples.shares)
    return two_group_index(samples.shares), np.where(
        np.isnan(places), samples.values_at(cuts + 0.5), places
    )


def _two_means(ordered: NDArray, shares: NDArray) -> tuple[NDArray, NDArray]:
    """Return the least-squares cuts (m,) of m samples, and the shares of variance explained.

    `ordered` (m, n) are the sorted values, and `shares` (m, n) the share of each in its sample.
    """
    sizes = np.cumsum(shares, axis=1)
    sums = np.cumsum(shares * ordered, axis=1)
    mean = sums[:, -1]
    below, size = sums[:, :-1], np.clip(sizes[:, :-1], 1e-12, 1.0 - 1e-12)
    between = (below - size * mean[:, None]) ** 2 / (size * (1.0 - size))
    each, at = np.arange(len(shares)), np.argmax(between, axis=1)
    cuts = 0.5 * (ordered[each, at] + ordered[each, at + 1])
    variance = np.einsum("mn,mn->m", shares, (ordered - mean[:, None]) ** 2)
    varies = ordered[:, -1] > ordered[:, 0]  # the variance of equal values may be rounding error
    explained = between[each, at] / np.where(varies & (variance > 0), variance, 1.0)
    return cuts, np.where(varies, explained, 0.0)
