"""Approximate volume regularisation: the global minimum, its certificate, the hard case."""

import numpy as np
import pytest
from helpers.few_labels import moons, ring
from helpers.volume_problems import random_spd
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from volmar.graphs import local_scaling_similarity
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume.volume_regularized_classifier import AVRProblem, solve_avr


def lowest_by_restarts(problem, Q, n_starts=15):
    """Objective over the sphere by SLSQP from random starts, in units in which it is about 1."""
    rng, n, m = np.random.default_rng(0), len(Q), np.count_nonzero(problem.y)

    def objective(h):
        return -h @ problem.y / m + problem.reg * h @ Q @ h

    def gradient(h):
        return -problem.y / m + 2 * problem.reg * Q @ h

    t = problem.scale
    unit = t / np.sqrt(m) + problem.reg * t**2 * np.linalg.norm(Q, 2)
    sphere = {"type": "eq", "fun": lambda x: x @ x - 1, "jac": lambda x: 2 * x}
    found = []
    for _ in range(n_starts):
        x = minimize(
            lambda x: objective(t * x) / unit,
            rng.standard_normal(n),
            jac=lambda x: t * gradient(t * x) / unit,
            method="SLSQP",
            constraints=sphere,
            options={"ftol": 1e-14, "maxiter": 300},
        ).x
        found.append(objective(t * x / np.linalg.norm(x)))
    return min(found), unit


@pytest.mark.parametrize("seed", range(20))
def test_the_smallest_root_is_the_global_minimum(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    Q, y = random_spd(rng, n), rng.integers(-1, 2, n).astype(float)
    y[0] = 1.0
    problem = AVRProblem(as_operator(Q), y, 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-1, 1))
    result = solve_avr(problem)
    lowest, unit = lowest_by_restarts(problem, Q)
    assert abs(result.objective - lowest) < 1e-9 * unit
    assert result.check(problem).is_certified(1e-7)
    # Eq. 26 as printed, and that no root is smaller.
    values, vectors = np.linalg.eigh(Q)
    d, m = vectors.T @ y, np.count_nonzero(y)

    def eq26(eta):
        return np.sum(d**2 / (problem.reg * values - eta) ** 2) / (4 * m**2) - problem.scale**2

    eta = result.multipliers[0]
    assert abs(eq26(eta)) < 1e-5 * problem.scale**2
    assert eta < problem.reg * values[0]
    far = eta - np.geomspace(1e-3, 1e3, 50) * (abs(eta) + 1)
    assert all(eq26(one) < 0 for one in far)


@pytest.mark.parametrize("reg", [1e-6, 1e-2, 0.5, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("case", ["dense", "sparse"])
def test_every_operator_is_certified_and_they_agree(case, reg):
    X, _, y = moons(200)
    signed = np.where(y < 0, 0.0, 2.0 * y - 1)
    W = local_scaling_similarity(X, graph="knn").toarray()
    roots = np.sqrt(W.sum(axis=1))
    values, vectors = np.linalg.eigh(W / np.outer(roots, roots))
    # The same spectrum for all: I + I/n - Z Z' with Z of the positive half.
    Z = vectors[:, values > 0] * np.sqrt(values[values > 0])
    Q = (1 + 1 / 200) * np.eye(200) - Z @ Z.T
    Q = (Q + Q.T) / 2
    operator = as_operator(Q if case == "dense" else sparse.csr_matrix(Q))
    problem = AVRProblem(operator, signed, reg, 1.0)
    result = solve_avr(problem).check(problem)
    assert result.is_certified(1e-6)
    assert np.linalg.norm(result.h) == pytest.approx(1.0, abs=1e-12)
    # Stationarity as the paper prints it, with the multiplier that is returned.
    residual = 2 * reg * Q @ result.h - 2 * result.multipliers[0] * result.h - signed / 6
    assert np.linalg.norm(residual) < 1e-6 * max(reg, 1.0)
    dense = solve_avr(AVRProblem(as_operator(Q), signed, reg, 1.0))
    np.testing.assert_allclose(result.h, dense.h, atol=1e-6)


def test_the_certificate_refuses_other_stationary_points():
    """Roots of eq. 26 beyond the pole are stationary; their gap must cover the true distance."""
    rng = np.random.default_rng(3)
    Q, y = random_spd(rng, 6), np.array([1.0, -1, 1, 0, 0, 0])
    problem = AVRProblem(as_operator(Q), y, 1.0, 1.0)
    best = solve_avr(problem)
    values = np.linalg.eigvalsh(Q)
    assert problem.certificate(best.h, values[0]).gap < 1e-12
    for start in rng.standard_normal((30, 6)):
        h = start / np.linalg.norm(start)
        certificate = problem.certificate(h, values[0])
        assert certificate.gap >= problem.objective(h) - best.objective
        assert certificate.residuals["norm"] < 1e-12
    worst = -np.linalg.eigh(Q)[1][:, -1]
    assert problem.certificate(worst, values[0]).gap > 1.0


def test_scale_and_regulariser_enter_by_their_product_alone():
    rng = np.random.default_rng(4)
    Q, y = random_spd(rng, 12), np.r_[1.0, -1, 1, -1, 1, np.zeros(7)]
    one = solve_avr(AVRProblem(as_operator(Q), y, 0.3, 2.0))
    two = solve_avr(AVRProblem(as_operator(Q), y, 0.3 * 20, 0.1))
    np.testing.assert_allclose(one.h / 2.0, two.h / 0.1, atol=1e-9)
    # A multiple of the identity has no effect.
    three = solve_avr(AVRProblem(as_operator(Q, shift=5.0), y, 0.3, 2.0))
    np.testing.assert_allclose(one.h, three.h, atol=1e-9)
    assert three.objective == pytest.approx(one.objective + 0.3 * 5.0 * 4.0)


@given(seed=st.integers(0, 10_000), log_reg=st.floats(-4, 4))
@settings(max_examples=40, deadline=None)
def test_certificates_on_random_graphs(seed, log_reg):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 30))
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.4)
    W = W + W.T + np.eye(n) * 1e-3
    y = np.zeros(n)
    y[0], y[1] = 1.0, -1.0
    y[2:] = rng.integers(-1, 2, n - 2)
    roots = np.sqrt(W.sum(axis=1))
    Q = (1 + 1 / n) * np.eye(n) - W / np.outer(roots, roots)
    result = solve_avr(AVRProblem(as_operator((Q + Q.T) / 2), y, 10**log_reg, 1.0))
    assert max(result.residuals.values()) < 1e-6
    assert result.gap < 1e-6 * max(1.0, abs(result.objective))


@pytest.mark.parametrize("reg", [0.5, 1.0, 2.0, 3.0, 30.0, 1e4])
def test_hard_case_on_a_ring(reg):
    """Balanced labels are orthogonal to the constant vector: eq. 26 has no root below the pole."""
    n, t = 8, 1 / np.sqrt(2)
    y = np.zeros(n)
    y[0], y[4] = 1.0, -1.0
    problem = AVRProblem(as_operator(ring(n)), y, reg, t)
    result = solve_avr(problem)
    lowest, unit = lowest_by_restarts(problem, ring(n))
    assert abs(result.objective - lowest) < 1e-9 * unit
    values, vectors = np.linalg.eigh(ring(n))
    d = (vectors.T @ y)[1:] / (reg * (values[1:] - values[0]))
    is_hard = np.sum(d**2) / 16 < t**2
    assert is_hard == (reg >= 2)  # both kinds are among the cases
    assert result.status is (Status.DEGENERATE if is_hard else Status.CONVERGED)
    assert max(result.residuals.values()) < 1e-8
    assert result.gap < 1e-8 * max(1.0, abs(result.objective))
    if is_hard:
        assert result.multipliers[0] == pytest.approx(reg * values[0])
        mirrored = result.h - 2 * result.h.mean()
        assert problem.objective(mirrored) == pytest.approx(result.objective)
        assert result.undecided.all()


@pytest.mark.parametrize("lean", [1e-4, 1e-7, 1e-9, 1e-11])
@pytest.mark.parametrize("reg", [1.0, 100.0])
def test_labels_that_hardly_lean_still_decide(lean, reg):
    rng = np.random.default_rng(5)
    n = 10
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    v = rng.standard_normal(n)
    v -= y * (v @ y) / n
    v = v / np.linalg.norm(v) + lean * y / np.sqrt(n)
    basis = np.linalg.qr(np.column_stack([v, rng.standard_normal((n, n - 1))]))[0]
    basis[:, 0] *= np.sign(basis[:, 0] @ v)
    Q = (basis * np.linspace(0.1, 2.0, n)) @ basis.T
    problem = AVRProblem(as_operator((Q + Q.T) / 2), y, reg, 1.0)
    result = solve_avr(problem)
    assert result.status is Status.CONVERGED
    assert max(result.residuals.values()) < 1e-6
    assert result.gap < 1e-6 * max(1.0, abs(result.objective))
    assert result.h @ basis[:, 0] > 0.5


def test_hard_case_with_several_lowest_eigenvectors():
    """Two rings: one has all labels, in equal numbers, and the other has none."""
    Q = np.kron(np.eye(2), ring(8))
    y = np.zeros(16)
    y[0], y[4] = 1.0, -1.0
    for matrix in (Q, sparse.csr_matrix(Q)):
        problem = AVRProblem(as_operator(matrix), y, 20.0, 1.0)
        result = solve_avr(problem)
        assert result.status is Status.DEGENERATE
        assert max(result.residuals.values()) < 1e-8
        lowest, unit = lowest_by_restarts(problem, Q, 10)
        assert abs(result.objective - lowest) < 1e-8 * unit


def test_identity_and_eigenvector_labels():
    y = np.array([1.0, -1, 0, 0])
    same = solve_avr(AVRProblem(as_operator(np.eye(4)), y, 3.0, 2.0))
    np.testing.assert_allclose(same.h, y * np.sqrt(2.0), atol=1e-12)
    Q = np.diag([1.0, 2, 3, 4])
    for j in range(4):
        result = solve_avr(AVRProblem(as_operator(Q), np.eye(4)[j], 0.1, 1.0))
        np.testing.assert_allclose(result.h, np.eye(4)[j], atol=1e-9)
