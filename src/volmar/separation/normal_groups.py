"""Two normal groups with one covariance, by expectation maximisation from many starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.two_means import mean_differences

__all__ = ["normal_group_directions"]

# Shares of a group, and what is left of the variance within groups, are kept from 0.
LEAST_SHARE, LEAST_WITHIN = 1e-6, 1e-6
LARGEST_LOGIT = 30.0


def normal_group_directions(
    Z: NDArray, regularized: RegularizedCorrelation, memberships: NDArray, n_steps: int
) -> NDArray:
    r"""Return the discriminants of two normal groups after some steps of EM.

    Labels of a cut stick to their direction: nearly every cut through the middle of the noise is a
    fixed point of the alternation. Memberships do not. With the whole covariance R fixed, the
    model has the shares and the difference D of the means only. The discriminant is
    :math:`w = R^{-1} D`; with :math:`m = D'w` the variance along it within the groups is
    :math:`m (1 - r_0 r_1 m)`, so that the logit of a row's membership is

    .. math:: \frac{w'z - \tfrac12 (r_0 - r_1) m}{1 - r_0 r_1 m} + \log\frac{r_1}{r_0}.

    A step is a solve and two products with the rows, for all starts together.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Centred rows.
    regularized : RegularizedCorrelation
        R with a little of the identity added.
    memberships : ndarray of shape (n, m)
        Starts, between 0 and 1.
    n_steps : int
        Number of steps.

    Returns
    -------
    ndarray of shape (p, m)
        w of each start.
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
