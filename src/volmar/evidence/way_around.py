"""Two modes along a line, and still one piece: a way around the valley."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from volmar._vectors import check_vector
from volmar.evidence.dither import as_given, column_resolutions, dithered
from volmar.evidence.modes.densities import GRID, grid_shares, missing_mass, smoothed

__all__ = ["has_way_around"]

# Rows that are looked at, and their entries.
MOST_ROWS, MOST_ENTRIES = 2000, 20_000_000
# Rows at the valley, or at a mode, below which nothing is said; of more than so many a sample is
# looked at.
FEWEST, MOST = 5, 250
# Bandwidth of the scores' density in units of the middle nine tenths, at 300 rows; half the width
# of the slabs of rows at the modes and at the valley, too.
BANDWIDTH = 0.1
# The straight way must lead through sparser space: one-sided level of 5 %.
CLEAR = 1.64
# The rows at the valley must lie in space that is denser than half of that, by so many errors.
BEYOND_HALF = 1.0
# Distances held at a time.
BLOCK = 2_000_000


def has_way_around(X: Any, scores: ArrayLike) -> bool:
    r"""Whether rows with two modes along their scores are connected around the valley.

    A ring or a bent band is one piece and has two modes along a line: the rows at the valley are
    few along the line, but they do not lie in sparser space than others. This function compares
    them with rows that would be there if both modes went on straight.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR. Of more than 2,000 rows, 2,000 at even steps in the order of the scores
        are looked at. Columns of few values are dithered (`dithered`).
    scores : array-like of shape (n,)
        Scores along which a test found two modes: those of a hyperplane, or distances to a border
        (`Border.distances`). Best of held-out rows.

    Returns
    -------
    bool
        True where the valley is an artefact of the projection. False where it is a gap, and also
        where that cannot be seen: in one column, with fewer than five rows at the valley or at a
        mode, and in high dimension.

    Notes
    -----
    Columns are divided by their standard deviations. Let r(x) be the distance from x to its k-th
    nearest row, with k about a third of the root of n: its logarithm measures how sparse space is
    around x. The rows M of a mode are *shifted* to the valley, each by (valley - mode) c, where c
    is the slope of the columns in the scores within both sides. That is where the group of this
    mode would be if it reached into the valley with its shape unchanged. With V the rows at the
    valley, there is a way around as seen from M if

    .. math:: g = \mathrm{mean}_{x \in M} [\log r(\mathrm{shifted}\ x) - \log r(x)] > 0, \qquad
        \mathrm{mean}_{x \in V} \log r(x) - \mathrm{mean}_{x \in M} \log r(x) < g / 2,

    the first by 1.64 standard errors, the second by one. Both modes must agree.

    Rows at the valley between two groups of one covariance matrix are distributed as shifted ones,
    so that the left side of the second inequality is g, in any dimension and for any units of
    the columns; on a ring it is 0. Between a narrow and a wide group they lie in denser space than
    shifted rows of the wide one, but not than those of the narrow one. In high dimension all
    distances are alike: g is not above 0, and nothing is called connected.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.evidence import has_way_around
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=600)
    >>> ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.1 * rng.normal(size=(600, 2))
    >>> has_way_around(ring, ring[:, 0])
    True
    >>> groups = rng.normal(size=(600, 2)) + 4 * (np.arange(600)[:, None] % 2)
    >>> has_way_around(groups, groups[:, 0])
    False
    """
    X = as_given(X)
    n, d = X.shape
    s = check_vector("scores", scores, n)
    if d < 2:
        return False
    most = min(MOST_ROWS, MOST_ENTRIES // d)
    if n > most:
        kept = np.argsort(s, kind="stable")[np.linspace(0, n - 1, most).astype(np.int64)]
        X, s = X[kept], s[kept]
    peak = float(np.abs(s).max(initial=0.0))
    found = _valley(s / peak) if peak > 0 else None
    if found is None:
        return False
    return _is_connected(_standardised(X), s / peak, found)


class _Valley(NamedTuple):
    """Places of the deepest valley and of the modes on its two sides, and half a slab's width."""

    valley: float
    modes: tuple[float, float]
    width: float


def _valley(s: NDArray) -> _Valley | None:
    """Return where the smoothed density of scores lacks most to have one mode; None if nowhere."""
    low, high = np.quantile(s, [0.05, 0.95])
    length = float(high - low)
    if not length > 0:
        return None
    width = BANDWIDTH * length * (300.0 / s.size) ** 0.2
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
    return _Valley(float(place[at]), (float(modes[0]), float(modes[1])), width)


def _standardised(X: Any) -> NDArray[np.float64]:
    """Return dense columns of mean 0 and standard deviation 1, without those that are constant."""
    # Copies of a row would have no distance from each other, however sparse space is.
    rows = dithered(X, column_resolutions(X), np.random.default_rng(0))
    rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    unit = np.abs(rows).max(axis=0)
    rows = rows[:, unit > 0] / unit[unit > 0].astype(np.float64)
    rows -= rows.mean(axis=0)
    deviations = rows.std(axis=0)
    # What is left of a constant column is rounding.
    varies = deviations > 1e-7 if X.dtype == np.float32 else deviations > 1e-14
    return rows[:, varies] / deviations[varies]


def _is_connected(rows: NDArray, s: NDArray, found: _Valley) -> bool:
    n_neighbors = int(np.clip(np.sqrt(s.size) / 3.0, 3, 15))
    at_valley, *at_modes = (_at(s, place, found.width) for place in (found.valley, *found.modes))
    if rows.shape[1] < 2 or min(map(len, (at_valley, *at_modes))) < FEWEST:
        return False
    # A row is its own nearest one.
    sparseness = _log_distance(rows[at_valley], rows, n_neighbors + 1)
    slope = _slope_within(rows, s, s > found.valley)
    for mode, members in zip(found.modes, at_modes, strict=True):
        before = _log_distance(rows[members], rows, n_neighbors + 1)
        shifted = rows[members] + (found.valley - mode) * slope
        after = _log_distance(shifted, rows, n_neighbors)
        half = 0.5 * (before + after)
        error = np.sqrt(_square_error(half) + _square_error(sparseness))
        is_gap = np.mean(after - before) <= CLEAR * np.sqrt(_square_error(after - before))
        if is_gap or np.mean(half) - np.mean(sparseness) <= BEYOND_HALF * error:
            return False
    return True


def _at(s: NDArray, place: float, width: float) -> NDArray[np.int64]:
    """Return the rows with scores near a place; at most `MOST` of them, at random."""
    there = np.flatnonzero(np.abs(s - place) <= width)
    if there.size > MOST:
        there = np.random.default_rng(0).choice(there, MOST, replace=False)
    return there


def _square_error(values: NDArray) -> float:
    return float(values.var(ddof=1)) / values.size


def _slope_within(rows: NDArray, s: NDArray, upper: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return by how much columns rise with the scores, within both sides."""
    centred, places = rows.copy(), s.copy()
    for side in (upper, ~upper):
        centred[side] -= rows[side].mean(axis=0)
        places[side] -= s[side].mean()
    square = float(places @ places)
    return places @ centred / square if square > 0 else np.zeros(rows.shape[1])


def _log_distance(points: NDArray, rows: NDArray, k: int) -> NDArray[np.float64]:
    """Return logarithms of the distances from points to their k-th nearest row."""
    step = max(1, BLOCK // len(rows))
    blocks = [
        np.partition(euclidean_distances(points[i : i + step], rows, squared=True), k - 1)[
            :, k - 1
        ]
        for i in range(0, len(points), step)
    ]
    # Copies are at a distance of 0, or what rounding makes of it; rows have unit deviations.
    return 0.5 * np.log(np.maximum(np.concatenate(blocks), 1e-12))
