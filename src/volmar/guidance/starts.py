"""Labels from which a fit with seeds begins, and whether the seeds are to be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from volmar.rows import drawn_rows

__all__ = ["aligned_labels", "leaf_labels", "seeded_starts", "spread_labels"]

# Rows of the graph along which labels spread, its neighbours, steps of the walk, and the share of
# a row's label that comes from its neighbours.
GRAPH_ROWS, NEIGHBORS, STEPS, FROM_NEIGHBORS = 4000, 10, 50, 0.9
# Folds of the seeds that are held out, and the level at which they speak for their own start.
FOLDS, LEVEL = 5, 0.05


def aligned_labels(labels: NDArray, seeds: NDArray, k: int) -> NDArray:
    """Return labels whose numbers agree with as many seeds as possible.

    Clusters that get no number of a class have the numbers that are left, the largest first.

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


def spread_labels(X: Any, seeds: NDArray, n_classes: int, seed: int = 0) -> NDArray:
    """Return labels that spread from the seeds along a graph of nearest neighbours.

    The step is that of label spreading: a row takes most of its label from its neighbours, the
    rest from its own seed. Of many rows a sample, with all seeds in it, is the graph; the others
    have the label of their nearest row in it. Classes count alike, however many seeds they have.
    """
    n = seeds.size
    known = np.flatnonzero(seeds >= 0)
    chosen = np.arange(n)
    if n > GRAPH_ROWS:
        chosen = drawn_rows(n, None, GRAPH_ROWS, np.random.default_rng(seed))
        chosen = np.union1d(chosen, known)
    rows, own = X[chosen], seeds[chosen]
    n_neighbors = min(NEIGHBORS, chosen.size - 1)
    graph = NearestNeighbors(n_neighbors=n_neighbors).fit(rows).kneighbors_graph()
    W = graph.maximum(graph.T)
    scale = sparse.diags_array(1.0 / np.sqrt(np.asarray(W.sum(axis=1)).ravel()))
    W = (scale @ W @ scale).tocsr()
    start = np.zeros((chosen.size, n_classes))
    is_known = own >= 0
    start[is_known, own[is_known]] = 1.0
    start /= np.maximum(start.sum(axis=0), 1.0)
    field = start.copy()
    for _ in range(STEPS):
        field = FROM_NEIGHBORS * (W @ field) + (1.0 - FROM_NEIGHBORS) * start
    labels = np.argmax(field, axis=1)
    reached = field.max(axis=1) > 0
    if not reached.all() or chosen.size < n:
        nearest = KNeighborsClassifier(1).fit(rows[reached], labels[reached])
        everywhere = nearest.predict(X)
        everywhere[chosen[reached]] = labels[reached]
        labels = everywhere
    return np.where(seeds >= 0, seeds, labels)


def seeded_starts(X: Any, free: NDArray, seeds: NDArray, k: int, seed: int = 0) -> list[NDArray]:
    """Return labels to start from: those of a free fit with aligned numbers, those of the seeds.

    Held-out seeds decide where they can: the labels that spread from the others against the free
    clusters, numbered by the others. Where the free clusters agree with as many of them, they are
    the only start, so that wrong seeds do no harm; where the seeds agree significantly more with
    each other, theirs is the only one. In between both are returned, for the objective to choose.
    """
    n_classes = int(seeds.max()) + 1
    aligned = aligned_labels(free, seeds, k)
    if k > n_classes:
        own = _split_clusters(X, aligned, seeds, k, seed)
    else:
        own = spread_labels(X, seeds, n_classes, seed)
    if own is None or np.array_equal(own, aligned):
        return [aligned]
    better, worse = _held_out_votes(X, free, seeds, k, seed)
    if better <= worse:
        return [aligned]
    p_value = binomtest(better, better + worse, alternative="greater").pvalue
    return [own] if p_value <= LEVEL else [aligned, own]


def _split_clusters(X: Any, aligned: NDArray, seeds: NDArray, k: int, seed: int) -> NDArray | None:
    """Return labels with each cluster divided among the classes of its seeds; None if not k."""
    labels = aligned.copy()
    n_classes = int(seeds.max()) + 1
    for cluster in range(k):
        rows = np.flatnonzero(aligned == cluster)
        inside = np.unique(seeds[rows])
        inside = inside[inside >= 0]
        if inside.size == 0:
            continue
        if inside.size == 1:
            labels[rows] = inside[0]
            continue
        few = np.searchsorted(inside, seeds[rows])
        few[seeds[rows] < 0] = -1
        labels[rows] = inside[spread_labels(X[rows], few, inside.size, seed)]
    labels[seeds >= 0] = seeds[seeds >= 0]
    new = np.unique(labels[labels >= n_classes])
    if n_classes + new.size != k:
        return None
    if new.size:
        is_new = labels >= n_classes
        labels[is_new] = n_classes + np.searchsorted(new, labels[is_new])
    return labels


def _held_out_votes(X: Any, free: NDArray, seeds: NDArray, k: int, seed: int) -> tuple[int, int]:
    """Return how many held-out seeds only spreading predicts, and how many only free clusters."""
    known = np.random.default_rng(seed).permutation(np.flatnonzero(seeds >= 0))
    n_classes = int(seeds.max()) + 1
    better = worse = 0
    for fold in np.array_split(known, min(FOLDS, known.size)):
        rest = seeds.copy()
        rest[fold] = -1
        if np.unique(rest[rest >= 0]).size < n_classes:
            continue  # a class would be without a seed
        by_seeds = spread_labels(X, rest, n_classes, seed)[fold] == seeds[fold]
        by_clusters = aligned_labels(free, rest, k)[fold] == seeds[fold]
        better += int(np.count_nonzero(by_seeds & ~by_clusters))
        worse += int(np.count_nonzero(by_clusters & ~by_seeds))
    return better, worse
