"""The grid of the mode test: as long as the sample, with gaps in its tails made short."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import grid_shares

__all__ = ["FoldedSample", "folded_sample"]

# The grid covers the middle nine tenths and this much of their width on either side ...
OVERHANG = 0.6
# ... and further on a side where so many points, and such a share of all, lie beyond. There it is
# at most so many widths longer.
FEWEST_BEYOND, SHARE_BEYOND, LONGEST = 4, 0.015, 3.0
# Gaps beyond are shortened to so many bandwidths: room for more points than a group of a few per
# cent has, if they came from a density that falls.
LONGEST_GAP = 12.0
# The grid ends so many bandwidths beyond the last point that it was made longer for.
MARGIN = 3.0
# Bandwidth in units of the width of the middle nine tenths at 300 points. It falls with the
# seventh root of the size, the best rate for the derivative of a density, whose zeros are modes.
BANDWIDTH = 0.13
# Points of the grid in a bandwidth.
RESOLUTION = 5
# Counts added before the root is taken, so that the single points of a tail weigh little.
OFFSET = 3.0
# Fewer points say nothing.
FEWEST = 20


@dataclass(frozen=True)
class FoldedSample:
    """A sample on its grid of G points, in bandwidths from `low`.

    `shares` (G,) is the share of the sample at each point of the grid; a value is shared by the
    two around it. `n` values are on the grid, which starts at `start` in steps of `step`. `low`
    and `bandwidth` are in the units of the sample. Places `folded` on the grid belong to the
    places `unfolded` in the sample, piecewise linearly in between.
    """

    shares: NDArray[np.float64]
    n: int
    step: float
    start: float
    low: float
    bandwidth: float
    folded: NDArray[np.float64]
    unfolded: NDArray[np.float64]

    @cached_property
    def kernel(self) -> NDArray[np.float64]:
        """The Gaussian kernel (G, G) that smooths shares to densities a bandwidth."""
        size = self.shares.size
        distances = np.arange(1 - size, size) * self.step
        values = np.exp(-0.5 * distances**2) / np.sqrt(2.0 * np.pi)
        windows: NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(values, size)
        return np.ascontiguousarray(windows[::-1])

    def density(self, shares: NDArray) -> NDArray:
        """Return the smoothed density of shares (m, G)."""
        return np.asarray(shares @ self.kernel)

    def heights(self, density: NDArray) -> NDArray:
        r"""Return densities in standard errors, :math:`2 \sqrt{N + 3}`.

        The variance of a density f smoothed by a Gaussian is near :math:`f / (2 \sqrt{\pi} n h)`:
        that of a count :math:`N = 2 \sqrt{\pi} n h f`, whose root has a variance near 1/4.
        """
        return np.asarray(2.0 * np.sqrt(2.0 * np.sqrt(np.pi) * self.n * density + OFFSET))

    def value_at(self, place: float) -> float:
        """Return the value of the sample at a place in units of the grid's step."""
        folded = self.start + place * self.step
        return self.low + self.bandwidth * float(np.interp(folded, self.folded, self.unfolded))


def folded_sample(x: NDArray) -> FoldedSample | None:
    """Return a sample on the grid of the mode test, None where it has no width.

    The grid reaches from the 5th to the 95th percentile and over, so that a few far points do not
    stretch it: they are left out. Where there are more of them on a side they may be a group. The
    grid then follows the points outwards, and every gap that is longer than twelve bandwidths
    is shortened to that. So a group is seen at any distance, and the single points of a heavy tail
    stay what they are: one point here and there, which is no mode. Differences of the values must
    not overflow.
    """
    if x.size < FEWEST:
        return None
    low, high = _middle_nine_tenths(x)
    bandwidth = BANDWIDTH * (300.0 / x.size) ** (1.0 / 7.0) * (high - low)
    if not bandwidth > 0:
        return None
    with np.errstate(over="ignore"):
        z = np.clip((x - low) / bandwidth, -1e300, 1e300)
    width = (high - low) / bandwidth
    upper, end, above = _tail(z, width, width)
    lower, start, below = _tail(-z, 0.0, width)
    start, lower, below = -start, -lower[::-1], -below[::-1]
    inside = z[(z >= -OVERHANG * width) & (z <= (1.0 + OVERHANG) * width)]
    values = np.concatenate([lower, inside, upper])
    if values.size < FEWEST:
        return None
    ends = np.array([inside.min(), inside.max()])
    size = int(np.ceil((end - start) * RESOLUTION)) + 1
    step = (end - start) / (size - 1)
    place = (values - start) / step
    return FoldedSample(
        shares=grid_shares(place[None, :], np.ones((1, place.size)), size)[0],
        n=values.size,
        step=step,
        start=start,
        low=low,
        bandwidth=bandwidth,
        folded=np.concatenate([lower, ends, upper]),
        unfolded=np.concatenate([below, ends, above]),
    )


def _middle_nine_tenths(x: NDArray) -> tuple[float, float]:
    """Return the 5th and the 95th percentile; `numpy.quantile` takes longer for few points."""
    places = 0.05 * (x.size - 1), 0.95 * (x.size - 1)
    ranks = [min(int(place) + step, x.size - 1) for place in places for step in (0, 1)]
    ordered = np.partition(x, ranks)
    low, above_low, high, above_high = (float(ordered[rank]) for rank in ranks)
    return (
        low + (places[0] - ranks[0]) * (above_low - low),
        high + (places[1] - ranks[2]) * (above_high - high),
    )


def _tail(z: NDArray, top: float, width: float) -> tuple[NDArray, float, NDArray]:
    """Return the folded places of the values far above `top`, the grid's end, and those values.

    All in bandwidths; none where they are too few to be a group.
    """
    end = top + OVERHANG * width
    far = z > end
    n_far = int(np.count_nonzero(far))
    if n_far < max(FEWEST_BEYOND, SHARE_BEYOND * z.size):
        return np.empty(0), end, np.empty(0)
    beyond = np.sort(z[far])
    last = z[~far].max()
    folded = last + np.cumsum(np.minimum(np.diff(beyond, prepend=last), LONGEST_GAP))
    folded = folded[folded <= end + LONGEST * width]
    if folded.size == 0:
        return folded, end, folded
    return folded, max(end, float(folded[-1]) + MARGIN), beyond[: folded.size]
