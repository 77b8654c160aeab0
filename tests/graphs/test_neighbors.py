"""Neighbour graphs by the exact search and by cells."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs

from volmar.graphs import neighbors
from volmar.graphs.neighbors import NeighborSearch, symmetrize

quick = settings(deadline=None, max_examples=25)


def blobs(n=400, d=16, seed=0):
    return make_blobs(n, d, centers=5, random_state=seed)[0]


def brute_force(X, k, metric="euclidean"):
    D = cdist(X, X, metric=metric)
    np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


def recall(found, reference):
    return np.mean([np.isin(a, b).mean() for a, b in zip(reference, found, strict=True)])


def rows(graph, k):
    return graph.indices.reshape(-1, k), graph.data.reshape(-1, k)


def neighbor_graph(X, n_neighbors, **search):
    return NeighborSearch(X, **search).graph(n_neighbors)


SEARCHES = pytest.mark.parametrize("exact", [None, True, False], ids=["auto", "exact", "cells"])


@SEARCHES
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("d", [3, 20])
def test_every_search_agrees_with_brute_force(exact, metric, d):
    X = blobs(d=d)
    graph = neighbor_graph(X, n_neighbors=6, exact=exact, metric=metric)
    indices, distances = rows(graph, 6)
    expected_indices, expected = brute_force(X, 6, metric)
    if exact is False:
        assert recall(indices, expected_indices) > 0.95
    else:
        np.testing.assert_allclose(distances, expected, rtol=1e-6, atol=1e-14)
    assert (np.diff(distances, axis=1) >= 0).all()
    # Cells may miss a neighbour, but distances have full precision.
    pair = cdist(X, X, metric=metric)[np.arange(len(X))[:, None], indices]
    np.testing.assert_allclose(distances, pair, rtol=1e-10, atol=1e-14)


@SEARCHES
def test_query_agrees_with_brute_force(exact):
    X, X_new = blobs(), blobs(seed=1)[:30]
    search = NeighborSearch(X, exact=exact)
    graph = search.query(X_new, 6)
    assert graph.shape == (30, 400)
    reference = np.sort(cdist(X_new, X), axis=1)[:, :6]
    same = np.isclose(rows(graph, 6)[1], reference, rtol=1e-6)
    assert same.mean() > 0.95 if exact is False else same.all()


@SEARCHES
@pytest.mark.parametrize("copies", [2, 40])
def test_duplicates_exclude_self_by_index(exact, copies):
    X = np.repeat(np.arange(5.0)[:, None] * [[1.0, 2.0]], copies, axis=0) + 1e4
    k = 4
    graph = neighbor_graph(X, n_neighbors=k, exact=exact)
    indices, distances = rows(graph, k)
    assert not (indices == np.arange(len(X))[:, None]).any()
    assert all(len(set(row)) == k for row in indices)
    expected = 0.0 if copies > k else brute_force(X, k)[1][:, copies - 1 :]
    np.testing.assert_array_equal(distances[:, : copies - 1], 0.0)  # to the last bit
    np.testing.assert_allclose(distances[:, copies - 1 :], expected)


@quick
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 11), spread=st.sampled_from([1, 3, 50]))
def test_exact_distances_on_lattices_full_of_ties(seed, k, spread):
    X = np.random.default_rng(seed).integers(0, spread, size=(12, 2)).astype(float)
    graph = neighbor_graph(X, n_neighbors=k)
    np.testing.assert_array_equal(np.diff(graph.indptr), k)
    assert graph.diagonal().sum() == 0
    np.testing.assert_allclose(rows(graph, k)[1], brute_force(X, k)[1], atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_points(metric):
    X = blobs(d=20) * (np.random.default_rng(0).random((400, 20)) > 0.7)
    X[:, 0] += 20.0
    dense = neighbor_graph(X, n_neighbors=5, metric=metric)
    sparse = neighbor_graph(sp.csr_matrix(X), n_neighbors=5, metric=metric)
    np.testing.assert_array_equal(sparse.indices, dense.indices)
    np.testing.assert_allclose(sparse.data, dense.data, rtol=1e-9)


def test_neighbors_far_from_the_origin():
    X = np.random.default_rng(0).normal(size=(200, 20))
    near = neighbor_graph(X, n_neighbors=5)
    far = neighbor_graph(X + 1e7, n_neighbors=5)
    np.testing.assert_array_equal(far.indices, near.indices)
    np.testing.assert_allclose(far.data, near.data, rtol=1e-6)


def test_dtype_is_kept():
    X = blobs().astype(np.float32)
    assert neighbor_graph(X, n_neighbors=5).dtype == np.float32
    assert NeighborSearch(X).query(X.astype(np.float64), 5).dtype == np.float32


# Approximate search


def test_the_search_is_approximate_only_past_both_limits(monkeypatch):
    monkeypatch.setattr(neighbors, "APPROXIMATE_ABOVE", (100, 8))
    X = blobs(n=101)
    assert NeighborSearch(X).graph(5).nnz == 505
    for few in (X[:100], X[:, :8], sp.csr_array(X)):
        search = NeighborSearch(few)
        search.graph(5)
        assert search.recall == 1.0
        assert isinstance(search._search, neighbors.ExactSearch)
    assert isinstance(NeighborSearch(X)._search, neighbors.CellSearch)


def test_bad_arguments():
    X = blobs()
    with pytest.raises(ValueError, match="metric must be one of euclidean, cosine; got 'l1'"):
        neighbor_graph(X, n_neighbors=5, metric="l1")
    with pytest.raises(ValueError, match="at most 399"):
        neighbor_graph(X, n_neighbors=400)
    with pytest.raises(ValueError, match="at most 399"):
        NeighborSearch(X).query(X, 400)
    with pytest.raises(ValueError, match="X_new has 3 features"):
        NeighborSearch(X).query(X[:, :3], 4)


# Symmetrisation


def test_symmetrize_by_hand():
    G = sp.csr_array(np.array([[0.0, 0.5, 0.2], [0.7, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    union = [[0.0, 0.7, 0.2], [0.7, 0.0, 0.0], [0.2, 0.0, 0.0]]
    mutual = [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]
    average = [[0.0, 0.6, 0.1], [0.6, 0.0, 0.0], [0.1, 0.0, 0.0]]
    for how, expected in (("union", union), ("mutual", mutual), ("average", average)):
        result = symmetrize(G, how)
        np.testing.assert_allclose(result.toarray(), expected)
        assert (result != result.T).nnz == 0
        assert result.nnz == np.count_nonzero(expected)
    with pytest.raises(ValueError, match=r"^how\b"):
        symmetrize(G, "max")
    with pytest.raises(ValueError, match="square"):
        symmetrize(G[:2])


def test_symmetrize_keeps_float32():
    G = sp.random_array((30, 30), density=0.2, rng=np.random.default_rng(0), dtype=np.float32)
    for how in ("union", "mutual", "average"):
        assert symmetrize(G, how).dtype == np.float32
