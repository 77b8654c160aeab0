"""More than two clusters: competing linear discriminants, their starts and exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from volmar._warn import quiet_fit
from volmar.rows.anywhere import drawn_rows
from volmar.rows.cluster_sums import ClusterSums, cluster_sums, own_scores, sums_by_discriminants
from volmar.rows.standardized import RowSpace, Standardized, relative_scale
from volmar.separation.gep import LARGEST_REG, RegularizedCorrelation
from volmar.separation.problem import SeparatingPlanes, SeparationRows
from volmar.separation.race import has_one_unit
from volmar.solvers import Result, Status

# ------- fixed-point iteration for k clusters: directions from labels, and labels from directions


@dataclass(frozen=True, repr=False)
class MultiwaySeparationResult(Result):
    r"""Clusters that are a fixed point of their linear discriminants.

    `objective` is minus the separation :math:`tr((R + \lambda I)^{-1} B)` of the clusters, with B
    the covariance of their means, and the residual "moves" the share of the rows that the last
    step relabelled. `directions` (p, m) are in the standardised coordinates z.
    """

    _per_cluster: ClassVar = {"directions": 1, "offsets": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    directions: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    offsets: NDArray = field(default_factory=lambda: np.empty(0))


def shares_and_means(z: Standardized, found: ClusterSums) -> tuple[NDArray, NDArray]:
    """Return the shares (k,) of clusters and their means (p, k) in z."""
    means = z.from_rows((found.vectors / found.weight[:, None]).T)
    return found.weight / z.rows.total_weight, means


def refine_clusters(
    z: Standardized, regularized: RegularizedCorrelation, labels: Any, k: int, **ends: Any
) -> MultiwaySeparationResult:
    """Return `refine_from` of given labels, whose sums take one more pass."""
    return refine_from(z, regularized, cluster_sums(z.rows, labels, k), **ends)[0]


def refine_from(
    z: Standardized,
    regularized: RegularizedCorrelation,
    start: ClusterSums,
    relabel: Callable[..., ClusterSums] = sums_by_discriminants,
    *,
    min_weight: float | NDArray,
    max_iter: int = 100,
    tol: float = 1e-3,
    keeps_best: bool = False,
) -> tuple[MultiwaySeparationResult, ClusterSums]:
    r"""Alternate between linear discriminants of k clusters and labels.

    For a pair of clusters, Theorem 2's bound is largest along :math:`(S + \lambda I)^{-1}
    (\mu_i - \mu_j)`, S the covariance within them. With S pooled over all clusters, a row is on
    the side of cluster j for every pair if j has the largest of

    .. math:: \delta_j(z) = \mu_j' (S + \lambda I)^{-1} (z - \tfrac12 \mu_j).

    S is the correlation R minus the covariance of the means, :math:`U U'` with :math:`U = (\sqrt{
    r_j} \mu_j)`. Hence :math:`(S + \lambda I)^{-1} U = (R + \lambda I)^{-1} U (I - U'(R +
    \lambda I)^{-1} U)^{-1}`, which takes k solves with the factor of :math:`R + \lambda I`. A step
    takes one pass over the rows. `regularized` may have other units than z, which then replace I.
    Up to rounding, no step increases the determinant of :math:`S + \lambda I` (see
    `exchange_clusters`).

    This is a fixed-point iteration, not a descent. It ends when a step relabels at most a share
    `tol` of the rows, if labels recur, or before a step that would leave a cluster with less than
    `min_weight` (one value, or one per cluster). The labels of the last valid step are returned
    with the directions that give them, and their sums. If no step is valid, `history` is empty and
    the labels are those of the start. With `keeps_best`, a run that does not converge returns the
    step with the largest separation. `relabel` returns labels by the discriminants and their sums.
    """
    seen: set[bytes] = set()
    history: list[float] = []
    status, n_iter, sums = Status.MAX_ITER, 0, start
    nothing = np.empty((0, 0)), np.empty(0), 0.0, start, 1.0
    kept, best = nothing, None
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        directions, offsets, value = discriminants_of(regularized, *shares_and_means(z, sums))
        new = relabel(z.rows, z.of_rows(directions), offsets, sums.labels)
        if (new.weight < np.maximum(min_weight, np.finfo(float).tiny)).any():
            status = Status.DEGENERATE
            break
        sums, moves = new, new.moved / z.rows.n_rows
        kept = directions, offsets, value, sums, moves
        if keeps_best and (best is None or value > best[2]):
            best = kept
        history.append(-value)
        if moves <= tol:
            status = Status.CONVERGED
            break
        if new.key in seen:
            status = Status.CYCLE
            break
        seen.add(new.key)
    if best is not None and not status.ok:
        kept = best
    directions, offsets, value, sums, moves = kept
    result = MultiwaySeparationResult(
        objective=-value if history else 0.0,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=sums.labels,
        directions=directions,
        offsets=offsets,
    )
    return result, sums


def pooled_separation(
    z: Standardized, regularized: RegularizedCorrelation, labels: NDArray, k: int
) -> float:
    r"""Return the mean separation of k clusters, each from its least separated neighbour.

    This is `volmar.metrics.separation_score` with a common covariance S of all clusters instead of
    one per pair. With :math:`\delta_{ij}^2 = (\mu_i - \mu_j)'(S + \lambda I)^{-1}(\mu_i -
    \mu_j)`, Theorem 2's bound of a pair is :math:`\kappa_{ij}^2 = \tfrac12 \delta_{ij}^2 \min(r_i,
    r_j) / (r_i + r_j)`. The minimum of :math:`\kappa_{ij}^2 / (1 + \kappa_{ij}^2)` over j is
    averaged over the clusters i, weighted by size. Takes one pass over the rows for any k.
    """
    shares, means = shares_and_means(z, cluster_sums(z.rows, labels, k))
    distance = squared_distances(regularized, shares, means)
    smaller = np.minimum(shares[:, None], shares) / (shares[:, None] + shares)
    kappa2 = 0.5 * distance * smaller
    np.fill_diagonal(kappa2, np.inf)
    worst = kappa2.min(axis=1)
    return float(shares @ (worst / (1.0 + worst)))


def squared_distances(
    regularized: RegularizedCorrelation, shares: NDArray, means: NDArray
) -> NDArray:
    r"""Return :math:`(\mu_i - \mu_j)'(S + \lambda I)^{-1}(\mu_i - \mu_j)` of all pairs, (k, k)."""
    inner = means.T @ discriminants_of(regularized, shares, means)[0]
    square = inner.diagonal()
    return np.maximum(square[:, None] + square - inner - inner.T, 0.0)


def log_volume(regularized: RegularizedCorrelation, shares: NDArray, means: NDArray) -> float:
    r"""Return :math:`\log |S + \lambda I| - \log |R + \lambda I|`, from a k by k matrix."""
    U = means * np.sqrt(shares)
    inside = np.eye(shares.size) - U.T @ regularized.solve(U)
    return float(np.linalg.slogdet(inside)[1])


def discriminants_of(
    regularized: RegularizedCorrelation, shares: NDArray, means: NDArray
) -> tuple[NDArray, NDArray, float]:
    """Return directions (p, k) and offsets (k,) of `refine_from`, and tr((R + reg I)^-1 B)."""
    roots = np.sqrt(shares)
    U = means * roots
    image = regularized.solve(U)
    inner = U.T @ image
    directions = linalg.solve(np.eye(shares.size) - inner, image.T, assume_a="sym").T / roots
    offsets = -0.5 * np.einsum("pj,pj->j", means, directions)
    return directions, offsets, float(np.trace(inner))


# ------------ exchanges of clusters: merge two and split another, if that improves the separation

# Steps of 2-means within each cluster.
MEANS_STEPS = 8
# Minimum decrease of the log determinant by an exchange; less may be due to the sample.
MIN_GAIN = 1e-3


def settle_clusters(
    z: Standardized,
    regularized: RegularizedCorrelation,
    labels: NDArray,
    k: int,
    seed: int,
    *,
    min_weight: float,
    **ends: Any,
) -> MultiwaySeparationResult:
    """Alternate discriminants and labels (`refine_from`), and replace clusters that are too small.

    A step that would leave a cluster with less than `min_weight` ends the alternation. With many
    clusters this nearly always happens, because k-means makes clusters of a few outlying rows.
    Here the rows of such a cluster join the nearest one, another cluster is split instead, and the
    alternation continues, at most five times. `history` is empty if no step is valid.
    """
    rng = np.random.default_rng(seed)
    ends["min_weight"] = min_weight
    sums = cluster_sums(z.rows, labels, k)
    best: MultiwaySeparationResult | None = None
    for _ in range(6):
        repaired = _without_small(z, regularized, sums, rng, min_weight)
        if repaired is None:
            break
        result, sums = refine_from(z, regularized, repaired, **ends)
        if best is None or result.history:
            best = result
        if result.status is not Status.DEGENERATE:
            break
        shares, means = shares_and_means(z, sums)
        directions, offsets, _ = discriminants_of(regularized, shares, means)
        sums = sums_by_discriminants(z.rows, z.of_rows(directions), offsets, sums.labels)
    if best is None:
        return MultiwaySeparationResult(objective=0.0, status=Status.DEGENERATE, labels=labels)
    return best


def _without_small(
    z: Standardized,
    regularized: RegularizedCorrelation,
    sums: ClusterSums,
    rng: np.random.Generator,
    min_weight: float,
) -> ClusterSums | None:
    """Merge small clusters with the nearest, and split as many others; None if that fails."""
    k = sums.weight.size
    is_small = sums.weight < max(min_weight, np.finfo(float).tiny)
    if not is_small.any():
        return sums
    small, large = np.flatnonzero(is_small), np.flatnonzero(~is_small)
    if large.size < small.size:
        return None
    number = np.empty(k, dtype=np.int64)  # new number of each cluster among the large ones
    number[large] = np.arange(large.size)
    means = z.from_rows((sums.vectors / np.maximum(sums.weight, 1e-300)[:, None]).T)
    image = regularized.solve(means[:, large])
    square = np.einsum("pj,pj->j", means[:, large], image)
    number[small] = np.argmin(square - 2.0 * means[:, small].T @ image, axis=1)
    merged = cluster_sums(z.rows, number[sums.labels], large.size)
    side, gain = split_clusters(z, regularized, merged, rng, min_weight)
    chosen = np.argsort(-gain, kind="stable")[: small.size]
    if not (gain[chosen] > 0.0).all():
        return None
    second = np.full(large.size, -1)
    second[chosen] = small
    other = second[merged.labels]
    labels = np.where(side & (other >= 0), other, large[merged.labels])
    return cluster_sums(z.rows, labels, k)


def exchange_clusters(
    z: Standardized,
    regularized: RegularizedCorrelation,
    start: MultiwaySeparationResult,
    k: int,
    seed: int,
    *,
    min_weight: float,
    **ends: Any,
) -> MultiwaySeparationResult:
    r"""Merge pairs of clusters and split others, as long as the clusters become denser.

    Each step of `refine_from` decreases :math:`\log |S + \lambda\Lambda|`, with S the covariance
    within clusters. The logarithm is concave in S, so assigning rows to the nearest mean in the
    metric :math:`(S + \lambda\Lambda)^{-1}` decreases it by at least the decrease of the trace in
    that metric. These steps only move the borders of clusters. With many clusters they nearly
    always end with some clusters that contain two groups and others that contain half a group.
    Splitting a cluster or merging two changes S by a matrix of rank one, and the logarithm by

    .. math:: \log(1 - g), \quad \log(1 + l), \qquad
              g, l = \frac{r_a r_b}{r_a + r_b} \delta_{ab}^2,

    with :math:`\delta_{ab}^2` the squared distance of the two means in the metric. All splits are
    compared in :math:`O(n d)` for any k, and all merges in :math:`O(d k^2)`. Exchanges of
    different clusters are tried together. If the determinant is not lower once the labels have
    converged, the best quarter of them is tried, and so on. A round without success ends the
    search. Returns `start` itself if nothing is exchanged.

    `start` is a result of `refine_from` with the same `regularized`, `min_weight` and `ends`.
    """
    rng = np.random.default_rng(seed)
    best, sums = start, cluster_sums(z.rows, start.labels, k)
    volume = log_volume(regularized, *shares_and_means(z, sums))
    limit = max(1, k // 2)
    for _ in range(20):
        side, gain = split_clusters(z, regularized, sums, rng, min_weight)
        chosen = _best_exchanges(z, regularized, sums, gain, limit)
        while chosen:
            labels = best.labels.copy()
            for one, other, split in chosen:
                labels[best.labels == other] = one
                labels[(best.labels == split) & side] = other
            first = cluster_sums(z.rows, labels, k)
            found, after = refine_from(z, regularized, first, min_weight=min_weight, **ends)
            lower = log_volume(regularized, *shares_and_means(z, after))
            if found.history and lower < volume - MIN_GAIN:
                break
            chosen = chosen[: int(0.25 * len(chosen)) or len(chosen) == 2]
        if not chosen:
            break
        best, sums, volume, limit = found, after, lower, 2 * len(chosen)
    return best


def split_clusters(
    z: Standardized,
    regularized: RegularizedCorrelation,
    sums: ClusterSums,
    rng: np.random.Generator,
    min_weight: float,
) -> tuple[NDArray, NDArray]:
    """Split every cluster in two by 2-means in the common metric, with two passes per step.

    The first halves are random. The difference of their means is a random direction with the
    covariance of the cluster, so a cluster of two groups is likely to be cut between them. Returns
    the side of each row, and the gain g (k,) of each split; 0 if a half is too small.
    """
    labels, k = sums.labels, sums.weight.size
    shares, means = shares_and_means(z, sums)
    within = regularized.matrix - (means * shares) @ means.T
    factor, info = lapack.dpotrf(within, lower=1)
    side = rng.random(labels.size) < 0.5
    gain, middle = np.zeros(k), means
    for step in range(MEANS_STEPS + 1):
        found = cluster_sums(z.rows, 2 * labels + side, 2 * k)
        weight = found.weight.reshape(k, 2)
        if info != 0 or not (weight > 0).any():
            break
        both = z.from_rows((found.vectors / np.maximum(found.weight, 1e-300)[:, None]).T)
        below, above = both[:, ::2], both[:, 1::2]
        difference = np.where((weight > 0).all(axis=1), above - below, 0.0)
        W = lapack.dpotrs(factor, difference, lower=1)[0]
        if step == MEANS_STEPS:
            harmonic = weight.prod(axis=1) / weight.sum(axis=1) / z.rows.total_weight
            gain = harmonic * np.einsum("pj,pj->j", difference, W)
            gain[(weight < max(min_weight, np.finfo(float).tiny)).any(axis=1)] = 0.0
            break
        if step > 0:
            middle = 0.5 * (below + above)
        cuts = np.einsum("pj,pj->j", middle, W)
        side = own_scores(z.rows, z.of_rows(W), labels) > cuts[labels]
    return side, gain


def _best_exchanges(
    z: Standardized,
    regularized: RegularizedCorrelation,
    sums: ClusterSums,
    gain: NDArray,
    limit: int,
) -> list[tuple[int, int, int]]:
    """Pair the best merges of two clusters with the best splits: no cluster twice."""
    k = gain.size
    shares, means = shares_and_means(z, sums)
    loss = squared_distances(regularized, shares, means)
    loss *= shares[:, None] * shares / (shares[:, None] + shares)
    one, other = np.triu_indices(k, 1)
    order = np.argsort(loss[one, other], kind="stable")
    lowered = -np.log1p(-np.minimum(gain, 1.0 - 1e-12))
    best_first = np.argsort(-lowered, kind="stable").tolist()
    taken = np.zeros(k, dtype=bool)
    chosen: list[tuple[int, int, int]] = []
    for i, j in zip(one[order].tolist(), other[order].tolist(), strict=True):
        if len(chosen) == limit:
            break
        if taken[i] or taken[j]:
            continue
        split = next((s for s in best_first if not taken[s] and s not in (i, j)), None)
        if split is None or lowered[split] - np.log1p(loss[i, j]) <= MIN_GAIN:
            break
        taken[[i, j, split]] = True
        chosen.append((i, j, split))
    return chosen


# ---------- more than two clusters: k-means starts, and leaves of a tree refined by discriminants

# Number of clusters from which single starts matter less, because clusters are exchanged.
MANY_CLUSTERS = 20


def k_means_labels(
    X: Any, k: int, weights: NDArray | None, *, n_init: int, seed: int, chosen: Any = None
) -> NDArray:
    """Return the labels of k-means, fitted to the `chosen` rows; some clusters may be missing."""
    model = KMeans(k, n_init=n_init, random_state=seed)
    if chosen is None:
        return quiet_fit(model, X, weights).labels_  # the caller counts the clusters
    few = None if weights is None else weights[chosen]
    return quiet_fit(model, X[chosen], few).predict(X)


def k_means_starts(rows: SeparationRows, k: int, seed: int) -> list[NDArray]:
    """Return the labels of k-means on the rows as given, and on the standardised rows.

    The centres are fitted to a sample. A start with fewer than k clusters is omitted, and so is
    the second start if all features have the same scale.
    """
    z, weights = rows.z, rows.z.rows.weights
    rng = np.random.default_rng(seed)
    chosen = drawn_rows(z.rows.n_rows, weights, max(4000, 40 * k), rng)
    seed = int(rng.integers(2**31 - 1))
    n_init = 3 if k < MANY_CLUSTERS else 1
    starts: list[NDArray] = []
    for own_units in (True, False):
        if starts and has_one_unit(z):
            break
        seen = rows.given if own_units else rows.scaled
        labels = k_means_labels(seen, k, weights, n_init=n_init, seed=seed, chosen=chosen)
        if np.count_nonzero(np.bincount(labels, weights, k)) == k:
            starts.append(labels.astype(np.int64))
    return starts


class Refined(NamedTuple):
    """Refined clusters, and whether they were regularised in the user's units."""

    result: MultiwaySeparationResult
    in_own_units: bool = False


def refine_leaves(
    rows: SeparationRows,
    reg: float,
    starts: Sequence[NDArray],
    k: int,
    *,
    seed: int | None = None,
    **ends: Any,
) -> Refined | None:
    """Let all clusters compete for all rows by their discriminants; return the best result.

    The first of `starts` are the leaves of a tree; clusters are numbered like them. Returns None
    if no start has a valid step: then the leaves are the answer. With a `seed` the search is
    wider: discriminants are also regularised in the user's units (`regularized_by`), clusters that
    become too small are replaced (`settle_clusters`), and clusters of the best separated results
    are exchanged (`exchange_clusters`).
    """
    z, leaves = rows.z, starts[0]
    # Regularisation for comparing starts, as in `volmar.metrics.separation_score`.
    judge = RegularizedCorrelation(z.correlation, 0.1)
    ends["min_weight"] = rows.min_weight

    def score(result: MultiwaySeparationResult) -> float:
        return pooled_separation(z, judge, result.labels, k)

    found: list[Refined] = []
    for own in (False, True) if seed is not None and has_own_units(z) else (False,):
        metric = regularized_by(z, reg, in_own_units=own)
        for labels in starts:
            if seed is None:
                result = refine_clusters(z, metric, labels, k, **ends)
            else:
                result = settle_clusters(z, metric, labels, k, seed, **ends)
            found += [Refined(result, own)] if result.history else []
    if not found:
        return None
    # The three best separated results are searched for exchanges of clusters.
    ranked = sorted(((score(one.result), i) for i, one in enumerate(found)), reverse=True)
    if seed is not None:
        for _, i in ranked[:3]:
            result, own = found[i]
            metric = regularized_by(z, reg, in_own_units=own)
            other = exchange_clusters(z, metric, result, k, seed, **ends)
            if other is not result:
                found.append(Refined(other, own))
                ranked.append((score(other), len(found) - 1))
    # Ties go to the first result: the leaves come before other starts.
    best = found[max(ranked, key=lambda one: (one[0], -one[1]))[1]]
    # Clusters are numbered like the leaves with which they share the most rows in total.
    pairs = leaves * k + best.result.labels
    shared = np.bincount(pairs, z.rows.weights, minlength=k * k).reshape(k, k)
    matched = linear_sum_assignment(shared, maximize=True)[1]
    return best._replace(result=best.result.renumbered(matched))


def has_own_units(z: Standardized) -> bool:
    """Return whether the columns of z are features whose scales in the user's units differ."""
    return not isinstance(z, RowSpace) and not has_one_unit(z)


def regularized_by(
    z: Standardized, reg: float, *, in_own_units: bool = False
) -> RegularizedCorrelation:
    r"""Return :math:`R + \lambda\Lambda` for discriminants, in z.

    As in the paper, :math:`\Lambda` is the variance of each feature, the identity in z. With
    `in_own_units` it is the mean of these variances v for all features, which in z is
    :math:`\bar v / v_j`. Then columns with a common unit and a small variance are not magnified;
    pixels or coordinates of an embedding may have one because they contain little information.
    """
    if not in_own_units:
        return RegularizedCorrelation(z.correlation, reg)
    variances = relative_scale(z.scale[z.kept]) ** 2
    mean = float(variances.mean())
    units = np.minimum(mean / np.maximum(variances, mean / LARGEST_REG), LARGEST_REG)
    return RegularizedCorrelation(z.correlation, reg, units)


def refine_on_all(
    sampled: SeparationRows, rows: SeparationRows, reg: float, found: Refined, **ends: Any
) -> tuple[MultiwaySeparationResult, ClusterSums]:
    """Continue from discriminants of a sample with all rows: a pass to start, and one per step."""
    best = found.result
    coefficients = sampled.z.coefficients(best.directions)
    offsets = best.offsets + (rows.z.mean - sampled.z.mean) @ coefficients
    directions = rows.z.direction(coefficients)
    start = sums_by_discriminants(rows.z.rows, rows.z.of_rows(directions), offsets, None)
    own = found.in_own_units and has_own_units(rows.z)
    matrix = regularized_by(rows.z, reg, in_own_units=own)
    result, sums = refine_from(rows.z, matrix, start, min_weight=rows.min_weight, **ends)
    if result.history:
        return result, sums
    # No valid step: return the discriminants of the sample, in z of all rows.
    return replace(best, labels=start.labels, directions=directions, offsets=offsets), start


class LargestDiscriminant:
    """Assigns rows to the largest of k discriminants; a class, so that dask can pickle it."""

    def __init__(self, planes: SeparatingPlanes):
        self.planes = planes

    def __call__(self, X: Any) -> NDArray:
        """Return the clusters of dense or CSR rows."""
        return np.argmax(self.planes(X), axis=1)
