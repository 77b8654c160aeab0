"""Clusters that are long and thin: their eigenvalues are far below 1/n and any fixed tolerance."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from volmar import NormalizedCut, NormalizedSpectralClustering, SoftLabelMVC
from volmar.metrics import normalized_cut


def walks(n, k, seed):
    """Random walks that start at the corners of a square and stay apart."""
    rng = np.random.default_rng(seed)
    side = max(12.0, 0.5 * np.sqrt(n // k))
    starts = side * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[:k]
    steps = rng.normal(0, 0.05, (k, n // k, 2))
    return (starts[:, None] + np.cumsum(steps, axis=1)).reshape(-1, 2)


def rings(n, k, seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, (k, n // k))
    radius = np.arange(1, k + 1)[:, None] * (1 + 0.01 * rng.normal(size=angle.shape))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2).reshape(-1, 2)


def trajectories(n, k, seed):
    """Smooth curves with a little noise, in six columns."""
    rng = np.random.default_rng(seed)
    time, order = np.linspace(0, np.pi, n // k), np.arange(1, 5)
    phase, size = rng.uniform(0, 6, (k, 4, 1, 6)), rng.normal(size=(k, 4, 1, 6))
    waves = np.sin(order[:, None, None] * time[:, None] + phase) * size / order[:, None, None]
    apart = 10.0 * np.eye(6)[:k, None]
    return (waves.sum(axis=1) + apart + 0.01 * rng.normal(size=(k, n // k, 6))).reshape(-1, 6)


SHAPES = [walks, rings, trajectories]


def check(estimator, shape, n, k, seed=0, **params):
    X = shape(n, k, seed)
    model = estimator(k, random_state=0, **params).fit(X)
    truth = np.repeat(np.arange(k), n // k)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    return model


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("n", [3000, 10_000])
def test_volume_clustering_finds_the_pieces(shape, n, k):
    check(SoftLabelMVC, shape, n, k)


@pytest.mark.parametrize("shape", SHAPES)
def test_other_methods_on_the_same_graph_find_the_pieces(shape):
    check(NormalizedSpectralClustering, shape, 10_000, 4)
    check(NormalizedCut, shape, 10_000, 2)


@pytest.mark.parametrize("estimator", [SoftLabelMVC, NormalizedSpectralClustering])
def test_eigenvectors_of_a_coarse_copy_miss_no_piece(estimator):
    """From 30,000 rows on, LOBPCG starts from a coarse copy of the matrix."""
    check(estimator, walks, 30_000, 4, seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [20_000, 30_000, 50_000])
@pytest.mark.parametrize("seed", range(3))
def test_large_pieces(shape, n, seed):
    for k in (2, 3, 4):
        n_rows = n // k * k
        check(SoftLabelMVC, shape, n_rows, k, seed)
        check(NormalizedSpectralClustering, shape, n_rows, k, seed)
    check(NormalizedCut, shape, n, 2, seed)


def test_eigenvectors_are_accurate_relative_to_tiny_eigenvalues():
    model = check(SoftLabelMVC, walks, 10_000, 4, seed=1)
    used = model.eigenvalues_[:4] - 1 / 10_000
    assert used.max() < 1e-10
    assert model.result_.residuals["eigenvectors"] < 1e-9


@pytest.mark.parametrize("estimator", [SoftLabelMVC, NormalizedSpectralClustering, NormalizedCut])
@pytest.mark.filterwarnings("ignore:.*connected components")
@pytest.mark.parametrize("k", [2, 3, 4])
def test_components_of_the_graph_are_never_cut(estimator, k):
    """The graph of nearest neighbours is not joined. It has three components."""
    X = rings(3000, 3, 0)
    n_clusters = 2 if estimator is NormalizedCut else k
    model = estimator(n_clusters, affinity="nearest_neighbors", n_neighbors=10, random_state=0)
    model.fit(X)
    fitted = model._fitted if estimator is SoftLabelMVC else model._spectral_graph
    count, component = fitted.graph.components
    assert count == 3
    if n_clusters <= count:
        assert normalized_cut(fitted.graph.W, model.labels_) == 0.0
    else:
        for cluster in range(n_clusters):
            assert np.unique(component[model.labels_ == cluster]).size == 1


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_raise_the_cut_are_not_kept(seed):
    """Noise has no clusters: the steps maximise the agreement, and the cut rises and falls."""
    X = np.random.default_rng(seed).normal(size=(800, 2))
    model = SoftLabelMVC(4, random_state=0).fit(X)
    result, W = model.result_, model._fitted.graph.W
    assert model.objective_ == min(result.history) <= result.history[0]
    assert model.objective_ == pytest.approx(normalized_cut(W, model.labels_))


@pytest.mark.parametrize("seed", [4, 14, 30])
def test_two_clusters_are_not_cut_worse_than_at_the_start(seed):
    """Fields of Q = L + I/n do not prefer the start, whose cut is far below 1/n."""
    X = np.cumsum(np.random.default_rng(seed).normal(size=(1000, 2)), axis=0)
    model = SoftLabelMVC(2).fit(X)
    W = model._fitted.graph.W
    assert normalized_cut(W, model.labels_) <= normalized_cut(W, model.result_.start > 0)
    np.testing.assert_array_equal(model.labels_, model.field_ >= 0)
