"""Checks of what the user knows: labels of some rows, links between rows, limits of sizes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from volmar._checks import check_count, check_number, is_number, shown
from volmar._input import known_values
from volmar._warn import warn_user
from volmar.guidance.transport import Limits
from volmar.rows.anywhere import row_wise
from volmar.rows.blocks import as_beside, is_dask

# -------------------------------------------------- the optional arguments of `fit` that guide it


class Knowledge(NamedTuple):
    """Labels, links and weights passed to `fit`, before any checks."""

    y: Any = None
    must_link: Any = None
    cannot_link: Any = None
    sample_weight: Any = None


# --------------------------------------------------- checks of `y`, the known labels of some rows


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
    """Return names of k clusters: the classes, followed by new names for the other clusters."""
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


# -------------------------- checks of `must_link` and `cannot_link`, the known links between rows


def check_must_link(must_link: Any, n_samples: int) -> NDArray | None:
    """Return the number of each row's unit, from 0, or None if no rows are linked.

    Rows with the same id are linked. `volmar._input.known_values` decides which rows have none.
    """
    if must_link is None:
        return None
    ids, is_grouped = known_values(must_link, "must_link", n_samples)
    numbers: dict[Any, int] = {}
    units = np.empty(n_samples, dtype=np.int64)
    n_units = 0
    for row, value in enumerate(ids.tolist()):
        unit = numbers.setdefault(value, n_units) if is_grouped[row] else n_units
        n_units += unit == n_units
        units[row] = unit
    return units if n_units < n_samples else None


def check_cannot_link(cannot_link: Any, n_samples: int) -> NDArray:
    """Return the distinct pairs of rows, shape (q, 2)."""
    if cannot_link is None or np.size(cannot_link) == 0:
        return np.empty((0, 2), dtype=np.int64)
    pairs = check_array(cannot_link, dtype=None, input_name="cannot_link")
    if pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"cannot_link must hold pairs of row numbers, integers of shape (n_pairs, 2), got "
            f"shape {pairs.shape} and dtype {pairs.dtype}."
        )
    if pairs.min() < 0 or pairs.max() >= n_samples:
        wrong = int(pairs.min()) if pairs.min() < 0 else int(pairs.max())
        raise ValueError(
            f"cannot_link has row {wrong}, but X has rows 0 to {n_samples - 1}. Use row numbers "
            "in this range."
        )
    same = pairs[:, 0] == pairs[:, 1]
    if same.any():
        raise ValueError(
            f"cannot_link has a pair of row {pairs[same][0, 0]} with itself. Leave the pair out."
        )
    return np.unique(np.sort(pairs.astype(np.int64), axis=1), axis=0)


def check_contradictions(
    seeds: NDArray, names: NDArray, units: NDArray | None, apart: NDArray
) -> None:
    """Raise an error if seeds and links contradict each other, naming the rows."""
    known = np.flatnonzero(seeds >= 0)
    unit_of = np.arange(seeds.size) if units is None else units
    if units is not None:
        first = np.full(int(units.max()) + 1, -1)
        first[units[known][::-1]] = known[::-1]  # the first known row of each unit
        others = first[units[known]]
        wrong = known[seeds[others] != seeds[known]]
        if wrong.size:
            row, other = int(wrong[0]), int(first[units[wrong[0]]])
            one, two = names[seeds[[other, row]]].tolist()
            raise ValueError(
                f"must_link puts rows {other} and {row} in one cluster, but y gives them the "
                f"labels {one!r} and {two!r}. Change must_link or y."
            )
    if not apart.size:
        return
    same = unit_of[apart[:, 0]] == unit_of[apart[:, 1]]
    if same.any():
        row, other = apart[same][0]
        raise ValueError(
            f"must_link puts rows {row} and {other} in one cluster, but cannot_link in different "
            "clusters. Leave one of the links out."
        )
    of_units = np.full(int(unit_of.max()) + 1, -1)
    of_units[unit_of[known]] = seeds[known]
    left, right = of_units[unit_of[apart]].T
    equal = (left >= 0) & (left == right)
    if equal.any():
        row, other = apart[equal][0]
        raise ValueError(
            f"cannot_link puts rows {row} and {other} in different clusters, but y (with "
            f"must_link) gives both the label {names[left[equal][0]].item()!r}. Leave the pair "
            "out, or change y."
        )


# ----------------------------- checks of the parameters `min_cluster_size` and `max_cluster_size`


MIN, MAX = "min_cluster_size", "max_cluster_size"


def is_array(size: Any) -> bool:
    """Return whether `size` holds one limit per cluster."""
    try:
        return np.ndim(size) > 0
    except ValueError:  # lists of different lengths
        return True


def check_size(name: str, size: Any) -> None:
    """Raise an error unless `size` is None, a number, or one number per cluster.

    Integers are counts (or weights, if rows have weights). Floats are fractions of all rows.
    """
    if size is None:
        return
    if not is_array(size):
        if isinstance(size, Integral):
            check_count(name, size)
        else:
            check_number(name, size, low=0.0, high=1.0, open_low=True)
        return
    try:
        entries = np.asarray(size)
    except ValueError:  # lists of different lengths
        entries = np.empty((0, 0))
    if entries.ndim != 1 or entries.dtype.kind not in "iuf" or entries.size == 0:
        raise ValueError(
            f"{name} must be a number or hold one number per cluster, got {shown(size)}."
        )
    lowest = 0 if name == MIN else np.finfo(float).tiny
    if not np.isfinite(entries).all() or entries.min() < lowest:
        raise ValueError(
            f"{name} must hold {'non-negative' if name == MIN else 'positive'} finite numbers, "
            f"got {shown(size)}."
        )
    if entries.dtype.kind == "f" and entries.max() > 1:
        raise ValueError(
            f"{name} holds floats above 1, {shown(size)}. Give counts as integers, or all limits "
            "as fractions of the rows."
        )


def check_limits(
    min_size: Any,
    max_size: Any,
    k: int,
    total: float,
    *,
    has_names: bool = False,
    is_counted: bool = False,
) -> Limits | None:
    """Return the limits of k clusters of rows with a total weight, or None without limits.

    Limits of clusters without names are sorted, so that the largest limits belong to the largest
    cluster. If rows are counted (`is_counted`, without weights), fractions are rounded to whole
    rows: minima down and maxima up. A limit of 1 / k is then possible for any number of rows.
    """
    if min_size is None and max_size is None:
        return None
    low = _weights_of(MIN, min_size, k, total)
    high = _weights_of(MAX, max_size, k, total)
    low = np.zeros(k) if low is None else low
    high = np.full(k, float(total)) if high is None else high
    if is_counted:
        low, high = np.floor(low + 1e-9), np.ceil(high - 1e-9)
    if not has_names:
        order = np.lexsort([-low, -high])
        low, high = low[order], high[order]
    wrong = np.flatnonzero(low > high)
    if wrong.size:
        c = wrong[0]
        raise ValueError(
            f"{MIN}={shown(min_size)} is more than {MAX}={shown(max_size)} for a cluster "
            f"({low[c]:g} and {high[c]:g} of {total:g}). Lower {MIN} or raise {MAX}."
        )
    if low.sum() > total * (1 + 1e-12):
        raise ValueError(
            f"{MIN}={shown(min_size)} requires a total size of {low.sum():g} for {k} clusters, "
            f"but the rows have only {total:g}. Lower {MIN} or n_clusters."
        )
    if high.sum() < total * (1 - 1e-12):
        raise ValueError(
            f"{MAX}={shown(max_size)} allows a total size of {high.sum():g} for {k} clusters, but "
            f"the rows have {total:g}. Raise {MAX} or n_clusters."
        )
    return Limits(low, high)


def _weights_of(name: str, size: Any, k: int, total: float) -> NDArray | None:
    """Return a limit as weights, one per cluster."""
    if size is None:
        return None
    entries = np.asarray(size)
    if entries.ndim and entries.size != k:
        raise ValueError(
            f"{name} must be a number or hold one number for each of {k} clusters, got "
            f"{entries.size} numbers, {shown(size)}."
        )
    is_count = entries.dtype.kind in "iu" if entries.ndim else isinstance(size, Integral)
    if not entries.ndim and not is_number(size):
        raise TypeError(f"{name} must be a number, got {shown(size)}.")
    values = np.broadcast_to(entries.astype(np.float64), k)
    return values.copy() if is_count else values * total


def refuse_impossible(
    limits: Limits,
    sizes: NDArray,
    fixed: NDArray,
    names: NDArray,
    first_rows: NDArray,
    *,
    is_linked: bool,
) -> None:
    """Raise an error if known labels, or the weight of a single unit, contradict the limits."""
    k, total = limits.low.size, float(sizes.sum())
    tiny = 1e-9 * total
    known = fixed >= 0
    given = np.bincount(fixed[known], sizes[known], k)
    over = np.flatnonzero(given > limits.high + tiny)
    if over.size:
        c = over[0]
        raise ValueError(
            f"{MAX} allows {limits.high[c]:g} in cluster {names.tolist()[c]!r}, but y (with "
            f"must_link) puts {given[c]:g} there. Raise {MAX}, or give fewer rows this label."
        )
    if np.maximum(limits.low, given).sum() > total + tiny:
        raise ValueError(
            f"{MIN} cannot be reached with the labels of y. Clusters need a total size of "
            f"{np.maximum(limits.low, given).sum():g}, but the rows have only {total:g}. Lower "
            f"{MIN}, or give fewer labels."
        )
    room = float((limits.high - given).max())
    heavy = np.flatnonzero(~known & (sizes > room + tiny))
    if heavy.size:
        unit = heavy[np.argmax(sizes[heavy])]
        what = (
            "must_link joins row {} with others to a total weight of"
            if is_linked
            else "sample_weight gives row {} a weight of"
        )
        raise ValueError(
            f"{what.format(first_rows[unit])} {sizes[unit]:g}, but no cluster has room for more "
            f"than {room:g}. Raise {MAX}, or "
            f"{'link fewer rows' if is_linked else 'lower the weight'}."
        )
