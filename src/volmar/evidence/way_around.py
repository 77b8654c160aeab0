"""Detect rows that are bimodal along a line but connected around the valley, such as a ring."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from volmar._vectors import check_vector
from volmar.evidence.densities import GRID, grid_shares, missing_mass, smoothed
from volmar.evidence.dither import as_given, column_resolutions, dithered

# Maximum number of rows whose distances are computed, of their entries, and of distances in memory
# at once.
MAX_ROWS, MAX_ENTRIES, BLOCK = 2000, 20_000_000, 2_000_000


def has_way_around(X: Any, scores: ArrayLike) -> bool:
    r"""Return whether rows with bimodal scores are connected around the valley.

    A ring or a bent band is a single piece, but bimodal along a line. Few rows lie at the valley,
    but the space around them is not sparser than elsewhere.

    Columns are divided by their standard deviations. Let r(x) be the distance from x to its k-th
    nearest row, with k about sqrt(n) / 3. Its logarithm measures how sparse space is around x. The
    rows M of a mode are *shifted* to the valley, each by (valley - mode) c, where c is the slope
    of the columns in the scores within both sides. This is where the group of this mode would be
    if it reached into the valley with its shape unchanged. Let V be the rows at the valley. There
    is a way around as seen from M if

    .. math:: g = \mathrm{mean}_{x \in M} [\log r(\mathrm{shifted}\ x) - \log r(x)] > 0, \qquad
        \mathrm{mean}_{x \in V} \log r(x) - \mathrm{mean}_{x \in M} \log r(x) < g / 2,

    where the first inequality must hold by 1.64 standard errors and the second by one. Both modes
    must agree.

    If two groups have the same covariance matrix, the rows at the valley between them are
    distributed like shifted rows. The left side of the second inequality is then g, in any
    dimension and for any units of the columns. On a ring it is 0. Between a narrow and a wide
    group, the rows at the valley lie in denser space than shifted rows of the wide group, but not
    than those of the narrow group. In high dimension, all distances are alike: g is not above 0,
    and the result is False, as with a single column and with fewer than five rows at the valley or
    at a mode. At most 2,000 rows are used, at even steps in the order of the scores.
    """
    X = as_given(X)
    n, d = X.shape
    s = check_vector("scores", scores, n)
    if d < 2:
        return False
    most = min(MAX_ROWS, MAX_ENTRIES // d)
    if n > most:
        kept = np.argsort(s, kind="stable")[np.linspace(0, n - 1, most).astype(np.int64)]
        X, s = X[kept], s[kept]
    peak = float(np.abs(s).max(initial=0.0))
    found = _valley(s / peak) if peak > 0 else None
    return found is not None and _is_connected(_standardised(X), s / peak, *found)


def _valley(s: NDArray) -> tuple[float, tuple[float, float], float] | None:
    """Return the scores of the deepest valley and of the modes beside it, and half a slab's width.

    None if the smoothed density is unimodal.
    """
    low, high = np.quantile(s, [0.05, 0.95])
    length = float(high - low)
    if not length > 0:
        return None
    # Bandwidth of the density of the scores at 300 rows, in units of the 5-95 % range. It is also
    # half the width of the slabs of rows at the modes and at the valley.
    width = 0.1 * length * (300.0 / s.size) ** 0.2
    place = np.linspace(low - 0.6 * length, high + 0.6 * length, GRID)
    step = float(place[1] - place[0])
    if not step > 0:  # scores that differ by rounding
        return None
    u = (s[None, :] - place[0]) / step
    inside = (u >= 0.0) & (u <= GRID - 1)
    shares = grid_shares(np.clip(u, 0.0, GRID - 1.0), inside, GRID)
    density = smoothed(shares, width / step)[0]
    missing = missing_mass(density[None, :])[0]
    at = int(np.argmax(missing))
    if missing[at] <= 1e-9 * density.max():
        return None
    modes = place[np.argmax(density[:at])], place[at + np.argmax(density[at:])]
    return float(place[at]), (float(modes[0]), float(modes[1])), width


def _standardised(X: Any) -> NDArray[np.float64]:
    """Return dense columns of mean 0 and standard deviation 1, without constant columns."""
    # Without dithering, copies of a row would be at distance 0 even in sparse space.
    rows = dithered(X, column_resolutions(X), np.random.default_rng(0))
    rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    unit = np.abs(rows).max(axis=0)
    rows = rows[:, unit > 0] / unit[unit > 0].astype(np.float64)
    rows -= rows.mean(axis=0)
    deviations = rows.std(axis=0)
    # A smaller deviation is the rounding error of a constant column.
    varies = deviations > 1e-7 if X.dtype == np.float32 else deviations > 1e-14
    return rows[:, varies] / deviations[varies]


def _is_connected(
    rows: NDArray, s: NDArray, valley: float, modes: tuple[float, float], width: float
) -> bool:
    n_neighbors = int(np.clip(np.sqrt(s.size) / 3.0, 3, 15))
    at_valley, *at_modes = (_at(s, place, width) for place in (valley, *modes))
    if rows.shape[1] < 2 or min(map(len, (at_valley, *at_modes))) < 5:
        return False
    # Each row counts as its own nearest row.
    sparseness = _log_distance(rows[at_valley], rows, n_neighbors + 1)
    centred, places, upper = rows.copy(), s.copy(), s > valley
    for side in (upper, ~upper):
        centred[side] -= rows[side].mean(axis=0)
        places[side] -= s[side].mean()
    square = float(places @ places)
    slope = places @ centred / square if square > 0 else np.zeros(rows.shape[1])
    for mode, members in zip(modes, at_modes, strict=True):
        before = _log_distance(rows[members], rows, n_neighbors + 1)
        shifted = rows[members] + (valley - mode) * slope
        after = _log_distance(shifted, rows, n_neighbors)
        half = 0.5 * (before + after)
        error = np.sqrt(_square_error(half) + _square_error(sparseness))
        # The straight path must lead through sparser space, at a one-sided level of 5 %.
        is_gap = np.mean(after - before) <= 1.64 * np.sqrt(_square_error(after - before))
        # The rows at the valley must be below half of that increase, by one standard error.
        if is_gap or np.mean(half) - np.mean(sparseness) <= error:
            return False
    return True


def _at(s: NDArray, place: float, width: float) -> NDArray[np.int64]:
    """Return the rows whose scores are near `place`, or a sample of 250 of them."""
    there = np.flatnonzero(np.abs(s - place) <= width)
    if there.size > 250:
        there = np.random.default_rng(0).choice(there, 250, replace=False)
    return there


def _square_error(values: NDArray) -> float:
    return float(values.var(ddof=1)) / values.size


def _log_distance(points: NDArray, rows: NDArray, k: int) -> NDArray[np.float64]:
    """Return logarithms of the distances from points to their k-th nearest row."""
    step, found = max(1, BLOCK // len(rows)), np.empty(len(points))
    for i in range(0, len(points), step):
        squares = euclidean_distances(points[i : i + step], rows, squared=True)
        found[i : i + step] = np.partition(squares, k - 1)[:, k - 1]
    # Copies are at distance 0, up to rounding. Columns have unit deviations.
    return 0.5 * np.log(np.maximum(found, 1e-12))
