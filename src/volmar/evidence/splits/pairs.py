"""The clearest pair of clusters of a partition, looked at inside a convex region."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from volmar._threads import one_thread
from volmar.evidence.modes.valleys import Valley, deepest_valleys
from volmar.evidence.splits.cells import LinearCells
from volmar.evidence.splits.searched import SearchedRows

__all__ = ["CellPair", "clearest_pairs", "in_region", "pairwise_valleys"]

# Numbers of clusters that are tried, as long as the mean cluster has so many rows.
NUMBERS, ROWS_A_CLUSTER = (2, 3, 4, 5, 6, 7, 8, 10), 20
# Restarts and iterations of k-means, rounds of discriminants that follow it.
N_INIT, MAX_ITER, N_ROUNDS = 1, 30, 3
# Regularisation of the covariance within clusters, in units of its mean variance.
REG = 0.1
# Minimum share of a cluster; rounds that fall below it are not taken.
LEAST_SHARE = 0.01
# Fewer rows in a region say nothing.
FEWEST = 20
# Pairs that are tested together: those with this share of the largest significance.
MOST_PAIRS, COMPARABLE = 4, 0.5


@dataclass(frozen=True, eq=False)
class CellPair:
    """Two cells of a partition, and all of it.

    Attributes
    ----------
    cells : LinearCells
        The partition, in the units of the rows. On the second side are the second of the pair and
        the cells that are connected to it, on the first side all others.
    pair : tuple of int
        The two cells, the first of which is on the first side.
    others : tuple of tuple of int
        Other pairs that are about as clearly apart. No two pairs have a cell in common.
    significance : float
        Of the valley between the two: its depth in standard errors.
    depth : float
        Of the shallowest valley between the two sides: 0 without a valley, 1 for an empty gap.
    """

    cells: LinearCells
    pair: tuple[int, int]
    others: tuple[tuple[int, int], ...]
    significance: float
    depth: float

    def functions(self, rows: Any) -> NDArray[np.float64]:
        """Return the functions (n, k) of rows."""
        return self.cells.functions(rows)

    def samples(self, values: NDArray) -> list[tuple[NDArray, NDArray]]:
        r"""Return, for each pair, the scores between the two in its region, and of which rows.

        Regions of pairs without a common cell are disjoint: from :math:`f_i + f_j \ge 2 f_k` and
        :math:`\ge 2 f_l` follows :math:`f_i + f_j \ge f_k + f_l`, and the reverse.
        """
        found = []
        for i, j in (self.pair, *self.others):
            inside = np.flatnonzero(in_region(values, i, j))
            found.append((values[inside, j] - values[inside, i], inside))
        return found


def in_region(values: NDArray, i: int, j: int) -> NDArray[np.bool_]:
    r"""Return which rows are in the convex region of cells i and j, from their functions (n, k).

    With linear functions :math:`f_l` it is :math:`f_i + f_j \ge 2 f_l` for all others l, an
    intersection of half-spaces, which is convex. It holds the rows where :math:`f_i` and
    :math:`f_j` are the two largest and about equal, and the cores of both cells. A log-concave
    density restricted to a convex set and projected on a line is log-concave (Prékopa), hence has
    one mode. The union of two cells is not convex in general: rows of two cells of one Gaussian
    can have two modes.
    """
    highest_other = np.delete(values, [i, j], axis=1).max(axis=1, initial=-np.inf)
    return np.asarray(values[:, i] + values[:, j] >= 2.0 * highest_other)


def clearest_pairs(rows: SearchedRows, rng: np.random.Generator) -> list[CellPair]:
    r"""Find, for several partitions, the two clusters that are most clearly apart.

    Rows are clustered by k-means with several numbers of clusters, each followed by rounds of
    linear discriminants with one covariance S within clusters, :math:`f_l(z) = \mu_l' S^{-1} (z -
    \mu_l / 2)`. Each pair of cells is projected on :math:`f_j - f_i` inside its region
    (`in_region`). Of the valleys that no way by other cells avoids, the one with the largest
    depth, in standard errors, is taken.

    Parameters
    ----------
    rows : SearchedRows
        The rows.
    rng : Generator
        Seeds of k-means.

    Returns
    -------
    list of CellPair
        One for each number of clusters with a valley that no way avoids.
    """
    n = len(rows.T)
    found = []
    for k in NUMBERS:
        if n < ROWS_A_CLUSTER * k or rows.T.shape[1] == 0:
            break
        partition = _partition(rows.T, k, int(rng.integers(2**31 - 1)))
        if partition is None:
            continue
        directions, offsets = partition
        pairs, samples, _ = _regions(rows.noisy @ directions + offsets)
        valleys = deepest_valleys(samples)
        if pairs:
            pair = _clearest(rows, directions, offsets, pairs, valleys)
            found += [pair] if pair.significance > 0 else []
    return found


def _partition(T: NDArray, k: int, seed: int) -> tuple[NDArray, NDArray] | None:
    """Return discriminants (r, k) and their offsets (k,); None where k-means finds fewer."""
    with warnings.catch_warnings(), config_context(assume_finite=True), one_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        labels = KMeans(k, n_init=N_INIT, max_iter=MAX_ITER, random_state=seed).fit_predict(T)
    if np.bincount(labels, minlength=k).min() == 0:
        return None
    found = _discriminants(T, labels, k)
    fewest = max(5, LEAST_SHARE * len(T))
    for _ in range(N_ROUNDS):
        again = np.argmax(T @ found[0] + found[1], axis=1)
        if (again == labels).all() or np.bincount(again, minlength=k).min() < fewest:
            break
        labels = again
        found = _discriminants(T, labels, k)
    return found


def _discriminants(T: NDArray, labels: NDArray, k: int) -> tuple[NDArray, NDArray]:
    n, r = T.shape
    members = np.zeros((n, k))
    members[np.arange(n), labels] = 1.0
    means = (members / members.sum(axis=0)).T @ T
    within = T - means[labels]
    S = within.T @ within / n
    mean_variance = np.trace(S) / r
    S[np.diag_indices(r)] += REG * mean_variance if mean_variance > 0 else 1.0
    directions = linalg.solve(S, means.T, assume_a="pos")
    return directions, -0.5 * np.einsum("kr,rk->k", means, directions)


def pairwise_valleys(
    T: NDArray, noisy: NDArray, labels: NDArray, k: int
) -> list[tuple[tuple[int, int], NDArray, Valley]]:
    """Return, for pairs of clusters: their numbers, the rows in their region, and the valley.

    Discriminants of the clusters 0 to k - 1, none empty, are learnt from the rows T; the dithered
    rows `noisy` are scored.
    """
    directions, offsets = _discriminants(T, labels, k)
    pairs, samples, insides = _regions(noisy @ directions + offsets)
    return list(zip(pairs, insides, deepest_valleys(samples), strict=True))


def _regions(values: NDArray) -> tuple[list[tuple[int, int]], list[NDArray], list[NDArray]]:
    """Return the pairs of cells that have rows in their region, their scores, and these rows."""
    pairs, samples, insides = [], [], []
    for i, j in combinations(range(values.shape[1]), 2):
        inside = np.flatnonzero(in_region(values, i, j))
        if inside.size >= FEWEST:
            pairs.append((i, j))
            samples.append(values[inside, j] - values[inside, i])
            insides.append(inside)
    return pairs, samples, insides


def _clearest(
    rows: SearchedRows,
    directions: NDArray,
    offsets: NDArray,
    pairs: list[tuple[int, int]],
    valleys: list[Valley],
) -> CellPair:
    """Return the pair of a partition that is most clearly apart, with the sides around it."""
    tree, sides = _bottleneck(offsets.size, dict(zip(pairs, valleys, strict=True)))
    pair, *others = _disjoint(tree)
    known = zip(pairs, valleys, strict=True)
    across = [valley.depth for (i, j), valley in known if sides[i] != sides[j]]
    coef = rows.coefficients(directions).T
    i, j = pair if sides[pair[1]] else pair[::-1]
    return CellPair(
        cells=LinearCells(coef, offsets - coef @ rows.mean, sides),
        pair=(i, j),
        others=tuple(others),
        significance=tree[pair],
        depth=min(across),
    )


def _bottleneck(
    k: int, valleys: dict[tuple[int, int], Valley]
) -> tuple[dict[tuple[int, int], float], NDArray[np.bool_]]:
    """Return the spanning tree of least significance, and the two sides of its clearest edge.

    Cells are joined one after the other, those with the least significant valley first. Two cells
    may have a valley between them and still be in one piece, by way of other cells: the arcs of a
    ring. The clearest edge of the tree is a valley that no such way avoids.
    """
    edges = sorted(valleys, key=lambda pair: valleys[pair].significance)
    # Pairs without rows between them come last, and are never the clearest.
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


def _disjoint(edges: dict[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Return edges without common cells, the most significant first, those far below it not."""
    ordered = sorted(edges, key=lambda edge: -edges[edge])
    chosen: list[tuple[int, int]] = []
    taken: set[int] = set()
    for edge in ordered:
        if edges[edge] >= COMPARABLE * edges[ordered[0]] and not taken & set(edge):
            chosen.append(edge)
            taken |= set(edge)
    return chosen[:MOST_PAIRS]
