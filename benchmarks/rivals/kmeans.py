"""scikit-learn's KMeans."""

from sklearn.cluster import KMeans

NAME = "KMeans (n_init=10)"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)
