"""scikit-learn's GaussianMixture."""

from sklearn.mixture import GaussianMixture

NAME = "GaussianMixture"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    return GaussianMixture(n_clusters, reg_covar=1e-3, random_state=seed).fit_predict(X)
