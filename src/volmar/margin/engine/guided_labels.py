"""Labels of given scores that a guide allows: those of the lowest hinge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import Guide, Placement

__all__ = ["clusters_allowed", "has_limits", "sides_allowed"]


def has_limits(guide: Guide) -> bool:
    """Whether a guide limits the sizes of clusters."""
    return guide.low is not None or guide.high is not None


def sides_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> NDArray:
    r"""Return labels 0 or 1 by the scores of two clusters, those that a guide allows.

    They minimise the hinge :math:`\sum_i p_i \max(0, \rho \mp f_i)`, so that a relabelling never
    raises the objective. Of a row alone that is the sign of its score. With limits of sizes they
    are the best by the scores: a border that is shifted, which new rows can go by.
    """
    if _is_by_scores(guide):
        return guide.place_sides(f).labels
    f = f.astype(np.float64, copy=False)
    gains = -np.maximum(0.0, np.column_stack([rho + f, rho - f]))
    return guide.place(_weighted(gains, guide, shares)).labels


def clusters_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> Placement:
    """Return the placement by scores (n, k) that a guide allows, as `sides_allowed` does for two.

    The hinge is that of Crammer and Singer, the lack of a lead of rho over all other clusters.
    """
    if _is_by_scores(guide):
        return guide.place(f)
    f = f.astype(np.float64, copy=False)
    order = np.argsort(f, axis=1)
    rows = np.arange(len(f))
    top, second = order[:, -1], order[:, -2]
    rivals = np.repeat(f[rows, top][:, None], f.shape[1], axis=1)
    rivals[rows, top] = f[rows, second]
    gains = -np.maximum(0.0, rho - (f - rivals))
    return guide.place(_weighted(gains, guide, shares))


def _is_by_scores(guide: Guide) -> bool:
    return has_limits(guide) or (guide.units is None and not guide.apart.size)


def _weighted(gains: NDArray, guide: Guide, shares: Any) -> NDArray:
    """Return gains whose sum by the guide's weights is that by the shares of the loss.

    A row without weight has its plain gains, which are counted with none.
    """
    if shares is None and guide.weights is None:
        return gains
    n = len(gains)
    p = np.ones(n) if shares is None else np.asarray(shares, dtype=np.float64) * n
    w = np.ones(n) if guide.weights is None else np.asarray(guide.weights, dtype=np.float64)
    factors = np.divide(p, w, out=np.ones(n), where=w > 0)
    return gains * factors[:, None]
