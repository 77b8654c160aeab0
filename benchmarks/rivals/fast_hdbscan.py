"""fast_hdbscan with labels of some rows; the minimum cluster size is 2 % of the rows.

A cluster gets the most frequent class of its seeds. Rows of clusters without seeds, and noise, are
labelled -1.
"""

import numpy as np

NAME = "fast_hdbscan (semi_supervised)"


def available() -> bool:
    """Return whether it is installed and runs: some releases of numba fail to compile it."""
    try:
        X = np.repeat(np.eye(2), 20, axis=0) + np.arange(40)[:, None] / 1000
        fit_predict_seeded(X, np.where(np.arange(40) % 19 == 0, np.arange(40) // 20, -1), 2, 0)
    except Exception:
        return False
    return True


def fit_predict_seeded(X, y, n_clusters, seed):  # noqa: ARG001 -- it draws nothing at random
    """Return a class for each row; y is -1 for unknown classes."""
    from fast_hdbscan import HDBSCAN

    size = max(5, len(X) // 50)
    found = HDBSCAN(min_cluster_size=size, semi_supervised=True).fit(X, y.copy()).labels_
    labels = np.full(len(X), -1)
    for cluster in range(found.max() + 1):
        inside = y[(found == cluster) & (y >= 0)]
        if inside.size:
            labels[found == cluster] = np.bincount(inside).argmax()
    return labels
