"""How well directions separate held-out rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.valleys import valleys_at
from volmar.separation.bound import best_splits

__all__ = ["HeldOut", "held_out_scores"]

# Mass of the valleys that a flat density has by chance, of any number of rows: simulated means are
# 0.001 to 0.005 from 50 to 8,000 rows.
FLAT = 0.003
# Weight of the regularised bound, which decides where there is no valley.
REGULARIZED = 0.1


class HeldOut(NamedTuple):
    """What held-out rows show along some directions, an entry for each.

    Attributes
    ----------
    score : ndarray of shape (k,)
        What directions are ranked by, -inf where no cut is allowed.
    kappa2 : ndarray of shape (k,)
        Theorem 2's bound on kappa^2, not regularised.
    depth : ndarray of shape (k,)
        How much lower the density is at the cut than at the lower of the modes beside it, as a
        share of that.
    """

    score: NDArray
    kappa2: NDArray
    depth: NDArray


def held_out_scores(projections: NDArray, min_share: float, ridge: NDArray | float) -> HeldOut:
    r"""Score directions by the projections of held-out rows.

    :math:`\kappa^2 \sqrt{v} + \kappa_\lambda^2 / 10`, with v the mass of the valleys of the
    density, beyond what a flat one has by chance, and :math:`\kappa^2`, :math:`\kappa_\lambda^2`
    Theorem 2's bound of the best cut without and with the regulariser. With r the share of the
    smaller side and :math:`\delta` the distance of the means in standard deviations within the
    sides, :math:`\kappa^2 = r \delta^2 / 2`: a twentieth of the rows 8 standard deviations away
    has 1.6, less than a cut through the middle of a normal density, 1.75. The valley tells them
    apart. Without one the regularised bound prefers what many features agree on.

    Parameters
    ----------
    projections : ndarray of shape (n, k)
        A direction a column, of dithered rows: a column of two values is separated without any
        variance left, and would win against every split that many features agree on.
    min_share : float
        Minimum share of a side.
    ridge : ndarray of shape (k,) or float
        What the regulariser adds to the variance along each direction.
    """
    ordered = np.sort(projections.T.astype(np.float64, copy=False), axis=1)
    variances = ordered.var(axis=1)
    variances = np.where(variances > 0, variances, np.inf)
    thresholds, kappa2, regularized = best_splits(ordered, variances, min_share, ridge)
    valleys = valleys_at(ordered, thresholds)
    allowed = np.isfinite(kappa2)
    depth = np.sqrt(np.maximum(valleys.mass - FLAT, 0.0))
    score = np.where(allowed, kappa2, 0.0) * depth + REGULARIZED * regularized
    return HeldOut(np.where(allowed, score, -np.inf), kappa2, valleys.depth)
