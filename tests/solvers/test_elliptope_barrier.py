"""The barrier method: large weights, where eta is not negative, against Clarabel."""

import numpy as np
import pytest
from helpers.cvxpy_references import hard_label_value
from scipy import sparse

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity
from volmar.solvers import (
    Status,
    elliptope_barrier,
    solve_elliptope_barrier,
    solve_elliptope_saddle,
)
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import ElliptopeProblem
from volmar.solvers.elliptope_barrier import _Barrier, _conjugate_gradients, _Hessian

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def matrix(name, n, sigma):
    X, _ = SETS[name](n, random_state=0)
    return gaussian_similarity(X, sigma=sigma, self_loops=True) + np.eye(n) / n


@pytest.mark.parametrize(
    ("name", "n", "reg", "C", "sigma"),
    [
        ("circles", 20, 1e3, 1.0, "mean/10"),  # JMLR section 8.2
        ("gaussians", 20, 1e3, 1.0, "mean/10"),
        ("moons", 24, 100.0, 1e4, "mean/4"),  # AISTATS section 5
        ("gaussians", 16, 1e3, 1.0, "mean"),
        ("circles", 14, 100.0, 0.27, "mean"),
        ("moons", 20, 20.0, 0.3, "mean/4"),
        ("moons", 12, 2.0, 1.0, "mean"),
    ],
)
def test_large_weights_against_clarabel(name, n, reg, C, sigma):
    Q = matrix(name, n, sigma)
    found = solve_elliptope_barrier(Q, reg=reg, C=C)
    value, eta = hard_label_value(Q, reg, min(C, 1.0))  # the same problem from 1 on
    assert found.status is Status.CONVERGED
    assert found.is_certified(1e-5)
    assert found.eta > 0
    assert eta > -1e-6
    assert np.linalg.norm(found.a) < 1
    scale = max(1.0, abs(value))
    assert found.lower_bound - 1e-6 * scale <= value <= found.objective + 1e-6 * scale
    M = found.factor @ found.factor.T
    assert found.eta <= np.linalg.eigvalsh(reg * Q * M)[0]
    again = found.check(ElliptopeProblem(Q, reg=reg, C=C))
    assert again.gap <= found.gap * (1 + 1e-6)
    assert again.objective >= found.lower_bound
    # A rest with the wrong trace, or that is indefinite, gives no certificate.
    for factor in (0.5, -1.0):
        assert not np.isfinite(
            ElliptopeProblem(Q, reg=reg, C=C)
            .certificate(
                found.factor,
                found.bound_a,
                found.bound_y,
                found.balance_multipliers,
                factor * found.bound_rest,
            )
            .gap
        )


def test_the_bound_holds_for_every_labelling(rng):
    n, reg = 20, 1e3
    Q = matrix("moons", n, "mean/10")
    found = solve_elliptope_barrier(Q, reg=reg, tol=1e-3)
    for _ in range(50):
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        H = reg * Q * np.outer(y, y)
        low = np.linalg.eigvalsh(H)[0]
        inner = BoxQP(n, 1.0, unit_norm=True).solve(H - low * np.eye(n))
        assert inner.value - low >= found.lower_bound - 1e-9


def test_small_weights_have_the_solution_of_the_low_rank_method():
    Q = matrix("moons", 20, "mean/4")
    one = solve_elliptope_barrier(Q, reg=1.0, tol=1e-6)
    two = solve_elliptope_saddle(Q, reg=1.0, tol=1e-6)
    assert one.is_certified(1e-5)
    assert one.eta < 0
    assert one.objective == pytest.approx(two.objective, rel=2e-6)


def test_a_constant_on_the_diagonal_is_a_constant_of_the_value():
    Q = matrix("circles", 14, "mean/4")
    one = solve_elliptope_barrier(Q, reg=50.0, tol=1e-6)
    two = solve_elliptope_barrier(sparse.csr_matrix(Q + 3 * np.eye(14)), reg=50.0, tol=1e-6)
    assert two.objective == pytest.approx(one.objective - 150, abs=one.gap + two.gap)


def test_derivatives(rng):
    run = _Barrier(matrix("moons", 12, "mean"), 5.0, 0.4, 1e-5, 1000)
    run.epsilon = 0.1
    now, _, _ = run.newton(run.centre(np.eye(12)))
    D = rng.standard_normal((12, 12))
    D = np.triu(D, 1) + np.triu(D, 1).T
    hessian = _Hessian(run.G, now, run.epsilon, run.C)
    step = 1e-3
    ends = [run.centre(now.M + sign * step * D) for sign in (1, -1)]
    slope = (ends[0].merit - ends[1].merit) / (2 * step)
    assert slope == pytest.approx(np.vdot(hessian.gradient, D), rel=2e-3)
    plus, minus = (_Hessian(run.G, end, run.epsilon, run.C).gradient for end in ends)
    np.testing.assert_allclose((plus - minus) / (2 * step), hessian.product(D), atol=1e-3)
    np.testing.assert_allclose(hessian.product(hessian.solve(D)), D, atol=1e-10)
    solved, _ = _conjugate_gradients(hessian.product, D, hessian.diagonal(), 1000)
    assert np.linalg.norm(hessian.product(solved) - D) <= 0.1 * np.linalg.norm(D)


def test_conjugate_gradients_and_factors_agree(monkeypatch):
    Q = matrix("circles", 24, "mean/4")
    direct = solve_elliptope_barrier(Q, reg=100.0)
    monkeypatch.setattr(elliptope_barrier, "ALWAYS_DIRECT", 0)
    monkeypatch.setattr(elliptope_barrier, "DIRECT_UP_TO", 0)
    iterative = solve_elliptope_barrier(Q, reg=100.0)
    assert iterative.is_certified(1e-5)
    assert iterative.objective == pytest.approx(direct.objective, rel=1e-5)


def test_limits_are_reported():
    Q = matrix("moons", 20, "mean/10")
    short = solve_elliptope_barrier(Q, reg=1e3, max_iter=1)
    assert short.status is Status.MAX_ITER
    assert short.lower_bound <= short.objective
    assert np.isfinite(short.gap)
    with pytest.raises(ValueError, match=r"got 501\. Lower reg"):
        solve_elliptope_barrier(np.eye(501))
