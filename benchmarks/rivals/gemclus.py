"""GemClus's linear model with the MMD information, if installed."""

from importlib.util import find_spec

NAME = "GemClus (LinearMMD)"


def available() -> bool:
    return find_spec("gemclus") is not None


def fit_predict(X, n_clusters, seed):
    from gemclus.linear import LinearMMD

    return LinearMMD(n_clusters=n_clusters, random_state=seed).fit_predict(X)
