"""Approximate neighbours by cells, against all pairs."""

import pickle

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import make_blobs

from volmar import SoftLabelMVC
from volmar.graphs import NeighborSearch, neighbor_graph, neighbors
from volmar.graphs.neighbors import CellIndex


def rows_of(kind, n=6000, d=16, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "noise":
        return rng.normal(size=(n, d))
    if kind == "blobs":
        return make_blobs(n, d, centers=10, random_state=seed)[0]
    if kind == "curve":
        return np.sin(np.outer(rng.uniform(0, 3, n), np.arange(1, d + 1)))
    return rng.integers(0, 3, size=(n, d)).astype(float)  # lattice: full of ties and copies


def true_distances(X, k, rows):
    D = cdist(X[rows], X)
    D[np.arange(rows.size), rows] = np.inf
    return np.sort(D, axis=1)[:, :k]


@pytest.mark.parametrize("kind", ["noise", "blobs", "curve", "lattice"])
def test_recall_is_what_was_asked_for_and_what_is_reported(kind):
    X, k = rows_of(kind), 15
    search = NeighborSearch(X, neighbors="cells", random_state=0)
    graph = search.graph(k)
    sample = np.random.default_rng(1).choice(len(X), 500, replace=False)
    limit = true_distances(X, k, sample)[:, -1:] * (1 + 1e-9)
    recall = np.mean(graph.data.reshape(-1, k)[sample] <= limit)
    assert recall >= neighbors.TARGET_RECALL - 0.01
    assert abs(search.recall - recall) < 0.03
    assert graph.diagonal().sum() == 0


def test_a_search_can_be_repeated_and_leaves_most_rows_unseen(monkeypatch):
    X = rows_of("blobs")
    seen = []
    look_into = neighbors._Scan._look_into

    def counted(self, cell, queries):
        seen.append(queries.size * int(np.diff(self._cells.start)[cell]))
        look_into(self, cell, queries)

    first = CellIndex(X, 10, seed=3)
    monkeypatch.setattr(neighbors._Scan, "_look_into", counted)
    found = first.among()
    assert sum(seen) < 0.3 * len(X) ** 2
    np.testing.assert_array_equal(found, CellIndex(X, 10, seed=3).among())


def test_with_every_cell_in_reach_the_search_is_exact():
    X = rows_of("noise", n=3000)
    index = CellIndex(X, 10, seed=0)
    index.reach = np.inf
    found = np.sort(cdist(X, X)[np.arange(3000)[:, None], index.among()], axis=1)
    np.testing.assert_allclose(found[:, 1:10], true_distances(X, 9, np.arange(3000)), rtol=1e-6)


@pytest.mark.parametrize("setting", ["MAX_HELD", "USUAL", "CHUNK", "TILE"])
def test_bounds_and_blocks_do_not_change_the_answer(monkeypatch, setting):
    """Candidates that are reduced during the search, bounds that fail often, small blocks."""
    X = rows_of("blobs", n=3000)
    expected = neighbor_graph(X, n_neighbors=8, neighbors="cells", random_state=0)
    value = {"MAX_HELD": 1, "USUAL": 0.2, "CHUNK": 700, "TILE": 5000}[setting]
    monkeypatch.setattr(neighbors, setting, value)
    found = neighbor_graph(X, n_neighbors=8, neighbors="cells", random_state=0)
    # Float32 products differ in the last digit with the shape of a block.
    assert (found != expected).nnz <= 0.01 * expected.nnz


def test_many_copies_of_a_row():
    X = rows_of("blobs", n=3000)
    X[:1500] = X[0]
    graph = neighbor_graph(X, n_neighbors=6, neighbors="cells", random_state=0)
    np.testing.assert_array_equal(graph.data.reshape(-1, 6)[:1500], 0.0)
    assert not (graph.indices.reshape(-1, 6) == np.arange(3000)[:, None]).any()


def test_far_groups_keep_their_digits():
    """Distances within groups are a millionth of those between them, below float32's digits."""
    X = rows_of("noise", n=3000) + 1e6 * np.repeat(np.arange(3), 1000)[:, None]
    search = NeighborSearch(X, neighbors="cells", random_state=0)
    graph = search.graph(8)
    assert search.recall >= 0.9
    assert (graph.indices.reshape(-1, 8) // 1000 == np.arange(3000)[:, None] // 1000).all()


def test_new_rows_and_pickles():
    X, new = rows_of("blobs"), rows_of("blobs", n=200, seed=0) + 0.05
    search = NeighborSearch(X, neighbors="cells", random_state=0)
    found = search.query(new, 10)
    limit = np.sort(cdist(new, X), axis=1)[:, 9:10] * (1 + 1e-9)
    assert np.mean(found.data.reshape(-1, 10) <= limit) >= 0.9
    again = pickle.loads(pickle.dumps(search)).query(new, 10)
    assert (found != again).nnz == 0


def test_a_low_recall_is_reported_with_a_remedy(monkeypatch):
    X = rows_of("noise", n=2000)
    among = CellIndex.among

    def careless(self):
        found = among(self)
        return (found + (np.arange(found.shape[1]) % 2)) % 2000  # every other one is wrong

    monkeypatch.setattr(CellIndex, "among", careless)
    search = NeighborSearch(X, neighbors="cells", random_state=0)
    with pytest.warns(UserWarning, match=r"found 0\.\d+ .*neighbors='exact'"):
        search.graph(9)
    assert search.recall < 0.7


def test_clusters_and_recall_of_an_estimator(monkeypatch):
    X = make_blobs(3000, 16, centers=2, cluster_std=3.0, random_state=0)[0]
    exact = SoftLabelMVC().fit(X)
    assert exact.neighbor_recall_ == 1.0
    monkeypatch.setattr(neighbors, "APPROXIMATE_ABOVE", (1000, 8))
    model = SoftLabelMVC().fit(X)
    assert 0.9 < model.neighbor_recall_ < 1.0
    np.testing.assert_array_equal(model.labels_, exact.labels_)
    np.testing.assert_array_equal(model.field_, SoftLabelMVC().fit(X).field_)
    np.testing.assert_array_equal(model.predict(X[:200]), model.labels_[:200])


def test_precomputed_graphs_have_no_recall():
    W = neighbors.symmetrize(neighbor_graph(rows_of("noise", n=200), n_neighbors=9))
    assert SoftLabelMVC(affinity="precomputed").fit(W).neighbor_recall_ is None
