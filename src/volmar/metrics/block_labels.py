"""Labels of rows in blocks: checked, counted, and figures of each cluster by few passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from volmar.rows import BlockRows, RowSource, RowVector, as_beside, as_table
from volmar.rows.blocks.sums import Distinct, Squares
from volmar.rows.blocks.table import KEPT_BYTES

__all__ = ["check_labelled_blocks", "figures_at_once"]

# Figures that one pass brings, however large: a table keeps twice as many.
LEAST_FIGURES = 8

Name = TypeVar("Name")
Figure = TypeVar("Figure")


def check_labelled_blocks(X: Any, labels: Any) -> tuple[RowSource, RowVector, NDArray, NDArray]:
    """Return the rows of a dask collection with their labels, after a pass that checks both.

    The rows (the pass has also brought their mean), the labels, the different labels in order, and
    how often each is there.
    """
    table = as_table(X)
    rows, vector = BlockRows(table), as_beside(table, labels, "labels")
    # Infinity in the first rows would be taken off infinity in the pass.
    _require_finite(rows.first_guess())
    try:
        rows.prefetch(lambda: (table.ask(Squares()), rows.mean(), vector.distinct()))
    except TypeError:
        _check_order(vector)
        raise
    _require_finite(table.ask(Squares()))
    names, sizes = vector.distinct()
    if names.dtype.kind == "f" and not np.isfinite(names).all():
        raise ValueError("labels must not contain NaN or infinity; drop the unlabelled points.")
    if names.size > Distinct.most:
        raise ValueError(
            f"labels name more than {Distinct.most} clusters, too many for rows in blocks; give "
            "labels of fewer clusters, or score a sample in memory."
        )
    return rows, vector, names, sizes


def _require_finite(figures: NDArray | float) -> None:
    if not np.isfinite(figures).all():
        raise ValueError(
            "X contains NaN or infinity (or numbers whose squares are), seen in a pass over its "
            "blocks; drop or fill such rows, or scale X."
        )


def _check_order(labels: RowVector) -> None:
    """Say so if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise TypeError(
            f"labels must be labels of one kind, got a mixture that cannot be sorted ({error}); "
            "drop the unlabelled points, and convert all to strings or to integers."
        ) from error


def figures_at_once(
    rows: RowSource, figure: Callable[[Name], Figure], names: Sequence[Name] | NDArray, size: int
) -> list[Figure]:
    """Return a value of the rows for each name, by few passes.

    `figure` computes the value of a name by asking `rows`. More values than a table keeps, by
    their `size` in bytes, would be asked for again one by one.
    """
    step = max(LEAST_FIGURES, KEPT_BYTES // (2 * size))
    found: list[Figure] = []
    for first in range(0, len(names), step):
        some = names[first : first + step]
        found += rows.in_one_pass(partial(_each, figure, some))
    return found


def _each(figure: Callable[[Name], Figure], names: Sequence[Name] | NDArray) -> list[Figure]:
    return [figure(name) for name in names]
