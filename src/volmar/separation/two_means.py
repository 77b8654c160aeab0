"""Two-means from many starts at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["both_sides", "mean_differences", "two_means"]

MAX_STEPS = 8


def two_means(Z: NDArray, masks: NDArray) -> NDArray:
    r"""Return the labels with the smallest sum of squares that a few steps of k-means lead to.

    With the rows centred and the shares :math:`r_0 + r_1 = 1`, the means are :math:`\mu_1 = r_0 D`
    and :math:`\mu_0 = -r_1 D` for :math:`D = \mu_1 - \mu_0`, so that a row is nearer to the second
    where :math:`z'D > (r_0 - r_1) |D|^2 / 2`. All starts go through the rows together.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Centred rows.
    masks : bool ndarray of shape (n, m)
        Starts, a column each.

    Returns
    -------
    bool ndarray of shape (n,) or (n, 0)
        The best labels; empty where every start has all rows on one side.
    """
    masks = masks[:, both_sides(masks)]
    for _ in range(MAX_STEPS):
        D, share = mean_differences(Z, masks), masks.mean(axis=0)
        nearer = 0.5 * (1.0 - 2.0 * share) * (D**2).sum(axis=0) < Z @ D
        nearer = nearer[:, both_sides(nearer)]
        if nearer.shape == masks.shape and (nearer == masks).all():
            break
        masks = nearer
    if masks.shape[1] == 0:
        return masks
    D, share = mean_differences(Z, masks), masks.mean(axis=0)
    return masks[:, int(np.argmax(share * (1.0 - share) * (D**2).sum(axis=0)))]


def both_sides(masks: NDArray) -> NDArray:
    """Return which columns have rows on both sides."""
    return np.asarray(masks.any(axis=0) & ~masks.all(axis=0))


def mean_differences(Z: NDArray, masks: NDArray) -> NDArray:
    """Return the mean of the masked rows less that of the others, for each column of `masks`.

    Masks may be memberships between 0 and 1.
    """
    sizes = masks.sum(axis=0, dtype=np.float64)
    sums = Z.T @ masks.astype(Z.dtype, copy=False) - np.outer(Z.mean(axis=0), sizes)
    return sums / (sizes * (1.0 - sizes / len(Z)))
