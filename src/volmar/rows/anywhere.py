"""Functions that work on rows in memory and on rows in blocks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from volmar.rows._validation import as_vector
from volmar.rows.blocks.ranks import FirstRows
from volmar.rows.blocks.recipes import Apply, OfRows
from volmar.rows.blocks.source import BlockRows
from volmar.rows.blocks.sums import Binned
from volmar.rows.blocks.table import BlockTable, CountedTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.by_row import sums_by_label
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import BinSums, TiledRows, tiled_bin_sums

Values = TypeVar("Values")


def in_one_pass(f: Callable[[], Values], *arrays: Any) -> Values:
    """Return ``f()``, with all its requests to rows in blocks answered by one pass.

    See `RowSource.in_one_pass`.

    Parameters
    ----------
    f : callable
        Function that requests sums over the rows. The requests must not depend on each other.
    *arrays : array, sparse matrix, BlockTable, RowVector or None
        Rows, or vectors over the rows, that `f` uses.
    """
    prefetch(f, *arrays)
    return f()


def prefetch(f: Callable[[], Any], *arrays: Any) -> None:
    """Compute all that `f` requests of rows in blocks in one pass (see `RowSource.prefetch`)."""
    for array in arrays:
        table = array.table if isinstance(array, RowVector) else array
        if isinstance(table, BlockTable):
            table.prefetch(f)
            return


def is_in_memory(X: Any) -> bool:
    """Return whether the rows or entries of X are in memory rather than in dask blocks."""
    return not isinstance(X, (BlockTable, RowVector))


def has_sparse_rows(rows: RowSource) -> bool:
    """Return whether rows, in memory or in blocks, are sparse."""
    if not isinstance(rows, BlockRows):
        return isinstance(rows, SparseRows)
    from dask.array.utils import meta_from_array

    return sparse.issparse(meta_from_array(rows.table.rows_of.X))


def take_rows(X: Any, index: np.ndarray) -> Any:
    """Return the rows with the given numbers, in memory, or X itself if these are all rows.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    index : ndarray of int
        Distinct row numbers in ascending order.
    """
    if is_in_memory(X) and index.size == X.shape[0]:
        return X
    return X[index]


def counted_rows(X: Any, weights: Any) -> Any:
    """Return the rows of positive weight, from which rows can be selected by number.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    weights : vector over the rows or None
        Sample weights. If None, all rows are returned.
    """
    if weights is None:
        return X
    return X[weights > 0] if is_in_memory(X) else CountedTable(X, weights)


def lazy_vector(vector: Any) -> Any:
    """Return a vector over rows in blocks as a lazy dask array, anything else unchanged."""
    return vector.to_dask() if isinstance(vector, RowVector) else vector


def cluster_sizes(labels: Any, weights: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight and the number of the first row of each of k clusters.

    Parameters
    ----------
    labels : vector over the rows
        Clusters, 0 to k - 1.
    weights : vector over the rows or None
        Sample weights.
    k : int
        Number of clusters.
    """
    if isinstance(labels, RowVector):
        first = labels.table.ask(FirstRows(labels.recipe, labels.table.n_rows, k))
        return sums_by_label(labels, weights, k), first
    labels = np.asarray(labels).astype(np.intp)
    first = np.full(k, labels.size)
    first[labels[::-1]] = np.arange(labels.size)[::-1]
    return np.bincount(labels, weights, minlength=k), first


def moments_of_sides(rows: RowSource, mask: Any, whole: Moments) -> tuple[Moments, Moments]:
    """Return the moments of the masked rows, and of the other rows, about the centre of `whole`.

    Parameters
    ----------
    rows : RowSource
        The rows.
    mask : bool vector over the rows
        The rows of the first side. In memory, only the rows of the smaller side are read.
    whole : Moments
        Moments of all rows.
    """
    if is_in_memory(mask) and mask.sum() > mask.size / 2:
        others = rows.moments(~mask, center=whole.center)
        return whole - others, others
    side = rows.moments(mask, center=whole.center)
    return side, whole - side


def centered_with_moments(rows: RowSource) -> tuple[RowSource, Moments]:
    """Return the rows centred at their mean, and their moments about it.

    This takes one pass, in which moments about a first guess are moved to the mean. Sparse rows
    and float32 rows in blocks take two.
    """
    return rows.centered_with_moments()


def reweighted(rows: RowSource, weights: Any) -> RowSource:
    """Return the same rows with the same offset and other weights."""
    other: Any = copy.copy(rows)
    other.weights, other._mean = weights, None
    if not isinstance(rows, BlockRows):
        other.total_weight = float(weights.sum())
    return other


def constant_vector(rows: RowSource, value: Any, dtype: Any) -> Any:
    """Return a vector over the rows with the same value for each."""
    if isinstance(rows, BlockRows):
        return rows.table.full(value, dtype)
    return np.full(rows.n_rows, value, dtype=dtype)


def of_rows(X: Any, function: Callable[[Any], np.ndarray], dtype: Any) -> Any:
    """Return the vector that a function computes from the rows.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    function : callable
        Takes some of the rows, dense or CSR, and returns one entry per row. It must be picklable
        for rows in blocks.
    dtype : numpy dtype
        Type of the entries.
    """
    if is_in_memory(X):
        return np.asarray(function(X), dtype=dtype)
    return RowVector(X, OfRows(function, dtype))


def mask_key(mask: Any) -> Any:
    """Return a hashable value that differs for different sets of rows.

    Parameters
    ----------
    mask : bool vector over the rows
        The set. In memory, its key is the mask itself. In blocks, it is the sum of a 64-bit hash
        of each row number, with the number of rows: two different sets have the same key with a
        probability of about 2^-64.
    """
    if not isinstance(mask, RowVector):
        return mask.tobytes()
    numbers = mask.table.row_numbers()
    scrambled = RowVector(mask.table, Apply(scramble, [numbers.recipe]))
    return int((scrambled * mask.astype(np.uint64)).sum()), int(mask.sum())


def scramble(numbers: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each number (the finaliser of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def bin_sums(
    rows: RowSource, w: np.ndarray, low: float, high: float, n_bins: int, labels: Any = None
) -> BinSums:
    """Return sums over the rows in each bin of their scores, in one pass.

    Parameters
    ----------
    rows : RowSource
        The rows.
    w : ndarray of shape (d,)
        Direction whose scores are binned.
    low, high : float
        Start of the first bin and end of the last. Bins have equal widths. Scores beyond these
        limits are counted in the first and the last bin.
    n_bins : int
        Number of bins.
    labels : bool vector over the rows, optional
        Subset of the rows that is also counted separately.

    Returns
    -------
    BinSums
        Weighted sums; `rows` and `labelled` are unweighted counts.
    """
    if isinstance(rows, TiledRows):
        return tiled_bin_sums(rows, w, low, high, n_bins, labels)
    if not isinstance(rows, BlockRows):
        raise TypeError(f"bin_sums takes rows in memory or in blocks, got {type(rows).__name__}.")
    wanted = Binned(
        rows.view,
        as_vector(w, rows.n_features, "w", "feature", rows.dtype),
        (float(low), float(high), int(n_bins)),
        labels=None if labels is None else rows.over_rows(labels, "labels").recipe,
        weights=None if rows.weights is None else rows.weights.recipe,
    )
    return rows.table.ask(wanted)
