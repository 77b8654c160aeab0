"""scikit-learn's HDBSCAN; the minimum cluster size is 2 % of the rows, noise is labelled -1."""

from sklearn.cluster import HDBSCAN

NAME = "HDBSCAN"


def available() -> bool:
    return True


def find_clusters(X, seed):  # noqa: ARG001 -- it draws nothing at random
    """Return labels, -1 for noise."""
    return HDBSCAN(min_cluster_size=max(5, len(X) // 50), copy=True).fit_predict(X)
