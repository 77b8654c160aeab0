"""scikit-learn's BisectingKMeans."""

from sklearn.cluster import BisectingKMeans

NAME = "BisectingKMeans"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    return BisectingKMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)
