"""Labels to start from: those of the unguided fit, or those spread from the seeds."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.neighbors import kneighbors_graph

from volmar.guidance import starts
from volmar.guidance.starts import SpreadGraph, held_out_folds, seeded_start, spread_labels


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, 3, centers=3, cluster_std=2.0, random_state=1)


def some(y, n, seed=0):
    known = np.random.default_rng(seed).choice(y.size, n, replace=False)
    return np.where(np.isin(np.arange(y.size), known), y, -1)


def test_labels_spread_to_the_fixed_point(blobs):
    """F = (1 - a) (I - a W)^-1 Y, of the graph that scikit-learn's neighbours give."""
    X, y = blobs
    seeds = some(y, 12)
    graph = kneighbors_graph(X, 10).toarray()
    W = np.maximum(graph, graph.T)
    scale = 1.0 / np.sqrt(W.sum(axis=1))
    W = scale[:, None] * W * scale
    Y = np.eye(4)[seeds][:, :3]  # the last row of the identity is for -1
    Y /= Y.sum(axis=0)
    field = np.linalg.solve(np.eye(300) - 0.9 * W, Y)
    expected = np.where(seeds >= 0, seeds, np.argmax(field, axis=1))
    assert np.mean(spread_labels(X, seeds, 3) == expected) > 0.99


def test_a_sample_of_the_rows_is_the_graph(blobs, monkeypatch):
    X, y = blobs
    seeds = some(y, 20)
    whole = spread_labels(X, seeds, 3)
    monkeypatch.setattr(starts, "GRAPH_ROWS", 100)
    graph = SpreadGraph(X, seeds >= 0)
    assert graph.chosen.size < 121
    found = graph.labels(seeds, 3)
    np.testing.assert_array_equal(found[seeds >= 0], seeds[seeds >= 0])
    assert np.mean(found == whole) > 0.9


def test_rows_that_no_label_reaches_have_the_nearest():
    X = np.concatenate([np.zeros((20, 1)), np.full((20, 1), 10.0), np.full((20, 1), 12.0)])
    X += 1e-3 * np.arange(60)[:, None]
    seeds = np.full(60, -1)
    seeds[[0, 25]] = 0, 1
    labels = spread_labels(X, seeds, 2)
    assert labels.tolist() == [0] * 20 + [1] * 40


def test_folds_leave_a_seed_of_each_class(blobs):
    _, y = blobs
    seeds = some(y, 15)
    folds = list(held_out_folds(seeds, 0))
    assert sum(fold.size for fold, _ in folds) == 15
    for fold, rest in folds:
        assert (rest[fold] == -1).all()
        assert np.unique(rest[rest >= 0]).size == 3
        assert (rest >= 0).sum() + fold.size == 15


def test_seeds_are_trusted_where_free_clusters_are_wrong(blobs):
    X, y = blobs
    rng = np.random.default_rng(0)
    poor = rng.integers(0, 3, 300)
    start = seeded_start(X, poor, some(y, 30), 3)
    assert start.graph is not None
    assert np.mean(start.labels == y) > 0.9


def test_free_clusters_stay_where_they_are_as_good(blobs):
    X, y = blobs
    seeds = some(y, 30)
    start = seeded_start(X, (y + 1) % 3, seeds, 3)
    assert start.graph is None
    np.testing.assert_array_equal(start.labels, y)


def test_random_seeds_are_seldom_trusted(blobs):
    """At most at the level of the test, up to its standard error."""
    X, y = blobs
    n_trusted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        seeds = some(y, 20, seed)
        seeds[seeds >= 0] = rng.integers(0, 3, 20)
        n_trusted += seeded_start(X, y, seeds, 3).graph is not None
    assert n_trusted <= 100 * starts.LEVEL + 2 * 2.2


def test_names_of_clusters_where_the_seeds_alone_do_not_say(blobs):
    """One label of each class, both in one cluster: their neighbours decide."""
    X, y = blobs
    X, y = X[y < 2], y[y < 2]
    free = y.copy()
    wrong = np.flatnonzero(y == 1)[0]
    free[wrong] = 0
    seeds = np.full(y.size, -1)
    seeds[[np.flatnonzero(y == 0)[0], wrong]] = 0, 1
    for clusters in (free, 1 - free):
        labels = seeded_start(X, clusters, seeds, 2).labels
        assert np.mean(labels == y) > 0.95
