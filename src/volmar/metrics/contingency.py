"""Labels of any type as integer codes, and the contingency table of two labellings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._memory import require_memory
from volmar._weights import check_sample_weight


def encode_labels(
    labels: ArrayLike, name: str, n_rows: int | None = None
) -> tuple[NDArray[np.intp], int]:
    """Return the codes 0 to k - 1 of the labels, in sorted order, and k.

    `name` is used in error messages. If `n_rows` is given, there must be as many labels.
    """
    found = as_array(labels, name)
    if found.ndim != 1 or found.size == 0:
        raise ValueError(
            f"{name} must hold one label per row, got an array of shape {found.shape}. Pass a "
            "one-dimensional array with at least one label."
        )
    if n_rows is not None and found.size != n_rows:
        raise ValueError(
            f"{name} must have one label for each of the {n_rows} rows of X, got {found.size}."
        )
    distinct, codes = distinct_labels(found, name)
    return codes, distinct.size


def labels_of_rows(labels: ArrayLike, n: int, name: str = "labels") -> NDArray:
    """Return labels as an array; raise an error unless its shape is (n,)."""
    found = as_array(labels, name)
    if found.shape != (n,):
        raise ValueError(
            f"{name} must hold one label for each row of X, shape ({n},), got shape {found.shape}."
        )
    return found


def distinct_labels(labels: NDArray, name: str = "labels") -> tuple[NDArray, NDArray[np.intp]]:
    """Return the sorted distinct labels, and the index of each label among them."""
    if has_missing(labels):
        raise ValueError(
            f"{name} must not contain NaN, infinity or missing values. Drop the unlabelled rows."
        )
    try:
        distinct, codes = np.unique(labels, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be of one type, got a mixture that cannot be sorted ({error}). Convert "
            "all labels to strings or to integers."
        ) from error
    return distinct, codes


def as_array(labels: ArrayLike, name: str) -> NDArray:
    """Return labels as an array of any shape; raise an error for masked or ragged input."""
    if isinstance(labels, np.ma.MaskedArray) and np.ma.is_masked(labels):
        raise ValueError(f"{name} has masked entries. Drop the unlabelled rows.")
    try:
        return np.asarray(labels)
    except (TypeError, ValueError):  # lists of different lengths
        raise ValueError(
            f"{name} must be an array, got a {type(labels).__name__} of sequences of different "
            "lengths. Pass a one-dimensional array."
        ) from None


def has_missing(labels: NDArray) -> bool:
    """Return whether any label is NaN, infinity, NaT, None or pandas' NA."""
    if labels.dtype.kind in "fc":
        return not np.isfinite(labels).all()
    if labels.dtype.kind in "mM":
        return bool(np.isnat(labels).any())
    return labels.dtype.kind == "O" and any(map(is_missing, labels.ravel()))


def is_missing(value: Any) -> bool:
    """Return whether a value of an object array is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 - True for NaN only
    except TypeError:  # pandas.NA compares as neither true nor false
        return True
    except ValueError:  # an array in the array
        return False


def contingency_table(
    labels_true: ArrayLike, labels_pred: ArrayLike, sample_weight: ArrayLike | None = None
) -> np.ndarray:
    """Return the count (or weight) of the data in each class (row) and cluster (column)."""
    true, n_true = encode_labels(labels_true, "labels_true")
    pred, n_pred = encode_labels(labels_pred, "labels_pred")
    if true.size != pred.size:
        raise ValueError(
            f"labels_true and labels_pred must have the same length, got {true.size} and "
            f"{pred.size} labels."
        )
    weight = check_sample_weight(sample_weight, true.size)
    require_memory(
        8.0 * n_true * n_pred,
        f"the table of {n_true} classes by {n_pred} clusters",
        "Compare labellings with fewer distinct labels, or use sklearn.metrics.rand_score.",
    )
    cells = np.bincount(true * n_pred + pred, weights=weight, minlength=n_true * n_pred)
    return cells.reshape(n_true, n_pred)


def sampled_rows(codes: NDArray, count: int, rng: Any, at_least: int) -> NDArray:
    """Return about `count` sorted row numbers, drawn from each cluster in proportion.

    At least `at_least` rows of each cluster are drawn, or all, so that small clusters are present.
    """
    n = codes.size
    if n <= count:
        return np.arange(n)
    order = rng.permutation(n)
    order = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    ranks = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in the cluster, from 0
    wanted = np.maximum(at_least, np.ceil(count * sizes / n))
    return np.sort(order[ranks < wanted[codes[order]]])
