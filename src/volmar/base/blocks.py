"""Estimators on dask collections: checks, lazy predictions, and errors if not supported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from volmar._warn import warn_user
from volmar._weights import (
    WeightUnit,
    check_weight_range,
    in_weight_unit,
    positive_weights,
    rescaled_sample_weight,
)
from volmar.base.validation import check_start_labels
from volmar.rows.anywhere import as_rows, is_in_memory, lazy_vector, row_wise
from volmar.rows.blocks import BlockRows, BlockTable, RowVector, as_beside, as_table, is_dask
from volmar.rows.blocks.sums import Squares
from volmar.rows.protocol import RowSource

# Estimators that support dask collections. The others need all rows, or all pairs, in memory.
CAN = "MSPC, CPMMC, SKMMC, KernelCPMMC(method='nystroem') and MinimaxProbabilityMachine"


class RefusedBlocksError(TypeError):
    """Raised if an estimator with its parameters does not support dask collections."""


def refuse_blocks(name: str, why: str = "") -> None:
    """Raise an error for a dask collection that lists the estimators that support one."""
    reason = why or f"{name} needs all rows at once"
    raise RefusedBlocksError(
        f"{name} cannot take a dask array or DataFrame here: {reason}. {CAN} support them. Or fit "
        "a sample in memory, for example X[:100_000].compute(), and call predict with the dask "
        "collection."
    )


def require_in_memory(X: Any, name: str, why: str = "") -> None:
    """Raise an error if X is a dask collection, see `refuse_blocks`."""
    if not is_in_memory(X):
        refuse_blocks(name, why)


def check_blocks(estimator: Any, X: Any, *, reset: bool) -> BlockTable:
    """Check the shape of a dask collection and return its table; see also `check_entries`."""
    names = getattr(X, "columns", None)
    table = as_table(X)
    n, d = table.shape
    if reset:
        estimator.n_features_in_ = d
        if names is not None and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
    if n < 2:
        raise ValueError(f"X has n_samples={n} row. At least 2 rows are needed to cluster.")
    return table


def check_entries(table: BlockTable, ask_more: Callable[[], None]) -> None:
    """Raise an error for NaN, infinity and entries out of range.

    The same pass over the data also computes the requests made by `ask_more`.
    """
    BlockRows(table).first_guess()

    def ask() -> None:
        table.ask(Squares())
        ask_more()

    table.prefetch(ask)
    square = table.ask(Squares())
    if not np.isfinite(square):
        raise ValueError(
            "X contains NaN or infinity (or numbers whose squares overflow). Drop or fill such "
            "rows, for example with X.dropna() of a dask DataFrame, or scale X."
        )
    limits = np.finfo(table.dtype)
    high, low = float(np.sqrt(limits.max)) * 1e-4, float(np.sqrt(limits.tiny)) * 1e4
    size = float(np.sqrt(square))
    if size > high or 0 < size < low:
        raise ValueError(
            f"the sum of squares of X is {square:.3g}, too close to the limits of {table.dtype}. "
            f"Scale X so that its norm is between {low:.0g} and {high:.0g}."
        )


def check_weights(X: Any, sample_weight: Any, ask_first: Callable[[RowSource], None]) -> Any:
    """Return the weights of validated rows, in their `WeightUnit`, or None.

    For a dask collection, the entries of X are checked as well. The same pass computes the
    statistics requested by `ask_first`, which the fit needs first.
    """
    if is_in_memory(X):
        return rescaled_sample_weight(sample_weight, X.shape[0])
    weights = check_block_weights(X, sample_weight)
    check_entries(X, lambda: ask_first(as_rows(X, sample_weight=weights)))
    return weights


def check_block_weights(table: BlockTable, sample_weight: Any) -> RowVector | None:
    """Return weights as a lazy float64 vector in their `WeightUnit`, or None if not given."""
    if sample_weight is None:
        return None
    if np.ndim(sample_weight) == 0 and not is_dask(sample_weight):
        weights = table.full(float(sample_weight), np.float64)
    else:
        weights = as_beside(table, sample_weight, "sample_weight")
    if weights.dtype.kind not in "biuf":
        raise TypeError(f"sample_weight must hold real numbers, got dtype {weights.dtype}.")
    weights = weights.astype(np.float64)
    positive = row_wise(positive_weights, weights)
    table.prefetch(
        lambda: (weights.min(), weights.sum(), np.count_nonzero(weights), positive.min())
    )
    low, high = float(weights.min()), float(weights.max())
    check_weight_range(low, high)
    unit = WeightUnit.of(high)
    if unit.keeps(float(positive.min())):
        return weights
    return row_wise(in_weight_unit, weights, unit)


def check_block_labels(name: str, X: Any, labels: Any, k: int = 2) -> RowVector:
    """Return start labels of k clusters as a lazy vector of integers 0 to k - 1."""
    given = as_beside(X, labels, name)
    values = given.distinct()[0]
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"{name} holds NaN, which is not a label. Give every row a label.")
    if values.size != k:
        raise ValueError(f"{name} must hold n_clusters={k} different labels, got {values.size}.")
    return row_wise(np.searchsorted, values, given)


def given_start(name: str, labels: Any, X: Any, k: int) -> Any:
    """Return the user's start labels as integers 0 to k - 1.

    X is a matrix of rows, or a vector with one entry per row, in memory or in dask blocks.
    """
    if is_in_memory(X):
        return check_start_labels(name, labels, X.shape[0], k)
    return check_block_labels(name, X, labels, k)


def is_dask_frame(X: Any) -> bool:
    """Return whether X is a dask DataFrame. Its predictions keep index and partitions."""
    return is_dask(X) and hasattr(X, "to_dask_array")


def is_dask_series(y: Any) -> bool:
    """Return whether y is a dask Series, with an index and partitions."""
    return is_dask(y) and hasattr(y, "to_frame") and y.ndim == 1


def lazily(estimator: Any, method: str, X: Any, **options: Any) -> Any:
    """Return the lazy result of a method, with options, on the blocks of X.

    For a dask array, the result is a dask array in the same blocks. For a dask DataFrame, it is a
    dask Series (or a DataFrame with one column per cluster) with the same index and partitions,
    which can be passed to ``X.assign``.
    """
    frame = X if is_dask_frame(X) else None
    if frame is not None:
        names = list(getattr(X, "columns", []))
        seen = getattr(estimator, "feature_names_in_", None)
        if seen is not None and names != list(seen):
            raise ValueError(
                "X must have the columns seen in fit, in the same order. "
                f"Expected {_shown(seen)}; got {_shown(names)}."
            )
        X = X.to_dask_array()
    elif hasattr(estimator, "feature_names_in_"):
        # As scikit-learn warns in memory: columns in another order cannot be detected.
        warn_user(
            "X does not have valid feature names, but "
            f"{type(estimator).__name__} was fitted with feature names. Pass a dask DataFrame "
            "with these columns."
        )
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must hold real numbers, got a dask array of dtype {X.dtype}.")
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X must have the {estimator.n_features_in_} features seen in fit, got shape "
            f"{X.shape}."
        )
    # Estimators that support dask predict without values per training row; others may need them.
    is_light = getattr(estimator, "_takes_blocks", False)
    light = without_vectors(estimator) if is_light else _copied(estimator)
    vars(light).pop("feature_names_in_", None)  # blocks are arrays
    floating = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    few = getattr(light, method)(np.zeros((1, X.shape[1]), dtype=floating), **options)
    call = _BlockCall(light, method, few, options)
    if frame is not None:
        from dask.dataframe.utils import make_meta

        return frame.map_partitions(call.of_frame, meta=call.of_frame(make_meta(frame)))
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    if few.ndim == 1:
        return X.map_blocks(call, dtype=few.dtype, drop_axis=1, meta=np.empty(0, few.dtype))
    chunks = (X.chunks[0], (few.shape[1],))
    return X.map_blocks(call, dtype=few.dtype, chunks=chunks, meta=np.empty((0, 0), few.dtype))


class _BlockCall:
    """A method of an estimator applied to a block, which may be empty."""

    def __init__(self, estimator: Any, method: str, few: np.ndarray, options: dict[str, Any]):
        self.estimator, self.method, self.few, self.options = estimator, method, few, options

    def __call__(self, block: Any) -> np.ndarray:
        if block.shape[0] == 0:
            return self.few[:0]
        return getattr(self.estimator, self.method)(block, **self.options)

    def of_frame(self, part: Any) -> Any:
        """Return the result for a partition, with its index."""
        import pandas as pd

        found = self(part.to_numpy())
        kind = pd.Series if found.ndim == 1 else pd.DataFrame
        return kind(found, index=part.index)


def with_dask_vectors(result: Any) -> Any:
    """Return a result with lazy dask arrays in place of internal block vectors."""
    values = {one.name: getattr(result, one.name) for one in fields(result)}
    found = {name: lazy_vector(value) for name, value in values.items()}
    changed = {name: value for name, value in found.items() if value is not values[name]}
    return replace(result, **changed) if changed else result


def without_vectors(estimator: Any) -> Any:
    """Return a copy that can predict, without arrays that have one entry per training row."""
    light = _copied(estimator)
    labels = vars(light).pop("labels_", None)
    if labels is not None and is_dataclass(getattr(light, "result_", None)):
        n = labels.shape[0] if isinstance(labels, np.ndarray) else None
        values = {one.name: getattr(light.result_, one.name) for one in fields(light.result_)}
        longs = {
            name: np.empty(0)
            for name, value in values.items()
            if is_dask(value) or (isinstance(value, np.ndarray) and value.shape[:1] == (n,))
            # Entries are those of clusters, of which there may be as many as rows.
            if name not in ("centers", "shares", "divisors")
        }
        light.result_ = replace(light.result_, **longs)
    return light


def _copied(estimator: Any) -> Any:
    """Return a shallow copy. copy.copy would call __getstate__, which calls this function."""
    copied = object.__new__(type(estimator))
    vars(copied).update(vars(estimator))
    return copied


def _shown(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
