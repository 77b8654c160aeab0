"""Exchanges of clusters: merge two and split another, if that improves the separation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from volmar.rows import (
    ClusterSums,
    Standardized,
    cluster_sums,
    own_scores,
    sums_by_discriminants,
)
from volmar.separation.discriminants import (
    discriminants_of,
    log_volume,
    refine_from,
    shares_and_means,
    squared_distances,
)
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.relabelling import MultiwaySeparationResult
from volmar.solvers import Status

# Maximum number of rounds of exchanges, and steps of 2-means within each cluster per round.
MAX_ROUNDS, MEANS_STEPS = 20, 8
# Maximum number of times that clusters below the minimum size are replaced.
MAX_REPAIRS = 5
# Minimum decrease of the log determinant by an exchange; less may be due to the sample.
MIN_GAIN = 1e-3
# If the exchanges of a round fail together, the best of them, this share, are tried next.
TRIED_NEXT = 0.25


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
    alternation continues, at most `MAX_REPAIRS` times. `history` is empty if no step is valid.
    """
    rng = np.random.default_rng(seed)
    ends["min_weight"] = min_weight
    sums = cluster_sums(z.rows, labels, k)
    best: MultiwaySeparationResult | None = None
    for _ in range(MAX_REPAIRS + 1):
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
    halves = split_clusters(z, regularized, merged, rng, min_weight)
    chosen = np.argsort(-halves.gain, kind="stable")[: small.size]
    if not (halves.gain[chosen] > 0.0).all():
        return None
    second = np.full(large.size, -1)
    second[chosen] = small
    other = second[merged.labels]
    labels = np.where(halves.side & (other >= 0), other, large[merged.labels])
    return cluster_sums(z.rows, labels, k)


class Halves(NamedTuple):
    r"""Two halves of every cluster: the side of each row, and the `gain` (k,) of each split.

    The gain is :math:`g = r_a r_b / (r_a + r_b) \, \delta_{ab}^2`, with r the shares of the
    halves and :math:`\delta^2` the squared distance of their means; 0 if a half is too small.
    """

    side: NDArray
    gain: NDArray


class Exchange(NamedTuple):
    """Clusters `one` and `other` are merged; half of `split` gets the number of `other`."""

    one: int
    other: int
    split: int


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
    for _ in range(MAX_ROUNDS):
        halves = split_clusters(z, regularized, sums, rng, min_weight)
        chosen = _best_exchanges(z, regularized, sums, halves.gain, limit)
        while chosen:
            labels = _exchanged(best.labels, halves.side, chosen)
            first = cluster_sums(z.rows, labels, k)
            found, after = refine_from(z, regularized, first, min_weight=min_weight, **ends)
            lower = log_volume(regularized, *shares_and_means(z, after))
            if found.history and lower < volume - MIN_GAIN:
                break
            chosen = chosen[: int(TRIED_NEXT * len(chosen)) or len(chosen) == 2]
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
) -> Halves:
    """Split every cluster in two by 2-means in the common metric, with two passes per step.

    The first halves are random. The difference of their means is a random direction with the
    covariance of the cluster, so a cluster of two groups is likely to be cut between them.
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
    return Halves(side, gain)


def _best_exchanges(
    z: Standardized,
    regularized: RegularizedCorrelation,
    sums: ClusterSums,
    gain: NDArray,
    limit: int,
) -> list[Exchange]:
    """Pair the best merges with the best splits: no cluster twice, at most `limit` pairs."""
    k = gain.size
    shares, means = shares_and_means(z, sums)
    loss = squared_distances(regularized, shares, means)
    loss *= shares[:, None] * shares / (shares[:, None] + shares)
    one, other = np.triu_indices(k, 1)
    order = np.argsort(loss[one, other], kind="stable")
    lowered = -np.log1p(-np.minimum(gain, 1.0 - 1e-12))
    best_first = np.argsort(-lowered, kind="stable").tolist()
    taken = np.zeros(k, dtype=bool)
    chosen: list[Exchange] = []
    for i, j in zip(one[order].tolist(), other[order].tolist(), strict=True):
        if len(chosen) == limit:
            break
        if taken[i] or taken[j]:
            continue
        split = next((s for s in best_first if not taken[s] and s not in (i, j)), None)
        if split is None or lowered[split] - np.log1p(loss[i, j]) <= MIN_GAIN:
            break
        taken[[i, j, split]] = True
        chosen.append(Exchange(i, j, split))
    return chosen


def _exchanged(labels: NDArray, side: NDArray, chosen: list[Exchange]) -> NDArray:
    """Return the labels after exchanges of different clusters."""
    new = labels.copy()
    for one, other, split in chosen:
        new[labels == other] = one
        new[(labels == split) & side] = other
    return new
