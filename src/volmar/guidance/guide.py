"""The labellings that a user allows, and the best of them for given scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.conflicts import ConflictGraph, conflict_graph
from volmar.guidance.placing import place_units
from volmar.guidance.smooth import Limits

__all__ = ["EmptyClusterError", "Guide", "Placement"]


class Placement(NamedTuple):
    """Clusters of the rows, and the offsets of the clusters' scores that lead to their sizes.

    A row that nothing but sizes restricts is in the cluster with the largest ``gains + offsets``.
    `broken` are the pairs of rows that should be apart and are not, shape (q, 2). `gap` bounds how
    much more the weighted sum of gains of other allowed labels is: 0 where limits of sizes are
    for rows of one weight, and where conflicting pairs were solved exactly. `excess` is the weight
    above and below the limits, 0 unless units of different weights do not fit into them.
    """

    labels: NDArray
    offsets: NDArray
    broken: NDArray
    gap: float = 0.0
    excess: float = 0.0


class EmptyClusterError(ValueError):
    """A fit from given labels would leave one of the clusters without rows."""

    def __init__(self, k: int):
        super().__init__(
            f"the labels to start from lead to fewer than n_clusters={k} clusters that agree with "
            "what is known. Lower n_clusters, or give labels of rows of each cluster."
        )


def _no_pairs() -> NDArray:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Guide:
    """What is known of k clusters.

    Parameters
    ----------
    k : int
        Number of clusters.
    seeds : ndarray of shape (n,)
        Cluster of a row, -1 where it is not known.
    units : ndarray of shape (n,), optional
        Numbers of units, from 0; rows of a unit are in one cluster. If None, each row is a unit.
    apart : ndarray of shape (q, 2)
        Pairs of rows that are in different clusters.
    low, high : ndarray of shape (k,), optional
        Limits of the weight of each cluster.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
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
        """Whether the cluster of any row is given."""
        return bool((self.seeds >= 0).any())

    @property
    def has_names(self) -> bool:
        """Whether clusters differ in what is known of them, so that their numbers stay."""
        limits = [limit for limit in (self.low, self.high) if limit is not None]
        return self.is_seeded or any(np.ptp(limit) > 0 for limit in limits)

    def on(self, chosen: NDArray) -> Self:
        """Return what is known of some of the rows; limits of sizes are left out."""
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
        """Return what is known without the labels of some rows."""
        seeds = self.seeds.copy()
        seeds[rows] = -1
        return replace(self, seeds=seeds)

    @cached_property
    def limits(self) -> Limits | None:
        """Limits of the weights of the clusters."""
        if self.low is None and self.high is None:
            return None
        total = self.seeds.size if self.weights is None else float(self.weights.sum())
        low = np.zeros(self.k) if self.low is None else self.low
        return Limits(low, np.full(self.k, float(total)) if self.high is None else self.high)

    @cached_property
    def n_units(self) -> int:
        """Number of units."""
        return self.seeds.size if self.units is None else int(self.units.max()) + 1

    @cached_property
    def unit_sizes(self) -> NDArray:
        """Weights of the units."""
        if self.units is None:
            return np.ones(self.seeds.size) if self.weights is None else self.weights
        return np.bincount(self.units, self.weights, self.n_units).astype(np.float64)

    @cached_property
    def unit_seeds(self) -> NDArray:
        """Given clusters of the units, -1 where there are none."""
        if self.units is None:
            return self.seeds
        known = self.seeds >= 0
        of_units = np.full(self.n_units, -1, dtype=np.int64)
        of_units[self.units[known]] = self.seeds[known]
        return of_units

    @cached_property
    def conflicts(self) -> ConflictGraph | None:
        """Pairs of units that are to be apart."""
        if not self.apart.size:
            return None
        pairs = self.apart if self.units is None else self.units[self.apart]
        return conflict_graph(pairs, self.n_units)

    def place(self, gains: NDArray, offsets: NDArray | None = None) -> Placement:
        r"""Return the allowed labels with the largest sum of gains.

        .. math:: \max_c \sum_i w_i g_{i c(i)}

        Limits of sizes are kept first, pairs that are to be apart second.

        Parameters
        ----------
        gains : ndarray of shape (n, k)
            What a row gains by being in each cluster, for example its scores.
        offsets : ndarray of shape (k,), optional
            Those of a placement by similar gains, which save time where sizes are limited.
        """
        limits, conflicts = self.limits, self.conflicts
        if limits is None and conflicts is None:
            return Placement(self._largest(gains), np.zeros(self.k), _no_pairs())
        found = place_units(
            self._unit_gains(gains), self.unit_sizes, self.unit_seeds, limits, conflicts, offsets
        )
        labels = found.labels if self.units is None else found.labels[self.units]
        broken = self.apart[labels[self.apart[:, 0]] == labels[self.apart[:, 1]]]
        excess = 0.0
        if limits is not None:
            total = float(self.unit_sizes.sum())
            excess = limits.excess(np.bincount(found.labels, self.unit_sizes, self.k))
            excess = excess if excess > 1e-9 * total else 0.0
        return Placement(labels, found.offsets, broken, found.gap, excess)

    def _unit_gains(self, gains: NDArray) -> NDArray:
        """Return finite gains of units for one unit of weight."""
        gains = gains.astype(np.float64)
        finite = np.isfinite(gains)
        if not finite.all():  # a cluster without weight: the last that a row should be in
            known = gains[finite] if finite.any() else np.zeros(1)
            gains = np.where(finite, gains, known.min() - 10.0 * (np.ptp(known) + 1.0))
        if self.units is None:
            return gains
        weights = np.ones(self.seeds.size) if self.weights is None else self.weights
        # Of units without weight all rows count alike.
        weights = np.where(self.unit_sizes[self.units] > 0, weights, 1.0)
        sizes = np.bincount(self.units, weights, self.n_units)
        sums = [
            np.bincount(self.units, column * weights, self.n_units) / sizes for column in gains.T
        ]
        return np.stack(sums, axis=1)

    def place_sides(self, f: NDArray, offsets: NDArray | None = None) -> Placement:
        """Return the placement by the scores of two clusters, positive for cluster 1."""
        gains = np.zeros((f.size, 2))
        gains[:, 1] = f
        return self.place(gains, offsets)

    def _largest(self, gains: NDArray) -> NDArray:
        """Return labels by the largest gain, of seeds and units."""
        if self.units is None:
            labels = np.argmax(gains, axis=1)
            return np.where(self.seeds >= 0, self.seeds, labels)
        n_units = int(self.units.max()) + 1
        weighted = gains if self.weights is None else gains * self.weights[:, None]
        sums = np.stack(
            [np.bincount(self.units, column, minlength=n_units) for column in weighted.T], axis=1
        )
        known = self.seeds >= 0
        of_units = np.argmax(sums, axis=1)
        of_units[self.units[known]] = self.seeds[known]
        return of_units[self.units]
