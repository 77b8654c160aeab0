"""Rows in blocks with classes: their checks by few passes, and the rows that count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite

from volmar.base.blocks import check_block_weights, check_blocks, check_entries
from volmar.rows import BlockTable, RowSource, RowVector, as_beside, as_rows, in_one_pass, is_dask

__all__ = ["check_classes", "check_labelled_blocks", "class_weights"]


def check_labelled_blocks(
    estimator: Any, X: Any, y: Any, sample_weight: Any, ask_first: Callable[[RowSource], None]
) -> tuple[BlockTable, RowVector, RowVector | None]:
    """Return rows, labels and weights of dask collections, checked but for what the labels are.

    One pass tells that the entries of X are finite, and brings the different labels and what
    `ask_first` asks the row source for. With weights, another before it sees to these and to the
    labels.
    """
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. Give "
            "the labels of two classes."
        )
    table = check_blocks(estimator, X, reset=True)
    labels = as_beside(table, y, "y")
    weights = sample_weight
    if np.ndim(weights) > 0 or is_dask(weights):
        weights = as_beside(table, weights, "sample_weight")

    def ask() -> None:
        ask_first(as_rows(table, sample_weight=weights))
        values = labels.distinct()[0]
        if weights is not None:  # so that an earlier pass has brought the values
            class_weights(labels, weights, values[:2])

    try:
        if weights is not None:
            _, weights = in_one_pass(
                lambda: (labels.distinct(), check_block_weights(table, sample_weight)), table
            )
        check_entries(table, ask)
    except TypeError:
        _check_order(labels)
        raise
    return table, labels, weights


def _check_order(labels: RowVector) -> None:
    """Say so if labels cannot be sorted."""
    try:
        labels.distinct()
    except TypeError as error:
        raise ValueError(
            f"y holds labels that cannot be put in order ({error}): missing ones, or numbers "
            "among strings. Drop rows without a label, and give all labels as strings or all as "
            "integers."
        ) from error


def check_classes(y: Any, check_binary: Callable[[NDArray], None]) -> NDArray:
    """Return the two different labels, sorted; `check_binary` refuses those of other targets."""
    values = y.distinct()[0]
    assert_all_finite(values, input_name="y")
    # A label for each row would look like a regression: every one is shown twice.
    check_binary(np.repeat(values, 2))
    return values


def class_weights(labels: RowVector, weights: RowVector, classes: NDArray) -> NDArray:
    """Return the weight of the rows of each class; `check_labelled_blocks` asked for it."""
    return np.array([(weights * (labels == value)).sum() for value in classes])
