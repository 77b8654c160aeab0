"""One p-value from several that depend on each other in unknown ways."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

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
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or p.size == 0:
        raise ValueError(
            f"p_values must be a one-dimensional array of one number or more, got shape {p.shape}."
        )
    wrong = ~((p >= 0) & (p <= 1))
    if wrong.any():
        raise ValueError(
            f"p_values must be numbers from 0 to 1, got {p[wrong][0]} at position "
            f"{np.argmax(wrong)}."
        )
    if not 0.0 < share <= 1.0:
        raise ValueError(f"share must be greater than 0 and at most 1, got {share}.")
    # A product such as 0.1 * 30 may come out a little above the whole number that it is.
    rank = max(math.ceil(share * p.size * (1.0 - 1e-12)), 1)
    return float(min(1.0, np.partition(p, rank - 1)[rank - 1] / share))
