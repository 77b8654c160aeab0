"""The clearest pair of clusters of a partition, tested inside a convex region."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.valleys import Valley, deepest_valleys
from volmar.evidence.splits.cells import LinearCells
from volmar.evidence.splits.partitions import Discriminants, discriminants, partitions
from volmar.evidence.splits.searched import SearchedRows

__all__ = ["CellPair", "clearest_pairs", "in_region", "pairwise_valleys"]

# Minimum number of rows in a region.
MIN_ROWS = 20
# Maximum number of pairs that are tested together, and their minimum significance as a share of
# the largest.
MAX_PAIRS, COMPARABLE = 4, 0.5


@dataclass(frozen=True, eq=False)
class CellPair:
    """A partition into cells, and a pair of its cells.

    Attributes
    ----------
    cells : LinearCells
        The partition, in the units of the rows. The second side has the second cell of the pair
        and the cells connected to it. The first side has all other cells.
    pair : tuple of int
        The two cells; the first of them is on the first side.
    others : tuple of tuple of int
        Other pairs that are about as clearly separated. No two pairs share a cell.
    significance : float
        Significance of the valley between the two cells: its depth in standard errors.
    depth : float
        Depth of the shallowest valley between the two sides: 0 without a valley, 1 for an empty
        gap.
    """

    cells: LinearCells
    pair: tuple[int, int]
    others: tuple[tuple[int, int], ...]
    significance: float
    depth: float

    def functions(self, rows: Any) -> NDArray[np.float64]:
        """Return the values (n, k) of the linear functions at rows."""
        return self.cells.functions(rows)

    def samples(self, values: NDArray) -> list[tuple[NDArray, NDArray]]:
        r"""Return, for each pair, the scores in its region, and the indices of their rows.

        Regions of pairs without a common cell are disjoint: :math:`f_i + f_j \ge 2 f_k` and
        :math:`f_i + f_j \ge 2 f_l` imply :math:`f_i + f_j \ge f_k + f_l`, and vice versa.
        """
        found = []
        for i, j in (self.pair, *self.others):
            inside = np.flatnonzero(in_region(values, i, j))
            found.append((values[inside, j] - values[inside, i], inside))
        return found


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

    Rows are clustered into several numbers of clusters (`partitions`). Each pair of cells is
    projected on the difference of their discriminants :math:`f_j - f_i` inside its region
    (`in_region`). Valleys that a path through other cells avoids do not count. The
    valley with the largest depth in standard errors among the others is chosen.

    Parameters
    ----------
    rows : SearchedRows
        The rows.
    rng : Generator
        Random generator of the starts of k-means.

    Returns
    -------
    list of CellPair
        One pair for each number of clusters with a valley that no path avoids.
    """
    found = partitions(rows.T, rng)
    regions = [_regions(rows.noisy @ one.directions + one.offsets) for one in found]
    valleys = iter(deepest_valleys([scores for _, samples, _ in regions for scores in samples]))
    clearest = [
        _clearest(rows, one, pairs, [next(valleys) for _ in pairs])
        for one, (pairs, _, _) in zip(found, regions, strict=True)
        if pairs
    ]
    return [pair for pair in clearest if pair.significance > 0]


def pairwise_valleys(
    T: NDArray, noisy: NDArray, labels: NDArray, k: int
) -> list[tuple[tuple[int, int], NDArray, Valley]]:
    """Return, for each pair of clusters, its labels, the rows in its region, and the valley.

    Discriminants of the clusters 0 to k - 1, none of which is empty, are learnt from the rows T.
    The dithered rows `noisy` are scored.
    """
    directions, offsets = discriminants(T, labels, k)
    pairs, samples, insides = _regions(noisy @ directions + offsets)
    return list(zip(pairs, insides, deepest_valleys(samples), strict=True))


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
    kept = np.flatnonzero(sizes >= MIN_ROWS)
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


def _disjoint(edges: dict[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Return edges without common cells in the order of significance, without weak ones."""
    ordered = sorted(edges, key=lambda edge: -edges[edge])
    chosen: list[tuple[int, int]] = []
    taken: set[int] = set()
    for edge in ordered:
        if edges[edge] >= COMPARABLE * edges[ordered[0]] and not taken & set(edge):
            chosen.append(edge)
            taken |= set(edge)
    return chosen[:MAX_PAIRS]
