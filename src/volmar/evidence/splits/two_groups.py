"""The direction in which rows look most like two groups, of whatever size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.evidence.modes.mixture import two_group_index
from volmar.evidence.modes.valleys import binned, valleys_of
from volmar.evidence.splits.searched import SearchedRows

__all__ = ["two_group_direction"]

# Single columns that are directions to look at, and rows to choose them by where there are more.
MOST_COLUMNS, COLUMN_ROWS = 100, 500
# Other starts: leading principal directions and random ones.
N_PRINCIPAL, N_RANDOM = 8, 6
# Each round improves so many of the best directions, with these regularisations.
N_ROUNDS, N_IMPROVED, REGS = 3, 6, (1.0, 0.1)


def two_group_direction(rows: SearchedRows, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Find the direction with the largest `volmar.evidence.modes.mixture.two_group_index`.

    Starts are single columns, principal and random directions. A direction is improved by cutting
    the rows along it, in the deepest valley or where two means fit best, and taking the linear
    discriminant of the two sides, :math:`(R + \lambda I)^{-1} (\mu_1 - \mu_0)` with R the
    correlation matrix.

    Parameters
    ----------
    rows : SearchedRows
        The rows.
    rng : Generator
        Draws the random directions.

    Returns
    -------
    ndarray of shape (d,)
        In the units of the rows; zero where all columns are constant.
    """
    p, r = rows.columns.shape[1], rows.T.shape[1]
    if p == 0:
        return np.zeros(rows.scale.size)
    columns = _columns_to_look_at(rows, rng)
    found = _Found(rows, columns)
    R = rows.T.T @ rows.T / len(rows.T)
    _, vectors = linalg.eigh(R)
    random = rng.standard_normal((r, N_RANDOM))
    factors = [linalg.cho_factor(R + reg * np.eye(r)) for reg in REGS]
    found.add(np.hstack([vectors[:, ::-1][:, :N_PRINCIPAL], linalg.cho_solve(factors[0], random)]))
    for _ in range(N_ROUNDS):
        sides = found.sides_of_best(N_IMPROVED)
        counts = sides.sum(axis=0)
        difference = rows.T.T @ (sides / counts - ~sides / (len(sides) - counts))
        found.add(np.hstack([linalg.cho_solve(factor, difference) for factor in factors]))
    return found.best()


def _columns_to_look_at(rows: SearchedRows, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return all columns, or those whose variance two means explain best."""
    n, p = rows.columns.shape
    if p <= MOST_COLUMNS:
        return np.arange(p)
    # Not the first ones: rows may come group by group.
    few = rng.choice(n, min(n, COLUMN_ROWS), replace=False)
    explained = _two_means(rows.columns[few])[1]
    return np.sort(np.argsort(-explained, kind="stable")[:MOST_COLUMNS])


class _Found:
    """Directions that were looked at, with their indices and cuts."""

    def __init__(self, rows: SearchedRows, columns: NDArray):
        self.rows, self.columns = rows, columns
        self.directions = np.empty((rows.T.shape[1], 0))
        self.projections = rows.columns[:, columns]
        self.index, self.cuts = _indices(self.projections)

    def add(self, directions: NDArray) -> None:
        norms = np.linalg.norm(directions, axis=0)
        directions = directions[:, norms > 0] / norms[norms > 0]
        projections = self.rows.noisy @ directions
        index, cuts = _indices(projections)
        self.directions = np.hstack([self.directions, directions])
        self.projections = np.hstack([self.projections, projections])
        self.index, self.cuts = np.append(self.index, index), np.append(self.cuts, cuts)

    def sides_of_best(self, n_best: int) -> NDArray[np.bool_]:
        """Return the sides (n, m) of rows along the best directions; none is empty."""
        best = np.argsort(-self.index, kind="stable")[:n_best]
        sides = self.projections[:, best] > self.cuts[best]
        return sides[:, sides.any(axis=0) & ~sides.all(axis=0)]

    def best(self) -> NDArray[np.float64]:
        at, m = int(np.argmax(self.index)), self.columns.size
        if at >= m:
            return self.rows.coefficients(self.directions[:, at - m])
        w = np.zeros(self.rows.columns.shape[1])
        w[self.columns[at]] = 1.0
        return self.rows.of_columns(w)


def _indices(projections: NDArray) -> tuple[NDArray, NDArray]:
    """Return the two-group index of each column, and where to cut it."""
    cuts, _ = _two_means(projections)
    found, shares, densities = binned(list(np.ascontiguousarray(projections.T)))
    places = np.array([valley.place for valley in valleys_of(found, densities)])
    index = np.zeros(cuts.size)
    index[[sample is not None for sample in found]] = two_group_index(shares)
    return index, np.where(np.isnan(places), cuts, places)


def _two_means(projections: NDArray) -> tuple[NDArray, NDArray]:
    """Return the cuts of each column that leave the least squares, and the share they explain."""
    n, m = projections.shape
    ordered = np.sort(projections, axis=0)
    total = ordered.sum(axis=0)
    below = np.cumsum(ordered, axis=0)[:-1]
    sizes = np.arange(1, n)[:, None]
    between = (below - sizes * (total / n)) ** 2 / (sizes * (n - sizes))
    at = np.argmax(between, axis=0)
    each = np.arange(m)
    cuts = 0.5 * (ordered[at, each] + ordered[at + 1, each])
    varies = ordered[-1] > ordered[0]  # the variance of equal values may be rounding
    explained = between[at, each] / np.where(varies, ordered.var(axis=0), 1.0)
    return cuts, np.where(varies, explained, 0.0)
