"""Laplacians, degrees and connected components."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csgraph

from volmar import _memory
from volmar.graphs import laplacian, local_scaling_similarity
from volmar.graphs.laplacian import component_message, connected_components, degrees

KINDS = ["unnormalized", "symmetric", "random_walk"]
quick = settings(deadline=None, max_examples=30)


def random_graph(seed, n=25, density=0.2, loops=True):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < density), 0 if loops else 1)
    return W + np.triu(W, 1).T


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def by_definition(W, kind):
    d = W.sum(axis=1)
    safe = np.where(d > 0, d, 1.0)
    if kind == "unnormalized":
        return np.diag(d) - W
    if kind == "symmetric":
        return np.eye(len(W)) - np.diag(safe**-0.5) @ W @ np.diag(safe**-0.5)
    return np.eye(len(W)) - np.diag(1 / safe) @ W


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, sp.csr_matrix])
@quick
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.02, 0.2, 1.0]))
def test_definition_with_isolated_nodes(kind, wrap, seed, density):
    W = random_graph(seed, density=density)
    L = laplacian(wrap(W), kind=kind)
    assert sp.issparse(L) == sp.issparse(wrap(W))
    np.testing.assert_allclose(dense(L), by_definition(W, kind), atol=1e-13)
    if kind != "random_walk":
        np.testing.assert_array_equal(dense(L), dense(L).T)


@quick
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.02, 0.2, 1.0]))
def test_spectra_and_null_vectors(seed, density):
    W = random_graph(seed, density=density)
    ones, d = np.ones(len(W)), degrees(W)
    np.testing.assert_allclose(laplacian(W, kind="unnormalized") @ ones, 0, atol=1e-12)
    np.testing.assert_allclose(laplacian(W, kind="random_walk") @ ones, d == 0, atol=1e-12)
    L = laplacian(W)
    np.testing.assert_allclose(L @ np.sqrt(d), 0, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(L)
    assert eigenvalues.min() > -1e-12
    assert eigenvalues.max() < 2 + 1e-12
    # One zero for each component with an edge; isolated nodes are at one.
    assert (eigenvalues < 1e-10).sum() == connected_components(W)[0] - (d == 0).sum()


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_isolated_node_has_one_on_the_diagonal(wrap):
    W = wrap(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    expected = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(dense(laplacian(W)), expected)
    np.testing.assert_array_equal(dense(laplacian(W, kind="random_walk")), expected)
    assert dense(laplacian(W, kind="unnormalized"))[2, 2] == 0
    # A weight too small for its reciprocal is treated as none.
    tiny = wrap(np.array([[0.0, 5e-324], [5e-324, 0.0]]))
    np.testing.assert_array_equal(dense(laplacian(tiny)), np.eye(2))


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kind", KINDS)
def test_float32_stays_and_is_accurate(wrap, kind):
    W = random_graph(0, n=600, density=1.0).astype(np.float32)
    L = laplacian(wrap(W), kind=kind)
    assert L.dtype == np.float32
    exact = by_definition(W.astype(np.float64), kind)
    np.testing.assert_allclose(dense(L), exact, rtol=1e-6, atol=1e-9)
    assert degrees(wrap(W)).dtype == np.float64
    if kind != "random_walk":
        np.testing.assert_array_equal(dense(L), dense(L).T)


def test_input_is_not_changed():
    for W in (random_graph(1), sp.csr_array(random_graph(1))):
        before = W.copy()
        for kind in KINDS:
            laplacian(W, kind=kind)
        assert (before != W).sum() == 0


def test_graph_from_points_goes_straight_through():
    X = np.random.default_rng(0).normal(size=(300, 2))
    L = laplacian(local_scaling_similarity(X, graph="knn"))
    assert L.format == "csr"
    assert L.has_sorted_indices
    assert L.indices.dtype == np.int32  # SuperLU, ARPACK's helpers and scikit-learn refuse 64-bit
    assert (L != L.T).nnz == 0


def test_bad_input():
    with pytest.raises(ValueError, match=r"^kind\b"):
        laplacian(random_graph(0), kind="sym")
    with pytest.raises(ValueError, match="negative entries"):
        laplacian(-random_graph(0))
    with pytest.raises(ValueError, match="must be symmetric"):
        degrees([[0.0, 1.0], [0.0, 0.0]])


def test_memory_refusal(monkeypatch):
    W = random_graph(0)
    monkeypatch.setattr(_memory, "available_memory", lambda: 10)
    with pytest.raises(MemoryError, match="dense Laplacian of 25 nodes"):
        laplacian(W)
    assert laplacian(sp.csr_array(W)).shape == (25, 25)


# Components


@quick
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0.0, 0.03, 0.06, 0.5]))
def test_components_agree_with_scipy(seed, density):
    W = random_graph(seed, density=density)
    count, reference = csgraph.connected_components(sp.csr_array(W), directed=False)
    for form in (W, sp.csr_array(W)):
        found, labels = connected_components(form)
        assert found == count
        np.testing.assert_array_equal(labels, reference)


def test_components_of_a_long_dense_chain():
    W = np.diag(np.ones(699), 1)
    W[400, 401] = 0
    W = W + W.T
    count, labels = connected_components(W)
    assert count == 2
    np.testing.assert_array_equal(np.bincount(labels), [401, 299])


def test_stored_zeros_are_no_edges():
    W = sp.csr_array((np.array([0.0, 0.0]), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    assert connected_components(W)[0] == 2
    assert W.nnz == 2


def test_message_names_count_sizes_and_remedy():
    message = component_message(np.repeat([0, 5, 2, 3, 1], [200, 1, 3, 40, 1]))
    assert "5 connected components (smallest: 1, 1, 3 of 245 points)" in message
    assert "Raise n_neighbors or sigma" in message
    assert component_message([0, 0]) == ""
