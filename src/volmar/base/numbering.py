"""A stable order of the clusters: by size, the largest first, ties by the first row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows.anywhere import cluster_sizes, in_one_pass


def cluster_order(labels: Any, weights: Any, k: int) -> NDArray[np.intp]:
    """Return the numbers of k clusters, the largest cluster first.

    Among clusters of equal size, the one whose first row comes earliest is first. Clusters without
    rows are last. A row of weight 2 counts twice.
    """
    return order_by_size(*in_one_pass(lambda: cluster_sizes(labels, weights, k), labels))


def nearest_by_size(
    scores: NDArray, weights: Any, order_of: Callable[..., NDArray[np.intp]] = cluster_order
) -> tuple[NDArray, NDArray[np.intp]]:
    """Return the cluster with the largest score of each row, and the columns of the clusters.

    Clusters are numbered by size, or as `order_of` returns. Ties of scores go to the first cluster
    in this order, also for new rows. Columns without rows are left out.
    """
    order = order_of(np.argmax(scores, axis=1), weights, scores.shape[1])
    filled, labels = np.unique(np.argmax(scores[:, order], axis=1), return_inverse=True)
    return labels, order[filled]


def order_by_size(sizes: NDArray, first: NDArray) -> NDArray[np.intp]:
    """Return the order of clusters by decreasing size, with ties broken by their first rows."""
    # Shares that differ by less than 2^-30 count as equal, because sums of the same weights in
    # another order differ by rounding. With a power of two, the share of a few rows is never
    # halfway between two multiples.
    shares = np.rint(sizes / (sizes.sum() * 2.0**-30))
    return np.lexsort((first, -shares))
