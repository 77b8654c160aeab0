"""How well directions separate rows that had no part in finding them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.humps import valleys_at
from volmar.separation.bound import best_splits

__all__ = ["HeldOut", "held_out_scores"]

# Added to the mass of the valleys, so that directions without one are still ranked by the bound.
FLOOR = 1e-3


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


def held_out_scores(projections: NDArray, min_share: float) -> HeldOut:
    r"""Score directions by the projections of held-out rows.

    :math:`\kappa^2 \sqrt{v + 10^{-3}}`: Theorem 2's bound of the best cut, without a regulariser,
    and the mass v of the valleys of the density. With :math:`r` the share of the smaller side and
    :math:`\delta` the distance of the means in standard deviations within the sides,
    :math:`\kappa^2 = r \delta^2 / 2`: a cut through the middle of a normal density has 1.75, more
    than a tenth of the rows 6 standard deviations away (1.8 less what their spread takes), and a
    uniform one 3. The valley tells them apart. It alone would do where groups do not overlap, and
    says nothing where they do.

    Parameters
    ----------
    projections : ndarray of shape (n, k)
        A direction a column, of dithered rows: a column of two values is separated without any
        variance left, and would win against every split that many features agree on.
    min_share : float
        Minimum share of a side.
    """
    ordered = np.sort(projections.T.astype(np.float64, copy=False), axis=1)
    variances = ordered.var(axis=1)
    thresholds, kappa2 = best_splits(
        ordered, np.where(variances > 0, variances, np.inf), min_share
    )
    valleys = valleys_at(ordered, thresholds)
    allowed = np.isfinite(kappa2)
    score = np.where(allowed, kappa2, 0.0) * np.sqrt(valleys.mass + FLOOR)
    return HeldOut(np.where(allowed, score, -np.inf), kappa2, valleys.depth)
