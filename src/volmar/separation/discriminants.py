"""Linear discriminants of k clusters with one covariance: alternation, volume and separation."""

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
    rows a step. `regularized` may have other units than those of z (see there), which take the
    place of I. No step raises the determinant of :math:`S + \lambda I`, but for rounding (see
    `exchange_clusters`). `relabel_until_settled` takes `ends`, and says how the iteration ends.
    The sums of the labels that hold are returned as well. `relabel` gives labels by the
    discriminants, and their sums (as `sums_by_discriminants`).
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
    r"""Return how well k clusters are separated, each from its worst rival.

    `volmar.metrics.separation_score` with one covariance S within all clusters in place of one for
    each pair: with :math:`\delta_{ij}^2 = (\mu_i - \mu_j)'(S + \lambda I)^{-1}(\mu_i - \mu_j)`
    Theorem 2's bound of a pair is :math:`\kappa_{ij}^2 = \tfrac12 \delta_{ij}^2 \min(r_i, r_j) /
    (r_i + r_j)`, and the mean over clusters, by size, of the smallest :math:`\kappa_{ij}^2 / (1 +
    \kappa_{ij}^2)` is returned. One pass over the rows, whatever k is.
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
