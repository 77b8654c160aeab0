"""Labels of any kind as codes, and the table of two labellings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._memory import require_memory
from volmar._weights import check_sample_weight

__all__ = [
    "contingency_table",
    "encode_labels",
    "is_missing",
    "labels_of_rows",
    "random_ranks",
    "sampled_rows",
]


def encode_labels(labels: ArrayLike, name: str) -> tuple[NDArray[np.intp], int]:
    """Codes 0..k-1 of the labels in sorted order, and k; `name` is for error messages."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(
            f"{name} must be one label for each point, got an array of shape {labels.shape}; pass "
            "a one-dimensional array with at least one label."
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"{name} must not contain NaN or infinity; drop the unlabelled points.")
    try:
        distinct, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"{name} must be labels of one kind, got a mixture that cannot be sorted ({error}); "
            "convert them all to strings or to integers."
        ) from error
    return codes, distinct.size


def labels_of_rows(labels: ArrayLike, n: int) -> NDArray:
    """Return labels as an array of shape (n,)."""
    found = np.asarray(labels)
    if found.shape != (n,):
        raise ValueError(
            f"labels must hold one label for each row of X, shape ({n},), got shape {found.shape}."
        )
    return found


def is_missing(value: Any) -> bool:
    """Whether a value of an object array is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN is what differs from itself
    except TypeError:  # pandas.NA compares as neither true nor false
        return True


def contingency_table(
    labels_true: ArrayLike, labels_pred: ArrayLike, sample_weight: ArrayLike | None = None
) -> np.ndarray:
    """Count (or weigh) the points in each class (row) and each cluster (column)."""
    true, n_true = encode_labels(labels_true, "labels_true")
    pred, n_pred = encode_labels(labels_pred, "labels_pred")
    if true.size != pred.size:
        raise ValueError(
            f"labels_true and labels_pred must label the same points, got {true.size} and "
            f"{pred.size} labels."
        )
    weight = check_sample_weight(sample_weight, true.size)
    require_memory(
        8.0 * n_true * n_pred,
        f"the table of {n_true} classes by {n_pred} clusters",
        "Compare labellings with fewer different labels, or use sklearn.metrics.rand_score.",
    )
    cells = np.bincount(true * n_pred + pred, weights=weight, minlength=n_true * n_pred)
    return cells.reshape(n_true, n_pred)


def random_ranks(codes: NDArray, rng: Any) -> tuple[NDArray, NDArray]:
    """Return the points cluster by cluster, each in random order, and their ranks in it from 0."""
    order = rng.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    sizes = np.bincount(codes)
    return order, np.arange(codes.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def sampled_rows(codes: NDArray, count: int, rng: Any, at_least: int) -> NDArray:
    """Return about `count` row numbers in order, drawn from each cluster in proportion.

    A cluster has `at_least` of its rows, or all, so that small ones are seen.
    """
    n = codes.size
    if n <= count:
        return np.arange(n)
    order, ranks = random_ranks(codes, rng)
    wanted = np.maximum(at_least, np.ceil(count * np.bincount(codes) / n))
    return np.sort(order[ranks < wanted[codes[order]]])
