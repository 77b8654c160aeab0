"""scikit-learn's SelfTrainingClassifier with logistic regression."""

from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier

NAME = "SelfTrainingClassifier (logistic)"


def available() -> bool:
    return True


def fit_predict_seeded(X, y, n_clusters, seed):  # noqa: ARG001 -- it draws nothing at random
    """Return a class for each row; y is -1 for unknown classes."""
    return SelfTrainingClassifier(LogisticRegression(max_iter=500)).fit(X, y).predict(X)
