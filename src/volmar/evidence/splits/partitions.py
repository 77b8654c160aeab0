"""Partitions of rows into several clusters: k-means, then rounds of linear discriminants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

__all__ = ["Discriminants", "discriminants", "partitions"]

# Numbers of clusters that are tried, and the minimum mean number of rows per cluster.
NUMBERS, ROWS_PER_CLUSTER = (2, 3, 4, 5, 6, 7, 8, 10), 20
# Maximum number of k-means iterations, and the share of changed labels at which they stop.
MAX_ITER, FEW_CHANGES = 10, 0.002
# Maximum number of rows for k-means. The rounds of discriminants use all rows.
MAX_ROWS = 1000
# Number of rounds of discriminants after k-means.
N_ROUNDS = 3
# Number of candidate rows drawn for each initial centre of k-means.
N_TRIALS = 4
# Ridge of the covariance within clusters, in units of its mean variance.
REG = 0.1
# Minimum share of a cluster. A round with a smaller cluster is discarded.
MIN_SHARE = 0.01
# A variance within clusters below this share of the total is rounding error.
ROUNDING = 1e-12


class Discriminants(NamedTuple):
    """Linear functions t'directions + offsets; the largest one at t is the cluster of a row t.

    `directions` has shape (r, k), `offsets` (k,).
    """

    directions: NDArray[np.float64]
    offsets: NDArray[np.float64]


def partitions(T: NDArray, rng: np.random.Generator) -> list[Discriminants]:
    """Return a partition of rows (n, r) for several numbers of clusters.

    The rows are clustered by k-means, in single precision and from initial centres that are far
    apart, and then by `N_ROUNDS` rounds of linear discriminants.
    """
    n, r = T.shape
    numbers = [k for k in NUMBERS if n >= ROWS_PER_CLUSTER * k]
    if not numbers or r == 0:
        return []
    rows = T.astype(np.float32)
    few = rows if n <= MAX_ROWS else rows[rng.choice(n, MAX_ROWS, replace=False)]
    scatter = T.T @ T
    min_size = max(5, MIN_SHARE * n)
    found = []
    for k in numbers:
        centres = _k_means(few, _far_centres(few, k, rng))
        labels = _nearest(rows, centres)
        if np.bincount(labels, minlength=k).min() == 0:
            continue
        partition = discriminants(T, labels, k, scatter)
        for _ in range(N_ROUNDS):
            again = np.argmax(_values(rows, partition), axis=1)
            if np.array_equal(again, labels) or np.bincount(again, minlength=k).min() < min_size:
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
    r"""Return the linear discriminants of clusters 0 to k - 1, none of which is empty.

    :math:`f_l(t) = \mu_l' S^{-1} (t - \mu_l / 2)`, with one regularised covariance S within
    clusters. `scatter` is T'T; it is computed if None.
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
    """Return the means (k, r) and sizes of clusters; the mean of an empty cluster is 0."""
    members = (labels == np.arange(k)[:, None]).astype(T.dtype)
    sizes = members.sum(axis=1)
    return members @ T / np.maximum(sizes, 1)[:, None], sizes


def _k_means(rows: NDArray, centres: NDArray) -> NDArray:
    """Return the centres after at most `MAX_ITER` of Lloyd's iterations."""
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

    Rows are drawn with probability proportional to their squared distance to the centres chosen
    before. The best of several draws, by the remaining sum of squares, is chosen.
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
