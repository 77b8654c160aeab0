"""Operators: every back end answers as the dense matrix does, and certifies it."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.datasets import make_blobs, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import kneighbors_graph

from volmar import _memory
from volmar._checks import fix_signs
from volmar.operators import DenseOperator, SparseOperator, as_operator
from volmar.operators import dense as dense_module
from volmar.operators import sparse as sparse_module
from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.fill import factorise, predicted_fill
from volmar.operators.lanczos import largest_eigenpairs
from volmar.operators.two_level import TwoLevel


def normalised_laplacian(X, k=10):
    W = kneighbors_graph(X, k)
    W = sparse.csr_matrix(W.maximum(W.T))
    root = np.sqrt(np.asarray(W.sum(axis=1)).ravel())
    scaled = sparse.diags_array(1 / root) @ W @ sparse.diags_array(1 / root)
    return sparse.csr_matrix(sparse.identity(W.shape[0]) - (scaled + scaled.T) / 2), root


def moons(n, seed=0):
    return normalised_laplacian(make_moons(n, noise=0.08, random_state=seed)[0])


def blobs(n, seed=0, std=6.0):
    X, _ = make_blobs(n, n_features=16, centers=2, cluster_std=std, random_state=seed)
    return normalised_laplacian(X)


def random_spd(rng, n, low=0.1):
    basis = linalg.qr(rng.standard_normal((n, n)))[0]
    return basis @ np.diag(np.sort(low + rng.random(n))) @ basis.T


@pytest.fixture(params=["dense", "sparse"])
def backend(request, rng):
    """An operator and the same matrix, written out."""
    n = 60
    if request.param == "dense":
        Q = random_spd(rng, n)
        Q = (Q + Q.T) / 2
        return DenseOperator(Q, shift=0.25), Q + 0.25 * np.eye(n)
    L, _ = moons(n)
    return SparseOperator(L, shift=1 / n, bounds=(0, 2)), L.toarray() + np.eye(n) / n


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


def test_backend_eigenpairs(backend):
    operator, Q = backend
    values, _ = linalg.eigh(Q)
    pairs = operator.smallest_eigenpairs(5)
    np.testing.assert_allclose(pairs.values, values[:5], atol=1e-9)
    assert pairs.residuals.max() < 1e-9
    np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(5), atol=1e-9)
    low, high = operator.bounds
    assert low <= values[0] + 1e-12
    assert high >= values[-1] - 1e-12


def test_indefinite_shift_is_solved(backend, rng):
    """The SQP of the volume family meets A = gamma Q - eta I with one negative eigenvalue."""
    operator, Q = backend
    values = linalg.eigvalsh(Q)
    shift = -(values[0] + values[1]) / 2
    b = rng.standard_normal(operator.n)
    solution = operator.solve(shift, b)
    assert solution.residual < 1e-9
    np.testing.assert_allclose(Q @ solution.x + shift * solution.x, b, atol=1e-7)


@pytest.mark.parametrize(
    ("graph", "method"), [(moons, "shift-invert"), (blobs, "lanczos")], ids=["moons", "blobs"]
)
def test_sparse_eigenpairs_by_the_graphs_shape(graph, method):
    L, root = graph(3000)
    operator = SparseOperator(L, bounds=(0, 2), null_space=root)
    pairs = operator.smallest_eigenpairs(4)
    assert pairs.method == method
    exact = linalg.eigh(L.toarray(), subset_by_index=(0, 3), eigvals_only=True)
    np.testing.assert_allclose(pairs.values, exact, atol=1e-8)
    assert pairs.residuals.max() < 2e-6


def test_lobpcg_agrees_with_shift_invert(monkeypatch):
    L, root = moons(4000)
    reference = SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(4)
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1000)
    pairs = SparseOperator(L, bounds=(0, 2), null_space=root).smallest_eigenpairs(4)
    assert (reference.method, pairs.method) == ("shift-invert", "lobpcg")
    np.testing.assert_allclose(pairs.values, reference.values, atol=1e-9)
    cosines = np.abs(np.einsum("ij,ij->j", pairs.vectors, reference.vectors))
    assert cosines.min() > 1 - 1e-3


@pytest.mark.parametrize("n_parts", [2, 3, 5])
@pytest.mark.parametrize("graph", [moons, blobs], ids=["moons", "blobs"])
def test_no_zero_of_a_disconnected_graph_is_skipped(graph, n_parts):
    """One Krylov sequence sees one vector of an eigenspace: the known trap of Lanczos."""
    L = sparse.csr_matrix(sparse.block_diag([graph(600, seed=s)[0] for s in range(n_parts)]))
    pairs = SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(n_parts + 1)
    assert pairs.method != "dense"
    np.testing.assert_allclose(pairs.values[:n_parts], 0, atol=1e-9)
    exact = sorted(linalg.eigvalsh(graph(600, seed=s)[0].toarray())[1] for s in range(n_parts))
    np.testing.assert_allclose(pairs.values[n_parts], exact[0], atol=1e-8)


@pytest.mark.parametrize("known", [True, False])
def test_lobpcg_finds_every_zero_of_a_disconnected_graph(monkeypatch, known):
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1000)
    parts = [moons(900, seed=s) for s in range(3)]
    L = sparse.csr_matrix(sparse.block_diag([part[0] for part in parts]))
    root = np.concatenate([part[1] for part in parts]) if known else None
    operator = SparseOperator(L, bounds=(0, 2), null_space=root)
    for k in (1, 3, 4):
        pairs = operator.smallest_eigenpairs(k)
        assert pairs.method == ("known" if known and k == 1 else "lobpcg")
        exact = linalg.eigh(L.toarray(), subset_by_index=(0, k - 1), eigvals_only=True)
        np.testing.assert_allclose(pairs.values, exact, atol=1e-8)
        np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=1e-6)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_lanczos_finds_repeated_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    n = 80
    values = np.sort(rng.random(n))
    values[-3:] = 2.0  # three times the same at the top
    basis = linalg.qr(rng.standard_normal((n, n)))[0]
    A = (basis * values) @ basis.T
    found, vectors = largest_eigenpairs(
        lambda x: A @ x.ravel(), np.empty((n, 0)), 3, tol=1e-8, seed=seed, max_iter=200
    )
    np.testing.assert_allclose(found, 2.0, atol=1e-7)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-7)


def test_lanczos_says_when_it_does_not_converge(rng):
    A = np.diag(1 + 1e-9 * np.arange(400.0))
    nothing = np.empty((400, 0))
    found = largest_eigenpairs(lambda x: A @ x, nothing, 2, tol=1e-16, seed=0, max_iter=1)
    assert found is None


def test_dense_lanczos_agrees_with_lapack(monkeypatch, rng):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L = blobs(400)[0].toarray()
    pairs = DenseOperator(L, bounds=(0, 2)).smallest_eigenpairs(3)
    assert pairs.method == "lanczos"
    np.testing.assert_allclose(pairs.values, linalg.eigvalsh(L)[:3], atol=1e-9)


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


def test_cg_that_cannot_finish_warns_with_a_remedy(monkeypatch, rng):
    L, _ = moons(2000)
    monkeypatch.setattr(sparse_module, "MAX_FILL", 0.0)
    operator = SparseOperator(L, shift=1e-14, bounds=(0, 2))
    with pytest.warns(ConvergenceWarning, match="larger shift"):
        solution = operator.solve(0.0, rng.standard_normal(2000), rtol=1e-30)
    assert solution.residual > 1e-29


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


def test_a_large_singular_matrix_is_refused(monkeypatch):
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1)
    pairs = sparse.block_diag([np.array([[1.0, -1.0], [-1.0, 1.0]])] * 40)
    singular = SparseOperator(sparse.csr_matrix(pairs), bounds=(0, 2))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        singular.solve(0.0, np.ones(80))


@pytest.mark.parametrize("m", [1, 2])
def test_dense_eigenpairs_use_the_factor_that_solves_need(monkeypatch, m):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L, root = blobs(400)
    L = L.toarray()
    operator = DenseOperator(L, shift=1e-3, bounds=(0, 2), null_space=root)
    pairs = operator.smallest_eigenpairs(1 + m)
    assert pairs.method == "shift-invert"
    assert operator.solve(0.0, np.ones(400)).method == "cholesky"
    np.testing.assert_allclose(pairs.values, linalg.eigvalsh(L)[: 1 + m] + 1e-3, atol=1e-9)


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
    used.solve(-shift - 0.05, b)  # indefinite: by factors
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


@pytest.mark.parametrize(("graph", "n"), [(moons, 10_000), (blobs, 3000)])
def test_predicted_fill_is_near_the_real_one(graph, n):
    L, _ = graph(n)
    real = factorise(sparse.csc_matrix(L + sparse.identity(n))).nnz / L.nnz
    assert real / 4 < predicted_fill(L) < 4 * real


def test_predicted_fill_with_tiny_components():
    parts = [moons(50, seed=s)[0] for s in range(60)]
    L = sparse.csr_matrix(sparse.block_diag(parts))
    assert 0.5 < predicted_fill(L) < 15


def test_signs_are_fixed():
    v = np.array([[0.1, -0.9], [-0.7, 0.1], [0.7, 0.2]])
    fixed = fix_signs(v)
    np.testing.assert_array_equal(fixed[:, 0], -v[:, 0])  # of two equal entries the first decides
    np.testing.assert_array_equal(fixed[:, 1], -v[:, 1])
    np.testing.assert_array_equal(fix_signs(np.zeros((2, 1))), np.zeros((2, 1)))


def test_same_seed_same_vectors():
    L, _ = blobs(3000)
    one, two = (SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(3) for _ in range(2))
    np.testing.assert_array_equal(one.vectors, two.vectors)


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


def test_dense_fallback_checks_memory(monkeypatch):
    L, _ = moons(1000)
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="dense eigenpairs"):
        SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(200)


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


def test_repeated_eigenvalues_at_any_scale():
    n = 800
    ring = sparse.diags_array([-1.0, -1.0], offsets=[1, -1], shape=(n, n)).tolil()
    ring[0, n - 1] = ring[n - 1, 0] = -1.0
    L = sparse.csr_matrix(ring) + 2 * sparse.identity(n, format="csr")
    exact = np.sort(2 - 2 * np.cos(2 * np.pi * np.arange(n) / n))[:5]
    for scale in (1e-15, 1.0, 1e20):
        values = as_operator(scale * L).smallest_eigenpairs(5).values / scale
        np.testing.assert_allclose(values, exact, atol=1e-8)


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


def component_roots(L, root):
    """Exact null vectors of a normalised Laplacian: roots of the degrees by component."""
    count, labels = sparse.csgraph.connected_components(L, directed=False)
    return root[:, None] * (labels[:, None] == np.arange(count))


def strays(seed):
    """A cloud with five far groups of twelve: six zeros that one Krylov sequence cannot see."""
    rng = np.random.default_rng(seed)
    cloud = rng.normal(0, 1, (2500, 5))
    groups = [rng.normal(0, 0.1, (12, 5)) + 100 * rng.normal(0, 1, 5) for _ in range(5)]
    return normalised_laplacian(np.vstack([cloud, *groups]), k=10)


@pytest.mark.parametrize("with_null_space", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_stray_groups_do_not_hide_zeros(seed, with_null_space):
    L, root = strays(seed)
    null_space = component_roots(L, root) if with_null_space else None
    n_zeros = sparse.csgraph.connected_components(L, directed=False)[0]
    assert n_zeros >= 6
    for matrix in (L, L.toarray()):
        operator = as_operator(matrix, bounds=(0, 2), null_space=null_space)
        pairs = operator.smallest_eigenpairs(n_zeros + 1)
        np.testing.assert_allclose(pairs.values[:n_zeros], 0.0, atol=1e-8)
        assert pairs.values[n_zeros] > 1e-4


def test_a_null_space_that_is_none_is_left_out(rng):
    L, root = moons(3000)
    exact = SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(3)
    wrong = SparseOperator(L, bounds=(0, 2), null_space=root + 0.01 * rng.random(3000))
    np.testing.assert_allclose(wrong.smallest_eigenpairs(3).values, exact.values, atol=1e-9)
    right = SparseOperator(L, bounds=(0, 2), null_space=root)
    np.testing.assert_allclose(right.smallest_eigenpairs(3).values, exact.values, atol=1e-9)
    assert right.smallest_eigenpairs(1).method == "known"


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


def test_fill_sees_the_fuller_half():
    """Half the rows in two dimensions, half in sixteen: the fuller half decides."""
    flat = moons(6000)[0].tolil()
    flat[0, 1:200] = flat[1:200, 0] = -1e-3  # the hub that a single ball would start from
    L = sparse.csr_matrix(sparse.block_diag([sparse.csr_matrix(flat), blobs(6000)[0]]))
    assert predicted_fill(L) > 20
