"""Theorem 2 of MSPC: a lower bound on the separation probability from variances alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._vectors import check_vector


def kappa2_bound(
    between: NDArray | float, within: NDArray | float, share: NDArray | float
) -> NDArray:
    """Return Theorem 2's bound on kappa^2 of two clusters along a direction (MSPC eq. 4).

    The formula is given in `separation_along`. R^2 and 1 - R^2 are replaced by the variances
    `between` and `within` the clusters, in any unit, and r_1 is `share`.
    """
    with np.errstate(divide="ignore"):
        return np.divide(between, 2.0 * np.maximum(share, 1.0 - share) * within)


def probability(kappa2: float) -> float:
    """Return kappa^2 / (1 + kappa^2), the worst-case probability of a separation kappa."""
    return float(kappa2 / (1.0 + kappa2)) if np.isfinite(kappa2) else float(kappa2 > 0)


def separation_along(
    scores: ArrayLike, sides: ArrayLike, weights: ArrayLike | None = None
) -> float:
    r"""Worst-case probability that the scores of a split separate its two sides.

    This is Theorem 2 of MSPC along one direction. With the shares :math:`r_1 + r_2 = 1` of the
    sides and the share :math:`R^2` of the variance of the scores that the sides explain,
    :math:`\kappa^2 = R^2 / (2 \max(r_1, r_2) (1 - R^2))` and
    :math:`p = \kappa^2 / (1 + \kappa^2)`. The value does not depend on the unit of the scores. For
    a symmetric unimodal density that is cut in its middle, it is at most 3/4.
    """
    scores = check_vector("scores", scores, may_be_empty=True)
    sides = check_vector("sides", sides, scores.size, may_be_empty=True)
    if not scores.size:
        return 0.0
    if not ((sides == 0) | (sides == 1)).all():
        raise ValueError(
            "sides must hold True or False for each score. Compare labels with a value, for "
            "example labels == 1."
        )
    scores = _of_ordinary_size(scores)
    w = np.ones(scores.size)
    if weights is not None:
        w = _of_ordinary_size(check_vector("weights", weights, scores.size))
        if w.min() < 0:
            raise ValueError(f"weights must not be negative, got {w.min():g}.")
    total, on_one = float(w.sum()), float(w @ sides)
    r1 = on_one / total if total > 0 else 0.0
    if not 0.0 < r1 < 1.0:
        return 0.0
    centred = scores - (w @ scores) / total
    largest = float(np.abs(centred).max())
    if largest > 0 and not 1e-100 < largest < 1e100:
        centred = centred / largest  # the scale does not matter, and squares must not overflow
    variance = float(w @ centred**2) / total
    mean1 = float(w @ (centred * sides)) / on_one
    if variance <= 0:
        return 0.0
    # mean0 = -mean1 r1 / (1 - r1), so that r1 (1 - r1) (mean1 - mean0)^2 = mean1^2 r1 / (1 - r1).
    explained = min(mean1**2 * r1 / ((1.0 - r1) * variance), 1.0)
    return probability(float(kappa2_bound(explained, 1.0 - explained, r1)))


def _of_ordinary_size(values: NDArray) -> NDArray:
    """Divide values by the largest if their squares would overflow or underflow."""
    peak = float(np.abs(values).max())
    return values if peak == 0 or 1e-100 < peak < 1e100 else values / peak
