"""Two groups from many starts at once: by 2-means, or as normal groups with one covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volmar.separation.gep import RegularizedCorrelation

MAX_STEPS = 8
# Shares of a group, and what is left of the variance within groups, are kept from 0.
LEAST_SHARE, LEAST_WITHIN = 1e-6, 1e-6
LARGEST_LOGIT = 30.0


def two_means(Z: NDArray, masks: NDArray) -> NDArray:
    r"""Return the labels with the smallest sum of squares that a few steps of k-means lead to.

    With the rows centred and the shares :math:`r_0 + r_1 = 1`, the means are :math:`\mu_1 = r_0 D`
    and :math:`\mu_0 = -r_1 D` for :math:`D = \mu_1 - \mu_0`, so that a row is nearer to the second
    where :math:`z'D > (r_0 - r_1) |D|^2 / 2`. All starts, the columns of `masks`, go through the
    rows together. Of shape (n, 0) where every start has all rows on one side.
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


def normal_group_directions(
    Z: NDArray, regularized: RegularizedCorrelation, memberships: NDArray, n_steps: int
) -> NDArray:
    r"""Return the discriminants (p, m) of two normal groups after some steps of EM.

    Labels of a cut stick to their direction: nearly every cut through the middle of the noise is a
    fixed point of the alternation. Memberships (n, m), the starts, do not. With the whole
    covariance R fixed, the model has the shares and the difference D of the means only. The
    discriminant is :math:`w = R^{-1} D`; with :math:`m = D'w` the variance along it within the
    groups is :math:`m (1 - r_0 r_1 m)`, so that the logit of a row's membership is

    .. math:: \frac{w'z - \tfrac12 (r_0 - r_1) m}{1 - r_0 r_1 m} + \log\frac{r_1}{r_0}.

    A step is a solve and two products with the centred rows Z, for all starts together.
    """
    w = np.empty((Z.shape[1], memberships.shape[1]))
    q = memberships.astype(Z.dtype)
    for _ in range(n_steps):
        share = np.clip(q.mean(axis=0, dtype=np.float64), LEAST_SHARE, 1.0 - LEAST_SHARE)
        D = mean_differences(Z, q)
        w = regularized.solve(D)
        m = np.einsum("ij,ij->j", D, w)
        within = np.maximum(1.0 - share * (1.0 - share) * m, LEAST_WITHIN)
        middle = 0.5 * (1.0 - 2.0 * share) * m
        logit = (Z @ w.astype(Z.dtype) - middle) / within + np.log(share / (1.0 - share))
        q = 1.0 / (1.0 + np.exp(-np.clip(logit, -LARGEST_LOGIT, LARGEST_LOGIT)))
    return w
