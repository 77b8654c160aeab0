"""What works on rows in memory and on rows in blocks alike."""

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
    """Return what `f` returns; all that it asks of rows in blocks is answered by one pass.

    See `RowSource.in_one_pass`.

    Parameters
    ----------
    f : callable
        Asks for sums over the rows, which do not depend on each other.
    *arrays : array, sparse matrix, BlockTable, RowVector or None
        Rows, or vectors over them, that `f` asks.
    """
    prefetch(f, *arrays)
    return f()


def prefetch(f: Callable[[], Any], *arrays: Any) -> None:
    """Let one pass over rows in blocks bring all that `f` asks for (see `RowSource.prefetch`)."""
    for array in arrays:
        table = array.table if isinstance(array, RowVector) else array
        if isinstance(table, BlockTable):
            table.prefetch(f)
            return


def is_in_memory(X: Any) -> bool:
    """Return whether the rows of X, or its entries, are here and not in blocks elsewhere."""
    return not isinstance(X, (BlockTable, RowVector))


def has_sparse_rows(rows: RowSource) -> bool:
    """Return whether rows, in memory or in blocks, are sparse."""
    if not isinstance(rows, BlockRows):
        return isinstance(rows, SparseRows)
    from dask.array.utils import meta_from_array

    return sparse.issparse(meta_from_array(rows.table.rows_of.X))


def take_rows(X: Any, index: np.ndarray) -> Any:
    """Return rows by their numbers, in memory; X itself if these are all its rows.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    index : ndarray of int
        Different numbers, ascending.
    """
    if is_in_memory(X) and index.size == X.shape[0]:
        return X
    return X[index]


def counted_rows(X: Any, weights: Any) -> Any:
    """Return the rows of positive weight, to pick some of them by number.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    weights : vector over the rows or None
        Their weights.
    """
    if weights is None:
        return X
    return X[weights > 0] if is_in_memory(X) else CountedTable(X, weights)


def lazy_vector(vector: Any) -> Any:
    """Return a vector over rows in blocks as a lazy dask array, anything else as it is."""
    return vector.to_dask() if isinstance(vector, RowVector) else vector


def cluster_sizes(labels: Any, weights: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight of each of k clusters, and a number that is smaller for earlier ones.

    The number is that of the cluster's first row.

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
    """Return the moments of the masked rows, and those of the others, about the centre of `whole`.

    Parameters
    ----------
    rows : RowSource
        The rows.
    mask : bool vector over the rows
        One side. In memory only the rows of the smaller one are read.
    whole : Moments
        Those of all rows.
    """
    if is_in_memory(mask) and mask.sum() > mask.size / 2:
        others = rows.moments(~mask, center=whole.center)
        return whole - others, others
    side = rows.moments(mask, center=whole.center)
    return side, whole - side


def centered_with_moments(rows: RowSource) -> tuple[RowSource, Moments]:
    """Return the rows centred at their mean, and their moments about it.

    By one pass, but of sparse rows and of float32 rows in blocks: moments about a first guess are
    moved to the mean.
    """
    return rows.centered_with_moments()


def reweighted(rows: RowSource, weights: Any) -> RowSource:
    """Return the rows as they are seen, about the same offset, with other weights."""
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
    """Return a vector over the rows that a function computes of them.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    function : callable
        Returns an entry for each of some rows, dense or CSR. It travels to blocks by a pickle.
    dtype : numpy dtype
        Of the entries.
    """
    if is_in_memory(X):
        return np.asarray(function(X), dtype=dtype)
    return RowVector(X, OfRows(function, dtype))


def mask_key(mask: Any) -> Any:
    """Return a hashable value that differs for different sets of rows.

    Parameters
    ----------
    mask : bool vector over the rows
        The set. In blocks it is the sum of 64 well mixed bits for each row's number, and the
        number of rows: different sets have the same with a probability of about 2^-64.
    """
    if not isinstance(mask, RowVector):
        return mask.tobytes()
    numbers = mask.table.row_numbers()
    scrambled = RowVector(mask.table, Apply(scramble, [numbers.recipe]))
    return int((scrambled * mask.astype(np.uint64)).sum()), int(mask.sum())


def scramble(numbers: np.ndarray) -> np.ndarray:
    """Return 64 well mixed bits for each number (the finaliser of SplitMix64)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def bin_sums(
    rows: RowSource, w: np.ndarray, low: float, high: float, n_bins: int, labels: Any = None
) -> BinSums:
    """Return sums over the rows of each bin of their scores: one pass.

    Parameters
    ----------
    rows : RowSource
        The rows.
    w : ndarray of shape (d,)
        Direction whose scores are binned.
    low, high : float
        Where the first of the equal bins begins and the last ends; those two take what lies
        beyond as well.
    n_bins : int
        Number of bins.
    labels : bool vector over the rows, optional
        Some of the rows, which are also counted alone.

    Returns
    -------
    BinSums
        Weighted, but for `rows` and `labelled`.
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
