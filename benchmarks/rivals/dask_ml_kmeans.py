"""dask-ml's KMeans, on a dask array."""

import warnings

NAME = "dask-ml KMeans"


def available() -> bool:
    try:
        import dask_ml.cluster  # noqa: F401
    except ImportError:
        return False
    return True


def fit(X, n_clusters, seed, init="k-means||"):
    """Return the fitted model; its labels_ are lazy."""
    from dask_ml.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KMeans(n_clusters, init=init, random_state=seed).fit(X)
