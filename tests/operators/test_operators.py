"""Operators: products and solves of dense and sparse Q, and invalid input."""

import pickle

import numpy as np
import pytest
from helpers.laplacians import blobs, moons, moons_laplacian, random_spd
from scipy import linalg, sparse
from sklearn.exceptions import ConvergenceWarning

from volmar.operators import as_operator
from volmar.operators import dense as dense_module
from volmar.operators import sparse as sparse_module
from volmar.operators.dense import DenseOperator
from volmar.operators.protocol import conjugate_gradients
from volmar.operators.sparse import SparseOperator


def test_backend_agrees_with_the_matrix(backend, rng):
    operator, Q = backend
    B = rng.standard_normal((operator.n, 3))
    np.testing.assert_allclose(operator.matvec(B), Q @ B, atol=1e-12)
    np.testing.assert_allclose(operator.matvec(B[:, 0]), Q @ B[:, 0], atol=1e-12)
    for shift in (0.0, 0.3, 10.0):
        solution = operator.solve(shift, B, rtol=1e-11)
        exact = linalg.solve(Q + shift * np.eye(operator.n), B)
        assert solution.residual < 1e-10
        np.testing.assert_allclose(solution.x, exact, atol=1e-8)
        single = operator.solve(shift, B[:, 1], rtol=1e-11)
        assert single.x.shape == (operator.n,)
        np.testing.assert_allclose(single.x, exact[:, 1], atol=1e-8)


def test_indefinite_shift_is_solved(backend, rng):
    """The SQP of the volume family uses A = gamma Q - eta I with one negative eigenvalue."""
    operator, Q = backend
    values = linalg.eigvalsh(Q)
    shift = -(values[0] + values[1]) / 2
    b = rng.standard_normal(operator.n)
    solution = operator.solve(shift, b)
    assert solution.residual < 1e-9
    np.testing.assert_allclose(Q @ solution.x + shift * solution.x, b, atol=1e-7)


def test_cg_that_cannot_finish_warns_with_a_remedy(monkeypatch, rng):
    L, _ = moons(2000)
    monkeypatch.setattr(sparse_module, "MAX_FILL", 0.0)
    operator = SparseOperator(L, shift=1e-14, bounds=(0, 2))
    with pytest.warns(ConvergenceWarning, match="larger shift"):
        solution = operator.solve(0.0, rng.standard_normal(2000), rtol=1e-30)
    assert solution.residual > 1e-29


def test_a_large_singular_matrix_is_refused(monkeypatch):
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1)
    pairs = sparse.block_diag([np.array([[1.0, -1.0], [-1.0, 1.0]])] * 40)
    singular = SparseOperator(sparse.csr_matrix(pairs), bounds=(0, 2))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        singular.solve(0.0, np.ones(80))


@pytest.mark.parametrize("graph", [moons, blobs])
@pytest.mark.parametrize("kind", [DenseOperator, SparseOperator])
@pytest.mark.parametrize("shift", [0.0, 1e-3, 5.0])
def test_answers_do_not_depend_on_what_was_asked_before(monkeypatch, rng, graph, kind, shift):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    monkeypatch.setattr(sparse_module, "DENSE_BELOW", 100)
    L, _ = graph(800)
    L = L.toarray() if kind is DenseOperator else L
    b = rng.standard_normal(800)

    def fresh():
        return kind(L, shift=shift, bounds=(0, 2))

    used = fresh()
    used.solve(-shift - 0.05, b)  # indefinite, so it is factorised
    used.solve(0.01, b)
    pairs, again = fresh().smallest_eigenpairs(3), used.smallest_eigenpairs(3)
    assert again.method == pairs.method
    np.testing.assert_array_equal(again.vectors, pairs.vectors)
    solution, again = fresh().solve(0.01, b), used.solve(0.01, b)
    assert again.method == solution.method
    np.testing.assert_array_equal(again.x, solution.x)


def test_dense_solve_is_iterative_where_that_is_short(monkeypatch, rng):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L = blobs(400)[0].toarray()
    operator = DenseOperator(L, bounds=(0, 2))
    for block in (rng.standard_normal(400), rng.standard_normal((400, 2))):
        solution = operator.solve(50.0, block, rtol=1e-12)
        assert solution.method == "cg"
        exact = linalg.solve(L + 50 * np.eye(400), block)
        np.testing.assert_allclose(solution.x, exact, rtol=1e-9, atol=1e-12)
    assert operator.solve(1e-3, np.ones(400)).method == "cholesky"


def test_conjugate_gradients_treats_columns_alone(rng):
    Q = random_spd(rng, 40)
    B = np.column_stack([Q[:, 0] * 1e6, rng.standard_normal(40), np.zeros(40)])
    X, _, done = conjugate_gradients(
        lambda x: Q @ x, B, rtol=1e-10, max_iter=200, precondition=lambda r: r
    )
    assert done
    np.testing.assert_allclose(X[:, 2], 0)
    np.testing.assert_allclose(Q @ X, B, atol=1e-3)
    np.testing.assert_allclose((Q @ X)[:, 1], B[:, 1], atol=1e-8)


def test_as_operator_picks_the_back_end():
    L, _ = moons(100)
    assert isinstance(as_operator(L), SparseOperator)
    assert isinstance(as_operator(L.toarray()), DenseOperator)


def test_bad_requests_name_the_argument(backend):
    operator, _ = backend
    with pytest.raises(ValueError, match="k must be between 1 and 60"):
        operator.smallest_eigenpairs(0)
    with pytest.raises(ValueError, match="k must be between 1 and 60"):
        operator.smallest_eigenpairs(61)
    with pytest.raises(ValueError, match="block must have 60 rows"):
        operator.solve(0.0, np.ones(59))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.full((3, 3), np.nan), "finite"),
        (np.ones((3, 2)), "square"),
        (np.empty((0, 0)), "square"),
        (np.triu(np.ones((4, 4))), "symmetric. Use"),
        (sparse.csr_matrix(np.triu(np.ones((4, 4)))), "symmetric. Use"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        as_operator(matrix)


def test_lists_are_taken():
    assert as_operator([[2.0, 0.0], [0.0, 3.0]]).smallest_eigenpairs(1).values[0] == 2.0


@pytest.mark.parametrize("k", [0, "2", 1.5])
def test_k_must_be_a_count(k):
    with pytest.raises(ValueError, match="k must be between 1 and 3"):
        as_operator(np.eye(3)).smallest_eigenpairs(k)


def test_singular_matrices_are_refused_alike(rng):
    D = np.diag([1.0, 2.0, 3.0])
    b = rng.standard_normal(3)
    n = 800
    ring = sparse.csr_matrix(sparse.diags_array([-1.0, -1.0], offsets=[1, -1], shape=(n, n)))
    ring = ring.tolil()
    ring[0, n - 1] = ring[n - 1, 0] = -1.0
    L = sparse.csr_matrix(ring) + 2 * sparse.identity(n, format="csr")
    for operator, shift, right in (
        (as_operator(D), -2.0, b),
        (as_operator(sparse.csr_matrix(D)), -2.0, b),
        (as_operator(L), 0.0, rng.standard_normal(n)),
    ):
        with pytest.raises(np.linalg.LinAlgError, match=f"singular.*shift={shift:g}"):
            operator.solve(shift, right)


def test_block_must_be_finite(backend):
    operator, _ = backend
    with pytest.raises(ValueError, match="finite entries"):
        operator.solve(0.0, np.full(60, np.nan))


def test_operators_pickle_after_a_solve(rng):
    L, _ = moons(3000)
    operator = SparseOperator(L, shift=1e-7, bounds=(0, 2))
    b = rng.standard_normal(3000)
    assert operator.solve(0.0, b).method == "lu"
    again = pickle.loads(pickle.dumps(operator))
    np.testing.assert_allclose(again.solve(0.0, b).x, operator.solve(0.0, b).x, rtol=1e-6)


@pytest.mark.parametrize("fill", [sparse_module.MAX_FILL, 0.0], ids=["lu", "two-level"])
def test_factors_belong_to_their_shift(monkeypatch, rng, fill):
    monkeypatch.setattr(sparse_module, "MAX_FILL", fill)
    L, root = moons(6000)
    operator = SparseOperator(L, shift=1e-6, bounds=(0, 2), null_space=root)
    b = rng.standard_normal(6000)
    for shift in (0.0, 1e-5, 0.0, 1e-6):
        solution = operator.solve(shift, b)
        assert solution.method == ("lu" if fill else "two-level")
        assert solution.n_iter < 400
        assert solution.residual < 1e-7


def test_cg_stops_on_what_is_not_definite():
    singular = SparseOperator(sparse.csr_matrix([[1.0, -1.0], [-1.0, 1.0]]), bounds=(0, 2))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        singular.solve(0.0, np.array([1.0, 1.0]))


def test_the_known_eigenvector_is_solved_without_an_iteration(monkeypatch):
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 100)
    L, root = moons_laplacian(2000)
    operator = SparseOperator(L, shift=1e-5, bounds=(0, 2), null_space=root)
    solution = operator.solve(0.0, root)
    assert solution.method == "two-level"
    assert solution.n_iter == 0
    np.testing.assert_allclose(solution.x, root * 1e5, rtol=1e-6)


def test_dense_iterations_are_accurate_by_default(monkeypatch, rng):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L, _ = moons_laplacian(400)
    solution = DenseOperator(L.toarray(), bounds=(0, 2)).solve(5.0, rng.standard_normal(400))
    assert solution.method == "cg"
    assert solution.residual <= 1e-8


def test_a_pickled_dense_operator_leaves_its_factor_behind(rng):
    Q = np.diag(1.0 + rng.random(300))
    operator = DenseOperator(Q)
    b = rng.standard_normal(300)
    solution = operator.solve(0.5, b)
    assert solution.method == "cholesky"
    stored = pickle.dumps(operator)
    assert len(stored) < 1.5 * Q.nbytes
    np.testing.assert_array_equal(pickle.loads(stored).solve(0.5, b).x, solution.x)
