"""Columns with long tails: take the log if it removes the skewness, and limit outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tails", "find_tails"]

# Maximum number of rows from which percentiles are computed.
N_ROWS = 10_000
# The log is considered if the skewness (of percentiles) is at least SKEWED + ERRORS / sqrt(n), and
# taken if at most the share LEFT of it remains.
SKEWED, ERRORS, LEFT = 0.25, 2.0, 0.67
# Minimum number of distinct values for a log, and minimum ratio of the 95th to the 5th percentile.
# Over a shorter range, a log changes little.
MIN_VALUES, WIDE = 10, 4.0
# Small counts are far apart on a log scale. The plain log needs a minimum of at least PLAIN_STEPS
# times the step between values. The log of x + m, where m is the median of the positive values,
# needs an m of at least SOFT_STEPS steps.
PLAIN_STEPS, SOFT_STEPS = 10, 3
# Outliers are further from the median than FAR times the 5th or 95th percentile is: 10 times 1.6
# standard deviations for a normal column.
FAR = 10.0
# Maximum share of outliers. A larger share is a group, and gets no limit.
FEW_FAR = 0.01

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tails:
    """Shorten long tails of columns, by a log and by limits for outliers."""

    shifts: Array  # x becomes log(x + shift); NaN for a column without a log
    steps: Array  # distance between values before a log: 1 for counts, 0 if continuous
    leasts: Array  # minima before a log; lower values are set to these
    lows: Array  # limits for outliers, after the log; infinite for no limit
    highs: Array

    def dithered(self, X: Array, rng: np.random.Generator) -> Array:
        """Add uniform noise to shortened columns, as wide as the steps before the log.

        Equal steps between counts become unequal after a log, and the steps between small counts
        look like gaps.
        """
        places = np.flatnonzero(self.steps)
        if not places.size:
            return X
        X = X.copy()
        noise = rng.uniform(-0.5, 0.5, (len(X), places.size)) * self.steps[places]
        X[:, places] = np.log(np.exp(X[:, places]) + noise)
        return X

    def shorten(self, X: Array, *, fills: bool) -> tuple[Array, int, NDArray[np.bool_]]:
        """Return columns with shortened tails, the number of outliers, and the outlying rows.

        With `fills`, outliers become missing. Otherwise they are set to the limits, where many of
        them would look like a group. X is not changed.
        """
        logs = np.flatnonzero(np.isfinite(self.shifts))
        has_limits = np.isfinite(self.lows).any() or np.isfinite(self.highs).any()
        if not logs.size and not has_limits:
            return X, 0, np.zeros(len(X), dtype=bool)
        below = (X[:, logs] + self.shifts[logs] <= np.exp(self.lows[logs])).any(axis=1)
        X = X.copy()
        # A new value may be below the fitted minimum, where the log may not exist.
        X[:, logs] = np.log(np.maximum(X[:, logs], self.leasts[logs]) + self.shifts[logs])
        near = np.clip(X, self.lows, self.highs)  # NaN stays NaN
        is_far = (near != X) & ~np.isnan(X)
        found = np.where(is_far, np.nan, X) if fills else near
        return found, int(np.count_nonzero(is_far)), is_far.any(axis=1) | below


def find_tails(X: Array) -> Tails:
    """Find the columns with a long tail. NaN is missing.

    The log of a column without negative values is taken if the column is skewed and its log is
    not. Skewness is (q95 + q5 - 2 q50) / (q95 - q5) of the percentiles, which does not depend on
    a few outliers. Two groups of different size are skewed before and after the log, and are left
    unchanged. For columns with zeros or small counts the log is log(m + x), where m is the median
    of the positive values.
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
    """Return the median distance between neighbouring values, 0 for a column without ties."""
    different = np.unique(column)
    return float(np.median(np.diff(different))) if 1 < different.size < column.size else 0.0


def _log_shift(column: Array, least: float, step: float) -> float | None:
    """Return the shift that is added before the log, or None for a column without a log."""
    if not np.isfinite(least) or least < 0 or np.unique(column).size < MIN_VALUES:
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
