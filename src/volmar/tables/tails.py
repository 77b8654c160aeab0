"""Columns with long tails: a log where it makes them even, and limits for values far outside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tails", "find_tails"]

# Rows from which percentiles are computed.
N_ROWS = 10_000
# Skewness (of percentiles) of a column that is offered a log, plus so many standard errors
# 1 / sqrt(n), and what part of it may be left.
SKEWED, ERRORS, LEFT = 0.25, 2.0, 0.67
# A log needs so many different values, and a 95th percentile so many times the 5th: over a shorter
# range a log changes little.
FEWEST_VALUES, WIDE = 10, 4.0
# Small counts are far apart on a log scale. A plain log begins at so many steps of the values, and
# a log of x + m is for columns whose positive values have a median m of so many.
PLAIN_STEPS, SOFT_STEPS = 10, 3
# Values further from the median than so many times the distance to a percentile are outliers:
# 10 times 1.6 standard deviations of a normal column.
FAR = 10.0
# More of them than this share are a group, not outliers.
FEW_FAR = 0.01

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tails:
    """How long tails of columns are shortened."""

    shifts: Array  # x becomes log(x + shift); NaN for a column that stays as it is
    steps: Array  # distance of neighbouring values before a log: 1 for counts, 0 if continuous
    leasts: Array  # smallest values before a log; lower ones count as these
    lows: Array  # values beyond these (after the log) are outliers; infinite for no limit
    highs: Array

    def dithered(self, X: Array, rng: np.random.Generator) -> Array:
        """Return shortened columns with noise of the width of the steps, before the log.

        Equal steps of counts are unequal after a log, and those between small counts look like
        gaps.
        """
        places = np.flatnonzero(self.steps)
        if not places.size:
            return X
        X = X.copy()
        noise = rng.uniform(-0.5, 0.5, (len(X), places.size)) * self.steps[places]
        X[:, places] = np.log(np.exp(X[:, places]) + noise)
        return X

    def shorten(self, X: Array, *, fills: bool) -> tuple[Array, int]:
        """Return columns with shortened tails, a copy, and how many values are outliers.

        With `fills` outliers count as missing; otherwise they are set to the limits, where many
        of them would look like a group.
        """
        logs = np.flatnonzero(np.isfinite(self.shifts))
        has_limits = np.isfinite(self.lows).any() or np.isfinite(self.highs).any()
        if not logs.size and not has_limits:
            return X, 0
        X = X.copy()
        # A new value may be below all that were seen, and have no log.
        X[:, logs] = np.log(np.maximum(X[:, logs], self.leasts[logs]) + self.shifts[logs])
        near = np.clip(X, self.lows, self.highs)  # NaN stays NaN
        is_far = (near != X) & ~np.isnan(X)
        return np.where(is_far, np.nan, X) if fills else near, int(np.count_nonzero(is_far))


def find_tails(X: Array) -> Tails:
    """Find the columns with a long tail; NaN is missing.

    A column without negative values gets a log if it is skewed and its log is not: skewness is
    (q95 + q5 - 2 q50) / (q95 - q5) of the percentiles, which a few outliers do not change. Two
    groups of different size are skewed before the log and after it, and stay as they are. Columns
    with zeros or small counts get log(m + x), m the median of the positive values.
    """
    d = X.shape[1]
    shifts, steps, leasts = np.full(d, np.nan), np.zeros(d), np.zeros(d)
    lows, highs = np.full(d, -np.inf), np.full(d, np.inf)
    if len(X) > N_ROWS:
        rows = np.random.default_rng(0).choice(len(X), N_ROWS, replace=False)
        few = X[np.sort(rows)]
    else:
        few = X
    for j in range(d):
        column = few[:, j]
        column = column[np.isfinite(column)]
        if not column.size:
            continue
        step, least = _step(column), float(np.nanmin(X[:, j]))
        shift = _log_shift(column, least, step)
        if shift is not None:
            shifts[j], steps[j], leasts[j] = shift, step, least
            column = np.log(column + shift)
        with np.errstate(over="ignore"):
            low, middle, high = np.percentile(column, (5, 50, 95))
            limits = middle - FAR * (middle - low), middle + FAR * (high - middle)
            n_far = np.count_nonzero((column < limits[0]) | (column > limits[1]))
            if low < middle < high and n_far <= FEW_FAR * column.size:
                lows[j], highs[j] = limits
    return Tails(shifts, steps, leasts, lows, highs)


def _step(column: Array) -> float:
    """Return the median distance of neighbouring values, 0 for a column without ties."""
    different = np.unique(column)
    return float(np.median(np.diff(different))) if 1 < different.size < column.size else 0.0


def _log_shift(column: Array, least: float, step: float) -> float | None:
    """Return what is added before the log, None for a column that stays as it is."""
    if not np.isfinite(least) or least < 0 or np.unique(column).size < FEWEST_VALUES:
        return None
    before = _skewness(column)
    low, high = np.percentile(column, (5, 95))
    if high < WIDE * low:
        return None
    if not before >= SKEWED + ERRORS / np.sqrt(column.size):
        return None
    shift = 0.0
    if least < PLAIN_STEPS * step or least == 0:
        shift = float(np.median(column[column > 0]))
        if shift < SOFT_STEPS * step:
            return None
    after = _skewness(np.log(column + shift))
    return shift if abs(after) <= LEFT * before else None


def _skewness(column: Array) -> float:
    low, middle, high = np.percentile(column, (5, 50, 95))
    with np.errstate(over="ignore", invalid="ignore"):
        return float((high + low - 2 * middle) / (high - low)) if high > low else 0.0
