"""Refinement of k clusters by the directions that separate every pair of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.rows import Standardized
from volmar.separation.gep import RegularizedCorrelation
from volmar.solvers import Result, Status

__all__ = ["MultiwaySeparationResult", "cluster_means", "refine_clusters"]


@dataclass(frozen=True, repr=False)
class MultiwaySeparationResult(Result):
    r"""Clusters that their own linear discriminants give back.

    Attributes
    ----------
    objective : float
        Minus the separation :math:`tr((R + \lambda I)^{-1} B)` of the clusters, with B the
        covariance of their means: minus :math:`R^2` of Theorem 2, where there are two. Of
        pairwise machines minus the mean of their probabilities.
    residuals : mapping
        "moves": share of the rows that the last step relabelled.
    labels : ndarray of shape (n,)
        Clusters.
    directions : ndarray of shape (p, m)
        Directions in z.
    offsets : ndarray of shape (m,)
        Constants of the scores.
    pairs : ndarray of shape (m, 2)
        Where each direction parts two clusters: the one on its positive side and the other one.
        Empty where there is a direction for each cluster.
    """

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    directions: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    offsets: NDArray = field(default_factory=lambda: np.empty(0))
    pairs: NDArray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))


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

    The step is a fixed-point iteration, not a descent: labels that come back end it, and so does
    a step that would leave a cluster with less than `min_weight`. The last labels that hold are
    returned, with the discriminants that give them.

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
    seen: set[bytes] = set()
    history: list[float] = []
    status, moves, n_iter = Status.MAX_ITER, 1.0, 0
    directions, offsets = np.zeros((z.kept.size, k)), np.zeros(k)
    shares, means = cluster_means(z, labels, k)
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        proposed_directions, separation = _discriminants(regularized, shares, means)
        proposed_offsets = -0.5 * np.einsum("pj,pj->j", means, proposed_directions)
        proposed = np.argmax(z.scores(proposed_directions) + proposed_offsets, axis=1)
        weights = np.bincount(proposed, z.rows.weights, k)
        if weights.min() < max(min_weight, np.finfo(float).tiny):
            status = Status.DEGENERATE
            break
        history.append(-separation)
        moves = float(np.mean(proposed != labels))
        labels, directions, offsets = proposed, proposed_directions, proposed_offsets
        if moves <= tol:
            status = Status.CONVERGED
            break
        key = labels.tobytes()
        if key in seen:
            status = Status.CYCLE
            break
        seen.add(key)
        shares, means = cluster_means(z, labels, k)
    return MultiwaySeparationResult(
        objective=history[-1] if history else 0.0,
        residuals={"moves": moves},
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
        directions=directions,
        offsets=offsets,
    )


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
