"""Row sources that read dense tiles of rows, and sums and moments of clusters over tiles."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy import sparse

from volmar._memory import require_memory
from volmar._weights import check_sample_weight
from volmar.rows.protocol import (
    FeatureMap,
    Moments,
    RowSource,
    as_block,
    as_matrix,
    as_vector,
    selected_rows,
)

# ruff: noqa: D102 -- described at RowSource


# Among 256 to 8192 rows, 4096 were fastest or within 10 % of it for d = 10 ... 784 in both
# precisions. Tiles of wide rows are shorter, so that a tile is about as large as the cache.
TILE_ROWS = 4096
_TILE_BYTES = 32 * 2**20
_MIN_TILE_ROWS = 256
# Number of clusters above which sums use a sparse membership matrix, in O(n d) for any k and in
# float64. For fewer clusters a product of dense matrices is as fast.
MANY_CLUSTERS = 32
# Number of rows that are summed into bins at a time. The arrays of sums are long, and each part
# allocates new ones.
BINNED_ROWS = 2**16


class TiledRows(RowSource):
    """A row source whose rows are read as dense tiles, in the order of the rows.

    For second moments, the centre is subtracted from a tile and the tile is multiplied in the
    precision of the data; the products are accumulated in float64. The rounding error of x - c is
    relative to |x - c|, not |x|, so float32 data with mean 1e3 and standard deviation 1 keep six
    digits.
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
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        scores = np.empty((self.n_rows, *w.shape[1:]), dtype=self.dtype)
        for rows in self._slices(self.n_rows):
            np.matmul(self._tile(rows), w, out=scores[rows])
        return self._without_offset(scores, w)

    def combine(self, v: np.ndarray) -> np.ndarray:
        v = as_block(v, self.n_rows, "v", "row", self.dtype)
        total = np.zeros((*v.shape[1:], self.n_features))
        for rows in self._slices(self.n_rows):
            # v'X is up to twice as fast as X'v for a block, and as fast for a vector. A CSR v with
            # two entries per row takes a small fraction of that time.
            total += v[rows].T @ self._tile(rows)
        return self._without_offsets(total, v)

    def mean(self) -> np.ndarray:
        if self._mean is None:
            # About a guess, float32 sums are accurate relative to the spread of the rows.
            self._mean = self.moments(center=self.guessed_mean(), second=False).mean
        return self._mean.copy()

    def guessed_mean(self) -> np.ndarray:
        """Return the unweighted mean of about a thousand equally spaced rows."""
        step = max(1, self.n_rows // 1024)
        few = self._tile(slice(0, None, step)).mean(axis=0, dtype=np.float64)
        return few if self.offset is None else few - self.offset

    def moments(
        self,
        mask: np.ndarray | None = None,
        *,
        center: np.ndarray | None = None,
        second: bool = True,
    ) -> Moments:
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
        # The pivot is the centre, rounded to the precision of the data.
        seen = pivot.astype(np.float64)
        if self.offset is not None:
            seen -= self.offset
        return Moments(seen, weight, total, products).shifted(center)

    def centered(self) -> Self:
        mean = self.mean()
        other = copy.copy(self)
        other.offset = mean if self.offset is None else self.offset + mean
        other._mean = np.zeros(self.n_features)
        return other

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean.

        This takes one pass, or two if the guessed mean is far from the mean.
        """
        about = self.moments(center=self.guessed_mean())
        if _is_far(about):
            about = self.moments(center=about.mean)
        return self._centered_at(about.mean), _about_zero(about, about.mean)

    def centered_with_cut(
        self, w: np.ndarray, threshold: float
    ) -> tuple[Self, Moments, np.ndarray, Moments]:
        """Return `centered_with_moments()`, and a mask and the moments of the rows above a cut.

        The mask selects the rows as seen whose scores are above the threshold. Their moments are
        about the mean of all rows. This takes one pass if the guessed mean is near the mean.
        """
        d = self.n_features
        w = as_vector(w, d, "w", "feature", self.dtype)
        limit = threshold if self.offset is None else threshold + float(self.offset @ w)
        guess = self.guessed_mean()
        pivot = self._pivot(guess)
        mask = np.empty(self.n_rows, dtype=bool)
        weight, total = np.zeros(2), np.zeros((2, d))
        second = [self._empty_second(), np.zeros((d, d))]
        for rows in self._slices(self.n_rows):
            np.greater(self._tile(rows) @ w, limit, out=mask[rows])
            for side, chosen in enumerate((~mask[rows], mask[rows])):
                numbers = rows.start + np.flatnonzero(chosen)
                part, root, part_weight = self._weighted_rows(numbers, pivot)
                weight[side] += part_weight
                total[side] += root @ part
                second[side] += part.T @ part
        seen = pivot.astype(np.float64)
        if self.offset is not None:
            seen -= self.offset
        below, above = (
            Moments(seen, weight[side], total[side], second[side]).shifted(guess)
            for side in (0, 1)
        )
        whole = below + above
        if _is_far(whole):
            center = whole.mean
            whole, above = self.moments(center=center), self.moments(mask, center=center)
        mean = whole.mean
        return self._centered_at(mean), _about_zero(whole, mean), mask, _about_zero(above, mean)

    def _centered_at(self, mean: np.ndarray) -> Self:
        """Return `centered()` for a mean that is known."""
        self._mean = mean.copy()
        return self.centered()

    def mean_squared_norm(self) -> float:
        pivot = self._pivot(np.zeros(self.n_features))
        shift = np.zeros(self.n_features)
        if self.offset is not None:
            shift = pivot.astype(np.float64) - self.offset
        # |x - offset|² = |x - pivot|² + 2 shift'(x - pivot) + |shift|²
        squares = self.total_weight * shift.dot(shift)
        for tile, root, _ in self._shifted_tiles(pivot, None):
            squares += 2.0 * shift.dot(root @ tile)
            np.square(tile, out=tile)
            squares += float(np.sum(np.ones_like(root) @ tile, dtype=np.float64))
        return squares / self.total_weight

    @property
    def _widest(self) -> int:
        """Number of columns of the widest array that a tile needs."""
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
        """Yield √w_i (x_i - pivot), √w_i and Σw_i for each tile; the next tile overwrites it."""
        if index is not None:
            for part in self._slices(index.size):
                yield self._weighted_rows(index[part], pivot)
            return
        shape = min(self.n_rows, self._tile_rows), self.n_features
        buffer = np.empty(shape, dtype=self.dtype, order=self._order)
        for rows in self._slices(self.n_rows):
            tile = buffer[: rows.stop - rows.start]
            np.subtract(self._tile(rows), pivot, out=tile)
            yield self._rooted(tile, rows)

    def _weighted_rows(
        self, numbers: np.ndarray, pivot: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return √w_i (x_i - pivot) for rows given by number, the roots √w_i and Σw_i."""
        tile = self._tile(numbers)
        tile -= pivot
        return self._rooted(tile, numbers)

    def _rooted(
        self, tile: np.ndarray, rows: slice | np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Multiply a tile by √w_i in place; return it, the roots √w_i and Σw_i."""
        if self.weights is None:
            return tile, np.ones(len(tile), dtype=self.dtype), float(len(tile))
        weights = self.weights[rows]
        root = np.sqrt(weights).astype(self.dtype)
        tile *= root[:, np.newaxis]
        return tile, root, float(weights.sum())

    def _center(self, center: np.ndarray | None) -> np.ndarray:
        if center is None:
            return self.mean()
        return as_vector(center, self.n_features, "center", "feature")

    def _pivot(self, center: np.ndarray) -> np.ndarray:
        """Return the centre in the coordinates of the data, rounded to their precision."""
        return (center if self.offset is None else center + self.offset).astype(self.dtype)

    def _without_offset(self, scores: np.ndarray, w: np.ndarray) -> np.ndarray:
        if self.offset is not None:
            # Use w as rounded for the product: otherwise offset'(w_rounded - w) would remain.
            shift = self.offset.dot(w.astype(np.float64))
            np.subtract(scores, shift, out=scores, dtype=np.float64, casting="same_kind")
        return scores

    def _without_offsets(self, total: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return v'X, shape (d,) or (k, d), as the combination of the rows as seen."""
        if self.offset is not None:
            total -= np.multiply.outer(v.sum(axis=0, dtype=np.float64), self.offset)
        return np.ascontiguousarray(total.T)

    def sums_as_seen(self, total: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return sums (k, d) over rows of total weight (k,) as sums of the rows as seen."""
        return total if self.offset is None else total - np.multiply.outer(weight, self.offset)

    def _empty_second(self) -> np.ndarray:
        d = self.n_features
        if d > 256:  # fewer fit any memory, and a check would take longer
            require_memory(
                4 * 8 * d**2,
                f"The second moments of {d} features",
                "Reduce the features first, e.g. by a random projection or TruncatedSVD.",
            )
        return np.zeros((d, d))


def _is_far(about: Moments) -> bool:
    """Return whether the centre is too far from the mean to shift the moments to the mean.

    A shift loses the digits by which the squared distance exceeds the variance.
    """
    distance, rounding = about.mean - about.center, 1e-12 * about.mean
    variance = np.maximum(about.covariance().diagonal(), 0.0)
    return bool((distance**2 > variance + rounding**2).any())


def _about_zero(about: Moments, mean: np.ndarray) -> Moments:
    """Return the moments of the rows after centring them at `mean`."""
    moved = about.shifted(mean)
    return Moments(np.zeros(mean.size), moved.weight, moved.sum, moved.second)


class DenseRows(TiledRows):
    """The rows of a dense float32 or float64 array, in C or Fortran order, without a copy."""

    def __init__(self, X: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        if sparse.issparse(X):
            raise TypeError(
                f"X must be dense, got a sparse {X.format!r} matrix. Use SparseRows or as_rows."
            )
        self.X = as_matrix(X)
        super().__init__(self.X.shape, self.X.dtype, sample_weight, offset)
        self._order = "C" if self.X.flags.c_contiguous else "F"

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return self.X[rows]
        # In Fortran order, taking columns of X.T is four times faster than X[rows].
        if self._order == "F":
            return self.X.T.take(rows, axis=1).T
        return self.X.take(rows, axis=0)


class MappedRows(TiledRows):
    """The rows of ``feature_map.transform(X)``, computed tile by tile in every pass.

    The n × D feature matrix is never held in memory. If it fits in memory,
    ``DenseRows(feature_map.transform(X))`` computes it only once and is much faster.
    """

    def __init__(
        self,
        X: Any,
        feature_map: FeatureMap,
        *,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> None:
        self.X = as_matrix(X)
        self.feature_map = feature_map
        first = feature_map.transform(self.X[:1])
        if not isinstance(first, np.ndarray):
            raise TypeError(
                f"feature_map.transform must return a dense array, got {type(first).__name__}."
            )
        shape = (self.X.shape[0], first.shape[1])
        super().__init__(shape, first.dtype, sample_weight, offset)

    @property
    def _widest(self) -> int:
        return max(self.n_features, self.X.shape[1])

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        return self.feature_map.transform(self.X[rows])


def membership(labels: np.ndarray, weights: Any, k: int, dtype: Any) -> np.ndarray:
    """Return an (n, k) matrix with the weight of each row in the column of its cluster."""
    columns = np.zeros((labels.size, k), dtype=dtype)
    columns[np.arange(labels.size), labels] = 1.0 if weights is None else weights
    return columns


def add_tile(total: np.ndarray, tile: np.ndarray, labels: np.ndarray, weights: Any) -> np.ndarray:
    """Add the rows of a tile to the sums of the clusters, (k, d), and return the weights, (k,)."""
    k, n = len(total), labels.size
    if k <= MANY_CLUSTERS:
        member = membership(labels, weights, k, tile.dtype)
        total += member.T @ tile
        return member.sum(axis=0, dtype=np.float64)
    entries = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    columns = sparse.csc_array((entries, labels, np.arange(n + 1)), (k, n))
    total += columns @ tile.astype(np.float64, copy=False)
    return np.bincount(labels, weights, k).astype(np.float64)


def tiled_cluster_sums(
    source: TiledRows, labels: np.ndarray, weights: Any, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (k,) and sums (k, d) of the rows as seen of k clusters, in one pass."""
    weight, total = np.zeros(k), np.zeros((k, source.n_features))
    for part in source._slices(source.n_rows):
        few = None if weights is None else weights[part]
        weight += add_tile(total, source._tile(part), labels[part], few)
    return weight, source.sums_as_seen(total, weight)


class BinSums(NamedTuple):
    """Sums over the rows in each bin.

    `weight`, `scores` and `vectors` are weighted sums; `rows` and `labelled` are counts.
    """

    weight: np.ndarray
    scores: np.ndarray
    vectors: np.ndarray
    rows: np.ndarray
    labelled: np.ndarray


def tiled_bin_sums(
    source: TiledRows, w: np.ndarray, low: float, high: float, n_bins: int, labels: Any = None
) -> BinSums:
    """Return the sums of `volmar.rows.anywhere.bin_sums` for rows in memory."""
    p = source.scores(w).astype(np.float64, copy=False)
    bins = np.clip((p - low) * (n_bins / (high - low)), 0, n_bins - 1).astype(np.int32)
    rows: Any = np.bincount(bins, None, n_bins)
    labelled = rows if labels is None else np.bincount(bins, labels, n_bins).astype(np.int64)
    weight: Any = rows.astype(np.float64)
    weighted = p
    if source.weights is not None:
        weight, weighted = np.bincount(bins, source.weights, n_bins), source.weights * p
    scores = np.bincount(bins, weighted, n_bins)
    vectors: Any = 0.0
    for start in range(0, source.n_rows, BINNED_ROWS):
        part = slice(start, min(start + BINNED_ROWS, source.n_rows))
        size = part.stop - part.start
        ones = np.ones(size) if source.weights is None else source.weights[part]
        # One column per row, with the weight of the row in the entry of its bin.
        places = sparse.csc_array((ones, bins[part], np.arange(size + 1)), (n_bins, size))
        sums = places @ source._tile(part).astype(np.float64, copy=False)
        vectors = sums if start == 0 else vectors + sums
    if source.offset is not None:
        vectors -= np.outer(weight, source.offset)
    return BinSums(weight, scores, vectors, rows, labelled)


# ---------------------------------------------------- rows of a sparse matrix, centred implicitly


# ruff: noqa: D102 -- described at RowSource


# Fraction of non-zeros above which products of dense tiles are faster than the sparse product
# (measured equal at 0.1 for d = 100, 784 and 3000).
_DENSE_PRODUCT = 0.1
_BLOCK_ROWS = 65536


class SparseRows(TiledRows):
    """The rows of a sparse matrix, kept in CSR.

    Centring is implicit: Xw - offset'w and X'v - (Σv) offset. Second moments are the sparse
    product X'X, in float64, with rank-one corrections for the centre. Its error is relative to
    the square of the data, not of the centred data, which is harmless if most entries are 0.
    If a tenth or more of the entries are non-zero, tiles are made dense and centred instead.
    """

    def __init__(self, X: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        if not sparse.issparse(X):
            raise TypeError(f"X must be sparse, got {type(X).__name__}. Use DenseRows or as_rows.")
        self.X = as_matrix(X)
        super().__init__(self.X.shape, self.X.dtype, sample_weight, offset)

    def scores(self, w: np.ndarray) -> np.ndarray:
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        return self._without_offset(self.X @ w, w)

    def combine(self, v: np.ndarray) -> np.ndarray:
        v = as_block(v, self.n_rows, "v", "row", self.dtype)
        total = np.zeros((self.n_features, *v.shape[1:]))
        for rows, block in self._blocks(None):
            product = block.T @ v[rows]
            total += product.toarray() if sparse.issparse(product) else product
        return self._without_offsets(total.T, v)

    def mean(self) -> np.ndarray:
        if self._mean is None:
            zero = np.zeros(self.n_features)
            self._mean = self._sparse_moments(None, zero, second=False).mean
        return self._mean.copy()

    def moments(
        self,
        mask: np.ndarray | None = None,
        *,
        center: np.ndarray | None = None,
        second: bool = True,
    ) -> Moments:
        if second and self.X.nnz >= _DENSE_PRODUCT * self.n_rows * self.n_features:
            return super().moments(mask, center=center, second=second)
        index = None if mask is None else selected_rows(mask, self.n_rows)
        return self._sparse_moments(index, self._center(center), second=second)

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments about the mean, by two passes."""
        return RowSource.centered_with_moments(self)

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``.

        Stored entries and zeros are summed separately, as sum (x_ij - o_j)² + sum_j o_j² (weight
        of the rows without an entry in column j). No digits cancel, even for a large offset.
        """
        offset = np.zeros(self.n_features) if self.offset is None else self.offset
        squares, present = 0.0, np.zeros(self.n_features)
        for rows, block in self._blocks(None):
            per_row = np.ones(block.shape[0]) if self.weights is None else self.weights[rows]
            weights = np.repeat(per_row, np.diff(block.indptr))
            centred = block.data - offset[block.indices]
            squares += float(np.einsum("i,i,i->", weights, centred, centred))
            present += np.bincount(block.indices, weights, self.n_features)
        absent = np.maximum(self.total_weight - present, 0.0)
        return (squares + float(absent @ offset**2)) / self.total_weight

    def _sparse_moments(
        self, index: np.ndarray | None, center: np.ndarray, *, second: bool
    ) -> Moments:
        weight, total = 0.0, np.zeros(self.n_features)
        products = self._empty_second() if second else None
        for rows, block in self._blocks(index):
            scaled, root, block_weight = self._weighted(block, rows)
            weight += block_weight
            total += scaled.T @ root
            if products is not None:
                products = products + (scaled.T @ scaled)
        origin = np.zeros(self.n_features) if self.offset is None else -self.offset
        return Moments(origin, weight, total, products).shifted(center)

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        return self.X[rows].toarray()

    def _blocks(self, index: np.ndarray | None) -> Iterator[tuple[slice | np.ndarray, Any]]:
        """Yield blocks of rows in CSR; blocks of consecutive rows are views of the data."""
        n = self.n_rows if index is None else index.size
        for start in range(0, n, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, n)
            if index is not None:
                rows = index[start:stop]
                yield rows, self.X[rows]
                continue
            first, last = self.X.indptr[start], self.X.indptr[stop]
            arrays = (
                self.X.data[first:last],
                self.X.indices[first:last],
                self.X.indptr[start : stop + 1] - first,
            )
            shape = (stop - start, self.n_features)
            yield slice(start, stop), sparse.csr_array(arrays, shape=shape)

    def _weighted(self, block: Any, rows: slice | np.ndarray) -> tuple[Any, np.ndarray, float]:
        """Return the rows times √w_i, in float64, the roots √w_i and Σw_i."""
        block = block.astype(np.float64, copy=False)
        if self.weights is None:
            return block, np.ones(block.shape[0]), float(block.shape[0])
        weights = self.weights[rows]
        root = np.sqrt(weights)
        scaled = block.copy()
        scaled.data *= np.repeat(root, np.diff(block.indptr))
        return scaled, root, float(weights.sum())


class ClusterMoments(NamedTuple):
    """Sizes (k,), means (k, d) and sums of squared deviations (k, d) of clusters.

    With missing values, the sizes (k, d) are those of the known values.
    """

    sizes: np.ndarray
    means: np.ndarray
    squares: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean of each column over all rows."""
        return self.sizes @ self.means / self.sizes.sum()

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each column over all rows."""
        between = self.sizes @ (self.means - self.mean) ** 2
        return np.sqrt((self.squares.sum(axis=0) + between) / self.sizes.sum())

    @property
    def between(self) -> np.ndarray:
        """Share of the variance of each column that is between the clusters."""
        total = self.sizes.sum() * self.deviation**2
        explained = self.sizes @ (self.means - self.mean) ** 2
        return explained / np.where(total > 0, total, np.inf)


def cluster_moments(
    X: Any, codes: np.ndarray, k: int, known: np.ndarray | None = None
) -> ClusterMoments:
    """Return the moments of clusters 0 to k - 1 of dense or CSR rows; a code of -1 is noise.

    Entries that are not `known` must be 0 in X. The mean of a cluster without rows is 0.
    """
    inside = np.flatnonzero(codes >= 0)
    shape = (k, codes.size)
    member = sparse.csr_array((np.ones(inside.size), (codes[inside], inside)), shape=shape)
    sizes = np.bincount(codes[inside], minlength=k)
    counts = sizes[:, None] if known is None else member @ known.astype(np.float64)
    mass = np.maximum(counts, 1)
    if sparse.issparse(X):
        means = (member @ X).toarray() / mass
        squares = (member @ X.multiply(X).tocsr()).toarray() - counts * means**2
        return ClusterMoments(sizes, means, np.maximum(squares, 0.0))
    means, squares = np.zeros((k, X.shape[1])), np.zeros((k, X.shape[1]))
    blocks = list(row_blocks(*X.shape))
    for some in blocks:
        means += member[:, some] @ np.asarray(X[some], dtype=np.float64)
    means /= mass
    for some in blocks:
        square = np.square(X[some] - means[np.maximum(codes[some], 0)]) if k else 0.0 * X[some]
        squares += member[:, some] @ (square if known is None else square * known[some])
    return ClusterMoments(sizes if known is None else counts, means, squares)


def row_blocks(n: int, d: int) -> Iterator[slice]:
    """Yield slices of n rows of d columns, each of about a million entries."""
    step = max(1, 2**20 // max(d, 1))
    return (slice(start, start + step) for start in range(0, n, step))
