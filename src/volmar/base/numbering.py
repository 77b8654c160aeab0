"""Cluster numbers in a stable order: by size, the largest first, ties by the first row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows import cluster_sizes, in_one_pass

# Shares of the total weight that differ by less are equal: sums of the same weights in another
# order differ by rounding. A power of two, so that no share of few rows lies between two steps.
RESOLUTION = 2.0**-30


def cluster_order(labels: Any, weights: Any, k: int) -> NDArray[np.intp]:
    """Return the numbers of k clusters, the largest cluster first.

    Of clusters of the same size that with the first row comes first; those without rows are last.
    A row of weight 2 counts twice.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.base.numbering import cluster_order
    >>> cluster_order(np.array([2, 0, 1, 1, 0]), None, 3)
    array([0, 1, 2])
    >>> cluster_order(np.array([2, 0, 1, 1, 0]), np.array([9.0, 1, 1, 1, 1]), 3)
    array([2, 0, 1])
    """
    return order_by_size(*in_one_pass(lambda: cluster_sizes(labels, weights, k), labels))


def nearest_by_size(
    scores: NDArray, weights: Any, order_of: Callable[..., NDArray[np.intp]] = cluster_order
) -> tuple[NDArray, NDArray[np.intp]]:
    """Return the cluster of the largest score of each row, and which columns the clusters are.

    Clusters are numbered by size, or by another `order_of`. Of equal scores the first in this
    order counts, as it does for new rows; columns that are left without rows are no clusters.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.base.numbering import nearest_by_size
    >>> nearest_by_size(np.array([[3.0, 0, 3], [0, 1, 0], [2, 5, 2]]), None)
    (array([1, 0, 0]), array([1, 0]))
    """
    order = order_of(np.argmax(scores, axis=1), weights, scores.shape[1])
    filled, labels = np.unique(np.argmax(scores[:, order], axis=1), return_inverse=True)
    return labels, order[filled]


def order_by_size(sizes: NDArray, first: NDArray) -> NDArray[np.intp]:
    """Return the numbers of clusters of these sizes, which begin with these rows."""
    shares = np.rint(sizes / (sizes.sum() * RESOLUTION))
    return np.lexsort((first, -shares))
