"""The grid of the mode test, on which long gaps in the tails of a sample are shortened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import grid_shares

__all__ = [
    "MIN_SIZE",
    "OVERHANG",
    "FoldedSample",
    "bandwidth_of",
    "folded_sample",
    "is_far_group",
    "middle_nine_tenths",
]

# The grid covers the range from the 5th to the 95th percentile, and this share of its width on
# either side.
OVERHANG = 0.6
# It is extended on a side if at least this number of values, and this share of all, lie beyond.
# LONGEST is the maximum extension, in widths.
MIN_BEYOND, SHARE_BEYOND, LONGEST = 4, 0.015, 3.0
# Gaps in the extension are shortened to this number of bandwidths. A decreasing density would have
# more values in such a gap than a group of a few per cent has.
LONGEST_GAP = 12.0
# The grid ends this number of bandwidths beyond the last value of the extension.
MARGIN = 3.0
# Bandwidth at 300 values, in units of the 5-95 % range. It falls with the seventh root of the
# size, the optimal rate for the derivative of a density, whose zeros are the modes.
BANDWIDTH = 0.13
# Number of grid points per bandwidth.
RESOLUTION = 5
# Added to counts before taking the root, so that single values in a tail have little weight.
OFFSET = 3.0
# Minimum number of values.
MIN_SIZE = 20


@dataclass(frozen=True)
class FoldedSample:
    """A sample on a grid of G points, in bandwidths from `low`.

    `shares` (G,) is the share of the sample at each grid point; a value is divided between the two
    grid points around it. `n` values are on the grid, which starts at `start` in steps of `step`.
    `low` and `bandwidth` are in the units of the sample. The positions `folded` on the grid
    correspond to the positions `unfolded` in the sample, piecewise linearly in between.
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
        """The Gaussian kernel (G, G) that smooths shares to densities per bandwidth."""
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

        The variance of a density f smoothed by a Gaussian is near :math:`f / (2 \sqrt{\pi} n h)`.
        Scaled to :math:`N = 2 \sqrt{\pi} n h f`, it behaves like a Poisson count, with a variance
        near its mean. The square root of such a count has a variance near 1/4.
        """
        return np.asarray(2.0 * np.sqrt(2.0 * np.sqrt(np.pi) * self.n * density + OFFSET))

    def value_at(self, place: float) -> float:
        """Return the value of the sample at a position in steps of the grid."""
        folded = self.start + place * self.step
        return self.low + self.bandwidth * float(np.interp(folded, self.folded, self.unfolded))


def folded_sample(x: NDArray) -> FoldedSample | None:
    """Return a sample on the grid of the mode test; None if it is too small or has no width.

    The grid covers the range from the 5th to the 95th percentile with a margin. A few values far
    outside are left out, so that they do not stretch it. If there are more of them on a side, they
    may be a group. The grid is then extended outwards, and every gap longer than twelve bandwidths
    is shortened to that length. A group is then detected at any distance, and the isolated
    values of a heavy tail do not form a mode. Differences of the values must not overflow.
    """
    if x.size < MIN_SIZE:
        return None
    low, high = (float(ends[0]) for ends in middle_nine_tenths(x[None, :]))
    bandwidth = float(bandwidth_of(x.size, high - low))
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
    if values.size < MIN_SIZE:
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


def bandwidth_of(n: NDArray | int, width: NDArray | float) -> NDArray | float:
    """Return the bandwidth of n values with this width of the 5-95 % range."""
    return BANDWIDTH * (300.0 / np.maximum(n, 1)) ** (1.0 / 7.0) * width


def middle_nine_tenths(
    values: NDArray, sizes: NDArray | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the 5th and the 95th percentile of each of m samples.

    `values` is an array (m, n), or one-dimensional, with samples of the given `sizes` one after
    the other. `numpy.quantile` is slower for few values.
    """
    m = values.shape[0] if sizes is None else sizes.size
    n = np.full(m, values.shape[1]) if sizes is None else sizes
    places = np.array([[0.05], [0.95]]) * (n - 1)
    below = places.astype(np.int64)
    above = np.minimum(below + 1, n - 1)
    starts = np.cumsum(n) - n
    if sizes is None:
        ranks = np.unique([below[:, :1], above[:, :1]])
        ordered = np.partition(values, ranks, axis=1).ravel() if values.size else values.ravel()
    else:
        ordered = values.copy()
        ranks = np.concatenate([below, above]).T.tolist()
        for start, size, at in zip(starts.tolist(), n.tolist(), ranks, strict=True):
            ordered[start : start + size].partition(at)
    lower, upper = ordered[starts + below], ordered[starts + above]
    found = lower + (places - below) * (upper - lower)
    return found[0], found[1]


def is_far_group(n_far: NDArray | int, n: NDArray | int) -> NDArray | bool:
    """Return whether `n_far` of n values beyond one end of the grid may be a group."""
    return n_far >= np.maximum(MIN_BEYOND, SHARE_BEYOND * n)


def _tail(z: NDArray, top: float, width: float) -> tuple[NDArray, float, NDArray]:
    """Return the folded positions of the values far above `top`, the grid's end, and those values.

    All are in bandwidths. The arrays are empty if the values are too few to be a group.
    """
    end = top + OVERHANG * width
    far = z > end
    if not is_far_group(int(np.count_nonzero(far)), z.size):
        return np.empty(0), end, np.empty(0)
    beyond = np.sort(z[far])
    last = z[~far].max()
    folded = last + np.cumsum(np.minimum(np.diff(beyond, prepend=last), LONGEST_GAP))
    folded = folded[folded <= end + LONGEST * width]
    if folded.size == 0:
        return folded, end, folded
    return folded, max(end, float(folded[-1]) + MARGIN), beyond[: folded.size]
