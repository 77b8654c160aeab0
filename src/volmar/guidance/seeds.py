"""Checks of `y`, the known labels of some rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar.rows import as_beside, is_dask, row_wise

__all__ = ["Seeds", "check_block_seeds", "check_seeds", "names_of_clusters"]

# Maximum number of distinct labels in a dask collection.
MAX_LABELS = 9999


class Seeds(NamedTuple):
    """Sorted names of the classes, and the number of each row's class, -1 if unknown."""

    names: NDArray
    numbers: Any


def check_seeds(y: Any, n_samples: int) -> Seeds | None:
    """Return the known labels in `y`, or None if `y` does not hold partial labels.

    Unknown labels are -1 and, in object arrays, None and NaN. A `y` without unknown labels is
    ignored: scikit-learn passes true classes in this way to score a clustering (`GridSearchCV`).

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.guidance.seeds import check_seeds
    >>> check_seeds(np.array([-1, 7, 3, -1, 7]), 5)
    Seeds(names=array([3, 7]), numbers=array([-1,  1,  0, -1,  1]))
    """
    if y is None:
        return None
    given = np.asarray(y)
    if given.shape != (n_samples,):
        if given.ndim == 1 or given.size == n_samples:
            raise ValueError(
                f"y must hold one label per row, shape ({n_samples},), got shape {given.shape}."
            )
        return None
    if given.dtype.kind in "fc":
        if not np.isfinite(given).all() or (given != np.round(given)).any():
            return None  # a regression target
        given = given.astype(np.int64)
    known = _is_known(given)
    if known.all() or not known.any():
        return None
    names, numbers = _numbered(given[known])
    seeds = np.full(n_samples, -1, dtype=np.int64)
    seeds[known] = numbers
    return Seeds(names, seeds)


def check_block_seeds(y: Any, X: Any) -> Seeds | None:
    """Return the known labels of a dask collection, or None if `y` does not hold partial labels.

    The numbers are a lazy vector. A `y` in memory is checked by `check_seeds`. A dask `y` must
    hold integers, with -1 for unknown labels.
    """
    if y is None:
        return None
    if not is_dask(y):
        seeds = check_seeds(y, X.shape[0])
        return None if seeds is None else Seeds(seeds.names, as_beside(X, seeds.numbers, "y"))
    given = as_beside(X, y, "y")
    if given.dtype.kind not in "iuf":
        raise TypeError(
            f"y must hold integers if it is a dask collection, got dtype {given.dtype}. Replace "
            "labels by integers, with -1 for rows without a label, or give y as an array in "
            "memory."
        )
    values = given.distinct()[0]
    is_whole = values.dtype.kind != "f" or (
        np.isfinite(values).all() and (values == np.round(values)).all()
    )
    if not is_whole or -1 not in values or values.size < 2:
        return None
    if values.size > MAX_LABELS:
        raise ValueError(
            f"y has more than {MAX_LABELS} different labels. Use -1 for rows without a label."
        )
    names = values[values != -1].astype(np.int64)
    return Seeds(names, row_wise(_numbers_in_blocks, given, names))


def _numbers_in_blocks(given: NDArray, names: NDArray) -> NDArray:
    return np.where(given == -1, -1, np.searchsorted(names, given)).astype(np.int64)


def _is_known(given: NDArray) -> NDArray:
    if given.dtype.kind in "iu":
        return given != -1
    if given.dtype.kind == "O":
        return np.array([not _is_unknown(value) for value in given], dtype=bool)
    return np.ones(given.size, dtype=bool)


def _is_unknown(value: Any) -> bool:
    is_nan = isinstance(value, float | np.floating) and np.isnan(value)
    return value is None or is_nan or (not isinstance(value, str) and value == -1)


def _numbered(labels: NDArray) -> tuple[NDArray, NDArray]:
    try:
        if labels.dtype.kind == "O":
            kinds = {type(value) for value in labels}
            if kinds and all(issubclass(kind, str) for kind in kinds):
                labels = labels.astype(str)
            elif kinds and all(issubclass(kind, int | np.integer) for kind in kinds):
                labels = labels.astype(np.int64)
        return np.unique(labels, return_inverse=True)
    except TypeError as error:
        kinds_found = sorted({type(value).__name__ for value in labels})
        raise TypeError(
            f"y holds labels of types that cannot be compared ({', '.join(kinds_found)}). Give "
            "all labels as integers, or all as strings. Use -1 for rows without a label."
        ) from error


def names_of_clusters(names: NDArray, k: int) -> NDArray:
    """Return names of k clusters: the classes, followed by new names for the other clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.guidance.seeds import names_of_clusters
    >>> names_of_clusters(np.array([3, 7]), 4)
    array([3, 7, 8, 9])
    >>> names_of_clusters(np.array(["a", "new 1"]), 3).tolist()
    ['a', 'new 1', 'new 2']
    """
    n_new = k - names.size
    if n_new < 0:
        raise ValueError(
            f"n_clusters={k} is less than the number of different labels in y, {names.size} "
            f"({shown(names.tolist())}). Raise n_clusters to at least {names.size}."
        )
    if names.size == 0:
        return np.arange(k)
    if n_new == 0:
        return names
    if names.dtype.kind in "iu":
        first = max(int(names.max()) + 1, 0)
        return np.concatenate([names, np.arange(first, first + n_new)]).astype(np.int64)
    taken, number = set(names.tolist()), 0
    new: list[str] = []
    while len(new) < n_new:
        number += 1
        name = f"new {number}"
        if name not in taken:
            new.append(name)
    return np.array([*names.tolist(), *new])
