"""Checks of the parameters `min_cluster_size` and `max_cluster_size`."""

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


def n_clusters_needed(max_size: Any, total: float) -> int:
    """Return the minimum number of clusters of a maximum size for a total weight.

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
    """Raise an error if known labels, or the weight of a single unit, contradict the limits.

    Parameters
    ----------
    limits : Limits
        Limits of the weight of each cluster.
    sizes : ndarray of shape (m,)
        Weights of the units.
    fixed : ndarray of shape (m,)
        Known clusters of the units, -1 if unknown.
    names : ndarray of shape (k,)
        Names of the clusters, for messages.
    first_rows : ndarray of shape (m,)
        First row of each unit, for messages.
    is_linked : bool
        Whether units may have several rows.
    """
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
