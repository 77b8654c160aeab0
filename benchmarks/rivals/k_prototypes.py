"""k-prototypes of the package kmodes, if installed; k by the silhouette.

The silhouette is that of the dissimilarity which k-prototypes itself minimises: squared Euclidean
distance of the numbers plus gamma times the number of categories that differ. The method is slow:
it is fitted to at most `MOST_ROWS` rows, from `N_STARTS` starts, and the other rows are assigned
to its prototypes.
"""

from importlib.util import find_spec

import numpy as np
from sklearn.metrics import pairwise_distances, silhouette_score

from benchmarks.rivals import kmeans_silhouette

NAME = "k-prototypes, silhouette"
MOST_CLUSTERS, MOST_ROWS, N_STARTS = 10, 1000, 3


def available() -> bool:
    return find_spec("kmodes") is not None


def find_clusters(numbers, categories, seed):
    """Return labels with the largest silhouette, of 2 to MOST_CLUSTERS clusters.

    Parameters
    ----------
    numbers : ndarray of shape (n, p)
        Scaled numeric columns.
    categories : ndarray of str of shape (n, q)
        Categorical columns. Without any, k-prototypes is k-means, which is run instead, because
        the package does not accept such rows.
    seed : int
        Random seed.
    """
    from kmodes.kprototypes import KPrototypes

    if categories.shape[1] == 0:
        return kmeans_silhouette.find_clusters(numbers, seed, most=MOST_CLUSTERS)
    rows = np.empty((len(numbers), numbers.shape[1] + categories.shape[1]), dtype=object)
    rows[:, : numbers.shape[1]], rows[:, numbers.shape[1] :] = numbers, categories
    places = list(range(numbers.shape[1], rows.shape[1]))
    sample = np.random.default_rng(seed).permutation(len(rows))[:MOST_ROWS]
    fits = [
        KPrototypes(k, init="Cao", n_init=N_STARTS, random_state=seed).fit(
            rows[sample], categorical=places
        )
        for k in range(2, MOST_CLUSTERS + 1)
    ]
    distances = _dissimilarity(numbers[sample], categories[sample], fits[0].gamma)
    best = max(fits, key=lambda fit: _silhouette(distances, fit.labels_))
    return best.predict(rows, categorical=places)


def _dissimilarity(numbers, categories, gamma):
    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in categories.T])
    differ = pairwise_distances(codes, metric="hamming") * categories.shape[1]
    return pairwise_distances(numbers, metric="sqeuclidean") + gamma * differ


def _silhouette(distances, labels):
    if len(np.unique(labels)) < 2:  # it may leave clusters empty
        return -np.inf
    distances = distances.copy()
    np.fill_diagonal(distances, 0.0)
    return silhouette_score(distances, labels, metric="precomputed")
