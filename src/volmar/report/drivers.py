"""The features that drive the clusters, and the moments of the clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.report.outcome import Outcome

# Maximum number of entries of a sparse matrix that is made dense.
MAX_DENSE = 20_000_000
# Number of rows of a dense matrix that are centred at a time.
CHUNK = 100_000


@dataclass(frozen=True)
class ClusterMoments:
    """Sizes and means of the clusters; mean and standard deviation of all rows."""

    sizes: NDArray
    means: NDArray
    mean: NDArray
    deviation: NDArray

    @property
    def between(self) -> NDArray:
        """Share of the variance of each feature that is between the clusters."""
        share = self.sizes / self.sizes.sum()
        explained = share @ (self.means - self.mean) ** 2
        variance = self.deviation**2
        out = np.zeros_like(variance)
        np.divide(explained, variance, out=out, where=variance > 0)
        return np.clip(out, 0.0, 1.0)


def cluster_moments(X: Any, codes: NDArray, k: int) -> ClusterMoments:
    """Return the sizes and means of `k` clusters, and the moments of all rows."""
    n, d = X.shape
    sizes = np.bincount(codes, minlength=k)
    member = sparse.csr_array((np.ones(n), (codes, np.arange(n))), shape=(k, n))
    sums = member @ X
    sums = sums.toarray() if sparse.issparse(sums) else np.asarray(sums, dtype=np.float64)
    mean = sums.sum(axis=0) / n
    if sparse.issparse(X):
        square = np.asarray(X.multiply(X).sum(axis=0)).ravel() / n
        variance = np.maximum(square - mean**2, 0.0)
    else:
        variance = np.zeros(d)
        for start in range(0, n, CHUNK):
            centred = np.asarray(X[start : start + CHUNK], dtype=np.float64) - mean
            variance += np.einsum("ij,ij->j", centred, centred) / n
    return ClusterMoments(sizes, sums / np.maximum(sizes, 1)[:, None], mean, np.sqrt(variance))


def sampled(n: int, limit: int, seed: int) -> NDArray:
    """Return a sorted random sample of at most `limit` of n row numbers."""
    if n <= limit:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))


def linear_direction(outcome: Outcome) -> NDArray | None:
    """Return the coefficients of a single hyperplane between two clusters, or None."""
    if outcome.k != 2:
        return None
    tree = getattr(outcome.estimator, "tree_", None)
    if tree is not None and len(tree.splits()) != 1:
        return None  # leaves were merged: there are several hyperplanes
    model = outcome.estimator if tree is None else tree.root.model
    coef = getattr(model, "coef_", None)
    if coef is None:
        return None
    coef = np.atleast_2d(np.asarray(coef, dtype=np.float64))
    coef = coef[1] - coef[0] if coef.shape[0] == 2 else coef[0]
    # The last step of a pipeline may have other columns than X.
    is_ours = outcome.model is outcome.estimator and coef.size == outcome.X.shape[1]
    return coef if is_ours and np.any(coef) else None


@dataclass(frozen=True)
class Drivers:
    """Features by their importance for the split, largest first.

    `kind` is "linear" (coefficient times standard deviation), "permutation" (share of rows that
    change cluster when the column is shuffled) or "between" (share of variance between clusters).
    """

    kind: str
    features: NDArray
    values: NDArray
    n_rows: int = 0
    n_tried: int = 0


def drivers(outcome: Outcome, moments: ClusterMoments) -> Drivers | None:
    """Return the features that drive the split, or None if there is no split."""
    k = outcome.k
    if k < 2:
        return None
    coef = linear_direction(outcome)
    if coef is not None:
        return _largest("linear", coef * moments.deviation)
    if k == 2:
        found = _permuted(outcome, moments)
        if found is not None:
            return found
    return _largest("between", moments.between)


def _largest(kind: str, values: NDArray, **more: int) -> Drivers:
    order = np.argsort(-np.abs(values), kind="stable")[:15]
    order = order[values[order] != 0]
    return Drivers(kind, order, values[order], **more)


def _permuted(outcome: Outcome, moments: ClusterMoments) -> Drivers | None:
    """Shuffle columns of a sample one by one, and count the rows that change cluster."""
    if not hasattr(outcome.model, "predict"):
        return None
    n, d = outcome.X.shape
    rows = sampled(n, min(500, MAX_DENSE // d), outcome.seed)
    if rows.size < 2:
        return None
    X = dense(outcome.X[rows])
    tried = np.sort(np.argsort(-moments.between, kind="stable")[:40])
    rng = np.random.default_rng(outcome.seed)
    shares = np.zeros(d)
    try:
        before = outcome.model.predict(X)
        for j in tried:
            column = X[:, j].copy()
            X[:, j] = rng.permutation(column)
            shares[j] = np.mean(outcome.model.predict(X) != before)
            X[:, j] = column
    except ValueError:
        # Models of precomputed similarities have no columns to shuffle.
        return None
    return _largest("permutation", shares, n_rows=rows.size, n_tried=tried.size)


def dense(X: Any) -> NDArray:
    """Return rows as a dense array of float64."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
