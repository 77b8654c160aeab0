"""One hump or more: how much of a smoothed density must be filled to leave one."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.optimize import isotonic_regression

from volmar.evidence.dip import _sample
from volmar.rows import column_resolutions, dithered

__all__ = [
    "HumpTest",
    "Valleys",
    "deepest_valley",
    "density_on_grid",
    "fill",
    "hump_test",
    "valley_mass",
    "valleys_at",
]

# Points of the grid, in which samples of any size are binned.
GRID = 256
# The grid covers the middle nine tenths and this much of their width on either side.
OVERHANG = 0.6
# Bandwidth in units of the grid's width at 300 points; it falls with the fifth root of the size.
BANDWIDTH = 0.065
# Values of the grid below this share of the highest one are no place for a mode.
LOW = 0.3
# Draws from the null.
N_DRAWS = 400
# Fewer points than this say nothing.
FEWEST = 20
# Beyond this size the fluctuations of a count are drawn, not the points themselves.
DRAW_POINTS_UP_TO = 5000
# Points that are held at once; 400 draws of the largest sample that is drawn point by point.
BLOCK = 2_000_000
# Masses of valleys that differ by less differ by the rounding of the Fourier transform.
ROUNDING = 1e-12


class HumpTest(NamedTuple):
    """Outcome of the test of one hump.

    Attributes
    ----------
    statistic : float
        Share of the sample that is missing between humps.
    p_value : float
        Probability of as much where there is one hump.
    """

    statistic: float
    p_value: float


def density_on_grid(x: NDArray) -> tuple[NDArray, int] | None:
    """Return the shares of a sample at the points of its grid, and how many points it has there.

    The grid reaches from the 5th to the 95th percentile and over, so that it does not depend on a
    few far points, which are left out. A point is shared by the two grid points around it. None
    where the sample has no width.
    """
    x = x.astype(np.float64, copy=False)
    start, length = _ends(x)
    if not length > 0 or x.size < FEWEST:
        return None
    u = (x - start) / length
    u = u[(u >= 0.0) & (u <= 1.0)] * (GRID - 1)
    return _binned(u[None, :])[0], u.size


def _ends(x: NDArray) -> tuple[float, float]:
    """Return where the grid of a sample starts, and its length."""
    low, high = np.quantile(x, [0.05, 0.95])
    width = float(high - low)
    return float(low) - OVERHANG * width, (1.0 + 2.0 * OVERHANG) * width


def _binned(u: NDArray, counted: NDArray | None = None) -> NDArray:
    """Return the shares (m, GRID) of samples (m, n) in units of the grid's step.

    Of all points, or of those that are `counted`.
    """
    m, n = u.shape
    below = np.minimum(u.astype(np.int64), GRID - 2)
    above_share = u - below
    below_share = 1.0 - above_share
    sizes: Any = n
    if counted is not None:
        above_share, below_share = above_share * counted, below_share * counted
        sizes = np.maximum(counted.sum(axis=1, keepdims=True), 1)
    place = (below + GRID * np.arange(m)[:, None]).ravel()
    counts = np.bincount(place, below_share.ravel(), m * GRID)
    counts += np.bincount(place + 1, above_share.ravel(), m * GRID)[: m * GRID]
    return counts.reshape(m, GRID) / sizes


def _smoothed(shares: NDArray, bandwidth: float) -> NDArray:
    """Return shares (m, GRID) smoothed by a Gaussian of this width, in units of the grid's."""
    length = 2 * GRID
    frequencies = 2.0 * np.pi * np.arange(GRID + 1) / length
    damping = np.exp(-0.5 * (frequencies * bandwidth * (GRID - 1)) ** 2)
    smooth = fft.irfft(fft.rfft(shares, length, axis=1) * damping, length, axis=1)
    return np.maximum(smooth[:, :GRID], 0.0)


def fill(density: NDArray) -> NDArray:
    r"""Return the mass by which densities (m, GRID) must be filled so that each has one hump.

    The smallest function above f with one hump is :math:`\min(\max_{u \le x} f(u), \max_{u \ge x}
    f(u))`: every valley is filled up to the lower of the two peaks beside it.
    """
    return _missing(density).sum(axis=1)


def _missing(density: NDArray) -> NDArray:
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(left, right) - density


def deepest_valley(x: NDArray) -> float:
    """Return where the smoothed density of a sample would be filled most; the mean if nowhere.

    Of a valley with a flat bottom it is the middle.
    """
    x = x.astype(np.float64, copy=False)
    found = density_on_grid(x)
    if found is None:
        return float(np.mean(x))
    shares, n = found
    missing = _missing(_smoothed(shares[None, :], _bandwidth(n)))[0]
    if missing.sum() <= ROUNDING:
        return float(np.mean(x))
    deepest = np.flatnonzero(missing >= (1.0 - 1e-6) * missing.max())
    bottom = deepest[deepest - np.arange(deepest.size) == deepest[0]]
    start, length = _ends(x)
    return start + float(bottom.mean()) / (GRID - 1) * length


def valley_mass(x: NDArray) -> float:
    """Return the statistic of `hump_test`: the mass of the valleys of the smoothed density."""
    found = density_on_grid(np.asarray(x, dtype=np.float64))
    if found is None:
        return 0.0
    shares, n = found
    return float(fill(_smoothed(shares[None, :], _bandwidth(n)))[0])


class Valleys(NamedTuple):
    """Valleys of many smoothed densities.

    Attributes
    ----------
    mass : ndarray of shape (k,)
        `valley_mass` of each sample.
    depth : ndarray of shape (k,)
        One less the density at a cut over that of the lower of the modes on its two sides: 0 at a
        mode, 1 in an empty gap.
    """

    mass: NDArray
    depth: NDArray


def valleys_at(ordered: NDArray, cuts: NDArray) -> Valleys:
    """Return the valleys of many samples at once, and how deep they are at given cuts.

    Parameters
    ----------
    ordered : ndarray of shape (k, n)
        Samples, each row sorted.
    cuts : ndarray of shape (k,)
        A place in each of them.
    """
    k, n = ordered.shape
    low, high = (_sorted_quantile(ordered, share) for share in (0.05, 0.95))
    width = high - low
    start, length = low - OVERHANG * width, (1.0 + 2.0 * OVERHANG) * width
    usable = (length > 0) & (n >= FEWEST)
    length = np.where(usable, length, 1.0)
    u = (ordered - start[:, None]) * ((GRID - 1) / length)[:, None]
    inside = (u >= 0.0) & (u <= GRID - 1)
    density = _smoothed(_binned(np.clip(u, 0.0, GRID - 1.0), inside), _bandwidth(n))
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    lower = np.minimum(left, right)
    place = np.clip(np.rint((cuts - start) / length * (GRID - 1)), 0, GRID - 1).astype(np.int64)
    each = np.arange(k)
    peak, there = lower[each, place], density[each, place]
    depth = 1.0 - np.divide(there, peak, out=np.ones(k), where=peak > 0)
    mass = (lower - density).sum(axis=1)
    return Valleys(np.where(usable, mass, 0.0), np.where(usable, depth, 0.0))


def _sorted_quantile(ordered: NDArray, share: float) -> NDArray:
    place = share * (ordered.shape[1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[1] - 1)
    return ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])


def _bandwidth(n: int) -> float:
    return BANDWIDTH * (300.0 / n) ** 0.2


def _one_hump(density: NDArray) -> NDArray:
    """Return the density with one hump that is nearest in squares, among modes at the peaks."""
    peaks = 1 + np.flatnonzero(
        (density[1:-1] >= density[:-2])
        & (density[1:-1] >= density[2:])
        & (density[1:-1] > LOW * density.max())
    )
    best, least = density, np.inf
    for mode in peaks if peaks.size else [int(np.argmax(density))]:
        rising = isotonic_regression(density[: mode + 1]).x
        falling = isotonic_regression(density[mode + 1 :], increasing=False).x
        fitted = np.concatenate([rising, falling])
        error = float(np.sum((fitted - density) ** 2))
        if error < least:
            best, least = fitted, error
    return best / best.sum()


def hump_test(x: ArrayLike, rng: np.random.Generator, *, n_draws: int = N_DRAWS) -> HumpTest:
    r"""Test whether a sample comes from a density with one hump.

    The sample is smoothed by a Gaussian kernel; the statistic is the mass of the valleys of that
    density (`fill`). Its distribution under one hump is found by drawing samples from the nearest
    density that has one (by isotonic regression up to the mode and down from it), smoothed alike.
    A hump that is small and far away counts by its own mass there, which is what Hartigan's dip
    cannot see: its null is the uniform density, the hardest case, for every sample.

    Parameters
    ----------
    x : array-like of shape (n,)
        The sample, in any order. Fewer than 20 values, or nine tenths of them at one place, say
        nothing: the p-value is 1.
    rng : Generator
        Draws from the null.
    n_draws : int, default=400
        Draws; the least p-value is 1 / (1 + n_draws).

    Returns
    -------
    HumpTest
        `statistic` and `p_value`.

    See Also
    --------
    dip_test : Hartigan's dip, surely valid and blind for small groups.

    Notes
    -----
    The level is approximate. It is far below the nominal one for densities with a round or
    pointed top and about twice it for the uniform one, whose top is flat: combine several
    p-values (`volmar.evidence.combine_p_values`) or halve the level where that matters.

    Far points are left out, those beyond the middle nine tenths and six tenths of their width on
    either side: a group of less than a twentieth of the sample that lies there is not seen.

    The bandwidth falls with the size of the sample. A sample with ties is dithered first: noise of
    the width of its resolution (`volmar.rows.column_resolutions`) closes the gaps that rounding
    left.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.evidence import hump_test
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=200)
    >>> hump_test(x, rng).p_value > 0.05
    True
    >>> hump_test(np.append(x, 6 + x[:20]), rng).p_value < 0.01
    True
    """
    sample = _sample(x)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, got {rng!r}. Use "
            "numpy.random.default_rng(seed)."
        )
    if not isinstance(n_draws, Integral) or n_draws < 1:
        raise ValueError(f"n_draws must be an integer, at least 1, got {n_draws!r}.")
    if np.abs(sample).max() > np.finfo(np.float64).max / 8:
        sample = sample / 8  # the ends of the grid have to be numbers too
    column = sample[:, None]
    sample = dithered(column, column_resolutions(column), rng)[:, 0]
    found = density_on_grid(sample)
    if found is None or found[1] < FEWEST:
        return HumpTest(0.0, 1.0)
    shares, n = found
    bandwidth = _bandwidth(n)
    density = _smoothed(shares[None, :], bandwidth)
    statistic = float(fill(density)[0])
    reached = sum(
        np.count_nonzero(fill(_smoothed(drawn, bandwidth)) >= statistic - ROUNDING)
        for drawn in _draws(_one_hump(density[0]), n, int(n_draws), rng)
    )
    return HumpTest(statistic, float(1 + reached) / (1 + int(n_draws)))


def _draws(null: NDArray, n: int, n_draws: int, rng: np.random.Generator) -> Iterator[NDArray]:
    """Yield shares (m, GRID) of samples of n points from the null, a block at a time."""
    by_points = n <= DRAW_POINTS_UP_TO
    block = BLOCK // (n if by_points else GRID)
    for done in range(0, n_draws, block):
        m = min(block, n_draws - done)
        if by_points:
            place = np.searchsorted(np.cumsum(null)[:-1], rng.random((m, n)))
            yield _binned(np.clip(place + rng.uniform(-0.5, 0.5, place.shape), 0.0, GRID - 1.0))
        else:
            yield rng.multinomial(n, null, size=m) / n
