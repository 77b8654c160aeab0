"""Labels with the lowest hinge loss for given scores, among those that a guide allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import Guide, Placement

__all__ = ["clusters_allowed", "has_limits", "sides_allowed"]


def has_limits(guide: Guide) -> bool:
    """Return whether a guide limits the sizes of clusters."""
    return guide.low is not None or guide.high is not None


def sides_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> NDArray:
    r"""Return the best labels 0 or 1 that a guide allows, for the scores of two clusters.

    They minimise the hinge :math:`\sum_i p_i \max(0, \rho \mp f_i)`, so a relabelling never raises
    the objective. For a row without links this is the sign of its score. With size limits, the
    labels are the best by the scores: they correspond to a shifted border, which also applies to
    new rows.
    """
    if _is_by_scores(guide):
        return guide.place_sides(f).labels
    f = f.astype(np.float64, copy=False)
    gains = -np.maximum(0.0, np.column_stack([rho + f, rho - f]))
    return guide.place(_weighted(gains, guide, shares)).labels


def clusters_allowed(guide: Guide, f: NDArray, rho: float, shares: Any = None) -> Placement:
    """Return the best placement that a guide allows for scores (n, k); see `sides_allowed`.

    The hinge is that of Crammer and Singer: the amount by which the lead over all other clusters
    falls short of rho.
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
    """Return gains whose sum weighted by the guide equals the sum weighted by `shares`.

    The gains of a row with weight 0 are unchanged; they do not count.
    """
    if shares is None and guide.weights is None:
        return gains
    n = len(gains)
    p = np.ones(n) if shares is None else np.asarray(shares, dtype=np.float64) * n
    w = np.ones(n) if guide.weights is None else np.asarray(guide.weights, dtype=np.float64)
    factors = np.divide(p, w, out=np.ones(n), where=w > 0)
    return gains * factors[:, None]
