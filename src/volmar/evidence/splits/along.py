"""How well two sides are separated along one direction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["separation_along"]


def separation_along(scores: NDArray, sides: NDArray, weights: NDArray | None = None) -> float:
    r"""Worst-case probability that a split's own scores tell its sides apart.

    Theorem 2 of MSPC along one direction: with the shares :math:`r_1 + r_2 = 1` of the sides and
    the share :math:`R^2` of the variance of the scores that they explain,
    :math:`\kappa^2 = R^2 / (2 \max(r_1, r_2) (1 - R^2))` and
    :math:`p = \kappa^2 / (1 + \kappa^2)`. It has no unit, and 3/4 is its largest value for a
    symmetric density with one hump that is cut in its middle.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores of the rows.
    sides : bool ndarray of shape (n,)
        Side of each row.
    weights : ndarray of shape (n,), optional
        Sample weights.
    """
    scores = scores.astype(np.float64, copy=False)
    w = np.ones(scores.size) if weights is None else weights
    total, on_one = float(w.sum()), float(w @ sides)
    r1 = on_one / total if total > 0 else 0.0
    if not 0.0 < r1 < 1.0:
        return 0.0
    centred = scores - (w @ scores) / total
    variance = float(w @ centred**2) / total
    mean1 = float(w @ (centred * sides)) / on_one
    if variance <= 0:
        return 0.0
    # mean0 = -mean1 r1 / (1 - r1), so that r1 (1 - r1) (mean1 - mean0)^2 = mean1^2 r1 / (1 - r1).
    explained = min(mean1**2 * r1 / ((1.0 - r1) * variance), 1.0)
    return explained / (explained + 2.0 * max(r1, 1.0 - r1) * (1.0 - explained))
