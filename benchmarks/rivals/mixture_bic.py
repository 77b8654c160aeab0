"""scikit-learn's GaussianMixture: number and shape of the components with the smallest BIC."""

from sklearn.mixture import GaussianMixture

NAME = "mixture, BIC"
MOST_CLUSTERS = 12
SHAPES = ("spherical", "diag", "full")


def available() -> bool:
    return True


def find_clusters(X, seed):
    """Return labels of the mixture with the smallest BIC and at most MOST_CLUSTERS components."""
    fits = (
        GaussianMixture(k, covariance_type=shape, random_state=seed).fit(X)
        for shape in SHAPES
        for k in range(1, MOST_CLUSTERS + 1)
    )
    return min(fits, key=lambda model: model.bic(X)).predict(X)
