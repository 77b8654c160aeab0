"""Similarities that are given as functions."""

import pickle
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.points import BOTH, WRAPS, dense, points
from sklearn.base import clone
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from volmar import NormalizedCut
from volmar.datasets import make_two_moons
from volmar.graphs.graph import make_similarity
from volmar.graphs.similarities import CallableSimilarity, GaussianSimilarity


def sparse_rbf(X, Y):
    K = rbf_kernel(X, Y, gamma=2.0)
    return sp.coo_array(np.where(K > 0.3, K, 0.0))


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
        (lambda X, Y: rbf_kernel(X, Y)[:, :3], r"affinity\(X, X\) .*\(40, 3\)"),
        (
            asymmetric,
            r"affinity\(X, X\) .*symmetric.*\[0, 1\].* 0\.5",
        ),
        (
            lambda X, Y: rbf_kernel(X, Y) - 0.9,
            r"affinity\(X, X\) .*negative",
        ),
        (lambda X, Y: rbf_kernel(X, Y) * np.nan, r"affinity\(X, X\) contains NaN"),
        (lambda X, Y: rbf_kernel(X, Y) + np.inf, r"affinity\(X, X\) .*infinity"),
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
    with pytest.raises(ValueError, match=r"affinity\(X, X\) .*\(40, 40\)"):
        CallableSimilarity(lambda X, Y: answer).build(points(0))


@pytest.mark.parametrize("wrap", WRAPS)
def test_new_rows_that_a_callable_cannot_place(wrap):
    def function(X, Y):
        return wrap(rbf_kernel(X, Y, gamma=1.0) * np.where(X[:, :1] < 0, -1.0, 1.0))

    _, extension = CallableSimilarity(function).build(points(0))
    X_new = points(1, n=4)
    X_new[2] = 1e3
    with pytest.raises(ValueError, match=r"^row 2 of X_new"):
        extension.weights(X_new)
    assert dense(extension(X_new))[2].sum() == 0
    X_new[2] = -1.0
    for call in (extension, extension.weights):
        with pytest.raises(ValueError, match=r"affinity\(X_new, X\) .*negative"):
            call(X_new)
    _, extension = CallableSimilarity(lambda X, Y: rbf_kernel(Y, X)).build(points(0))
    with pytest.raises(ValueError, match=r"affinity\(X_new, X\) .*\(40, 4\)"):
        extension(points(1, n=4))
    with pytest.raises(ValueError, match=r"^X_new .*features"):
        extension(points(0, d=2))
    _, extension = CallableSimilarity(
        lambda X, Y: rbf_kernel(X, Y) * (1.0 if len(X) == 40 else np.nan)
    ).build(points(0))
    with pytest.raises(ValueError, match=r"affinity\(X_new, X\) .*NaN"):
        extension(points(1, n=4))


def test_weights_of_tiny_similarities_do_not_overflow():
    tiny = 1e-310
    for wrap in WRAPS:
        _, extension = CallableSimilarity(
            lambda X, Y, wrap=wrap: wrap(np.full((len(X), len(Y)), tiny))
        ).build(points(0, n=4))
        weights = dense(extension.weights(points(1, n=3)))
        np.testing.assert_allclose(weights, 0.25, rtol=1e-6)


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
    with pytest.raises(ValueError, match=r"^row 0 of X_new"):
        called.predict([[1e3, 1e3]])
