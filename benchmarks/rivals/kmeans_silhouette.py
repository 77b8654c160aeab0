"""scikit-learn's KMeans: the number of clusters with the largest mean silhouette."""

from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

NAME = "KMeans, silhouette"
MOST_CLUSTERS = 12


def available() -> bool:
    return True


def find_clusters(X, seed, most=MOST_CLUSTERS, silhouette_rows=None):
    """Return the labels with the largest silhouette among 2 to `most` clusters.

    The silhouette is computed on at most `silhouette_rows` rows (None for all): its time is
    quadratic.
    """
    if silhouette_rows is not None:
        silhouette_rows = min(silhouette_rows, len(X))
    fits = (KMeans(k, n_init=5, random_state=seed).fit_predict(X) for k in range(2, most + 1))
    return max(
        fits,
        key=lambda labels: silhouette_score(
            X, labels, sample_size=silhouette_rows, random_state=seed
        ),
    )
