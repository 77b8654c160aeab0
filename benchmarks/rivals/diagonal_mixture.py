"""scikit-learn's GaussianMixture with diagonal covariances."""

from sklearn.mixture import GaussianMixture

NAME = "GaussianMixture (diagonal)"


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    """Return labels; 0.001 times the mean variance of the columns is added to variances."""
    floor = 1e-3 * float(X.var(axis=0).mean())
    model = GaussianMixture(n_clusters, covariance_type="diag", reg_covar=floor, random_state=seed)
    return model.fit_predict(X)
