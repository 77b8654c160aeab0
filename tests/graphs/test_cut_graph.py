"""The graph that compares clusters of different kernels."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_circles, make_moons

from volmar.graphs.copies import distinct_rows
from volmar.graphs.density_scaling import CutGraph
from volmar.metrics import clustering_error


def graph_of(X, weights=None):
    return CutGraph(*distinct_rows(X), weights)


def test_cut_is_the_ratio_cut_of_its_definition(rng):
    X, labels = rng.standard_normal((40, 2)), rng.integers(0, 3, 40)
    n, q = 40, 3
    D = np.linalg.norm(X[:, None] - X, axis=2)
    order = np.argsort(D, axis=1)[:, 1:]
    s = D[np.arange(n), order[:, q - 1]]
    products = np.outer(s, s)
    W = np.exp(-(D**2) / products) * np.median(s) ** 2 / products
    near = np.zeros((n, n), dtype=bool)
    near[np.arange(n)[:, None], order[:, : 2 * q + 1]] = True
    W *= near | near.T
    terms = [W[labels == c][:, labels != c].sum() / (labels == c).sum() for c in range(3)]
    assert graph_of(X).cut(labels) == pytest.approx(np.mean(terms) * n / W.sum())


def test_a_weight_of_two_is_a_row_written_twice(rng):
    X, weights = rng.standard_normal((60, 3)), rng.integers(1, 4, 60)
    labels = (X[:, 0] > 0).astype(int)
    weighted = graph_of(X, weights.astype(float))
    written = graph_of(np.repeat(X, weights, axis=0))
    assert weighted.cut(labels) == pytest.approx(written.cut(np.repeat(labels, weights)))
    np.testing.assert_allclose(weighted.shares(labels), written.shares(np.repeat(labels, weights)))
    found = weighted.labels(2, 1.0)
    np.testing.assert_array_equal(np.repeat(found, weights), written.labels(2, 1.0))


def test_order_of_rows_does_not_matter(rng):
    X, _ = make_moons(150, noise=0.08, random_state=0)
    order = rng.permutation(150)
    np.testing.assert_array_equal(
        graph_of(X).labels(2, 1.0)[order], graph_of(X[order]).labels(2, 1.0)
    )


def test_sparse_rows_have_the_same_graph():
    X, _ = make_moons(100, noise=0.05, random_state=0)
    labels = (X[:, 0] > 0).astype(int)
    assert graph_of(sparse.csr_array(X)).cut(labels) == pytest.approx(graph_of(X).cut(labels))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_cut_has_no_unit(scale):
    X, y = make_moons(100, noise=0.05, random_state=0)
    assert graph_of(scale * X).cut(y) == pytest.approx(graph_of(X).cut(y), rel=1e-6)


@pytest.mark.parametrize("b", [1.0, 2.0])
@pytest.mark.parametrize("rows", [make_moons, make_circles])
def test_labels_follow_curves(rows, b):
    options = {"factor": 0.4} if rows is make_circles else {}
    X, y = rows(300, noise=0.05, random_state=3, **options)
    assert clustering_error(y, graph_of(X).labels(2, b)) <= 0.01


def test_more_than_two_groups(rng):
    X = np.vstack([rng.normal(8 * c, 1, (40, 2)) for c in range(4)])
    assert clustering_error(np.repeat(range(4), 40), graph_of(X).labels(4, 1.0)) == 0.0


def test_stray_rows_are_no_side(rng):
    X = np.vstack([rng.normal(0, 1, (200, 2)), [[40.0, 40.0], [-50.0, 30.0]]])
    labels = graph_of(X).labels(2, 1.0)
    assert min(np.bincount(labels)) >= 0.02 * 202


def test_one_cluster_has_no_cut(rng):
    graph = graph_of(rng.standard_normal((30, 2)))
    assert graph.cut(np.zeros(30, dtype=int)) == np.inf
    assert graph.cut(np.ones(30, dtype=int)) == np.inf


def test_many_copies_of_few_rows(rng):
    X = rng.integers(0, 5, (400, 2)).astype(float)
    X[200:] += 20.0
    labels = graph_of(X).labels(2, 1.0)
    assert clustering_error(np.repeat([0, 1], 200), labels) == 0.0
