"""The binary similarity of nearest neighbours."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.points import WRAPS, points, quick, seeds
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from volmar.graphs import nearest_neighbors_similarity
from volmar.graphs.graph import make_similarity
from volmar.graphs.similarities import NearestNeighborsSimilarity


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


def test_nearest_neighbors_checks_its_parameters():
    X = points(0, n=6)
    with pytest.raises(ValueError, match=r"^n_neighbors=6"):
        nearest_neighbors_similarity(X, n_neighbors=6)
    with pytest.raises(TypeError, match=r"^n_neighbors .*integer"):
        nearest_neighbors_similarity(X, n_neighbors=2.5)
    with pytest.raises(TypeError, match="'nearest_neighbors' has no parameter sigma; it takes"):
        make_similarity("nearest_neighbors", sigma=1.0)
    _, extension = NearestNeighborsSimilarity(n_neighbors=2).build(X)
    with pytest.raises(ValueError, match=r"^X_new .*features"):
        extension(points(0, d=2))
