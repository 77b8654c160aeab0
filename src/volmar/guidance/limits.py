"""Limits of the sizes of clusters, as a user gives them."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_count, check_number, is_number, shown
from volmar.guidance.smooth import Limits

__all__ = ["check_limits", "check_size", "is_array", "n_clusters_needed", "refuse_impossible"]

MIN, MAX = "min_cluster_size", "max_cluster_size"


def is_array(size: Any) -> bool:
    """Return whether a limit is given for each cluster."""
    try:
        return np.ndim(size) > 0
    except ValueError:  # lists of different lengths
        return True


def check_size(name: str, size: Any) -> None:
    """Refuse a limit that is neither a number nor one for each cluster.

    Integers are counts (of weight, where rows have weights), floats fractions of all rows.
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
            f"{name} must be a number or hold one number for each cluster, got {shown(size)}."
        )
    least = 0 if name == MIN else np.finfo(float).tiny
    if not np.isfinite(entries).all() or entries.min() < least:
        raise ValueError(
            f"{name} must hold {'numbers from 0 on' if name == MIN else 'positive numbers'}, got "
            f"{shown(size)}."
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
    """Return the limits of k clusters of rows with a total weight; None where there are none.

    Limits of clusters without names are sorted: the largest belong to the largest cluster. Where
    rows are counted (they have no weights), fractions are those of whole rows, a minimum rounded
    down and a maximum rounded up: 1 / k is possible for any number of rows.

    Examples
    --------
    >>> from volmar.guidance.limits import check_limits
    >>> check_limits(None, [0.5, 0.25, 0.75], 3, 100)
    Limits(low=array([0., 0., 0.]), high=array([75., 50., 25.]))
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
            f"{MIN}={shown(min_size)} is more than {MAX}={shown(max_size)} for a cluster: "
            f"{low[c]:g} and {high[c]:g} of {total:g}. Lower {MIN} or raise {MAX}."
        )
    if low.sum() > total * (1 + 1e-12):
        raise ValueError(
            f"{MIN}={shown(min_size)} asks for {low.sum():g} in {k} clusters, and the rows have "
            f"{total:g}. Lower {MIN} or n_clusters."
        )
    if high.sum() < total * (1 - 1e-12):
        raise ValueError(
            f"{MAX}={shown(max_size)} leaves room for {high.sum():g} in {k} clusters, and the "
            f"rows have {total:g}. Raise {MAX} or n_clusters."
        )
    return Limits(low, high)


def n_clusters_needed(max_size: Any, total: float) -> int:
    """Return the number of clusters of a maximum size that hold a total weight.

    Examples
    --------
    >>> from volmar.guidance.limits import n_clusters_needed
    >>> n_clusters_needed(30, 100), n_clusters_needed(0.25, 100), n_clusters_needed(None, 100)
    (4, 4, 1)
    """
    if max_size is None:
        return 1
    room = float(max_size) if isinstance(max_size, Integral) else float(max_size) * total
    return int(np.ceil(total / room - 1e-9))


def _weights_of(name: str, size: Any, k: int, total: float) -> NDArray | None:
    """Return a limit as weights of k clusters."""
    if size is None:
        return None
    entries = np.asarray(size)
    if entries.ndim and entries.size != k:
        raise ValueError(
            f"{name} must be a number or hold one for each of {k} clusters, got {entries.size}: "
            f"{shown(size)}."
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
    """Refuse limits that the weights of given labels, or of single units, rule out.

    Parameters
    ----------
    limits : Limits
    sizes : ndarray of shape (m,)
        Weights of units.
    fixed : ndarray of shape (m,)
        Given clusters of units, -1 where there are none.
    names : ndarray of shape (k,)
        Names of the clusters.
    first_rows : ndarray of shape (m,)
        A row of each unit.
    is_linked : bool
        Whether units have several rows.
    """
    k, total = limits.low.size, float(sizes.sum())
    tiny = 1e-9 * total
    known = fixed >= 0
    given = np.bincount(fixed[known], sizes[known], k)
    over = np.flatnonzero(given > limits.high + tiny)
    if over.size:
        c = over[0]
        raise ValueError(
            f"{MAX} allows {limits.high[c]:g} in cluster {names.tolist()[c]!r}, and y (with "
            f"must_link) puts {given[c]:g} there. Raise {MAX}, or give fewer rows this label."
        )
    if np.maximum(limits.low, given).sum() > total + tiny:
        raise ValueError(
            f"{MIN} cannot be reached: clusters need {np.maximum(limits.low, given).sum():g} with "
            f"the labels of y, and the rows have {total:g}. Lower {MIN}, or give fewer labels."
        )
    room = float((limits.high - given).max())
    heavy = np.flatnonzero(~known & (sizes > room + tiny))
    if heavy.size:
        unit = heavy[np.argmax(sizes[heavy])]
        what = (
            "must_link joins row {} with others to a weight of"
            if is_linked
            else ("sample_weight gives row {} a weight of")
        )
        raise ValueError(
            f"{what.format(first_rows[unit])} {sizes[unit]:g}, and no cluster has room for more "
            f"than {room:g}. Raise {MAX}, or {'link fewer rows' if is_linked else 'lower it'}."
        )
