"""Test for one mode: the deepest valley of a smoothed density."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from volmar._checks import shown
from volmar._vectors import check_vector
from volmar.evidence.densities import FoldedSample, folded_sample, missing_mass
from volmar.evidence.dither import column_resolutions, dithered

# Default of `n_draws`, the maximum number of draws from the null.
N_DRAWS = 400
# Sampling stops when this number of draws has reached the statistic.
ENOUGH = 20
# The p-value is at most 2 G exp(-t^2 / CERTAIN): see the notes of `hump_test`.
CERTAIN = 25.0
# Maximum number of density values computed at once, so that they fit into the cache.
BLOCK = 200_000
# Smaller differences between depths of valleys are rounding errors.
ROUNDING = 1e-9


class HumpTest(NamedTuple):
    """P-value of one mode; `statistic` is the depth of the deepest valley in standard errors."""

    statistic: float
    p_value: float


def deepest_valley(x: NDArray) -> float:
    """Return the location of the deepest valley, which `hump_test` tests.

    If the bottom of the valley is flat, its middle is returned; without a valley, the mean of x.
    """
    x = np.asarray(x, dtype=np.float64)
    scale = _safe_scale(x)
    found = folded_sample(x * scale)
    if found is None:
        return float(np.mean(x))
    missing = missing_mass(found.heights(found.density(found.shares[None, :])))[0]
    if missing.max() <= ROUNDING:
        return float(np.mean(x))
    deepest = np.flatnonzero(missing >= (1.0 - 1e-6) * missing.max())
    bottom = deepest[deepest - np.arange(deepest.size) == deepest[0]]
    return found.value_at(float(bottom.mean())) / scale


def _safe_scale(x: NDArray) -> float:
    """Return a factor that keeps differences of the scaled values from overflowing."""
    return 0.125 if np.abs(x).max(initial=0.0) > np.finfo(np.float64).max / 8 else 1.0


def _nearest_unimodal(values: NDArray, modes: Iterable[int]) -> tuple[NDArray, int]:
    """Return the unimodal least-squares fit with its mode at one of `modes`, and that mode."""

    def fitted(mode: int) -> NDArray:
        rising = isotonic_regression(values[: mode + 1]).x
        falling = values[mode + 1 :]
        if falling.size:
            falling = isotonic_regression(falling, increasing=False).x
        return np.concatenate([rising, falling])

    found = [(fitted(mode), mode) for mode in modes]
    return min(found, key=lambda one: float(np.sum((one[0] - values) ** 2)))


def _peaks(density: NDArray) -> NDArray:
    """Return the indices of the local maxima that are high enough to be the mode of the null."""
    inner = density[1:-1]
    peaks = (inner >= density[:-2]) & (inner >= density[2:]) & (inner > 0.3 * density.max())
    return 1 + np.flatnonzero(peaks) if peaks.any() else np.array([np.argmax(density)])


def _null(density: NDArray, shares: NDArray, n: int) -> NDArray:
    """Return the shares of the null: unimodal, near the smoothed density, with the sample's top.

    Draws from the null are smoothed a second time. This would make a flat top narrower than that
    of the sample, and leave noise less room for valleys on it. Near the top, the null is therefore
    the unimodal fit of the shares themselves, which is Grenander's estimate. The combination is
    then made unimodal again. In large samples, nearly all of the null is Grenander's estimate.
    """
    smooth, mode = _nearest_unimodal(density, _peaks(density))
    sharp, _ = _nearest_unimodal(shares * (density.sum() / shares.sum()), [mode])
    # Above this height, the null follows the sample itself, not its smoothed density. In samples
    # of more than 1,000 points, the height falls with the size: the level becomes more accurate at
    # the cost of power, which is ample there.
    height = 0.6 * min(1.0, 1000 / n) * smooth.max()
    null, _ = _nearest_unimodal(np.where(smooth >= height, sharp, smooth), [mode])
    return null / null.sum()


def hump_test(x: ArrayLike, rng: np.random.Generator, *, n_draws: int = N_DRAWS) -> HumpTest:
    r"""Test whether a sample comes from a density with one mode.

    A Gaussian kernel of bandwidth h smooths the sample to a density f. The statistic is the depth
    of the deepest valley of f in standard errors,

    .. math::
        \max_x \, \min\Bigl(\max_{u \le x} g(u), \max_{u \ge x} g(u)\Bigr) - g(x),
        \qquad g = 2 \sqrt{2 \sqrt{\pi} \, n h f + 3} .

    The square root makes the noise of g nearly constant, so that the valley beside a small mode is
    not compared with the noise at the top of a large one. The null distribution is simulated.
    Samples are drawn from a unimodal density near f, found by isotonic regression up to the mode
    and down from it, and smoothed in the same way. A small mode far away is compared with the low
    noise around it. Hartigan's dip cannot detect such a mode: its null is the uniform density, the
    hardest case, for every sample.

    The null is estimated, so that the level is approximate. In simulations with 400 samples of 50
    to 20,000 points each, it is near the nominal level for uniform densities, trapezoids, arcs and
    other flat tops, and far below it for round or pointed tops and heavy tails. For one known
    shape it is higher, 0.1 for 0.05 and 0.04 for 0.01 in samples of up to some thousand points: a
    flat shoulder that ends in a step (a normal density with a wide uniform density beside it).
    There, away from its top, the null is smoothed twice. A null without this double smoothing
    would lose a fifth of the power for small groups.

    When 20 of m draws have reached the statistic, sampling stops and the p-value is 20 / m. It is
    as valid as a p-value from all draws (Besag and Clifford, 1991) [1]_.

    Draws are Poisson counts on the G points of the grid. No draws are needed for a valley so deep
    that its p-value is certain to be below the minimum: 18 standard errors for 2,000 draws. The
    reason is the following. If there is one mode, then on one side of any location the expected
    density is nowhere higher than at that location. A valley of depth t therefore requires that
    noise raises g by a part of t at one point of the grid, or lowers it by the rest of t at
    another. By Bennett's inequality, with the part that gives the best bound, the probability is
    at most :math:`2 G \exp(-t^2 / 25)` for any density.

    The grid covers the range from the 5th to the 95th percentile, extended by 60 % of its width on
    either side. Values beyond are left out if they are few (less than 1.5 % of the sample, or at
    most three). If there are more, they are kept and long gaps between them are shortened, so that
    a small group is detected at any distance.

    The bandwidth falls with the size of the sample. A sample with ties is dithered first: noise of
    the width of its resolution closes the gaps that are due
    to rounding.

    .. [1] J. Besag and P. Clifford, "Sequential Monte Carlo p-values", Biometrika 78(2), 1991.
    """
    sample = check_vector("x", x)
    if not isinstance(n_draws, Integral) or not 1 <= n_draws < 2**31:
        raise ValueError(
            f"n_draws must be an integer, at least 1 and below 2**31, got {shown(n_draws)}."
        )
    column = (sample * _safe_scale(sample))[:, None]
    sample = dithered(column, column_resolutions(column), rng)[:, 0]
    found = folded_sample(np.asarray(sample, dtype=np.float64))
    if found is None:
        return HumpTest(0.0, 1.0)
    density = found.density(found.shares[None, :])
    statistic = float(missing_mass(found.heights(density)).max())
    if statistic <= ROUNDING:
        return HumpTest(statistic, 1.0)
    minimum = 1.0 / (1 + int(n_draws))
    if 2.0 * found.shares.size * np.exp(-(statistic**2) / CERTAIN) <= minimum:
        return HumpTest(statistic, minimum)
    null = _null(density[0], found.shares, found.n)
    return HumpTest(statistic, _p_value(statistic, found, null, int(n_draws), rng))


def _p_value(
    statistic: float, found: FoldedSample, null: NDArray, n_draws: int, rng: np.random.Generator
) -> float:
    """Return the p-value from draws of the null, with Besag and Clifford's stopping rule."""
    reached = done = 0
    for shares in _draws(null, found.n, n_draws, rng):
        depths = missing_mass(found.heights(found.density(shares))).max(axis=1)
        reach = np.flatnonzero(depths >= statistic - ROUNDING)
        if reached + reach.size >= ENOUGH:
            return ENOUGH / float(done + reach[ENOUGH - reached - 1] + 1)
        reached += reach.size
        done += len(shares)
    return float(1 + reached) / (1 + n_draws)


def _draws(null: NDArray, n: int, n_draws: int, rng: np.random.Generator) -> Iterator[NDArray]:
    """Yield shares (m, G) of samples of about n points from the null, in growing batches.

    Counts are Poisson. Their sum varies, which scales all heights of a sample together.
    """
    done, batch = 0, 50
    while done < n_draws:
        m = min(batch, max(1, BLOCK // null.size), n_draws - done)
        yield rng.poisson(n * null, (m, null.size)) / n
        done += m
        batch *= 2
