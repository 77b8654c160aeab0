"""Estimators on dask collections: checks by a pass, lazy predictions, and who can take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from volmar._weights import (
    WeightUnit,
    check_weight_range,
    in_weight_unit,
    positive_weights,
    rescaled_sample_weight,
)
from volmar.base.validation import check_start_labels
from volmar.rows import (
    BlockRows,
    BlockTable,
    RowSource,
    RowVector,
    as_beside,
    as_rows,
    as_table,
    is_dask,
    is_in_memory,
    lazy_vector,
    row_wise,
)
from volmar.rows.blocks.sums import Squares

# Who takes rows in blocks; the rest would need all pairs of rows, or all rows at once.
CAN = "MSPC, CPMMC, SKMMC, KernelCPMMC(method='nystroem') and MinimaxProbabilityMachine"


class RefusedBlocksError(TypeError):
    """An estimator, or its parameters, needs all rows at once."""


def refuse_blocks(name: str, why: str = "") -> None:
    """Say that an estimator, or its parameters, cannot take a dask collection, and who can."""
    reason = why or f"{name} needs all rows at once"
    raise RefusedBlocksError(
        f"{name} cannot take a dask array or DataFrame here: {reason}. {CAN} "
        "can; or fit a sample in memory, X[:100_000].compute() say, and predict the rest, "
        "which takes a dask array."
    )


def require_in_memory(X: Any, name: str, why: str = "") -> None:
    """Refuse rows in blocks, see `refuse_blocks`."""
    if not is_in_memory(X):
        refuse_blocks(name, why)


def check_blocks(estimator: Any, X: Any, *, reset: bool) -> BlockTable:
    """Return the table of a dask collection, after checks of its shape; see `check_entries`."""
    names = getattr(X, "columns", None)
    table = as_table(X)
    n, d = table.shape
    if reset:
        estimator.n_features_in_ = d
        if names is not None and all(isinstance(name, str) for name in names):
            estimator.feature_names_in_ = np.asarray(names, dtype=object)
    if n < 2:
        raise ValueError(f"X has n_samples={n} row, and at least 2 are needed to cluster.")
    return table


def check_entries(table: BlockTable, ask_more: Callable[[], None]) -> None:
    """Refuse NaN, infinity and entries out of range; the pass also answers `ask_more`."""
    BlockRows(table).first_guess()

    def ask() -> None:
        table.ask(Squares())
        ask_more()

    table.prefetch(ask)
    square = table.ask(Squares())
    if not np.isfinite(square):
        raise ValueError(
            "X contains NaN or infinity (or numbers whose squares are), seen in a pass over its "
            "blocks. Drop or fill such rows, e.g. by X.dropna() of a dask DataFrame, or scale X."
        )
    limits = np.finfo(table.dtype)
    high, low = float(np.sqrt(limits.max)) * 1e-4, float(np.sqrt(limits.tiny)) * 1e4
    size = float(np.sqrt(square))
    if size > high or 0 < size < low:
        raise ValueError(
            f"the entries of X have a sum of squares of {square:.3g}, too near the limits of "
            f"{table.dtype}. Scale X to between {low:.0g} and {high:.0g}."
        )


def check_weights(X: Any, sample_weight: Any, ask_first: Callable[[RowSource], None]) -> Any:
    """Return the weights of validated rows, in their `WeightUnit`, or None.

    Of rows in blocks the entries are checked, too, and the same pass brings what `ask_first` asks
    for, with which the fit begins.
    """
    if is_in_memory(X):
        return rescaled_sample_weight(sample_weight, X.shape[0])
    weights = check_block_weights(X, sample_weight)
    check_entries(X, lambda: ask_first(as_rows(X, sample_weight=weights)))
    return weights


def check_block_weights(table: BlockTable, sample_weight: Any) -> RowVector | None:
    """Return weights as a vector over the rows, in float64, or None for equal weights.

    They are in their `WeightUnit`, as those in memory.
    """
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
    """Return start labels of k clusters as 0 to k - 1."""
    given = as_beside(X, labels, name)
    values = given.distinct()[0]
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"{name} holds NaN, which is no label. Give every row a label.")
    if values.size != k:
        raise ValueError(f"{name} must hold n_clusters={k} different labels, got {values.size}.")
    return row_wise(np.searchsorted, values, given)


def given_start(name: str, labels: Any, X: Any, k: int) -> Any:
    """Return start labels that a user gave as 0 to k - 1.

    X is a matrix of rows, or a vector over them, in memory or in blocks.
    """
    if is_in_memory(X):
        return check_start_labels(name, labels, X.shape[0], k)
    return check_block_labels(name, X, labels, k)


def is_dask_frame(X: Any) -> bool:
    """Whether X is a dask DataFrame, whose predictions have its index and partitions."""
    return is_dask(X) and hasattr(X, "to_dask_array")


def is_dask_series(y: Any) -> bool:
    """Whether y is a dask Series, with an index and partitions."""
    return is_dask(y) and hasattr(y, "to_frame") and y.ndim == 1


def lazily(estimator: Any, method: str, X: Any, **options: Any) -> Any:
    """Return what a method, with options, makes of the blocks of X, without computing it.

    Of a dask array it is a dask array in the same blocks. Of a dask DataFrame it is a dask Series
    (or a DataFrame, with a column for each cluster) with the same index and partitions, which
    ``X.assign`` takes.
    """
    frame = X if is_dask_frame(X) else None
    if frame is not None:
        names = list(getattr(X, "columns", []))
        seen = getattr(estimator, "feature_names_in_", None)
        if seen is not None and names != list(seen):
            raise ValueError(
                "X must have the columns that fit has seen, in the same order: "
                f"{_shown(seen)}; got {_shown(names)}."
            )
        X = X.to_dask_array()
    if X.dtype.kind not in "biuf":
        raise TypeError(f"X must hold real numbers, got a dask array of dtype {X.dtype}.")
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X must have the {estimator.n_features_in_} features that fit has seen, got shape "
            f"{X.shape}."
        )
    # Those that take rows in blocks predict without them; others may need what they have of each.
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
    """A method of an estimator on a block, of which some may be empty."""

    def __init__(self, estimator: Any, method: str, few: np.ndarray, options: dict[str, Any]):
        self.estimator, self.method, self.few, self.options = estimator, method, few, options

    def __call__(self, block: Any) -> np.ndarray:
        if block.shape[0] == 0:
            return self.few[:0]
        return getattr(self.estimator, self.method)(block, **self.options)

    def of_frame(self, part: Any) -> Any:
        """Return what a partition gives, beside its index."""
        import pandas as pd

        found = self(part.to_numpy())
        kind = pd.Series if found.ndim == 1 else pd.DataFrame
        return kind(found, index=part.index)


def with_dask_vectors(result: Any) -> Any:
    """Return a result whose vectors over rows in blocks are lazy dask arrays."""
    values = {one.name: getattr(result, one.name) for one in fields(result)}
    found = {name: lazy_vector(value) for name, value in values.items()}
    changed = {name: value for name, value in found.items() if value is not values[name]}
    return replace(result, **changed) if changed else result


def without_vectors(estimator: Any) -> Any:
    """Return a copy that still predicts, without what has an entry for each training row."""
    light = _copied(estimator)
    labels = vars(light).pop("labels_", None)
    if labels is not None and is_dataclass(getattr(light, "result_", None)):
        n = labels.shape[0] if isinstance(labels, np.ndarray) else None
        values = {one.name: getattr(light.result_, one.name) for one in fields(light.result_)}
        longs = {
            name: np.empty(0)
            for name, value in values.items()
            if is_dask(value) or (isinstance(value, np.ndarray) and value.shape[:1] == (n,))
        }
        light.result_ = replace(light.result_, **longs)
    return light


def _copied(estimator: Any) -> Any:
    """Return a shallow copy; copy.copy would ask __getstate__, which asks here."""
    copied = object.__new__(type(estimator))
    vars(copied).update(vars(estimator))
    return copied


def _shown(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
