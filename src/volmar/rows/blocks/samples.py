"""Samples of rows in each of several cells, drawn by one pass."""

# ruff: noqa: D102 -- overridden methods are described at Wanted

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from volmar.rows.blocks.recipes import Recipe, Tile, digest
from volmar.rows.blocks.sums import Partial, Wanted

# The largest rank. As a limit, it draws all rows.
NO_LIMIT = np.iinfo(np.uint64).max
# Number of arrays with one entry per cell, which precede those with one entry per drawn row.
N_TOTALS = 4


class CellSamples(NamedTuple):
    """Sizes of cells, and the rows drawn from all cells.

    Attributes
    ----------
    n_rows, n_counted, first : ndarray of int, shape (n_cells,)
        Number of rows, number of rows of positive weight, and number of the first row.
    weight : ndarray of shape (n_cells,)
        Total weight of the rows.
    cells, numbers, ranks : ndarray of shape (m,)
        Cell, row number and rank of each drawn row.
    X : ndarray of shape (m, d)
        The drawn rows.
    weights : ndarray of shape (m,)
        Weights of the drawn rows, or 1 without weights.
    """

    n_rows: np.ndarray
    n_counted: np.ndarray
    weight: np.ndarray
    first: np.ndarray
    cells: np.ndarray
    numbers: np.ndarray
    ranks: np.ndarray
    X: np.ndarray
    weights: np.ndarray


class Drawn(Wanted):
    """Sizes of cells, and the rows whose rank is below the limit of their cell.

    Parameters
    ----------
    cells : Recipe
        Cell of each row, or -1 for no cell.
    ranks : Recipe
        Rank of each row, which decides whether it is drawn.
    limits : ndarray of uint64, shape (n_cells,)
        Rows with ranks below the limit of their cell are drawn. 0 draws no rows, and `NO_LIMIT`
        draws all.
    n_features : int
        Number of columns of the rows.
    dtype : numpy.dtype
        Type of the rows.
    weights : Recipe, optional
        Sample weights.
    """

    is_listed = True

    def __init__(
        self,
        cells: Recipe,
        ranks: Recipe,
        limits: np.ndarray,
        n_features: int,
        dtype: np.dtype,
        weights: Recipe | None = None,
    ):
        self.cells, self.ranks, self.limits, self.weights = cells, ranks, limits, weights
        self._shape, self._dtype = (0, n_features), dtype
        self.key = digest("drawn", cells, ranks, limits, weights)

    def of_tile(self, tile: Tile) -> Partial:
        cells, k = tile.value(self.cells), self.limits.size
        inside = np.flatnonzero(cells >= 0)
        here = cells[inside]
        weights = np.ones(tile.n_rows) if self.weights is None else tile.value(self.weights)
        first = np.full(k, np.iinfo(np.int64).max)
        first[here[::-1]] = tile.start + inside[::-1]  # the first row is written last
        totals = [
            np.bincount(here, minlength=k),
            np.bincount(here, weights[inside] > 0, k).astype(np.int64),
            np.bincount(here, weights[inside], k),
            first,
        ]
        ranks = tile.value(self.ranks)[inside]
        limits = self.limits[here]
        chosen = inside[(ranks < limits) | (limits == NO_LIMIT)]
        rows: Any = tile.X[chosen]
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        return [
            *totals,
            cells[chosen],
            tile.start + chosen,
            tile.value(self.ranks)[chosen],
            dense,
            weights[chosen],
        ]

    def joined(self, parts: Sequence[Partial]) -> Partial:
        several = list(zip(*parts, strict=True))
        added = [np.sum(arrays, axis=0) for arrays in several[: N_TOTALS - 1]]
        first = np.min(several[N_TOTALS - 1], axis=0)
        return [*added, first, *(np.concatenate(arrays) for arrays in several[N_TOTALS:])]

    def finished(self, whole: Partial | None) -> CellSamples:
        if whole is None:
            return self.stand_in()
        order = np.argsort(whole[N_TOTALS + 1])
        return CellSamples(*whole[:N_TOTALS], *(part[order] for part in whole[N_TOTALS:]))

    def stand_in(self) -> CellSamples:
        none, k = np.empty(0, dtype=np.int64), self.limits.size
        counts = np.zeros(k, dtype=np.int64)
        rows = np.empty(self._shape, dtype=self._dtype)
        return CellSamples(
            counts, counts, np.zeros(k), counts, none, none, none, rows, np.empty(0)
        )
