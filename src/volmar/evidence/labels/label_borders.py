"""Test of the border between two groups of given clusters, on held-out rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from volmar.evidence.combine import combine_p_values
from volmar.evidence.dither import dithered, dithered_scores
from volmar.evidence.labels.label_views import (
    WIDE,
    Discriminants,
    SplitView,
    thresholds,
    without_far_rows,
)
from volmar.evidence.modes.humps import deepest_valley, hump_test
from volmar.evidence.modes.valleys import valleys_at
from volmar.evidence.splits.curved import fitted_border
from volmar.evidence.way_around import has_way_around

__all__ = ["BorderTest", "border_test", "is_blocked"]

# Maximum p-value at which a valley is checked for a way around it.
CLEARLY_ABOVE = 0.1
# Minimum depth of the valley at the border, as a share of the deepest valley, and the number of
# thresholds at which it is measured.
AT_BORDER, N_PLACES = 0.5, 17
# Maximum number of values drawn for a test (rows times draws), and the minimum size of the sample
# of a region with more rows than this allows.
MAX_POINTS, MIN_SAMPLED = 1_600_000, 1_000
# Maximum number of seen rows whose neighbours are computed.
MAX_COMPARED = 2_000
# Number of nearest rows that vote for the side of a row.
N_NEIGHBORS = 3


class BorderTest(NamedTuple):
    """Outcome of the test of a border; see `LabelJoin` for the fields."""

    p_value: float
    distance: float
    depth: float
    is_curved: bool
    p_minimum: float


class _HeldOut(NamedTuple):
    """Held-out rows between two groups (indices into X), and their scores.

    `border` is the interval of the thresholds on the scores that separate the two groups.
    """

    rows: NDArray
    scores: NDArray
    border: tuple[float, float]
    is_curved: bool


def border_test(
    X: Any,
    splits: list[SplitView],
    views: list[Discriminants],
    a: int,
    b: int,
    *,
    resolutions: NDArray,
    n_draws: int,
    rng: np.random.Generator,
) -> BorderTest:
    """Test on each split whether rows are unimodal across the border between groups a and b."""
    p_values: list[float] = []
    depths, curved = [], []
    for split, view in zip(splits, views, strict=True):
        found = _held_out(X, split, view, a, b, resolutions, n_draws, rng)
        if found is None:
            p_values.append(1.0)
            continue
        p_value, depth, deepest = 1.0, *_depths(found)
        # A gap inside one of the groups is not a gap between them.
        if depth >= AT_BORDER * deepest > 0:
            p_value = hump_test(found.scores, rng, n_draws=n_draws).p_value
        # A bent band is bimodal along a line, but it is a single piece.
        if p_value <= CLEARLY_ABOVE and X.shape[1] <= WIDE:
            rows = dithered(X[found.rows], resolutions, rng)
            p_value = 1.0 if has_way_around(rows, found.scores) else p_value
        p_values.append(p_value)
        depths.append(depth)
        curved.append(found.is_curved)
        p_values.extend(_settled(p_values, len(splits), 1.0 / (1 + n_draws)))
        if len(p_values) == len(splits):
            break
    distance = float(np.mean([np.sqrt(view.distances[a, b]) for view in views]))
    return BorderTest(
        combine_p_values(p_values),
        distance,
        float(np.mean(depths)) if depths else 0.0,
        bool(curved) and float(np.mean(curved)) > 0.5,
        combine_p_values([1.0 / (1 + n_draws)] * len(splits)),
    )


def _held_out(
    X: Any,
    split: SplitView,
    view: Discriminants,
    a: int,
    b: int,
    resolutions: NDArray,
    n_draws: int,
    rng: np.random.Generator,
) -> _HeldOut | None:
    """Return scores along the discriminant, or signed distances to the border if it is curved."""
    pair = view.pair(a, b)
    if pair is None:
        return None
    most = max(MAX_POINTS // n_draws, MIN_SAMPLED)
    rows, scores = split.held_out_rows[pair.rows], pair.scores
    is_ours = (view.groups == a) | (view.groups == b)
    seen, sides = split.seen_rows[is_ours], view.groups[is_ours] == a
    is_curved = not pair.is_linear and _is_bent(X[_evenly(seen)], _evenly(sides), pair.error)
    if is_curved:
        kept = _drawn(rows.size, most, rng)
        rows = rows[kept]
        border = fitted_border(sides.astype(np.int64), X[seen], resolutions, rng, name="")
        scores = dithered_scores(border.distances, X[rows], resolutions, rng)
        first, second = scores[scores > 0], scores[scores <= 0]
        near = without_far_rows(scores, first, second)
    else:
        first, second = pair.first, pair.second
        near = without_far_rows(scores, first, second)
        near = near[_drawn(near.size, most, rng)]
    return _HeldOut(rows[near], scores[near], thresholds(first, second), is_curved)


def is_blocked(X: Any, split: SplitView, view: Discriminants, a: int, b: int) -> bool:
    """Return whether another group lies between groups a and b that no hyperplane separates.

    Each of the rows of a that are nearest to b is paired with its nearest row in b. The groups are
    blocked if most of the balls with such a pair as poles contain a row of another group.
    """
    pair = view.pair(a, b)
    if pair is None or pair.is_linear or view.distances.shape[0] == 2:
        return False
    few = _evenly(np.arange(view.groups.size))
    groups = view.groups[few]
    first, second = np.flatnonzero(groups == a), np.flatnonzero(groups == b)
    others = np.flatnonzero((groups != a) & (groups != b))
    if min(first.size, second.size, others.size) == 0:
        return False
    rows = _centred(X[split.seen_rows[few]])
    squares = euclidean_distances(rows[first], rows[second], squared=True)
    nearest = squares.argmin(axis=1)
    square = squares[np.arange(first.size), nearest]
    near = np.argsort(square)[: max(first.size // 4, 1)]
    # |z - middle|^2 < |x - y|^2 / 4 is |z - x|^2 + |z - y|^2 < |x - y|^2.
    around = euclidean_distances(rows[first[near]], rows[others], squared=True)
    around += euclidean_distances(rows[second[nearest[near]]], rows[others], squared=True)
    return bool(np.mean(around.min(axis=1) < square[near]) > 0.5)


def _is_bent(seen: Any, sides: NDArray, linear_error: float) -> bool:
    """Return whether the nearest rows predict the side much better than the hyperplane does.

    If groups overlap, the nearest rows are wrong as well, and the hyperplane is kept.
    """
    if sides.all() or not sides.any():
        return False
    squares = euclidean_distances(_centred(seen), squared=True)
    np.fill_diagonal(squares, np.inf)
    nearest = np.argpartition(squares, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
    votes = sides[nearest].mean(axis=1) > 0.5
    error = 0.5 * (np.mean(~votes[sides]) + np.mean(votes[~sides]))
    return bool(error < 0.5 * linear_error)


def _centred(rows: Any) -> Any:
    """Centre dense rows: far from the origin, squares would lose the distances."""
    if sparse.issparse(rows):
        return rows
    return rows - rows.mean(axis=0, dtype=np.float64)


def _evenly(rows: NDArray) -> NDArray:
    """Return at most `MAX_COMPARED` of the entries, at even steps."""
    most = MAX_COMPARED
    return rows if rows.size <= most else rows[np.linspace(0, rows.size - 1, most).astype(np.intp)]


def _settled(p_values: list[float], n_splits: int, minimum: float) -> list[float]:
    """Return p-values of 1 for the remaining splits if these cannot change the combined p-value.

    The combined p-value depends on a single rank. It cannot change any more once enough p-values
    equal the smallest possible one.
    """
    padded = p_values + [1.0] * (n_splits - len(p_values))
    is_settled = combine_p_values(padded) <= combine_p_values([minimum] * n_splits)
    return padded[len(p_values) :] if is_settled else []


def _drawn(n: int, most: int, rng: np.random.Generator) -> NDArray:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _depths(found: _HeldOut) -> tuple[float, float]:
    """Return the depth of the deepest valley at the border, and of the deepest one anywhere."""
    low, high = found.border
    if found.scores.size == 0 or low > high:
        return 0.0, 0.0
    cuts = np.append(np.linspace(low, high, N_PLACES), deepest_valley(found.scores))
    ordered = np.broadcast_to(np.sort(found.scores), (cuts.size, found.scores.size))
    depths = np.clip(valleys_at(ordered, cuts).depth, 0.0, 1.0)
    return float(depths[:-1].max()), float(depths.max())
