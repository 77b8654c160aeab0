"""Labels of dask collections: checks, counts, and statistics of each cluster in a few passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from volmar.rows import BlockRows, RowSource, RowVector, as_beside, as_table
from volmar.rows.blocks.sums import Distinct, Squares
from volmar.rows.blocks.table import KEPT_BYTES

__all__ = ["check_labelled_blocks", "values_in_few_passes"]

# Minimum number of statistics per pass, of any size. A table caches twice as many.
MIN_PER_PASS = 8

Name = TypeVar("Name")
Value = TypeVar("Value")


def check_labelled_blocks(X: Any, labels: Any) -> tuple[RowSource, RowVector, NDArray, NDArray]:
    """Check the rows and labels of a dask collection in one pass.

    Return the rows (with their mean computed in the same pass), the labels, the sorted distinct
    labels, and the count of each.
    """
    table = as_table(X)
    rows, vector = BlockRows(table), as_beside(table, labels, "labels")
    # The pass subtracts the first guess, and infinity minus infinity would be NaN.
    _require_finite(rows.first_guess())
    try:
        rows.prefetch(lambda: (table.ask(Squares()), rows.mean(), vector.distinct()))
    except TypeError:
        _check_order(vector)
        raise
    _require_finite(table.ask(Squares()))
    names, sizes = vector.distinct()
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise ValueError("labels must not contain NaN or infinity. Drop the unlabelled rows.")
    if names.size > Distinct.most:
        raise ValueError(
            f"labels must have at most {Distinct.most} clusters for a dask collection. Give "
            "labels with fewer clusters, or score a sample in memory."
        )
    return rows, vector, names, sizes


def _require_finite(values: NDArray | float) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            "X contains NaN or infinity (or numbers whose squares overflow). Drop or fill such "
            "rows, or scale X."
        )


def _check_order(labels: RowVector) -> None:
    """Raise a clear error if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise TypeError(
            f"labels must be of one type, got a mixture that cannot be sorted ({error}). Drop the "
            "unlabelled rows, and convert all labels to strings or to integers."
        ) from error


def values_in_few_passes(
    rows: RowSource, value: Callable[[Name], Value], names: Sequence[Name] | NDArray, size: int
) -> list[Value]:
    """Return a statistic of the rows for each name, in as few passes as possible.

    `value` computes the statistic of a name by requests to `rows`. A pass computes only as many
    statistics, of `size` bytes each, as the cache of a table holds; others would be computed
    again, one by one.
    """
    step = max(MIN_PER_PASS, KEPT_BYTES // (2 * size))
    found: list[Value] = []
    for first in range(0, len(names), step):
        some = names[first : first + step]
        found += rows.in_one_pass(partial(_each, value, some))
    return found


def _each(value: Callable[[Name], Value], names: Sequence[Name] | NDArray) -> list[Value]:
    return [value(name) for name in names]
