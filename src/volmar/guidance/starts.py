"""Start labels of a fit with seeds (labelled rows), and tests whether seeds are informative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest
from sklearn.metrics import pairwise_distances_argmin
from sklearn.neighbors import NearestNeighbors

from volmar.rows.anywhere import drawn_rows

# Label spreading: maximum number of rows in the graph, number of neighbours, and share of a row's
# label that comes from its neighbours.
GRAPH_ROWS, NEIGHBORS, FROM_NEIGHBORS = 4000, 10, 0.9
# Levels of the tests against random labels: to start from
# the spread labels, and to end the fit after its first step.
LEVEL, STRICT_LEVEL = 0.05, 0.01


def aligned_labels(
    labels: NDArray, seeds: NDArray, k: int, spread: tuple[NDArray, NDArray] | None = None
) -> NDArray:
    """Renumber labels to agree with as many seeds as possible.

    Ties are broken by agreement with `spread`, a pair of rows and of the labels that spread to
    them from the seeds. Clusters that match no class get the remaining numbers.
    """
    known = seeds >= 0
    shared = np.zeros((k, k))
    np.add.at(shared, (labels[known], seeds[known]), 1.0)
    if spread is not None:
        rows, found = spread
        np.add.at(shared, (labels[rows], found), 0.5 / rows.size)
    # Prefer the matching that keeps the order of the numbers among equally good ones.
    shared -= 1e-6 * np.abs(np.subtract.outer(np.arange(k), np.arange(k))) / k**2
    return linear_sum_assignment(shared, maximize=True)[1][labels]


def spread_labels(
    X: Any, seeds: NDArray, n_classes: int, seed: int = 0, *, W: Any = None
) -> NDArray:
    """Spread the labels of the seeds to all rows along a graph; see `SpreadGraph`."""
    return SpreadGraph(X, seeds >= 0, seed, W=W).labels(seeds, n_classes)


class SpreadGraph:
    """A graph for label spreading, given or of nearest neighbours.

    In each step, a row takes most of its label from its neighbours, and the rest from its own
    seed. If the graph is that of a sample, the sample contains all seeds. Rows outside the sample,
    and rows that no label reaches, get the label of the nearest labelled row.
    """

    def __init__(self, X: Any, known: NDArray, seed: int = 0, *, W: Any = None):
        n = known.size
        self.X = X
        self.chosen = np.arange(n)
        if n > GRAPH_ROWS and W is None:
            drawn = drawn_rows(n, None, GRAPH_ROWS, np.random.default_rng(seed))
            self.chosen = np.union1d(drawn, np.flatnonzero(known))
        self.rows = X[self.chosen]
        if W is None:
            n_neighbors = min(NEIGHBORS, self.chosen.size - 1)
            search = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(self.rows)
            graph = search.kneighbors_graph()
            W = graph.maximum(graph.T)
        degrees = np.asarray(W.sum(axis=1), dtype=np.float64).ravel()
        roots = np.zeros(degrees.size)  # isolated nodes keep their own label
        np.divide(1.0, np.sqrt(degrees), out=roots, where=degrees > np.finfo(np.float32).tiny)
        scale = sparse.diags_array(roots)
        self.W = scale @ W @ scale  # dense if W is dense

    def labels(self, seeds: NDArray, n_classes: int) -> NDArray:
        """Return the labels of all rows; all classes count equally."""
        labels = self.labels_in_sample(seeds[self.chosen], n_classes)
        if self.chosen.size < seeds.size:
            everywhere = labels[pairwise_distances_argmin(self.X, self.rows)]
            everywhere[self.chosen] = labels
            labels = everywhere
        return np.where(seeds >= 0, seeds, labels)

    def labels_in_sample(self, seeds: NDArray, n_classes: int) -> NDArray:
        """Return the labels of the rows of the graph; unreached rows get the nearest label."""
        labels, reached = self._spread(seeds, n_classes)
        if not reached.all():
            nearest = pairwise_distances_argmin(self.rows[~reached], self.rows[reached])
            labels[~reached] = labels[reached][nearest]
        return np.where(seeds >= 0, seeds, labels)

    def _spread(self, own: NDArray, n_classes: int) -> tuple[NDArray, NDArray]:
        start = np.zeros((own.size, n_classes))
        is_known = own >= 0
        start[is_known, own[is_known]] = 1.0
        start /= np.maximum(start.sum(axis=0), 1.0)
        field = start.copy()
        for _ in range(50):
            field = FROM_NEIGHBORS * (self.W @ field) + (1.0 - FROM_NEIGHBORS) * start
        return np.argmax(field, axis=1), field.max(axis=1) > 0


class SeededStart(NamedTuple):
    """Start labels, and the graph along which they were spread, or None."""

    labels: NDArray
    graph: SpreadGraph | None


def seeded_start(
    X: Any, free: NDArray, seeds: NDArray, k: int, seed: int = 0, *, W: Any = None
) -> SeededStart:
    """Return start labels: those of the unguided fit, renumbered, or those spread from the seeds.

    Held-out seeds decide. Spread labels are used if they predict held-out seeds significantly
    better than chance, so that uninformative seeds do no harm, and if they predict more of them
    than the unguided clusters do. If similarities W are given, labels spread along these.
    """
    n_classes = int(seeds.max()) + 1
    graph = SpreadGraph(X, seeds >= 0, seed, W=W)
    own_in_sample = graph.labels_in_sample(seeds[graph.chosen], n_classes)
    aligned = aligned_labels(free, seeds, k, (graph.chosen, own_in_sample))
    if not _are_trusted(*_held_out(graph, free, seeds, k, seed)):
        return SeededStart(aligned, None)
    if k == n_classes:
        return SeededStart(graph.labels(seeds, n_classes), graph)
    own = _split_clusters(X, aligned, seeds, k, seed, W)
    return SeededStart(aligned if own is None else own, None)


def _are_trusted(known: NDArray, by_seeds: NDArray, by_clusters: NDArray) -> bool:
    """Return whether seeds predict each other better than chance and the unguided clusters do."""
    if np.count_nonzero(by_seeds == known) <= np.count_nonzero(by_clusters == known):
        return False
    return beats_chance(known, by_seeds, LEVEL)


def beats_chance(known: NDArray, predicted: NDArray, level: float) -> bool:
    """Test whether predictions agree with labels more often than independent predictions would.

    The independent predictions have the same class shares. Return whether the p-value of a
    binomial test is at most `level`.
    """
    if known.size == 0:
        return False
    chance = sum(np.mean(known == c) * np.mean(predicted == c) for c in np.unique(known))
    n_right = int(np.count_nonzero(predicted == known))
    return bool(binomtest(n_right, known.size, chance, alternative="greater").pvalue <= level)


def _split_clusters(
    X: Any, aligned: NDArray, seeds: NDArray, k: int, seed: int, W: Any
) -> NDArray | None:
    """Divide each cluster among the classes of its seeds; return None unless k clusters result."""
    labels = aligned.copy()
    n_classes = int(seeds.max()) + 1
    for cluster in range(k):
        rows = np.flatnonzero(aligned == cluster)
        inside = np.unique(seeds[rows])
        inside = inside[inside >= 0]
        if inside.size == 0:
            labels[rows] = n_classes + cluster  # seeds of its class, if any, are in other clusters
            continue
        if inside.size == 1:
            labels[rows] = inside[0]
            continue
        few = np.searchsorted(inside, seeds[rows])
        few[seeds[rows] < 0] = -1
        inner = None if W is None else W[rows][:, rows]
        labels[rows] = inside[spread_labels(X[rows], few, inside.size, seed, W=inner)]
    labels[seeds >= 0] = seeds[seeds >= 0]
    new = np.unique(labels[labels >= n_classes])
    if n_classes + new.size != k:
        return None
    if new.size:
        is_new = labels >= n_classes
        labels[is_new] = n_classes + np.searchsorted(new, labels[is_new])
    return labels


def held_out_folds(seeds: NDArray, seed: int) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield the numbers of held-out rows and the remaining seeds.

    A fold is skipped if a class would have no remaining seeds.
    """
    known = np.random.default_rng(seed).permutation(np.flatnonzero(seeds >= 0))
    n_classes = np.unique(seeds[known]).size
    for fold in np.array_split(known, min(5, known.size)):
        rest = seeds.copy()
        rest[fold] = -1
        if np.unique(rest[rest >= 0]).size == n_classes:
            yield fold, rest


def _held_out(
    graph: SpreadGraph, free: NDArray, seeds: NDArray, k: int, seed: int
) -> tuple[NDArray, NDArray, NDArray]:
    """Return held-out seeds, and their predictions by spreading and by the unguided clusters."""
    n_classes = int(seeds.max()) + 1
    found: list[tuple[NDArray, NDArray, NDArray]] = []
    for fold, rest in held_out_folds(seeds, seed):
        spread = graph.labels_in_sample(rest[graph.chosen], n_classes)
        by_clusters = aligned_labels(free, rest, k, (graph.chosen, spread))[fold]
        by_seeds = spread[np.searchsorted(graph.chosen, fold)]
        found.append((seeds[fold], by_seeds, by_clusters))
    if not found:
        return (np.empty(0, dtype=np.int64),) * 3
    one, two, three = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return one, two, three
