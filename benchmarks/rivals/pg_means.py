"""ClustPy's PGMeans, if installed."""

from importlib.util import find_spec

NAME = "PGMeans"
MOST_CLUSTERS = 50


def available() -> bool:
    return find_spec("clustpy") is not None


def find_clusters(X, seed):
    """Return labels; the method finds the number of clusters, at most MOST_CLUSTERS."""
    from clustpy.centroid import PGMeans

    return PGMeans(max_n_clusters=MOST_CLUSTERS, random_state=seed).fit_predict(X)
