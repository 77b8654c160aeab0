"""One p-value from several that depend on each other in unknown ways."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from volmar._checks import check_number
from volmar._vectors import check_vector

__all__ = ["combine_p_values"]


def combine_p_values(p_values: ArrayLike, *, share: float = 1.0 / 3.0) -> float:
    r"""Combine p-values of the same hypothesis, however they depend on each other.

    :math:`\min(1, Q_\gamma(p) / \gamma)`, with :math:`Q_\gamma` the smallest p-value that a share
    :math:`\gamma` of them does not exceed. It is valid under any dependence: the expected share
    of valid p-values below :math:`\alpha \gamma` is at most :math:`\alpha \gamma`, so that by
    Markov's inequality the chance that it reaches :math:`\gamma` is at most :math:`\alpha`.
    :math:`\gamma = 1/2` is twice the median; Bonferroni's rule is :math:`\gamma = 1/m`.

    Parameters
    ----------
    p_values : array of shape (m,)
        P-values, each valid by itself.
    share : float, default=1/3
        :math:`\gamma`, chosen before the p-values are seen.

    Returns
    -------
    float
        The combined p-value.

    References
    ----------
    N. Meinshausen, L. Meier, P. Bühlmann (2009), P-values for high-dimensional regression, Journal
    of the American Statistical Association 104.

    Examples
    --------
    >>> from volmar.evidence.combine import combine_p_values
    >>> round(combine_p_values([0.01, 0.01, 0.6]), 3)
    0.03
    """
    p = check_vector("p_values", p_values)
    wrong = ~((p >= 0) & (p <= 1))
    if wrong.any():
        raise ValueError(
            f"p_values must be numbers from 0 to 1, got {p[wrong][0]} at position "
            f"{np.argmax(wrong)}."
        )
    share = check_number("share", share, low=0.0, high=1.0, open_low=True)
    # A product such as 0.1 * 30 may come out a little above the whole number that it is.
    rank = max(math.ceil(share * p.size * (1.0 - 1e-12)), 1)
    return min(1.0, float(np.partition(p, rank - 1)[rank - 1]) / share)
