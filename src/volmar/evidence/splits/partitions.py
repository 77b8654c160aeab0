"""Partitions of rows into several clusters: k-means, then rounds of linear discriminants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["Discriminants", "discriminants", "partitions"]

# Numbers of clusters that are tried, as long as the mean cluster has so many rows.
NUMBERS, ROWS_A_CLUSTER = (2, 3, 4, 5, 6, 7, 8, 10), 20
# Iterations of k-means, which end when so small a share of the rows changes its cluster.
MAX_ITER, FEW_CHANGES = 10, 0.002
# Rows that k-means looks at; the rounds of discriminants look at all.
MOST_ROWS = 1000
# Rounds of discriminants that follow.
N_ROUNDS = 3
# Rows that are drawn for each centre k-means starts from; the best of them is taken.
N_TRIALS = 4
# Regularisation of the covariance within clusters, in units of its mean variance.
REG = 0.1
# Minimum share of a cluster; rounds that fall below it are not taken.
LEAST_SHARE = 0.01
# A variance within clusters below this share of the whole is rounding.
ROUNDING = 1e-12


class Discriminants(NamedTuple):
    """Functions t'directions + offsets of rows t, the largest of which is the cluster of a row.

    Shapes (r, k) and (k,).
    """

    directions: NDArray[np.float64]
    offsets: NDArray[np.float64]


def partitions(T: NDArray, rng: np.random.Generator) -> list[Discriminants]:
    """Return a partition of rows (n, r) for several numbers of clusters.

    The rows are clustered by k-means from centres that are far apart, in single precision, and
    then by `N_ROUNDS` rounds of linear discriminants.
    """
    n, r = T.shape
    numbers = [k for k in NUMBERS if n >= ROWS_A_CLUSTER * k]
    if not numbers or r == 0:
        return []
    rows = T.astype(np.float32)
    few = rows if n <= MOST_ROWS else rows[rng.choice(n, MOST_ROWS, replace=False)]
    scatter = T.T @ T
    fewest = max(5, LEAST_SHARE * n)
    found = []
    for k in numbers:
        centres = _k_means(few, _far_centres(few, k, rng))
        labels = _nearest(rows, centres)
        if np.bincount(labels, minlength=k).min() == 0:
            continue
        partition = discriminants(T, labels, k, scatter)
        for _ in range(N_ROUNDS):
            again = np.argmax(_values(rows, partition), axis=1)
            if np.array_equal(again, labels) or np.bincount(again, minlength=k).min() < fewest:
                break
            labels = again
            partition = discriminants(T, labels, k, scatter)
        found.append(partition)
    return found


def _values(rows: NDArray, partition: Discriminants) -> NDArray:
    directions, offsets = (part.astype(rows.dtype) for part in partition)
    return np.asarray(rows @ directions + offsets)


def discriminants(
    T: NDArray, labels: NDArray, k: int, scatter: NDArray | None = None
) -> Discriminants:
    r"""Return the linear discriminants of clusters 0 to k - 1 of rows, none of them empty.

    :math:`f_l(t) = \mu_l' S^{-1} (t - \mu_l / 2)`, with one regularised covariance S within
    clusters. `scatter` is T'T, where it is known.
    """
    n, r = T.shape
    scatter = T.T @ T if scatter is None else scatter
    means, sizes = _means(T, labels, k)
    S = (scatter - (means.T * sizes) @ means) / n
    mean_variance = np.trace(S) / r
    if mean_variance <= ROUNDING * np.trace(scatter) / (n * r):
        mean_variance, S = 1.0 / REG, np.zeros_like(S)
    S[np.diag_indices(r)] += REG * mean_variance
    _, directions, _ = linalg.lapack.dposv(S, means.T)  # positive definite by its ridge
    return Discriminants(directions, -0.5 * np.einsum("kr,rk->k", means, directions))


def _means(T: NDArray, labels: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Return the means (k, r) of clusters and their sizes; the mean of an empty one is 0."""
    members = (labels == np.arange(k)[:, None]).astype(T.dtype)
    sizes = members.sum(axis=1)
    return members @ T / np.maximum(sizes, 1)[:, None], sizes


def _k_means(rows: NDArray, centres: NDArray) -> NDArray:
    """Return the centres after Lloyd's iterations."""
    labels = np.full(len(rows), -1)
    for _ in range(MAX_ITER):
        again = _nearest(rows, centres)
        n_changes = np.count_nonzero(again != labels)
        labels = again
        if n_changes <= FEW_CHANGES * len(rows):
            break
        means, sizes = _means(rows, labels, len(centres))
        centres = np.where(sizes[:, None] > 0, means, centres)
    return centres


def _nearest(rows: NDArray, centres: NDArray) -> NDArray[np.int64]:
    """Return the nearest centre of each row."""
    values = rows @ centres.T
    values -= 0.5 * np.einsum("kr,kr->k", centres, centres)
    return np.argmax(values, axis=1)


def _far_centres(rows: NDArray, k: int, rng: np.random.Generator) -> NDArray:
    """Return at most k rows that are far apart, by the greedy rule of k-means++.

    Each is drawn with probability proportional to its squared distance to those before it; of
    several draws the one that leaves the least sum of squares is taken.
    """
    norms = np.einsum("nr,nr->n", rows, rows)
    chosen = [int(rng.integers(len(rows)))]
    nearest = np.maximum(norms - 2.0 * (rows @ rows[chosen[0]]) + norms[chosen[0]], 0.0)
    while len(chosen) < k:
        sums = np.cumsum(nearest, dtype=np.float64)
        if not sums[-1] > 0:
            break
        tried = np.searchsorted(sums, rng.random(N_TRIALS) * sums[-1], side="right")
        tried = np.minimum(tried, len(rows) - 1)
        distances = rows[tried] @ rows.T
        distances *= -2.0
        distances += norms
        distances += norms[tried, None]
        np.clip(distances, 0.0, nearest, out=distances)
        best = int(np.argmin(distances.sum(axis=1)))
        chosen.append(int(tried[best]))
        nearest = distances[best]
    return rows[chosen]
