"""Results that a pass can compute: sums over the rows, and rows selected by number."""

# ruff: noqa: D102 -- overridden methods are described at Wanted

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from volmar.rows.blocks.recipes import (
    LARGE_TILE_BYTES,
    TILE_BYTES,
    Recipe,
    RowView,
    Tile,
    digest,
)
from volmar.rows.protocol import Moments
from volmar.rows.tiled import (
    MANY_CLUSTERS,
    BinSums,
    membership,
    tiled_bin_sums,
    tiled_cluster_sums,
)

Partial = list[np.ndarray]


class Wanted(ABC):
    """A request for a result over all rows, merged from partial results of blocks.

    Equal requests have the same `key`.
    """

    key: bytes
    #: Size of the tiles from which it is computed fastest.
    tile_bytes: ClassVar[int] = TILE_BYTES
    #: Whether partial results grow with the number of rows, so that they are merged only once.
    is_listed: ClassVar[bool] = False

    @property
    def widening(self) -> float:
        """Size of the features that the request needs, relative to the size of the rows."""
        seen = [one for one in vars(self).values() if isinstance(one, (Recipe, RowView))]
        return max((one.widening for one in seen), default=1.0)

    @abstractmethod
    def of_tile(self, tile: Tile) -> Partial | None:
        """Return the partial result of a tile, or None if the tile does not contribute."""

    def merged(self, one: Partial, two: Partial) -> Partial:
        """Return the merged partial results of two sets of rows."""
        with np.errstate(all="ignore"):  # NaN and infinity are detected by `Squares`
            return [np.add(a, b) for a, b in zip(one, two, strict=True)]

    def joined(self, parts: Sequence[Partial]) -> Partial:
        """Return the merged partial results of several sets of rows."""
        return reduce(self.merged, parts)

    @abstractmethod
    def finished(self, whole: Partial | None) -> Any:
        """Return the result, given the merged partial results of all rows."""

    @abstractmethod
    def stand_in(self) -> Any:
        """Return a placeholder with the shape of the result, while requests are collected."""

    def needs(self, start: int, stop: int) -> bool:  # noqa: ARG002 -- for those that pick
        """Return whether the rows from start to stop contribute to the result."""
        return True


class _Number(Wanted):
    """A sum that is a single float."""

    def finished(self, whole: Partial | None) -> float:
        return 0.0 if whole is None else float(whole[0])

    def stand_in(self) -> float:
        return float("nan")


class _Listed(Wanted):
    """Arrays with entries of single rows, which are concatenated over blocks."""

    is_listed = True

    def joined(self, parts: Sequence[Partial]) -> Partial:
        return [np.concatenate(several) for several in zip(*parts, strict=True)]


class Sum(Wanted):
    """The sum of a vector, or of each column, in 64-bit integers or float64."""

    def __init__(self, values: Recipe):
        self.values = values
        self.key = digest("sum", values)
        kinds = {"b": np.int64, "i": np.int64, "u": np.uint64}
        self._dtype = kinds.get(values.dtype.kind, np.float64)

    def of_tile(self, tile: Tile) -> Partial:
        return [np.asarray(np.sum(tile.value(self.values), axis=0, dtype=self._dtype))]

    def finished(self, whole: Partial | None) -> Any:
        total = np.zeros(self.values.tail, dtype=self._dtype) if whole is None else whole[0]
        return total[()] if np.ndim(total) == 0 else total

    def stand_in(self) -> Any:
        value = np.nan if self._dtype is np.float64 else 1
        return np.full(self.values.tail, value, dtype=self._dtype)[()]


class Combination(Wanted):
    """The sum_i v_i (x_i - offset), for one vector or several columns of coefficients v."""

    def __init__(self, view: RowView, n_features: int, coefficients: Recipe):
        self.view, self.coefficients = view, coefficients
        self._shape = (n_features, *coefficients.tail)
        self.key = digest("combination", view, coefficients)

    def of_tile(self, tile: Tile) -> Partial:
        return [tile.rows(self.view).combine(tile.value(self.coefficients))]

    def finished(self, whole: Partial | None) -> np.ndarray:
        return np.zeros(self._shape) if whole is None else whole[0]

    def stand_in(self) -> np.ndarray:
        return np.full(self._shape, np.nan)


class MomentSum(Wanted):
    """Weight, sum and second moments of all rows, or of those in a mask, about a centre."""

    tile_bytes = LARGE_TILE_BYTES

    def __init__(
        self,
        view: RowView,
        center: np.ndarray,
        *,
        mask: Recipe | None = None,
        weights: Recipe | None = None,
        second: bool = True,
    ):
        self.view, self.center, self.mask = view, center, mask
        self.weights, self.second = weights, second
        self.key = digest("moments", view, center, mask, weights, second)

    def of_tile(self, tile: Tile) -> Partial | None:
        mask = None if self.mask is None else tile.value(self.mask)
        if mask is not None and not mask.any():
            return None
        weights = None if self.weights is None else tile.value(self.weights)
        if weights is not None and not np.any(weights if mask is None else weights[mask]):
            return None
        rows = tile.rows(self.view, self.weights)
        with np.errstate(all="ignore"):  # NaN and infinity are detected by `Squares`
            found = rows.moments(mask, center=self.center, second=self.second)
        parts = [np.array(found.weight), np.array(found.sum)]
        return [*parts, np.array(found.second)] if self.second else parts

    def finished(self, whole: Partial | None) -> Moments:
        d = self.center.size
        if whole is None:
            second = np.zeros((d, d)) if self.second else None
            return Moments(self.center, 0.0, np.zeros(d), second)
        return Moments(self.center, float(whole[0]), whole[1], whole[2] if self.second else None)

    def stand_in(self) -> Moments:
        d = self.center.size
        return Moments(self.center, 1.0, np.zeros(d), np.eye(d) if self.second else None)


class SquaredNorm(_Number):
    """The (weighted) sum of the squared lengths of the rows as seen."""

    tile_bytes = LARGE_TILE_BYTES

    def __init__(self, view: RowView, weights: Recipe | None = None):
        self.view, self.weights = view, weights
        self.key = digest("squares", view, weights)

    def of_tile(self, tile: Tile) -> Partial | None:
        if self.weights is not None and not tile.value(self.weights).any():
            return None
        rows = tile.rows(self.view, self.weights)
        with np.errstate(all="ignore"):  # NaN and infinity show in the sum
            return [np.array(rows.mean_squared_norm() * rows.total_weight)]


class Binned(Wanted):
    """Sums over the rows in each bin of their scores (see `volmar.rows.anywhere.bin_sums`)."""

    tile_bytes = LARGE_TILE_BYTES

    def __init__(
        self,
        view: RowView,
        w: np.ndarray,
        bins: tuple[float, float, int],
        *,
        labels: Recipe | None = None,
        weights: Recipe | None = None,
    ):
        self.view, self.w, self.bins = view, w, bins
        self.labels, self.weights = labels, weights
        self.key = digest("binned", view, w, bins, labels, weights)

    def of_tile(self, tile: Tile) -> Partial | None:
        labels = None if self.labels is None else tile.value(self.labels)
        if self.weights is not None and not tile.value(self.weights).any():
            # Rows of weight 0 are still counted.
            found = tiled_bin_sums(tile.rows(self.view), self.w, *self.bins, labels)
            return [*(np.zeros_like(one) for one in found[:3]), *found[3:]]
        rows = tile.rows(self.view, self.weights)
        return list(tiled_bin_sums(rows, self.w, *self.bins, labels))

    def finished(self, whole: Partial | None) -> BinSums:
        return self.stand_in() if whole is None else BinSums(*whole)

    def stand_in(self) -> BinSums:
        n_bins = self.bins[2]
        zeros, none = np.zeros(n_bins), np.zeros(n_bins, dtype=np.int64)
        return BinSums(zeros, zeros, np.zeros((n_bins, self.w.size)), none, none)


class ClusterTotals(Wanted):
    """Weight, sum, number of rows and first row of k clusters, and the number of moved rows.

    `before` contains the previous labels, with which the new ones are compared.
    """

    def __init__(
        self,
        view: RowView,
        n_features: int,
        labels: Recipe,
        k: int,
        before: Recipe | None = None,
        weights: Recipe | None = None,
    ):
        self.view, self.labels, self.before, self.weights = view, labels, before, weights
        self._shape = (k, n_features)
        self.key = digest("cluster totals", view, labels, k, before, weights)

    def of_tile(self, tile: Tile) -> Partial:
        k = self._shape[0]
        labels, rows = tile.value(self.labels), tile.rows(self.view)
        weights = None if self.weights is None else tile.value(self.weights)
        if k <= MANY_CLUSTERS:
            member = membership(labels, weights, k, rows.dtype)
            weight, vectors = member.sum(axis=0, dtype=np.float64), rows.combine(member).T
        else:
            weight, vectors = tiled_cluster_sums(rows, labels, weights, k)
        first = np.full(k, np.iinfo(np.int64).max)
        first[labels[::-1]] = np.arange(tile.start, tile.start + tile.n_rows)[::-1]
        moved = 0 if self.before is None else np.count_nonzero(labels != tile.value(self.before))
        return [
            weight,
            vectors,
            np.bincount(labels, minlength=k),
            first,
            np.array(moved),
        ]

    def merged(self, one: Partial, two: Partial) -> Partial:
        weight, vectors, n_rows, _, moved = super().merged(one, two)
        return [weight, vectors, n_rows, np.minimum(one[3], two[3]), moved]

    def finished(self, whole: Partial | None) -> tuple[Any, ...]:
        return self.stand_in() if whole is None else (*whole[:4], int(whole[4]))

    def stand_in(self) -> tuple[Any, ...]:
        counts = np.ones(self._shape[0], dtype=np.int64)
        return counts.astype(float), np.ones(self._shape), counts, counts, 0


class Squares(_Number):
    """The sum of the squares of all entries of X, which NaN and infinity make non-finite."""

    def __init__(self) -> None:
        self.key = digest("squares of entries")

    def of_tile(self, tile: Tile) -> Partial:
        entries = tile.X if isinstance(tile.X, np.ndarray) else tile.X.data
        flat = entries.ravel(order="K")
        with np.errstate(all="ignore"):
            return [np.array(flat @ flat, dtype=np.float64)]


class Extremes(Wanted):
    """The smallest and the largest entry of a vector."""

    def __init__(self, values: Recipe):
        self.values = values
        self.key = digest("extremes", values)

    def of_tile(self, tile: Tile) -> Partial:
        values = tile.value(self.values)
        return [np.array(values.min()), np.array(values.max())]

    def merged(self, one: Partial, two: Partial) -> Partial:
        return [np.minimum(one[0], two[0]), np.maximum(one[1], two[1])]

    def finished(self, whole: Partial | None) -> tuple[Any, Any]:
        if whole is None:
            raise ValueError("cannot take the minimum or maximum of zero rows.")
        return whole[0][()], whole[1][()]

    def stand_in(self) -> tuple[Any, Any]:
        return self.values.dtype.type(0), self.values.dtype.type(1)


class Distinct(Wanted):
    """The distinct entries of a vector, sorted, and the number of rows with each.

    It is meant for labels: at most `most` + 1 entries are returned.
    """

    most: ClassVar[int] = 10_000

    def __init__(self, values: Recipe):
        self.values = values
        self.key = digest("distinct", values)

    def of_tile(self, tile: Tile) -> Partial:
        found, counts = np.unique(tile.value(self.values), return_counts=True)
        return [found[: self.most + 1], counts[: self.most + 1].astype(np.int64)]

    def merged(self, one: Partial, two: Partial) -> Partial:
        found, where = np.unique(np.concatenate([one[0], two[0]]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([one[1], two[1]])).astype(np.int64)
        return [found[: self.most + 1], counts[: self.most + 1]]

    def finished(self, whole: Partial | None) -> tuple[np.ndarray, np.ndarray]:
        if whole is None:
            return np.empty(0, dtype=self.values.dtype), np.empty(0, dtype=np.int64)
        return whole[0], whole[1]

    def stand_in(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(2, dtype=self.values.dtype), np.ones(2, dtype=np.int64)


class Picked(_Listed):
    """A few rows, or entries of a vector, selected by ascending row numbers.

    The offset of the `view` is not subtracted.
    """

    def __init__(
        self, index: np.ndarray, *, values: Recipe | None = None, view: RowView | None = None
    ):
        self.index, self.values = index, values
        self.view = RowView() if view is None else view
        what = self.view if values is None else values
        self.key = digest("picked", index, values is None, what)

    def needs(self, start: int, stop: int) -> bool:
        """Return whether any of the numbers is among these rows."""
        return bool(np.searchsorted(self.index, start) < np.searchsorted(self.index, stop))

    def of_tile(self, tile: Tile) -> Partial | None:
        """Return positions in `index` of the rows of the tile, and these rows or entries."""
        low, high = np.searchsorted(self.index, [tile.start, tile.start + tile.n_rows])
        if low == high:
            return None
        chosen = self.index[low:high] - tile.start
        if self.values is not None:
            return [np.arange(low, high), tile.value(self.values)[chosen]]
        few = Tile(tile.X[chosen], [one[chosen] for one in tile.given], 0)
        rows = few.features(self.view)
        return [np.arange(low, high), rows if isinstance(rows, np.ndarray) else rows.toarray()]

    def finished(self, whole: Partial | None) -> np.ndarray:
        if whole is None:
            raise LookupError(f"none of the rows {self.index[:5]} exist.")
        return whole[1][np.argsort(whole[0])]

    def stand_in(self) -> np.ndarray:
        raise TypeError("rows cannot be selected while requests are being collected.")


class BlockTotals(_Listed):
    """The sum of a vector in each tile, in order, which depends on the bounds of the blocks."""

    def __init__(self, values: Recipe, bounds: np.ndarray):
        self.values = values
        self.key = digest("block totals", values, bounds)

    def of_tile(self, tile: Tile) -> Partial:
        """Return the first row and the sum of the tile."""
        total = np.sum(tile.value(self.values), dtype=np.float64)
        return [np.array([tile.start]), np.array([total])]

    def finished(self, whole: Partial | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the first rows of the tiles, ascending, and the cumulative sums before each."""
        if whole is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        order = np.argsort(whole[0])
        totals = whole[1][order]
        return whole[0][order], np.concatenate([[0.0], np.cumsum(totals)])

    def stand_in(self) -> tuple[np.ndarray, np.ndarray]:
        raise TypeError("rows cannot be searched while requests are being collected.")


class FirstBeyond(_Listed):
    """For each ascending target, the first row at which the cumulative sum of a vector exceeds it.

    `starts` and `before` are the results of `BlockTotals`.
    """

    def __init__(
        self, values: Recipe, targets: np.ndarray, starts: np.ndarray, before: np.ndarray
    ):
        self.values, self.targets = values, targets
        self.starts, self.before = starts, before
        self.key = digest("first beyond", values, targets, starts)

    def of_tile(self, tile: Tile) -> Partial | None:
        place = int(np.searchsorted(self.starts, tile.start))
        low, high = np.searchsorted(self.targets, self.before[place : place + 2], side="left")
        # Targets that the sum never exceeds are assigned to the last tile with a positive sum.
        if place == np.searchsorted(self.before, self.before[-1]) - 1:
            high = self.targets.size
        if low >= high:
            return None
        values = tile.value(self.values)
        running = self.before[place] + np.cumsum(values, dtype=np.float64)
        found = np.searchsorted(running, self.targets[low:high], side="right")
        last = int(np.flatnonzero(values)[-1])
        return [np.arange(low, high), tile.start + np.minimum(found, last)]

    def finished(self, whole: Partial | None) -> np.ndarray:
        if whole is None:
            return np.empty(0, dtype=np.int64)
        return whole[1][np.argsort(whole[0])]

    def stand_in(self) -> np.ndarray:
        return np.zeros(self.targets.size, dtype=np.int64)
