"""Refinement of k clusters by the directions that separate every pair of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.rows import Standardized
from volmar.separation.gep import RegularizedCorrelation
from volmar.separation.relabelling import (
    MultiwaySeparationResult,
    Step,
    relabel_until_settled,
)

__all__ = ["cluster_means", "pooled_separation", "refine_clusters"]


def cluster_means(z: Standardized, labels: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Return shares (k,) and means (p, k) of clusters in z: one pass."""
    membership = np.zeros((labels.size, k), dtype=z.rows.dtype)
    weights = 1.0 if z.rows.weights is None else z.rows.weights
    membership[np.arange(labels.size), labels] = weights
    sizes = membership.sum(axis=0, dtype=np.float64)
    return sizes / z.rows.total_weight, z.combine(membership) / sizes


def refine_clusters(
    z: Standardized,
    regularized: RegularizedCorrelation,
    labels: NDArray,
    k: int,
    *,
    min_weight: float,
    max_iter: int = 100,
    tol: float = 1e-3,
) -> MultiwaySeparationResult:
    r"""Alternate linear discriminants of the clusters and their labels.

    For a pair of clusters, Theorem 2's bound is largest along :math:`(S + \lambda I)^{-1}
    (\mu_i - \mu_j)`, S the covariance within them. Pooled over all clusters S is one matrix for
    all pairs, and the side of a row that most pairs agree on is the largest of

    .. math:: \delta_j(z) = \mu_j' (S + \lambda I)^{-1} (z - \tfrac12 \mu_j).

    S is the correlation R less the covariance of the means, :math:`U U'` with :math:`U = (\sqrt{
    r_j} \mu_j)`, so that :math:`(S + \lambda I)^{-1} U = (R + \lambda I)^{-1} U (I - U'(R +
    \lambda I)^{-1} U)^{-1}` takes k solves with the one factor that there is. Two passes over the
    rows a step.

    How the iteration ends is said at `relabel_until_settled`.

    Parameters
    ----------
    z : Standardized
        The rows.
    regularized : RegularizedCorrelation
        :math:`R + \lambda I`.
    labels : ndarray of shape (n,)
        Start: clusters 0 to k - 1, none empty.
    k : int
        Number of clusters.
    min_weight : float
        Least weight of a cluster.
    max_iter : int, default=100
        Most steps.
    tol : float, default=1e-3
        Share of rows that a step relabels at which to stop.
    """

    def step(labels: NDArray) -> Step:
        shares, means = cluster_means(z, labels, k)
        directions, separation = _discriminants(regularized, shares, means)
        offsets = -0.5 * np.einsum("pj,pj->j", means, directions)
        proposed = np.argmax(z.scores(directions) + offsets, axis=1)
        return Step(directions, offsets, separation, proposed)

    return relabel_until_settled(
        step,
        labels,
        k,
        weights=z.rows.weights,
        min_weight=min_weight,
        max_iter=max_iter,
        tol=tol,
    )


def pooled_separation(
    z: Standardized, regularized: RegularizedCorrelation, labels: NDArray, k: int
) -> float:
    r"""Return how well k clusters are separated, each from its worst rival.

    `volmar.metrics.separation_score` with one covariance S within all clusters in place of one for
    each pair: with :math:`\delta_{ij}^2 = (\mu_i - \mu_j)'(S + \lambda I)^{-1}(\mu_i - \mu_j)`
    Theorem 2's bound of a pair is :math:`\kappa_{ij}^2 = \tfrac12 \delta_{ij}^2 \min(r_i, r_j) /
    (r_i + r_j)`, and the mean over clusters, by size, of the smallest :math:`\kappa_{ij}^2 / (1 +
    \kappa_{ij}^2)` is returned. One pass over the rows, whatever k is.

    Parameters
    ----------
    z : Standardized
        The rows.
    regularized : RegularizedCorrelation
        :math:`R + \lambda I`.
    labels : ndarray of shape (n,)
        Clusters 0 to k - 1, none empty.
    k : int
        Number of clusters.
    """
    shares, means = cluster_means(z, labels, k)
    directions, _ = _discriminants(regularized, shares, means)
    inner = means.T @ directions
    square = inner.diagonal()
    distance = np.maximum(square[:, None] + square - inner - inner.T, 0.0)
    smaller = np.minimum(shares[:, None], shares) / (shares[:, None] + shares)
    kappa2 = 0.5 * distance * smaller
    np.fill_diagonal(kappa2, np.inf)
    worst = kappa2.min(axis=1)
    return float(shares @ (worst / (1.0 + worst)))


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
