"""Row-wise functions, sums by label and quantiles, for vectors in memory and in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volmar.rows.blocks.held import HeldRows
from volmar.rows.blocks.ranks import Chosen, LabelSums, block_quantile
from volmar.rows.blocks.recipes import Apply
from volmar.rows.blocks.vector import RowVector

# Relative tolerance of a level, so that the order of summation does not change the row found.
ROUNDING = 1e-9


def row_wise(function: Callable[..., np.ndarray], *arguments: Any) -> Any:
    """Return an array with one entry per row, computed row by row by a function.

    Parameters
    ----------
    function : callable
        Function of a module, so that it can be pickled for blocks. Results in blocks are cached by
        its name: functions that differ must have different names.
    *arguments : vectors over the rows, and constants
        Arguments of the function, which receives arrays in place of vectors in blocks. If any
        argument is in blocks, arrays in memory are constants.
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

    Parameters
    ----------
    values : vector over the rows, float32 or float64
        The values. In blocks, the quantile takes two or three passes.
    weights : vector over the rows or None
        Sample weights. If None, each row has weight 1.
    level : float
        Total weight to reach, with a relative tolerance of 1e-9 for rounding.
    """
    level *= 1.0 - ROUNDING
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
