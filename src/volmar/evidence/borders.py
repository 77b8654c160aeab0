r"""The test of a border of any shape, by the density of rows at the border and beside it.

The rows are scored by their distance to the border *along a neighbour graph*, negative on one
side. The place of a valley is then known, it is 0, and an arc, a ring or a spiral has a flat
density at its cut. Let :math:`N_0` be the number of rows within h of the border, and
:math:`N_-, N_+` those at h to 3h on its sides. If there is one group, the density at the border
is not below that of both sides, and the rows in the strip and on the emptier side fall into the
strip with a probability of at least 1/2. The effect is

.. math:: 1 - N_0 / \min(N_-, N_+),

and its lower 90 % limit is what counts: one group has at most 0 in expectation; two normal groups
whose means are 3, 4 or 5 standard deviations apart have .25, .6 and .8.

Two p-values are computed. For *held-out* rows the border was learnt from others, and the binomial
probability is valid as it is. For *all* rows it is multiplied by the number of borders among which
the sparsest was chosen (Peierls' argument): a border through m boxes of width 2h is one of
at most :math:`(n / k) c^m`, with n / k places to begin and c ways on from each box. A clear gap of
few rows is confirmed in this way, without a halving that would take half of them away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.special import betainc, betaincinv

from volmar.evidence.modes import Graph, neighbor_graph

# Widths h of the strip: from half the median edge, each sqrt(2) times the last.
FIRST_WIDTH, WIDTH_RATIO, N_WIDTHS = 0.5, 2.0**0.5, 24
# For all rows, from the median edge: rows next to a border between them keep a distance to it.
FIRST_WIDTH_OF_ALL = 1.0
# Ways on from each box of a border; see benchmarks/bench_battery.py, single pieces.
WAYS = 2.0
# Bisection steps: the border is located to within 1/32 of an edge.
N_BISECTIONS = 5
# Limit of the effect, one-sided.
CONFIDENCE = 0.9
# The number of nearest rows that vote for the side of a point.
N_VOTES = 5


class Strips(NamedTuple):
    """Numbers of rows by width h: within h of the border, and at h to 3h on either side.

    Widths above the median distance to the border hold -1.
    """

    centre: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    @property
    def sparser(self) -> NDArray[np.float64]:
        """The numbers of rows on the emptier side."""
        return np.minimum(self.first, self.second)


class Evidence(NamedTuple):
    """The p-value of a border and the lower limit of its effect, from 0 to 1; -1 if unknown."""

    p_value: float = 1.0
    effect: float = -1.0


@dataclass(frozen=True, eq=False)
class Borders:
    """Rows in the cells of a partition, which `cell_of` maps points to, and their graph.

    If `is_shared`, cells on no side belong to the nearer end of an edge that crosses them.
    """

    X: NDArray[np.float64]
    graph: Graph
    cells: NDArray[np.int64]
    cell_of: Callable[[NDArray], NDArray[np.int64]]
    is_shared: bool = False

    def crossing(self, sides: NDArray) -> NDArray[np.int64]:
        """Return the edges whose ends are on different `sides`, 1 or -1 for each cell, or 0."""
        a, b = sides[self.cells[self.graph.a]], sides[self.cells[self.graph.b]]
        return np.flatnonzero(a * b < 0)

    def distances(self, sides: NDArray, *, n_steps: int = N_BISECTIONS) -> NDArray[np.float64]:
        """Return signed distances to the border along the graph, for rows on the two sides.

        Where the side changes on an edge that crosses the border is found by bisection; without
        steps, it is the middle of the edge.
        """
        (a, b, length), n = self.graph, len(self.X)
        side = sides[self.cells]
        crossing = self.crossing(sides)
        if crossing.size == 0:
            return np.zeros(0)
        ends = a[crossing], b[crossing]
        start, step = self.X[ends[0]], self.X[ends[1]] - self.X[ends[0]]
        low, high = np.zeros(crossing.size), np.ones(crossing.size)
        for _ in range(n_steps):
            t = 0.5 * (low + high)
            found = sides[self.cell_of(start + t[:, None] * step)]
            stays = found == side[ends[0]]
            if self.is_shared:
                stays |= (found == 0) & (t <= 0.5)
            low, high = np.where(stays, t, low), np.where(stays, high, t)
        t = 0.5 * (low + high)
        nearest = np.full(n, np.inf)
        for end, share in zip(ends, (t, 1.0 - t), strict=True):
            np.minimum.at(nearest, end, np.maximum(share, 1e-9) * length[crossing])
        first = np.flatnonzero(np.isfinite(nearest))
        inner = np.flatnonzero(side[a] * side[b] > 0)
        # One more node, the border, is joined to the ends of the edges that cross it.
        weights = np.concatenate([length[inner], nearest[first]])
        pairs = np.append(a[inner], np.full(first.size, n)), np.append(b[inner], first)
        joined = csr_array((weights, pairs), shape=(n + 1, n + 1))
        found = dijkstra(joined, directed=False, indices=n)[:n]
        known = np.isfinite(found) & (side != 0)
        return found[known] * side[known]


def strips(distances: NDArray, widths: NDArray) -> Strips:
    """Count rows in the strips of several widths."""
    s = np.sort(distances)
    at = [np.searchsorted(s, bound * widths) for bound in (-3.0, -1.0, 1.0, 3.0)]
    counts = np.array([at[2] - at[1], at[1] - at[0], at[3] - at[2]], dtype=np.float64)
    largest = np.median(np.abs(s)) if s.size else 0.0
    counts[:, widths > max(largest, widths[0])] = -1.0
    return Strips(*counts)


def strip_widths(graph: Graph, first: float = FIRST_WIDTH) -> NDArray[np.float64]:
    """Return the widths of the strips for rows with this graph."""
    return first * np.median(graph.length) * WIDTH_RATIO ** np.arange(N_WIDTHS)


def lower_effect(centre: float, sparser: float) -> float:
    """Return the lower limit of 1 - N_0 / min(N_-, N_+)."""
    if sparser <= 0:
        return -1.0
    share = float(betaincinv(centre + 1.0, sparser, CONFIDENCE))
    return max(1.0 - share / max(1.0 - share, 1e-12), -1.0)


def log_binomial(counts: Strips) -> NDArray[np.float64]:
    """Return the log of the probability of at most N_0 rows in the strip, by width.

    The beta function continues it to means of counts, which are not whole.
    """
    centre, sparser = counts.centre, counts.sparser
    is_counted = (centre >= 0) & (sparser > 0)
    p = betainc(np.where(is_counted, sparser, 1.0), np.maximum(centre, 0.0) + 1.0, 0.5)
    # The number of rows on the sparser side bounds what underflows.
    return np.where(is_counted, np.log(np.maximum(p, 1e-300)), 0.0)


def held_out_evidence(counts: Strips) -> Evidence:
    """Return the evidence of strips of held-out rows, by the clearest width.

    Neighbouring widths share most of their rows, and half of the widths count in the correction.
    """
    logs = log_binomial(counts)
    tried = max(1.0, np.count_nonzero(counts.centre >= 0) / 2.0)
    j = int(np.argmin(logs))
    if logs[j] == 0:
        return Evidence()
    p_value = min(1.0, tried * float(np.exp(logs[j])))
    return Evidence(p_value, lower_effect(counts.centre[j], counts.sparser[j]))


def evidence_of_all(borders: Borders, sides: NDArray, n_starts: float) -> Evidence:
    """Return the evidence of all rows for a border that was chosen among all borders of them.

    `n_starts` is the number of places where a border can begin.
    """
    widths = strip_widths(borders.graph, FIRST_WIDTH_OF_ALL)
    counts = strips(borders.distances(sides), widths)
    crossing = borders.crossing(sides)
    places = 0.5 * (borders.X[borders.graph.a[crossing]] + borders.X[borders.graph.b[crossing]])
    choices = np.log(WAYS) * np.array([_n_boxes(places, 2.0 * h) for h in widths])
    logs = np.where(counts.sparser > 0, log_binomial(counts) + choices, 0.0)
    j = int(np.argmin(logs))
    if logs[j] >= 0:
        return Evidence()
    p_value = min(1.0, n_starts * float(np.exp(logs[j])))
    return Evidence(p_value, lower_effect(counts.centre[j], counts.sparser[j]))


def _n_boxes(places: NDArray, width: float) -> int:
    """Return the number of boxes of a grid that hold any of the places."""
    return len(np.unique(np.floor(places / width), axis=0))


def vote(labels: NDArray, neighbors: NDArray, k: int) -> NDArray[np.int64]:
    """Return the most frequent of the labels of the nearest rows (m, v); the first breaks ties."""
    m, v = neighbors.shape
    votes = np.zeros((m, k))
    np.add.at(votes, (np.repeat(np.arange(m), v), labels[neighbors].ravel()), 1.0)
    votes[np.arange(m), labels[neighbors[:, 0]]] += 0.5
    return np.argmax(votes, axis=1)


def borders_of(
    X: NDArray, neighbors: NDArray, cell_of: Callable[[NDArray], NDArray[np.int64]]
) -> Borders:
    """Return the borders between cells for rows with the given neighbours."""
    return Borders(X, neighbor_graph(X, neighbors), cell_of(X), cell_of)
