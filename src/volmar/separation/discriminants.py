"""Linear discriminants of k clusters with a common covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.rows import ClusterSums, Standardized, cluster_sums, sums_by_discriminants
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.relabelling import MultiwaySeparationResult, Step, relabel_until_settled


def shares_and_means(z: Standardized, found: ClusterSums) -> tuple[NDArray, NDArray]:
    """Return the shares (k,) of clusters and their means (p, k) in z."""
    means = z.from_rows((found.vectors / found.weight[:, None]).T)
    return found.weight / z.rows.total_weight, means


def refine_clusters(
    z: Standardized, regularized: RegularizedCorrelation, labels: Any, k: int, **ends: Any
) -> MultiwaySeparationResult:
    """Alternate between linear discriminants of k clusters and labels, from given labels.

    See `refine_from`. The sums of the start take one more pass.
    """
    return refine_from(z, regularized, cluster_sums(z.rows, labels, k), **ends)[0]


def refine_from(
    z: Standardized,
    regularized: RegularizedCorrelation,
    start: ClusterSums,
    relabel: Callable[..., ClusterSums] = sums_by_discriminants,
    **ends: Any,
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

    `ends` are passed to `relabel_until_settled`, which describes how the iteration ends.
    `relabel` returns labels by the discriminants and their sums (like `sums_by_discriminants`).
    Returns the result, and the sums of its labels.
    """
    found = [start]

    def step(labels: Any) -> Step:
        shares, means = shares_and_means(z, found[-1])
        directions, offsets, separation = discriminants_of(regularized, shares, means)
        new = relabel(z.rows, z.of_rows(directions), offsets, labels)
        found[:] = [found[-1], new]
        moves = new.moved / z.rows.n_rows
        return Step(directions, offsets, separation, new.labels, new.weight, moves, new.key)

    result = relabel_until_settled(step, start.labels, **ends)
    return result, found[-1] if result.labels is found[-1].labels else found[0]


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
    inner = means.T @ _discriminants(regularized, shares, means)[0]
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
