"""Sizes and sums of k clusters, and labels by k linear functions, in one pass each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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
