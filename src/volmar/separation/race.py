"""The race of starts: directions fitted to one half of a sample and ranked on the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import expit

from volmar._eigen import eigenpairs
from volmar.base.recursion import PostponedSplitError
from volmar.evidence.densities import valleys_at
from volmar.evidence.dither import column_resolutions, dithered
from volmar.metrics.separation_bound import probability
from volmar.rows.anywhere import drawn_by_weight, take_rows
from volmar.rows.standardized import RowSpace, Standardized, relative_scale
from volmar.separation.gep import (
    RegularizedCorrelation,
    SeparationResult,
    best_splits,
    coarse_splits,
)
from volmar.separation.problem import SeparationRows

# --------------------- single columns as starts of the race, for data with more columns than rows


@dataclass(frozen=True)
class WideColumns:
    """The columns of the rows of a `RowSpace` with these `numbers`, read one tile at a time."""

    z: RowSpace
    numbers: NDArray
    resolutions: NDArray

    def candidates(
        self, count: int, few: slice, rng: np.random.Generator
    ) -> tuple[NDArray, NDArray, NDArray]:
        """Return the `count` columns with the largest `bimodality` over the rows of `few`.

        Returns their numbers (k,), their standardised values (m, k), and the dithered values of
        the rows of `few`.
        """
        found: list[tuple[NDArray, NDArray, NDArray]] = []
        for part, tile in self.z.Z.tiles(self.numbers[few]):
            noisy = dithered(tile, self.resolutions[part], rng)
            score = bimodality(noisy)
            best = np.argsort(-score, kind="stable")[:count]
            found.append((score[best], part.start + best, noisy[:, best]))
        score, columns, noisy = (
            np.concatenate(each, axis=-1) for each in zip(*found, strict=True)
        )
        best = np.argsort(-score, kind="stable")[:count]
        return columns[best], self.z.Z.values(columns[best])[self.numbers], noisy[:, best]

    def in_own_units(self) -> NDArray:
        """Return the centred rows in the user's units, in a basis of their span."""
        rows = self.z.own_units[self.numbers]
        return rows - rows.mean(axis=0)

    def between(self, labels: NDArray, few: slice) -> NDArray:
        """Return the differences of the means of labels of `few`, in the user's units, in T."""
        share = labels.mean(axis=0)
        v = np.zeros((self.z.rows.n_rows, labels.shape[1]))
        weights = np.where(labels, 1.0 / share, -1.0 / (1.0 - share)) / len(labels)
        np.add.at(v, self.numbers[few], weights)  # a row may occur several times in a sample
        return self.z.own_units_direction(v)

    def dithered(self, T: NDArray, rng: np.random.Generator) -> NDArray:
        """Return rows of T with the noise of dithered columns.

        The noise is a sum over many columns, so it is drawn from the normal distribution with the
        same covariance V'CV, with C the variances of the uniform noise of the columns.
        """
        deviations = self.resolutions / np.sqrt(12.0)
        if not deviations.any():
            return T
        covariance: Any = 0.0
        for part, V in self.z.basis_tiles():
            covariance = covariance + (V.T * deviations[part] ** 2) @ V
        values, vectors = eigenpairs(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = rng.standard_normal((len(T), values.size)) @ root.T
        return T + np.pad(noise, ((0, 0), (0, T.shape[1] - values.size)))


def wide_columns(z: RowSpace, numbers: NDArray) -> WideColumns:
    """Return the columns of some rows, with their resolutions estimated from about 500 rows."""
    few = numbers[:: max(1, numbers.size // 500)]
    # The columns as given, because many have only a few distinct values.
    parts = [column_resolutions(tile) for _, tile in z.Z.tiles(few, as_given=True)]
    return WideColumns(z, numbers, np.concatenate(parts) / z.scale[z.kept])


def bimodality(columns: NDArray) -> NDArray:
    r"""Return Sarle's bimodality coefficient of each column, with outliers clipped.

    It is :math:`(s^2 + 1) / k` with skewness s and kurtosis k: 1 for two points of any shares, 5/9
    for a uniform density and 1/3 for a normal density.
    """
    Z = np.clip(columns, -3.0, 3.0)  # a single outlier is not a second group
    Z -= Z.mean(axis=0)
    square = Z * Z
    variance = square.mean(axis=0)
    variance[variance <= 0] = np.inf  # constant columns do not have two groups
    skewness2 = (np.einsum("ij,ij->j", square, Z) / len(Z)) ** 2 / variance**3
    kurtosis = np.einsum("ij,ij->j", square, square) / len(Z) / variance**2
    return np.where(kurtosis > 0, (skewness2 + 1.0) / np.maximum(kurtosis, 1.0), 0.0)


# -------- two groups from many starts at once: 2-means, or normal groups with a common covariance


def two_means(Z: NDArray, masks: NDArray) -> NDArray:
    r"""Return the labels with the smallest sum of squares after a few steps of k-means.

    With the rows centred and the shares :math:`r_0 + r_1 = 1`, the means are :math:`\mu_1 = r_0 D`
    and :math:`\mu_0 = -r_1 D` for :math:`D = \mu_1 - \mu_0`. A row is therefore nearer to
    :math:`\mu_1` if :math:`z'D > (r_0 - r_1) |D|^2 / 2`. All starts, the columns of `masks`, are
    updated together. The result has shape (n, 0) if every start has all rows on one side.
    """
    masks = masks[:, both_sides(masks)]
    for _ in range(8):
        D, share = mean_differences(Z, masks)
        between = np.einsum("ij,ij->j", D, D)
        middle = (0.5 * (1.0 - 2.0 * share) * between).astype(Z.dtype)
        nearer = middle < Z @ D.astype(Z.dtype, copy=False)
        has_both = both_sides(nearer)
        n_changed = np.count_nonzero(nearer != masks) if has_both.all() else masks.size
        masks = nearer if has_both.all() else nearer[:, has_both]
        if n_changed <= 0.002 * masks.size:
            break
    if masks.shape[1] == 0:
        return masks
    D, share = mean_differences(Z, masks)
    return masks[:, int(np.argmax(share * (1.0 - share) * np.einsum("ij,ij->j", D, D)))]


def both_sides(masks: NDArray) -> NDArray:
    """Return a mask of the columns that have rows on both sides.

    Counting by a product is several times as fast as a reduction of such narrow arrays.
    """
    sizes = np.ones(len(masks)) @ masks
    return np.asarray((sizes > 0) & (sizes < len(masks)))


def mean_differences(Z: NDArray, masks: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mean of the masked rows minus that of the others, and the masked shares.

    Masks, one per column, may be memberships between 0 and 1.
    """
    memberships = masks.astype(Z.dtype, copy=False)
    ones = np.ones(len(Z), dtype=Z.dtype)
    sizes = (ones @ memberships).astype(np.float64)
    shares = sizes / len(Z)
    sums = Z.T @ memberships - np.multiply.outer(ones @ Z, shares)
    return sums / (sizes * (1.0 - shares)), shares


def normal_group_directions(
    Z: NDArray, regularized: RegularizedCorrelation, memberships: NDArray, n_steps: int
) -> NDArray:
    r"""Return the discriminants (p, m) of two normal groups after some steps of EM.

    Hard labels tend to keep their direction: nearly every cut through the middle of noise is a
    fixed point of the alternation. Soft `memberships` (n, m), the starts, do not. With the total
    covariance R fixed, the parameters are the shares and the difference D of the means. The
    discriminant is :math:`w = R^{-1} D`. With :math:`m = D'w`, the variance along it within the
    groups is :math:`m (1 - r_0 r_1 m)`, and the logit of a row's membership is

    .. math:: \frac{w'z - \tfrac12 (r_0 - r_1) m}{1 - r_0 r_1 m} + \log\frac{r_1}{r_0}.

    A step takes a solve and two products with the centred rows Z for all starts together.
    """
    w = np.empty((Z.shape[1], memberships.shape[1]))
    q = memberships.astype(Z.dtype)
    for step in range(n_steps):
        D, share = mean_differences(Z, q)
        share = np.clip(share, 1e-6, 1.0 - 1e-6)
        w = regularized.solve(D)
        explained = share * (1.0 - share) * np.einsum("ij,ij->j", D, w)
        if step == 6 and w.shape[1] > 8:  # only the best eight starts continue
            kept = np.argsort(-explained, kind="stable")[:8]
            share, D, w, explained = share[kept], D[:, kept], w[:, kept], explained[kept]
        if step == n_steps - 1:
            break
        within = np.maximum(1.0 - explained, 1e-6)
        middle = 0.5 * (1.0 - 2.0 * share) * explained / (share * (1.0 - share))
        constant = np.log(share / (1.0 - share)) - middle / within
        q = Z @ (w / within).astype(Z.dtype)
        q += constant.astype(Z.dtype)
        np.clip(q, -30.0, 30.0, out=q)
        expit(q, out=q)
    return w


# ---------- start directions that need no labels, and scores of their separation on held-out rows

# Rows per feature below which rows count as few.
ROWS_PER_FEATURE = 10
# Number of starts of 2-means: sides of principal directions, and pairs of rows.
N_PRINCIPAL, N_PAIRS = 3, 2


class StartRows(NamedTuple):
    """Centred rows for finding starts, in units of the features' standard deviations `scale`.

    `dithered` are the same rows with noise of the width of each column's resolution. `scale` is in
    the user's units divided by a power of two, and None if all are equal. With more columns than
    rows, Z are the rows in a basis of their span, and `wide` gives access to the columns.
    """

    Z: NDArray
    dithered: NDArray
    scale: NDArray | None
    wide: WideColumns | None = None

    def variances(self, W: NDArray, some: slice = slice(None)) -> NDArray:
        """Return w' diag(S) w for each column of W, S the covariance of (some) dithered rows."""
        noisy = self.dithered[some]
        if self.wide is None:
            return noisy.var(axis=0) @ W**2
        noise = 0.0 if self.dithered is self.Z else ((noisy - self.Z[some]) @ W).var(axis=0)
        return (W**2).sum(axis=0) + noise


def start_rows(X: Any, z: Standardized, rng: np.random.Generator) -> tuple[StartRows, NDArray]:
    """Return a sample of the rows for finding starts, drawn by weight, and its row numbers.

    The sample is float32 if there are enough rows per feature: starts need no more precision.
    """
    n = z.rows.n_rows
    chosen = drawn_by_weight(n, z.rows.weights, sample_size(n, z.kept.size), rng)
    scale = None if has_one_unit(z) else relative_scale(z.scale[z.kept])
    if isinstance(z, RowSpace):
        wide = wide_columns(z, chosen)
        Z = z.T[chosen]
        return StartRows(Z, wide.dithered(Z, rng), scale, wide), chosen
    # Weighted rows are drawn with replacement; without weights the sample may be all rows.
    Z = z.transform(take_rows(X, chosen) if z.rows.weights is None else X[chosen])
    if len(Z) >= 2 * ROWS_PER_FEATURE * Z.shape[1]:
        Z = Z.astype(np.float32, copy=False)
    noisy = dithered(Z, column_resolutions(Z), rng)
    return StartRows(Z, noisy, scale), chosen


def has_one_unit(z: Standardized) -> bool:
    """Return whether the standard deviations of all features are (about) the same."""
    scale = z.scale[z.kept]
    return bool(np.ptp(scale) <= 1e-3 * scale.max())


class HeldOut(NamedTuple):
    """Scores of k directions on held-out rows: `score` ranks them, -inf without an allowed cut.

    `kappa2` is Theorem 2's bound, not regularised, and `depth` that of the valley at the cut.
    """

    score: NDArray
    kappa2: NDArray
    depth: NDArray


def held_out_scores(projections: NDArray, min_share: float, ridge: NDArray | float) -> HeldOut:
    r"""Score directions by the projections (n, k) of held-out rows.

    The score is :math:`\kappa^2 \sqrt{v} + \kappa_\lambda^2 / 10`. Here v is the mass of the
    valleys of the density beyond the random valleys of a flat density, and :math:`\kappa^2` and
    :math:`\kappa_\lambda^2` are Theorem 2's bound of the best cut without and with the
    regulariser, which adds `ridge` to the variance along each direction.

    With r the share of the smaller side and :math:`\delta` the distance of the means in standard
    deviations within the sides, :math:`\kappa^2 = r \delta^2 / 2`. A small cluster of 5 % of the
    rows at a distance of 8 standard deviations has 1.6, less than the 1.75 of a cut through the
    middle of a normal density. The valley distinguishes the two. Without a valley, the regularised
    bound prefers splits on which many features agree.

    The rows must be dithered. A column with two values has no variance within the sides, and would
    otherwise win against every split on which many features agree.
    """
    ordered = np.sort(projections.T, axis=1).astype(np.float64, copy=False)
    variances = ordered.var(axis=1)
    variances = np.where(variances > 0, variances, np.inf)
    thresholds, kappa2, regularized = best_splits(ordered, variances, min_share, ridge)
    valleys = valleys_at(ordered, thresholds)
    allowed = np.isfinite(kappa2)
    # Samples of a flat density have valleys of this mass: 0.001 to 0.005 for 50 to 8,000 rows.
    depth = np.sqrt(np.maximum(valleys.mass - 0.003, 0.0))
    score = np.where(allowed, kappa2, 0.0) * depth + 0.1 * regularized
    return HeldOut(np.where(allowed, score, -np.inf), kappa2, valleys.depth)


class Starts(NamedTuple):
    """Directions (p, m) to start from; `stands_alone` marks possible answers without alternation.

    These are continuous features, and the difference of the means of 2-means in the user's units.
    A feature with ties has gaps between its values, which are not valleys between groups.
    """

    directions: NDArray
    stands_alone: NDArray


def sample_size(n_rows: int, n_features: int) -> int:
    """Return the sample size of the race: 20 rows per feature up to an eighth, at least 4000."""
    return min(n_rows, max(4000, min(20 * n_features, n_rows // 8)))


def start_directions(
    rows: StartRows,
    regularized: RegularizedCorrelation,
    n_starts: int,
    rng: np.random.Generator,
    min_share: float,
) -> Starts:
    """Return at most `n_starts` directions for the race.

    A quarter are the single features that show two groups best, and half are leading principal
    directions. Others are discriminants of 2-means on the standardised rows and, if the scales of
    the features differ, on the rows in the user's units, there also the difference of the means
    itself. The rest are random directions (R + reg I)^-1 g, as random labels would give.
    """
    p = rows.Z.shape[1]
    quarter = max(1, n_starts // 4)
    n_few = int(np.clip(16_000 // p, 125, 400))  # to rank features, and for a rough 2-means
    few = slice(None, None, max(1, len(rows.Z) // n_few))
    values, noisy = rows.Z, rows.dithered[few]
    if rows.wide is not None:
        columns, values, noisy = rows.wide.candidates(16 * quarter, few, rng)
    alone = held_out_scores(noisy, min_share, regularized.reg * noisy.var(axis=0)).score
    best = np.argsort(-alone, kind="stable")[:quarter]
    if rows.wide is None:
        features = np.eye(p)[:, best]
    else:
        features = rows.wide.z.column_directions(columns[best])
    ordered = np.sort(values[:, best], axis=0)
    # Share of adjacent sorted values that must differ in a continuous feature; float32 has ties.
    is_continuous = (ordered[1:] > ordered[:-1]).mean(axis=0) > 0.99
    principal = _leading(regularized.correlation, min(p, 2 * quarter), rng)
    Z = rows.Z[few]
    means = regularized.solve(mean_differences(Z, _means_labels(Z, principal, rng))[0])
    if rows.scale is not None:
        if rows.wide is None:
            given = Z * rows.scale.astype(Z.dtype)
        else:
            given = rows.wide.in_own_units()[few]
        n_leading = min(given.shape[1], N_PRINCIPAL)
        leading = _leading(given.T @ given / len(given), n_leading, rng)
        labels = _means_labels(given, leading, rng)
        if rows.wide is None:
            between = (mean_differences(given, labels)[0].T * rows.scale).T
        else:
            between = rows.wide.between(labels, few)
        means = np.hstack([means, regularized.solve(mean_differences(Z, labels)[0]), between])
    n_random = max(0, n_starts - features.shape[1] - principal.shape[1] - means.shape[1])
    random = regularized.solve(rng.standard_normal((p, n_random)))
    directions = np.hstack([means, features, principal, random])
    stands_alone = np.zeros(directions.shape[1], dtype=bool)
    stands_alone[means.shape[1] : means.shape[1] + best.size] = is_continuous
    stands_alone[: means.shape[1]] = rows.scale is not None
    limit = max(n_starts, 1)
    return Starts(directions[:, :limit], stands_alone[:limit])


def _means_labels(Z: NDArray, directions: NDArray, rng: np.random.Generator) -> NDArray:
    """Return the labels of 2-means as a column; no column if all rows are equal."""
    Z = Z - Z.mean(axis=0)
    one, other = Z[rng.integers(0, len(Z), (2, N_PAIRS))]
    between = np.hstack([directions[:, :N_PRINCIPAL], (one - other).T])
    middle = np.zeros(between.shape[1])
    middle[-N_PAIRS:] = 0.5 * ((one**2).sum(axis=1) - (other**2).sum(axis=1))
    labels = two_means(Z, Z @ between.astype(Z.dtype, copy=False) > middle)
    return labels if labels.ndim == 2 else labels[:, None]


def _leading(correlation: NDArray, k: int, rng: np.random.Generator) -> NDArray:
    """Return k leading eigenvectors, approximate for many features, since they are only starts.

    Their signs are arbitrary: they do not change the two sides of a cut.
    """
    p = correlation.shape[0]
    if p <= 64:
        return np.linalg.eigh(correlation)[1][:, ::-1][:, :k]
    basis = rng.standard_normal((p, 2 * k))
    for _ in range(4):
        basis = linalg.qr(correlation @ basis, mode="economic")[0]
    vectors = eigenpairs(basis.T @ correlation @ basis)[1][:, -k:]
    return basis @ vectors[:, ::-1]


# ---------- the race of starts: directions fitted to one half of a sample and ranked on the other

# Depth of the valley at the cut from which the race ends at once, without the other half.
CLEAR = 0.5
# The regularisations to choose from if none is given, and the factor by which the smaller one must
# be better, because it also fits more noise.
REG, SMALL_REG, HANDICAP = 1.0, 0.1, 1.5
# Largest likely ratio of the final score of the race to the score after its first half.
MAX_GAIN = 10.0


class Winner(NamedTuple):
    """The direction w with the highest score on held-out rows (`HeldOut`), and its `reg`."""

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
    # Minimum regularisation, because the correlation matrix of half of the rows may be singular.
    first = REG if reg is None else max(reg, 1e-3)
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
        if len(half.rows.Z) >= ROWS_PER_FEATURE * half.rows.Z.shape[1]:
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
    if numbers is not None:
        numbers = numbers[chosen]
    elif rows.z.rows.weights is not None:  # drawn with replacement
        numbers = chosen
    winner = race(sample, reg, n_starts, share, seed, numbers, hurdle, n_halves)
    result = gep(rows.with_reg(winner.reg) if reg is None else rows.regularized, winner.w)
    if reg is None and winner.reg > SMALL_REG and is_lost(sample, R, winner.w, result.w, share):
        looser = gep(rows.with_reg(SMALL_REG), winner.w)
        if not is_lost(sample, R, result.w, looser.w, share) and is_deeper(sample, looser, result):
            result = looser
    return replace(
        result, held_out_bound=probability(max(winner.kappa2, 0.0)), held_out_score=winner.score
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
    # Directions with highly correlated projections are the same split.
    if products[0, 1] ** 2 >= 0.99**2 * products[0, 0] * products[1, 1]:
        return False
    ridge = REG * rows.variances(W)
    score = held_out_scores(rows.dithered @ W.astype(rows.Z.dtype), min_share, ridge).score
    return bool(score[1] < 0.5 * score[0])


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
    if n < 16:  # so few rows both fit and rank the directions
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
    wide = rows.wide and replace(rows.wide, numbers=rows.wide.numbers[numbers])
    return StartRows(Z, dithered, rows.scale, wide)


def _best(half: _Half, W: NDArray, reg: float, min_share: float) -> Winner | None:
    """Alternate on one half and rank on the other; then repeat with the best directions.

    The first alternations use some rows only; the best four directions go on with all rows.
    """
    regularized = half.regularized
    if reg != regularized.reg:
        regularized = RegularizedCorrelation(regularized.correlation, reg)
    Z = half.rows.Z
    some = slice(max(800, ROWS_PER_FEATURE * Z.shape[1]))
    W = _alternated(Z[some], regularized, W, min_share, 2)
    best, order = _ranked(half, W, reg, min_share, some)
    if best is not None and best.depth >= CLEAR:
        return best
    W = W[:, order[:4]]
    # Keep the best direction unchanged too: the alternation may lose its split.
    W = np.hstack([_alternated(Z, regularized, W, min_share, 4), W[:, :1]])
    return _ranked(half, W, reg, min_share)[0]


def _as_they_are(half: _Half, reg: float, min_share: float) -> Winner | None:
    """Rank the starts that may be the answer without an alternation.

    The alternation adds the noise of all features to a start that is a single feature.
    """
    alone = half.starts.directions[:, half.starts.stands_alone]
    best, _ = _ranked(half, alone, reg, min_share)
    # Factor by which an unchanged start must be better. Splits on which many features agree are
    # preferred to a split of one feature.
    return None if best is None else best._replace(score=best.score / 3.0)


def _alternated(
    Z: NDArray, regularized: RegularizedCorrelation, W: NDArray, min_share: float, n_rounds: int
) -> NDArray:
    """Alternate between good labels of each direction and the best direction for these labels."""
    for _ in range(n_rounds):
        P = Z @ W.astype(Z.dtype, copy=False)
        variances = np.maximum(np.einsum("ij,ij->j", W, regularized.correlation @ W), 0.0)
        ridge = regularized.reg * np.einsum("ij,ij->j", W, W)
        masks = coarse_splits(P, variances, ridge, min_share).astype(Z.dtype) < P
        W = regularized.solve(mean_differences(Z, masks[:, both_sides(masks)])[0])
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


def _normal_groups(half: _Half, rng: np.random.Generator) -> NDArray:
    # A small regularisation and 20 steps of EM; alternations with `SMALL_REG` follow.
    regularized = RegularizedCorrelation(half.regularized.correlation, 0.03)
    Z = half.rows.Z
    starts = half.starts.directions
    white = regularized.whitened(rng.standard_normal(starts.shape))
    sides = Z @ np.hstack([starts, white]).astype(Z.dtype) > 0
    sides = sides[:, both_sides(sides)]
    return normal_group_directions(Z, regularized, sides, 20)
