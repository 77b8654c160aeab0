"""The space of a search: the scale of the columns, and the dimensions of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

from volmar.evidence.dither import spread_ties

# Maximum number of rows in which clusters are searched, in up to FEW_COLUMNS columns and in more.
MAX_ROWS_OF_FEW, FEW_COLUMNS, MAX_ROWS = 20_000, 3, 3000
# Maximum number of columns of hyperplanes, and of dimensions in which neighbours are searched.
MAX_COLUMNS, MAX_NEAR = 100, 10
# If standard deviations of columns differ by more than this factor, their units differ.
SAME_UNIT = 10.0
# The smallest cluster: this multiple of the square root of the number of rows, at least 5 rows.
SMALLEST, FEWEST_ROWS = 0.3, 5


def smallest_cluster(n: int) -> int:
    """Return the minimum number of rows of a cluster among n rows."""
    return max(FEWEST_ROWS, round(SMALLEST * n**0.5))


class Rows(NamedTuple):
    """Rows in all columns, and in the few dimensions in which neighbours are searched.

    Of these, `known` are the values as given; in `X` and `near`, ties are spread.
    """

    X: NDArray[np.float64]
    near: NDArray[np.float64]
    known: NDArray[np.float64]

    def of(self, numbers: NDArray) -> Rows:
        """Return some of the rows."""
        return Rows(*(values[numbers] for values in self))


@dataclass(frozen=True, eq=False)
class Space:
    """The scale of the columns, and the leading directions of many columns."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    basis: NDArray[np.float64] | None = None
    near: NDArray[np.float64] | None = None

    def columns(self, X: Any) -> NDArray[np.float64]:
        """Return rows in units of the scale, along `basis` if there are many columns."""
        if sparse.issparse(X):
            if self.basis is None:
                X = X.toarray()
            else:
                weighted = self.basis / self.scale[:, None]
                return np.asarray(X @ weighted - self.mean @ weighted)
        scaled = (np.asarray(X, dtype=np.float64) - self.mean) / self.scale
        return scaled if self.basis is None else scaled @ self.basis

    def spread(self, columns: NDArray, rng: np.random.Generator) -> Rows:
        """Return rows for a search, from those of `columns`, with ties spread."""
        spread = spread_ties(columns, rng)
        return Rows(spread, self.nearby(spread), self.nearby(columns))

    def nearby(self, columns: NDArray) -> NDArray[np.float64]:
        """Return the coordinates in which neighbours are searched."""
        return columns if self.near is None else columns @ self.near


def space_of(X: Any, seed: int) -> Space:
    """Return the space of a sample of rows.

    Columns in different units are divided by their standard deviations, others by a common one.
    """
    is_sparse = sparse.issparse(X)
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if is_sparse:
        square = np.asarray(X.multiply(X).mean(axis=0), dtype=np.float64).ravel()
        deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    else:
        deviation = np.asarray(X.std(axis=0, dtype=np.float64))
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), deviation.max(initial=0.0))
    known = deviation[varies]
    if known.size and known.max() <= SAME_UNIT * known.min():
        deviation = np.full(deviation.size, float(np.sqrt(np.mean(known**2))))
    scale = np.where(varies, deviation, np.inf)
    space = Space(mean, scale)
    if X.shape[1] > MAX_COLUMNS:
        rows = sparse.csr_array(X / space.scale) if is_sparse else space.columns(X)
        space = Space(mean, space.scale, _directions(rows, MAX_COLUMNS, seed))
    columns = space.columns(X)
    if columns.shape[1] > MAX_NEAR:
        near = _directions(columns, MAX_NEAR, seed)
        space = Space(mean, space.scale, space.basis, near)
    return space


def _directions(rows: Any, most: int, seed: int) -> NDArray[np.float64]:
    """Return leading directions (d, r) of centred rows."""
    r = min(most, *rows.shape)
    if not abs(rows).max() > 0:  # copies of one row
        return np.eye(rows.shape[1], r)
    svd = TruncatedSVD(r, algorithm="randomized", random_state=seed).fit(rows)
    return np.asarray(svd.components_.T)


def sampled_numbers(X: Any, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the sorted numbers of the rows that are searched: all, or a random sample."""
    n, d = X.shape
    most = MAX_ROWS_OF_FEW if d <= FEW_COLUMNS else MAX_ROWS
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
