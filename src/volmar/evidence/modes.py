"""Modes of a neighbour density, and the order in which they merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

# The density is that of the n^0.4 nearest rows, at least six: smooth enough, and still local.
POWER, FEWEST_NEIGHBORS = 0.4, 6
# Pieces without a common edge are joined by all pairs of rows that face each other: those at most
# this many times as far apart as the closest pair.
FACING = 1.5
# A mode counts if the ball around it holds at least this share more rows than one at the pass to a
# higher mode. Most modes that are due to chance are left out, and few others.
MIN_DROP = 0.3


def n_neighbors_of(n: int) -> int:
    """Return the number of nearest rows that measure the density among n rows."""
    return min(max(FEWEST_NEIGHBORS, round(n**POWER)), n - 1)


class Graph(NamedTuple):
    """A connected graph of neighbouring rows: the ends of its edges, and their lengths."""

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    length: NDArray[np.float64]


def neighbor_graph(X: NDArray, neighbors: NDArray) -> Graph:
    """Return the graph of nearest neighbours (n, k); pieces are joined by rows that face them."""
    n, k = neighbors.shape
    a, b = np.repeat(np.arange(n), k), neighbors.ravel()
    while True:
        joined = csr_array((np.ones(a.size, dtype=np.int8), (a, b)), shape=(n, n))
        n_pieces, piece = connected_components(joined, directed=False)
        if n_pieces == 1:
            break
        # In each round, the smaller half of the pieces is joined to the nearest others.
        smallest = np.argsort(np.bincount(piece), kind="stable")[: max(1, n_pieces // 2)]
        pairs = [_facing(X, np.flatnonzero(piece == one), piece) for one in smallest]
        a = np.concatenate([a, *(one for one, _ in pairs)])
        b = np.concatenate([b, *(other for _, other in pairs)])
    a, b = np.minimum(a, b), np.maximum(a, b)
    a, b = np.divmod(np.unique(a * n + b), n)
    length = np.linalg.norm(X[a] - X[b], axis=1)
    return Graph(a, b, np.maximum(length, _smallest(X)))


def _facing(X: NDArray, inside: NDArray, piece: NDArray) -> tuple[NDArray, NDArray]:
    """Return the pairs of rows by which a piece faces its nearest other pieces."""
    outside = np.flatnonzero(piece != piece[inside[0]])
    far, nearest = cKDTree(X[outside]).query(X[inside])
    most = FACING * far.min()
    there = far <= most
    back = outside[np.isin(piece[outside], piece[outside[nearest[there]]])]
    far, own = cKDTree(X[inside]).query(X[back])
    here = far <= most
    ones = np.concatenate([inside[there], back[here]])
    return ones, np.concatenate([outside[nearest[there]], inside[own[here]]])


def _smallest(X: NDArray) -> float:
    """Return a distance that stands for that of copies."""
    return 1e-12 * float(np.ptp(X, axis=0).max(initial=0.0)) or 1e-300


class Merge(NamedTuple):
    """Two modes that meet at a pass: row `mode` is the lower one, and `edge` is at the pass.

    `drop` is the fall of the log density to the pass, up to a factor, and `n_rows` the number of
    rows on the smaller side.
    """

    mode: int
    higher: int
    edge: int
    drop: float
    n_rows: int


@dataclass(frozen=True, eq=False)
class ModeTree:
    """The modes of the density of rows, and their merges in the order of falling density.

    `sparsity` is the log of the mean distance of a row to its neighbours, and `order` that of the
    edges by the sparser of their ends and middles.
    """

    X: NDArray[np.float64]
    rows: cKDTree
    n_neighbors: int
    neighbors: NDArray[np.int64]
    graph: Graph
    sparsity: NDArray[np.float64]
    order: NDArray[np.int64]
    merges: list[Merge]

    def modes(self, min_rows: int) -> list[Merge]:
        """Return the merges whose lower mode is clear, with at least `min_rows` on both sides.

        A mode counts as well if it is above another mode that counts, because the rows between
        would have no mode.
        """
        large = [one for one in self.merges if one.n_rows >= min_rows]
        clear: set[int] = set()
        if large:
            modes = np.array([one.mode for one in large])
            edges = np.array([one.edge for one in large])
            radius = self.rows.query(self.X[modes], self.n_neighbors)[0].reshape(modes.size, -1)
            middle = 0.5 * (self.X[self.graph.a[edges]] + self.X[self.graph.b[edges]])
            counts = self.rows.query_ball_point(middle, radius[:, -1], return_length=True)
            clear = set(modes[counts <= (1.0 - MIN_DROP) * self.n_neighbors].tolist())
        found = []
        for one in self.merges:
            if one.mode in clear:
                clear.add(one.higher)
                found.append(one)
        return found

    def labels(self, modes: set[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows that are the modes of the clusters, and the cluster of each row.

        Only `modes` and the highest one are kept; the rows of others join the mode across their
        pass.
        """
        parent = _Forest(self.sparsity)
        for one, other in self._ends():
            dense, sparse = parent.ordered(one, other)
            if dense != sparse and sparse not in modes:
                parent.join(sparse, dense)
        roots = np.array([parent.root(i) for i in range(len(self.X))])
        found, labels = np.unique(roots, return_inverse=True)
        return found, labels.astype(np.int64)

    def _ends(self) -> zip[tuple[int, int]]:
        a, b = self.graph.a[self.order].tolist(), self.graph.b[self.order].tolist()
        return zip(a, b, strict=True)


class _Forest:
    """Sets of rows, each named by its densest row."""

    def __init__(self, sparsity: NDArray):
        self.parent = list(range(sparsity.size))
        self.sparsity = sparsity.tolist()

    def root(self, i: int) -> int:
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def ordered(self, i: int, j: int) -> tuple[int, int]:
        """Return the roots of two rows, the denser one first."""
        one, other = self.root(i), self.root(j)
        return (one, other) if self.sparsity[one] <= self.sparsity[other] else (other, one)

    def join(self, sparse: int, dense: int) -> None:
        self.parent[sparse] = dense


def mode_tree(X: NDArray) -> ModeTree:
    """Return the modes of the neighbour density of rows, and the merges between them.

    Edges of a neighbour graph are added from the densest on. A row begins a mode if it is denser
    than its neighbours; two modes merge at the first edge that joins them, their pass. The
    density is the inverse of the mean distance to the nearest rows. This is the tree of level sets
    of the density (Chaudhuri and Dasgupta, 2010; Chazal et al., 2013).
    """
    n = len(X)
    k = n_neighbors_of(n)
    rows = cKDTree(X)
    distances, neighbors = rows.query(X, k + 1)
    distances, neighbors = _without_self(distances, neighbors)
    tiny = _smallest(X)
    sparsity = np.log(np.maximum(distances.mean(axis=1), tiny))
    graph = neighbor_graph(X, neighbors[:, :FEWEST_NEIGHBORS])
    middle = rows.query(0.5 * (X[graph.a] + X[graph.b]), k)[0].reshape(graph.a.size, -1)
    passes = np.log(np.maximum(middle.mean(axis=1), tiny))
    passes = np.maximum(passes, np.maximum(sparsity[graph.a], sparsity[graph.b]))
    order = np.argsort(passes, kind="stable")
    tree = ModeTree(X, rows, k, neighbors, graph, sparsity, order, [])
    forest, sizes, height = _Forest(sparsity), [1] * n, passes.tolist()
    for edge, (one, other) in zip(order.tolist(), tree._ends(), strict=True):
        dense, sparse = forest.ordered(one, other)
        if dense == sparse:
            continue
        drop = height[edge] - forest.sparsity[sparse]
        if drop > 0:
            smaller = min(sizes[dense], sizes[sparse])
            tree.merges.append(Merge(sparse, dense, edge, drop, smaller))
        forest.join(sparse, dense)
        sizes[dense] += sizes[sparse]
    return tree


def _without_self(distances: NDArray, neighbors: NDArray) -> tuple[NDArray, NDArray]:
    """Leave out each row's own entry, which need not be the first among copies."""
    own = neighbors == np.arange(len(neighbors))[:, None]
    own[~own.any(axis=1), -1] = True
    shape = (len(neighbors), neighbors.shape[1] - 1)
    return distances[~own].reshape(shape), neighbors[~own].reshape(shape)
