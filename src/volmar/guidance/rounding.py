"""Labels of whole units within the size limits, from labels that nearly meet them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from volmar.guidance.conflicts import ConflictGraph
from volmar.guidance.smooth import Limits

__all__ = ["round_units"]

# Maximum number of units per cluster tried in swaps, and of final moves that improve the gain.
SWAPPED, IMPROVED = 300, 100
# Maximum number of variables and of nodes of the integer program.
MAX_VARIABLES, NODES = 100, 300


def round_units(
    gains: NDArray,
    sizes: NDArray,
    labels: NDArray,
    limits: Limits,
    movable: NDArray,
    conflicts: ConflictGraph | None = None,
) -> NDArray:
    """Return labels within the limits that are close to the given ones.

    Units are moved or swapped as long as this reduces the excess over the limits, each time with
    the smallest loss per reduction. Moves that break a pair of `conflicts` are tried last, because
    limits take precedence. If small problems are still outside their limits, an integer program
    finds labels if there are any. If nothing is found, the labels nearly meet the limits.

    Parameters
    ----------
    gains : ndarray of shape (m, k)
        Gains per weight.
    sizes : ndarray of shape (m,)
        Weights of the units.
    labels : ndarray of shape (m,)
        Labels to start from.
    limits : Limits
        Limits of the weight of each cluster.
    movable : ndarray of shape (m,)
        Whether each unit may move.
    conflicts : ConflictGraph, optional
        Pairs of units that should be in different clusters.
    """
    moves = _Moves(gains, sizes, labels, limits, movable, conflicts)
    stages = (True, False) if conflicts is not None else (False,)
    for keeps_pairs in stages:
        while moves.excess() > moves.tiny:
            if not (moves.move(keeps_pairs) or moves.swap(keeps_pairs)):
                break
    if moves.excess() > moves.tiny and gains.size <= MAX_VARIABLES:
        for graph in (conflicts, None) if conflicts is not None else (None,):
            found = _integer_labels(gains, sizes, moves.labels, limits, movable, graph)
            if found is not None:
                moves = _Moves(gains, sizes, found, limits, movable, conflicts)
                break
    if moves.excess() <= moves.tiny:
        for _ in range(IMPROVED):
            if not moves.improve():
                break
    return moves.labels


class _Moves:
    """Moves of units between clusters, which keep the weights of the clusters up to date."""

    def __init__(
        self,
        gains: NDArray,
        sizes: NDArray,
        labels: NDArray,
        limits: Limits,
        movable: NDArray,
        conflicts: ConflictGraph | None,
    ) -> None:
        self.gains, self.sizes, self.limits = gains, sizes, limits
        self.labels = labels.copy()
        self.movable = movable & (sizes > 0)
        self.k = gains.shape[1]
        self.tiny = 1e-9 * float(sizes.sum())
        self.loads = np.bincount(labels, sizes, self.k)
        m = labels.size
        pairs = np.empty((0, 2), dtype=np.int64) if conflicts is None else conflicts.pairs
        both = np.concatenate([pairs, pairs[:, ::-1]])
        ones = np.ones(both.shape[0])
        self.neighbors = sparse.csr_array((ones, (both[:, 0], both[:, 1])), shape=(m, m))
        own = sparse.csr_array((np.ones(m), (np.arange(m), labels)), shape=(m, self.k))
        self.blocked = (self.neighbors @ own).toarray() if pairs.size else None

    def excess(self) -> float:
        return self.limits.excess(self.loads)

    def _out(self, clusters: NDArray, loads: NDArray) -> NDArray:
        """Return the excess of the loads of clusters above or below their limits."""
        over = loads - self.limits.high[clusters]
        under = self.limits.low[clusters] - loads
        return np.maximum(np.maximum(over, under), 0.0)

    def _set(self, unit: int, cluster: int) -> None:
        old = self.labels[unit]
        self.labels[unit] = cluster
        self.loads[old] -= self.sizes[unit]
        self.loads[cluster] += self.sizes[unit]
        if self.blocked is not None:
            near = self.neighbors.indices[
                self.neighbors.indptr[unit] : self.neighbors.indptr[unit + 1]
            ]
            self.blocked[near, old] -= 1
            self.blocked[near, cluster] += 1

    def _breaks(self, units: NDArray) -> NDArray | bool:
        """Return, for each unit and cluster, whether the move would break more pairs."""
        if self.blocked is None:
            return False
        own = self.blocked[units, self.labels[units]]
        return self.blocked[units] > own[:, None]

    def move(self, keeps_pairs: bool) -> bool:
        """Make the move with the smallest loss per reduced excess; return False if none helps."""
        over = self.loads > self.limits.high + self.tiny
        under = self.loads < self.limits.low - self.tiny
        units = np.flatnonzero(self.movable & (over[self.labels] | under.any()))
        if units.size == 0:
            return False
        own = self.labels[units]
        s = self.sizes[units]
        every = np.arange(self.k)
        now = self._out(every, self.loads)
        after_own = self._out(own, self.loads[own] - s)
        after = self._out(every, self.loads + s[:, None])
        saved = (now[own] - after_own)[:, None] + now - after
        saved[np.arange(units.size), own] = 0.0
        lost = s[:, None] * (self.gains[units, own][:, None] - self.gains[units])
        rate = np.full(saved.shape, np.inf)
        is_good = saved > self.tiny
        if keeps_pairs:
            is_good &= ~np.asarray(self._breaks(units))
        # A gain counts as a negative loss, and is preferred to any loss.
        rate[is_good] = lost[is_good] / saved[is_good]
        best = int(np.argmin(rate))
        if not np.isfinite(rate.flat[best]):
            return False
        row, cluster = np.unravel_index(best, rate.shape)
        self._set(int(units[row]), int(cluster))
        return True

    def swap(self, keeps_pairs: bool) -> bool:
        """Exchange two units, one of them from a cluster outside its limits."""
        best, chosen = np.inf, None
        out = np.flatnonzero(self._out(np.arange(self.k), self.loads) > self.tiny)
        for a in out.tolist():
            for b in range(self.k):
                if a == b:
                    continue
                mine, theirs = self._nearest(a, b), self._nearest(b, a)
                shift = self.sizes[mine][:, None] - self.sizes[theirs]
                now = self._out(np.array([a, b]), self.loads[[a, b]]).sum()
                after_a = self._out(np.array([[a]]), self.loads[a] - shift)
                saved = now - after_a - self._out(np.array([[b]]), self.loads[b] + shift)
                lost = self._lost(mine, a, b)[:, None] + self._lost(theirs, b, a)
                rate = np.where(saved > self.tiny, lost / np.maximum(saved, self.tiny), np.inf)
                if keeps_pairs and self.blocked is not None:
                    rate[self.blocked[mine, b] > self.blocked[mine, a]] = np.inf
                    rate[:, self.blocked[theirs, a] > self.blocked[theirs, b]] = np.inf
                if rate.size and rate.min() < best:
                    i, j = np.unravel_index(int(np.argmin(rate)), rate.shape)
                    best, chosen = (
                        float(rate[i, j]),
                        (int(mine[i]), int(b), int(theirs[j]), int(a)),
                    )
        if chosen is None:
            return False
        self._set(chosen[0], chosen[1])
        self._set(chosen[2], chosen[3])
        return True

    def _lost(self, units: NDArray, a: int, b: int) -> NDArray:
        return self.sizes[units] * (self.gains[units, a] - self.gains[units, b])

    def _nearest(self, a: int, b: int) -> NDArray:
        """Return the units of cluster a with the smallest losses by a move to cluster b."""
        units = np.flatnonzero(self.movable & (self.labels == a))
        if units.size <= SWAPPED:
            return units
        return units[np.argpartition(self._lost(units, a, b), SWAPPED)[:SWAPPED]]

    def improve(self) -> bool:
        """Make the move with the largest gain under limits and pairs; return False if none."""
        units = np.flatnonzero(self.movable & (self.gains.argmax(axis=1) != self.labels))
        if units.size == 0:
            return False
        own, s = self.labels[units], self.sizes[units]
        gained = s[:, None] * (self.gains[units] - self.gains[units, own][:, None])
        fits = self.loads + s[:, None] <= self.limits.high + self.tiny / self.k
        fits &= (self.loads[own] - s >= self.limits.low[own] - self.tiny / self.k)[:, None]
        fits &= ~np.asarray(self._breaks(units))
        gained = np.where(fits, gained, 0.0)
        best = int(np.argmax(gained))
        if gained.flat[best] <= 1e-12 * np.abs(self.gains).max() * self.sizes.max():
            return False
        row, cluster = np.unravel_index(best, gained.shape)
        self._set(int(units[row]), int(cluster))
        return True


def _integer_labels(
    gains: NDArray,
    sizes: NDArray,
    labels: NDArray,
    limits: Limits,
    movable: NDArray,
    conflicts: ConflictGraph | None,
) -> NDArray | None:
    """Return labels within the limits by an integer program, or None if it finds none."""
    m, k = gains.shape
    once = sparse.kron(sparse.eye_array(m), np.ones((1, k)))
    loads = sparse.kron(sizes[None, :], sparse.eye_array(k))
    constraints = [
        LinearConstraint(once, 1, 1),
        LinearConstraint(loads, limits.low, limits.high),
    ]
    if conflicts is not None:
        q = conflicts.pairs.shape[0]
        places = (np.repeat(np.arange(q), 2), conflicts.pairs.ravel())
        apart = sparse.coo_array((np.ones(2 * q), places), shape=(q, m))
        constraints.append(LinearConstraint(sparse.kron(apart, sparse.eye_array(k)), -np.inf, 1))
    lowest = np.zeros((m, k))
    stays = np.flatnonzero(~movable)
    lowest[stays, labels[stays]] = 1.0
    scale = max(float(np.abs(gains * sizes[:, None]).max()), 1e-300)
    found = milp(
        -(gains * sizes[:, None]).ravel() / scale,
        constraints=constraints,
        bounds=Bounds(lowest.ravel(), np.ones(m * k)),
        integrality=np.ones(m * k),
        options={"node_limit": NODES},
    )
    return None if found.x is None else np.argmax(found.x.reshape(m, k), axis=1)
