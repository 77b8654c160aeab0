"""The dip, the distance of a sample from unimodality (Hartigan and Hartigan, 1985)."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from volmar._vectors import check_vector

Floats = NDArray[np.float64]


class Dip(NamedTuple):
    """Distance of a sample from unimodality, and where its best unimodal fit is steepest.

    Attributes
    ----------
    value : float
        The dip, between 1 / (2 n) and 1/4 (a single observation has 1/2).
    modal_interval : tuple of two floats
        Sample values between which the best fit has its greatest slope, and so its mode.
    """

    value: float
    modal_interval: tuple[float, float]


class DipTest(NamedTuple):
    """Outcome of the dip test.

    Attributes
    ----------
    statistic : float
        The dip.
    p_value : float
        Share of uniform samples of this size whose dip is as large or larger.
    """

    statistic: float
    p_value: float


def dip_statistic(x: ArrayLike) -> Dip:
    r"""Return the dip of a sample.

    .. math:: D(F_n) = \inf_{G \in \mathcal U} \sup_x |F_n(x) - G(x)|

    where :math:`F_n` is the empirical distribution function and :math:`\mathcal U` are the
    unimodal ones: convex up to a mode, concave from there on, with a jump at the mode allowed.
    The value is exact up to rounding, with or without ties, and invariant under
    :math:`x \mapsto a x + b` with :math:`a \ne 0`. A sample with a single distinct value is
    unimodal. Its dip is set to 1 / (2 n), the limit for samples whose ties are slightly spread
    out.

    Parameters
    ----------
    x : array-like of shape (n,)
        The sample, in any order.

    Returns
    -------
    Dip
        `value` and `modal_interval`.

    Notes
    -----
    The algorithm starts with a modal interval that covers the whole sample. It computes the
    greatest convex minorant and the least concave majorant of :math:`F_n` on the interval, and
    finds where they are furthest apart. The interval then shrinks to the nearest points around
    this location at which the two curves touch :math:`F_n`. Outside the interval, the fit deviates
    from :math:`F_n` by the distance of the minorant on the left and of the majorant on the right.
    The algorithm stops when the two curves are no further apart than this deviation. The dip is
    half of the deviation. For most samples, two or three intervals are enough.

    References
    ----------
    J. A. Hartigan and P. M. Hartigan. The dip test of unimodality. The Annals of Statistics
    13(1), 70-84, 1985.

    Examples
    --------
    >>> from volmar.evidence import dip_statistic
    >>> dip_statistic([0, 1, 2, 3, 4]).value
    0.1
    """
    values, counts = np.unique(check_vector("x", x), return_counts=True)
    # Values are scaled down if their range would overflow.
    scaled = values if abs(values[[0, -1]]).max() < np.finfo(float).max / 4 else values / 4
    doubled, low, high = modal_search(scaled, counts.astype(np.float64))
    return Dip(doubled / (2 * counts.sum().item()), (values[low].item(), values[high].item()))


def dip_test(x: ArrayLike) -> DipTest:
    """Test whether a sample comes from a unimodal distribution.

    The dip is compared with the dips of uniform samples of the same size, the null of the paper.
    The uniform distribution is asymptotically the least favourable unimodal distribution. Samples
    from a distribution with a peak, such as the normal, are rejected less often than the nominal
    level.

    Parameters
    ----------
    x : array-like of shape (n,)
        The sample, in any order. Ties increase the dip. With few distinct values, a small p-value
        may be due to ties alone.

    Returns
    -------
    DipTest
        `statistic` and `p_value`.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.evidence import dip_test
    >>> rng = np.random.default_rng(0)
    >>> dip_test(rng.normal(size=200)).p_value > 0.5
    True
    >>> dip_test(np.append(rng.normal(size=100), rng.normal(5, 1, size=100))).p_value < 0.001
    True
    """
    sample = check_vector("x", x)
    statistic = dip_statistic(sample).value
    return DipTest(statistic, dip_p_value(statistic, sample.size))


def dip_p_value(statistic: float, n: int) -> float:
    """Return the share of uniform samples of size `n` with a dip of `statistic` or more.

    The p-value is interpolated in a table of quantiles of sqrt(n) times the dip in simulated
    samples, made by ``benchmarks/make_dip_table.py``. Interpolation is linear in log n between
    tabulated sizes, with the last row for all larger sizes, and linear in log p between quantiles.
    Fewer than four observations always have the same dip, and the p-value 1. The table has only
    quantiles with at least ten simulated samples beyond them: down to p = 0.0001 for n up to
    2,000, and to p = 0.001 from n = 20,001 on. Smaller p-values are reported as the smallest of
    the table.
    """
    if not 0.0 <= statistic <= 0.5:
        raise ValueError(f"statistic must be a dip, between 0 and 0.5, got {statistic}.")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    minimum = 0.5 / math.sqrt(n)
    scaled = math.sqrt(n) * statistic
    # The minimum dip, which is frequent in small samples, has p-value 1 in spite of rounding.
    if n < 4 or scaled <= minimum * (1 + 1e-9):
        return 1.0
    p_values, quantiles = _null_quantiles(n)
    if scaled >= quantiles[-1]:
        return float(p_values[-1])
    curve = np.maximum(np.append(minimum, quantiles), minimum)
    logs = np.log(np.append(1.0, p_values))
    return float(np.exp(np.interp(scaled, np.maximum.accumulate(curve), logs)))


def modal_search(values: Floats, counts: Floats) -> tuple[float, int, int]:
    """Return twice the dip, in observations, and the ends of the modal interval.

    `values` increase strictly. At each value the distribution function jumps from `lower` to
    `upper`. A convex or concave function G within distance d of it satisfies
    upper - d <= G <= lower + d there. The minorant is therefore that of `lower`, and the majorant
    that of `upper`.
    """
    upper = np.cumsum(counts)
    lower = upper - counts
    low, high = 0, values.size - 1
    doubled = 1.0
    while low < high:
        inside = slice(low, high + 1)
        x, below, above = values[inside], lower[inside], upper[inside]
        touch_below = _touching(x, below, convex=True)
        touch_above = _touching(x, above, convex=False)
        minorant = _through(x, below, touch_below)
        majorant = _through(x, above, touch_above)
        # The gap is concave, with kinks only at touching points. Its maximum is at one of these.
        gap = majorant - minorant
        left = touch_below[np.argmax(gap[touch_below])]
        right = touch_above[np.argmax(gap[touch_above])]
        if max(gap[left], gap[right]) <= doubled:
            break
        if gap[left] >= gap[right]:
            right = touch_above[np.searchsorted(touch_above, left)]
        else:
            left = touch_below[np.searchsorted(touch_below, right, side="right") - 1]
        outside_left = (above[:left] - minorant[:left]).max(initial=0.0)
        outside_right = (majorant[right + 1 :] - below[right + 1 :]).max(initial=0.0)
        doubled = max(doubled, float(outside_left), float(outside_right))
        low, high = low + int(left), low + int(right)
    return doubled, low, high


def _touching(x: Floats, heights: Floats, *, convex: bool) -> NDArray[np.intp]:
    """Return where the convex minorant (or else the concave majorant) of points touches them.

    Its inverse slopes are the isotonic regression of the inverse slopes between points, weighted
    by their rise. Unlike slopes, inverse slopes stay small if two values are close to each other.
    """
    rise = np.diff(heights)
    regression = isotonic_regression(np.diff(x) / rise, weights=rise, increasing=not convex)
    return regression.blocks


def _through(x: Floats, heights: Floats, knots: NDArray[np.intp]) -> Floats:
    """Return the heights, at every x, of the polygon through the knots."""
    lengths = np.diff(knots)
    start = np.repeat(knots[:-1], lengths)
    share = (x[:-1] - x[start]) / np.repeat(np.diff(x[knots]), lengths)
    line = heights[start] + share * np.repeat(np.diff(heights[knots]), lengths)
    return np.append(line, heights[-1])


def _null_quantiles(n: int) -> tuple[Floats, Floats]:
    """Return decreasing p-values and the corresponding quantiles of the scaled dip at size n."""
    table = _table()
    p_values, logs, rows = table[0, 2:], np.log(table[1:, 0]), table[1:, 2:]
    place = np.interp(math.log(n), logs, np.arange(logs.size))
    row = min(int(place), logs.size - 2)
    weight = place - row
    # 0 times NaN is NaN, so that a row of the table is used without interpolation.
    if weight in {0.0, 1.0}:
        quantiles = rows[row + int(weight)]
    else:
        quantiles = (1 - weight) * rows[row] + weight * rows[row + 1]
    known = ~np.isnan(quantiles)
    return p_values[known], quantiles[known]


@cache
def _table() -> Floats:
    """Return the table: n, the number of draws, then a quantile for each p-value in its first row.

    Quantiles are NaN if there were too few draws.
    """
    with (files("volmar.evidence.modes") / "dip_table.csv").open(encoding="utf-8") as file:
        return np.genfromtxt(file, delimiter=",")
