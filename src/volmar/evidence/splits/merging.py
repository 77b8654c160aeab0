"""Merging of clusters without a valley between them, where a split has cut through a mode."""

from __future__ import annotations

from collections.abc import Collection
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
    apart: Collection[tuple[int, int]] = (),
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
    apart : collection of (int, int), default=()
        Pairs of clusters, the smaller number first, that are known to be separated.

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
        pair = _least_separated(rows.T, rows.noisy, new[labels], _known(apart, new))
        if pair is None:
            break
        new[new == pair[1]] = pair[0]
    return np.unique(new, return_inverse=True)[1].astype(np.int64)


def _known(apart: Collection[tuple[int, int]], new: NDArray) -> set[tuple[int, int]]:
    found = {(int(new[i]), int(new[j])) for i, j in apart}
    return found | {pair[::-1] for pair in found}


def _least_separated(
    T: NDArray,
    noisy: NDArray,
    labels: NDArray,
    apart: set[tuple[int, int]],
) -> tuple[int, int] | None:
    """Return the pair of clusters with the shallowest valley; None if no valley is negligible."""
    names, codes = np.unique(labels, return_inverse=True)
    found = pairwise_valleys(T, noisy, codes, names.size)
    needed = np.maximum(MIN_ROWS, SHARE * np.bincount(codes))
    for (i, j), inside, valley in sorted(found, key=lambda one: one[2].depth):
        if valley.depth > FLAT:
            return None
        if (int(names[i]), int(names[j])) in apart:
            continue
        here = np.bincount(codes[inside], minlength=names.size)
        if here[i] >= needed[i] and here[j] >= needed[j]:
            return int(names[i]), int(names[j])
    return None
