"""scikit-learn's MiniBatchKMeans."""

from sklearn.cluster import MiniBatchKMeans

NAME = "MiniBatchKMeans (n_init=10)"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    return MiniBatchKMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)
