"""LDA-KM and discriminative k-means with more columns than rows."""

import sys

import numpy as np
import pytest

from volmar import DiscriminativeKMeans, LDAKMeans
from volmar.metrics import clustering_error
from volmar.rows.standardized import standardized_columns


def groups(n=60, d=90, k=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.normal(size=(n, d))
    for group in range(1, k):
        X[y == group, 10 * group : 10 * group + 10] += 3.0
    X[:, 3] = 1.0
    return X, y


def test_lda_kmeans_is_that_of_the_columns(monkeypatch):
    X, y = groups()
    row = LDAKMeans(3, random_state=0).fit(X)
    module = sys.modules["volmar.baselines.projected_kmeans"]
    monkeypatch.setattr(module, "standardized", standardized_columns)
    column = LDAKMeans(3, random_state=0).fit(X)
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert clustering_error(y, row.labels_) == 0.0
    assert row.objective_ == pytest.approx(column.objective_, rel=1e-8)
    np.testing.assert_allclose(
        row.components_.T @ row.components_, column.components_.T @ column.components_, atol=1e-9
    )
    np.testing.assert_array_equal(row.predict(X), row.labels_)


def test_discriminative_kmeans_is_kernel_kmeans_of_its_kernel():
    X, y = groups()
    weights = np.ones(len(X))
    model = DiscriminativeKMeans(3, init=y, reg=0.5).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    mean = np.average(X, axis=0, weights=weights)
    C = X - mean
    sigma = (C.T * weights) @ C / weights.sum()
    rho = 0.5 * np.diag(sigma)[np.diag(sigma) > 1e-20].mean()  # of the features that vary
    K = C @ np.linalg.solve(sigma + rho * np.eye(len(mean)), C.T)
    within = 0.0
    for c in range(3):
        w = weights * (model.labels_ == c)
        within += w @ K.diagonal() - w @ K @ w / w.sum()
    assert model.objective_ == pytest.approx(within / weights.sum(), rel=1e-9)
    np.testing.assert_allclose((C @ model.components_.T) @ (C @ model.components_.T).T, K)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_regulariser_is_needed():
    X, y = groups()
    for model in (DiscriminativeKMeans(3, init=y, reg=0.0), LDAKMeans(3, init=y, reg=0.0)):
        with pytest.raises(ValueError, match="Raise reg"):
            model.fit(X)


def test_equal_rows_are_refused():
    for model in (DiscriminativeKMeans(), LDAKMeans()):
        with pytest.raises(ValueError, match="are equal"):
            model.fit(np.full((4, 9), 0.1))
