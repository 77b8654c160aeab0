"""Binary nearest neighbours and similarities given as functions, in the graphs and estimators."""

import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.neighbors import KNeighborsTransformer

from volmar import NormalizedCut, NormalizedSpectralClustering
from volmar.datasets import make_two_moons
from volmar.graphs import (
    CallableSimilarity,
    GaussianSimilarity,
    NearestNeighborsSimilarity,
    make_similarity,
    nearest_neighbors_similarity,
)
from volmar.graphs.graph import build_graph
from volmar.metrics import clustering_error

BOTH = [NormalizedSpectralClustering, NormalizedCut]
quick = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32 - 1)
WRAPS = [np.asarray, sp.csr_array]


def points(seed, n=40, d=3):
    return np.random.default_rng(seed).random((n, d))


def dense(W):
    return W.toarray() if sp.issparse(W) else W


def sparse_rbf(X, Y):
    K = rbf_kernel(X, Y, gamma=2.0)
    return sp.coo_array(np.where(K > 0.3, K, 0.0))


class Recipe:
    """A recipe that can be called too, and must not be."""

    def build(self, X):
        return GaussianSimilarity(sigma=1.0).build(X)

    def __call__(self, X, Y):
        raise AssertionError("the recipe wins")


# Nearest neighbours


@quick
@given(seed=seeds, k=st.integers(1, 12), mutual=st.booleans())
def test_nearest_neighbors_is_the_definition(seed, k, mutual):
    X = points(seed, n=14)
    D = cdist(X, X)
    np.fill_diagonal(D, np.inf)
    directed = (np.sort(D, axis=1)[:, k - 1, None] >= D).astype(float)
    expected = np.minimum(directed, directed.T) if mutual else np.maximum(directed, directed.T)
    W = nearest_neighbors_similarity(X, n_neighbors=k, mutual=mutual)
    np.testing.assert_array_equal(W.toarray(), expected)
    assert (W.data == 1).all()


def test_duplicates_are_neighbors():
    X = np.repeat([[0.0], [1.0], [5.0]], 4, axis=0)
    W = nearest_neighbors_similarity(X, n_neighbors=3)
    np.testing.assert_array_equal(W.toarray(), np.kron(np.eye(3), np.ones((4, 4)) - np.eye(4)))


@pytest.mark.parametrize("mutual", [False, True])
def test_nearest_neighbors_extension_formula(mutual):
    X, X_new = points(0), points(1, n=9)
    _, extension = make_similarity("nearest_neighbors", n_neighbors=4, mutual=mutual).build(X)
    D = cdist(X_new, X)
    near = (np.sort(D, axis=1)[:, 3, None] >= D).astype(float)
    np.testing.assert_array_equal(extension(X_new).toarray(), near)
    np.testing.assert_array_equal(extension.weights(X_new).toarray(), near / 4)
    far = extension.weights(np.full((1, 3), 1e6))
    assert far.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nearest_neighbors_keeps_the_dtype_and_takes_sparse_points(wrap, dtype):
    X, X_new = points(0).astype(dtype), points(1)
    W, extension = NearestNeighborsSimilarity(n_neighbors=4).build(wrap(X))
    assert W.dtype == extension(X_new).dtype == extension.weights(X_new).dtype == dtype
    expected = nearest_neighbors_similarity(X, n_neighbors=4)
    np.testing.assert_array_equal(W.toarray(), expected.toarray())
    again = pickle.loads(pickle.dumps(extension))
    np.testing.assert_array_equal(
        again(sp.csr_matrix(X_new)).toarray(), extension(X_new).toarray()
    )


def test_nearest_neighbors_takes_a_search_of_the_caller():
    X = points(0)
    named = nearest_neighbors_similarity(X, n_neighbors=5)
    for neighbors in ("exact", KNeighborsTransformer(n_neighbors=8)):
        other = nearest_neighbors_similarity(X, n_neighbors=5, neighbors=neighbors)
        np.testing.assert_array_equal(other.toarray(), named.toarray())


def test_nearest_neighbors_checks_its_parameters():
    X = points(0, n=6)
    with pytest.raises(ValueError, match=r"n_neighbors=6 needs at least 7 points.*at most 5"):
        nearest_neighbors_similarity(X, n_neighbors=6)
    with pytest.raises(TypeError, match="n_neighbors must be an integer"):
        nearest_neighbors_similarity(X, n_neighbors=2.5)
    with pytest.raises(ValueError, match="neighbors must be one of auto, exact"):
        NearestNeighborsSimilarity(neighbors="annoy")
    with pytest.raises(TypeError, match="'nearest_neighbors' has no parameter sigma; it takes"):
        make_similarity("nearest_neighbors", sigma=1.0)
    _, extension = NearestNeighborsSimilarity(n_neighbors=2).build(X)
    with pytest.raises(ValueError, match="X_new has 2 features and the graph was built on 3"):
        extension(points(0, d=2))


# Functions


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("function", [rbf_kernel, sparse_rbf, partial(laplacian_kernel, gamma=3)])
def test_callable_is_its_function(function, wrap):
    X, X_new = points(0), points(1, n=9)
    W, extension = make_similarity(function).build(wrap(X))
    np.testing.assert_allclose(dense(W), dense(function(X, X)), atol=1e-14)
    np.testing.assert_array_equal(dense(W), dense(W).T)
    expected = dense(function(X_new, X))
    for given_as in WRAPS:
        S = extension(given_as(X_new))
        np.testing.assert_allclose(dense(S), expected, atol=1e-14)
        np.testing.assert_allclose(
            dense(extension.weights(given_as(X_new))),
            expected / expected.sum(axis=1, keepdims=True),
            atol=1e-14,
        )
    assert sp.issparse(W) == sp.issparse(S) == (function is sparse_rbf)


def test_callable_remembers_its_rows_and_pickles():
    X, X_new = points(0), points(1, n=9)
    _, extension = CallableSimilarity(rbf_kernel).build(X)
    expected = extension(X_new)
    X[:] = 0.0
    np.testing.assert_array_equal(extension(X_new), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(extension))(X_new), expected)


def test_callable_sees_the_kind_and_the_dtype_of_the_training_rows():
    seen = []

    def watched(X, Y):
        seen.append((sp.issparse(X), sp.issparse(Y), X.dtype, Y.dtype))
        return rbf_kernel(X, Y)

    for wrap in WRAPS:
        _, extension = CallableSimilarity(watched).build(wrap(points(0).astype(np.float32)))
        extension(points(1))
        extension(sp.csr_array(points(1)))
    assert (
        seen
        == [(False, False, np.float32, np.float32)] * 3
        + [(True, True, np.float32, np.float32)] * 3
    )


def test_rounding_is_symmetrised_and_integers_are_taken():
    X = points(0, n=5)
    noise = 1e-13 * points(1, n=5, d=5)
    W, _ = CallableSimilarity(lambda A, B: rbf_kernel(A, B) + noise).build(X)
    np.testing.assert_array_equal(W, W.T)
    W, _ = CallableSimilarity(lambda A, B: np.ones((len(A), len(B)), dtype=int).tolist()).build(X)
    assert W.dtype == np.float64


def asymmetric(X, Y):
    K = rbf_kernel(X, Y)
    K[0, 1] += 0.5
    return K


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X, Y: rbf_kernel(X, Y)[:, :3], r"affinity\(X, X\) has shape \(40, 3\) and must h"),
        (
            asymmetric,
            r"affinity\(X, X\) is not symmetric: affinity\(X, X\)\[0, 1\].*differ by 0\.5",
        ),
        (
            lambda X, Y: rbf_kernel(X, Y) - 0.9,
            r"affinity\(X, X\) has negative entries \(smallest -",
        ),
        (lambda X, Y: rbf_kernel(X, Y) * np.nan, r"affinity\(X, X\) contains NaN"),
        (lambda X, Y: rbf_kernel(X, Y) + np.inf, r"affinity\(X, X\) contains infinity"),
    ],
)
def test_bad_matrices_of_a_callable(function, message, wrap):
    def wrapped(X, Y):
        return wrap(function(X, Y))

    for build in (
        lambda: make_similarity(wrapped).build(points(0)),
        lambda: NormalizedCut(affinity=wrapped).fit(points(0)),
    ):
        with pytest.raises(ValueError, match=message):
            build()


@pytest.mark.parametrize("answer", [None, 1.0, np.ones(40), np.ones((40, 40, 1))])
def test_answers_that_are_no_matrix_are_refused(answer):
    with pytest.raises(ValueError, match=r"affinity\(X, X\) has shape \(.*must have \(40, 40\)"):
        CallableSimilarity(lambda X, Y: answer).build(points(0))


@pytest.mark.parametrize("wrap", WRAPS)
def test_new_rows_that_a_callable_cannot_place(wrap):
    def function(X, Y):
        return wrap(rbf_kernel(X, Y, gamma=1.0) * np.where(X[:, :1] < 0, -1.0, 1.0))

    _, extension = CallableSimilarity(function).build(points(0))
    X_new = points(1, n=4)
    X_new[2] = 1e3
    with pytest.raises(ValueError, match="row 2 of X_new has no positive similarity"):
        extension.weights(X_new)
    assert dense(extension(X_new))[2].sum() == 0
    X_new[2] = -1.0
    for call in (extension, extension.weights):
        with pytest.raises(ValueError, match=r"affinity\(X_new, X\) has negative entries"):
            call(X_new)
    _, extension = CallableSimilarity(lambda X, Y: rbf_kernel(Y, X)).build(points(0))
    with pytest.raises(ValueError, match=r"affinity\(X_new, X\) has shape \(40, 4\) and must ha"):
        extension(points(1, n=4))
    with pytest.raises(ValueError, match="X_new has 2 features and the graph was built on 3"):
        extension(points(0, d=2))
    _, extension = CallableSimilarity(
        lambda X, Y: rbf_kernel(X, Y) * (1.0 if len(X) == 40 else np.nan)
    ).build(points(0))
    with pytest.raises(ValueError, match=r"affinity\(X_new, X\) contains NaN"):
        extension(points(1, n=4))


def test_weights_of_tiny_similarities_do_not_overflow():
    tiny = 1e-310
    for wrap in WRAPS:
        _, extension = CallableSimilarity(
            lambda X, Y, wrap=wrap: wrap(np.full((len(X), len(Y)), tiny))
        ).build(points(0, n=4))
        weights = dense(extension.weights(points(1, n=3)))
        np.testing.assert_allclose(weights, 0.25, rtol=1e-6)


# Which is which


def test_recipes_win_over_callables_and_classes_are_refused():
    X = points(0)
    recipe = Recipe()
    assert make_similarity(recipe) is recipe
    expected = GaussianSimilarity(sigma=1.0).build(X)[0]
    np.testing.assert_array_equal(build_graph(X, recipe).W, expected)
    for bad in (GaussianSimilarity, Recipe, dict):
        for build in (make_similarity, partial(build_graph, X), partial(build_graph, X, sigma=1)):
            with pytest.raises(TypeError, match=rf"{bad.__name__}\(\), not the class"):
                build(bad)
        with pytest.raises(TypeError, match=rf"function must be a callable.*got {bad.__name__}"):
            CallableSimilarity(bad)
    for bad in (3, None):
        with pytest.raises(TypeError, match=r"a callable f\(X, Y\) or an object with a build met"):
            make_similarity(bad)
    with pytest.raises(TypeError, match=r"function must be a callable.*rbf_kernel; got float"):
        CallableSimilarity(0.5)


def test_parameters_beside_a_callable_are_refused():
    X = points(0)
    for params in ({"sigma": 1.0}, {"n_neighbors": 3}):
        (name,) = params
        with pytest.raises(ValueError, match=f"{name} cannot be given with a callable affinity"):
            NormalizedCut(affinity=rbf_kernel, **params).fit(X)
        with pytest.raises(ValueError, match=f"{name} cannot be given.*set it there, in Recipe"):
            NormalizedCut(affinity=Recipe(), **params).fit(X)
    with pytest.raises(TypeError, match=r"takes no gamma here; bind.*functools\.partial"):
        make_similarity(rbf_kernel, gamma=2.0)
    with pytest.raises(
        ValueError, match=r"sigma=1\.0 has no meaning for affinity='nearest_neighb"
    ):
        NormalizedCut(affinity="nearest_neighbors", sigma=1.0).fit(X)


def test_names_stand_in_the_messages():
    with pytest.raises(ValueError, match="nearest_neighbors; got 'rbf'"):
        make_similarity("rbf")
    with pytest.raises(ValueError, match=r"'nearest_neighbors', a callable f\(X, Y\), 'precomp"):
        build_graph(points(0), "rbf")
    with pytest.raises(ValueError, match="or 'cosine_knn' or 'nearest_neighbors'"):
        build_graph(points(0), "gaussian", n_neighbors=3)


# Estimators


@pytest.mark.parametrize("method", BOTH)
def test_estimators_cut_the_nearest_neighbor_graph(method):
    X, y = make_two_moons(300, random_state=0)
    model = method(affinity="nearest_neighbors", random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    X_new, y_new = make_two_moons(200, random_state=1)
    assert clustering_error(y_new, model.predict(X_new)) < 0.02
    W = nearest_neighbors_similarity(X)
    same = method(affinity="precomputed", random_state=0).fit(W)
    np.testing.assert_array_equal(same.labels_, model.labels_)


def test_n_neighbors_reaches_the_graph():
    X = points(0)
    for k in (3, 9):
        expected = nearest_neighbors_similarity(X, n_neighbors=k)
        graph = build_graph(X, "nearest_neighbors", n_neighbors=k)
        np.testing.assert_array_equal(graph.W.toarray(), expected.toarray())


def test_few_rows_take_all_others_as_neighbors():
    graph = build_graph(points(0, n=4), "nearest_neighbors")
    np.testing.assert_array_equal(graph.W.toarray(), 1 - np.eye(4))


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("function", [partial(rbf_kernel, gamma=12.5), sparse_rbf])
def test_a_callable_is_the_same_as_its_matrix(method, function):
    X, _ = make_two_moons(150, random_state=0)
    X_new, _ = make_two_moons(50, random_state=1)
    one = clone(method(affinity=function, random_state=0)).fit(X)
    two = method(affinity="precomputed", random_state=0).fit(function(X, X))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_allclose(
        one.decision_function(X_new), two.decision_function(function(X_new, X)), atol=1e-10
    )
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(X_new), one.predict(X_new))


def test_a_callable_gaussian_is_the_recipe():
    X, _ = make_two_moons(150, random_state=0)
    named = NormalizedCut(affinity=GaussianSimilarity(sigma=0.2)).fit(X)
    called = NormalizedCut(affinity=partial(rbf_kernel, gamma=12.5)).fit(X)
    np.testing.assert_array_equal(named.labels_, called.labels_)
    np.testing.assert_allclose(named.decision_function(X), called.decision_function(X), atol=1e-8)
    with pytest.raises(ValueError, match="row 0 of X_new has no positive similarity"):
        called.predict([[1e3, 1e3]])
