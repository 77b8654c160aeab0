"""The best mixture of given labellings, against cvxpy."""

import cvxpy as cp
import numpy as np
import pytest
from helpers.cvxpy_references import centred, saddle_by_cvxpy

from volmar.solvers import Status
from volmar.solvers.label_kernel_svm import solve_label_kernel_svm


def machine_by_cvxpy(Z, y, C, weights=1.0):
    """The primal as printed (JMLR section 7.1) for one labelling."""
    w, rho, xi = cp.Variable(Z.shape[1]), cp.Variable(), cp.Variable(len(Z))
    roots = np.sqrt(weights * np.ones(len(Z)))
    loss = cp.sum_squares(cp.multiply(roots, xi))
    goal = cp.Minimize(0.5 * cp.sum_squares(w) - rho + 0.5 * C * loss)
    problem = cp.Problem(goal, [cp.multiply(y, Z @ w) >= rho - xi])
    problem.solve(solver=cp.CLARABEL)
    return problem.value, rho.value


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_one_labelling_is_the_printed_machine(rng, C):
    Z = centred(rng, 15, 3)
    y = np.where(rng.random(15) < 0.5, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, y[None, :], C=C, tol=1e-10)
    value, rho = machine_by_cvxpy(Z, y, C)
    assert found.objective == pytest.approx(value, rel=1e-5)
    assert found.rho == pytest.approx(rho, rel=1e-4)
    np.testing.assert_allclose(found.normals[0], Z.T @ (found.alpha * y), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("n", "d", "T", "C"), [(12, 3, 6, 0.3), (25, 4, 9, 3.0), (40, 2, 5, 0.05)]
)
def test_the_saddle_is_that_of_cvxpy(seed, n, d, T, C):
    rng = np.random.default_rng(seed)
    Z = centred(rng, n, d)
    Y = np.where(rng.standard_normal((T, n)) > 0, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, Y, C=C, tol=1e-9)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(saddle_by_cvxpy(Z, Y, C), rel=1e-5)
    assert found.gap <= 1e-9 * abs(found.objective)
    # The certificate, written out again.
    assert found.alpha.min() >= 0
    assert found.alpha.sum() == pytest.approx(1.0)
    squares = np.square((Y * found.alpha) @ Z).sum(axis=1)
    dual = -0.5 * (squares.max() + found.alpha @ found.alpha / C)
    assert dual == pytest.approx(found.objective - found.gap, rel=1e-9)
    # Only labellings with the largest square have positive weight.
    assert np.all(squares[found.weights > 1e-6] >= squares.max() * (1 - 1e-4))
    assert found.weights.sum() == pytest.approx(1.0)


def test_the_saddle_falls_with_every_labelling_and_from_every_start(rng):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    values = [solve_label_kernel_svm(Z, Y[:T], C=0.5, tol=1e-9).objective for T in range(1, 9)]
    assert np.all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0]
    for _ in range(3):
        weights, alpha = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(30))
        again = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-9, weights=weights, alpha=alpha)
        assert again.objective == pytest.approx(values[-1], rel=1e-7)


def test_the_saddle_reports_an_early_stop(rng):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    exact = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-10)
    early = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-10, max_iter=1)
    assert early.status is Status.MAX_ITER
    assert early.objective - early.gap <= exact.objective <= early.objective
    assert early.gap > exact.gap


@pytest.mark.parametrize("scale", [1e-145, 1e-60, 1e145])
def test_the_saddle_in_any_units(rng, scale):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    one = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-9)
    other = solve_label_kernel_svm(Z * scale, Y, C=0.5 / scale**2, tol=1e-9)
    assert other.status is Status.CONVERGED
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-6)
    np.testing.assert_allclose(other.normals / scale, one.normals, atol=1e-6)
    for name in ("objective", "rho"):
        assert getattr(other, name) / scale**2 == pytest.approx(getattr(one, name), rel=1e-7)
    assert other.history[-1] == other.objective
    squares = np.square((Y * other.alpha) @ Z).sum(axis=1)
    dual = -0.5 * (squares.max() + 2.0 * other.alpha @ other.alpha)
    assert (other.objective - other.gap) / scale**2 == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("C", [1e5, 1e8])
def test_a_margin_that_is_nearly_hard(C):
    """Here sets of rows inside the margin recur, and damped steps change few rows."""
    for seed in range(110, 130):
        rng = np.random.default_rng(seed)
        Z, y = centred(rng, 5, 3), np.where(rng.random(5) < 0.5, 1.0, -1.0)
        found = solve_label_kernel_svm(Z, y[None, :], C=C / np.square(Z).sum(), tol=1e-6)
        assert found.status is Status.CONVERGED
        assert found.gap <= 1e-6 * abs(found.objective)
