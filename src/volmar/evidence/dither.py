"""Dithering: uniform noise that fills the gaps between the discrete values of a column."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import is_finite
from volmar._input import FLOATS, check_matrix
from volmar._vectors import check_vector
from volmar.evidence.densities import GRID, missing_mass


def column_resolutions(X: Any) -> NDArray[np.float64]:
    """Return the resolution of each column: the median step between its distinct values.

    Columns without ties are continuous, and so are columns with steps below 5 % of their standard
    deviation. Their resolution is 0. A column with at most ten distinct values is treated as a
    code (such as 3, 6, 7 for three diagnoses), whose gaps are no evidence. Its resolution is the
    smallest width of noise that makes it unimodal. At most 500 rows are used (100 with many
    columns), drawn with a fixed seed.
    """
    X = as_given(X)
    n, d = X.shape
    if n < 2:
        return np.zeros(d)
    most = int(np.clip(64_000 // max(d, 1), 100, 500))
    # A random sample, because rows at even steps may belong to the same group.
    few = X if n <= most else X[np.sort(np.random.default_rng(0).choice(n, most, replace=False))]
    few = few.toarray() if sparse.issparse(few) else np.asarray(few)
    if not is_finite(few):
        raise ValueError("X contains NaN or infinity. Drop or fill such rows.")
    unit = np.maximum(np.abs(few).max(axis=0, initial=0.0), np.finfo(few.dtype).tiny)
    few = few / unit  # steps and squares do not overflow
    ordered = np.sort(few, axis=0)
    tied = np.flatnonzero((ordered[1:] == ordered[:-1]).any(axis=0))
    resolutions = np.zeros(d)
    if tied.size:
        found = _resolutions_of_tied(few[:, tied], ordered[:, tied])
        with np.errstate(over="ignore"):  # twice the range may overflow
            resolutions[tied] = np.minimum(found * unit[tied], np.finfo(np.float64).max)
    return resolutions


def as_given(X: Any) -> Any:
    """Return float rows unchanged, without checks; check and convert all others."""
    is_rows = isinstance(X, np.ndarray) or (sparse.issparse(X) and X.format == "csr")
    if is_rows and X.ndim == 2 and X.dtype in FLOATS:
        return X
    return check_matrix(X, is_scaled=False)


def _resolutions_of_tied(few: NDArray, ordered: NDArray) -> NDArray[np.float64]:
    """Return the resolutions of columns with ties, whose sorted values are `ordered`."""
    steps = np.sort(np.diff(ordered, axis=0), axis=0).astype(np.float64)
    m, n_ties = len(steps), np.count_nonzero(steps == 0, axis=0)
    has_ties = (n_ties > 0) & (n_ties < m)
    # Ties sort first. The median is that of the steps after them.
    places = [np.minimum((n_ties + m - 1 + odd) // 2, m - 1) for odd in (0, 1)]
    medians = 0.5 * sum(np.take_along_axis(steps, at[None, :], axis=0)[0] for at in places)
    resolutions = np.where(has_ties, medians, 0.0)
    # Few values, each of them frequent. This excludes sparse columns with few continuous entries.
    n_values = m + 1 - n_ties
    n_other = m + 1 - _largest_counts(ordered)
    widths: dict[tuple[bytes, bytes], float] = {}  # many columns may have the same values
    for j in np.flatnonzero(has_ties & (n_values <= 10) & (n_other >= 2 * (n_values - 1))):
        values, counts = np.unique(few[:, j], return_counts=True)
        key = values.tobytes(), counts.tobytes()
        if key not in widths:
            widths[key] = _one_mode_width(values, counts, resolutions[j])
        # With few categories the density would be a plateau, which looks more like two groups than
        # a bell shape does.
        resolutions[j] = widths[key] * (2.0 if n_values[j] <= 3 else 1.0)
    deviations = few.std(axis=0, dtype=np.float64)
    # Steps below this share of the standard deviation are too small for a test to detect.
    return np.where(resolutions > 0.05 * deviations, resolutions, 0.0)


def _largest_counts(ordered: NDArray) -> NDArray:
    """Return the count of the most frequent value of each sorted column."""
    starts = np.vstack([np.ones(ordered.shape[1], dtype=bool), ordered[1:] != ordered[:-1]])
    # Length of the run up to each row: its index minus that of the last start.
    rows = np.arange(len(ordered))[:, None]
    runs = rows - np.maximum.accumulate(np.where(starts, rows, 0), axis=0) + 1
    return np.asarray(runs.max(axis=0))


def _one_mode_width(values: NDArray, counts: NDArray, step: float) -> float:
    """Return the smallest width of noise with which a column of few values is unimodal.

    With noise as wide as the range it always is: all boxes around the values then share a point.
    """
    span = float(values[-1] - values[0])
    widths = np.geomspace(step, span, 9)
    place = np.linspace(values[0] - 0.5 * widths, values[-1] + 0.5 * widths, GRID, axis=1)
    inside = np.abs(place[:, :, None] - values) <= 0.5 * widths[:, None, None]
    density = inside @ counts.astype(np.float64)
    total = density.sum(axis=1)
    seen = total > 0  # boxes much narrower than the span may fall between the grid points
    has_one = np.zeros(widths.size, dtype=bool)
    # Valleys of a smaller mass do not count.
    has_one[seen] = missing_mass(density[seen] / total[seen, None]).sum(axis=1) <= 0.02
    return float(widths[np.argmax(has_one)]) if has_one.any() else span


def _checked_widths(resolutions: Any, X: Any) -> NDArray[np.float64]:
    widths = check_vector("resolutions", resolutions, may_be_empty=True)
    if widths.size != X.shape[1] or widths.min(initial=0.0) < 0:
        raise ValueError(
            f"resolutions must hold a nonnegative width for each of the {X.shape[1]} columns of "
            f"X, got {widths.size} widths. Use column_resolutions(X)."
        )
    return widths


def dithered(X: Any, resolutions: NDArray, rng: np.random.Generator) -> Any:
    """Add uniform noise to rows; in each column, its width is the resolution.

    Use dithered rows only in tests for gaps; clusters are found in the original rows. Sparse rows
    are returned dense, unless all resolutions are 0.
    """
    X = as_given(X)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng must be a numpy.random.Generator, got {rng!r}. Use "
            "numpy.random.default_rng(seed)."
        )
    columns = np.flatnonzero(_checked_widths(resolutions, X))
    if columns.size == 0:
        return X
    rows = X.toarray() if sparse.issparse(X) else np.array(X)
    noise = rng.uniform(-0.5, 0.5, (rows.shape[0], columns.size)) * resolutions[columns]
    rows[:, columns] += noise.astype(rows.dtype)
    return rows


# -------- ties spread over their neighbourhood, for searches in rows of many columns

# A value is compared with neighbouring values of at least this share of its frequency.
COMPARABLE = 0.2
# Columns with at most this number of distinct values are codes: only their order is used.
MAX_CODES = 10
# Other columns of few values, each of at least this number of rows on average, are too, unless
# they lie on a grid.
ROWS_PER_VALUE = 20
# Two columns with at most this many times as many pairs of values as values have one origin.
JOINT = 2.0
# Share of equal steps between the values of a grid.
ON_GRID = 0.8


def spread_ties(X: NDArray, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return rows in which equal values of a column are spread, so that they are no modes.

    A value is drawn from the interval around it, up to the middle to the next values that are
    about as frequent. Whole inches among a few decimals, a top code, or a share of zeros are then
    no groups. Columns of few values have their marginal distribution made uniform, because the
    steps between codes are no evidence, and a value that is shared by a group of rows is one
    observation. If such a column is a function of another one, it is shuffled: it counts once.
    """
    X = np.array(X, dtype=np.float64)
    n = len(X)
    shared: list[NDArray] = []
    for j in range(X.shape[1]):
        values, code, counts = np.unique(X[:, j], return_inverse=True, return_counts=True)
        if values.size == n or values.size < 2:
            continue
        if _is_code(values, n):
            joint = (np.unique(code + values.size * one).size for one in shared)
            is_copy = any(size <= JOINT * values.size for size in joint)
            if values.size > MAX_CODES and is_copy:
                code = rng.permutation(code)
            elif values.size > MAX_CODES:
                shared.append(code)
            start = np.cumsum(counts) - counts
            rank = (start[code] + rng.random(n) * counts[code]) / n
            X[:, j] = values[0] + rank * (values[-1] - values[0])
        else:
            low, high = _intervals(values, counts)
            is_tied = counts[code] > 1
            width = np.where(is_tied, high[code] - low[code], 0.0)
            X[:, j] = np.where(is_tied, low[code], X[:, j]) + rng.random(n) * width
    return X


def _is_code(values: NDArray, n: int) -> bool:
    """Return whether only the order of a column's distinct values counts."""
    if values.size <= MAX_CODES:
        return True
    steps = np.diff(values)
    on_grid = np.isclose(steps, np.median(steps), rtol=0.01).mean() >= ON_GRID
    return bool(n >= ROWS_PER_VALUE * values.size and not on_grid)


def _intervals(values: NDArray, counts: NDArray) -> tuple[NDArray, NDArray]:
    """Return the ends of the interval over which each value is spread."""
    before, after = np.roll(values, 1), np.roll(values, -1)
    before[0], after[-1] = np.nan, np.nan
    # Up to 1 / COMPARABLE rows, all neighbours are comparable.
    for i in np.flatnonzero(counts * COMPARABLE > 1):
        alike = values[counts >= COMPARABLE * counts[i]]
        at = int(np.searchsorted(alike, values[i]))
        before[i] = alike[at - 1] if at > 0 else np.nan
        after[i] = alike[at + 1] if at + 1 < alike.size else np.nan
    low, high = 0.5 * (values + before), 0.5 * (values + after)
    is_alone = np.isnan(low) & np.isnan(high)
    low, high = (
        np.where(np.isnan(low), 2.0 * values - high, low),
        np.where(np.isnan(high), 2.0 * values - low, high),
    )
    return np.where(is_alone, values[0], low), np.where(is_alone, values[-1], high)
