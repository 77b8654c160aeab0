"""Checks of `y`, the known labels of some rows."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar._input import known_values
from volmar._warn import warn_user
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

    `volmar._input.known_values` decides which labels are unknown. A `y` without unknown labels is
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
    given, known = known_values(y, "y", n_samples)
    if known.all() or not known.any():
        return None
    labels = _as_labels(given[known])
    if labels is None:
        fraction = next(value for value in given[known].tolist() if not _is_whole(value))
        text = (
            f"y holds the number {fraction}, and labels must be whole numbers or strings. Use "
            "integers or strings, with -1 for rows without a label."
        )
        if not all(isinstance(value, Real) and value == -1 for value in given[~known].tolist()):
            raise ValueError(text)
        # It may be a regression target with a value of -1, which a pipeline passes to all steps.
        warn_user(f"y is ignored: {text}")
        return None
    names, numbers = np.unique(labels, return_inverse=True)
    seeds = np.full(n_samples, -1, dtype=np.int64)
    seeds[known] = numbers
    return Seeds(names, seeds)


def _as_labels(known: NDArray) -> NDArray | None:
    """Return labels as strings or int64, or None for numbers with fractions."""
    values = known.tolist()
    if known.dtype.kind not in "mM":  # a list of these may hold integers
        if all(isinstance(value, str) for value in values):
            return np.array(values)
        if all(isinstance(value, Real) and not isinstance(value, bool) for value in values):
            if not all(map(_is_whole, values)):
                return None
            whole = [int(value) for value in values]
            if wrong := [value for value in whole if not -(2**63) <= value < 2**63]:
                raise ValueError(
                    f"y has the label {shown(wrong[0])}, an integer of more than 64 bits. Use "
                    "smaller integers, or strings."
                )
            return np.array(whole, dtype=np.int64)
    found = sorted({type(value).__name__ for value in known})
    raise TypeError(
        f"y holds labels of type {' and '.join(found)}. Give all labels as integers, or all as "
        "strings, with -1 or None for rows without a label."
    )


def _is_whole(number: Any) -> bool:
    return isinstance(number, Integral) or float(number).is_integer()


def check_block_seeds(y: Any, X: Any) -> Seeds | None:
    """Return the known labels of a dask collection, or None if `y` does not hold partial labels.

    The numbers are a lazy vector. A `y` in memory is checked by `check_seeds`. A dask `y` must
    hold numbers, with -1 or NaN for unknown labels.
    """
    if y is None:
        return None
    if not is_dask(y):
        seeds = check_seeds(y, X.shape[0])
        return None if seeds is None else Seeds(seeds.names, as_beside(X, seeds.numbers, "y"))
    dtype = getattr(y, "dtype", np.dtype(int))
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iuf":
        raise TypeError(
            f"y must hold integers if it is a dask collection, got dtype {dtype}. Replace labels "
            "by integers, with -1 for rows without a label, or give y as an array in memory."
        )
    given = as_beside(X, y, "y")
    if given.dtype.kind == "f":
        given = row_wise(_without_nan, given)
    values = given.distinct()[0]
    seeds = check_seeds(values, values.size)
    if seeds is None:
        return None
    if values.size > MAX_LABELS:
        raise ValueError(
            f"y has more than {MAX_LABELS} different labels. Use -1 for rows without a label."
        )
    return Seeds(seeds.names, row_wise(_numbers_in_blocks, given, values, seeds.numbers))


def _without_nan(given: NDArray) -> NDArray:
    return np.where(np.isnan(given), -1.0, given)


def _numbers_in_blocks(given: NDArray, values: NDArray, numbers: NDArray) -> NDArray:
    return numbers[np.searchsorted(values, given)]


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
        if first + n_new > 2**63:
            raise ValueError(
                f"y has the label {names.max()}, after which there are no integers of 64 bits for "
                f"the other {n_new} clusters. Use smaller integers, or strings."
            )
        return np.concatenate([names, first + np.arange(n_new)])
    taken, number = set(names.tolist()), 0
    new: list[str] = []
    while len(new) < n_new:
        number += 1
        name = f"new {number}"
        if name not in taken:
            new.append(name)
    return np.array([*names.tolist(), *new])
