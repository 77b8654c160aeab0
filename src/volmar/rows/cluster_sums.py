"""Sizes and sums of k clusters, and labels by k linear functions, in one pass each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from volmar.rows.blocks.recipes import Apply, Scores
from volmar.rows.blocks.sums import ClusterTotals
from volmar.rows.blocks.table import BlockRows
from volmar.rows.blocks.vector import RowVector
from volmar.rows.protocol import RowSource, as_block
from volmar.rows.standardized import relative_scale
from volmar.rows.tiled import TiledRows, add_tile, membership, tiled_cluster_sums


class ClusterSums(NamedTuple):
    """Sums over the rows of each of k clusters.

    `first` is the number of the first row, or the number of all rows for an empty cluster. `moved`
    is the number of rows whose label has changed.
    """

    labels: Any
    weight: np.ndarray
    vectors: np.ndarray
    n_rows: np.ndarray
    first: np.ndarray
    moved: int

    @property
    def key(self) -> bytes:
        """A key for the labels. Different labels share a key only in rare cases."""
        return self.n_rows.tobytes() + relative_scale(self.vectors).astype(np.float32).tobytes()


def cluster_sums(rows: RowSource, labels: Any, k: int, before: Any = None) -> ClusterSums:
    """Return the sizes and sums of k clusters."""
    if isinstance(rows, BlockRows):
        return _of_blocks(rows, labels, k, before)
    if isinstance(rows, TiledRows):
        weight, vectors = tiled_cluster_sums(rows, labels, rows.weights, k)
    else:
        member = membership(labels, rows.weights, k, rows.dtype)
        weight, vectors = member.sum(axis=0, dtype=np.float64), rows.combine(member).T
    return _finished(labels, before, weight, vectors, k)


def sums_by_discriminants(
    rows: RowSource, directions: np.ndarray, offsets: np.ndarray, before: Any
) -> ClusterSums:
    """Label each row by the largest of k linear functions, and return the sums of the clusters.

    Rows in memory are read once: a tile is scored, labelled and summed while it is in the cache.
    """
    k = offsets.size
    if isinstance(rows, BlockRows):
        return _of_blocks(rows, discriminant_labels(rows, directions, offsets), k, before)
    if not isinstance(rows, TiledRows):
        labels = discriminant_labels(rows, directions, offsets)
        found = cluster_sums(rows, labels, k)
        return found._replace(moved=int(np.count_nonzero(labels != before)))
    w = as_block(directions, rows.n_features, "directions", "feature", rows.dtype)
    labels = np.empty(rows.n_rows, dtype=np.int64)
    weight, total = np.zeros(k), np.zeros((k, rows.n_features))
    for part in rows._slices(rows.n_rows):
        tile = rows._tile(part)
        labels[part] = largest_function(rows._without_offset(tile @ w, w), offsets)
        weights = None if rows.weights is None else rows.weights[part]
        weight += add_tile(total, tile, labels[part], weights)
    return _finished(labels, before, weight, rows.sums_as_seen(total, weight), k)


def discriminant_labels(rows: RowSource, directions: np.ndarray, offsets: np.ndarray) -> Any:
    """Return for each row the index of the largest of k linear functions."""
    if isinstance(rows, BlockRows):
        w = as_block(directions, rows.n_features, "directions", "feature", rows.dtype)
        recipe = Apply(largest_function, [Scores(rows.view, w, rows.dtype), offsets])
        return RowVector(rows.table, recipe)
    if not isinstance(rows, TiledRows):
        return largest_function(rows.scores(directions), offsets)
    w = as_block(directions, rows.n_features, "directions", "feature", rows.dtype)
    labels = np.empty(rows.n_rows, dtype=np.int64)
    for part in rows._slices(rows.n_rows):
        scores = rows._without_offset(rows._tile(part) @ w, w)
        labels[part] = largest_function(scores, offsets)
    return labels


def own_scores(rows: RowSource, directions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return for each row in memory the linear function of its own cluster.

    The cost is O(n d) for any k.
    """
    if not isinstance(rows, TiledRows):
        raise TypeError(f"own_scores needs rows in memory, got {type(rows).__name__}.")
    w = as_block(directions, rows.n_features, "directions", "feature", rows.dtype)
    of_cluster = np.ascontiguousarray(w.T)
    scores = np.empty(rows.n_rows, dtype=rows.dtype)
    for part in rows._slices(rows.n_rows):
        np.einsum("ij,ij->i", rows._tile(part), of_cluster[labels[part]], out=scores[part])
    if rows.offset is not None:
        scores -= (rows.offset @ w.astype(np.float64))[labels].astype(rows.dtype)
    return scores


def largest_function(scores: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the index of the largest column of each row, after adding the offsets."""
    return np.argmax(scores + offsets, axis=1)


def _of_blocks(rows: BlockRows, labels: RowVector, k: int, before: Any) -> ClusterSums:
    weights = None if rows.weights is None else rows.weights.recipe
    earlier = None if before is None else before.recipe
    totals = ClusterTotals(rows.view, rows.n_features, labels.recipe, k, earlier, weights)
    weight, vectors, n_rows, first, moved = rows.table.ask(totals)
    return ClusterSums(labels, weight, vectors, n_rows, np.minimum(first, rows.n_rows), moved)


def _finished(
    labels: np.ndarray, before: Any, weight: Any, vectors: np.ndarray, k: int
) -> ClusterSums:
    first = np.full(k, labels.size)
    first[labels[::-1]] = np.arange(labels.size)[::-1]
    moved = 0 if before is None else int(np.count_nonzero(labels != before))
    return ClusterSums(labels, weight, vectors, np.bincount(labels, minlength=k), first, moved)


# ------------------------------------------------------------- moments of clusters of an array


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
