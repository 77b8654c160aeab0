"""How deep the valleys of many samples are at given places, to compare directions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import GRID, missing_mass, smoothed

__all__ = ["Valleys", "valleys_at"]

# The grid covers the middle nine tenths and this much of their width on either side.
OVERHANG = 0.6
# Bandwidth in units of the grid's width at 300 points; it falls with the fifth root of the size.
BANDWIDTH = 0.065


class Valleys(NamedTuple):
    """Valleys of many smoothed densities.

    Attributes
    ----------
    mass : ndarray of shape (k,)
        Mass by which each density must be filled to have one mode.
    depth : ndarray of shape (k,)
        One less the density at a cut over that of the lower of the modes on its two sides: 0 at a
        mode, 1 in an empty gap.
    """

    mass: NDArray
    depth: NDArray


def valleys_at(ordered: NDArray, cuts: NDArray) -> Valleys:
    """Return the valleys of samples (k, n), each row sorted, and their depth at cuts (k,).

    It is no test: also of a few points the valleys of the smoothed density are returned. Points
    far from the middle nine tenths are left out.
    """
    k, n = ordered.shape
    low, high = (_sorted_quantile(ordered, share) for share in (0.05, 0.95))
    width = high - low
    start, length = low - OVERHANG * width, (1.0 + 2.0 * OVERHANG) * width
    usable = length > 0
    length = np.where(usable, length, 1.0)
    u = (ordered - start[:, None]) * ((GRID - 1) / length)[:, None]
    inside = (u >= 0.0) & (u <= GRID - 1)
    shares = grid_shares(np.clip(u, 0.0, GRID - 1.0), inside)
    density = smoothed(shares, BANDWIDTH * (300.0 / n) ** 0.2 * (GRID - 1))
    missing = missing_mass(density)
    place = np.clip(np.rint((cuts - start) / length * (GRID - 1)), 0, GRID - 1).astype(np.int64)
    lack, there = (values[np.arange(k), place] for values in (missing, density))
    peak = there + lack
    depth = 1.0 - np.divide(there, peak, out=np.ones(k), where=peak > 0)
    return Valleys(np.where(usable, missing.sum(axis=1), 0.0), np.where(usable, depth, 0.0))


def grid_shares(u: NDArray, counted: NDArray) -> NDArray:
    """Return the shares (m, GRID) of the `counted` points of samples (m, n) in steps of the grid.

    A point is shared by the two places around it.
    """
    m = len(u)
    below = np.minimum(u.astype(np.int64), GRID - 2)
    above_share = (u - below) * counted
    place = (below + GRID * np.arange(m)[:, None]).ravel()
    counts = np.bincount(place, (counted - above_share).ravel(), m * GRID)
    counts += np.bincount(place + 1, above_share.ravel(), m * GRID)[: m * GRID]
    return counts.reshape(m, GRID) / np.maximum(counted.sum(axis=1, keepdims=True), 1)


def _sorted_quantile(ordered: NDArray, share: float) -> NDArray:
    place = share * (ordered.shape[1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[1] - 1)
    return ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
