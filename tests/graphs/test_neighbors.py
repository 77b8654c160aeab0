"""Neighbour graphs from every back end."""

import pickle
import subprocess
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors

from volmar.graphs import NeighborSearch, neighbor_graph, neighbors, symmetrize

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


BACKENDS = [
    pytest.param("auto", id="auto"),
    pytest.param("exact", id="exact"),
    pytest.param("faiss", id="faiss"),
    pytest.param(KNeighborsTransformer(n_neighbors=9), id="transformer"),
    pytest.param(KNeighborsTransformer(n_neighbors=9, mode="connectivity"), id="connectivity"),
]


@pytest.fixture(autouse=True)
def _needs_faiss(request):
    if "faiss" in request.node.name:
        pytest.importorskip("faiss")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("d", [3, 20])
def test_every_back_end_agrees_with_brute_force(backend, metric, d):
    X = blobs(d=d)
    graph = neighbor_graph(X, n_neighbors=6, neighbors=backend, metric=metric)
    indices, distances = rows(graph, 6)
    expected_indices, expected = brute_force(X, 6, metric)
    assert recall(indices, expected_indices) > 0.999
    np.testing.assert_allclose(distances, expected, rtol=1e-6, atol=1e-14)
    assert (np.diff(distances, axis=1) >= 0).all()
    # Float32 indexes may miss a tie, but distances have full precision.
    pair = cdist(X, X, metric=metric)[np.arange(len(X))[:, None], indices]
    np.testing.assert_allclose(distances, pair, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
def test_query_agrees_with_brute_force(backend):
    X, X_new = blobs(), blobs(seed=1)[:30]
    search = NeighborSearch(X, neighbors=backend)
    graph = search.query(X_new, 6)
    assert graph.shape == (30, 400)
    reference = np.sort(cdist(X_new, X), axis=1)[:, :6]
    np.testing.assert_allclose(rows(graph, 6)[1], reference, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copies", [2, 40])
def test_duplicates_exclude_self_by_index(backend, copies):
    X = np.repeat(np.arange(5.0)[:, None] * [[1.0, 2.0]], copies, axis=0) + 1e4
    k = 4
    graph = neighbor_graph(X, n_neighbors=k, neighbors=backend)
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


@pytest.mark.parametrize("structure", ["blobs", "noise"])
def test_recall_of_the_inverted_file_faiss(monkeypatch, structure):
    X = blobs(n=5000) if structure == "blobs" else np.random.default_rng(0).normal(size=(5000, 16))
    monkeypatch.setattr(neighbors, "FAISS_FLAT_LIMIT", 1000)
    found = neighbor_graph(X, n_neighbors=10, neighbors="faiss", random_state=0)
    again = neighbor_graph(X, n_neighbors=10, neighbors="faiss", random_state=0, n_jobs=1)
    assert (found != again).nnz == 0
    exact = neighbor_graph(X, n_neighbors=10, neighbors="exact")
    assert recall(rows(found, 10)[0], rows(exact, 10)[0]) >= 0.95


def test_rows_an_approximate_index_leaves_short_are_searched_again_faiss(monkeypatch):
    X = np.vstack([blobs(n=2000, d=2), [[1e3, 1e3]]])
    monkeypatch.setattr(neighbors, "FAISS_FLAT_LIMIT", 100)
    monkeypatch.setattr(neighbors, "FAISS_PROBES", 1)
    graph = neighbor_graph(X, n_neighbors=30, neighbors="faiss", random_state=0)
    np.testing.assert_array_equal(np.diff(graph.indptr), 30)
    exact_last = brute_force(X, 30)[1][-1]
    np.testing.assert_allclose(rows(graph, 30)[1][-1], exact_last)


def test_faiss_search_pickles(monkeypatch):
    monkeypatch.setattr(neighbors, "FAISS_FLAT_LIMIT", 100)
    X = blobs(n=2000)
    search = NeighborSearch(X, neighbors="faiss", random_state=0)
    expected = search.query(X[:50], 5)
    again = pickle.loads(pickle.dumps(search)).query(X[:50], 5)
    assert (again != expected).nnz == 0


@pytest.mark.nightly
def test_recall_of_pynndescent():
    """Every night: numba compiles for a minute. The next test has a stand-in for the package."""
    pytest.importorskip("pynndescent")
    X = blobs(n=5000)
    search = NeighborSearch(X, neighbors="pynndescent", random_state=0)
    exact = neighbor_graph(X, n_neighbors=10)
    found = search.graph(10)
    assert recall(rows(found, 10)[0], rows(exact, 10)[0]) >= 0.95
    again = neighbor_graph(X, n_neighbors=10, neighbors="pynndescent", random_state=0)
    assert (found != again).nnz == 0
    new = X[:50] + 0.01
    reference = NeighborSearch(X).query(new, 10)
    assert recall(rows(search.query(new, 10), 10)[0], rows(reference, 10)[0]) >= 0.9


class StandInNNDescent:
    """Names exact neighbours, but loses all of row 3 and one of row 5, as NN-descent may."""

    def __init__(self, data, n_neighbors, random_state, n_jobs):
        assert isinstance(random_state, int)
        self.width, self.n_jobs = n_neighbors, n_jobs
        self.index = NearestNeighbors(n_neighbors=n_neighbors).fit(data)
        found = self.index.kneighbors(data, return_distance=False).astype(np.int32)
        found[3] = -1
        found[5, 1] = -1
        self.neighbor_graph = found, None

    def query(self, data, k):
        return self.index.kneighbors(data, n_neighbors=k, return_distance=False), None


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_pynndescent_wiring_and_repair(monkeypatch, wrap):
    module = types.SimpleNamespace(NNDescent=StandInNNDescent)
    monkeypatch.setitem(sys.modules, "pynndescent", module)
    X = blobs(n=40)
    search = NeighborSearch(wrap(X), neighbors="pynndescent", n_jobs=1)
    graph = search.graph(35)
    np.testing.assert_allclose(rows(graph, 35)[1], brute_force(X, 35)[1], rtol=1e-9)
    assert search.query(wrap(X), 3).nnz == 40 * 3


def test_auto_goes_approximate_only_past_both_limits(monkeypatch):
    monkeypatch.setattr(neighbors, "APPROXIMATE_ABOVE", (100, 8))
    choose = neighbors._automatic
    assert choose(np.zeros((101, 9))) == "cells"
    assert choose(np.zeros((100, 9))) == "exact"
    assert choose(np.zeros((101, 8))) == "exact"
    assert choose(sp.csr_array((101, 16))) == "exact"


@pytest.mark.parametrize(("name", "package"), [("faiss", "faiss-cpu"), ("pynndescent", "pynn")])
def test_missing_back_end_names_the_extra(monkeypatch, name, package):
    def refuse(module):
        raise ImportError(module)

    monkeypatch.setattr(neighbors, "import_module", refuse)
    with pytest.raises(ImportError, match=rf"neighbors='{name}'.*volmar\[large\].*{package}"):
        neighbor_graph(blobs(), n_neighbors=5, neighbors=name)


def test_nothing_heavy_is_imported_for_exact_search():
    code = (
        "import sys; from volmar.graphs import neighbor_graph\n"
        "neighbor_graph([[0.0], [1.0], [3.0]], n_neighbors=1)\n"
        "print(*{'faiss', 'pynndescent', 'numba', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# Given graphs and transformers


def test_precomputed_graph_names_the_neighbors():
    X = blobs()
    given_graph = NearestNeighbors(n_neighbors=8).fit(X).kneighbors_graph(mode="distance")
    graph = neighbor_graph(X, n_neighbors=6, neighbors=given_graph)
    np.testing.assert_allclose(rows(graph, 6)[1], brute_force(X, 6)[1])
    search = NeighborSearch(X, neighbors=given_graph)
    assert search.query(X[:5] + 0.1, 3).shape == (5, 400)


def test_stored_zeros_of_a_distance_graph_are_neighbors():
    X = np.array([[0.0], [0.0], [5.0]])
    given_graph = sp.csr_array(
        (np.array([0.0, 0.0, 5.0]), np.array([1, 0, 0]), np.array([0, 1, 2, 3])), shape=(3, 3)
    )
    graph = neighbor_graph(X, n_neighbors=1, neighbors=given_graph)
    np.testing.assert_array_equal(graph.indices, [1, 0, 0])
    np.testing.assert_array_equal(graph.data, [0.0, 0.0, 5.0])


def test_transformer_is_cloned():
    transformer = KNeighborsTransformer(n_neighbors=9)
    neighbor_graph(blobs(), n_neighbors=5, neighbors=transformer)
    assert not hasattr(transformer, "n_samples_fit_")


@pytest.mark.parametrize(
    "given_neighbors",
    [
        KNeighborsTransformer(n_neighbors=3),
        NearestNeighbors(n_neighbors=3).fit(blobs()).kneighbors_graph(),
        sp.csr_array((400, 400)),
    ],
)
def test_too_few_given_neighbors(given_neighbors):
    with pytest.raises(ValueError, match=r"^neighbors .*needed"):
        neighbor_graph(blobs(), n_neighbors=5, neighbors=given_neighbors)


def test_bad_arguments():
    X = blobs()
    with pytest.raises(ValueError, match=r"^neighbors .*points"):
        neighbor_graph(X, n_neighbors=5, neighbors=sp.eye_array(3, format="csr"))
    with pytest.raises(ValueError, match=r"^metric"):
        neighbor_graph(X, n_neighbors=5, metric="l1")
    with pytest.raises(ValueError, match=r"^neighbors .*got 'hnsw'"):
        neighbor_graph(X, n_neighbors=5, neighbors="hnsw")
    with pytest.raises(TypeError, match=r"^neighbors .*got int"):
        neighbor_graph(X, n_neighbors=5, neighbors=3)
    with pytest.raises(ValueError, match="at most 399"):
        neighbor_graph(X, n_neighbors=400)
    with pytest.raises(ValueError, match="at most 399"):
        NeighborSearch(X).query(X, 400)
    with pytest.raises(ValueError, match="X_new has 3 features"):
        NeighborSearch(X).query(X[:, :3], 4)


@pytest.mark.parametrize("name", ["faiss", "cells"])
def test_dense_back_ends_refuse_sparse_points(name):
    with pytest.raises(ValueError, match=rf"neighbors='{name}' takes dense points.*TruncatedSVD"):
        neighbor_graph(sp.csr_array(blobs()), n_neighbors=5, neighbors=name)


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
