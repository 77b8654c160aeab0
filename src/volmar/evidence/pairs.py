"""Pairs of clusters of a partition: the clearest pair."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.evidence.densities import Valley, deepest_valleys
from volmar.evidence.two_groups import SearchedRows


@dataclass(frozen=True, eq=False)
class LinearCells:
    """Cells in which one of k linear functions is the largest, each on one of two `sides`.

    The functions are ``coef[l] @ x + intercept[l]``.
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    sides: NDArray[np.bool_]

    @classmethod
    def hyperplane(cls, w: NDArray, cut: float) -> LinearCells:
        """Return the two half-spaces of a hyperplane; the second side is :math:`w'x >` cut."""
        sides = np.array([False, True])
        return cls(np.vstack([np.zeros_like(w), w]), np.array([0.0, -cut]), sides)

    def functions(self, X: Any) -> NDArray[np.float64]:
        """Return the values (n, k) of the functions at rows, dense or CSR."""
        return np.asarray(X @ self.coef.T) + self.intercept

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the largest function of the second side minus the largest of the first.

        It is positive on the second side, and linear in the rows if each side is a single cell.
        """
        values = self.functions(X)
        return values[:, self.sides].max(axis=1) - values[:, ~self.sides].max(axis=1)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the sides of rows, 0 or 1."""
        return (self.decision_function(X) > 0).astype(np.int64)


# --------- partitions of rows into several clusters: k-means, then rounds of linear discriminants

# Maximum number of k-means iterations.
MAX_ITER = 10
# Ridge of the covariance within clusters, in units of its mean variance.
REG = 0.1


class Discriminants(NamedTuple):
    """Linear functions t'directions + offsets; the largest one at t is the cluster of a row t."""

    directions: NDArray[np.float64]
    offsets: NDArray[np.float64]


def partitions(T: NDArray, rng: np.random.Generator) -> list[Discriminants]:
    """Return a partition of rows (n, r) for several numbers of clusters.

    At most 1,000 rows are clustered by k-means, in single precision and from initial centres that
    are far apart. Rounds of linear discriminants of all rows follow.
    """
    n, r = T.shape
    numbers = [k for k in (2, 3, 4, 5, 6, 7, 8, 10) if n >= 20 * k]
    if not numbers or r == 0:
        return []
    rows = T.astype(np.float32)
    few = rows if n <= 1000 else rows[rng.choice(n, 1000, replace=False)]
    scatter = T.T @ T
    # Minimum share of a cluster. A round with a smaller cluster is discarded.
    min_size = max(5, 0.01 * n)
    found = []
    for k in numbers:
        centres = _k_means(few, _far_centres(few, k, rng))
        labels = _nearest(rows, centres)
        if np.bincount(labels, minlength=k).min() == 0:
            continue
        partition = discriminants(T, labels, k, scatter)
        for _ in range(3):
            directions, offsets = (part.astype(np.float32) for part in partition)
            again = np.argmax(rows @ directions + offsets, axis=1)
            if np.array_equal(again, labels) or np.bincount(again, minlength=k).min() < min_size:
                break
            labels = again
            partition = discriminants(T, labels, k, scatter)
        found.append(partition)
    return found


def discriminants(
    T: NDArray, labels: NDArray, k: int, scatter: NDArray | None = None
) -> Discriminants:
    r"""Return the linear discriminants of clusters 0 to k - 1, none of which is empty.

    :math:`f_l(t) = \mu_l' S^{-1} (t - \mu_l / 2)`, with one regularised covariance S within
    clusters. `scatter` is T'T; it is computed if None.
    """
    n, r = T.shape
    scatter = T.T @ T if scatter is None else scatter
    means, sizes = _means(T, labels, k)
    S = (scatter - (means.T * sizes) @ means) / n
    mean_variance = np.trace(S) / r
    # A variance within clusters below this share of the total is rounding error.
    if mean_variance <= 1e-12 * np.trace(scatter) / (n * r):
        mean_variance, S = 1.0 / REG, np.zeros_like(S)
    S[np.diag_indices(r)] += REG * mean_variance
    _, directions, _ = linalg.lapack.dposv(S, means.T)  # positive definite by its ridge
    return Discriminants(directions, -0.5 * np.einsum("kr,rk->k", means, directions))


def _means(T: NDArray, labels: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Return the means (k, r) and sizes of clusters; the mean of an empty cluster is 0."""
    members = (labels == np.arange(k)[:, None]).astype(T.dtype)
    sizes = members.sum(axis=1)
    return members @ T / np.maximum(sizes, 1)[:, None], sizes


def _k_means(rows: NDArray, centres: NDArray) -> NDArray:
    """Return the centres after at most `MAX_ITER` of Lloyd's iterations."""
    labels = np.full(len(rows), -1)
    for _ in range(MAX_ITER):
        again = _nearest(rows, centres)
        n_changes = np.count_nonzero(again != labels)
        labels = again
        if n_changes <= 0.002 * len(rows):
            break
        means, sizes = _means(rows, labels, len(centres))
        centres = np.where(sizes[:, None] > 0, means, centres)
    return centres


def _nearest(rows: NDArray, centres: NDArray) -> NDArray[np.int64]:
    """Return the nearest centre of each row."""
    values = rows @ centres.T
    values -= 0.5 * np.einsum("kr,kr->k", centres, centres)
    return np.argmax(values, axis=1)


def _far_centres(rows: NDArray, k: int, rng: np.random.Generator) -> NDArray:
    """Return at most k rows that are far apart, by the greedy rule of k-means++.

    The best of four draws, by the remaining sum of squares, is chosen.
    """
    norms = np.einsum("nr,nr->n", rows, rows)
    chosen = [int(rng.integers(len(rows)))]
    nearest = np.maximum(norms - 2.0 * (rows @ rows[chosen[0]]) + norms[chosen[0]], 0.0)
    while len(chosen) < k:
        sums = np.cumsum(nearest, dtype=np.float64)
        if not sums[-1] > 0:
            break
        tried = np.searchsorted(sums, rng.random(4) * sums[-1], side="right")
        tried = np.minimum(tried, len(rows) - 1)
        distances = rows[tried] @ rows.T
        distances *= -2.0
        distances += norms
        distances += norms[tried, None]
        np.clip(distances, 0.0, nearest, out=distances)
        best = int(np.argmin(distances.sum(axis=1)))
        chosen.append(int(tried[best]))
        nearest = distances[best]
    return rows[chosen]


# -------------------- the clearest pair of clusters of a partition, tested inside a convex region


@dataclass(frozen=True, eq=False)
class CellPair:
    """A partition into cells, and a pair of its cells.

    The second side of `cells` has the second cell of the pair and the cells connected to it.
    `significance` is the depth of the valley in standard errors, `depth` that of the shallowest
    valley between the sides, 1 for an empty gap.
    """

    cells: LinearCells
    pair: tuple[int, int]
    significance: float
    depth: float

    def functions(self, rows: Any) -> NDArray[np.float64]:
        """Return the values (n, k) of the linear functions at rows."""
        return self.cells.functions(rows)


def in_region(values: NDArray, i: int, j: int) -> NDArray[np.bool_]:
    r"""Return which rows are in the convex region of cells i and j, from their functions (n, k).

    With linear functions :math:`f_l`, it is :math:`f_i + f_j \ge 2 f_l` for all other l, which is
    an intersection of half-spaces, and therefore convex. It contains the rows at which
    :math:`f_i` and :math:`f_j` are the two largest and about equal, and the cores of both cells. A
    log-concave density restricted to a convex set and projected on a line is log-concave
    (Prékopa), and therefore unimodal. The union of two cells is not convex in general: rows in two
    cells of a single Gaussian can be bimodal.
    """
    highest_other = np.delete(values, [i, j], axis=1).max(axis=1, initial=-np.inf)
    return np.asarray(values[:, i] + values[:, j] >= 2.0 * highest_other)


def clearest_pairs(rows: SearchedRows, rng: np.random.Generator) -> list[CellPair]:
    r"""Find, for several partitions, the two clusters that are most clearly separated.

    Each pair of cells is projected on the difference of their discriminants :math:`f_j - f_i`
    inside its region. Valleys that a path through other cells avoids do not count. The valley with
    the largest depth in standard errors among the others is chosen.
    """
    found = partitions(rows.T, rng)
    regions = [_regions(rows.T @ one.directions + one.offsets) for one in found]
    valleys = iter(deepest_valleys([scores for _, samples, _ in regions for scores in samples]))
    clearest = [
        _clearest(rows, one, pairs, [next(valleys) for _ in pairs])
        for one, (pairs, _, _) in zip(found, regions, strict=True)
        if pairs
    ]
    return [pair for pair in clearest if pair.significance > 0]


def _regions(values: NDArray) -> tuple[list[tuple[int, int]], list[NDArray], list[NDArray]]:
    r"""Return the pairs of cells with enough rows in their region, the scores, and these rows.

    If a row is in the region of two cells, its largest function :math:`f_i` is that of one of
    them, because :math:`f_i + f_j \ge 2 f_l` for all other l. Let :math:`f_m` be its second
    largest function. The row is in the regions of i and each cell j with
    :math:`f_j \ge 2 f_m - f_i`, which includes m.
    """
    n, k = values.shape
    each, top = np.arange(n), np.argmax(values, axis=1)
    largest = values[each, top]
    others = values.copy()
    others[each, top] = -np.inf
    rows, seconds = np.nonzero(others >= (2.0 * others.max(axis=1) - largest)[:, None])
    low, high = np.minimum(top[rows], seconds), np.maximum(top[rows], seconds)
    pair = k * low + high
    order = np.argsort(pair, kind="stable")
    scores = (values[rows, high] - values[rows, low])[order]
    sizes = np.bincount(pair, minlength=k * k)
    ends = np.cumsum(sizes)
    kept = np.flatnonzero(sizes >= 20)
    parts = [slice(ends[one] - sizes[one], ends[one]) for one in kept]
    pairs = [(int(one) // k, int(one) % k) for one in kept]
    return pairs, [scores[part] for part in parts], [rows[order[part]] for part in parts]


def _clearest(
    rows: SearchedRows,
    partition: Discriminants,
    pairs: list[tuple[int, int]],
    valleys: list[Valley],
) -> CellPair:
    """Return the most clearly separated pair of a partition, with the two sides around it."""
    directions, offsets = partition
    known = dict(zip(pairs, valleys, strict=True))
    tree, sides = _bottleneck(offsets.size, known)
    pair = max(tree, key=lambda edge: tree[edge])
    depth = min(valley.depth for (i, j), valley in known.items() if sides[i] != sides[j])
    coef = rows.coefficients(directions).T
    cells = LinearCells(coef, offsets - coef @ rows.mean, sides)
    i, j = pair if sides[pair[1]] else pair[::-1]
    return CellPair(cells, (i, j), tree[pair], depth)


def _bottleneck(
    k: int, valleys: dict[tuple[int, int], Valley]
) -> tuple[dict[tuple[int, int], float], NDArray[np.bool_]]:
    """Return the minimum spanning tree by significance, and the two sides of its clearest edge.

    Cells are joined one after the other, those with the least significant valley first. Two cells
    with a valley between them may still be connected through other cells, like the arcs of a ring.
    The clearest edge of the tree is a valley that no such path avoids.
    """
    edges = sorted(valleys, key=lambda pair: valleys[pair].significance)
    # Pairs without rows between them come last. They are never the clearest edge.
    edges += [pair for pair in combinations(range(k), 2) if pair not in valleys]
    group = np.arange(k)
    tree = []
    for i, j in edges:
        if group[i] != group[j]:
            group[group == group[j]] = group[i]
            tree.append((i, j))
    clearest = max((e for e in tree if e in valleys), key=lambda e: valleys[e].significance)
    group = np.arange(k)
    for i, j in tree:
        if (i, j) != clearest:
            group[group == group[j]] = group[i]
    known = {edge: valleys[edge].significance for edge in tree if edge in valleys}
    return known, np.asarray(group == group[clearest[1]])
