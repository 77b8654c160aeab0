"""The best labels of units under links and limits of sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.conflicts import ConflictGraph
from volmar.guidance.rounding import round_units
from volmar.guidance.smooth import Limits
from volmar.guidance.transport import transport

__all__ = ["PlacedUnits", "place_units"]

# Replacement for a weight of 0 when cannot-link pairs are separated, as a share of the mean.
LIGHT = 1e-9


class PlacedUnits(NamedTuple):
    """Labels of units, offsets of clusters, and a bound on the gain of any better labels."""

    labels: NDArray
    offsets: NDArray
    gap: float


def place_units(
    gains: NDArray,
    sizes: NDArray,
    fixed: NDArray,
    limits: Limits | None = None,
    conflicts: ConflictGraph | None = None,
    start: NDArray | None = None,
) -> PlacedUnits:
    """Return the labels with the largest sum of gains under limits and links.

    Parameters
    ----------
    gains : ndarray of shape (m, k)
        Gains per weight; all finite.
    sizes : ndarray of shape (m,)
        Weights of the units.
    fixed : ndarray of shape (m,)
        Known clusters of the units, -1 if unknown.
    limits : Limits, optional
        Limits of the weights of the clusters. They take precedence over `conflicts`.
    conflicts : ConflictGraph, optional
        Pairs of units that should be in different clusters.
    start : ndarray of shape (k,), optional
        Offsets to start from.
    """
    if limits is not None:
        return _within_limits(gains, sizes, fixed, limits, conflicts, start)
    k = gains.shape[1]
    if conflicts is None:
        labels = np.where(fixed >= 0, fixed, np.argmax(gains, axis=1))
        return PlacedUnits(labels, np.zeros(k), 0.0)
    totals = gains * _never_zero(sizes)
    found = conflicts.separate(totals, fixed)
    value = float(totals[np.arange(fixed.size), found.labels].sum())
    return PlacedUnits(found.labels, np.zeros(k), max(found.bound - value, 0.0))


def _never_zero(sizes: NDArray) -> NDArray:
    mean = float(sizes.mean())
    return np.maximum(sizes, LIGHT * mean if mean > 0 else 1.0)[:, None]


def _within_limits(
    gains: NDArray,
    sizes: NDArray,
    fixed: NDArray,
    limits: Limits,
    conflicts: ConflictGraph | None,
    start: NDArray | None,
) -> PlacedUnits:
    units = np.arange(fixed.size)
    filled = _filled(gains, sizes, fixed, limits, start)
    if filled is None:
        raise ValueError(
            f"no clusters with sizes between {limits.low.tolist()} and {limits.high.tolist()} "
            "agree with the given labels. Check min_cluster_size and max_cluster_size."
        )
    labels, offsets, bound, is_whole = filled
    if conflicts is not None and conflicts.broken(labels).any():
        apart = conflicts.separate((gains + offsets) * _never_zero(sizes), fixed).labels
        held = fixed.copy()
        linked = np.unique(conflicts.pairs)
        held[linked] = apart[linked]
        others = _filled(gains, sizes, held, limits, offsets)
        if others is not None:
            labels, offsets, is_whole = others.labels, others.offsets, others.is_whole
        else:
            labels[linked], is_whole = apart[linked], False
    if not is_whole:
        labels = round_units(gains, sizes, labels, limits, fixed < 0, conflicts)
    value = float(sizes @ gains[units, labels])
    return PlacedUnits(labels, offsets, max(bound - value, 0.0))


class _Filled(NamedTuple):
    """Labels, offsets, an upper bound on the gains, and whether the labels meet the limits."""

    labels: NDArray
    offsets: NDArray
    bound: float
    is_whole: bool


def _filled(
    gains: NDArray, sizes: NDArray, fixed: NDArray, limits: Limits, start: NDArray | None
) -> _Filled | None:
    """Label the free units by a transport; return None if the limits cannot be met."""
    k = gains.shape[1]
    tiny = 1e-9 * float(sizes.sum())
    known = fixed >= 0
    given = np.bincount(fixed[known], sizes[known], k)
    low, high = np.maximum(limits.low - given, 0.0), limits.high - given
    free = np.flatnonzero(~known & (sizes > 0))
    total = float(sizes[free].sum())
    if (high < -tiny).any() or low.sum() > total + tiny or high.sum() < total - tiny:
        return None
    high = np.maximum(high, low)
    labels = np.where(known, fixed, 0)
    offsets, bound = np.zeros(k), 0.0
    if free.size:
        scale = float(sizes[free[0]])
        inside = Limits(np.ceil(low / scale - 1e-9), np.floor(high / scale + 1e-9))
        fits = inside.low.sum() <= free.size <= inside.high.sum()
        if fits and (inside.low <= inside.high).all() and (sizes[free] == scale).all():
            weights = np.ones(free.size)  # equal weights: limits are rounded to whole units
        else:
            scale, weights, inside = 1.0, sizes[free], _stretched(low, high, total)
        moved = transport(gains[free], weights, inside, start)
        labels[free], offsets, bound = moved.labels, moved.offsets, scale * moved.bound
    light = np.flatnonzero(~known & (sizes <= 0))
    labels[light] = np.argmax(gains[light] + offsets, axis=1)
    rows = np.flatnonzero(known)
    bound += float(sizes[rows] @ gains[rows, fixed[rows]])
    is_whole = limits.excess(np.bincount(labels, sizes, k)) <= tiny
    return _Filled(labels, offsets, bound, is_whole)


def _stretched(low: NDArray, high: NDArray, total: float) -> Limits:
    """Return limits that allow a total weight in spite of rounding errors."""
    if low.sum() > total > 0:
        low = low * (total / low.sum())
    if 0 < high.sum() < total:
        high = high * (total / high.sum())
    return Limits(low, np.maximum(high, low))
