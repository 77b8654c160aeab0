"""More than two clusters: starts by k-means, and leaves of a tree refined by discriminants."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from volmar.base.splitting import CellSplit
from volmar.metrics import separation_along
from volmar.rows import (
    ClusterSums,
    Standardized,
    cluster_sums,
    drawn_rows,
    sums_by_discriminants,
)
from volmar.separation.gep import RegularizedCorrelation, SeparationResult
from volmar.separation.problem import SeparatingPlanes, SeparationRows
from volmar.separation.relabelling import MultiwaySeparationResult, Step, relabel_until_settled
from volmar.separation.starts import has_one_unit

# Rows and restarts of k-means, a start of more than two clusters.
MEANS_ROWS, MEANS_STARTS = 4000, 3
# Share of its rows that each cluster of "auto" keeps where all compete for all rows.
KEPT = 0.8
# Regularisation with which starts are compared: that of `volmar.metrics.separation_score`.
JUDGED_REG = 0.1


def k_means_labels(
    X: Any, k: int, weights: NDArray | None, *, n_init: int, seed: int, chosen: Any = None
) -> NDArray:
    """Return the labels of k-means; with few different rows some of the k may be missing.

    `chosen` are the rows that the centres are found from, all if it is None.
    """
    model = KMeans(k, n_init=n_init, random_state=seed)
    with warnings.catch_warnings():
        # The caller counts the clusters itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if chosen is None:
            return model.fit_predict(X, sample_weight=weights)
        few = None if weights is None else weights[chosen]
        return model.fit(X[chosen], sample_weight=few).predict(X)


def k_means_starts(rows: SeparationRows, k: int, seed: int) -> list[NDArray]:
    """Return the labels of k-means on the rows as they are given, and on standardised rows.

    Centres are those of a sample. A start with fewer than k clusters is left out, and so is the
    second where all features have one unit.
    """
    z, weights = rows.z, rows.z.rows.weights
    rng = np.random.default_rng(seed)
    chosen = drawn_rows(z.rows.n_rows, weights, MEANS_ROWS, rng)
    seed = int(rng.integers(2**31 - 1))
    starts: list[NDArray] = []
    for own_units in (True, False):
        if starts and has_one_unit(z):
            break
        seen = rows.given if own_units else rows.scaled
        labels = k_means_labels(seen, k, weights, n_init=MEANS_STARTS, seed=seed, chosen=chosen)
        if np.count_nonzero(np.bincount(labels, weights, k)) == k:
            starts.append(labels.astype(np.int64))
    return starts


def refine_leaves(
    rows: SeparationRows,
    reg: float,
    starts: Sequence[NDArray],
    k: int,
    *,
    keeps: bool,
    **ends: Any,
) -> MultiwaySeparationResult | None:
    """Let all clusters compete for all rows by their discriminants, and take the best start.

    The first of `starts` are the leaves of a tree, whose numbers the clusters get. With `keeps`
    the leaves are the answer where one would lose many of its rows; where they are, None is
    returned.
    """
    z, leaves = rows.z, starts[0]
    regularized = RegularizedCorrelation(z.correlation, reg)
    found = [
        refine_clusters(z, regularized, labels, k, min_weight=rows.min_weight, **ends)
        for labels in starts
    ]
    results = [result for result in found if result.history]
    if not results or (keeps and not _are_kept(leaves, results[0].labels, k)):
        return None
    judge = RegularizedCorrelation(z.correlation, JUDGED_REG)
    best = max(results, key=lambda one: pooled_separation(z, judge, one.labels, k))
    return best.renumbered(_matched(leaves, best.labels, z.rows.weights, k))


def _are_kept(labels: NDArray, refined: NDArray, k: int) -> bool:
    """Whether each of k clusters still has most of its rows, and few others."""
    both = np.bincount(labels[labels == refined], minlength=k)
    larger = np.maximum(np.bincount(labels, minlength=k), np.bincount(refined, minlength=k))
    return bool((both >= KEPT * larger).all())


def _matched(leaves: NDArray, labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Return for each of k leaves of the tree the cluster that has most of its rows."""
    shared = np.bincount(leaves * k + labels, weights, minlength=k * k).reshape(k, k)
    return linear_sum_assignment(shared, maximize=True)[1]


def hyperplane_in_valley(z: Standardized, split: CellSplit, reg: float) -> SeparationResult:
    """Return the result of a hyperplane that lies in a valley, and not at the bound's best.

    The bound prefers clusters of equal size, and would leave a small one.
    """
    normal = split.coef_[0]
    w = z.direction(normal)
    labels = split.labels_.astype(bool)
    return SeparationResult(
        objective=-separation_along(z.scores(w), labels, z.rows.weights),
        labels=labels,
        w=w,
        threshold=-float(split.intercept_[0]) - float(normal @ z.mean),
        reg=reg,
    )


def _means(z: Standardized, found: ClusterSums) -> tuple[NDArray, NDArray]:
    """Return shares (k,) and means (p, k) of clusters in z."""
    means = z.from_rows((found.vectors / found.weight[:, None]).T)
    return found.weight / z.rows.total_weight, means


def refine_clusters(
    z: Standardized, regularized: RegularizedCorrelation, labels: Any, k: int, **ends: Any
) -> MultiwaySeparationResult:
    """Alternate linear discriminants of k clusters and their labels, from given labels.

    See `refine_from`; the sums of the start take another pass.
    """
    return refine_from(z, regularized, cluster_sums(z.rows, labels, k), **ends)[0]


def refine_from(
    z: Standardized,
    regularized: RegularizedCorrelation,
    start: ClusterSums,
    relabel: Callable[..., ClusterSums] = sums_by_discriminants,
    **ends: Any,
) -> tuple[MultiwaySeparationResult, ClusterSums]:
    r"""Alternate linear discriminants of k clusters and their labels.

    For a pair of clusters, Theorem 2's bound is largest along :math:`(S + \lambda I)^{-1}
    (\mu_i - \mu_j)`, S the covariance within them. Pooled over all clusters S is one matrix for
    all pairs, and the side of a row that most pairs agree on is the largest of

    .. math:: \delta_j(z) = \mu_j' (S + \lambda I)^{-1} (z - \tfrac12 \mu_j).

    S is the correlation R less the covariance of the means, :math:`U U'` with :math:`U = (\sqrt{
    r_j} \mu_j)`, so that :math:`(S + \lambda I)^{-1} U = (R + \lambda I)^{-1} U (I - U'(R +
    \lambda I)^{-1} U)^{-1}` takes k solves with the one factor that there is. One pass over the
    rows a step. `relabel_until_settled` takes `ends`, and says how the iteration ends. The sums
    of the labels that hold are returned as well. `relabel` gives labels by the discriminants, and
    their sums (as `sums_by_discriminants`).
    """
    found = [start]

    def step(labels: Any) -> Step:
        shares, means = _means(z, found[-1])
        directions, offsets, separation = discriminants_of(regularized, shares, means)
        new = relabel(z.rows, z.of_rows(directions), offsets, labels)
        found[:] = [found[-1], new]
        moves = new.moved / z.rows.n_rows
        return Step(directions, offsets, separation, new.labels, new.weight, moves, new.key)

    result = relabel_until_settled(step, start.labels, **ends)
    return result, found[-1] if result.labels is found[-1].labels else found[0]


def refine_on_all(
    sampled: SeparationRows,
    rows: SeparationRows,
    reg: float,
    best: MultiwaySeparationResult,
    **ends: Any,
) -> tuple[MultiwaySeparationResult, ClusterSums]:
    """Go on with discriminants of a sample on all rows: one pass for the start, and one a step."""
    coefficients = sampled.z.coefficients(best.directions)
    offsets = best.offsets + (rows.z.mean - sampled.z.mean) @ coefficients
    directions = rows.z.direction(coefficients)
    start = sums_by_discriminants(rows.z.rows, rows.z.of_rows(directions), offsets, None)
    matrix = RegularizedCorrelation(rows.z.correlation, reg)
    result, sums = refine_from(rows.z, matrix, start, min_weight=rows.min_weight, **ends)
    if result.history:
        return result, sums
    # No step holds: the discriminants of the sample, in z of all rows.
    return replace(best, labels=start.labels, directions=directions, offsets=offsets), start


class LargestDiscriminant:
    """The cluster of rows by the largest of k discriminants, as a function that can travel."""

    def __init__(self, planes: SeparatingPlanes):
        self.planes = planes

    def __call__(self, X: Any) -> NDArray:
        """Return the clusters of rows, dense or CSR."""
        return np.argmax(self.planes(X), axis=1)


def pooled_separation(
    z: Standardized, regularized: RegularizedCorrelation, labels: NDArray, k: int
) -> float:
    r"""Return how well k clusters are separated, each from its worst rival.

    `volmar.metrics.separation_score` with one covariance S within all clusters in place of one for
    each pair: with :math:`\delta_{ij}^2 = (\mu_i - \mu_j)'(S + \lambda I)^{-1}(\mu_i - \mu_j)`
    Theorem 2's bound of a pair is :math:`\kappa_{ij}^2 = \tfrac12 \delta_{ij}^2 \min(r_i, r_j) /
    (r_i + r_j)`, and the mean over clusters, by size, of the smallest :math:`\kappa_{ij}^2 / (1 +
    \kappa_{ij}^2)` is returned. One pass over the rows, whatever k is.
    """
    shares, means = _means(z, cluster_sums(z.rows, labels, k))
    directions, _ = _discriminants(regularized, shares, means)
    inner = means.T @ directions
    square = inner.diagonal()
    distance = np.maximum(square[:, None] + square - inner - inner.T, 0.0)
    smaller = np.minimum(shares[:, None], shares) / (shares[:, None] + shares)
    kappa2 = 0.5 * distance * smaller
    np.fill_diagonal(kappa2, np.inf)
    worst = kappa2.min(axis=1)
    return float(shares @ (worst / (1.0 + worst)))


def discriminants_of(
    regularized: RegularizedCorrelation, shares: NDArray, means: NDArray
) -> tuple[NDArray, NDArray, float]:
    """Return directions (p, k) and offsets (k,) of discriminants, and the separation.

    See `refine_from` for the formula; `shares` (k,) and `means` (p, k) are those of clusters in z.
    """
    directions, separation = _discriminants(regularized, shares, means)
    return directions, -0.5 * np.einsum("pj,pj->j", means, directions), separation


def _discriminants(
    regularized: RegularizedCorrelation, shares: NDArray, means: NDArray
) -> tuple[NDArray, float]:
    """Return (S + reg I)^-1 of the means, and the separation tr((R + reg I)^-1 B)."""
    roots = np.sqrt(shares)
    U = means * roots
    image = regularized.solve(U)
    inner = U.T @ image
    inside = np.eye(shares.size) - inner
    return linalg.solve(inside, image.T, assume_a="sym").T / roots, float(np.trace(inner))
