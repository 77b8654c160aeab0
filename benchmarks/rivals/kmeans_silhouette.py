"""scikit-learn's KMeans: the number of clusters with the largest mean silhouette."""

from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

NAME = "KMeans, silhouette"
MOST_CLUSTERS = 12


def available() -> bool:
    return True


def find_clusters(X, seed):
    """Return labels with the largest silhouette, of 2 to MOST_CLUSTERS clusters."""
    fits = (
        KMeans(k, n_init=5, random_state=seed).fit_predict(X) for k in range(2, MOST_CLUSTERS + 1)
    )
    return max(fits, key=lambda labels: silhouette_score(X, labels))
