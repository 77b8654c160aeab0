"""Functions for rows in memory and in blocks: conversion, sums, draws."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import sparse

from volmar._memory import require_memory
from volmar.rows.blocks.ranks import Chosen, FirstRows, LabelSums, block_quantile
from volmar.rows.blocks.recipes import Apply, OfRows
from volmar.rows.blocks.sums import Binned
from volmar.rows.blocks.table import (
    BlockRows,
    BlockTable,
    CountedTable,
    HeldRows,
    as_beside,
    as_dask_array,
    as_table,
    is_dask,
    with_sizes,
)
from volmar.rows.blocks.vector import RowVector
from volmar.rows.protocol import FeatureMap, Moments, RowSource, ScoringMap, as_vector
from volmar.rows.tiled import BinSums, DenseRows, MappedRows, SparseRows, TiledRows, tiled_bin_sums

# ---------------------- conversion of arrays, sparse matrices and dask collections to row sources


# Maximum size of a feature matrix that is held in memory.
FEATURE_BYTES = 2**28


def as_rows(X: Any, *, sample_weight: Any = None) -> RowSource:
    """Return the row source of an array, a sparse matrix or a dask collection.

    float32 and float64 arrays in C or Fortran order are used without a copy. Integers are
    converted to float64, and sparse formats to CSR. NaN and infinity are not checked.
    """
    if isinstance(X, BlockTable) or is_dask(X):
        table = as_table(X)
        if sample_weight is None:
            return BlockRows(table)
        return BlockRows(table, as_beside(table, sample_weight, "sample_weight"))
    if sparse.issparse(X):
        return SparseRows(X, sample_weight=sample_weight)
    return DenseRows(X, sample_weight=sample_weight)


def features_of(feature_map: FeatureMap, X: Any) -> Any:
    """Return the features of the rows of X, as an array or as a table in the blocks of X."""
    if isinstance(X, BlockTable):
        return X.mapped(feature_map)
    n, size = X.shape[0], feature_map.transform(X[:1]).nbytes
    require_memory(
        2.0 * n * size,
        f"{size // X.dtype.itemsize} features of {n} rows",
        "Use fewer landmarks, or cluster a sample and use predict for the rest.",
    )
    return feature_map.transform(X)


def mapped_scores(feature_map: FeatureMap, X: Any, w: np.ndarray) -> Any:
    """Return the products of w with the features of the rows of X, computed tile by tile."""
    if isinstance(X, BlockTable):
        return as_rows(X.mapped(feature_map)).scores(w)
    if isinstance(feature_map, ScoringMap):
        return feature_map.scores(X, w)
    return MappedRows(X, feature_map).scores(w)


def mapped_rows(feature_map: FeatureMap, X: Any, *, sample_weight: Any = None) -> RowSource:
    """Return the row source of the features of the rows of X.

    Feature matrices of up to 256 MB are held in memory. Larger ones, and features of rows in
    blocks, are computed in every pass.
    """
    if isinstance(X, BlockTable):
        return as_rows(X.mapped(feature_map), sample_weight=sample_weight)
    width = feature_map.transform(X[:1]).shape[1]
    if X.shape[0] * width * X.dtype.itemsize > FEATURE_BYTES:
        return MappedRows(X, feature_map, sample_weight=sample_weight)
    return as_rows(feature_map.transform(X), sample_weight=sample_weight)


def scale_gamma(X: Any, sample_weight: Any = None) -> float:
    """Return scikit-learn's gamma="scale": 1 / (n_features * variance of all entries of X)."""
    rows = as_rows(X, sample_weight=sample_weight)
    # Variance within the features plus variance between their means.
    within = rows.centered().mean_squared_norm() / rows.n_features
    variance = within + float(rows.mean().var())
    return 1.0 / (rows.n_features * variance) if variance > 0 else 1.0


# ------------------------------------ functions that work on rows in memory and on rows in blocks


Values = TypeVar("Values")


def in_one_pass(f: Callable[[], Values], *arrays: Any) -> Values:
    """Return ``f()``, with all its requests to rows in blocks answered by one pass.

    See `RowSource.in_one_pass`.
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
    """Return the rows with the given numbers, in memory, or X itself if these are all rows."""
    if is_in_memory(X) and index.size == X.shape[0]:
        return X
    return X[index]


def counted_rows(X: Any, weights: Any) -> Any:
    """Return the rows of positive weight, from which rows can be selected by number."""
    if weights is None:
        return X
    return X[weights > 0] if is_in_memory(X) else CountedTable(X, weights)


def lazy_vector(vector: Any) -> Any:
    """Return a vector over rows in blocks as a lazy dask array, anything else unchanged."""
    return vector.to_dask() if isinstance(vector, RowVector) else vector


def cluster_sizes(labels: Any, weights: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight and the number of the first row of each of k clusters."""
    if isinstance(labels, RowVector):
        first = labels.table.ask(FirstRows(labels.recipe, labels.table.n_rows, k))
        return sums_by_label(labels, weights, k), first
    labels = np.asarray(labels).astype(np.intp)
    first = np.full(k, labels.size)
    first[labels[::-1]] = np.arange(labels.size)[::-1]
    return np.bincount(labels, weights, minlength=k), first


def moments_of_sides(rows: RowSource, mask: Any, whole: Moments) -> tuple[Moments, Moments]:
    """Return the moments of masked rows, and of the other rows, about the centre of `whole`."""
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

    The function takes some of the rows, dense or CSR, and must be picklable for rows in blocks.
    """
    if is_in_memory(X):
        return np.asarray(function(X), dtype=dtype)
    return RowVector(X, OfRows(function, dtype))


def mask_key(mask: Any) -> Any:
    """Return a hashable value that differs for different sets of rows.

    In memory it is the mask itself. In blocks it is the sum of a 64-bit hash of each row number,
    with the number of rows: two different sets have the same key with a probability of about
    2^-64.
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

    The bins between `low` and `high` have equal widths. Scores beyond these limits are counted in
    the first and the last bin. The rows of the mask `labels` are also counted separately.
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


# ----------- row-wise functions, sums by label and quantiles, for vectors in memory and in blocks


def row_wise(function: Callable[..., np.ndarray], *arguments: Any) -> Any:
    """Return an array with one entry per row, computed row by row by a function.

    Results in blocks are cached by the name of the function: functions that differ must have
    different names, and be picklable. If any argument is in blocks, arrays in memory are
    constants.
    """
    vectors = [one for one in arguments if isinstance(one, RowVector)]
    if not vectors:
        return function(*arguments)
    table = vectors[0].table
    if any(one.table.rows_of is not table.rows_of for one in vectors):
        raise ValueError("vectors over different rows cannot be combined.")
    recipes = [one.recipe if isinstance(one, RowVector) else one for one in arguments]
    return RowVector(table, Apply(function, recipes))


def sums_by_label(labels: Any, weights: Any, k: int) -> np.ndarray:
    """Return the number of rows, or their total weight, for each label from 0 to k - 1."""
    if isinstance(labels, RowVector):
        of = None if weights is None else weights.recipe
        return labels.table.ask(LabelSums(labels.recipe, of, k))
    return np.bincount(labels, weights, minlength=k)


def column_products(one: Any, two: Any) -> np.ndarray:
    """Return the inner product of each column of one array with the same column of another."""
    if isinstance(one, RowVector) or isinstance(two, RowVector):
        return (one * two).sum(axis=0)
    return np.einsum("ij,ij->j", one, two)


def weighted_quantile(values: Any, weights: Any, level: float) -> float:
    """Return the smallest entry such that entries up to it have a total weight of `level`.

    If the total weight is smaller, the largest entry is returned.
    """
    level *= 1.0 - 1e-9  # so that the order of summation does not change the row found
    if isinstance(values, RowVector):
        return block_quantile(values, weights, level)
    if weights is None or (weights[0] > 0.0 and np.ptp(weights) == 0.0):
        # Equal weights need no complete sort.
        each = 1.0 if weights is None else float(weights[0])
        rank = int(np.clip(np.ceil(level / each), 1, values.size)) - 1
        return float(np.partition(values, rank)[rank])
    order = np.argsort(values)
    at = int(np.searchsorted(np.cumsum(weights[order]), level))
    return float(values[order[min(at, order.size - 1)]])


def chosen_entries(vector: Any, mask: Any) -> np.ndarray:
    """Return the entries of a vector for which a mask is True, in no particular order.

    The entries are brought into memory, so the mask should select only a few.
    """
    if isinstance(vector, RowVector):
        return vector.table.ask(Chosen(vector.recipe, mask.recipe))
    return vector[mask]


def numbers_of_rows(vector: Any) -> Any:
    """Return the number of each row of a vector, from 0, as 64-bit unsigned integers."""
    if isinstance(vector, RowVector):
        return vector.table.row_numbers()
    return np.arange(len(vector), dtype=np.uint64)


def every(vector: Any, step: int) -> np.ndarray:
    """Return every step-th entry of a vector.

    For a vector in blocks, the rows themselves are brought into memory once and reused for other
    vectors.
    """
    if not isinstance(vector, RowVector):
        return vector[::step]
    blocks = vector.table.rows_of
    if step not in blocks.held:
        blocks.held[step] = HeldRows(vector.table, np.arange(0, vector.table.n_rows, step))
    return blocks.held[step].entries(vector)


# ------------------------------- random draws of rows, which are the same in memory and in blocks


def drawn_rows(n_rows: int, weights: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of positive weight without replacement.

    The draw depends on the generator, on `n_rows` and on the positions of zero weights, but not on
    the division of the rows into blocks.
    """
    size = n_rows if weights is None else int(np.count_nonzero(weights))
    is_part = size > count
    ranks = np.sort(rng.choice(size, count, replace=False)) if is_part else np.arange(size)
    if weights is None:
        return ranks
    if isinstance(weights, RowVector):
        return (weights > 0).first_beyond(ranks)
    return np.flatnonzero(weights)[ranks]


def drawn_by_weight(n_rows: int, weights: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows with probabilities proportional to their weights, with replacement.

    Without weights, rows are drawn without replacement. The draw does not depend on the division
    of the rows into blocks.
    """
    if weights is None:
        return drawn_rows(n_rows, None, count, rng)
    return first_beyond(weights, np.sort(rng.random(count)) * float(weights.sum()))


def first_beyond(weights: Any, targets: np.ndarray) -> np.ndarray:
    """Return for each target the first row at which the cumulative weight exceeds it.

    If the total weight does not exceed a target, it is the last row of positive weight.
    """
    if isinstance(weights, RowVector):
        return weights.first_beyond(targets)
    found = np.searchsorted(np.cumsum(weights), targets, side="right")
    return np.minimum(found, np.flatnonzero(weights)[-1])


# ----------------------------------------- random samples of rows of a dask collection, in memory


# Default number of rows that are drawn from a dask collection.
COLLECTION_ROWS = 20_000


class DrawnRows(NamedTuple):
    """Rows in memory with their labels or names, their numbers, and the number of all rows."""

    rows: Any
    beside: tuple[Any, ...]
    numbers: np.ndarray
    n_rows: int


def draw_from_collection(X: Any, *beside: Any, seed: int, most: int | None = None) -> DrawnRows:
    """Draw random rows of a dask array or DataFrame, independently of its chunks.

    `beside` are labels or names of the rows, of which the drawn ones are returned, too.
    """
    is_frame = hasattr(X, "columns")
    lengths = _lengths(X) if is_frame else np.array(with_sizes(X).chunks[0])
    n = int(lengths.sum())
    count = COLLECTION_ROWS if most is None else most
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(n, count, replace=False)) if n > count else np.arange(n)
    rows = _rows_of_frame(X, lengths, numbers) if is_frame else _picked(X, numbers, n)
    return DrawnRows(rows, tuple(_picked(one, numbers, n) for one in beside), numbers, n)


def count_labels(labels: Any) -> dict[Any, int]:
    """Return the number of rows with each label of a dask collection or an array."""
    labels = as_dask_array(labels)
    if not is_dask(labels):
        return _counted(np.asarray(labels))
    import dask

    found: dict[Any, int] = {}
    for part in dask.compute([dask.delayed(_counted)(one) for one in labels.to_delayed()])[0]:
        for label, count in part.items():
            found[label] = found.get(label, 0) + count
    return found


def _counted(labels: np.ndarray) -> dict[Any, int]:
    names, counts = np.unique(labels, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _lengths(frame: Any) -> np.ndarray:
    import dask

    parts = [dask.delayed(len)(part) for part in frame.to_delayed()]
    return np.array(dask.compute(parts)[0], dtype=np.int64)


def _rows_of_frame(frame: Any, lengths: np.ndarray, numbers: np.ndarray) -> Any:
    import dask
    import pandas as pd

    ends = np.cumsum(lengths)
    places = np.split(numbers, np.searchsorted(numbers, ends[:-1]))
    take = dask.delayed(_taken)
    parts = [
        take(part, some - (end - length))
        for part, some, end, length in zip(frame.to_delayed(), places, ends, lengths, strict=True)
        if some.size
    ]
    return pd.concat(dask.compute(parts)[0])


def _taken(part: Any, places: np.ndarray) -> Any:
    return part.iloc[places]


def _picked(array: Any, numbers: np.ndarray, n: int) -> Any:
    """Return the entries or rows with the given numbers, or None if `array` is None."""
    if array is None:
        return None
    array = as_dask_array(array)
    array = with_sizes(array) if is_dask(array) else np.asarray(array)
    if array.shape[:1] != (n,):
        raise ValueError(
            f"there must be one entry for each of the {n} rows, got shape {array.shape}."
        )
    found = array[numbers]
    return found.compute() if is_dask(found) else found
