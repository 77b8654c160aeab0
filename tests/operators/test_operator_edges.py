"""Operators at their edges: ties, expanders, missed values, shifts off the usual path."""

import pickle

import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.exceptions import ConvergenceWarning

from volmar.datasets import make_two_moons
from volmar.graphs import laplacian, local_scaling_similarity
from volmar.operators import DenseOperator, SparseOperator
from volmar.operators import dense as dense_module
from volmar.operators import sparse as sparse_module
from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.fill import predicted_fill
from volmar.operators.two_level import TwoLevel


def moons_laplacian(n):
    """Normalised Laplacian of a k-NN graph, and the roots of the degrees, which it maps to 0."""
    X, _ = make_two_moons(n, noise=0.12, random_state=3)
    W = local_scaling_similarity(X, n_neighbors=8, graph="knn")
    return laplacian(W), np.sqrt(np.asarray(W.sum(axis=1)).ravel())


def path_laplacian(n):
    W = sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1])
    return sparse.csr_matrix(sparse.diags_array(W.sum(axis=1)) - W)


def grid_laplacian(n_rows, n_columns):
    rows, columns = path_laplacian(n_rows), path_laplacian(n_columns)
    return sparse.csr_matrix(
        sparse.kron(rows, sparse.identity(n_columns))
        + sparse.kron(sparse.identity(n_rows), columns)
    )


def random_graph(n, n_edges, seed=0):
    """Each node with edges to a few nodes anywhere: an expander."""
    rng = np.random.default_rng(seed)
    i, j = np.repeat(np.arange(n), n_edges), rng.integers(n, size=n * n_edges)
    W = sparse.coo_matrix((np.ones(i.size), (i, j)), shape=(n, n)).tocsr()
    W = sparse.csr_matrix(W.maximum(W.T))
    W.setdiag(0.0)
    W.eliminate_zeros()
    return W


def two_expanders(n):
    """Normalised Laplacian of two random graphs with few edges between: one value stands apart."""
    half = n // 2
    bridges = np.arange(0, half, 20)
    between = sparse.coo_matrix(
        (np.ones(bridges.size), (bridges, bridges)), shape=(half, half)
    ).tocsr()
    one, other = random_graph(half, 5, seed=1), random_graph(half, 5, seed=2)
    W = sparse.csr_matrix(sparse.block_array([[one, between], [between.T, other]]))
    return laplacian(W)


# ---------------------------------------------------------------------------------- two levels


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
    """Balls of an expander are nearly trees and would say 36, where the real fill is 198."""
    W = random_graph(8000, 3)
    assert 100 < predicted_fill(W) < 400
    assert predicted_fill(W, enough=15.0) > 15


def test_the_known_eigenvector_is_solved_without_an_iteration(monkeypatch):
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 100)
    L, root = moons_laplacian(2000)
    operator = SparseOperator(L, shift=1e-5, bounds=(0, 2), null_space=root)
    solution = operator.solve(0.0, root)
    assert solution.method == "two-level"
    assert solution.n_iter == 0
    np.testing.assert_allclose(solution.x, root * 1e5, rtol=1e-6)


# ---------------------------------------------------------------------------------- dense


def test_dense_iterations_are_accurate_by_default(monkeypatch, rng):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L, _ = moons_laplacian(400)
    solution = DenseOperator(L.toarray(), bounds=(0, 2)).solve(5.0, rng.standard_normal(400))
    assert solution.method == "cg"
    assert solution.residual <= 1e-8


def test_a_factor_at_another_shift_serves_no_eigenpairs(monkeypatch):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L = moons_laplacian(400)[0].toarray()
    operator = DenseOperator(L, shift=1e-3, bounds=(0, 2))
    assert operator.solve(0.01, np.ones(400)).method == "cholesky"
    found = operator.smallest_eigenpairs(3).values
    np.testing.assert_allclose(found, linalg.eigvalsh(L)[:3] + 1e-3, atol=1e-8)


def test_a_pickled_dense_operator_leaves_its_factor_behind(rng):
    Q = np.diag(1.0 + rng.random(300))
    operator = DenseOperator(Q)
    b = rng.standard_normal(300)
    solution = operator.solve(0.5, b)
    assert solution.method == "cholesky"
    stored = pickle.dumps(operator)
    assert len(stored) < 1.5 * Q.nbytes
    np.testing.assert_array_equal(pickle.loads(stored).solve(0.5, b).x, solution.x)


# ---------------------------------------------------------------------------------- eigenpairs


def test_eigenpairs_of_an_indefinite_matrix():
    """Shift-invert must put its pole below the whole spectrum, not just below zero."""
    L, _ = moons_laplacian(2000)
    lowered = sparse.csr_matrix(L - 0.3 * sparse.identity(2000))
    found = SparseOperator(lowered, bounds=(-0.3, 1.7)).smallest_eigenpairs(3)
    assert found.method == "shift-invert"
    exact = linalg.eigh(lowered.toarray(), subset_by_index=(0, 2), eigvals_only=True)
    np.testing.assert_allclose(found.values, exact, atol=1e-6)


def test_no_convergence_warns_where_a_dense_matrix_is_too_large(monkeypatch):
    """No factors, no Lanczos, and LOBPCG asked for more than rounding allows."""

    def no_lanczos(*args, **kwargs):
        return None

    monkeypatch.setattr(sparse_module, "MAX_FILL", 0.0)
    monkeypatch.setattr(sparse_module, "DENSE_UP_TO", 1000)
    monkeypatch.setattr(sparse_module, "lanczos_smallest", no_lanczos)
    L, _ = moons_laplacian(2000)
    operator = SparseOperator(L, shift=1 / 2000, bounds=(0, 2))
    with pytest.warns(ConvergenceWarning, match="more neighbours"):
        pairs = operator.smallest_eigenpairs(3, tol=1e-17)
    assert pairs.method == "lobpcg"
    assert 2e-17 < pairs.residuals.max() < 1e-3


def test_lobpcg_that_missed_a_value_is_not_believed(monkeypatch):
    """The residuals of what it found are perfect: only a look at the complement tells."""
    L = two_expanders(2000)
    values, vectors = linalg.eigh(L.toarray(), subset_by_index=(0, 3))
    assert values[2] > 4 * values[1]
    calls = []

    def without_the_second(Q, two_level, known, k, *, tol, seed):
        calls.append(k)
        return values[[0, 2]], vectors[:, [0, 2]]

    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 100)
    monkeypatch.setattr(sparse_module, "lobpcg_smallest", without_the_second)
    pairs = SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(2)
    assert calls == [2]
    assert pairs.method != "lobpcg"
    np.testing.assert_allclose(pairs.values, values[:2], atol=1e-8)
