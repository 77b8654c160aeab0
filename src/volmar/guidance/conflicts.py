"""Labels with the largest gains under cannot-link pairs of units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse.csgraph import connected_components

from volmar.guidance.transport import Limits

# Maximum number of nodes of branch and bound. Labels are optimal if it ends before this limit.
MAX_NODES = 20_000


class Separated(NamedTuple):
    """Labels of units, and an upper bound on the gain of labels with as few broken pairs."""

    labels: NDArray
    bound: float


@dataclass(frozen=True)
class _Component:
    """A connected component of units.

    `neighbors` are positions in `units`. `sides` is a colouring with two colours, or None if there
    is none.
    """

    units: NDArray
    neighbors: list[list[int]]
    sides: NDArray | None


@dataclass(frozen=True)
class ConflictGraph:
    """Pairs of units that should be in different clusters.

    `of_pairs` is the number of the connected component of each pair.
    """

    pairs: NDArray
    components: list[_Component]
    of_pairs: NDArray

    def broken(self, labels: NDArray) -> NDArray:
        """Return, for each pair, whether its units are in the same cluster."""
        return labels[self.pairs[:, 0]] == labels[self.pairs[:, 1]]

    def separate(self, gains: NDArray, fixed: NDArray) -> Separated:
        """Return labels that break as few pairs as possible and, among these, gain the most.

        If the largest gains of a component break no pair, they determine its labels. The other
        components are solved one by one. For two clusters and a component that can be coloured
        with two colours, the better of the two colourings is optimal. Otherwise branch and bound
        is used, which is exact if it ends within its limit. It starts from greedy labels that were
        improved by moves of single units.
        """
        labels = np.where(fixed >= 0, fixed, np.argmax(gains, axis=1))
        bound = float(gains[np.arange(labels.size), labels].sum())
        for number in np.unique(self.of_pairs[self.broken(labels)]):
            component = self.components[number]
            units = component.units
            free = float(gains[units, labels[units]].sum())
            found, is_best = _solve(component, gains[units], fixed[units])
            labels[units] = found
            if is_best:
                bound += float(gains[units, found].sum()) - free
        return Separated(labels, bound)


def conflict_graph(pairs: NDArray, n_units: int) -> ConflictGraph:
    """Return the conflict graph of pairs of units."""
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    ones = np.ones(pairs.shape[0], dtype=bool)
    graph = sparse.coo_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n_units, n_units))
    numbers = connected_components(graph.tocsr(), directed=False)[1]
    used, of_pairs = np.unique(numbers[pairs[:, 0]], return_inverse=True)
    # A stable sort groups units and pairs by component.
    touched = np.unique(pairs)
    of_units = np.searchsorted(used, numbers[touched])
    order = np.argsort(of_units, kind="stable")
    groups = np.split(touched[order], np.cumsum(np.bincount(of_units, minlength=used.size))[:-1])
    rank = np.argsort(of_pairs, kind="stable")
    edges = np.split(pairs[rank], np.cumsum(np.bincount(of_pairs, minlength=used.size))[:-1])
    components = [_component(u, e) for u, e in zip(groups, edges, strict=True)]
    return ConflictGraph(pairs, components, of_pairs)


def _component(units: NDArray, edges: NDArray) -> _Component:
    neighbors: list[list[int]] = [[] for _ in range(units.size)]
    for a, b in np.searchsorted(units, edges).tolist():
        neighbors[a].append(b)
        neighbors[b].append(a)
    sides = np.full(units.size, -1)
    sides[0] = 0
    queue = [0]
    while queue:
        unit = queue.pop()
        for other in neighbors[unit]:
            if sides[other] < 0:
                sides[other] = 1 - sides[unit]
                queue.append(other)
            elif sides[other] == sides[unit]:
                return _Component(units, neighbors, None)
    return _Component(units, neighbors, sides)


def _solve(component: _Component, gains: NDArray, fixed: NDArray) -> tuple[NDArray, bool]:
    """Return labels of a component, and whether they are known to be optimal."""
    if gains.shape[1] == 2 and component.sides is not None:
        colourings = [component.sides, 1 - component.sides]
        known = fixed >= 0
        allowed = [c for c in colourings if np.array_equal(c[known], fixed[known])]
        if allowed:
            rows = np.arange(fixed.size)
            return max(allowed, key=lambda c: float(gains[rows, c].sum())), True
    search = _Branching(component, gains, fixed)
    search.run()
    return np.array(search.best), search.is_complete


class _Branching:
    """Branch and bound over the labels of a component.

    It minimises the number of broken pairs, then maximises the gain. For a unit with d neighbours,
    its d + 1 best clusters are enough, because one of them contains no neighbour.
    """

    def __init__(self, component: _Component, gains: NDArray, fixed: NDArray) -> None:
        self.neighbors = component.neighbors
        degrees = np.array([len(near) for near in self.neighbors])
        is_fixed = fixed >= 0
        self.gains = gains.tolist()
        ranked = np.argsort(-gains, axis=1, kind="stable")
        self.choices = [
            [int(fixed[u])] if is_fixed[u] else ranked[u, : degrees[u] + 1].tolist()
            for u in range(fixed.size)
        ]
        self.highest = [max(self.gains[u][c] for c in self.choices[u]) for u in range(fixed.size)]
        self.order = self._connected_order(degrees, is_fixed)
        # Upper bounds on the gain of all units from each position of the order on.
        rest = np.cumsum([self.highest[u] for u in self.order[::-1]])[::-1]
        self.rest = [*rest.tolist(), 0.0]
        self.labels = [-1] * fixed.size
        self.best = self._improved(self._greedy())
        self.value = self._value_of(self.best)
        self.n_nodes = 0
        scale = sum(max(map(abs, row)) for row in self.gains)
        self.tiny = 1e-13 * scale

    @property
    def is_complete(self) -> bool:
        return 0 < self.n_nodes < MAX_NODES

    def run(self) -> None:
        if len(self.order) <= 200:  # depth of the recursion
            self._descend(0, 0, 0.0)

    def _connected_order(self, degrees: NDArray, is_fixed: NDArray) -> list[int]:
        """Order units: known labels first, then by the number of neighbours already ordered."""
        order = np.flatnonzero(is_fixed).tolist()
        touched = np.zeros(degrees.size)
        for unit in order:
            touched[self.neighbors[unit]] += 1
        left = ~is_fixed
        while left.any():
            unit = int(np.argmax(np.where(left, touched * degrees.size + degrees, -1)))
            order.append(unit)
            left[unit] = False
            touched[self.neighbors[unit]] += 1
        return order

    def _cost(self, unit: int, cluster: int, labels: list[int]) -> int:
        return sum(labels[other] == cluster for other in self.neighbors[unit])

    def _greedy(self) -> list[int]:
        labels = [-1] * len(self.order)
        for unit in self.order:
            labels[unit] = self._cheapest(unit, labels)
        return labels

    def _cheapest(self, unit: int, labels: list[int]) -> int:
        own = self.gains[unit]
        return min(self.choices[unit], key=lambda c: (self._cost(unit, c, labels), -own[c]))

    def _improved(self, labels: list[int]) -> list[int]:
        """Improve labels by moves of single units until there is no improvement."""
        for _ in range(50):
            is_changed = False
            for unit in self.order:
                found = self._cheapest(unit, labels)
                if found != labels[unit]:
                    labels[unit], is_changed = found, True
            if not is_changed:
                break
        return labels

    def _value_of(self, labels: list[int]) -> tuple[int, float]:
        pairs = sum(self._cost(u, labels[u], labels) for u in range(len(labels))) // 2
        return pairs, -sum(self.gains[u][labels[u]] for u in range(len(labels)))

    def _descend(self, place: int, n_broken: int, gained: float) -> None:
        self.n_nodes += 1
        if place == len(self.order):
            if (n_broken, -gained) < self.value:
                self.best, self.value = list(self.labels), (n_broken, -gained)
            return
        unit = self.order[place]
        options = sorted(
            (n_broken + self._cost(unit, c, self.labels), -gained - self.gains[unit][c], c)
            for c in self.choices[unit]
        )
        for cost, value, cluster in options:
            if self.n_nodes >= MAX_NODES:
                break
            if (cost, value - self.rest[place + 1] + self.tiny) >= self.value:
                continue
            self.labels[unit] = cluster
            self._descend(place + 1, cost, -value)
        self.labels[unit] = -1


# ---------------- labels of whole units within the size limits, from labels that nearly meet them


# Maximum number of units per cluster tried in swaps.
SWAPPED = 300


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
    """
    moves = _Moves(gains, sizes, labels, limits, movable, conflicts)
    stages = (True, False) if conflicts is not None else (False,)
    for keeps_pairs in stages:
        while moves.excess() > moves.tiny:
            if not (moves.move(keeps_pairs) or moves.swap(keeps_pairs)):
                break
    if moves.excess() > moves.tiny and gains.size <= 100:  # a small integer program
        for graph in (conflicts, None) if conflicts is not None else (None,):
            found = _integer_labels(gains, sizes, moves.labels, limits, movable, graph)
            if found is not None:
                moves = _Moves(gains, sizes, found, limits, movable, conflicts)
                break
    if moves.excess() <= moves.tiny:
        for _ in range(100):
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
        options={"node_limit": 300},
    )
    return None if found.x is None else np.argmax(found.x.reshape(m, k), axis=1)
