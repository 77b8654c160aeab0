"""More than two clusters by recursive splitting, with known labels, links and size limits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._warn import collecting
from volmar.base.numbering import cluster_order
from volmar.base.recursion import PartRows, RecursiveResult, leading_features, tree_result
from volmar.base.tree import SplitNode, SplitTree
from volmar.guidance.guide import Guide

__all__ = ["grouped_clusters", "grow_guided_tree", "guide_of_sides"]


@dataclass(frozen=True)
class SideGuide(Guide):
    """The guide of a split in two. Each side is a set of clusters, so sides are not renumbered."""

    @property
    def has_names(self) -> bool:
        """Always True: the sides cannot be exchanged."""
        return True


class GuidedTree(NamedTuple):
    """A tree and its result, including the labels."""

    tree: SplitTree
    result: RecursiveResult


class _Open(NamedTuple):
    """A part to split: its rows, its clusters, and start labels (-1 for any other cluster)."""

    node: SplitNode
    rows: NDArray
    clusters: NDArray
    start: NDArray


def grow_guided_tree(
    model: Any, X: Any, weights: Any, labels: NDArray, guide: Guide, *, init: Any
) -> GuidedTree:
    """Split rows recursively until every part is one cluster of the guide.

    A part with several clusters is first split in two without the guide. This split divides the
    clusters into two sets, by the side on which most of their rows are. The part is then split
    again between the two sets, with the seeds, links and limits of the part. The seeds of a
    cluster become seeds of its set, and the limits of a set are the sums over its clusters.

    Parameters
    ----------
    model : GuidedMixin
        Clusterer; its copies with n_clusters=2 make the splits.
    X : matrix of shape (n, d) or (n, n)
        The rows, or similarities of all pairs.
    weights : ndarray of shape (n,) or None
        Weights of the rows.
    labels : ndarray of shape (n,)
        Start labels 0 to k - 1, all present, which agree with the guide.
    guide : Guide
        Known labels, links and size limits.
    init : str
        Value of `init` for the splits without the guide.
    """
    n, pairwise = X.shape[0], model._is_pairwise()
    seeds = np.random.default_rng(model.random_state if _is_seed(model.random_state) else 0)
    total = float(n if weights is None else weights.sum())
    root = SplitNode(n, total, columns=np.arange(n) if pairwise else None)
    waiting = deque([_Open(root, np.arange(n), np.arange(guide.k), labels)])
    found = np.empty(n, dtype=np.int64)
    n_splits = 0
    while waiting:
        part = waiting.popleft()
        if part.clusters.size == 1:
            part.node.label = int(part.clusters[0])
            found[part.rows] = part.node.label
            continue
        n_splits += 1
        part.node.rank = n_splits
        seed = int(seeds.integers(2**31 - 1))
        waiting.extend(_split(model, part, X, weights, guide, init, seed))
    tree = SplitTree(root)
    if not guide.has_names:
        order = cluster_order(found, weights, guide.k)
        tree.relabel(np.argsort(order))
        found = np.argsort(order)[found]
    return GuidedTree(tree, replace(tree_result(tree), labels=found))


def _is_seed(random_state: Any) -> bool:
    return isinstance(random_state, int | np.integer)


def _split(
    model: Any, part: _Open, X: Any, weights: Any, guide: Guide, init: Any, seed: int
) -> list[_Open]:
    """Split a part and return its two sides; the split is stored in the node of the part."""
    node, rows, clusters, start = part
    inside = _rows_of(X, rows, pairwise=model._is_pairwise())
    w = None if weights is None else weights[rows]
    free = _free_split(model, PartRows(inside, w, seed), init)
    sides = None if free is None else free.labels_
    is_second = grouped_clusters(start, clusters, sides, w)
    start_sides = np.zeros(rows.size, dtype=np.int64) if sides is None else sides.copy()
    placed = start >= 0
    numbers = np.searchsorted(clusters, start[placed])
    start_sides[placed] = is_second[numbers]
    if np.ptp(start_sides) == 0 and sides is not None:
        start_sides = sides
    two = guide_of_sides(guide, rows, clusters, is_second)
    if free is None:
        two = replace(two, low=None, high=None)  # no scores to choose rows by
    with collecting() as messages:
        split = model._guided_fit(inside, w, free, start_sides, two)
    after = split._placed_rows(inside, two)
    split._offsets = after.offsets if after.offsets.any() else None
    split.labels_ = after.labels
    split.init = init  # instead of the labels of all rows
    split._forget_start()
    node.model = split
    node.probability = model._split_probability(split, inside, w)
    node.leading = leading_features(split, inside, w)
    node.warnings = tuple(one.text for one in messages)
    children = []
    for side in (0, 1):
        chosen = after.labels == side
        own = clusters[is_second == side]
        first = np.where(np.isin(start[chosen], own), start[chosen], -1)
        weight = float(np.count_nonzero(chosen) if w is None else w[chosen].sum())
        columns = rows[chosen] if model._is_pairwise() else None
        child = SplitNode(int(np.count_nonzero(chosen)), weight, columns=columns)
        children.append(_Open(child, rows[chosen], own, first))
    node.children = tuple(child.node for child in children)
    return children


def grouped_clusters(
    start: NDArray, clusters: NDArray, sides: NDArray | None, weights: NDArray | None
) -> NDArray[np.bool_]:
    """Return which clusters go to the second side of a split: those with most of their rows there.

    Each side gets at least one cluster. If all clusters have most of their rows on one side, the
    cluster with the largest share on the other side goes there. Clusters without rows go to the
    side with fewer clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.base.guided_tree import grouped_clusters
    >>> start, sides = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 0, 1, 0, 0])
    >>> grouped_clusters(start, np.arange(3), sides, None)
    array([False,  True, False])
    """
    if sides is None:
        return np.arange(clusters.size) > 0
    placed = start >= 0
    numbers = np.searchsorted(clusters, start[placed])
    w = np.ones(numbers.size) if weights is None else weights[placed]
    sizes = np.bincount(numbers, w, clusters.size)
    ones = np.bincount(numbers, w * (sides[placed] > 0), clusters.size)
    shares = np.divide(ones, sizes, out=np.full(clusters.size, np.nan), where=sizes > 0)
    is_second = shares > 0.5
    for cluster in np.flatnonzero(np.isnan(shares)):
        others = is_second[~np.isnan(shares)]
        is_second[cluster] = 2 * np.count_nonzero(others) < others.size
        shares[cluster] = float(is_second[cluster])
    if not is_second.any():
        is_second[np.argmax(shares)] = True
    elif is_second.all():
        is_second[np.argmin(shares)] = False
    return is_second


def guide_of_sides(guide: Guide, rows: NDArray, clusters: NDArray, is_second: NDArray) -> Guide:
    """Return the guide of a split of some rows in two.

    Cannot-link pairs apply only if each side is a single cluster.
    """
    part = guide.on(rows)
    side_of = np.full(guide.k + 1, -1)
    side_of[clusters] = is_second
    low, high = (
        None
        if limit is None
        else np.array([limit[clusters[~is_second]].sum(), limit[clusters[is_second]].sum()])
        for limit in (guide.low, guide.high)
    )
    return SideGuide(
        2,
        side_of[part.seeds],
        part.units,
        part.apart if clusters.size == 2 else np.empty((0, 2), dtype=np.int64),
        low,
        high,
        part.weights,
    )


def _rows_of(X: Any, rows: NDArray, *, pairwise: bool) -> Any:
    if rows.size == X.shape[0]:
        return X
    if not pairwise:
        return X[rows]
    return X[rows][:, rows] if sparse.issparse(X) else X[np.ix_(rows, rows)]


def _free_split(model: Any, part: PartRows, init: Any) -> Any:
    """Return the split of a part without a guide, or None if there is none."""
    with collecting():
        try:
            split = model._fit_part(part, init=init)
        except ValueError:
            return None
    return split if np.ptp(split.labels_) > 0 else None
