"""The labellings that a user allows, and the best of them for given scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Guide", "Placement"]


class Placement(NamedTuple):
    """Clusters of the rows, and the offsets of the clusters' scores that lead to their sizes.

    A row that nothing but sizes restricts is in the cluster with the largest ``gains + offsets``.
    `broken` are the pairs of rows that should be apart and are not, shape (q, 2).
    """

    labels: NDArray
    offsets: NDArray
    broken: NDArray


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

    def place(self, gains: NDArray) -> Placement:
        r"""Return the allowed labels with the largest sum of gains.

        .. math:: \max_c \sum_i w_i g_{i c(i)}

        Parameters
        ----------
        gains : ndarray of shape (n, k)
            What a row gains by being in each cluster, for example its scores.
        """
        return Placement(self._largest(gains), np.zeros(self.k), _no_pairs())

    def place_sides(self, f: NDArray) -> Placement:
        """Return the placement by the scores of two clusters, positive for cluster 1."""
        gains = np.zeros((f.size, 2))
        gains[:, 1] = f
        return self.place(gains)

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
