"""Row sources that hand out dense tiles of rows: everything but where a tile comes from."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np

from volmar._checks import check_sample_weight
from volmar._memory import require_memory
from volmar.rows._validation import as_block, as_vector, selected_rows
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource

__all__ = ["TILE_ROWS", "TiledRows"]

# Of 256 to 8192 rows, 4096 were fastest or within a tenth of it for d = 10 ... 784 in both
# precisions; wide tiles are cut so that a tile stays of the order of the cache.
TILE_ROWS = 4096
_TILE_BYTES = 32 * 2**20
_MIN_TILE_ROWS = 256


class TiledRows(RowSource):
    """A row source whose rows can be had as dense tiles, in the order of the rows.

    Parameters
    ----------
    shape : tuple of int
        The shape (n, d) of the data.
    dtype : numpy dtype
        float32 or float64.
    sample_weight : array of shape (n,), optional
        Sample weights, not negative.
    offset : array of shape (d,), optional
        The rows are seen as x_i - offset.

    Notes
    -----
    Second moments subtract the centre from a tile in the data's precision, multiply the tile in
    that precision and accumulate the products in float64. x - c has one rounding error relative
    to |x - c|, not |x|, so float32 data with mean 1e3 and standard deviation 1 keep six digits.
    """

    _order: Literal["C", "F"] = "C"

    def __init__(
        self, shape: tuple[int, int], dtype: Any, sample_weight: Any, offset: Any
    ) -> None:
        n, d = shape
        self.n_rows = n
        self.n_features = d
        self.dtype = np.dtype(dtype)
        self.weights = check_sample_weight(sample_weight, n)
        self.total_weight = float(n if self.weights is None else self.weights.sum())
        self.offset = None if offset is None else as_vector(offset, d, "offset", "feature").copy()
        self._mean: np.ndarray | None = None

    @abstractmethod
    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        """Return these rows, without the offset, as a dense array in `dtype`."""

    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return (X - 1 offset') w, shape (n,) or (n, k), in the dtype of the data."""
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        scores = np.empty((self.n_rows, *w.shape[1:]), dtype=self.dtype)
        for rows in self._slices(self.n_rows):
            np.matmul(self._tile(rows), w, out=scores[rows])
        return self._without_offset(scores, w)

    def combine(self, v: np.ndarray) -> np.ndarray:
        """Return (X - 1 offset')' v, shape (d,) or (d, k), in float64."""
        v = as_block(v, self.n_rows, "v", "row", self.dtype)
        total = np.zeros((*v.shape[1:], self.n_features))
        for rows in self._slices(self.n_rows):
            # v'X is up to twice as fast as X'v for a block, the same for a vector.
            total += v[rows].T @ self._tile(rows)
        return self._without_offsets(total, v)

    def mean(self) -> np.ndarray:
        """Return the weighted mean of the rows as seen, shape (d,), in float64."""
        if self._mean is None:
            # About the first tile's mean, float32 sums lose digits of the spread only.
            first = self._tile(slice(0, self._tile_rows)).mean(axis=0, dtype=np.float64)
            guess = first if self.offset is None else first - self.offset
            self._mean = self.moments(center=guess, second=False).mean
        return self._mean.copy()

    def moments(
        self,
        mask: np.ndarray | None = None,
        *,
        center: np.ndarray | None = None,
        second: bool = True,
    ) -> Moments:
        """Return the weighted moments of the rows as seen, about `center`."""
        d = self.n_features
        index = None if mask is None else selected_rows(mask, self.n_rows)
        center = self._center(center)
        pivot = self._pivot(center)
        weight, total = 0.0, np.zeros(d)
        products = self._empty_second() if second else None
        for tile, root, tile_weight in self._shifted_tiles(pivot, index):
            weight += tile_weight
            total += root @ tile
            if products is not None:
                products += tile.T @ tile
        # The pivot is the centre as rounded to the data's precision.
        seen = pivot.astype(np.float64)
        if self.offset is not None:
            seen -= self.offset
        return Moments(seen, weight, total, products).shifted(center)

    def centered(self) -> Self:
        """Return the same source with its offset at its weighted mean."""
        mean = self.mean()
        other = copy.copy(self)
        other.offset = mean if self.offset is None else self.offset + mean
        other._mean = np.zeros(self.n_features)
        return other

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``."""
        pivot = self._pivot(np.zeros(self.n_features))
        gap = np.zeros(self.n_features)
        if self.offset is not None:
            gap = pivot.astype(np.float64) - self.offset
        # |x - offset|² = |x - pivot|² + 2 gap'(x - pivot) + |gap|²
        squares = self.total_weight * gap.dot(gap)
        for tile, root, _ in self._shifted_tiles(pivot, None):
            squares += 2.0 * gap.dot(root @ tile)
            np.square(tile, out=tile)
            squares += float(np.sum(np.ones_like(root) @ tile, dtype=np.float64))
        return squares / self.total_weight

    @property
    def _widest(self) -> int:
        """Columns of the widest array that a tile needs."""
        return self.n_features

    @property
    def _tile_rows(self) -> int:
        fitting = _TILE_BYTES // (self._widest * self.dtype.itemsize)
        return min(TILE_ROWS, max(_MIN_TILE_ROWS, fitting))

    def _slices(self, n: int) -> Iterator[slice]:
        for start in range(0, n, self._tile_rows):
            yield slice(start, min(start + self._tile_rows, n))

    def _shifted_tiles(
        self, pivot: np.ndarray, index: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """Yield tiles of √w_i (x_i - pivot), in a buffer that is used again, the √w_i and Σw_i."""
        n = self.n_rows if index is None else index.size
        buffer = np.empty(
            (min(n, self._tile_rows), self.n_features), dtype=self.dtype, order=self._order
        )
        for part in self._slices(n):
            rows = part if index is None else index[part]
            tile = buffer[: part.stop - part.start]
            np.subtract(self._tile(rows), pivot, out=tile)
            if self.weights is None:
                yield tile, np.ones(len(tile), dtype=self.dtype), float(len(tile))
                continue
            weights = self.weights[rows]
            root = np.sqrt(weights).astype(self.dtype)
            tile *= root[:, np.newaxis]
            yield tile, root, float(weights.sum())

    def _center(self, center: np.ndarray | None) -> np.ndarray:
        if center is None:
            return self.mean()
        return as_vector(center, self.n_features, "center", "feature")

    def _pivot(self, center: np.ndarray) -> np.ndarray:
        """Return the centre in the coordinates of the data, rounded to their precision."""
        return (center if self.offset is None else center + self.offset).astype(self.dtype)

    def _without_offset(self, scores: np.ndarray, w: np.ndarray) -> np.ndarray:
        if self.offset is not None:
            # With w as rounded for the product: another w would leave offset'(w - w).
            shift = self.offset.dot(w.astype(np.float64))
            np.subtract(scores, shift, out=scores, dtype=np.float64, casting="same_kind")
        return scores

    def _without_offsets(self, total: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return v'X, shape (d,) or (k, d), as the combination of the rows as seen."""
        if self.offset is not None:
            total -= np.multiply.outer(v.sum(axis=0, dtype=np.float64), self.offset)
        return np.ascontiguousarray(total.T)

    def _empty_second(self) -> np.ndarray:
        d = self.n_features
        require_memory(
            4 * 8 * d**2,
            f"The second moments of {d} features",
            "Reduce the features first, e.g. by a random projection or TruncatedSVD.",
        )
        return np.zeros((d, d))
