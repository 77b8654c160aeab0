"""Valleys of many samples at once: the deepest of each, or their depth at given places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.binned import BinnedSamples, binned
from volmar.evidence.modes.densities import GRID, grid_shares, missing_mass, smoothed

__all__ = ["Valley", "Valleys", "deepest_valleys", "valleys_at", "valleys_of"]

# Valleys below this share of the mode are rounding.
NO_VALLEY = 1e-6
# Integral of the squared Gaussian kernel, in bandwidths: the variance of a density estimate f of n
# points is this times f / n.
KERNEL_SQUARE = 0.5 / np.sqrt(np.pi)
# The grid of `valleys_at` covers the middle nine tenths and this share of their width beside them.
OVERHANG = 0.6
# How far from a cut, in interquartile ranges, the median of a group beyond it is.
APART = 1.5
# Bandwidth in units of the grid's width at 300 points; it falls with the fifth root of the size.
BANDWIDTH = 0.065


class Valley(NamedTuple):
    """The deepest valley of a smoothed density.

    Its place (NaN without one); one less the density there over that of the lower of the modes
    beside it, 0 without a valley and 1 for an empty gap; and their difference in standard errors.
    """

    place: float
    depth: float
    significance: float


def deepest_valleys(samples: Sequence[NDArray]) -> list[Valley]:
    """Return the valley of each sample that is deepest; see `Valley`."""
    return [
        Valley(*map(float, valley)) for valley in zip(*valleys_of(binned(samples)), strict=True)
    ]


def valleys_of(samples: BinnedSamples) -> tuple[NDArray, NDArray, NDArray]:
    """Return the places, depths and significances (m,) of the deepest valleys of samples."""
    densities = samples.densities
    missing = missing_mass(densities)
    at = np.argmax(missing, axis=1)
    each = np.arange(at.size)
    lack, there = missing[each, at], densities[each, at]
    exists = lack > NO_VALLEY * densities.max(axis=1, initial=0.0)
    places = np.where(exists, samples.values_at(at + 0.5), np.nan)
    lower = np.where(exists, lack + there, 1.0)
    error = np.sqrt(KERNEL_SQUARE * (lower + there) / np.maximum(samples.n, 1))
    return places, np.where(exists, lack / lower, 0.0), np.where(exists, lack / error, 0.0)


class Valleys(NamedTuple):
    """Valleys of k smoothed densities.

    The mass (k,) by which each must be filled to have one mode, and the depth (k,) at a cut: one
    less the density there over that of the lower of the modes on its two sides.
    """

    mass: NDArray
    depth: NDArray


def valleys_at(ordered: NDArray, cuts: NDArray) -> Valleys:
    """Return the valleys of samples (k, n), each row sorted, and their depth at cuts (k,).

    It is no test: also of a few points the valleys of the smoothed density are returned. Points
    far from the middle nine tenths are left out, unless the points beyond a cut are a small group
    (`_far_edges`) out there, which is then seen as a whole.
    """
    k, n = ordered.shape
    low, high = (_sorted_quantile(ordered, share) for share in (0.05, 0.95))
    width = high - low
    start, end = low - OVERHANG * width, high + OVERHANG * width
    first, last = _far_edges(ordered, cuts, start, end)
    start, end = np.minimum(start, first), np.maximum(end, last)
    length = end - start
    usable = length > 0
    length = np.where(usable, length, 1.0)
    u = (ordered - start[:, None]) * ((GRID - 1) / length)[:, None]
    inside = (u >= 0.0) & (u <= GRID - 1)
    shares = grid_shares(np.clip(u, 0.0, GRID - 1.0), inside, GRID)
    density = smoothed(shares, BANDWIDTH * (300.0 / n) ** 0.2 * (GRID - 1))
    missing = missing_mass(density)
    place = np.clip(np.rint((cuts - start) / length * (GRID - 1)), 0, GRID - 1).astype(np.int64)
    lack, there = (values[np.arange(k), place] for values in (missing, density))
    peak = there + lack
    depth = 1.0 - np.divide(there, peak, out=np.ones(k), where=peak > 0)
    return Valleys(np.where(usable, missing.sum(axis=1), 0.0), np.where(usable, depth, 0.0))


def _far_edges(
    ordered: NDArray, cuts: NDArray, start: NDArray, end: NDArray
) -> tuple[NDArray, NDArray]:
    """Return where the groups below and above a cut end; the range given where there is none.

    The points beyond a cut are a group, and no tail, if their median is farther from the cut than
    `APART` times their interquartile range (0.6 for an exponential tail, 1 for a uniform one, 3
    for a normal group at 8 standard deviations). It ends at the mirror image of the cut.
    """
    n, each = ordered.shape[1], np.arange(cuts.size)
    n_below = (ordered <= cuts[:, None]).sum(axis=1)
    edges = []
    for first, size, edge in (
        (np.zeros_like(n_below), n_below, start),
        (n_below, n - n_below, end),
    ):
        at = (np.minimum(first + size * part // 4, n - 1) for part in (1, 2, 3))
        lower, median, upper = (ordered[each, place] for place in at)
        is_group = (size > 0) & (np.abs(median - cuts) > APART * (upper - lower))
        is_out = (median < start) | (median > end)
        edges.append(np.where(is_group & is_out, 2.0 * median - cuts, edge))
    return edges[0], edges[1]


def _sorted_quantile(ordered: NDArray, share: float) -> NDArray:
    place = share * (ordered.shape[1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[1] - 1)
    return ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])
