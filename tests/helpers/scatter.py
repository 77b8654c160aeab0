"""Correlated rows, scatter matrices by their definition, and all labellings of a few rows."""

from itertools import product

import numpy as np


def covariances(X, labels, weights=None):
    """Total and within-cluster covariance from their definitions."""
    w = np.ones(len(X)) if weights is None else weights
    total = np.cov(X, rowvar=False, aweights=w, ddof=0).reshape(X.shape[1], -1)
    within = np.zeros_like(total)
    for c in np.unique(labels):
        part = labels == c
        centred = X[part] - np.average(X[part], axis=0, weights=w[part])
        within += (w[part, None] * centred).T @ centred / w.sum()
    return total, within


def correlated(rng, n, d):
    """Rows whose features are correlated and have different units."""
    mixed = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    return mixed * 10.0 ** rng.uniform(-2, 2, d) + rng.uniform(-5, 5, d)


def labellings(n, n_clusters):
    for labels in product(range(n_clusters), repeat=n):
        if len(set(labels)) == n_clusters and labels[0] == 0:
            yield np.array(labels)


def every_cluster(rng, n, n_clusters):
    return rng.permutation(np.arange(n) % n_clusters)
