"""The density-weighted local scaling: formula, copies, ties, pieces, new rows, estimators."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph
from scipy.spatial.distance import cdist
from sklearn.datasets import make_circles, make_moons
from sklearn.neighbors import KNeighborsTransformer

import volmar
from volmar import HardLabelMVC, NormalizedCut, NormalizedSpectralClustering, SoftLabelMVC
from volmar.graphs import density_scaling_similarity
from volmar.graphs.copies import Copies, distinct_rows
from volmar.graphs.density_scaling import (
    DensityScalingSimilarity,
    default_n_neighbors,
    joining_edges,
)
from volmar.graphs.graph import make_similarity
from volmar.graphs.laplacian import connected_components
from volmar.metrics import clustering_error


def rows(n=120, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def by_the_formula(X, k, n_edges, exponent):
    """All pairs of distances, one loop: for data without copies, ties and pieces."""
    D = cdist(X, X)
    order = np.argsort(D, axis=1)
    s = np.sort(D, axis=1)[:, k]
    apart = np.sqrt(np.mean((np.sort(D, axis=1)[:, 1] / s) ** 2))
    c = np.clip(apart * k / 9, 2 / k, 1.0)
    r = np.clip(s / np.sort(s)[(len(s) - 1) // 2], 0.8, 100.0)
    W = np.zeros_like(D)
    for i in range(len(X)):
        for j in order[i, 1 : n_edges + 1]:
            t = D[i, j] ** 2 / (2 * c**2 * s[i] * s[j])
            kernel = np.exp(-t) if t <= 9 else np.exp(-9) * 9 / t
            W[i, j] = W[j, i] = kernel / (r[i] * r[j]) ** exponent
    return W


@pytest.mark.parametrize(
    ("k", "n_edges", "exponent"), [(7, 10, 3.0), (12, 10, 1.0), (5, 20, 0.0), (40, 10, 2.0)]
)
def test_similarities_are_those_of_the_formula(k, n_edges, exponent):
    X = rows()
    X[0] *= 30  # far outside: the tail of the kernel
    W = density_scaling_similarity(X, n_neighbors=k, n_edges=n_edges, exponent=exponent)
    np.testing.assert_allclose(W.toarray(), by_the_formula(X, k, n_edges, exponent), rtol=1e-10)
    assert abs(W - W.T).max() == 0


def test_self_loops_are_the_formula_on_the_diagonal():
    X = rows()
    plain, loops = (density_scaling_similarity(X, self_loops=one) for one in (False, True))
    difference = (loops - plain).toarray()
    assert np.all(plain.diagonal() == 0)
    np.testing.assert_allclose(difference, np.diag(difference.diagonal()))
    # At distance 0 only the density counts: sqrt(W_ii W_jj) bounds W_ij.
    bound = np.sqrt(np.outer(loops.diagonal(), loops.diagonal()))
    assert np.all(plain.toarray() <= bound * (1 + 1e-12))


def test_unit_and_origin_do_not_matter():
    X = rows()
    W = density_scaling_similarity(X).toarray()
    np.testing.assert_allclose(density_scaling_similarity(1e3 * X + 5).toarray(), W, rtol=1e-8)


@pytest.mark.parametrize("n", [2, 3, 20, 80, 1000, 100_000])
def test_the_number_of_neighbours_grows_with_the_rows(n):
    assert default_n_neighbors(n) == min(round(np.log2(n)) + 3, n - 1)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_sparse_rows_and_float32_give_the_same(wrap):
    X = rows()
    W = density_scaling_similarity(wrap(X))
    np.testing.assert_allclose(W.toarray(), density_scaling_similarity(X).toarray(), rtol=1e-9)
    single = density_scaling_similarity(wrap(X.astype(np.float32)))
    assert single.dtype == np.float32
    assert single.indices.dtype == np.int32
    np.testing.assert_allclose(single.toarray(), W.toarray(), rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------------ copies and ties


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_many_copies_neither_cut_the_graph_nor_lose_their_scale(wrap):
    places = np.array([[1.0, 0], [2, 0], [3, 0], [10, 0], [11, 0], [12, 0]])
    X = wrap(np.repeat(places, 40, axis=0))
    W, extension = make_similarity("density_scaling").build(X)
    assert connected_components(W)[0] == 1
    assert np.all(np.isfinite(W.data))
    assert W.data.min() > 0
    labels = SoftLabelMVC().fit_predict(X)
    assert clustering_error(np.repeat([0, 1], 120), labels) == 0
    weights = extension.weights(wrap(places))
    np.testing.assert_allclose(np.asarray(weights.sum(axis=1)).ravel(), 1.0)


def test_copies_cost_few_edges_even_if_nearly_all_rows_are_one_point():
    X = np.vstack([np.zeros((3000, 2)), rows(200, 2)])
    W = density_scaling_similarity(X)
    assert connected_components(W)[0] == 1
    assert W.nnz < 80 * len(X)
    # Closely connected: copies are a few steps apart.
    part = csgraph.dijkstra(W[:3000][:, :3000], unweighted=True, indices=0)
    assert part.max() <= np.ceil(np.log2(3000))


def test_a_copy_of_every_row_leaves_the_clusters():
    X, y = make_moons(300, noise=0.1, random_state=0)
    model = SoftLabelMVC().fit(np.vstack([X, X]))
    assert np.array_equal(model.labels_[:300], model.labels_[300:])
    assert clustering_error(y, model.labels_[:300]) <= 0.01


def test_ties_do_not_depend_on_the_order_of_rows():
    grid = np.argwhere(np.ones((15, 12))).astype(float)
    W = density_scaling_similarity(grid).toarray()
    order = np.random.default_rng(0).permutation(len(grid))
    permuted = density_scaling_similarity(grid[order]).toarray()
    np.testing.assert_allclose(permuted, W[np.ix_(order, order)], rtol=1e-12)


def test_integers_with_copies_are_clustered_alike_in_any_order():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = np.round(rng.normal(size=(400, 2)) + 8.0 * np.outer(y, [1, 0]))
    order = rng.permutation(400)
    labels = SoftLabelMVC().fit_predict(X)
    assert clustering_error(y, labels) <= 0.005  # one row lies between the groups
    assert clustering_error(labels[order], SoftLabelMVC().fit_predict(X[order])) == 0


def test_density_of_copies_is_that_of_as_many_rows_nearby():
    """A point with many copies counts as dense: its edges weigh more than those of single rows."""
    grid = np.argwhere(np.ones((9, 9))).astype(float)
    dense = (grid[:, 0] < 4).astype(int)
    X = np.repeat(grid, np.where(dense, 12, 3), axis=0)
    W = density_scaling_similarity(X)
    # The strongest edge of a row is that to its copies; away from the border between the two.
    strong = np.asarray(W.max(axis=1).todense()).ravel()
    column = np.repeat(grid[:, 0], np.where(dense, 12, 3))
    assert strong[column <= 2].min() > 2 * strong[column >= 5].max()


def test_rows_whose_differences_vanish_when_squared():
    X = np.vstack([np.full((20, 1), 1e-200), np.full((20, 1), 2e-200), rows(20, 1)])
    W = density_scaling_similarity(X)
    assert connected_components(W)[0] == 1
    assert np.all(np.isfinite(W.data))


def test_copies_spread_and_tie():
    points, group = distinct_rows(np.array([[2.0], [1.0], [2.0], [2.0]]))
    copies = Copies(group, np.bincount(group))
    np.testing.assert_array_equal(points.ravel(), [1, 2])
    np.testing.assert_array_equal(copies.first, [1, 0])
    edges = copies.spread(sp.csr_array([[0.0, 5.0], [5.0, 0.0]])).toarray()
    np.testing.assert_array_equal(edges, [[0, 5, 0, 0], [5, 0, 0, 0], [0, 5, 0, 0], [0, 5, 0, 0]])
    ties = copies.ties(np.array([7.0, 3.0])).toarray()
    assert set(zip(*np.nonzero(ties + ties.T), strict=True)) == {
        *((0, 2), (2, 0), (0, 3), (3, 0), (2, 3), (3, 2))
    }
    assert not Copies.none(np.arange(3)).exist


# ------------------------------------------------------------------ pieces


def knn(X, k):
    return KNeighborsTransformer(n_neighbors=k).fit_transform(X)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_small_pieces_are_joined_by_a_minimum_spanning_tree(wrap):
    rng = np.random.default_rng(1)
    X = np.vstack([centre + rng.normal(size=(15, 2)) for centre in rng.uniform(0, 200, (9, 2))])
    n_pieces, piece = csgraph.connected_components(knn(X, 5), directed=False)
    extra = joining_edges(wrap(X), knn(X, 5))
    assert extra.nnz == n_pieces - 1
    D = cdist(X, X)
    between = np.array(
        [
            [D[np.ix_(piece == a, piece == b)].min() for b in range(n_pieces)]
            for a in range(n_pieces)
        ]
    )
    assert extra.sum() == pytest.approx(csgraph.minimum_spanning_tree(between).sum())


def test_large_pieces_are_joined_by_short_edges():
    X, y = make_moons(2000, noise=0.02, random_state=0)
    extra = joining_edges(X, knn(X, 8)).tocoo()
    assert extra.nnz == 1
    shortest = cdist(X[y == 0], X[y == 1]).min()
    assert shortest <= extra.data[0] <= 1.5 * shortest
    assert y[extra.coords[0][0]] != y[extra.coords[1][0]]


def test_a_connected_graph_gets_no_edges():
    X = rows()
    assert joining_edges(X, knn(X, 15)).nnz == 0


def test_the_nearer_of_three_far_pieces_are_one_cluster():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    X = rng.normal(size=(180, 2)) + np.array([[0.0, 0], [40, 0], [160, 0]])[y]
    for model in (SoftLabelMVC(), NormalizedCut(), NormalizedSpectralClustering(random_state=0)):
        assert clustering_error(y == 2, model.fit_predict(X)) == 0


@pytest.mark.parametrize("model", [SoftLabelMVC(), NormalizedCut()])
def test_a_few_far_rows_are_no_cluster(model):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 2)) + 8.0 * np.outer(y, [1, 0])
    X[:3] = [[4, 60], [4, 60.5], [4.5, 60]]
    assert clustering_error(y[3:], model.fit_predict(X)[3:]) <= 0.01


# ------------------------------------------------------------------ new rows


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_new_rows_get_the_similarities_of_the_graph(wrap):
    X = rows(200)
    recipe = DensityScalingSimilarity(n_neighbors=6)
    _, extension = recipe.build(wrap(X))
    new = rows(5, seed=1)
    S = extension(wrap(new)).toarray()
    D = cdist(new, X)
    own = np.sort(D, axis=1)[:, 5]
    scales = extension.scales
    t = D**2 / (2 * scales.width**2 * own[:, None] * scales.radius)
    kernel = np.where(t <= 9, np.exp(-t), np.exp(-9) * 9 / np.maximum(t, 9))
    expected = np.where(np.sort(D, axis=1)[:, [9]] >= D, kernel / scales.relative**3, 0.0)
    np.testing.assert_allclose(S, expected, rtol=1e-9)
    weights = extension.weights(wrap(new)).toarray()
    np.testing.assert_allclose(weights, S / S.sum(axis=1, keepdims=True), rtol=1e-9)


def test_far_rows_are_placed_too():
    X = rows(100)
    _, extension = make_similarity("density_scaling").build(X)
    weights = extension.weights(np.full((1, 3), 1e150))
    assert np.all(np.isfinite(weights.data))
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("noise", [0.05, 0.15])
@pytest.mark.parametrize(
    "model", [SoftLabelMVC(), NormalizedCut(), NormalizedSpectralClustering(random_state=0)]
)
def test_training_rows_are_placed_where_they_are(model, noise):
    X, _ = make_moons(800, noise=noise, random_state=0)
    model.fit(X)
    assert np.mean(model.predict(X) == model.labels_) >= 0.99
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_copies_in_training_are_placed_where_they_are():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    X = np.round(rng.normal(size=(600, 2)) + 7.0 * np.outer(y, [1, 0]))
    model = SoftLabelMVC().fit(X)
    assert np.mean(model.predict(X) == model.labels_) >= 0.99


# ------------------------------------------------------------------ estimators


def test_noisy_moons_and_few_rows_on_circles():
    moons = [make_moons(1000, noise=0.15, random_state=seed) for seed in range(8)]
    assert np.mean([clustering_error(y, SoftLabelMVC().fit_predict(X)) for X, y in moons]) <= 0.02
    rings = [make_circles(80, noise=0.05, factor=0.5, random_state=seed) for seed in range(8)]
    assert np.mean([clustering_error(y, SoftLabelMVC().fit_predict(X)) for X, y in rings]) <= 0.05


@pytest.mark.parametrize(
    "make", [SoftLabelMVC, NormalizedCut, NormalizedSpectralClustering, volmar.SMIC]
)
def test_the_number_of_neighbours_is_an_attribute(make):
    X = rows(128)
    assert make().fit(X).n_neighbors_ == (10 if make is not volmar.SMIC else 7)
    assert make().fit(rows(512)).n_neighbors_ == (12 if make is not volmar.SMIC else 7)
    assert make(n_neighbors=5).fit(X).n_neighbors_ == 5
    assert make(affinity="gaussian").fit(X).n_neighbors_ is None
    given = make(n_neighbors=4, affinity="nearest_neighbors")
    assert given.fit(X).n_neighbors_ == 4


def test_the_attribute_gives_the_default_again():
    X, _ = make_moons(300, noise=0.15, random_state=0)
    model = SoftLabelMVC().fit(X)
    again = SoftLabelMVC(n_neighbors=model.n_neighbors_).fit(X)
    np.testing.assert_array_equal(again.field_, model.field_)


def test_papers_keep_their_similarities():
    X, _ = make_moons(150, noise=0.1, random_state=0)
    for mode, params in (("paper", {"affinity": "gaussian", "sigma": "mean/10"}), ("aistats", {})):
        shifted = np.abs(X) + 0.1
        default = SoftLabelMVC(mode=mode).fit(shifted)
        named = SoftLabelMVC(mode=mode, **params).fit(shifted)
        np.testing.assert_array_equal(default.h_, named.h_)
    assert HardLabelMVC().affinity == "gaussian"


@pytest.mark.filterwarnings("ignore:SoftLabelMVC ended with the status DEGENERATE")
@pytest.mark.parametrize("n", [2, 3, 5])
def test_very_few_rows(n):
    X = rows(n, 2)
    assert SoftLabelMVC().fit(X).labels_.size == n


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"exponent": -1.0}, ValueError, "^exponent .*got -1.0"),
        ({"exponent": np.nan}, ValueError, "exponent must be a number"),
        ({"n_edges": 0}, ValueError, "^n_edges .*got 0"),
        ({"n_edges": True}, TypeError, "n_edges must be an integer"),
        ({"n_edges": 2.5}, TypeError, "n_edges must be an integer; got 2.5"),
        ({"n_neighbors": 120}, ValueError, "n_neighbors=120 needs at least 121 points"),
    ],
)
def test_bad_parameters(params, error, message):
    with pytest.raises(error, match=message):
        density_scaling_similarity(rows(), **params)


def test_bad_rows():
    with pytest.raises(ValueError, match="all 30 rows of X"):
        density_scaling_similarity(np.ones((30, 2)))
    with pytest.raises(ValueError, match="NaN"):
        density_scaling_similarity(np.full((30, 2), np.nan))
