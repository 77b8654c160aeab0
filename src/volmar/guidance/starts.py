"""Labels from which a fit with seeds begins, and whether the seeds are to be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from volmar.rows import drawn_rows

__all__ = [
    "SeededStart",
    "SpreadGraph",
    "aligned_labels",
    "beats_chance",
    "held_out_folds",
    "leaf_labels",
    "seeded_start",
    "spread_labels",
]

# Rows of the graph along which labels spread, its neighbours, steps of the walk, and the share of
# a row's label that comes from its neighbours.
GRAPH_ROWS, NEIGHBORS, STEPS, FROM_NEIGHBORS = 4000, 10, 50, 0.9
# Folds of the seeds that are held out, and levels of the test that they are not random labels: to
# start from them, and to stay near that start.
FOLDS, LEVEL, STRICT_LEVEL = 5, 0.05, 0.01


def aligned_labels(
    labels: NDArray, seeds: NDArray, k: int, spread: tuple[NDArray, NDArray] | None = None
) -> NDArray:
    """Return labels whose numbers agree with as many seeds as possible.

    Of numbers that agree with as many, those that agree with more of `spread` are taken: rows, and
    labels that the seeds give them. Clusters that get no number of a class have the numbers that
    are left.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.guidance.starts import aligned_labels
    >>> aligned_labels(np.array([0, 0, 1, 1, 2]), np.array([1, -1, -1, 0, -1]), 3)
    array([1, 1, 0, 0, 2])
    """
    known = seeds >= 0
    shared = np.zeros((k, k))
    np.add.at(shared, (labels[known], seeds[known]), 1.0)
    if spread is not None:
        rows, found = spread
        np.add.at(shared, (labels[rows], found), 0.5 / rows.size)
    # Of equally good matchings the one that keeps the order of the numbers.
    shared -= 1e-6 * np.abs(np.subtract.outer(np.arange(k), np.arange(k))) / k**2
    return linear_sum_assignment(shared, maximize=True)[1][labels]


def leaf_labels(labels: NDArray, seeds: NDArray, n_classes: int) -> tuple[NDArray, int]:
    """Return labels by the class that has most seeds in a cluster, and the number of clusters.

    Clusters without seeds follow the classes. Of a class that has most seeds nowhere only the
    seeds themselves have its number.
    """
    n_found = int(labels.max()) + 1
    known = seeds >= 0
    shared = np.zeros((n_found, n_classes))
    np.add.at(shared, (labels[known], seeds[known]), 1.0)
    numbers = np.argmax(shared, axis=1)
    free = np.flatnonzero(shared.sum(axis=1) == 0)
    numbers[free] = n_classes + np.arange(free.size)
    return np.where(known, seeds, numbers[labels]), n_classes + free.size


def spread_labels(
    X: Any, seeds: NDArray, n_classes: int, seed: int = 0, *, W: Any = None
) -> NDArray:
    """Return labels that spread from the seeds along a graph; see `SpreadGraph`."""
    return SpreadGraph(X, seeds >= 0, seed, W=W).labels(seeds, n_classes)


class SpreadGraph:
    """A graph along which labels spread: given, or of nearest neighbours.

    The step is that of label spreading: a row takes most of its label from its neighbours, the
    rest from its own seed. A sample has all seeds in it, and other rows have the label of their
    nearest row in it, as do those that no label reaches.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        The rows.
    known : ndarray of bool, shape (n,)
        Rows that may be seeds.
    seed : int
        Draws the sample.
    W : array or CSR matrix of shape (n, n), optional
        Similarities of the rows. If not given, the graph is that of nearest neighbours of X, of a
        sample where the rows are many.
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
            graph = NearestNeighbors(n_neighbors=n_neighbors).fit(self.rows).kneighbors_graph()
            W = graph.maximum(graph.T)
        degrees = np.asarray(W.sum(axis=1), dtype=np.float64).ravel()
        roots = np.zeros(degrees.size)  # isolated nodes stay as they are
        np.divide(1.0, np.sqrt(degrees), out=roots, where=degrees > np.finfo(np.float32).tiny)
        scale = sparse.diags_array(roots)
        self.W = scale @ W @ scale  # dense where W is

    def labels(self, seeds: NDArray, n_classes: int) -> NDArray:
        """Return the labels of all rows; classes count alike, however many seeds they have."""
        labels = self.labels_in_sample(seeds[self.chosen], n_classes)
        if self.chosen.size < seeds.size:
            everywhere = KNeighborsClassifier(1).fit(self.rows, labels).predict(self.X)
            everywhere[self.chosen] = labels
            labels = everywhere
        return np.where(seeds >= 0, seeds, labels)

    def labels_in_sample(self, seeds: NDArray, n_classes: int) -> NDArray:
        """Return the labels of the rows of the graph; those that none reaches have the nearest."""
        labels, reached = self._spread(seeds, n_classes)
        if not reached.all():
            nearest = KNeighborsClassifier(1).fit(self.rows[reached], labels[reached])
            labels[~reached] = nearest.predict(self.rows[~reached])
        return np.where(seeds >= 0, seeds, labels)

    def _spread(self, own: NDArray, n_classes: int) -> tuple[NDArray, NDArray]:
        start = np.zeros((own.size, n_classes))
        is_known = own >= 0
        start[is_known, own[is_known]] = 1.0
        start /= np.maximum(start.sum(axis=0), 1.0)
        field = start.copy()
        for _ in range(STEPS):
            field = FROM_NEIGHBORS * (self.W @ field) + (1.0 - FROM_NEIGHBORS) * start
        return np.argmax(field, axis=1), field.max(axis=1) > 0


class SeededStart(NamedTuple):
    """Labels to start from, and the graph along which they have spread, if they have."""

    labels: NDArray
    graph: SpreadGraph | None


def seeded_start(
    X: Any, free: NDArray, seeds: NDArray, k: int, seed: int = 0, *, W: Any = None
) -> SeededStart:
    """Return labels to start from: those of a free fit with aligned numbers, or of the seeds.

    Held-out seeds decide. The labels that spread from the other seeds are taken where they predict
    held-out ones significantly better than chance, so that labels that say nothing do no harm, and
    predict more of them than the free clusters, numbered by the others. Labels spread along the
    similarities W where these are given.
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
    """Whether seeds agree with each other beyond chance, and more than with the free clusters."""
    if np.count_nonzero(by_seeds == known) <= np.count_nonzero(by_clusters == known):
        return False
    return beats_chance(known, by_seeds, LEVEL)


def beats_chance(known: NDArray, predicted: NDArray, level: float) -> bool:
    """Whether predictions agree with labels more than independent ones with the same shares do."""
    if known.size == 0:
        return False
    chance = sum(np.mean(known == c) * np.mean(predicted == c) for c in np.unique(known))
    n_right = int(np.count_nonzero(predicted == known))
    return bool(binomtest(n_right, known.size, chance, alternative="greater").pvalue <= level)


def _split_clusters(
    X: Any, aligned: NDArray, seeds: NDArray, k: int, seed: int, W: Any
) -> NDArray | None:
    """Return labels with each cluster divided among the classes of its seeds; None if not k."""
    labels = aligned.copy()
    n_classes = int(seeds.max()) + 1
    for cluster in range(k):
        rows = np.flatnonzero(aligned == cluster)
        inside = np.unique(seeds[rows])
        inside = inside[inside >= 0]
        if inside.size == 0:
            labels[rows] = n_classes + cluster  # the seeds of its class, if any, are elsewhere
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
    """Yield the numbers of held-out rows, and the seeds without them.

    Folds without which a class would have no seed are left out.
    """
    known = np.random.default_rng(seed).permutation(np.flatnonzero(seeds >= 0))
    n_classes = np.unique(seeds[known]).size
    for fold in np.array_split(known, min(FOLDS, known.size)):
        rest = seeds.copy()
        rest[fold] = -1
        if np.unique(rest[rest >= 0]).size == n_classes:
            yield fold, rest


def _held_out(
    graph: SpreadGraph, free: NDArray, seeds: NDArray, k: int, seed: int
) -> tuple[NDArray, NDArray, NDArray]:
    """Return held-out seeds, and what the others make of them: by spreading, by free clusters."""
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
