"""Where to start: scale-free directions, raced on a sample and ranked on held-out rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.cluster import KMeans

from volmar.separation.bound import best_split, bound
from volmar.separation.gep import RegularizedCorrelation

# Enough rows to rank features by, and for a rough 2-means.
FEW_ROWS = 1000


def sample_size(n_rows: int, n_features: int) -> int:
    """Rows of the race: 20 a feature, at least 4000, and no more than an eighth beyond that."""
    return min(n_rows, max(4000, min(20 * n_features, n_rows // 8)))


def start_directions(
    Z: NDArray,
    regularized: RegularizedCorrelation,
    correlation: NDArray,
    n_starts: int,
    seed: int,
    min_share: float,
) -> NDArray:
    """Return directions to race, shape (p, m) with m about `n_starts`.

    A quarter each, none of them dependent on the features' scales: single features, those with
    the best bounds of their own; leading principal directions of the standardised rows; random
    directions (R + reg I)^-1 g, which are what random labels would give; and the difference of
    the means of a 2-means run on standardised rows takes the place of one of them.

    Parameters
    ----------
    Z : ndarray of shape (m, p)
        Standardised rows of the sample.
    regularized : RegularizedCorrelation
        Of all rows.
    correlation : ndarray of shape (p, p)
        Of all rows.
    n_starts : int
        How many.
    seed : int
        Seed of the random ones.
    min_share : float
        Least share of a cluster.
    """
    rng = np.random.default_rng(seed)
    p = Z.shape[1]
    quarter = max(1, n_starts // 4)
    few = Z[:: max(1, len(Z) // FEW_ROWS)]
    alone = _feature_bounds(few, regularized.matrix[0, 0], min_share)
    best = np.argsort(-alone, kind="stable")[:quarter]
    features = np.eye(p)[:, best]
    n_principal = min(p, 2 * quarter)
    principal = _leading(correlation, n_principal, rng)
    n_random = max(0, n_starts - features.shape[1] - n_principal - 1)
    random = regularized.solve(rng.standard_normal((p, n_random)))
    two_means = KMeans(2, n_init=1, random_state=int(rng.integers(2**31 - 1))).fit(few)
    difference = two_means.cluster_centers_[1] - two_means.cluster_centers_[0]
    kmeans = regularized.solve(difference)[:, None]
    return np.hstack([features, principal, kmeans, random])[:, : max(n_starts, 1)]


def _leading(correlation: NDArray, k: int, rng: np.random.Generator) -> NDArray:
    """Return k leading eigenvectors, roughly where there are many features: they only start."""
    p = correlation.shape[0]
    if p <= 300:
        return signed(linalg.eigh(correlation, subset_by_index=(p - k, p - 1))[1])
    basis = rng.standard_normal((p, 2 * k))
    for _ in range(4):
        basis = linalg.qr(correlation @ basis, mode="economic")[0]
    vectors = linalg.eigh(basis.T @ correlation @ basis)[1][:, -k:]
    return signed(basis @ vectors)


def signed(vectors: NDArray) -> NDArray:
    """Return columns whose first entry of (about) the largest modulus is positive.

    LAPACK's signs turn with the last digit of the matrix, and the clusters' names with them.
    """
    sizes = np.abs(vectors)
    first = np.argmax(sizes >= (1 - 1e-6) * sizes.max(axis=0), axis=0)
    return vectors * np.where(vectors[first, np.arange(first.size)] < 0, -1.0, 1.0)


def _feature_bounds(Z: NDArray, variance: float, min_share: float) -> NDArray:
    """Return the best bound of a cut of each feature alone, all features together."""
    n = len(Z)
    ordered = np.sort(Z.T.astype(np.float64), axis=1)
    ordered -= ordered.mean(axis=1, keepdims=True)
    below = np.arange(1.0, n)
    explained = np.cumsum(ordered, axis=1)[:, :-1] ** 2 / (below * (n - below) * variance)
    values = bound(explained, below / n)
    floor = max(1.0, min_share * n)
    values[:, (below < floor) | (n - below < floor)] = -np.inf
    return np.where(np.diff(ordered, axis=1) > 0, values, -np.inf).max(axis=1)


def race(
    Z: NDArray,
    regularized: RegularizedCorrelation,
    W: NDArray,
    min_share: float,
    seed: int,
) -> NDArray:
    """Run the alternation from every column of W on the sample; return the best direction.

    All directions go through the rows together, as matrix products. After two alternations, and
    after four more of the better quarter, they are ranked by their cross-fit bound: the plug-in
    bound of many features on few rows rises with every direction that fits their noise, and puts
    such directions before a real one.

    Returns
    -------
    ndarray of shape (p,)
        The winner.
    """
    half = np.random.default_rng(seed).permutation(len(Z)) < len(Z) // 2
    for n_rounds, n_kept in ((2, max(4, W.shape[1] // 4)), (4, 1)):
        for _ in range(n_rounds):
            masks = _best_masks(Z, regularized, W, min_share)
            masks = masks[:, _both_sides(masks)]
            if masks.shape[1] == 0:
                return W[:, 0]
            W = regularized.solve(_mean_differences(Z, masks))
        masks = _best_masks(Z, regularized, W, min_share)
        scores = cross_fit_bounds(Z, regularized, masks, half, min_share)
        W = W[:, np.argsort(-scores, kind="stable")[:n_kept]]
    return W[:, 0]


def cross_fit_bounds(
    Z: NDArray,
    regularized: RegularizedCorrelation,
    masks: NDArray,
    half: NDArray,
    min_share: float,
) -> NDArray:
    """Bound of each labelling's direction where it had no part in finding it.

    The direction is learned from the labels of one half of the rows, its best cut sought on the
    other half, and the two halves averaged. Its variance stays regularised, though nothing is
    fitted there but a threshold: a column of two values is separated without any variance left
    and would win against every split that many features agree on.
    """
    scores = np.zeros(masks.shape[1])
    for learn in (half, ~half):
        inside = masks[learn]
        usable = _both_sides(inside)
        W = regularized.solve(_mean_differences(Z[learn], inside[:, usable]))
        P = Z[~learn] @ W.astype(Z.dtype)
        P = P - P.mean(axis=0, dtype=np.float64)
        variances = P.var(axis=0) + regularized.reg * (W**2).sum(axis=0)
        found = np.full(masks.shape[1], -np.inf)
        found[usable] = [
            best_split(P[:, j], None, v, min_share * len(P)).kappa2
            for j, v in enumerate(variances)
        ]
        scores += 0.5 * found
    return scores


def _best_masks(
    Z: NDArray, regularized: RegularizedCorrelation, W: NDArray, min_share: float
) -> NDArray:
    """Labels of the best cut along each direction, shape (m, k); all False without any."""
    P = Z @ W.astype(Z.dtype)
    P = P - P.mean(axis=0, dtype=np.float64)
    variances = np.einsum("ij,ij->j", W, regularized.matrix @ W)
    cuts = [best_split(P[:, j], None, v, min_share * len(Z)) for j, v in enumerate(variances)]
    thresholds = [cut.threshold if np.isfinite(cut.kappa2) else np.inf for cut in cuts]
    return np.array(thresholds) < P


def _both_sides(masks: NDArray) -> NDArray:
    """Which columns have rows on both sides."""
    return np.asarray(masks.any(axis=0) & ~masks.all(axis=0))


def _mean_differences(Z: NDArray, masks: NDArray) -> NDArray:
    """Mean of the masked rows less that of the others, for each column of `masks`."""
    sizes = masks.sum(axis=0, dtype=np.float64)
    sums = Z.T @ masks.astype(Z.dtype) - np.outer(Z.mean(axis=0), sizes)
    return sums / (sizes * (1 - sizes / len(Z)))
