"""Two groups from many starts at once: 2-means, or normal groups with a common covariance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from volmar.separation.gep import RegularizedCorrelation

# Maximum number of steps of 2-means, and the share of changed labels at which it ends.
MAX_STEPS, SETTLED = 8, 0.002
# Lower limits of the share of a group, and of the share of the variance within groups.
MIN_SHARE, MIN_WITHIN = 1e-6, 1e-6
LARGEST_LOGIT = 30.0
# Number of steps of EM for all starts, and the number of starts that continue afterwards: those
# with the largest explained variance.
FIRST_STEPS, MAX_KEPT = 6, 8


def two_means(Z: NDArray, masks: NDArray) -> NDArray:
    r"""Return the labels with the smallest sum of squares after a few steps of k-means.

    With the rows centred and the shares :math:`r_0 + r_1 = 1`, the means are :math:`\mu_1 = r_0 D`
    and :math:`\mu_0 = -r_1 D` for :math:`D = \mu_1 - \mu_0`. A row is therefore nearer to
    :math:`\mu_1` if :math:`z'D > (r_0 - r_1) |D|^2 / 2`. All starts, the columns of `masks`, are
    updated together. The result has shape (n, 0) if every start has all rows on one side.
    """
    masks = masks[:, both_sides(masks)]
    for _ in range(MAX_STEPS):
        D, between, share = _means_of(Z, masks)
        middle = (0.5 * (1.0 - 2.0 * share) * between).astype(Z.dtype)
        nearer = middle < Z @ D.astype(Z.dtype, copy=False)
        has_both = both_sides(nearer)
        n_changed = np.count_nonzero(nearer != masks) if has_both.all() else masks.size
        nearer = nearer if has_both.all() else nearer[:, has_both]
        masks = nearer
        if n_changed <= SETTLED * masks.size:
            break
    if masks.shape[1] == 0:
        return masks
    _, between, share = _means_of(Z, masks)
    return masks[:, int(np.argmax(share * (1.0 - share) * between))]


def _means_of(Z: NDArray, masks: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return the differences of the means, their squared lengths, and the masked shares."""
    D, share = _differences_and_shares(Z, masks)
    return D, np.einsum("ij,ij->j", D, D), share


def both_sides(masks: NDArray) -> NDArray:
    """Return a mask of the columns that have rows on both sides.

    Counting by a product is several times as fast as a reduction of such narrow arrays.
    """
    sizes = np.ones(len(masks)) @ masks
    return np.asarray((sizes > 0) & (sizes < len(masks)))


def mean_differences(Z: NDArray, masks: NDArray) -> NDArray:
    """Return the mean of the masked rows minus that of the others, per column of `masks`.

    Masks may be memberships between 0 and 1.
    """
    return _differences_and_shares(Z, masks)[0]


def _differences_and_shares(Z: NDArray, masks: NDArray) -> tuple[NDArray, NDArray]:
    memberships = masks.astype(Z.dtype, copy=False)
    ones = np.ones(len(Z), dtype=Z.dtype)
    sizes = (ones @ memberships).astype(np.float64)
    shares = sizes / len(Z)
    sums = Z.T @ memberships - np.multiply.outer(ones @ Z, shares)
    return sums / (sizes * (1.0 - shares)), shares


def normal_group_directions(
    Z: NDArray, regularized: RegularizedCorrelation, memberships: NDArray, n_steps: int
) -> NDArray:
    r"""Return the discriminants (p, m) of two normal groups after some steps of EM.

    Hard labels tend to keep their direction: nearly every cut through the middle of noise is a
    fixed point of the alternation. Soft `memberships` (n, m), the starts, do not. With the total
    covariance R fixed, the parameters are the shares and the difference D of the means. The
    discriminant is :math:`w = R^{-1} D`. With :math:`m = D'w`, the variance along it within the
    groups is :math:`m (1 - r_0 r_1 m)`, and the logit of a row's membership is

    .. math:: \frac{w'z - \tfrac12 (r_0 - r_1) m}{1 - r_0 r_1 m} + \log\frac{r_1}{r_0}.

    A step takes a solve and two products with the centred rows Z for all starts together.
    """
    w = np.empty((Z.shape[1], memberships.shape[1]))
    q = memberships.astype(Z.dtype)
    for step in range(n_steps):
        D, share = _differences_and_shares(Z, q)
        share = np.clip(share, MIN_SHARE, 1.0 - MIN_SHARE)
        w = regularized.solve(D)
        explained = share * (1.0 - share) * np.einsum("ij,ij->j", D, w)
        if step == FIRST_STEPS and w.shape[1] > MAX_KEPT:
            kept = np.argsort(-explained, kind="stable")[:MAX_KEPT]
            share, D, w, explained = share[kept], D[:, kept], w[:, kept], explained[kept]
        if step == n_steps - 1:
            break
        within = np.maximum(1.0 - explained, MIN_WITHIN)
        middle = 0.5 * (1.0 - 2.0 * share) * explained / (share * (1.0 - share))
        constant = np.log(share / (1.0 - share)) - middle / within
        q = Z @ (w / within).astype(Z.dtype)
        q += constant.astype(Z.dtype)
        np.clip(q, -LARGEST_LOGIT, LARGEST_LOGIT, out=q)
        expit(q, out=q)
    return w
