"""Functions of each row, sums by label and quantiles, of vectors in memory and in blocks alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from volmar.rows.blocks.held import HeldRows
from volmar.rows.blocks.ranks import Chosen, LabelSums, block_quantile
from volmar.rows.blocks.recipes import Apply
from volmar.rows.blocks.vector import RowVector

# Share of a level that is rounding: sums in another order must not find another row.
ROUNDING = 1e-9


def row_wise(function: Callable[..., np.ndarray], *arguments: Any) -> Any:
    """Return an array with an entry for each row, which a function computes row by row.

    Parameters
    ----------
    function : callable
        Of a module, so that it can travel to blocks, with a name that says what it computes.
    *arguments : vectors over the rows, and constants
        Arrays of the rows take the places of the vectors. Arrays in memory are constants where
        any of the arguments lies in blocks.
    """
    vectors = [one for one in arguments if isinstance(one, RowVector)]
    if not vectors:
        return function(*arguments)
    table = vectors[0].table
    if any(one.table.rows_of is not table.rows_of for one in vectors):
        raise ValueError("vectors over different rows cannot be put together.")
    recipes = [one.recipe if isinstance(one, RowVector) else one for one in arguments]
    return RowVector(table, Apply(function, recipes))


def sums_by_label(labels: Any, weights: Any, k: int) -> np.ndarray:
    """Return the number of rows with each of the labels 0 to k - 1, or their weight."""
    if isinstance(labels, RowVector):
        of = None if weights is None else weights.recipe
        return labels.table.ask(LabelSums(labels.recipe, of, k))
    return np.bincount(labels, weights, minlength=k)


def column_products(one: Any, two: Any) -> np.ndarray:
    """Return the inner products of the columns of two blocks of columns over the rows."""
    if isinstance(one, RowVector) or isinstance(two, RowVector):
        return (one * two).sum(axis=0)
    return np.einsum("ij,ij->j", one, two)


def weighted_quantile(values: Any, weights: Any, level: float) -> float:
    """Return the smallest entry up to which entries have the weight `level`, or the largest.

    Parameters
    ----------
    values : vector over the rows, float32 or float64
        Of which the quantile is taken. In blocks by two or three passes.
    weights : vector over the rows or None
        Weight of each row, 1 if not given.
    level : float
        Weight, of which a billionth is taken for rounding.
    """
    level *= 1.0 - ROUNDING
    if isinstance(values, RowVector):
        return block_quantile(values, weights, level)
    if weights is None or (weights[0] > 0.0 and np.ptp(weights) == 0.0):
        # No order is needed where all rows weigh the same.
        each = 1.0 if weights is None else float(weights[0])
        rank = int(np.clip(np.ceil(level / each), 1, values.size)) - 1
        return float(np.partition(values, rank)[rank])
    order = np.argsort(values)
    at = int(np.searchsorted(np.cumsum(weights[order]), level))
    return float(values[order[min(at, order.size - 1)]])


def chosen_entries(vector: Any, mask: Any) -> np.ndarray:
    """Return the entries of a vector where a mask is true, in no order: few of them."""
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

    Rows in blocks of these numbers are brought here once, and entries are computed of them.
    """
    if not isinstance(vector, RowVector):
        return vector[::step]
    blocks = vector.table.rows_of
    if step not in blocks.held:
        blocks.held[step] = HeldRows(vector.table, np.arange(0, vector.table.n_rows, step))
    return blocks.held[step].entries(vector)
