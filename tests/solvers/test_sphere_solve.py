"""Linear systems with a solution of given length, and methods of box programs compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg, sparse
from sklearn.metrics.pairwise import rbf_kernel

from volmar.datasets import make_two_circles
from volmar.solvers.box_qp import BoxQP, solve_on_sphere
from volmar.solvers.elliptope import ElliptopeProblem


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def positive(rng, n, rank):
    A = rng.standard_normal((n, rank))
    return A @ A.T / rank


@pytest.mark.parametrize("rank", [3, 40, 80])
@pytest.mark.parametrize("radius", [0.01, 0.3, 1.0])
def test_the_system_and_the_length_hold(rng, rank, radius):
    H, right = positive(rng, 60, rank), np.ones(60)
    x, eta = solve_on_sphere(H.__matmul__, right, radius)
    assert eta < 0
    assert np.linalg.norm(x) == pytest.approx(radius, rel=1e-12)
    residual = np.linalg.norm(H @ x - eta * x - right)
    assert residual <= 1e-11 * np.linalg.norm(right)


def test_a_solution_that_is_short_without_a_shift_has_none(rng):
    H = positive(rng, 30, 60) + np.eye(30)
    longest = float(np.linalg.norm(linalg.solve(H, np.ones(30))))
    assert solve_on_sphere(H.__matmul__, np.ones(30), 1.001 * longest) is None
    assert solve_on_sphere(H.__matmul__, np.ones(30), 0.999 * longest).eta < 0
    assert solve_on_sphere(H.__matmul__, np.zeros(30), 1.0) is None


def test_a_matrix_of_zeros_and_a_few_eigenvalues():
    x, eta = solve_on_sphere(np.zeros_like, np.array([3.0, 4.0]), 2.0)
    np.testing.assert_allclose(x, [1.2, 1.6])
    assert eta == pytest.approx(-2.5)
    H = np.diag(np.repeat([1.0, 5.0], 20))
    x, eta = solve_on_sphere(H.__matmul__, np.ones(40), 1.0)
    np.testing.assert_allclose((np.diag(H) - eta) * x, 1.0, rtol=1e-10)


@pytest.mark.parametrize("C", [0.12, 0.2, 1.0])
def test_both_ways_to_the_unit_norm_agree(rng, C, monkeypatch):
    """One Krylov space and a linear solve per trial value give the same multiplier."""
    for kind in (np.asarray, sparse.csr_matrix):
        H = positive(rng, 80, 10)
        H *= np.abs(H) > 0.1
        H += (0.1 - np.linalg.eigvalsh(H)[0]) * np.eye(80)
        found = BoxQP(80, C, unit_norm=True).solve(kind(H))
        with monkeypatch.context() as patch:
            patch.setattr(BoxQP, "_on_sphere", lambda *_: False)
            expected = BoxQP(80, C, unit_norm=True).solve(kind(H))
        assert found.eta == pytest.approx(expected.eta, rel=1e-9)
        np.testing.assert_allclose(found.a, expected.a, atol=1e-9)
        assert found.slack < 1e-9


def test_nearly_singular_programs_are_solved_from_afar(monkeypatch):
    """All rows are free at first, and few at the end: solved by ridges, without L-BFGS."""
    X, _ = make_two_circles(300, random_state=0)
    centring = np.eye(300) - 1 / 300
    K = centring @ rbf_kernel(X, gamma=0.5) @ centring
    V = np.column_stack([np.sign(X[:, 0]), 0.2 * X[:, 1]])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    monkeypatch.setattr(BoxQP, "_by_projection", None)
    shifts = []
    by_active_sets = BoxQP._by_active_sets

    def recorded(self, H, eta, start):
        shifts.append(eta)
        return by_active_sets(self, H, eta, start)

    monkeypatch.setattr(BoxQP, "_by_active_sets", recorded)
    point = BoxQP(300, 0.5, unit_norm=False).solve(K * (V @ V.T))
    assert len(shifts) > 2
    assert point.slack <= 1e-9 * point.value
    assert 0 < np.count_nonzero((point.a > 0) & (point.a < 0.5)) < 50


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_rows_of_a_weighted_matrix_are_those_of_all_of_it(rng, ridge):
    Q, V = positive(rng, 50, 50), rng.standard_normal((50, 4))
    whole = 0.7 * Q * (V @ V.T) + ridge * np.eye(50)
    rows = np.array([3, 8, 40])
    H = ElliptopeProblem(Q, reg=0.7).weighted(V)
    H.ridge = ridge
    np.testing.assert_allclose(H[rows], whole[rows], atol=1e-12)
    np.testing.assert_allclose(H.block(rows), whole[np.ix_(rows, rows)], atol=1e-12)
    assert "whole" not in vars(H)
    np.testing.assert_allclose(H.diagonal(), whole.diagonal(), atol=1e-12)
    np.testing.assert_allclose(H @ V[:, 0], whole @ V[:, 0], atol=1e-12)
    np.testing.assert_allclose(H[rows], whole[rows], atol=1e-12)
    np.testing.assert_allclose(H.block(rows), whole[np.ix_(rows, rows)], atol=1e-12)
    np.testing.assert_allclose(H.toarray(), whole, atol=1e-12)


def test_an_indefinite_matrix_is_refused():
    """Its negative eigenvalues are not due to rounding."""
    H = np.diag(np.r_[-1.0, np.linspace(0.1, 2.0, 29)])
    assert solve_on_sphere(H.__matmul__, np.ones(30), 1.0) is None
