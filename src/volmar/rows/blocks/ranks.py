"""Ranks and quantiles of vectors in blocks, and samples of rows in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from volmar.rows.blocks.recipes import LARGE_TILE_BYTES, Recipe, Tile, digest
from volmar.rows.blocks.sums import Partial, Wanted
from volmar.rows.blocks.vector import RowVector

# ruff: noqa: D102 -- overridden methods are described at Wanted


# Number of bits of a number that one pass determines, and maximum number of rows to collect.
BITS, FEW = 16, 10_000


class LabelSums(Wanted):
    """The number of rows, or their total weight, for each label from 0 to k - 1."""

    def __init__(self, labels: Recipe, weights: Recipe | None, k: int):
        self.labels, self.weights, self.k = labels, weights, k
        self.key = digest("label sums", labels, weights, k)

    def of_tile(self, tile: Tile) -> Partial:
        weights = None if self.weights is None else tile.value(self.weights)
        labels = tile.value(self.labels).astype(np.intp, copy=False)
        return [np.bincount(labels, weights, minlength=self.k)]

    def finished(self, whole: Partial | None) -> np.ndarray:
        kind = np.int64 if self.weights is None else np.float64
        return np.zeros(self.k, dtype=kind) if whole is None else whole[0]

    def stand_in(self) -> np.ndarray:
        return np.ones(self.k)


class FirstRows(Wanted):
    """The number of the first row with each label 0 to k - 1, or `n_rows` if there is none."""

    def __init__(self, labels: Recipe, n_rows: int, k: int):
        self.labels, self.n_rows, self.k = labels, n_rows, k
        self.key = digest("first rows", labels, k)

    def of_tile(self, tile: Tile) -> Partial:
        found, places = np.unique(tile.value(self.labels), return_index=True)
        first = np.full(self.k, self.n_rows, dtype=np.int64)
        first[found.astype(np.intp)] = tile.start + places
        return [first]

    def merged(self, one: Partial, two: Partial) -> Partial:
        return [np.minimum(one[0], two[0])]

    def finished(self, whole: Partial | None) -> np.ndarray:
        return self.stand_in() if whole is None else whole[0]

    def stand_in(self) -> np.ndarray:
        return np.full(self.k, self.n_rows, dtype=np.int64)


class Chosen(Wanted):
    """The entries of a vector for which a mask is True. There should be only a few."""

    def __init__(self, values: Recipe, mask: Recipe):
        self.values, self.mask = values, mask
        self.key = digest("chosen", values, mask)

    def of_tile(self, tile: Tile) -> Partial:
        return [tile.value(self.values)[tile.value(self.mask)]]

    def merged(self, one: Partial, two: Partial) -> Partial:
        return [np.concatenate([one[0], two[0]])]

    def finished(self, whole: Partial | None) -> np.ndarray:
        return self.stand_in() if whole is None else whole[0]

    def stand_in(self) -> np.ndarray:
        return np.empty(0, dtype=self.values.dtype)


class _UnderPrefix(Wanted):
    """A result over the rows whose keys (see `ordered_bits`) start with a given prefix."""

    tile_bytes = LARGE_TILE_BYTES

    def __init__(self, values: Recipe, weights: Recipe | None, prefix: int, n_known: int):
        self.values, self.weights = values, weights
        self.prefix, self.n_known = prefix, n_known
        self.key = digest(type(self).__name__, values, weights, prefix, n_known)

    def _of_tile(self, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys of the rows of the tile under the prefix, and their weights."""
        keys = ordered_bits(tile.value(self.values))
        weights = np.ones(keys.size) if self.weights is None else tile.value(self.weights)
        if self.n_known:
            inside = keys >> _type(keys)(8 * keys.itemsize - self.n_known) == self.prefix
            keys, weights = keys[inside], weights[inside]
        return keys, weights


class BitSums(_UnderPrefix):
    """Weight and number of the rows under a prefix, for each value of the next bits."""

    def of_tile(self, tile: Tile) -> Partial:
        keys, weights = self._of_tile(tile)
        after = 8 * keys.itemsize - self.n_known - BITS
        places = ((keys >> _type(keys)(after)) & _type(keys)(2**BITS - 1)).astype(np.intp)
        return [
            np.bincount(places, weights, minlength=2**BITS),
            np.bincount(places, minlength=2**BITS),
        ]

    def finished(self, whole: Partial | None) -> Partial:
        return self.stand_in() if whole is None else whole

    def stand_in(self) -> Partial:
        return [np.zeros(2**BITS), np.zeros(2**BITS, dtype=np.int64)]


class Listed(_UnderPrefix):
    """The keys under a prefix, with their weights. There should be only a few."""

    def of_tile(self, tile: Tile) -> Partial:
        return list(self._of_tile(tile))

    def merged(self, one: Partial, two: Partial) -> Partial:
        return [np.concatenate([a, b]) for a, b in zip(one, two, strict=True)]

    def finished(self, whole: Partial | None) -> Partial:
        return self.stand_in() if whole is None else whole

    def stand_in(self) -> Partial:
        return [np.empty(0, dtype=np.uint64), np.empty(0)]


def block_quantile(values: RowVector, weights: RowVector | None, level: float) -> float:
    """Return the smallest entry such that entries up to it have a total weight of `level`.

    If the total weight is smaller, the largest entry is returned. Each pass determines 16 leading
    bits of the entry. When only a few rows share these bits, their entries are collected. This
    takes two or three passes, and never more than five.
    """
    table, of = values.table, values.recipe
    w = None if weights is None else weights.recipe
    n_bits = 8 * values.dtype.itemsize
    prefix = n_known = 0
    before = 0.0
    while n_known < n_bits:
        totals, counts = table.ask(BitSums(of, w, prefix, n_known))
        reached = before + np.cumsum(totals)
        filled = np.flatnonzero(counts)
        at = np.searchsorted(filled, np.searchsorted(reached, level))
        place = int(filled[min(int(at), filled.size - 1)])
        before = float(reached[place] - totals[place])
        prefix, n_known = (prefix << BITS) | place, n_known + BITS
        if n_known < n_bits and counts[place] <= FEW:
            keys, shares = table.ask(Listed(of, w, prefix, n_known))
            order = np.argsort(keys)
            at = np.searchsorted(before + np.cumsum(shares[order]), level)
            return float(number_of(keys[order[min(int(at), order.size - 1)]], values.dtype))
    return float(number_of(np.array(prefix, dtype=f"u{values.dtype.itemsize}"), values.dtype))


def ordered_bits(values: np.ndarray) -> np.ndarray:
    """Return unsigned integers with the same order as float32 or float64 numbers."""
    bits = (values + values.dtype.type(0)).view(f"u{values.dtype.itemsize}")  # -0 is 0
    sign = _type(bits)(1 << (8 * bits.itemsize - 1))
    return np.where(bits & sign, ~bits, bits | sign)


def number_of(key: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the number that `ordered_bits` maps to a key."""
    sign = _type(key)(1 << (8 * key.itemsize - 1))
    return np.where(key & sign, key ^ sign, ~key).astype(key.dtype).view(dtype)


def _type(keys: np.ndarray) -> type:
    return keys.dtype.type


# ------------------------------------ samples of rows in each of several cells, drawn by one pass


# ruff: noqa: D102 -- overridden methods are described at Wanted


# The largest rank. As a limit, it draws all rows.
NO_LIMIT = np.iinfo(np.uint64).max
# Number of arrays with one entry per cell, which precede those with one entry per drawn row.
N_TOTALS = 4


class CellSamples(NamedTuple):
    """Sizes of cells, and the rows drawn from all cells."""

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

    A limit of 0 draws no rows, and `NO_LIMIT` draws all. The cell -1 is no cell.
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
