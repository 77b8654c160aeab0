"""Coarse copies of a sparse matrix, and the predicted fill of its factors."""

import numpy as np
import pytest
from helpers.laplacians import blobs, moons, random_graph
from scipy import linalg, sparse

from volmar.operators import sparse as sparse_module
from volmar.operators.protocol import conjugate_gradients
from volmar.operators.sparse import SparseOperator, TwoLevel, factorise, predicted_fill


def test_solve_by_condition_fill_and_size(monkeypatch, rng):
    L, root = moons(6000)
    B = rng.standard_normal((6000, 2))
    easy = SparseOperator(L, shift=0.2, bounds=(0, 2)).solve(0.0, B)
    assert easy.method == "cg"
    assert 0 < easy.n_iter <= sparse_module.SHORT_RUN
    direct = SparseOperator(L, shift=1e-5, bounds=(0, 2)).solve(0.0, B)
    assert direct.method == "lu"
    assert direct.residual < 1e-9
    for name, value in [("MAX_FILL", 0.0), ("TWO_LEVEL_FROM", 1000)]:
        with monkeypatch.context() as patch:
            patch.setattr(sparse_module, name, value)
            for known in (root, None):
                operator = SparseOperator(L, shift=1e-5, bounds=(0, 2), null_space=known)
                coarse = operator.solve(0.0, B)
                assert coarse.method == "two-level"
                assert coarse.n_iter < 150
                assert coarse.residual < 1e-7
                scale = abs(direct.x).max()
                np.testing.assert_allclose(coarse.x, direct.x, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize("graph", [moons, blobs], ids=["moons", "blobs"])
def test_two_level_iterations_hardly_grow(graph, rng):
    iterations = []
    for n in (2000, 16_000):
        L, root = graph(n)
        A = sparse.csr_matrix(L + sparse.identity(n) / n)
        two_level = TwoLevel(A, root)
        assert two_level.coarse.shape[0] <= n / 8
        b = rng.standard_normal((n, 1))
        _, n_iter, done = conjugate_gradients(
            lambda x, A=A: A @ x, b, rtol=1e-6, max_iter=300, precondition=two_level.precondition
        )
        assert done
        iterations.append(n_iter)
    assert iterations[1] < 1.6 * iterations[0]  # sqrt(8) = 2.8 without a coarse copy


def test_two_level_is_a_galerkin_projection(rng):
    L, root = moons(900)
    A = sparse.csr_matrix(L + 0.01 * sparse.identity(900))
    two_level = TwoLevel(A, root)
    T = two_level.groups.toarray()
    np.testing.assert_allclose(T.T @ T, np.eye(T.shape[1]), atol=1e-12)
    np.testing.assert_allclose(two_level.coarse.toarray(), T.T @ A.toarray() @ T, atol=1e-12)
    np.testing.assert_allclose(T @ (T.T @ root), root, rtol=1e-10)
    R = rng.standard_normal((900, 3))
    inverse = np.diag(1 / A.diagonal()) + T @ linalg.inv(two_level.coarse.toarray()) @ T.T
    np.testing.assert_allclose(two_level.precondition(R), inverse @ R, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(two_level.precondition(R[:, 0]), inverse @ R[:, 0], rtol=1e-8)


def test_two_level_without_edges_is_the_diagonal():
    A = sparse.csr_matrix(sparse.diags_array(np.arange(1.0, 51.0)))
    two_level = TwoLevel(A)
    assert two_level.coarse.shape[0] == 50
    assert two_level.coarse_eigenvectors(50, 0) is None
    np.testing.assert_allclose(two_level.precondition(np.ones(50)), 2 / np.arange(1.0, 51.0))


@pytest.mark.parametrize(("graph", "n"), [(moons, 10_000), (blobs, 3000)])
def test_predicted_fill_is_near_the_real_one(graph, n):
    L, _ = graph(n)
    real = factorise(sparse.csc_matrix(L + sparse.identity(n))).nnz / L.nnz
    assert real / 4 < predicted_fill(L) < 4 * real


def test_predicted_fill_with_tiny_components():
    parts = [moons(50, seed=s)[0] for s in range(60)]
    L = sparse.csr_matrix(sparse.block_diag(parts))
    assert 0.5 < predicted_fill(L) < 15


def test_fill_sees_the_fuller_half():
    """Half the rows in two dimensions, half in sixteen: the fuller half decides."""
    flat = moons(6000)[0].tolil()
    flat[0, 1:200] = flat[1:200, 0] = -1e-3  # the hub at which a single ball would start
    L = sparse.csr_matrix(sparse.block_diag([sparse.csr_matrix(flat), blobs(6000)[0]]))
    assert predicted_fill(L) > 20


def path_laplacian(n):
    W = sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1])
    return sparse.csr_matrix(sparse.diags_array(W.sum(axis=1)) - W)


def grid_laplacian(n_rows, n_columns):
    rows, columns = path_laplacian(n_rows), path_laplacian(n_columns)
    return sparse.csr_matrix(
        sparse.kron(rows, sparse.identity(n_columns))
        + sparse.kron(sparse.identity(n_rows), columns)
    )


@pytest.mark.parametrize("graph", ["path", "grid"])
def test_equal_weights_are_joined_in_small_groups(graph, rng):
    """Ties broken by position would join a whole path at once, and coarsen it to one node."""
    n = 20_000
    L = path_laplacian(n) if graph == "path" else grid_laplacian(100, 200)
    A = sparse.csr_matrix(L + sparse.identity(n) / n)
    two_level = TwoLevel(A)
    assert n / 40 <= two_level.coarse.shape[0] <= n / 8
    B = rng.standard_normal((n, 1))
    X, _, converged = conjugate_gradients(
        lambda x: A @ x, B, rtol=1e-8, max_iter=300, precondition=two_level.precondition
    )
    assert converged
    assert np.linalg.norm(A @ X - B) <= 2e-8 * np.linalg.norm(B)


def test_fill_of_a_random_graph_is_not_that_of_a_tree():
    """Balls of an expander are nearly trees and would predict 36; the real fill is 198."""
    W = random_graph(8000, 3)
    assert 100 < predicted_fill(W) < 400
    assert predicted_fill(W, enough=15.0) > 15
