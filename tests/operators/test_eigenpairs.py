"""Smallest eigenpairs: LAPACK, Lanczos, shift-invert and LOBPCG, with none missed."""

import numpy as np
import pytest
from helpers.laplacians import blobs, moons, moons_laplacian, normalised_laplacian, random_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.exceptions import ConvergenceWarning

from volmar import _memory
from volmar._checks import fix_signs
from volmar.graphs import laplacian
from volmar.operators import as_operator
from volmar.operators import dense as dense_module
from volmar.operators import sparse as sparse_module
from volmar.operators.dense import DenseOperator
from volmar.operators.protocol import largest_eigenpairs
from volmar.operators.sparse import SparseOperator


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
    """A Krylov sequence contains one vector of an eigenspace: a known failure of Lanczos."""
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
    lowest = [linalg.eigh(part[0].toarray(), eigvals_only=True)[:4] for part in parts]
    exact = np.sort(np.concatenate(lowest))
    for k in (1, 3, 4):
        pairs = operator.smallest_eigenpairs(k)
        assert pairs.method == ("known" if known and k == 1 else "lobpcg")
        np.testing.assert_allclose(pairs.values, exact[:k], atol=1e-8)
        np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=1e-6)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_lanczos_finds_repeated_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    n = 80
    values = np.sort(rng.random(n))
    values[-3:] = 2.0  # the largest eigenvalue is repeated three times
    basis = linalg.qr(rng.standard_normal((n, n)))[0]
    A = (basis * values) @ basis.T
    found, vectors, _ = largest_eigenpairs(
        lambda x: A @ x.ravel(), np.empty((n, 0)), 3, tol=1e-8, seed=seed, max_iter=200
    )
    np.testing.assert_allclose(found, 2.0, atol=1e-7)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-7)


def test_lanczos_reports_missing_convergence(rng):
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


def test_signs_are_fixed():
    v = np.array([[0.1, -0.9], [-0.7, 0.1], [0.7, 0.2]])
    fixed = fix_signs(v)
    np.testing.assert_array_equal(fixed[:, 0], -v[:, 0])  # the first of two equal entries decides
    np.testing.assert_array_equal(fixed[:, 1], -v[:, 1])
    np.testing.assert_array_equal(fix_signs(np.zeros((2, 1))), np.zeros((2, 1)))


def test_same_seed_same_vectors():
    L, _ = blobs(3000)
    one, two = (SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(3) for _ in range(2))
    np.testing.assert_array_equal(one.vectors, two.vectors)


def test_dense_fallback_checks_memory(monkeypatch):
    L, _ = moons(1000)
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match="dense eigenpairs"):
        SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(200)


def test_repeated_eigenvalues_at_any_scale():
    n = 800
    ring = sparse.diags_array([-1.0, -1.0], offsets=[1, -1], shape=(n, n)).tolil()
    ring[0, n - 1] = ring[n - 1, 0] = -1.0
    L = sparse.csr_matrix(ring) + 2 * sparse.identity(n, format="csr")
    exact = np.sort(2 - 2 * np.cos(2 * np.pi * np.arange(n) / n))[:5]
    for scale in (1e-15, 1.0, 1e20):
        values = as_operator(scale * L).smallest_eigenpairs(5).values / scale
        np.testing.assert_allclose(values, exact, atol=1e-8)


def component_roots(L, root):
    """Exact null vectors of a normalised Laplacian: roots of the degrees by component."""
    count, labels = sparse.csgraph.connected_components(L, directed=False)
    return root[:, None] * (labels[:, None] == np.arange(count))


def strays(seed):
    """A cloud with five far groups of twelve: six zeros that one Krylov sequence cannot find."""
    rng = np.random.default_rng(seed)
    cloud = rng.normal(0, 1, (2500, 5))
    groups = [rng.normal(0, 0.1, (12, 5)) + 100 * rng.normal(0, 1, 5) for _ in range(5)]
    return normalised_laplacian(np.vstack([cloud, *groups]), k=10)


@pytest.mark.parametrize("with_null_space", [False, True])
@pytest.mark.parametrize("seed", range(3))
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


def two_expanders(n):
    """Normalised Laplacian of two random graphs with few edges between: one separate value."""
    half = n // 2
    bridges = np.arange(0, half, 20)
    between = sparse.coo_matrix(
        (np.ones(bridges.size), (bridges, bridges)), shape=(half, half)
    ).tocsr()
    one, other = random_graph(half, 5, seed=1), random_graph(half, 5, seed=2)
    W = sparse.csr_matrix(sparse.block_array([[one, between], [between.T, other]]))
    return laplacian(W)


def test_a_factor_at_another_shift_serves_no_eigenpairs(monkeypatch):
    monkeypatch.setattr(dense_module, "LANCZOS_FROM", 100)
    L = moons_laplacian(400)[0].toarray()
    operator = DenseOperator(L, shift=1e-3, bounds=(0, 2))
    assert operator.solve(0.01, np.ones(400)).method == "cholesky"
    found = operator.smallest_eigenpairs(3).values
    np.testing.assert_allclose(found, linalg.eigvalsh(L)[:3] + 1e-3, atol=1e-8)


def test_eigenpairs_of_an_indefinite_matrix():
    """Shift-invert must put its pole below the whole spectrum, not just below zero."""
    L, _ = moons_laplacian(2000)
    lowered = sparse.csr_matrix(L - 0.3 * sparse.identity(2000))
    found = SparseOperator(lowered, bounds=(-0.3, 1.7)).smallest_eigenpairs(3)
    assert found.method == "shift-invert"
    exact = linalg.eigh(lowered.toarray(), subset_by_index=(0, 2), eigvals_only=True)
    np.testing.assert_allclose(found.values, exact, atol=1e-6)


def test_no_convergence_warns_where_a_dense_matrix_is_too_large(monkeypatch):
    """No factors, no Lanczos, and a tolerance for LOBPCG that is below rounding."""

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
    """The residuals of the found pairs are small; only a check of the complement detects it."""
    L = two_expanders(2000)
    values, vectors = linalg.eigh(L.toarray(), subset_by_index=(0, 3))
    assert values[2] > 4 * values[1]
    calls = []

    def without_the_second(Q, two_level, known, k, **options):
        calls.append(k)
        return values[[0, 2]], vectors[:, [0, 2]], values[3]

    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 100)
    monkeypatch.setattr(sparse_module, "lobpcg_smallest", without_the_second)
    pairs = SparseOperator(L, bounds=(0, 2)).smallest_eigenpairs(2)
    assert calls == [2]
    assert pairs.method != "lobpcg"
    np.testing.assert_allclose(pairs.values, values[:2], atol=1e-8)


def weakly_joined_paths(n_parts, n):
    """Paths joined to a ring by edges of weight 1e-9; the roots of the degrees."""
    rows = np.arange(n_parts * n)
    weights = np.where(rows % n == n - 1, 1e-9, 1.0)
    W = sparse.csr_matrix((weights, (rows, np.roll(rows, -1))), shape=(rows.size,) * 2)
    W = sparse.csr_matrix(W + W.T)
    return laplacian(W), np.sqrt(np.asarray(W.sum(axis=1)).ravel())


@pytest.mark.parametrize("shift", [0.0, 1 / 8000], ids=["L", "L + I/n"])
@pytest.mark.parametrize("tol", [1e-6, 1e-4, 3e-3])
@pytest.mark.parametrize("method", ["shift-invert", "lobpcg", "dense"])
def test_tiny_eigenvalues_are_separated_at_any_tolerance(method, tol, shift, monkeypatch):
    """Four eigenvalues below 1e-11, the next at 1e-6, and a tolerance and a shift far above."""
    n = 500 if method == "dense" else 2000
    L, root = weakly_joined_paths(4, n)
    matrix = L.toarray() if method == "dense" else L
    kind = DenseOperator if method == "dense" else SparseOperator
    if method == "lobpcg":
        monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1000)
    pairs = kind(matrix, shift=shift, bounds=(0, 2), null_space=root).smallest_eigenpairs(
        4, tol=tol
    )
    assert pairs.values.max() - shift < 1e-10
    parts = np.repeat(np.eye(4), n, axis=0) * root[:, None]
    parts /= np.linalg.norm(parts, axis=0)
    cosines = np.linalg.svd(parts.T @ pairs.vectors, compute_uv=False)
    assert cosines.min() > 0.99


def test_residuals_above_the_eigenvalues_warn(monkeypatch):
    """If no method is accurate enough, the user is warned, even if `tol` is satisfied."""
    L, root = weakly_joined_paths(4, 2000)
    values, vectors = np.zeros(3), np.linalg.qr(np.random.default_rng(0).normal(size=(8000, 3)))[0]
    for _ in range(200):
        vectors = np.linalg.qr(vectors - L @ vectors / 2)[0]
    values = np.einsum("ij,ij->j", vectors, L @ vectors)
    residual = np.linalg.norm(L @ vectors - vectors * values, axis=0).max()
    assert residual < 3e-2
    monkeypatch.setattr(sparse_module, "MAX_FILL", 0.0)
    monkeypatch.setattr(sparse_module, "lanczos_smallest", lambda *args, **kwargs: None)
    monkeypatch.setattr(
        sparse_module, "lobpcg_smallest", lambda *args, **kwargs: (values, vectors, values.max())
    )
    operator = SparseOperator(L, bounds=(0, 2), null_space=root)
    with pytest.warns(ConvergenceWarning, match="more neighbours"):
        operator.smallest_eigenpairs(4, tol=0.1)
