"""Pairwise machines: MSPC-MPM for k clusters from a start."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from volmar.rows import Moments, Standardized
from volmar.separation.relabelling import (
    MultiwaySeparationResult,
    Step,
    relabel_until_settled,
)
from volmar.solvers import solve_minimax_probability

__all__ = ["least_scores", "pairwise_machines"]

# Gap of the machines: rows switch sides by more than what this leaves open.
PRECISION = 1e-4


def least_scores(scores: NDArray, pairs: NDArray, k: int) -> NDArray:
    """Return for each row and cluster the least of its scores against the others, (n, k)."""
    least = np.full((scores.shape[0], k), np.inf, dtype=scores.dtype)
    for column, (one, other) in zip(scores.T, pairs, strict=True):
        np.minimum(least[:, one], column, out=least[:, one])
        np.minimum(least[:, other], -column, out=least[:, other])
    return least


def pairwise_machines(
    z: Standardized,
    labels: NDArray,
    k: int,
    reg: float,
    *,
    min_weight: float,
    max_iter: int = 100,
    tol: float = 1e-3,
) -> MultiwaySeparationResult:
    r"""Alternate the minimax probability machines of all pairs of clusters and their labels.

    The machine of clusters i and j (MSPC eq. 3) has :math:`f_{ij}(z) = w_{ij}'z - b_{ij}`, in
    units of the distance between the two means along w, positive for i, and a row
    goes to the cluster whose worst rival it beats by most, :math:`\arg\max_i \min_j f_{ij}`. With
    two clusters this is the iteration of MSPC-MPM. How it ends is said at `relabel_until_settled`.

    Parameters
    ----------
    z : Standardized
        The rows.
    labels : ndarray of shape (n,)
        Start: clusters 0 to k - 1, none empty.
    k : int
        Number of clusters.
    reg : float
        Added to the diagonals of the covariances, in units of the features' variances.
    min_weight : float
        Least weight of a cluster.
    max_iter : int, default=100
        Most iterations.
    tol : float, default=1e-3
        Share of rows that an iteration relabels at which to stop.
    """
    pairs = np.array(list(combinations(range(k), 2)))

    def step(labels: NDArray) -> Step:
        directions, offsets, mean = _machines(z, labels, k, reg, pairs)
        scores = least_scores(z.scores(directions) + offsets, pairs, k)
        return Step(directions, offsets, mean, np.argmax(scores, axis=1))

    return relabel_until_settled(
        step,
        labels,
        k,
        weights=z.rows.weights,
        min_weight=min_weight,
        max_iter=max_iter,
        tol=tol,
        pairs=pairs,
    )


def _machines(
    z: Standardized, labels: NDArray, k: int, reg: float, pairs: NDArray
) -> tuple[NDArray, NDArray, float]:
    """Return directions (p, m) and offsets (m,) of all pairs, and the mean probability."""
    parts = [
        _regular(z, z.rows.moments(labels == j, center=z.moments.center), reg) for j in range(k)
    ]
    directions, offsets, probabilities = [], [], []
    for one, other in pairs:
        (mean1, S1), (mean0, S0) = parts[one], parts[other]
        try:
            machine = solve_minimax_probability(mean1 - mean0, S1, S0, tol=PRECISION)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"the covariance of a cluster is singular and reg={reg:g} is too small to fix it. "
                "Use reg=1, at least 0.1."
            ) from error
        unit = float(machine.w @ (mean1 - mean0)) or 1.0
        directions.append(machine.w / unit)
        offsets.append(machine.intercept(mean1) / unit)
        probabilities.append(machine.probability)
    return np.column_stack(directions), np.array(offsets), float(np.mean(probabilities))


def _regular(z: Standardized, part: Moments, reg: float) -> tuple[NDArray, NDArray]:
    """Return mean and regularised covariance of a cluster in z."""
    mean, covariance = z.mean_and_covariance(part)
    covariance[np.diag_indices_from(covariance)] += reg
    return mean, covariance
