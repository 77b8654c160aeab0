"""Spherical k-means: Lloyd's iteration on rows and centres of unit length, best of ten starts.

The centre of a cluster is its mean, scaled to unit length; a row goes to the centre with the
largest cosine. Starts are k-means++ on the unit rows, whose squared distances are 2 - 2 cosine.
"""

import numpy as np
from scipy import sparse
from sklearn.cluster import kmeans_plusplus
from sklearn.preprocessing import normalize

NAME = "spherical k-means (n_init=10)"
N_STARTS, MOST_STEPS = 10, 300


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    X = normalize(X)
    state = np.random.RandomState(seed)
    runs = [
        lloyd_on_sphere(X, kmeans_plusplus(X, n_clusters, random_state=state)[0])
        for _ in range(N_STARTS)
    ]
    return max(runs, key=lambda run: run[1])[0]


def lloyd_on_sphere(X, centers):
    """Return labels at the end, and the sum of the cosines of rows with their centres."""
    centers = normalize(centers)
    before = None
    for _ in range(MOST_STEPS):
        cosines = X @ centers.T
        labels = cosines.argmax(axis=1)
        if before is not None and np.array_equal(labels, before):
            break
        centers = _centers(X, labels, cosines)
        before = labels
    return labels, float(cosines.max(axis=1).sum(dtype=np.float64))


def _centers(X, labels, cosines):
    """Return unit means; an empty cluster gets the row that is farthest from its centre."""
    n, k = cosines.shape
    ones = np.ones(n, dtype=X.dtype)
    sums = sparse.csr_array((ones, (labels, np.arange(n))), shape=(k, n)) @ X
    empty = np.flatnonzero(np.bincount(labels, minlength=k) == 0)
    if empty.size:
        sums[empty] = X[np.argsort(cosines.max(axis=1))[: empty.size]]
    return normalize(sums)
