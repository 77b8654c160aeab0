"""Combination of p-values with an unknown dependence."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from volmar._checks import check_number
from volmar._vectors import check_vector

__all__ = ["combine_p_values"]


def combine_p_values(p_values: ArrayLike, *, share: float = 1.0 / 3.0) -> float:
    r"""Combine p-values of the same hypothesis, under any dependence between them.

    The combined p-value is :math:`\min(1, Q_\gamma(p) / \gamma)`, where :math:`Q_\gamma` is the
    smallest p-value that a share :math:`\gamma` of them does not exceed. It is valid under any
    dependence: the expected share of valid p-values below :math:`\alpha \gamma` is at most
    :math:`\alpha \gamma`. By Markov's inequality, the probability that this share reaches
    :math:`\gamma` is at most :math:`\alpha`. :math:`\gamma = 1/2` gives twice the median, and
    :math:`\gamma = 1/m` Bonferroni's rule.

    Parameters
    ----------
    p_values : array of shape (m,)
        P-values, each valid by itself.
    share : float, default=1/3
        The share :math:`\gamma`. Choose it before the p-values are known.

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
            f"p_values must be numbers between 0 and 1, got {p[wrong][0]} at position "
            f"{np.argmax(wrong)}."
        )
    share = check_number("share", share, low=0.0, high=1.0, open_low=True)
    # In floating point, a product such as 0.1 * 30 may be slightly above the exact integer.
    rank = max(math.ceil(share * p.size * (1.0 - 1e-12)), 1)
    return min(1.0, float(np.partition(p, rank - 1)[rank - 1]) / share)
