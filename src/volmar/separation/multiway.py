"""More than two clusters: k-means starts, and leaves of a tree refined by discriminants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans

from volmar._warn import quiet_fit
from volmar.base.recursion import CellSplit
from volmar.metrics import separation_along
from volmar.rows import ClusterSums, RowSpace, Standardized, drawn_rows, sums_by_discriminants
from volmar.rows.standardized import relative_scale
from volmar.separation.discriminants import pooled_separation, refine_clusters, refine_from
from volmar.separation.exchange import exchange_clusters, settle_clusters
from volmar.separation.gep import LARGEST_REG, RegularizedCorrelation, SeparationResult
from volmar.separation.problem import SeparatingPlanes, SeparationRows
from volmar.separation.relabelling import MultiwaySeparationResult
from volmar.separation.starts import has_one_unit

# Number of clusters from which single starts matter less, because clusters are exchanged.
MANY_CLUSTERS = 20
# Sample size of the k-means starts, its minimum per cluster, and the number of runs of k-means
# (one for many clusters).
MEANS_ROWS, ROWS_PER_CLUSTER, MEANS_STARTS = 4000, 40, 3
# Number of best separated results that are searched for exchanges of clusters.
N_EXCHANGED = 3
# Minimum share of its rows that each cluster of "auto" must keep when clusters compete for rows.
KEPT = 0.8
# Regularisation for comparing starts, as in `volmar.metrics.separation_score`.
JUDGED_REG = 0.1


def k_means_labels(
    X: Any, k: int, weights: NDArray | None, *, n_init: int, seed: int, chosen: Any = None
) -> NDArray:
    """Return the labels of k-means; with few distinct rows some clusters may be missing.

    The centres are fitted to the `chosen` rows, or to all rows if None.
    """
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
    chosen = drawn_rows(z.rows.n_rows, weights, max(MEANS_ROWS, ROWS_PER_CLUSTER * k), rng)
    seed = int(rng.integers(2**31 - 1))
    n_init = MEANS_STARTS if k < MANY_CLUSTERS else 1
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
    """Refined clusters, and whether they were regularised in the user's units.

    See `regularized_by`.
    """

    result: MultiwaySeparationResult
    in_own_units: bool = False


def refine_leaves(
    rows: SeparationRows,
    reg: float,
    starts: Sequence[NDArray],
    k: int,
    *,
    keeps: bool,
    seed: int | None = None,
    **ends: Any,
) -> Refined | None:
    """Let all clusters compete for all rows by their discriminants; return the best result.

    The first of `starts` are the leaves of a tree; clusters are numbered like them. Returns None
    if no start has a valid step, or with `keeps` if a leaf would lose many of its rows: then the
    leaves are the answer. With a `seed` the search is wider: discriminants are also regularised in
    the user's units (`regularized_by`), clusters that become too small are replaced
    (`settle_clusters`), and clusters of the best separated results are exchanged
    (`exchange_clusters`).
    """
    z, leaves = rows.z, starts[0]
    judge = RegularizedCorrelation(z.correlation, JUDGED_REG)
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
    if not found or (keeps and not _are_kept(leaves, found[0].result.labels, k)):
        return None
    ranked = sorted(((score(one.result), i) for i, one in enumerate(found)), reverse=True)
    if seed is not None:
        for _, i in ranked[:N_EXCHANGED]:
            result, own = found[i]
            metric = regularized_by(z, reg, in_own_units=own)
            other = exchange_clusters(z, metric, result, k, seed, **ends)
            if other is not result:
                found.append(Refined(other, own))
                ranked.append((score(other), len(found) - 1))
    # Ties go to the first result: the leaves come before other starts.
    best = found[max(ranked, key=lambda one: (one[0], -one[1]))[1]]
    matched = _matched(leaves, best.result.labels, z.rows.weights, k)
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


def _are_kept(labels: NDArray, refined: NDArray, k: int) -> bool:
    """Return whether each of k clusters keeps most of its rows and gains few others."""
    both = np.bincount(labels[labels == refined], minlength=k)
    larger = np.maximum(np.bincount(labels, minlength=k), np.bincount(refined, minlength=k))
    return bool((both >= KEPT * larger).all())


def _matched(leaves: NDArray, labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Match leaves of the tree to clusters so that they share the most rows in total."""
    shared = np.bincount(leaves * k + labels, weights, minlength=k * k).reshape(k, k)
    return linear_sum_assignment(shared, maximize=True)[1]


def hyperplane_in_valley(z: Standardized, split: CellSplit, reg: float) -> SeparationResult:
    """Convert a hyperplane in a valley of the density, not at the optimum of the bound.

    The bound prefers clusters of equal size, and would move away from a small cluster.
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


def refine_on_all(
    sampled: SeparationRows,
    rows: SeparationRows,
    reg: float,
    found: Refined,
    **ends: Any,
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
