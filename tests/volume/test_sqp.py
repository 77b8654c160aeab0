"""Algorithm 1 of the papers: its quadratic programs, the certificate, its limit."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from helpers.volume_problems import (
    CASES,
    SETS,
    laplacian_of,
    moons_graph,
    random_spd,
    random_spectrum,
    start_of,
)
from scipy import linalg

from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.descent import solve_qp, sqp
from volmar.volume.problem import VolumeProblem, signs


def reference_qp(Q, reg, balance, h, eta):
    """JMLR eq. 5 as printed, in p = x - h, by an interior point solver."""
    n = len(h)
    A = reg * Q - eta * np.eye(n)
    p = cp.Variable(n)
    objective = cp.quad_form(p, cp.psd_wrap(A)) + 2 * p @ (reg * Q @ h - signs(h))
    constraints = [2 * p @ h + h @ h == 1, cp.abs(cp.sum(p) + h.sum()) <= balance]
    cp.Problem(cp.Minimize(objective), constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return h + p.value, A


def reference_sqp(Q, reg, balance, h, n_steps):
    """Algorithm 1 with the interior point solver and the multiplier from stationarity."""
    eta = 0.0
    for _ in range(n_steps):
        x, A = reference_qp(Q, reg, balance, h, eta)
        gradient = A @ x - signs(h)
        system = np.column_stack([h, -np.ones_like(h)])
        eta += float(np.linalg.lstsq(system, gradient, rcond=None)[0][0])
        h = x
    return h / np.linalg.norm(h)


@pytest.mark.parametrize("balance", [0.0, 0.02, 100.0])
@pytest.mark.parametrize("seed", range(4))
def test_quadratic_program_agrees_with_an_interior_point_solver(seed, balance):
    rng = np.random.default_rng(seed)
    n, reg = 25, 0.3
    Q = random_spd(rng, n)
    problem = VolumeProblem(as_operator(Q), reg, balance)
    h = rng.standard_normal(n)
    h /= np.linalg.norm(h)
    eta = -float(rng.random())
    step = solve_qp(problem, h, eta, np.linalg.eigvalsh(Q)[:3])
    expected, A = reference_qp(Q, reg, balance, h, eta)
    np.testing.assert_allclose(step.x, expected, atol=1e-6)
    assert abs(step.x.sum()) <= balance + 1e-10
    assert h @ step.x == pytest.approx((1 + h @ h) / 2, abs=1e-12)
    # Stationarity with the exact multiplier, and the value without a product with Q.
    residual = A @ step.x - signs(h) - (step.eta - eta) * h + step.kappa
    assert np.linalg.norm(residual) < 1e-10
    assert step.value == pytest.approx(step.x @ A @ step.x - 2 * signs(h) @ step.x, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SETS)
def test_sqp_agrees_with_a_generic_solver(case, name):
    n, reg = 40, 1e-2
    Q, operator = CASES[case](name, n)
    problem = VolumeProblem(operator, reg, 1.0 / n)
    h0 = start_of(Q)
    found = sqp(problem, h0, np.linalg.eigvalsh(Q)[:3])
    assert found.status is Status.CONVERGED
    assert max(found.residuals.values()) < 1e-8
    expected = reference_sqp(Q, reg, 1.0 / n, h0, found.n_iter)
    assert found.objective == pytest.approx(problem.objective(expected), rel=1e-8)
    np.testing.assert_array_equal(signs(found.h), signs(expected))


def test_certificate_sees_every_violation(rng):
    Q = laplacian_of("moons", 50)
    problem = VolumeProblem(as_operator(Q), 1e-2, 1 / 50)
    found = sqp(problem, start_of(Q), np.linalg.eigvalsh(Q)[:3])
    h = found.h
    assert found.check(problem).is_stationary(1e-9)
    assert not dataclasses.replace(found, h=np.abs(h)).check(problem).is_stationary(1e-9)
    assert found.check(problem).objective == pytest.approx(found.objective, rel=1e-12)
    assert problem.certificate(2 * h).residuals["norm"] == pytest.approx(1.0)
    unbalanced = problem.certificate(np.abs(h)).residuals["balance"]
    assert unbalanced == pytest.approx(np.abs(h).sum() - 1 / 50)
    moved = h + 1e-3 * rng.standard_normal(50)
    moved /= np.linalg.norm(moved)
    assert problem.certificate(moved).residuals["stationarity"] > 1e-4


def test_certificate_refuses_a_multiplier_of_the_wrong_sign():
    """At 1'h = b a negative kappa pulls outwards: such a point is not stationary."""
    Q = np.eye(4)
    problem = VolumeProblem(as_operator(Q), 1.0, 1.0)
    h = np.array([0.9, 0.3, 0.3, -0.1])
    h = h / np.linalg.norm(h)
    h_on_side = VolumeProblem(as_operator(Q), 1.0, float(h.sum()))
    assert h_on_side.multipliers(h)[1] >= 0
    assert problem.multipliers(-h)[1] <= 0
    inside = VolumeProblem(as_operator(Q), 1.0, 3.0)
    assert inside.multipliers(h)[1] == 0.0


@pytest.mark.parametrize("n", [60, 200])
@pytest.mark.parametrize("name", SETS)
def test_converged_point_is_the_closed_form_limit(name, n):
    """h* = (y - m) / sqrt(n (1 - m^2)), eta* = -sqrt(n (1 - m^2)), kappa* = m (notes, 0.1)."""
    Q = laplacian_of(name, n)
    problem = VolumeProblem(as_operator(Q), 1e-2, 1 / n)
    found = sqp(problem, start_of(Q), np.linalg.eigvalsh(Q)[:3])
    y = signs(found.field)  # labels of the first step are those of the end
    np.testing.assert_array_equal(y, signs(found.h))
    m = y.mean()
    size = np.sqrt(n * (1 - m**2))
    assert np.abs(found.h - (y - m) / size).max() < 4e-3 / np.sqrt(n)
    assert found.multiplier == pytest.approx(-size, rel=5e-3)
    assert found.balance_multiplier == pytest.approx(m, abs=5e-3)


def qp_by_brute_force(A, h, balance):
    """Lowest value of x'Ax - 2 sign(h)'x where h'x = (1 + h'h) / 2 and |1'x| <= balance.

    Also returns the constraints that keep it bounded; no value if none does.
    """
    n, s, ones = h.size, signs(h), np.ones_like(h)

    def is_convex(rows):
        free = linalg.null_space(rows)
        return np.linalg.eigvalsh(free.T @ A @ free).min() > 0

    def lowest(rows, right):
        m = len(rows)
        system = np.block([[A, -rows.T], [rows, np.zeros((m, m))]])
        x = np.linalg.solve(system, np.concatenate([s, right]))[:n]
        return x @ A @ x - 2 * s @ x, x.sum()

    middle = (1 + h @ h) / 2
    norm, both = h[None], np.vstack([h, ones])
    at_bounds = min(lowest(both, [middle, side])[0] for side in (balance, -balance))
    if is_convex(norm):
        value, total = lowest(norm, [middle])
        return "norm", value if abs(total) <= balance else at_bounds
    return ("both", at_bounds) if is_convex(both) else ("none", None)


def test_programs_of_an_indefinite_matrix_agree_with_brute_force():
    """With one or two negative eigenvalues, constraints may or may not keep it bounded."""
    seen = set()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 8))
        Q, eigenvalues = random_spectrum(rng, n)
        reg, balance = 10 ** rng.uniform(-1, 2), float(rng.choice([0.1, 0.5, 2.0]))
        h = rng.standard_normal(n) * rng.uniform(0.5, 1.5) / np.sqrt(n)
        n_negative = int(rng.integers(1, 3))
        below, above = eigenvalues[n_negative - 1 : n_negative + 1]
        eta = reg * (below + (above - below) * rng.uniform(0.1, 0.9))
        kind, value = qp_by_brute_force(reg * Q - eta * np.eye(n), h, balance)
        seen.add(kind)
        step = solve_qp(VolumeProblem(as_operator(Q), reg, balance), h, eta, eigenvalues[:3])
        if kind == "none":
            assert step is None
            continue
        x, s = step.x, signs(h)
        assert h @ x == pytest.approx((1 + h @ h) / 2)
        assert abs(x.sum()) <= balance + 1e-6
        found = reg * x @ Q @ x - eta * x @ x - 2 * s @ x
        assert found == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert seen == {"norm", "both", "none"}


def test_unfinished_responses_have_norm_one():
    """An h that is too long would win every comparison of objectives."""
    n = 200
    Q = moons_graph(n)[1].toarray() + np.eye(n) / n
    eigenvalues, vectors = np.linalg.eigh(Q)
    start = signs(vectors[:, 1] - vectors[:, 1].mean()) / np.sqrt(n)
    problem = VolumeProblem(as_operator(Q), 1e-2, 1 / n)
    found = sqp(problem, start, eigenvalues[:3], max_iter=1)
    assert found.status is Status.MAX_ITER
    assert np.linalg.norm(found.h) == pytest.approx(1.0, abs=1e-12)
    assert found.residuals["norm"] < 1e-12


def test_an_idle_balance_has_no_multiplier(rng):
    for _ in range(20):
        Q, _ = random_spectrum(rng, 6)
        h = rng.standard_normal(6)
        h /= np.linalg.norm(h)
        problem = VolumeProblem(as_operator(Q), 1.0, abs(h.sum()) + 0.1)
        assert problem.multipliers(h)[1] == 0.0
