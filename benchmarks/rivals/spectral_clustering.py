"""scikit-learn's SpectralClustering on its k-NN graph."""

import warnings

from sklearn.cluster import SpectralClustering

NAME = "SpectralClustering (k-NN)"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    model = SpectralClustering(
        n_clusters, affinity="nearest_neighbors", n_neighbors=10, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        return model.fit_predict(X)
