"""What a split into two is worth: its separation probabilities from the moments of both sides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.metrics.separation_bound import probability
from volmar.rows import Moments, Standardized
from volmar.separation.bound import bound
from volmar.separation.gep import RegularizedCorrelation, SeparationResult
from volmar.separation.mpm import separation_machine

__all__ = ["SplitDescription", "describe_split"]


class SplitDescription(NamedTuple):
    """Probabilities of a split.

    Attributes
    ----------
    unit : float
        Distance of the means along w.
    side_probability : ndarray of shape (2,)
        Chebyshev's bound on the probability that cluster 0, and cluster 1, lies on its side.
    msp : float
        p of MSPC eq. 3 at the best direction for the labels, regularised.
    msp_lower_bound : float
        Theorem 2's lower bound of it.
    """

    unit: float
    side_probability: NDArray
    msp: float
    msp_lower_bound: float


def describe_split(
    z: Standardized,
    regularized: RegularizedCorrelation,
    result: SeparationResult,
    sides: tuple[Moments, Moments],
) -> SplitDescription:
    """Return the separation probabilities of a hyperplane and its labels.

    Parameters
    ----------
    z : Standardized
        The rows.
    regularized : RegularizedCorrelation
        R + reg I, with the reg of the result.
    result : SeparationResult
        The hyperplane.
    sides : tuple of Moments
        Those of cluster 0 and of cluster 1, about z's centre.
    """
    w = result.w
    means, variances = [], []
    for side in sides:
        mean, covariance = z.mean_and_covariance(side)
        means.append(mean)
        variances.append(float(w @ (covariance @ w)))
    difference = means[1] - means[0]
    gaps = np.array([result.threshold - w @ means[0], w @ means[1] - result.threshold])
    gaps = np.maximum(gaps, 0.0)
    spread = np.maximum(variances, 0.0) + gaps**2
    share = sides[1].weight / z.rows.total_weight
    explained = share * (1 - share) * difference @ regularized.solve(difference)
    return SplitDescription(
        unit=float(w @ difference) or 1.0,
        side_probability=np.divide(gaps**2, spread, out=np.zeros(2), where=spread > 0),
        msp=separation_machine(z, sides[1], result.reg)[0].probability,
        msp_lower_bound=probability(float(bound(np.array(explained), np.array(share)))),
    )
