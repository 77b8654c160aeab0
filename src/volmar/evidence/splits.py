"""Candidate splits of rows, curved and linear, with the evidence for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from volmar.evidence.borders import (
    N_VOTES,
    Evidence,
    Strips,
    borders_of,
    evidence_of_all,
    held_out_evidence,
    strip_widths,
    strips,
    vote,
)
from volmar.evidence.modes import Graph, Merge, ModeTree, mode_tree, n_neighbors_of

# A border of a half is that of all rows if at least this share of the rows of both cells at its
# pass are on its two sides.
AGREEMENT = 0.7
# At least this share of the halves must find the border.
FEWEST_REPEATS = 0.5
# Halvings for at most this number of rows; they cost milliseconds where they decide most.
HALVINGS = ((1000, 10), (5000, 5), (np.inf, 2))
# Minimum effect of a confirmed split, a lower limit. One group has at most 0 in expectation.
MIN_EFFECT = 0.2
# Below this number of rows in each half, no border is learnt.
FEWEST_IN_HALF = 12


class Found(NamedTuple):
    """A border that was found: its evidence, and the share of the halves that find it again."""

    p_value: float
    effect: float
    repeats: float

    def of_family(self, share: float) -> Found:
        """Return the evidence with the p-value for a test that has this share of the level."""
        return self._replace(p_value=min(1.0, self.p_value / share))


@dataclass(frozen=True, eq=False)
class Partition:
    """Cells around the modes of rows, and the borders at which they merge.

    `joins` are the merges of cells in the order of falling density; `sides` holds 1, -1 or 0 for
    each cell and join, and `ends` the cells that touch at the pass. `cells` are voted for by
    neighbours, `basins` are not.
    """

    tree: ModeTree
    basins: NDArray[np.int64]
    cells: NDArray[np.int64]
    joins: list[Merge]
    sides: NDArray[np.int64]
    ends: NDArray[np.int64]

    def cell_of(self, points: NDArray) -> NDArray[np.int64]:
        """Return the cells of points by a vote of their nearest rows."""
        nearest = self.tree.rows.query(points, min(N_VOTES, len(self.cells)))[1]
        return vote(self.cells, nearest.reshape(len(points), -1), self.sides.shape[1])


def partition_of(X: NDArray, min_rows: int) -> Partition | None:
    """Return the cells around the clear modes of rows; None if there is one."""
    tree = mode_tree(X)
    merges = tree.modes(min_rows)
    if not merges:
        return None
    roots, cells = tree.labels({one.mode for one in merges})
    place = {int(root): i for i, root in enumerate(roots)}
    k, group = roots.size, np.arange(roots.size)
    joins, sides, ends = [], [], []
    for one in merges:
        c, d = cells[tree.graph.a[one.edge]], cells[tree.graph.b[one.edge]]
        own = group[place[one.mode]]
        if group[c] != own:
            c, d = d, c
        if group[d] == own:
            continue
        joins.append(one)
        sides.append(np.where(group == own, 1, np.where(group == group[d], -1, 0)))
        ends.append((c, d))
        group[group == own] = group[d]
    if not joins:
        return None
    near = np.column_stack([np.arange(len(X)), tree.neighbors[:, : N_VOTES - 1]])
    return Partition(tree, cells, vote(cells, near, k), joins, np.array(sides), np.array(ends))


def borders_found(
    X: NDArray, part: Partition, min_rows: int, level: float, rng: np.random.Generator
) -> list[Found]:
    """Return the evidence for each join of a partition of the rows.

    The p-value is twice the smaller of two: that of all rows, and that of held-out rows. The
    latter is adjusted for the number of borders by the rule of Benjamini and Hochberg.
    """
    borders = borders_of(X, part.tree.neighbors, part.cell_of)
    n_starts = len(X) / part.tree.n_neighbors
    n_joins = len(part.joins)
    of_all = [Evidence()] * n_joins
    # From the sparsest pass on: what is not separated there belongs to the sides of denser passes.
    for j in range(n_joins)[::-1]:
        of_all[j] = evidence_of_all(borders, part.sides[j], n_starts)
        if of_all[j].effect <= 0:
            _attach(part, j)
    if all(2.0 * one.p_value <= level or one.effect <= 0 for one in of_all):
        return [Found(min(1.0, 2.0 * p), effect, np.nan) for p, effect in of_all]
    held, repeats = _held_out(X, part, min_rows, rng)
    adjusted = _adjusted(np.array([one.p_value for one in held]))
    found = []
    for j in range(n_joins):
        choices = [(of_all[j].p_value, of_all[j].effect), (adjusted[j], held[j].effect)]
        p_value, effect = min(choices)
        found.append(Found(min(1.0, 2.0 * float(p_value)), effect, repeats[j]))
    return found


def _attach(part: Partition, j: int) -> None:
    """Add each side of a join to the sides of denser joins that it touches.

    Without its rows, the border between two others would end there, and look like a bottleneck.
    """
    own, (c, d) = part.sides[j], part.ends[j]
    for sides in part.sides[:j]:
        for end, cells in ((d, own == 1), (c, own == -1)):
            if sides[end] != 0:
                sides[cells & (sides == 0)] = sides[end]


def _held_out(
    X: NDArray, part: Partition, min_rows: int, rng: np.random.Generator
) -> tuple[list[Evidence], NDArray[np.float64]]:
    """Return the evidence of held-out rows for each join, and the share of halves that agree.

    Halves that do not find the border count as rows on it.
    """
    counted: list[list[Strips]] = [[] for _ in part.joins]
    n_halves = 0
    for found, graph in _half_distances(X, part, min_rows, rng):
        n_halves += 1
        widths = None if graph is None else strip_widths(graph)
        for j, distances in enumerate(found):
            if distances is not None and widths is not None:
                counted[j].append(strips(distances, widths))
    evidence = [mean_evidence(one, n_halves) for one in counted]
    repeats = np.array([len(one) / max(n_halves, 1) for one in counted])
    return evidence, repeats


def _half_distances(
    X: NDArray, part: Partition, min_rows: int, rng: np.random.Generator
) -> Iterator[tuple[list[NDArray | None], Graph | None]]:
    """Yield, for each half, the distances of held-out rows to each border, and their graph.

    The distances are None for a border that the half does not find.
    """
    n_joins, k = part.sides.shape
    for learnt, unseen in halves(len(X), rng):
        half = partition_of(X[learnt], max(min_rows // 2, 3))
        if half is None:
            yield [None] * n_joins, None
            continue
        borders = borders_of(X[unseen], neighbors_of(X[unseen]), half.cell_of)
        cells = np.empty(len(X), dtype=np.int64)
        cells[learnt], cells[unseen] = half.cells, borders.cells
        known: dict[int, NDArray] = {}
        shares = _shares(cells, part.cells, half.sides.shape[1], k)
        found: list[NDArray | None] = []
        for j, (match, is_swapped) in enumerate(_matches(part, half, cells)):
            if match is None:
                found.append(None)
                continue
            sign = -1 if is_swapped else 1
            if match not in known:
                sides = half.sides[match].copy()
                # Cells of the half that are on no side there are on that of most of their rows.
                towards = shares @ part.sides[j] * sign
                sides[sides == 0] = np.sign(towards[sides == 0] * (abs(towards) > 0.5)[sides == 0])
                known[match] = borders.distances(sides)
            found.append(sign * known[match])
        yield found, borders.graph


def held_out_distances(
    X: NDArray, part: Partition, join: int, min_rows: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the distances of held-out rows to a border, of the first halving that finds it."""
    pair: list[NDArray] = []
    for i, (found, _) in enumerate(_half_distances(X, part, min_rows, rng)):
        distances = found[join]
        pair += [] if distances is None else [distances]
        if i % 2 and pair:
            break
    return np.concatenate([*pair, np.zeros(0)])


def mean_evidence(counted: list[Strips], n_halves: int) -> Evidence:
    """Return the evidence of counts averaged over halves, of which both count.

    Halves without counts, which do not find the border, count as rows on it.
    """
    repeats = len(counted) / max(n_halves, 1)
    if repeats < FEWEST_REPEATS:
        return Evidence()
    values = np.array(counted)
    is_counted = values[:, :1] >= 0
    number = is_counted.sum(axis=0)[0]
    sums = np.where(is_counted, values, 0.0).sum(axis=0)
    # Both halves of the rows, times the share that agrees.
    scale = np.where(number >= 0.5 * len(counted), 2.0 * repeats / np.maximum(number, 1), np.nan)
    p_value, effect = held_out_evidence(Strips(*np.nan_to_num(sums * scale, nan=-1.0)))
    return Evidence(min(1.0, p_value / repeats), effect)


def halves(n: int, rng: np.random.Generator) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield the rows to learn from and those held out, each half of a halving in turn."""
    if n < 2 * FEWEST_IN_HALF:
        return
    for _ in range(next(times for most, times in HALVINGS if n <= most)):
        order = rng.permutation(n)
        one, other = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        yield one, other
        yield other, one


def neighbors_of(X: NDArray) -> NDArray[np.int64]:
    """Return the nearest other rows of each row."""
    return np.asarray(cKDTree(X).query(X, n_neighbors_of(len(X)) + 1)[1][:, 1:])


def _matches(part: Partition, half: Partition, cells: NDArray) -> list[tuple[int | None, bool]]:
    """Return, for each join of all rows, the join of a half that separates the same rows."""
    shares = _shares(part.cells, cells, part.sides.shape[1], half.sides.shape[1])
    largest = np.argmax(shares, axis=1)
    found: list[tuple[int | None, bool]] = []
    for c, d in part.ends:
        signs = half.sides[:, largest[c]] * half.sides[:, largest[d]]
        separating = np.flatnonzero(signs < 0)
        if separating.size == 0:
            found.append((None, False))
            continue
        j = int(separating[0])
        side = half.sides[j, largest[c]]
        own = shares[c, half.sides[j] == side].sum()
        other = shares[d, half.sides[j] == -side].sum()
        agree = min(own, other) >= AGREEMENT
        found.append((j if agree else None, bool(side < 0)))
    return found


def _shares(cells: NDArray, others: NDArray, k: int, m: int) -> NDArray[np.float64]:
    """Return the share (k, m) of the rows of each cell that are in each of the others."""
    counts = np.zeros((k, m))
    np.add.at(counts, (cells, others), 1.0)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)


def _adjusted(p_values: NDArray) -> NDArray[np.float64]:
    """Return p-values adjusted for the false discovery rate (Benjamini and Hochberg, 1995)."""
    m = p_values.size
    order = np.argsort(-p_values)
    scaled = p_values[order] * m / np.arange(m, 0, -1)
    found = np.empty(m)
    found[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return found
