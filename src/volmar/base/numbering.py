"""Cluster numbers in a stable order: by size, the largest first, ties by the first row."""

from __future__ import annotations

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


def order_by_size(sizes: NDArray, first: NDArray) -> NDArray[np.intp]:
    """Return the numbers of clusters of these sizes, which begin with these rows."""
    shares = np.rint(sizes / (sizes.sum() * RESOLUTION))
    return np.lexsort((first, -shares))
