"""The race of starts: directions fitted to one half of a sample and ranked on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.base.recursion import PostponedSplitError
from volmar.evidence.modes.valleys import valleys_at
from volmar.metrics.separation_bound import probability
from volmar.separation.bound import coarse_splits
from volmar.separation.gep import RegularizedCorrelation, SeparationResult
from volmar.separation.problem import SeparationRows
from volmar.separation.starts import (
    ROWS_PER_FEATURE,
    StartRows,
    Starts,
    held_out_scores,
    start_directions,
    start_rows,
)
from volmar.separation.two_groups import (
    both_sides,
    mean_differences,
    normal_group_directions,
)

# Minimum number of rows for halves; fewer rows both fit and rank the directions.
MIN_ROWS = 16
# First, this number of alternations of all starts on this number of rows of the half (more if
# there are many features), ranked on as many rows. Then the number of best directions that go on,
# and their number of alternations on all rows of the half.
FIRST_ROUNDS, FIRST_ROWS, N_KEPT, MORE_ROUNDS = 2, 800, 4, 4
# Factor by which an unchanged start must be better. Splits on which many features agree are
# preferred to a split of one feature.
AS_IT_IS = 3.0
# Depth of the valley at the cut from which the race ends at once, without the other half.
CLEAR = 0.5
# Without such a valley, and with enough rows per feature: regularisation and steps of EM, which
# alternations with `SMALL_REG` follow.
EM_REG, EM_STEPS = 0.03, 20
# The regularisations to choose from if none is given, and the factor by which the smaller one must
# be better, because it also fits more noise.
REG, SMALL_REG, HANDICAP = 1.0, 0.1, 1.5
# A run has lost the split of its start if its direction has less than this share of the score,
KEPT = 0.5
# unless the projections on the two directions have at least this correlation.
SAME = 0.99
# Largest likely ratio of the final score of the race to the score after its first half.
MAX_GAIN = 10.0
# Minimum regularisation, because the correlation matrix of half of the rows may be singular.
MIN_REG = 1e-3


class Winner(NamedTuple):
    """The direction w with the highest score on held-out rows, and the `reg` of its fit.

    `score` is that of `held_out_scores`, `kappa2` Theorem 2's bound on kappa^2 along w, not
    regularised, and `depth` the depth of the valley at the cut. All three are of held-out rows.
    """

    w: NDArray
    reg: float
    score: float
    kappa2: float
    depth: float


class _Half(NamedTuple):
    """Rows to fit directions to, held-out rows to rank them, and the starts."""

    rows: StartRows
    held_out: StartRows
    regularized: RegularizedCorrelation
    starts: Starts


def race(
    rows: StartRows,
    reg: float | None,
    n_starts: int,
    min_share: float,
    seed: int,
    numbers: NDArray | None = None,
    hurdle: float = 0.0,
    n_halves: int = 2,
) -> Winner:
    """Alternate from many directions on each half of the rows; return the best on the other.

    The alternation is that of `separation_gep`: it maximises the regularised bound on the rows of
    its half. All directions of a half are updated together, as matrix products. Held-out rows
    choose among the local optima, by the bound without the regulariser and by the valleys of the
    density (`held_out_scores`). The regularised bound of the same rows would prefer halves of the
    noise to small groups, and it increases with every direction that fits noise.

    If no direction has a clear valley and there are enough rows, directions of two normal groups
    with a common covariance are tried as well (`normal_group_directions`). They can find groups
    that lie side by side in strongly correlated features, which the other starts miss.

    If `reg` is None it is 1, or 0.1 if only 0.1 finds a valley. `numbers` (n,) identifies the
    original row of each row of the sample; copies of a row go to the same half. Raises
    `PostponedSplitError` after the first half if the race is unlikely to reach a score of
    `hurdle`. With `n_halves=1` directions are fitted to one half only, in half of the time.
    """
    rng = np.random.default_rng(seed)
    first = REG if reg is None else max(reg, MIN_REG)
    halves, found = [], []
    for learn, judge in _halves(rows, rng, numbers)[:n_halves]:
        correlation = np.asarray(learn.Z.T @ learn.Z, dtype=np.float64) / len(learn.Z)
        regularized = RegularizedCorrelation(correlation, first)
        starts = start_directions(learn, regularized, n_starts, rng, min_share)
        halves.append(_Half(learn, judge, regularized, starts))
        for candidate in (partial(_best, W=starts.directions), _as_they_are):
            one = candidate(halves[-1], reg=first, min_share=min_share)
            if one is not None and one.depth >= CLEAR:
                return one
            found.append(one)
        if len(halves) == 1:
            _check_promise(found, hurdle)
    second, handicap = (SMALL_REG, HANDICAP) if reg is None else (first, 1.0)
    for half in halves:
        if not half.rows.are_few:
            started = _normal_groups(half, rng)
            one = _best(half, started, second, min_share)
            found.append(one._replace(score=one.score / handicap) if one is not None else None)
            if one is not None and one.depth >= CLEAR:
                break
    none = Winner(halves[0].starts.directions[:, 0], REG, -np.inf, 0.0, 0.0)
    winners = [one for one in found if one is not None]
    return max(winners, key=lambda one: one.score, default=none)


def _check_promise(found: list[Winner | None], hurdle: float) -> None:
    """Raise `PostponedSplitError` if the race is unlikely to reach a score of `hurdle`."""
    promise = MAX_GAIN * max((one.score for one in found if one is not None), default=np.inf)
    if promise < hurdle:
        raise PostponedSplitError(promise)


def separation_by_race(
    rows: SeparationRows,
    gep: Callable[[RegularizedCorrelation, NDArray], SeparationResult],
    reg: float | None,
    n_starts: int,
    seed: int,
    numbers: NDArray | None = None,
    hurdle: float = 0.0,
    n_halves: int = 2,
) -> SeparationResult:
    """Race directions on a sample of the rows, and continue from the best with all rows.

    `gep` is `separation_gep` of all rows, from R + reg I and a direction. Equal `numbers` mark
    copies of a row. `hurdle` and `n_halves` are those of `race`.
    """
    sample, chosen = start_rows(rows.X, rows.z, np.random.default_rng(seed))
    share, R = rows.min_share, rows.z.correlation
    if rows.z.rows.weights is not None:  # drawn with replacement
        numbers = chosen if numbers is None else numbers[chosen]
    elif numbers is not None:
        numbers = numbers[chosen]
    winner = race(sample, reg, n_starts, share, seed, numbers, hurdle, n_halves)
    result = gep(rows.with_reg(winner.reg) if reg is None else rows.regularized, winner.w)
    if reg is None and winner.reg > SMALL_REG and is_lost(sample, R, winner.w, result.w, share):
        looser = gep(rows.with_reg(SMALL_REG), winner.w)
        if not is_lost(sample, R, result.w, looser.w, share) and is_deeper(sample, looser, result):
            result = looser
    return replace(
        result,
        held_out_bound=probability(max(winner.kappa2, 0.0)),
        held_out_score=winner.score,
    )


def is_lost(
    rows: StartRows, correlation: NDArray, start: NDArray, end: NDArray, min_share: float
) -> bool:
    """Return whether a run from the direction `start` ended at one that separates much less.

    The regularised objective of all rows need not have an optimum near the winner of the race.
    For example, a split between groups side by side in correlated features is not an optimum
    with a large `reg`.
    """
    W = np.column_stack([start, end])
    products = W.T @ (correlation @ W)
    if products[0, 1] ** 2 >= SAME**2 * products[0, 0] * products[1, 1]:
        return False
    ridge = REG * rows.variances(W)
    score = held_out_scores(rows.dithered @ W.astype(rows.Z.dtype), min_share, ridge).score
    return bool(score[1] < KEPT * score[0])


def is_deeper(rows: StartRows, one: SeparationResult, other: SeparationResult) -> bool:
    """Return whether the valley at the cut of one result is at least as deep as at the other."""
    W = np.column_stack([one.w, other.w])
    ordered = np.sort((rows.dithered @ W.astype(rows.Z.dtype)).T, axis=1).astype(np.float64)
    depth = valleys_at(ordered, np.array([one.threshold, other.threshold])).depth
    return bool(depth[0] >= depth[1])


def _halves(
    rows: StartRows, rng: np.random.Generator, numbers: NDArray | None
) -> list[tuple[StartRows, StartRows]]:
    """Return pairs of rows to fit and rows to rank directions, each in random order."""
    n = len(rows.Z)
    if n < MIN_ROWS:
        return [(rows, rows)]
    if numbers is None:
        order = rng.permutation(n)
        parts = [order[: n // 2], order[n // 2 :]]
    else:
        _, which = np.unique(numbers, return_inverse=True)
        order = rng.permutation(int(which.max()) + 1)
        half = (order < order.size // 2)[which]
        parts = [rng.permutation(np.flatnonzero(side)) for side in (half, ~half)]
    if min(part.size for part in parts) < 2:
        return [(rows, rows)]
    one, other = (_taken(rows, part) for part in parts)
    return [(one, other), (other, one)]


def _taken(rows: StartRows, numbers: NDArray) -> StartRows:
    Z = rows.Z.take(numbers, axis=0)
    Z -= Z.mean(axis=0)
    dithered = Z if rows.dithered is rows.Z else rows.dithered.take(numbers, axis=0)
    wide = None if rows.wide is None else rows.wide.taken(numbers)
    return StartRows(Z, dithered, rows.scale, wide)


def _best(half: _Half, W: NDArray, reg: float, min_share: float) -> Winner | None:
    """Alternate on one half and rank on the other; then repeat with the best directions."""
    regularized = half.regularized
    if reg != regularized.reg:
        regularized = RegularizedCorrelation(regularized.correlation, reg)
    Z = half.rows.Z
    some = slice(max(FIRST_ROWS, ROWS_PER_FEATURE * Z.shape[1]))
    W = _alternated(Z[some], regularized, W, min_share, FIRST_ROUNDS)
    best, order = _ranked(half, W, reg, min_share, some)
    if best is not None and best.depth >= CLEAR:
        return best
    W = W[:, order[:N_KEPT]]
    # Keep the best direction unchanged too: the alternation may lose its split.
    W = np.hstack([_alternated(Z, regularized, W, min_share, MORE_ROUNDS), W[:, :1]])
    return _ranked(half, W, reg, min_share)[0]


def _as_they_are(half: _Half, reg: float, min_share: float) -> Winner | None:
    """Rank the starts that may be the answer without an alternation.

    The alternation adds the noise of all features to a start that is a single feature.
    """
    alone = half.starts.directions[:, half.starts.stands_alone]
    best, _ = _ranked(half, alone, reg, min_share)
    return None if best is None else best._replace(score=best.score / AS_IT_IS)


def _alternated(
    Z: NDArray, regularized: RegularizedCorrelation, W: NDArray, min_share: float, n_rounds: int
) -> NDArray:
    """Alternate between good labels of each direction and the best direction for these labels."""
    for _ in range(n_rounds):
        masks = _best_masks(Z, regularized, W, min_share)
        W = regularized.solve(mean_differences(Z, masks[:, both_sides(masks)]))
    return W


def _ranked(
    half: _Half, W: NDArray, reg: float, min_share: float, some: slice = slice(None)
) -> tuple[Winner | None, NDArray]:
    """Rank directions on (some) held-out rows; return the best, and the order of all."""
    if W.shape[1] == 0:
        return None, np.empty(0, dtype=np.int64)
    held_out = half.held_out.dithered[some]
    # The paper's Lambda is the variance of each feature. All directions have the same reg here.
    ridge = REG * half.held_out.variances(W, some)
    judged = held_out_scores(held_out @ W.astype(held_out.dtype), min_share, ridge)
    order = np.argsort(-judged.score, kind="stable")
    if not np.isfinite(judged.score[order[0]]):
        return None, order
    values = (float(each[order[0]]) for each in judged)
    return Winner(W[:, order[0]], reg, *values), order


def _best_masks(
    Z: NDArray, regularized: RegularizedCorrelation, W: NDArray, min_share: float
) -> NDArray:
    """Return the labels of a good cut along each direction; all False without a valid cut."""
    P = Z @ W.astype(Z.dtype, copy=False)
    variances = np.maximum(np.einsum("ij,ij->j", W, regularized.correlation @ W), 0.0)
    ridge = regularized.reg * np.einsum("ij,ij->j", W, W)
    return coarse_splits(P, variances, ridge, min_share).astype(Z.dtype) < P


def _normal_groups(half: _Half, rng: np.random.Generator) -> NDArray:
    regularized = RegularizedCorrelation(half.regularized.correlation, EM_REG)
    Z = half.rows.Z
    starts = half.starts.directions
    white = regularized.whitened(rng.standard_normal(starts.shape))
    sides = Z @ np.hstack([starts, white]).astype(Z.dtype) > 0
    sides = sides[:, both_sides(sides)]
    return normal_group_directions(Z, regularized, sides, EM_STEPS)
