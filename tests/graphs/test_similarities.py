"""Named similarities: formulas, symmetries, extensions to new points, bad input."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.points import build, dense, points, quick, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

from volmar import _memory, graphs
from volmar.graphs import (
    cosine_knn_similarity,
    gaussian_similarity,
    local_scaling_similarity,
    similarities,
)
from volmar.graphs.graph import make_similarity

RECIPES = [
    ("gaussian", {"sigma": "mean/2"}),
    ("local_scaling", {"n_neighbors": 4, "graph": "dense"}),
    ("local_scaling", {"n_neighbors": 4, "graph": "knn"}),
    ("cosine_knn", {"n_neighbors": 4}),
    ("cosine_knn", {"n_neighbors": 4, "mutual": True}),
]


def test_gaussian_formula():
    X = points(0, n=1100)  # more than one block of rows
    expected = np.exp(-(cdist(X, X) ** 2) / (2 * 0.3**2))
    W = gaussian_similarity(X, sigma=0.3)
    np.testing.assert_allclose(W, expected, rtol=1e-9)
    np.testing.assert_array_equal(W.diagonal(), 1.0)
    bare = gaussian_similarity(X, sigma=0.3, self_loops=False)
    np.testing.assert_array_equal(bare, W - np.eye(1100))


def test_local_scaling_formula():
    X = points(0, n=1100)
    D = cdist(X, X)
    scale = np.sort(D, axis=1)[:, 7]  # column 0 is the point itself
    expected = np.exp(-(D**2) / (2 * np.outer(scale, scale)))
    W = local_scaling_similarity(X, n_neighbors=7)
    np.testing.assert_allclose(W, expected - np.eye(1100), rtol=1e-8, atol=1e-300)
    np.testing.assert_array_equal(
        local_scaling_similarity(X, n_neighbors=7, self_loops=True), W + np.eye(1100)
    )


@pytest.mark.parametrize(("n_neighbors", "edges"), [(3, 10), (12, 12)])
def test_local_scaling_graph_holds_the_dense_values(n_neighbors, edges):
    X = points(0, n=60)
    W = local_scaling_similarity(X, n_neighbors=n_neighbors, graph="knn")
    all_pairs = local_scaling_similarity(X, n_neighbors=n_neighbors, graph="dense")
    pattern = kneighbors_graph(X, edges).toarray().astype(bool)
    pattern |= pattern.T
    np.testing.assert_allclose(W.toarray(), np.where(pattern, all_pairs, 0.0), rtol=1e-10)
    loops = local_scaling_similarity(X, n_neighbors=n_neighbors, graph="knn", self_loops=True)
    np.testing.assert_array_equal(loops.toarray(), W.toarray() + np.eye(60))


def test_local_scaling_turns_sparse_past_the_limit(monkeypatch):
    X = points(0)
    assert isinstance(local_scaling_similarity(X), np.ndarray)
    monkeypatch.setattr(similarities, "DENSE_LIMIT", 39)
    assert sp.issparse(local_scaling_similarity(X))
    assert isinstance(local_scaling_similarity(X, graph="dense"), np.ndarray)


@pytest.mark.parametrize("mutual", [False, True])
def test_cosine_formula(mutual):
    X = points(0, n=50, d=6)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    pattern = kneighbors_graph(X, 5, metric="cosine").toarray().astype(bool)
    pattern = pattern & pattern.T if mutual else pattern | pattern.T
    W = cosine_knn_similarity(X, n_neighbors=5, mutual=mutual)
    assert W.format == "csr"
    np.testing.assert_allclose(W.toarray(), np.where(pattern, unit @ unit.T, 0.0), rtol=1e-12)


def test_union_contains_the_mutual_graph_and_more():
    X = points(0, n=50, d=6)
    union, mutual = (cosine_knn_similarity(X, n_neighbors=5, mutual=m) for m in (False, True))
    assert mutual.nnz < 50 * 5 < union.nnz
    assert abs(union.multiply(mutual > 0) - mutual).max() == 0


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_symmetric_to_the_last_bit_and_dtype_kept(affinity, params, dtype):
    X = points(3, n=1100, d=4).astype(dtype)
    W = make_similarity(affinity, **params).build(X)[0]
    assert W.dtype == dtype
    assert (W != W.T).sum() == 0
    assert dense(W).min() >= 0
    assert dense(W).max() <= 1


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
@quick
@given(seed=seeds)
def test_permutation_equivariance(affinity, params, seed):
    X = points(seed)
    order = np.random.default_rng(seed).permutation(len(X))
    np.testing.assert_allclose(
        build(affinity, params, X[order]),
        build(affinity, params, X)[np.ix_(order, order)],
        rtol=1e-9,
        atol=1e-300,
    )


@pytest.mark.parametrize(("affinity", "params"), RECIPES[:3])
@quick
@given(seed=seeds, offset=st.floats(-1e5, 1e5))
def test_translation_invariance(affinity, params, seed, offset):
    X = points(seed)
    np.testing.assert_allclose(
        build(affinity, params, X + offset), build(affinity, params, X), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
@quick
@given(seed=seeds)
def test_float32_is_near_float64(affinity, params, seed):
    X = points(seed).astype(np.float32)  # the same points, so the same neighbours
    np.testing.assert_allclose(
        build(affinity, params, X), build(affinity, params, X.astype(np.float64)), atol=2e-6
    )


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
@quick
@given(seed=seeds)
def test_sparse_points_give_the_dense_answer(affinity, params, seed):
    X = points(seed, d=6)
    X[:, 3:] *= points(seed + 1)[:, :3] > 0.6
    np.testing.assert_allclose(
        build(affinity, params, sp.csr_matrix(X)), build(affinity, params, X), atol=1e-10
    )


def test_scale_invariance_of_local_scaling_down_to_tiny_units():
    X = points(0)
    for unit in (1e-100, 1e100):
        np.testing.assert_allclose(
            local_scaling_similarity(X * unit), local_scaling_similarity(X), rtol=1e-8, atol=1e-300
        )


def test_caller_arrays_are_left_alone():
    X = points(0)
    before = X.copy()
    for affinity, params in RECIPES:
        _, extension = make_similarity(affinity, **params).build(X)
        extension(X)
        extension.weights(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("graph", ["dense", "knn"])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_duplicates_take_the_distance_to_the_next_different_point(graph, wrap):
    X = np.repeat([[0.0, 1.0], [3.0, 5.0], [0.0, 2.0]], [20, 20, 3], axis=0) + 1e3
    W, extension = make_similarity("local_scaling", n_neighbors=7, graph=graph).build(wrap(X))
    assert np.isfinite(dense(W)).all()
    # 20 copies each: σ is the distance to the nearest other place. 3 copies: the 7th neighbour.
    np.testing.assert_allclose(extension.scales, np.repeat([1.0, np.sqrt(18), 1.0], [20, 20, 3]))
    assert dense(W)[0, 1:20].max() == pytest.approx(1.0, abs=1e-9)
    assert np.isfinite(dense(extension(wrap(X)))).all()


def test_differences_whose_squares_vanish_are_duplicates():
    X = np.zeros((12, 1))
    X[0], X[1] = 1e-200, 1.0
    W = local_scaling_similarity(X, n_neighbors=3)
    assert np.isfinite(W).all()
    np.testing.assert_array_equal(W[2:, 2:], 1 - np.eye(10))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sigma", [1e-200, 1e200])
def test_extreme_widths_stay_finite(sigma, dtype):
    X = points(0, n=5).astype(dtype)
    expected = np.eye(5) if sigma < 1 else np.ones((5, 5))
    np.testing.assert_array_equal(gaussian_similarity(X, sigma=sigma), expected)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_gaussian_extension_of_training_points_is_the_matrix(wrap):
    X = wrap(points(0))
    W, extension = make_similarity("gaussian", sigma="mean").build(X)
    np.testing.assert_allclose(extension(X[5:15]), W[5:15], rtol=1e-9)


@pytest.mark.parametrize("graph", ["dense", "knn"])
def test_local_scaling_extension_formula(graph):
    X, X_new = points(0), points(1, n=9)
    _, extension = make_similarity("local_scaling", n_neighbors=4, graph=graph).build(X)
    D, own = cdist(X_new, X), np.sort(cdist(X, X), axis=1)[:, 4]
    ordered = np.sort(D, axis=1)
    expected = np.exp(-(D**2) / (2 * np.outer(ordered[:, 3], own)))
    if graph == "knn":
        expected[ordered[:, 9, None] < D] = 0.0
        assert extension(X_new).nnz == 9 * 10
    np.testing.assert_allclose(dense(extension(X_new)), expected, rtol=1e-9, atol=1e-300)


def test_cosine_extension_formula():
    X, X_new = points(0), points(1, n=9)
    _, extension = make_similarity("cosine_knn", n_neighbors=4, mutual=True).build(X)
    cosines = 1 - cdist(X_new, X, metric="cosine")
    smallest_kept = np.sort(cosines, axis=1)[:, -4, None]
    np.testing.assert_allclose(
        extension(X_new).toarray(), np.where(cosines >= smallest_kept, cosines, 0.0), rtol=1e-12
    )


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
def test_weights_are_the_similarities_over_their_sums(affinity, params):
    _, extension = make_similarity(affinity, **params).build(points(0))
    X_new = points(1, n=9)
    similarities = dense(extension(X_new))
    np.testing.assert_allclose(
        dense(extension.weights(X_new)), similarities / similarities.sum(axis=1, keepdims=True)
    )


@pytest.mark.parametrize(("affinity", "params"), RECIPES[:3])
def test_weights_of_far_points_do_not_vanish(affinity, params):
    _, extension = make_similarity(affinity, **params).build(points(0))
    far = np.full((1, 3), 1e6)
    assert dense(extension(far)).sum() == 0  # underflow: similarities alone would give 0/0
    assert dense(extension.weights(far)).sum() == pytest.approx(1.0)


def test_weights_where_every_cosine_is_zero():
    _, extension = make_similarity("cosine_knn", n_neighbors=2).build(
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]
    )
    weights = extension.weights([[0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(weights.data, [0.5, 0.5])


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
def test_extension_pickles_and_mixes_dense_with_sparse(affinity, params):
    X_new = points(1, n=9)
    for X in (points(0), sp.csr_matrix(points(0))):
        _, extension = make_similarity(affinity, **params).build(X)
        expected = dense(extension(X_new))
        again = pickle.loads(pickle.dumps(extension))
        np.testing.assert_array_equal(dense(again(X_new)), expected)
        np.testing.assert_allclose(dense(extension(sp.csr_matrix(X_new))), expected, rtol=1e-9)


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
def test_extension_checks_its_points(affinity, params):
    _, extension = make_similarity(affinity, **params).build(points(0))
    with pytest.raises(ValueError, match=r"^X_new .*features"):
        extension(points(0, d=2))
    with pytest.raises(ValueError, match="NaN"):
        extension([[np.nan, 0.0, 0.0]])


def test_extension_keeps_the_training_dtype():
    for affinity, params in RECIPES:
        _, extension = make_similarity(affinity, **params).build(points(0).astype(np.float32))
        assert extension(points(1)).dtype == np.float32
        assert extension.weights(points(1)).dtype == np.float32


def test_dense_similarities_are_refused_before_they_are_allocated(monkeypatch):
    X = points(0, n=3000)
    monkeypatch.setattr(_memory, "available_memory", lambda: 3000 * 3000 * 8)
    for similarity in (gaussian_similarity, local_scaling_similarity):
        with pytest.raises(MemoryError, match=r"^A\b"):
            similarity(X)
    assert local_scaling_similarity(X, graph="knn").nnz > 3000  # the remedy works


@pytest.mark.parametrize(("affinity", "params"), RECIPES[:2])
def test_extension_is_refused_before_it_is_allocated(monkeypatch, affinity, params):
    _, extension = make_similarity(affinity, **params).build(points(0))
    monkeypatch.setattr(_memory, "available_memory", lambda: 100)
    with pytest.raises(MemoryError, match="40 new points"):
        extension(points(1))


@pytest.mark.parametrize(("affinity", "params"), RECIPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_must_be_finite_and_at_least_two(affinity, params, bad):
    X = points(0)
    X[3, 1] = bad
    recipe = make_similarity(affinity, **params)
    with pytest.raises(ValueError, match="X contains"):
        recipe.build(X)
    with pytest.raises(ValueError, match="minimum of 2"):
        recipe.build([[1.0, 2.0, 3.0]])


@pytest.mark.parametrize("similarity", [local_scaling_similarity, cosine_knn_similarity])
def test_bad_neighbor_counts(similarity):
    X = points(0, n=6)
    with pytest.raises(ValueError, match=r"^n_neighbors=6"):
        similarity(X, n_neighbors=6)
    with pytest.raises(ValueError, match="at least 1; got 0"):
        similarity(X, n_neighbors=0)
    for value in (2.5, True, "7"):
        with pytest.raises(TypeError, match=r"^n_neighbors .*integer"):
            similarity(X, n_neighbors=value)


def test_local_scaling_of_constant_data_and_unknown_graph():
    with pytest.raises(ValueError, match="all 9 rows of X"):
        local_scaling_similarity(np.full((9, 2), 0.1), n_neighbors=2)
    with pytest.raises(ValueError, match=r"^graph"):
        local_scaling_similarity(points(0), graph="sparse")


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_negative_cosines_and_zero_rows(wrap):
    X = np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [0.2, 1.0]])
    with pytest.raises(ValueError, match=r"row 2 of X .*MinMaxScaler"):
        cosine_knn_similarity(wrap(X), n_neighbors=2)
    X[2] = 0.0
    with pytest.raises(ValueError, match=r"^X .*all-zero"):
        cosine_knn_similarity(wrap(X), n_neighbors=2)


def test_orthogonal_rows_are_not_negative():
    assert cosine_knn_similarity(np.eye(30), n_neighbors=3).nnz == 0


def test_tiny_rows_have_a_cosine():
    X = points(0).astype(np.float32)
    np.testing.assert_allclose(
        cosine_knn_similarity(X * np.float32(1e-30)).toarray(),
        cosine_knn_similarity(X).toarray(),
        atol=1e-6,
    )


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(ValueError, match=r"^affinity .*got 'rbf'"):
        make_similarity("rbf")
    with pytest.raises(TypeError, match="'gaussian' has no parameter gamma; it takes sigma"):
        make_similarity("gaussian", gamma=1.0)
    with pytest.raises(TypeError, match=r"^affinity .*got int"):
        make_similarity(3)


def test_recipes_pass_through_and_functions_agree_with_them():
    recipe = make_similarity("local_scaling", n_neighbors=3)
    assert make_similarity(recipe) is recipe
    with pytest.raises(TypeError, match="Set n_neighbors there"):
        make_similarity(recipe, n_neighbors=2)
    X = points(0)
    np.testing.assert_array_equal(recipe.build(X)[0], local_scaling_similarity(X, n_neighbors=3))
    assert make_similarity().n_neighbors == 7


def test_public_names_exist():
    assert all(hasattr(graphs, name) for name in graphs.__all__)
