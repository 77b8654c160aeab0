"""Densities of one-dimensional samples: smoothed, folded, binned; valleys and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft

# Number of grid points, for samples of any size.
GRID = 256


def grid_shares(u: NDArray, counted: NDArray, size: int) -> NDArray:
    """Return the shares (m, size) of the `counted` values of samples (m, n), in grid steps.

    A value is divided between the two grid points around it.
    """
    m = len(u)
    below = np.minimum(u.astype(np.int64), size - 2)
    above_share = (u - below) * counted
    place = (below + size * np.arange(m)[:, None]).ravel()
    counts = np.bincount(place, (counted - above_share).ravel(), m * size)
    counts += np.bincount(place + 1, above_share.ravel(), m * size)[: m * size]
    return counts.reshape(m, size) / np.maximum(counted.sum(axis=1, keepdims=True), 1)


def smoothed(shares: NDArray, bandwidth: NDArray | float) -> NDArray:
    """Smooth shares (m, G) by a Gaussian, with bandwidths in steps of the grid."""
    size = shares.shape[1]
    frequencies = np.pi * np.arange(size + 1) / size
    damping = np.exp(-0.5 * (bandwidth * frequencies) ** 2)
    smooth = fft.irfft(fft.rfft(shares, 2 * size, axis=1) * damping, 2 * size, axis=1)
    return np.maximum(smooth[:, :size], 0.0)


def missing_mass(density: NDArray) -> NDArray:
    r"""Return the mass to add at each grid point of densities (m, G) to make them unimodal.

    The smallest unimodal function above f is :math:`\min(\max_{u \le x} f(u), \max_{u \ge x}
    f(u))`. It fills every valley up to the lower of the two peaks beside it.
    """
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(left, right) - density


# ----------- the grid of the mode test, on which long gaps in the tails of a sample are shortened

# The grid covers the range from the 5th to the 95th percentile, and this share of its width on
# either side. It needs a minimum number of values.
OVERHANG, MIN_SIZE = 0.6, 20


@dataclass(frozen=True)
class FoldedSample:
    """A sample of `n` values on a grid of G points, in bandwidths from `low`.

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
    size = int(np.ceil((end - start) * 5)) + 1  # five grid points per bandwidth
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
    # Bandwidth at 300 values, in units of the 5-95 % range. It falls with the seventh root of the
    # size, the optimal rate for the derivative of a density, whose zeros are the modes.
    return 0.13 * (300.0 / np.maximum(n, 1)) ** (1.0 / 7.0) * width


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
    return n_far >= np.maximum(4, 0.015 * n)


def _tail(z: NDArray, top: float, width: float) -> tuple[NDArray, float, NDArray]:
    """Return the folded positions of the values far above `top`, the grid's end, and those values.

    The arrays are empty if the values are too few to be a group.
    """
    end = top + OVERHANG * width
    far = z > end
    if not is_far_group(int(np.count_nonzero(far)), z.size):
        return np.empty(0), end, np.empty(0)
    beyond = np.sort(z[far])
    last = z[~far].max()
    # Gaps in the extension are shortened to this number of bandwidths. A decreasing density would
    # have more values in such a gap than a group of a few per cent has.
    folded = last + np.cumsum(np.minimum(np.diff(beyond, prepend=last), 12.0))
    folded = folded[folded <= end + 3.0 * width]
    if folded.size == 0:
        return folded, end, folded
    # The grid ends three bandwidths beyond the last value.
    return folded, max(end, float(folded[-1]) + 3.0), beyond[: folded.size]


# ------------- valleys of many samples at once, in bins: the deepest, or the depth at a given cut

# Number of bins of a sample, about three per bandwidth.
N_BINS = 64


@dataclass(frozen=True, eq=False)
class BinnedSamples:
    """Samples in `N_BINS` bins each, in bandwidths from `low`; shares without width are 0.

    `folds` has the samples with a folded tail, by their index.
    """

    shares: NDArray[np.float64]
    n: NDArray[np.int64]
    low: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    start: NDArray[np.float64]
    step: NDArray[np.float64]
    folds: dict[int, FoldedSample]

    @cached_property
    def densities(self) -> NDArray[np.float64]:
        """Smoothed densities (m, N_BINS), as shares per bandwidth."""
        widths = 1.0 / self.step[:, None]
        return smoothed(self.shares, widths) * widths

    def values_at(self, bins: NDArray) -> NDArray[np.float64]:
        """Return the value (m,) of each sample at a position in bins."""
        places = self.start + bins * self.step
        for i, sample in self.folds.items():
            places[i] = np.interp(places[i], sample.folded, sample.unfolded)
        return np.asarray(self.low + self.bandwidth * places)


def binned(samples: Sequence[NDArray]) -> BinnedSamples:
    """Bin samples, each on its grid from `folded_sample`."""
    m = len(samples)
    samples = [x if x.size else np.zeros(1) for x in samples]
    sizes = np.array([x.size for x in samples], dtype=np.int64)
    is_table = m > 0 and bool((sizes == sizes[0]).all())
    values = np.array(samples, dtype=np.float64) if is_table else np.concatenate([[], *samples])

    def spread(a: NDArray) -> NDArray:
        return a[:, None] if is_table else np.repeat(a, sizes)

    low, high = middle_nine_tenths(values, None if is_table else sizes)
    bandwidth = bandwidth_of(sizes, high - low)
    usable = (sizes >= MIN_SIZE) & (bandwidth > 0)
    bandwidth = np.where(usable, bandwidth, 1.0)
    width = np.where(usable, (high - low) / bandwidth, 1.0)
    start, step = -OVERHANG * width, (1.0 + 2.0 * OVERHANG) * width / N_BINS
    # Two more bins, for values beyond the others on either side.
    with np.errstate(over="ignore"):
        values = (values - spread(low)) / spread(bandwidth * step)
        values += spread(1.0 - start / step)
    at = np.clip(values, 0, N_BINS + 1, out=values).astype(np.int64)
    at += spread((N_BINS + 2) * np.arange(m))
    counts = np.bincount(at.ravel(), minlength=m * (N_BINS + 2)).reshape(m, N_BINS + 2)
    n = counts[:, 1:-1].sum(axis=1)
    shares = counts[:, 1:-1] / np.maximum(n, 1)[:, None]
    folds = {}
    for i in np.flatnonzero(usable & is_far_group(counts[:, [0, -1]].max(axis=1), sizes)):
        sample = folded_sample(np.asarray(samples[i], dtype=np.float64))
        if sample is None:
            usable[i] = False
            continue
        folds[int(i)] = sample
        size = sample.shares.size
        shares[i] = np.bincount(np.arange(size) * N_BINS // size, sample.shares, N_BINS)
        n[i], step[i] = sample.n, size * sample.step / N_BINS
        start[i] = sample.start - 0.5 * sample.step
    shares[~usable | (n < MIN_SIZE)] = 0.0
    return BinnedSamples(shares, n, low, bandwidth, start, step, folds)


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
    return [Valley(*map(float, each)) for each in zip(*valleys_of(binned(samples)), strict=True)]


def valleys_of(samples: BinnedSamples) -> tuple[NDArray, NDArray, NDArray]:
    """Return the locations, depths and significances (m,) of the deepest valleys of samples."""
    densities = samples.densities
    missing = missing_mass(densities)
    at = np.argmax(missing, axis=1)
    each = np.arange(at.size)
    lack, there = missing[each, at], densities[each, at]
    # Depths below this share of the mode are rounding errors.
    exists = lack > 1e-6 * densities.max(axis=1, initial=0.0)
    places = np.where(exists, samples.values_at(at + 0.5), np.nan)
    lower = np.where(exists, lack + there, 1.0)
    # The variance of a density estimate f from n values is the integral of the squared kernel, in
    # bandwidths, times f / n.
    error = np.sqrt(0.5 / np.sqrt(np.pi) * (lower + there) / np.maximum(samples.n, 1))
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
    low, high = middle_nine_tenths(ordered)
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
    # The bandwidth, in units of the grid's width, falls with the fifth root of the size.
    density = smoothed(shares, 0.065 * (300.0 / n) ** 0.2 * (GRID - 1))
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
    1.5 times their interquartile range. (The factor is 0.6 for an exponential tail, 1 for a
    uniform one, and 3 for a normal group at 8 standard deviations.) The group ends at the mirror
    image of the cut about its median.
    """
    n, each = ordered.shape[1], np.arange(cuts.size)
    n_below = (ordered <= cuts[:, None]).sum(axis=1)
    edges = []
    for first, size, edge in ((0 * n_below, n_below, start), (n_below, n - n_below, end)):
        at = (np.minimum(first + size * part // 4, n - 1) for part in (1, 2, 3))
        lower, median, upper = (ordered[each, place] for place in at)
        is_group = (size > 0) & (np.abs(median - cuts) > 1.5 * (upper - lower))
        is_out = (median < start) | (median > end)
        edges.append(np.where(is_group & is_out, 2.0 * median - cuts, edge))
    return edges[0], edges[1]


# ---------- two normal components on a grid: a projection index that is sensitive to small groups

# Quantiles at which the components are separated at the start.
STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Minimum standard deviation of a component, in units of the grid's width.
NARROWEST = 0.03


def two_group_index(shares: NDArray) -> NDArray:
    r"""Return an index of how much samples look like two groups, from shares (m, G) on a grid.

    The index is :math:`\sqrt{v} \, (\ell_2 - \ell_1)`, at least 0: the gain in log-likelihood per
    value of two normal components over one, times the square root of the mass of the valley
    between them. The likelihood detects small groups. The valley excludes skewed or heavy-tailed
    densities, which two components without a valley also fit better than one. Flat tops are not
    excluded: their two components have a valley that the sample does not have.

    The components result from 25 steps of the EM algorithm, in single precision: 6 steps from each
    of five starts, and 19 more from the best.
    """
    m = len(shares)
    if m == 0:
        return np.zeros(0)
    _, mean, square = _powers(shares.shape[1]) @ shares.T
    square = square - mean**2
    variance = np.maximum(square, NARROWEST**2)
    one = -0.5 * np.log(variance) - 0.5 * square / variance
    # All starts are computed at once, as blocks of samples.
    below = np.cumsum(shares, axis=1)
    second = np.concatenate([np.where(below > share, 0.98, 0.02) for share in STARTS])
    tiled = np.tile(shares, (len(STARTS), 1))
    second = _after_steps(tiled, second, 6)
    likelihood, _ = _likelihoods(tiled, second)
    best = np.argmax(likelihood.reshape(len(STARTS), m), axis=0) * m + np.arange(m)
    second = _after_steps(shares, second[best], 19)
    likelihood, together = _likelihoods(shares, second)
    density = np.exp(together - together.max(axis=1, keepdims=True))
    valley = missing_mass(density / density.sum(axis=1, keepdims=True)).sum(axis=1)
    # The constant ranks samples without a valley by likelihood.
    return np.sqrt(valley + 1e-6) * np.maximum(likelihood - one, 0.0)


def _after_steps(shares: NDArray, second: NDArray, n_steps: int) -> NDArray:
    """Return the probability (m, G) of the second component at each grid point, after EM steps."""
    shares, second = shares.astype(np.float32), second.astype(np.float32)
    powers = _powers(shares.shape[1]).astype(np.float32)
    totals = powers @ shares.T
    with np.errstate(over="ignore"):  # exp is inf there, and its reciprocal 0
        for _ in range(n_steps):
            second *= shares
            first, other = _logarithms(totals, powers @ second.T)
            np.matmul((first - other).T, powers, out=second)
            np.exp(second, out=second)
            second += 1.0
            np.reciprocal(second, out=second)
    return second


def _likelihoods(shares: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return log-likelihoods (m,) per value, and log-densities (m, G), up to a constant."""
    powers = _powers(shares.shape[1])
    first, other = _logarithms(powers @ shares.T, powers @ (shares * second).T)
    together = np.logaddexp(first.T @ powers, other.T @ powers)
    return np.einsum("ij,ij->i", shares, together), together


def _powers(size: int) -> NDArray[np.float64]:
    """Return the powers 0 to 2, of shape (3, G), of the points of a grid from 0 to 1."""
    return np.linspace(0.0, 1.0, size) ** np.arange(3)[:, None]


def _logarithms(totals: NDArray, moments: NDArray) -> NDArray:
    r"""Return the coefficients (2, 3, m) of both weighted log-densities, as polynomials.

    With weight w, mean :math:`\mu` and variance v, :math:`\log w - \frac12 \log v -
    (g - \mu)^2 / 2v` is a polynomial in the grid point g. A common constant is left out.
    `totals` and `moments` are moments of order 0 to 2, of samples and of their second components.
    """
    both = np.empty((2, *totals.shape), totals.dtype)
    np.subtract(totals, moments, out=both[0])
    both[1] = moments
    weight = np.maximum(both[:, 0], 1e-12)
    center, square = both[:, 1] / weight, both[:, 2] / weight
    variance = np.maximum(square - center * center, NARROWEST**2)
    linear = center / variance
    both[:, 0] = np.log(weight * weight / variance)
    both[:, 0] -= center * linear
    both[:, 0] *= 0.5
    both[:, 1] = linear
    np.divide(-0.5, variance, out=both[:, 2])
    return both
