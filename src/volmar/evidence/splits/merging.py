"""Merging of clusters without a valley between them, where a split has cut through a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.splits.pairs import pairwise_valleys
from volmar.evidence.splits.searched import n_searched, searched_rows

__all__ = ["merged_labels"]

# Maximum depth of a valley that counts as none. Between two halves of one mode, a shallow valley
# may occur by chance.
FLAT = 0.05
# Minimum number of rows of each cluster in the region of the pair, and their minimum share of the
# cluster. If a mode was cut, most rows of both halves are in the region. If clusters are far
# apart, only their tails are.
MIN_ROWS, SHARE = 10, 0.25


def merged_labels(
    X: Any,
    labels: NDArray,
    rng: np.random.Generator,
    *,
    may_merge: Callable[[NDArray, NDArray], bool] = lambda one, other: True,  # noqa: ARG005
) -> NDArray[np.int64]:
    """Return a new label for each cluster; clusters without a valley between them share one.

    Each pair of clusters is projected on the difference of their linear discriminants inside its
    convex region (`in_region`). The pair with the shallowest valley is merged if the valley is
    negligible, and all pairs are then examined again. A valley that may be due to chance is kept,
    because held-out rows have confirmed the splits of the tree. Otherwise clusters side by side
    would be merged in a chain.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    labels : ndarray of shape (n,)
        Cluster of each row, from 0 to k - 1.
    rng : Generator
        Random generator that samples rows.
    may_merge : callable
        Function of the old labels of two clusters that returns whether they may be merged.

    Returns
    -------
    ndarray of shape (k,)
        New labels, numbered from 0 in the order of the old labels.
    """
    k = int(labels.max()) + 1
    new = np.arange(k)
    most = n_searched(X.shape[1])
    if X.shape[0] > most:
        chosen = np.sort(rng.choice(X.shape[0], most, replace=False))
        X, labels = X[chosen], labels[chosen]
    rows = searched_rows(X, rng)
    while len(np.unique(new)) > 2:
        for i, j in _without_valley(rows.T, rows.noisy, new[labels]):
            if may_merge(np.flatnonzero(new == i), np.flatnonzero(new == j)):
                new[new == j] = i
                break
        else:
            break
    return np.unique(new, return_inverse=True)[1].astype(np.int64)


def _without_valley(T: NDArray, noisy: NDArray, labels: NDArray) -> Iterator[tuple[int, int]]:
    """Yield the pairs of clusters with a negligible valley, the shallowest first."""
    names, codes = np.unique(labels, return_inverse=True)
    found = pairwise_valleys(T, noisy, codes, names.size)
    needed = np.maximum(MIN_ROWS, SHARE * np.bincount(codes))
    for (i, j), inside, valley in sorted(found, key=lambda one: one[2].depth):
        if valley.depth > FLAT:
            return
        here = np.bincount(codes[inside], minlength=names.size)
        if here[i] >= needed[i] and here[j] >= needed[j]:
            yield int(names[i]), int(names[j])
