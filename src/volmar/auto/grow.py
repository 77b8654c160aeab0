"""A tree of parts, each split where the evidence confirms a border, and its layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from volmar.base.tree import SplitNode, SplitTree
from volmar.evidence.linear import Searched, searched
from volmar.evidence.modes import ModeTree
from volmar.evidence.pairs import LinearCells, discriminants
from volmar.evidence.space import Rows

# Rounds of linear discriminants, and the share of a side that they may move.
ROUNDS, MAX_MOVED = 3, 0.15
# Up to this number of columns, trees find the nearest of many rows faster than products of rows.
MAX_TREE_COLUMNS = 6


class NearestRow:
    """The side of a row is that of the nearest of known rows."""

    def __init__(self, known: NDArray, sides: NDArray):
        self.known, self.sides = known, sides

    def margins(self, rows: Rows) -> NDArray[np.float64]:
        """Return how much nearer each side is than the nearest other, (n, k)."""
        k = int(self.sides.max()) + 1
        far = np.empty((len(rows.known), k))
        for side in range(k):
            far[:, side] = cKDTree(self.known[self.sides == side]).query(rows.known)[0]
        return margins_of(-far)

    def choose(self, rows: Rows) -> NDArray[np.int64]:
        """Return the side of each row."""
        if self.known.shape[1] <= MAX_TREE_COLUMNS:
            return self.sides[cKDTree(self.known).query(rows.known)[1]]
        return self.sides[pairwise_distances_argmin(rows.known, self.known)]


class Hyperplanes:
    """The side of a row is that of its cell, bounded by hyperplanes."""

    def __init__(self, cells: LinearCells):
        self.cells = cells

    def margins(self, rows: Rows) -> NDArray[np.float64]:
        """Return the score of each side."""
        scores = self.cells.decision_function(rows.X)
        return np.column_stack([-scores, scores])

    def choose(self, rows: Rows) -> NDArray[np.int64]:
        """Return the side of each row."""
        return self.cells.predict(rows.X)


class LinearFunctions:
    """The side of a row is that with the largest of linear functions."""

    def __init__(self, coef: NDArray, intercept: NDArray):
        self.coef, self.intercept = coef, intercept

    def margins(self, rows: Rows) -> NDArray[np.float64]:
        """Return the margin of each side to the largest other."""
        return margins_of(rows.X @ self.coef + self.intercept)

    def choose(self, rows: Rows) -> NDArray[np.int64]:
        """Return the side of each row."""
        return np.argmax(rows.X @ self.coef + self.intercept, axis=1)


class Grouped:
    """Sides of another choice, several of which are one."""

    def __init__(self, chooser: Any, group: NDArray):
        self.chooser, self.group = chooser, group

    def margins(self, rows: Rows) -> NDArray[np.float64]:
        """Return the largest margin of each group."""
        margins, k = self.chooser.margins(rows), int(self.group.max()) + 1
        return np.column_stack([margins[:, self.group == j].max(axis=1) for j in range(k)])

    def choose(self, rows: Rows) -> NDArray[np.int64]:
        """Return the group of each row."""
        return self.group[self.chooser.choose(rows)]


def smoother(rows: Rows, sides: NDArray, tree: ModeTree) -> LinearFunctions | None:
    """Return the linear discriminants of sides, if they move few rows and cut no more of them.

    Between round groups that overlap, a border between rows is ragged, and they are better.
    Neighbours on different sides are counted by their density.
    """
    k = int(sides.max()) + 1
    mean = rows.X.mean(axis=0)
    T, labels = rows.X - mean, sides
    for _ in range(ROUNDS):
        coef, intercept = discriminants(T, labels, k)
        labels = np.argmax(T @ coef + intercept, axis=1)
        if np.bincount(labels, minlength=k).min() == 0:
            return None
    moved = np.bincount(sides[labels != sides], minlength=k)
    if (moved > MAX_MOVED * np.bincount(sides)).any():
        return None
    density = np.exp(-2.0 * tree.sparsity)
    cuts = [density @ (one[tree.neighbors] != one[:, None]).sum(axis=1) for one in (labels, sides)]
    if cuts[0] > cuts[1]:
        return None
    return LinearFunctions(coef, intercept - mean @ coef)


def margins_of(values: NDArray) -> NDArray[np.float64]:
    """Return each value minus the largest of the others in its row."""
    order = np.sort(values, axis=1)
    is_largest = values >= order[:, -1:]
    return values - np.where(is_largest, order[:, -2:-1], order[:, -1:])


class Division(NamedTuple):
    """The function that decides between sides, the sides of the rows, and how sides are joined.

    Each join has the number of its border, None for a cut without evidence, and two sides; the
    first stands for both from then on.
    """

    chooser: Any
    sides: NDArray[np.int64]
    joins: Sequence[tuple[int | None, int, int]]

    def only(self, borders: Sequence[int]) -> Division:
        """Return the division by some of the borders."""
        group = np.arange(int(self.sides.max()) + 1)
        for border, one, other in self.joins:
            if border not in borders:
                group[group == group[other]] = group[one]
        group = np.unique(group, return_inverse=True)[1]
        kept = [
            (border, int(group[one]), int(group[other]))
            for border, one, other in self.joins
            if border in borders
        ]
        return Division(Grouped(self.chooser, group), group[self.sides], kept)


@dataclass(eq=False)
class Part:
    """Rows of the tree, by their numbers, their borders, and the parts between the confirmed ones.

    `min_rows` is the smallest cluster.
    """

    rows: NDArray[np.int64]
    min_rows: int = 0
    borders: Searched = field(default_factory=Searched)
    children: list[Part] = field(default_factory=list)

    @property
    def candidates(self) -> list[int]:
        """Borders that are not confirmed and look like borders, the clearest first."""
        if self.children:
            return []
        likely = [j for j, one in enumerate(self.borders.found) if one.effect > 0]
        return sorted(likely, key=lambda j: -self.borders.found[j].effect)

    def split(self, rows: Rows, borders: list[int]) -> Division:
        """Return the sides between borders; fewer than the confirmed ones move no border."""
        if len(borders) < len(self.borders.confirmed):
            return self.split(rows, self.borders.confirmed).only(borders)
        own = rows.of(self.rows)
        if self.borders.cells is not None:
            planes = Hyperplanes(self.borders.cells)
            return Division(planes, planes.choose(own), [(0, 0, 1)])
        partition: Any = self.borders.partition
        group = np.arange(partition.sides.shape[1])
        for j, (c, d) in enumerate(partition.ends):
            if j not in borders:
                group[group == group[c]] = group[d]
        group = np.unique(group, return_inverse=True)[1]
        ends = group[partition.ends].tolist()
        pairs = [(j, d, c) for j, (c, d) in enumerate(ends) if j in borders]
        sides, tree = group[partition.basins], partition.tree
        chooser = smoother(own, sides, tree) or NearestRow(own.known, sides)
        if isinstance(chooser, LinearFunctions):
            sides = chooser.choose(own)
        return Division(chooser, sides, pairs)


class Growth(NamedTuple):
    """Parameters of the growth of a tree."""

    alpha: float
    max_clusters: int
    min_rows: int
    shapes: str


def grow(
    rows: Rows,
    rng: np.random.Generator,
    how: Growth,
    tell: Callable[[int, int], None] | None = None,
) -> Part:
    """Split rows where borders are confirmed, and the parts again, the largest first."""
    n = len(rows.X)
    root = Part(np.arange(n))
    waiting, n_clusters, n_settled = [root], 1, 0
    while waiting:
        part = waiting.pop(int(np.argmax([one.rows.size for one in waiting])))
        own, part.min_rows = rows.of(part.rows), how.min_rows
        part.borders = searched(own, how.min_rows, how.alpha, rng, shapes=how.shapes)
        confirmed = part.borders.confirmed[: how.max_clusters - n_clusters]
        part.borders.confirmed = confirmed
        if confirmed:
            sides = part.split(rows, confirmed).sides
            part.children = [Part(part.rows[sides == j]) for j in range(sides.max() + 1)]
            n_clusters += len(part.children) - 1
            waiting += part.children
        else:
            n_settled += part.rows.size
        if tell is not None:
            tell(n_settled, n)
    return root


@dataclass(eq=False)
class Groups:
    """What new rows need of a tree: the function that chooses between children."""

    chooser: Any = None
    children: list[Groups] = field(default_factory=list)

    @property
    def n_leaves(self) -> int:
        """Number of clusters."""
        return sum(child.n_leaves for child in self.children) or 1

    def predict(self, rows: Rows, first: int = 0) -> NDArray[np.int64]:
        """Return the number of the leaf of each row, from `first` on."""
        labels = np.full(len(rows.X), first)
        if not self.children or not len(rows.X):
            return labels
        side = self.chooser.choose(rows)
        for j, child in enumerate(self.children):
            here = np.flatnonzero(side == j)
            labels[here] = child.predict(rows.of(here), first)
            first += child.n_leaves
        return labels

    def scores(self, rows: Rows) -> NDArray[np.float64]:
        """Return the smallest margin towards each leaf along its path, (n, number of leaves)."""
        if not self.children:
            return np.full((len(rows.X), 1), np.inf)
        side, tiny = self.chooser.choose(rows)[:, None], np.finfo(np.float64).tiny
        found = self.chooser.margins(rows)
        own = np.maximum(np.take_along_axis(found, side, axis=1), tiny)
        margins = np.minimum(found, -tiny)
        np.put_along_axis(margins, side, own, axis=1)
        return np.hstack(
            [
                np.minimum(child.scores(rows), margins[:, [j]])
                for j, child in enumerate(self.children)
            ]
        )


@dataclass(eq=False)
class Branch:
    """A node of the chosen tree: the `borders` of a part that are made, and what they divide."""

    part: Part
    borders: list[int] = field(default_factory=list)
    children: list[Branch] = field(default_factory=list)
    division: Division | None = None

    @property
    def is_curved(self) -> bool:
        """Whether no hyperplane is part of the tree."""
        return not any(one.part.borders.cells for one in _branches(self) if one.borders)

    def leaves(self) -> list[Branch]:
        """Return the clusters."""
        return [leaf for child in self.children for leaf in child.leaves()] or [self]

    def groups(self) -> Groups:
        """Return what new rows need."""
        chooser = None if self.division is None else self.division.chooser
        return Groups(chooser, [child.groups() for child in self.children])


def chosen(root: Part, rows: Rows, n_clusters: int | None, rng: np.random.Generator) -> Branch:
    """Return the confirmed clusters, or exactly `n_clusters` from the same tree.

    Confirmed borders come first, then candidates, each by their effect, and a part is split only
    after the part that contains it. If there are too few, the largest cluster is cut by k-means.
    """
    top = Branch(root)
    waiting, found = [top], 1
    while waiting:
        best: tuple[tuple[bool, float], Branch, int] | None = None
        for branch in waiting:
            part = branch.part
            options = part.borders.confirmed or ([] if n_clusters is None else part.candidates)
            for j in (one for one in options if one not in branch.borders):
                rank = bool(part.borders.confirmed), part.borders.found[j].effect
                if best is None or rank > best[0]:
                    best = rank, branch, j
        if best is None or found == n_clusters:
            break
        _, branch, j = best
        branch.borders.append(j)
        found += 1
        if branch.part.children and len(branch.borders) == len(branch.part.borders.confirmed):
            branch.children = [Branch(child) for child in branch.part.children]
            waiting += branch.children
            waiting.remove(branch)
    for branch in _branches(top):
        if branch.borders:
            branch.division = branch.part.split(rows, branch.borders)
            if not branch.children:
                numbers, sides = branch.part.rows, branch.division.sides
                parts = [Part(numbers[sides == j]) for j in range(sides.max() + 1)]
                branch.children = [Branch(part) for part in parts]
    while n_clusters is not None and len(top.leaves()) < n_clusters:
        _cut_largest(top, rows, rng)
    return top


def _branches(branch: Branch) -> list[Branch]:
    return [branch, *(one for child in branch.children for one in _branches(child))]


def _cut_largest(top: Branch, rows: Rows, rng: np.random.Generator) -> None:
    leaf = max(top.leaves(), key=lambda one: one.part.rows.size)
    near = rows.known[leaf.part.rows]
    sides = np.arange(len(near)) % 2
    if np.ptp(near, axis=0).any():  # not copies of one row
        seed = int(rng.integers(2**31 - 1))
        sides = KMeans(2, n_init=3, random_state=seed).fit_predict(near)
    sides = sides.astype(np.int64)
    leaf.division = Division(NearestRow(near, sides), sides, [(None, 0, 1)])
    leaf.children = [Branch(Part(leaf.part.rows[sides == j])) for j in (0, 1)]


def branch_tree(branch: Branch, order: NDArray, alpha: float, names: Any = None) -> SplitTree:
    """Return the splits in two of a tree of branches; leaf ``order[j]`` is cluster j."""
    cluster = {leaf: j for j, leaf in enumerate(order.tolist())}
    labels = {id(leaf): cluster.get(i, i) for i, leaf in enumerate(branch.leaves())}

    def node_of(one: Branch) -> SplitNode:
        if one.division is None:
            node = SplitNode(one.part.rows.size, float(one.part.rows.size), label=labels[id(one)])
            clearest = one.part.candidates[:1]
            return _with_evidence(node, one.part, clearest[0] if clearest else None, alpha)
        nodes = [node_of(child) for child in one.children]
        for border, first, second in one.division.joins:
            a, b = nodes[first], nodes[second]
            joined = SplitNode(a.n_rows + b.n_rows, a.weight + b.weight, children=(a, b))
            nodes = [joined if node is a or node is b else node for node in nodes]
            _with_evidence(joined, one.part, border, alpha)
        return nodes[0]

    tree = SplitTree(node_of(branch), names)
    splits = [node for node in tree.nodes() if not node.is_leaf]
    for rank, node in enumerate(splits, start=1):
        node.rank = rank
    return tree


def _with_evidence(node: SplitNode, part: Part, border: int | None, alpha: float) -> SplitNode:
    """Set the evidence of a split, or of the clearest candidate of a cluster."""
    node.level, node.p_value = alpha, 1.0
    if border is not None:
        found = part.borders.found[border]
        node.p_value, node.effect, node.repeats = (float(value) for value in found)
    elif part.rows.size < 2 * part.min_rows:
        node.reason = "too few rows to test"
    return node
