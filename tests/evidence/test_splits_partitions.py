"""Partitions by k-means and discriminants: against their definitions and scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import adjusted_rand_score

from volmar.evidence import pairs as module
from volmar.evidence.pairs import discriminants, partitions


def clusters(k, distance, n=600, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.normal(size=(n, d)) + distance / np.sqrt(2) * np.eye(d)[y]
    return X - X.mean(axis=0), y


def test_discriminants_are_those_of_the_definition(rng):
    X, y = clusters(4, 3.0)
    found = discriminants(X, y, 4)
    means = np.array([X[y == j].mean(axis=0) for j in range(4)])
    within = (X - means[y]).T @ (X - means[y]) / len(X)
    S = within + module.REG * np.trace(within) / 6 * np.eye(6)
    np.testing.assert_allclose(found.directions, np.linalg.solve(S, means.T), rtol=1e-9)
    offsets = [-0.5 * mean @ np.linalg.solve(S, mean) for mean in means]
    np.testing.assert_allclose(found.offsets, offsets, rtol=1e-9)
    for known, again in zip(found, discriminants(X, y, 4, X.T @ X), strict=True):
        np.testing.assert_array_equal(known, again)


def test_discriminants_classify_as_linear_discriminant_analysis_does(monkeypatch):
    monkeypatch.setattr(module, "REG", 1e-9)
    X, y = clusters(3, 2.0)
    found = discriminants(X, y, 3)
    labels = np.argmax(X @ found.directions + found.offsets, axis=1)
    np.testing.assert_array_equal(labels, LinearDiscriminantAnalysis().fit(X, y).predict(X))


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_clusters_without_any_variance_have_discriminants(scale):
    y = np.arange(60) % 3
    X = scale * np.eye(3)[y]
    found = discriminants(X, y, 3)
    np.testing.assert_array_equal(np.argmax(X @ found.directions + found.offsets, axis=1), y)


@pytest.mark.parametrize("n", [300, 3000])
def test_centres_are_about_as_good_as_those_of_scikit_learn(n, monkeypatch):
    """The sums of squares, without a limit on iterations."""
    monkeypatch.setattr(module, "MAX_ITER", 100)
    X, _ = clusters(5, 4.0, n)
    rows = X.astype(np.float32)

    def squares(centres):
        return ((X[:, None] - centres) ** 2).sum(axis=2).min(axis=1).sum()

    ours, theirs = [], []
    for seed in range(20):
        start = module._far_centres(rows, 5, np.random.default_rng(seed))
        ours.append(squares(module._k_means(rows, start)))
        model = KMeans(5, n_init=1, random_state=seed).fit(X)
        theirs.append(model.inertia_)
    assert np.mean(ours) < 1.03 * np.mean(theirs)
    assert min(ours) == pytest.approx(min(theirs), rel=0.005)


def test_a_step_of_k_means_is_its_definition(monkeypatch, rng):
    monkeypatch.setattr(module, "MAX_ITER", 1)
    X, start = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    start[3] = 100.0  # a centre without rows stays
    nearest = np.argmin(((X[:, None] - start) ** 2).sum(axis=2), axis=1)
    np.testing.assert_array_equal(module._nearest(X, start), nearest)
    found = module._k_means(X, start)
    means = [X[nearest == j].mean(axis=0) for j in range(3)]
    np.testing.assert_allclose(found, [*means, start[3]])


def test_clear_clusters_are_found_with_their_number():
    X, y = clusters(5, 8.0, 3000)
    found = partitions(X, np.random.default_rng(0))
    assert [one.offsets.size for one in found] == [2, 3, 4, 5, 6, 7, 8, 10]
    five = found[3]
    labels = np.argmax(X @ five.directions + five.offsets, axis=1)
    assert adjusted_rand_score(y, labels) > 0.99


def test_numbers_of_clusters_go_with_the_rows():
    X, _ = clusters(2, 5.0, 70)
    assert [one.offsets.size for one in partitions(X, np.random.default_rng(0))] == [2, 3]
    assert partitions(X[:39], np.random.default_rng(0)) == []
    assert partitions(np.empty((100, 0)), np.random.default_rng(0)) == []


def test_fewer_places_than_clusters():
    X = np.repeat([[0.0, 1.0], [4.0, 2.0], [1.0, 7.0]], 100, axis=0)
    found = partitions(X - X.mean(axis=0), np.random.default_rng(0))
    assert [one.offsets.size for one in found] == [2, 3]
