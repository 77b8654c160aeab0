"""k-means with size limits of the package k-means-constrained, if it can be imported.

It assigns labels by a minimum cost flow of Google's OR-Tools, with integer costs.
"""

from importlib.util import find_spec

NAME = "k-means-constrained"


def reason_it_is_missing() -> str:
    """Return the reason why the package cannot be used, "" if it can."""
    if find_spec("k_means_constrained") is None:
        return "the package k-means-constrained is not installed"
    try:
        import k_means_constrained  # noqa: F401
    except ImportError as error:
        return f"the package k-means-constrained cannot be imported ({error})"
    return ""


def fit_predict(X, centers, size_min, size_max, max_iter=300):
    """Return labels of Lloyd's iteration from given centres."""
    from k_means_constrained import KMeansConstrained

    model = KMeansConstrained(
        centers.shape[0],
        size_min=size_min,
        size_max=size_max,
        init=centers,
        n_init=1,
        max_iter=max_iter,
        tol=0.0,
        n_jobs=1,
    )
    return model.fit_predict(X)
