"""Valleys of many samples at once: the deepest of each, or the depth at given cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.binned import BinnedSamples, binned
from volmar.evidence.modes.densities import GRID, grid_shares, missing_mass, smoothed

__all__ = ["Valley", "Valleys", "deepest_valleys", "valleys_at", "valleys_of"]

# Depths below this share of the mode are rounding errors.
NO_VALLEY = 1e-6
# Integral of the squared Gaussian kernel, in bandwidths. The variance of a density estimate f from
# n values is this integral times f / n.
KERNEL_SQUARE = 0.5 / np.sqrt(np.pi)
# The grid of `valleys_at` covers the 5-95 % range and this share of its width on either side.
OVERHANG = 0.6
# Minimum distance from a cut to the median of a group beyond it, in interquartile ranges.
APART = 1.5
# Bandwidth at 300 values, in units of the grid's width. It falls with the fifth root of the size.
BANDWIDTH = 0.065


class Valley(NamedTuple):
    """The deepest valley of a smoothed density.

    `place` is its location, NaN without a valley. `depth` is one minus the ratio of the density at
    the valley to that at the lower of the modes beside it: 0 without a valley, 1 for an empty gap.
    `significance` is the difference of these two densities in standard errors.
    """

    place: float
    depth: float
    significance: float


def deepest_valleys(samples: Sequence[NDArray]) -> list[Valley]:
    """Return the deepest valley of each sample."""
    return [
        Valley(*map(float, valley)) for valley in zip(*valleys_of(binned(samples)), strict=True)
    ]


def valleys_of(samples: BinnedSamples) -> tuple[NDArray, NDArray, NDArray]:
    """Return the locations, depths and significances (m,) of the deepest valleys of samples."""
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

    `mass` (k,) is the mass that must be added to each density to make it unimodal. `depth` (k,) is
    one minus the ratio of the density at a cut to that at the lower of the modes on its two sides.
    """

    mass: NDArray
    depth: NDArray


def valleys_at(ordered: NDArray, cuts: NDArray) -> Valleys:
    """Return the valleys of samples (k, n), each row sorted, and their depth at cuts (k,).

    This is not a test: valleys of the smoothed density are returned for samples of any size.
    Values far outside the 5-95 % range are left out, unless the values beyond a cut form a small
    group there (`_far_edges`), which is then included as a whole.
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
    """Return the outer ends of the groups below and above a cut; `start` and `end` if none.

    The values beyond a cut are a group, not a tail, if their median is farther from the cut than
    `APART` times their interquartile range. (The factor is 0.6 for an exponential tail, 1 for a
    uniform one, and 3 for a normal group at 8 standard deviations.) The group ends at the mirror
    image of the cut about its median.
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
