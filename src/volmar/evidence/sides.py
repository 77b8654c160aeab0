"""The evidence for borders between given sides of rows: labels, or those of any clusterer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from volmar.evidence.borders import (
    N_VOTES,
    WIDTH_RATIO,
    Borders,
    Evidence,
    Strips,
    borders_of,
    evidence_of_all,
    held_out_evidence,
    log_binomial,
    strip_widths,
    strips,
    vote,
)
from volmar.evidence.linear import N_WIDTHS, effect_around
from volmar.evidence.modes import n_neighbors_of
from volmar.evidence.pairs import discriminants, in_region
from volmar.evidence.space import FEW_COLUMNS, Rows
from volmar.evidence.splits import MIN_EFFECT, Found, mean_evidence, neighbors_of

# A half must have at least this number of rows of both sides to learn a discriminant.
FEWEST_OF_SIDE = 3
# Above this p-value of all rows, there is no sign of a gap.
NO_SIGN = 0.5


class Half(NamedTuple):
    """The rows that labels are known of, their labels, and the rows that are counted."""

    learnt: NDArray[np.int64]
    labels: NDArray[np.int64]
    unseen: NDArray[np.int64]


class Sides:
    """Rows with labels 0 to k - 1, or -1 for rows of unknown label, and labels of halves of them.

    A row whose label is not known to a half is in the cell that its nearest rows vote for, so that
    rows are never chosen by their own labels.
    """

    def __init__(
        self,
        rows: Rows,
        labels: NDArray[np.int64],
        halves: Iterable[Half],
        n_halves: int,
        rng: np.random.Generator,
    ):
        self.rows, self.rng, self.n_halves = rows, rng, n_halves
        self.k = int(labels.max()) + 1
        known, everything = np.flatnonzero(labels >= 0), np.arange(labels.size)
        self.whole = Half(known, labels[known], everything)
        self.halves = list(halves)
        self._gaps: dict[bytes, float] = {}

    @cached_property
    def borders(self) -> Borders:
        """The borders between the cells of all rows."""
        return self._borders_of(self.whole)

    @cached_property
    def half_borders(self) -> list[Borders]:
        """The borders between the cells of each half, for its held-out rows."""
        return [self._borders_of(half) for half in self.halves]

    def _borders_of(self, half: Half) -> Borders:
        near, tree = self.rows.near[half.unseen], cKDTree(self.rows.near[half.learnt])
        n_votes = min(N_VOTES, half.learnt.size)

        def cell_of(points: NDArray) -> NDArray[np.int64]:
            nearest = tree.query(points, n_votes)[1].reshape(len(points), -1)
            return vote(half.labels, nearest, self.k)

        return replace(borders_of(near, neighbors_of(near), cell_of), is_shared=True)

    def curved(self, sides: NDArray) -> Evidence:
        """Return the evidence along the graph; `sides` holds 1, -1 or 0 for each label.

        The p-value is twice the smaller of two: that of all rows, and that of held-out rows. The
        latter are not counted if all rows show no sign of a gap.
        """
        first = self._strips(sides)
        if log_binomial(first).min() > np.log(NO_SIGN):
            return held_out_evidence(first)._replace(p_value=1.0)
        n_starts = len(self.rows.near) / n_neighbors_of(len(self.rows.near))
        counted = [
            strips(one.distances(sides), strip_widths(one.graph)) for one in self.half_borders
        ]
        found = (
            evidence_of_all(self.borders, sides, n_starts),
            mean_evidence(counted, self.n_halves),
        )
        return clearest([one._replace(p_value=min(1.0, 2.0 * one.p_value)) for one in found])

    def linear(self, sides: NDArray, groups: NDArray, a: int, b: int) -> Evidence:
        """Return the evidence along the linear discriminant of groups a and b of the labels.

        Held-out rows are counted in the convex region of the two groups. As for a searched cut,
        the effect is at most that along the graph in the space of the cut and two more directions,
        here of all rows on the two sides, which may be connected outside of the region.
        """
        own = self._scores(self.whole, groups, a, b)
        if own is None:
            return Evidence()
        scores, inside = own
        largest = np.median(np.abs(scores[inside]))
        widths = largest * WIDTH_RATIO ** -np.arange(N_WIDTHS)[::-1]
        counted: list[Strips] = []
        for half in self.halves:
            found = self._scores(half, groups, a, b)
            if found is not None:
                counts = strips(found[0][found[1]], widths)
                counted.append(Strips(*np.maximum(counts, 0.0)))
        p_value, effect = mean_evidence(counted, self.n_halves)
        if effect >= MIN_EFFECT:
            scores = np.where(sides[self.borders.cells] == 0, np.nan, scores)
            effect = min(effect, effect_around(self.rows.X, scores, scores > 0, self.rng))
        return Evidence(p_value, effect)

    def _scores(
        self, half: Half, groups: NDArray, a: int, b: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
        """Return scores of the unseen rows across a hyperplane, and which are in the region."""
        T, labels = self.rows.X[half.learnt], groups[half.labels]
        present, labels = np.unique(labels, return_inverse=True)
        if a not in present or b not in present:
            return None
        i, j = (int(np.searchsorted(present, one)) for one in (a, b))
        first, second = labels == i, labels == j
        if min(first.sum(), second.sum()) < FEWEST_OF_SIDE:
            return None
        directions, offsets = discriminants(T, labels, present.size)
        scores = (T @ (directions[:, j] - directions[:, i])) + offsets[j] - offsets[i]
        place, unit = _threshold(scores[first], scores[second]), float(scores.std())
        values = self.rows.X[half.unseen] @ directions + offsets
        inside = in_region(values, i, j)
        scores = (values[:, j] - values[:, i] - place) / (unit or 1.0)
        return (scores, inside) if inside.any() else None

    def evidence(self, sides: NDArray, groups: NDArray, a: int, b: int) -> Evidence:
        """Return the evidence of the border between groups a and b, curved or linear.

        Both kinds have half of the level. `sides` are those of the curved border. In few columns,
        distances see all groups, and no hyperplane is tried.
        """
        if self.rows.X.shape[1] <= FEW_COLUMNS:
            return self.curved(sides)
        found = self.curved(sides), self.linear(sides, groups, a, b)
        return clearest([Found(*one, np.nan).of_family(0.5)[:2] for one in found])

    def openness(self, groups: NDArray) -> dict[tuple[int, int], float]:
        r"""Return, for each pair of groups with a common border, how open the border is.

        The value is the log of the binomial probability of as few rows at the border, by the
        clearest width: the smaller of two. First, each row is counted at the border that is
        nearest along the graph, so that strips are narrower away from the border. Second, half the
        log if all rows of the two groups are counted, whose strips are wider there.
        """
        borders, n = self.borders, len(self.rows.near)
        (a, b, length), group = borders.graph, groups[borders.cells]
        crossing = np.flatnonzero(group[a] != group[b])
        inner = np.flatnonzero(group[a] == group[b])
        g = int(groups.max()) + 1
        # One more node for each side of each border, joined to the ends of the edges across it.
        ends = np.concatenate([a[crossing], b[crossing]])
        own, other = group[ends], group[np.concatenate([b[crossing], a[crossing]])]
        pairs, node = np.unique(own * g + other, return_inverse=True)
        weights = np.tile(0.5 * length[crossing], 2)
        order = np.lexsort((weights, ends, node))
        order = order[np.unique((node * n + ends)[order], return_index=True)[1]]
        values = np.concatenate([length[inner], weights[order]])
        places = np.append(a[inner], n + node[order]), np.append(b[inner], ends[order])
        size = n + pairs.size
        joined = csr_array((values, places), shape=(size, size))
        distances, _, source = dijkstra(
            joined,
            directed=False,
            indices=n + np.arange(pairs.size),
            min_only=True,
            return_predecessors=True,
        )
        known = np.isfinite(distances[:n]) & (source[:n] >= n)
        distances, of = distances[:n][known], pairs[source[:n][known] - n]
        widths = strip_widths(borders.graph)
        found = {}
        for pair in pairs.tolist():
            one, two = divmod(pair, g)
            if one < two:
                back = -distances[of == two * g + one]
                counts = strips(np.append(distances[of == pair], back), widths)
                found[one, two] = min(
                    float(log_binomial(counts).min()), 0.5 * self._gap(groups, one, two)
                )
        return found

    def _gap(self, groups: NDArray, a: int, b: int) -> float:
        """Return the log of the binomial probability for all rows of two groups."""
        sides = (groups == b).astype(np.int64) - (groups == a)
        key = sides.tobytes()
        if key not in self._gaps:
            self._gaps[key] = float(log_binomial(self._strips(sides)).min())
        return self._gaps[key]

    def _strips(self, sides: NDArray) -> Strips:
        distances = self.borders.distances(sides, n_steps=0)
        return strips(distances, strip_widths(self.borders.graph))


def clearest(found: Iterable[tuple[float, float]]) -> Evidence:
    """Return the most significant evidence with a large effect, else that with the largest."""
    given = [Evidence(*one) for one in found]
    large = [one for one in given if one.effect >= MIN_EFFECT]
    if large:
        return min(large, key=lambda one: (one.p_value, -one.effect))
    return max(given, key=lambda one: (one.effect, -one.p_value))


def _threshold(first: NDArray, second: NDArray) -> float:
    """Return the threshold with the smallest number of errors, in the middle of its gap."""
    scores = np.concatenate([first, second])
    order = np.argsort(scores, kind="stable")
    is_second, ordered = order >= first.size, scores[order]
    below = (
        np.cumsum(is_second)[:-1] / second.size
        + np.cumsum(~is_second[::-1])[::-1][1:] / first.size
    )
    gaps = np.diff(ordered)
    best = np.flatnonzero(below <= below.min() + 1e-12)
    at = best[np.argmax(gaps[best])]
    return float(0.5 * (ordered[at] + ordered[at + 1]))
