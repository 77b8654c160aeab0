"""ClustPy's GMeans, if installed."""

from importlib.util import find_spec

NAME = "GMeans"
MOST_CLUSTERS = 50


def available() -> bool:
    return find_spec("clustpy") is not None


def find_clusters(X, seed):
    """Return labels; the method finds the number of clusters, at most MOST_CLUSTERS."""
    from clustpy.centroid import GMeans

    return GMeans(max_n_clusters=MOST_CLUSTERS, random_state=seed).fit_predict(X)
