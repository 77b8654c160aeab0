"""Constraints on the labels, and the best labels under them for given scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from volmar.guidance.conflicts import ConflictGraph, conflict_graph, round_units
from volmar.guidance.transport import Limits, transport


class Placement(NamedTuple):
    """Labels of the rows, and the offsets of the scores that enforce the size limits.

    A row without label and links is in the cluster with the largest ``gains + offsets``. `broken`
    holds the cannot-link pairs that are in one cluster, shape (q, 2). `gap` bounds the difference
    to the largest weighted sum of gains under the constraints. It is 0 for size limits with rows
    of equal weight, and if conflicting pairs were solved exactly. `excess` is the total weight by
    which clusters exceed or miss their limits, which is positive only if units of different
    weights cannot meet them.
    """

    labels: NDArray
    offsets: NDArray
    broken: NDArray
    gap: float = 0.0
    excess: float = 0.0


class EmptyClusterError(ValueError):
    """Raised if a guided fit leaves a cluster without rows."""

    def __init__(self, k: int):
        super().__init__(
            f"one of n_clusters={k} clusters has no rows. Lower n_clusters, or give labels of "
            "rows of each cluster."
        )


def _no_pairs() -> NDArray:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Guide:
    """Known labels, links and size limits of k clusters.

    `seeds` holds the known cluster of each row, -1 if unknown. Rows with the same number in
    `units` must be in the same cluster (None: each row is a unit). `apart` are cannot-link pairs
    of rows. `low` and `high` limit the weight of each cluster.
    """

    k: int
    seeds: NDArray
    units: NDArray | None = None
    apart: NDArray = field(default_factory=_no_pairs)
    low: NDArray | None = None
    high: NDArray | None = None
    weights: NDArray | None = None

    @property
    def is_seeded(self) -> bool:
        """Whether the cluster of any row is known."""
        return bool((self.seeds >= 0).any())

    @property
    def has_names(self) -> bool:
        """Whether labels or limits distinguish the clusters, which then must not be renumbered."""
        limits = [limit for limit in (self.low, self.high) if limit is not None]
        return self.is_seeded or any(np.ptp(limit) > 0 for limit in limits)

    def on(self, chosen: NDArray) -> Self:
        """Return the guide of some of the rows, without size limits."""
        units, apart = self.units, self.apart
        if units is not None:
            units = np.unique(units[chosen], return_inverse=True)[1]
        if apart.size:
            place = np.full(self.seeds.size, -1)
            place[chosen] = np.arange(chosen.size)
            apart = place[apart]
            apart = apart[(apart >= 0).all(axis=1)]
        weights = None if self.weights is None else self.weights[chosen]
        return replace(
            self,
            seeds=self.seeds[chosen],
            units=units,
            apart=apart,
            low=None,
            high=None,
            weights=weights,
        )

    def without_seeds(self, rows: NDArray) -> Self:
        """Return a guide without the labels of some rows."""
        seeds = self.seeds.copy()
        seeds[rows] = -1
        return replace(self, seeds=seeds)

    @cached_property
    def limits(self) -> Limits | None:
        """Lower and upper limits of the cluster weights; None without limits."""
        if self.low is None and self.high is None:
            return None
        total = self.seeds.size if self.weights is None else float(self.weights.sum())
        low = np.zeros(self.k) if self.low is None else self.low
        return Limits(low, np.full(self.k, float(total)) if self.high is None else self.high)

    @cached_property
    def n_units(self) -> int:
        """Number of units: linked groups and single rows."""
        return self.seeds.size if self.units is None else int(self.units.max()) + 1

    @cached_property
    def unit_sizes(self) -> NDArray:
        """Total weight of the rows of each unit."""
        if self.units is None:
            return np.ones(self.seeds.size) if self.weights is None else self.weights
        return np.bincount(self.units, self.weights, self.n_units).astype(np.float64)

    @cached_property
    def unit_seeds(self) -> NDArray:
        """Known cluster of each unit, -1 if unknown."""
        if self.units is None:
            return self.seeds
        known = self.seeds >= 0
        of_units = np.full(self.n_units, -1, dtype=np.int64)
        of_units[self.units[known]] = self.seeds[known]
        return of_units

    @cached_property
    def conflicts(self) -> ConflictGraph | None:
        """Cannot-link pairs of units; None if there are none."""
        if not self.apart.size:
            return None
        pairs = self.apart if self.units is None else self.units[self.apart]
        return conflict_graph(pairs, self.n_units)

    def place(self, gains: NDArray, offsets: NDArray | None = None) -> Placement:
        r"""Return the allowed labels with the largest sum of gains.

        .. math:: \max_c \sum_i w_i g_{i c(i)}

        Size limits take precedence over cannot-link pairs. With must-link groups no cluster is
        left empty: groups move to empty ones, with the smallest loss of gain.
        """
        limits, conflicts = self.limits, self.conflicts
        if limits is None and conflicts is None:
            return Placement(self.largest(gains), np.zeros(self.k), _no_pairs())
        found = place_units(
            self._unit_gains(gains), self.unit_sizes, self.unit_seeds, limits, conflicts, offsets
        )
        labels = found.labels
        if self.units is not None:
            totals = self._unit_gains(gains) * self.unit_sizes[:, None]
            labels = self._filled(labels, totals)[self.units]
        broken = self.apart[labels[self.apart[:, 0]] == labels[self.apart[:, 1]]]
        excess = 0.0
        if limits is not None:
            total = float(self.unit_sizes.sum())
            excess = limits.excess(np.bincount(labels, self.weights, self.k))
            excess = excess if excess > 1e-9 * total else 0.0
        return Placement(labels, found.offsets, broken, found.gap, excess)

    def _unit_gains(self, gains: NDArray) -> NDArray:
        """Return finite gains of the units, per weight."""
        gains = gains.astype(np.float64)
        finite = np.isfinite(gains)
        if not finite.all():  # a cluster without weight gets the lowest gain
            known = gains[finite] if finite.any() else np.zeros(1)
            gains = np.where(finite, gains, known.min() - 10.0 * (np.ptp(known) + 1.0))
        if self.units is None:
            return gains
        weights = np.ones(self.seeds.size) if self.weights is None else self.weights
        # In units without weight, all rows count equally.
        weights = np.where(self.unit_sizes[self.units] > 0, weights, 1.0)
        sizes = np.bincount(self.units, weights, self.n_units)
        sums = [
            np.bincount(self.units, column * weights, self.n_units) / sizes for column in gains.T
        ]
        return np.stack(sums, axis=1)

    def place_sides(self, f: NDArray, offsets: NDArray | None = None) -> Placement:
        """Return the placement by signed scores of two clusters, positive for cluster 1."""
        gains = np.zeros((f.size, 2))
        gains[:, 1] = f
        return self.place(gains, offsets)

    def largest(self, gains: NDArray) -> NDArray:
        """Return labels by the largest gain, with seeds and units respected."""
        if self.units is None:
            labels = np.argmax(gains, axis=1)
            return np.where(self.seeds >= 0, self.seeds, labels)
        weighted = gains if self.weights is None else gains * self.weights[:, None]
        sums = np.stack(
            [np.bincount(self.units, column, minlength=self.n_units) for column in weighted.T],
            axis=1,
        )
        of_units = np.where(self.unit_seeds >= 0, self.unit_seeds, np.argmax(sums, axis=1))
        return self._filled(of_units, sums)[self.units]

    def _filled(self, labels: NDArray, gains: NDArray) -> NDArray:
        """Move free units to empty clusters, with the smallest loss of their total gains.

        Each cluster without a known unit gets one unit of its own, by an assignment problem. With
        pairs or limits, units move to empty clusters only, which breaks no pair.
        """
        free = np.flatnonzero((self.unit_seeds < 0) & (self.unit_sizes > 0))
        open_ = np.setdiff1d(np.arange(self.k), self.unit_seeds)
        is_empty = ~np.isin(open_, labels[free])
        if not is_empty.any():
            return labels
        own = labels[free][:, None]
        loss = np.where(
            own == open_, 0.0, np.take_along_axis(gains[free], own, 1) - gains[free][:, open_]
        )
        if self.limits is not None or self.conflicts is not None:
            loss[(own != open_) & ~is_empty] = np.inf
        try:
            units, clusters = linear_sum_assignment(loss)
        except ValueError:  # no unit may move, or the gains are infinite
            return labels
        labels[free[units]] = open_[clusters]
        return labels


# --------------------------------------- the best labels of units under links and limits of sizes


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

    `gains` are per weight and finite. `fixed` are known clusters of the units, -1 if unknown.
    Limits take precedence over conflicts.
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
    return np.maximum(sizes, 1e-9 * mean if mean > 0 else 1.0)[:, None]


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
