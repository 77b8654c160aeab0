"""Start directions that need no labels, and scores of their separation on held-out rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar._eigen import eigenpairs
from volmar.evidence import column_resolutions, dithered
from volmar.evidence.modes.valleys import valleys_at
from volmar.rows import RowSpace, Standardized, drawn_by_weight, take_rows
from volmar.rows.standardized import relative_scale
from volmar.separation.bound import best_splits
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.two_groups import mean_differences, two_means
from volmar.separation.wide_columns import WideColumns, wide_columns

# Rows per feature below which rows count as few.
ROWS_PER_FEATURE = 10
# Share of adjacent sorted values that must differ in a continuous feature; float32 has ties.
CONTINUOUS = 0.99
# Maximum relative difference of the standard deviations of features with a common scale.
ONE_UNIT = 1e-3
# Minimum and maximum number of rows to rank features and for a rough 2-means, and the number of
# entries that sets it between these limits.
MIN_ROWS, MAX_ROWS, MAX_ENTRIES = 125, 400, 16_000
# Maximum number of features for exact principal directions.
EXACT_UP_TO = 64
# Number of starts of 2-means: sides of principal directions, and pairs of rows.
N_PRINCIPAL, N_PAIRS = 3, 2
# Mass of the valleys that samples of a flat density have at random. Simulated means are 0.001 to
# 0.005 for 50 to 8,000 rows.
FLAT = 0.003
# With more columns than rows, number of candidate columns per selected column.
CANDIDATES = 16
# Weight of the regularised bound, which decides if there is no valley.
REGULARIZED = 0.1


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
        """Return w' diag(S) w for each column of W, S the covariance of the dithered features.

        The slice `some` selects the rows for the estimate.
        """
        noisy = self.dithered[some]
        if self.wide is None:
            return noisy.var(axis=0) @ W**2
        noise = 0.0 if self.dithered is self.Z else ((noisy - self.Z[some]) @ W).var(axis=0)
        return (W**2).sum(axis=0) + noise

    @property
    def are_few(self) -> bool:
        """Whether there are fewer than `ROWS_PER_FEATURE` rows per feature."""
        return len(self.Z) < ROWS_PER_FEATURE * self.Z.shape[1]


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
    return bool(np.ptp(scale) <= ONE_UNIT * scale.max())


class HeldOut(NamedTuple):
    """Scores of k directions on held-out rows: `score` ranks them, -inf without an allowed cut.

    `kappa2` is Theorem 2's bound on kappa^2, not regularised. `depth` is the relative depth of the
    valley at the cut: one minus the density there over that of the lower of the adjacent modes.
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
    depth = np.sqrt(np.maximum(valleys.mass - FLAT, 0.0))
    score = np.where(allowed, kappa2, 0.0) * depth + REGULARIZED * regularized
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
    n_few = int(np.clip(MAX_ENTRIES // p, MIN_ROWS, MAX_ROWS))
    few = slice(None, None, max(1, len(rows.Z) // n_few))
    values, noisy = rows.Z, rows.dithered[few]
    if rows.wide is not None:
        columns, values, noisy = rows.wide.candidates(CANDIDATES * quarter, few, rng)
    alone = held_out_scores(noisy, min_share, regularized.reg * noisy.var(axis=0)).score
    best = np.argsort(-alone, kind="stable")[:quarter]
    features = np.eye(p)[:, best] if rows.wide is None else rows.wide.directions(columns[best])
    ordered = np.sort(values[:, best], axis=0)
    is_continuous = (ordered[1:] > ordered[:-1]).mean(axis=0) > CONTINUOUS
    principal = _leading(regularized.correlation, min(p, 2 * quarter), rng)
    Z = rows.Z[few]
    means = regularized.solve(mean_differences(Z, _means_labels(Z, principal, rng)))
    if rows.scale is not None:
        if rows.wide is None:
            given = Z * rows.scale.astype(Z.dtype)
        else:
            given = rows.wide.in_own_units()[few]
        n_leading = min(given.shape[1], N_PRINCIPAL)
        leading = _leading(given.T @ given / len(given), n_leading, rng)
        labels = _means_labels(given, leading, rng)
        if rows.wide is None:
            between = (mean_differences(given, labels).T * rows.scale).T
        else:
            between = rows.wide.between(labels, few)
        means = np.hstack([means, regularized.solve(mean_differences(Z, labels)), between])
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
    if p <= EXACT_UP_TO:
        return np.linalg.eigh(correlation)[1][:, ::-1][:, :k]
    basis = rng.standard_normal((p, 2 * k))
    for _ in range(4):
        basis = linalg.qr(correlation @ basis, mode="economic")[0]
    vectors = eigenpairs(basis.T @ correlation @ basis)[1][:, -k:]
    return basis @ vectors[:, ::-1]
