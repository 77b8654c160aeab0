"""The direction in which rows look most like two groups, of whatever size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._memory import require_memory
from volmar.evidence import column_resolutions, dithered
from volmar.evidence.densities import GRID
from volmar.evidence.humps import density_on_grid
from volmar.evidence.mixture import two_group_index
from volmar.rows import as_rows, standardized
from volmar.separation.gep import RegularizedCorrelation, separation_gep
from volmar.separation.starts import StartRows, start_directions

__all__ = ["Direction", "n_searched", "two_group_direction"]

N_STARTS = 16
# Rows that the search looks at.
MOST_ROWS = 4000
# So many features at most are directions to look at by themselves.
MOST_FEATURES = 64
LEAST_SHARE = 0.02
MAX_ITER = 5


class Direction(NamedTuple):
    """A direction w of the rows; `scores` of X are ``(X - mean) @ w``."""

    w: NDArray
    mean: NDArray

    def scores(self, X: Any) -> NDArray:
        """Return the projections of rows, dense or sparse."""
        return np.asarray(X @ self.w).ravel() - self.mean @ self.w


def n_searched(n_features: int) -> int:
    """Return how many rows the search looks at, at most."""
    return max(MOST_ROWS, 20 * n_features)


def two_group_direction(X: Any, rng: np.random.Generator, *, reg: float = 1.0) -> Direction:
    """Find the direction with the largest `two_group_index`.

    The directions looked at are the starts of the race of `volmar.MSPC` (single features,
    principal and random directions, two-means), where Theorem 2's bound leads from each of them,
    and all single features where there are few. The bound itself prefers groups of equal size, so
    that a small one far away would lose to a cut through the middle of the noise. Columns of few
    values are dithered where the index is computed (`volmar.evidence.dithered`).

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR. At most 4000 of them (20 a feature, if that is more) are looked at.
    rng : Generator
        Draws the rows and the random directions.
    reg : float, default=1
        Regularisation, in units of the features' variances.

    Returns
    -------
    Direction
        Of rows that are all the same it is zero.
    """
    n, d = X.shape
    most = n_searched(d)
    require_memory(
        8.0 * d * (4 * d + 3 * min(n, most)),
        f"the covariance matrix of {d} features, with {min(n, most)} rows",
        "Reduce the features first, with sklearn.decomposition.TruncatedSVD say.",
    )
    if n > most:
        X = X[np.sort(rng.choice(n, most, replace=False))]
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    z = standardized(as_rows(X))
    if z.kept.size == 0:
        return Direction(np.zeros(d), z.mean)
    regularized = RegularizedCorrelation(z.correlation, reg)
    Z = ((X - z.mean) / z.scale)[:, z.kept]
    rows = StartRows(Z, dithered(Z, column_resolutions(Z), rng), None)
    starts = start_directions(rows, regularized, N_STARTS, rng, LEAST_SHARE).directions
    found = [
        separation_gep(
            z, regularized, w, min_weight=LEAST_SHARE * len(X), max_iter=MAX_ITER, tol=1e-3
        ).w
        for w in starts.T
    ]
    directions = np.column_stack([starts, *found])
    if z.kept.size <= MOST_FEATURES:
        directions = np.hstack([directions, np.eye(z.kept.size)])
    index = _indices(rows.dithered @ directions)
    return Direction(z.coefficients(directions[:, int(np.argmax(index))]), z.mean)


def _indices(projections: NDArray) -> NDArray:
    binned = [density_on_grid(column) for column in projections.T]
    usable = np.array([one is not None for one in binned])
    index = np.full(usable.size, -1.0)
    if usable.any():
        shares = np.array([one[0] for one in binned if one is not None]).reshape(-1, GRID)
        index[usable] = two_group_index(shares)
    return index
