"""The features that drive the clusters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.report.outcome import Outcome
from volmar.rows.tiled import ClusterMoments

# Maximum number of entries of a sparse matrix that is made dense.
MAX_DENSE = 20_000_000


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


class Drivers(NamedTuple):
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
    if outcome.k < 2:
        return None
    coef = linear_direction(outcome)
    if coef is not None:
        return _largest("linear", coef * moments.deviation)
    found = _permuted(outcome, moments) if outcome.k == 2 else None
    return found or _largest("between", moments.between)


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
