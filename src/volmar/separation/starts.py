"""Where to start: directions that need no labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar._checks import fix_signs
from volmar.evidence import column_resolutions, dithered
from volmar.rows import Standardized, drawn_by_weight
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.held_out import held_out_scores
from volmar.separation.two_means import mean_differences, two_means

__all__ = ["StartRows", "Starts", "has_one_unit", "sample_size", "start_directions", "start_rows"]

# Features whose standard deviations differ by less than this share have one unit.
ONE_UNIT = 1e-3
# Rows to rank features by, and for a rough 2-means: so many entries, within these limits.
FEWEST_ROWS, MOST_ROWS, MOST_ENTRIES = 125, 500, 32_000
# Up to so many features their principal directions are computed exactly.
EXACT_UP_TO = 64
# Starts of 2-means: sides of principal directions, and pairs of rows.
N_PRINCIPAL, N_PAIRS = 3, 2


class StartRows(NamedTuple):
    """Rows to find starts in.

    Attributes
    ----------
    Z : ndarray of shape (n, p)
        In units of the features' standard deviations, centred.
    dithered : ndarray of shape (n, p)
        The same with noise of the width of each column's resolution.
    scale : ndarray of shape (p,) or None
        Those standard deviations, in the units of the user; None where all are the same.
    """

    Z: NDArray
    dithered: NDArray
    scale: NDArray | None


def start_rows(X: Any, z: Standardized, rng: np.random.Generator) -> tuple[StartRows, NDArray]:
    """Return a sample of the rows to find starts in, by weight, and the numbers of its rows."""
    n = z.rows.n_rows
    chosen = drawn_by_weight(n, z.rows.weights, sample_size(n, z.kept.size), rng)
    Z = z.transform(X[chosen])
    noisy = dithered(Z, column_resolutions(Z), rng)
    return StartRows(Z, noisy, None if has_one_unit(z) else z.scale[z.kept]), chosen


def has_one_unit(z: Standardized) -> bool:
    """Return whether the standard deviations of all features are (about) the same."""
    scale = z.scale[z.kept]
    return bool(np.ptp(scale) <= ONE_UNIT * scale.max())


class Starts(NamedTuple):
    """Directions to start from.

    Attributes
    ----------
    directions : ndarray of shape (p, m)
        Directions in standardised coordinates.
    stands_alone : bool ndarray of shape (m,)
        Those that may be the answer as they are, where rows are few: continuous features, and the
        difference of the means of 2-means in the user's units. A feature with ties has gaps of its
        own.
    """

    directions: NDArray
    stands_alone: NDArray


def sample_size(n_rows: int, n_features: int) -> int:
    """Rows of the race: 20 a feature, at least 4000, and no more than an eighth beyond that."""
    return min(n_rows, max(4000, min(20 * n_features, n_rows // 8)))


def start_directions(
    rows: StartRows,
    regularized: RegularizedCorrelation,
    n_starts: int,
    rng: np.random.Generator,
    min_share: float,
) -> Starts:
    """Return directions to race, about `n_starts`.

    Single features, the quarter of them that show two groups best by themselves; leading
    principal directions, half of them; the difference of the means of 2-means on standardised
    rows, and on those in the user's units where these differ, there also as it is; and random
    directions (R + reg I)^-1 g, which are what random labels would give.

    Parameters
    ----------
    rows : StartRows
        The rows.
    regularized : RegularizedCorrelation
        R + reg I.
    n_starts : int
        Number of directions.
    rng : Generator
        Draws the random ones.
    min_share : float
        Minimum share of a cluster.
    """
    p = rows.Z.shape[1]
    quarter = max(1, n_starts // 4)
    n_few = int(np.clip(MOST_ENTRIES // p, FEWEST_ROWS, MOST_ROWS))
    few = slice(None, None, max(1, len(rows.Z) // n_few))
    noisy = rows.dithered[few]
    alone = held_out_scores(noisy, min_share, regularized.reg * noisy.var(axis=0)).score
    best = np.argsort(-alone, kind="stable")[:quarter]
    features = np.eye(p)[:, best]
    ordered = np.sort(rows.Z[:, best], axis=0)
    is_continuous = (np.diff(ordered, axis=0) > 0).all(axis=0)
    principal = _leading(regularized.correlation, min(p, 2 * quarter), rng)
    Z = rows.Z[few]
    means = regularized.solve(mean_differences(Z, _means_labels(Z, principal, rng)))
    if rows.scale is not None:
        given = Z * rows.scale.astype(Z.dtype)
        leading = _leading(given.T @ given / len(given), min(p, N_PRINCIPAL), rng)
        labels = _means_labels(given, leading, rng)
        between = (mean_differences(given, labels).T * rows.scale).T
        means = np.hstack([means, regularized.solve(mean_differences(Z, labels)), between])
    n_random = max(0, n_starts - features.shape[1] - principal.shape[1] - means.shape[1])
    random = regularized.solve(rng.standard_normal((p, n_random)))
    directions = np.hstack([means, features, principal, random])
    stands_alone = np.zeros(directions.shape[1], dtype=bool)
    stands_alone[means.shape[1] : means.shape[1] + best.size] = is_continuous
    stands_alone[: means.shape[1]] = rows.scale is not None
    most = max(n_starts, 1)
    return Starts(directions[:, :most], stands_alone[:most])


def _means_labels(Z: NDArray, directions: NDArray, rng: np.random.Generator) -> NDArray:
    """Return the labels of 2-means as a column; none where all rows are the same."""
    Z = Z - Z.mean(axis=0)
    one, other = Z[rng.integers(0, len(Z), (2, N_PAIRS))]
    between = np.hstack([directions[:, :N_PRINCIPAL], (one - other).T])
    middle = np.zeros(between.shape[1])
    middle[-N_PAIRS:] = 0.5 * ((one**2).sum(axis=1) - (other**2).sum(axis=1))
    labels = two_means(Z, Z @ between.astype(Z.dtype, copy=False) > middle)
    return labels if labels.ndim == 2 else labels[:, None]


def _leading(correlation: NDArray, k: int, rng: np.random.Generator) -> NDArray:
    """Return k leading eigenvectors, roughly where there are many features: they only start."""
    p = correlation.shape[0]
    if p <= EXACT_UP_TO:
        return fix_signs(linalg.eigh(correlation, subset_by_index=(p - k, p - 1))[1])[:, ::-1]
    basis = rng.standard_normal((p, 2 * k))
    for _ in range(4):
        basis = linalg.qr(correlation @ basis, mode="economic")[0]
    vectors = linalg.eigh(basis.T @ correlation @ basis)[1][:, -k:]
    return fix_signs(basis @ vectors)[:, ::-1]
