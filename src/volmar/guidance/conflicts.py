"""Labels with the largest gains under cannot-link pairs of units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

__all__ = ["ConflictGraph", "Separated", "conflict_graph"]

# Maximum number of units of a component for branch and bound, and maximum number of its nodes. If
# the search ends before this limit, its labels are optimal.
MAX_UNITS, MAX_NODES = 200, 20_000
# Maximum number of passes of moves of single units.
PASSES = 50


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

    Parameters
    ----------
    pairs : ndarray of shape (q, 2)
        Pairs of different units.
    components : list
        The connected components with at least one pair.
    of_pairs : ndarray of shape (q,)
        Number of the component of each pair.
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

        Parameters
        ----------
        gains : ndarray of shape (m, k)
            Finite gains of whole units.
        fixed : ndarray of shape (m,)
            Known labels, -1 if unknown.
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
    """Return the conflict graph of pairs of units.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.guidance.conflicts import conflict_graph
    >>> graph = conflict_graph(np.array([[0, 1], [1, 2]]), 4)
    >>> gains = np.array([[0.0, 3.0], [0.0, 4.0], [0.0, 2.0], [0.0, 1.0]])
    >>> graph.separate(gains, np.full(4, -1)).labels
    array([1, 0, 1, 1])
    """
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
        if len(self.order) <= MAX_UNITS:  # depth of the recursion
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
        for _ in range(PASSES):
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
