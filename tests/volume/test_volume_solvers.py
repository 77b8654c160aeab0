"""Soft-label maximum volume: every formula against brute force or an independent solver."""

import dataclasses
import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity, laplacian, local_scaling_similarity
from volmar.operators import as_operator
from volmar.solvers import Status
from volmar.volume import VolumeProblem
from volmar.volume.alternation import alternate, minimise_given_labels
from volmar.volume.problem import signs
from volmar.volume.refinement import FirstStep, refine
from volmar.volume.sqp import solve_qp, sqp
from volmar.volume.starts import candidates, is_tied, n_pairs_needed

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def random_spd(rng, n, floor=0.05):
    A = rng.standard_normal((n, n))
    return A @ A.T / n + floor * np.eye(n)


def laplacian_of(name, n, seed=0, sigma="mean/10"):
    X, _ = SETS[name](n, random_state=seed)
    return laplacian(gaussian_similarity(X, sigma=sigma)) + np.eye(n) / n


def start_of(Q):
    v2 = np.linalg.eigh(Q)[1][:, 1]
    return signs(v2 - v2.mean()) / np.sqrt(len(Q))


def dense_case(name, n):
    Q = laplacian_of(name, n)
    return Q, as_operator(Q)


def sparse_case(name, n):
    X, _ = SETS[name](n, random_state=1)
    L = laplacian(local_scaling_similarity(X, n_neighbors=6, graph="knn"))
    Q = sparse.csr_matrix(L + sparse.identity(n) / n)
    return Q.toarray(), as_operator(Q)


def low_rank_case(name, n):
    X, _ = SETS[name](n, random_state=2)
    W = gaussian_similarity(X, sigma="mean/4")
    values, vectors = np.linalg.eigh(W / np.sqrt(np.outer(W.sum(0), W.sum(0))))
    Z = vectors[:, -12:] * np.sqrt(np.maximum(values[-12:], 0))
    Q = (1.0 + 1.0 / n) * np.eye(n) - Z @ Z.T
    return Q, as_operator(Q)


CASES = {"dense": dense_case, "sparse": sparse_case, "low-rank": low_rank_case}


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


@given(
    seed=st.integers(0, 10_000),
    log_reg=st.floats(-2, 4),
    balance=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
)
@settings(max_examples=25, deadline=None)
def test_responses_given_labels_are_the_global_minimum(seed, log_reg, balance):
    rng = np.random.default_rng(seed)
    n, reg = int(rng.integers(2, 7)), 10**log_reg
    Q = random_spd(rng, n)
    y = signs(rng.standard_normal(n))
    problem = VolumeProblem(as_operator(Q), reg, balance)
    best = minimise_given_labels(problem, y, np.linalg.eigvalsh(Q))
    assert abs(np.linalg.norm(best.h) - 1) < 1e-8
    assert abs(best.h.sum()) <= balance + 1e-8

    def value(h):
        return -2 * y @ h + reg * h @ Q @ h

    for _ in range(8):
        start = rng.standard_normal(n)
        start -= start.mean()
        other = minimize(
            value,
            start / np.linalg.norm(start),
            jac=lambda h: -2 * y + 2 * reg * Q @ h,
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda h: h @ h - 1, "jac": lambda h: 2 * h},
                {"type": "ineq", "fun": lambda h: balance - h.sum()},
                {"type": "ineq", "fun": lambda h: balance + h.sum()},
            ],
        ).x
        if abs(other @ other - 1) < 1e-8 and abs(other.sum()) <= balance + 1e-8:
            assert value(best.h) <= value(other) + 1e-6 * max(1, abs(value(other)))


def test_hard_case_is_filled_up_with_the_eigenvector():
    """Labels orthogonal to the lowest eigenvector: the rest of the norm lies along it."""
    Q = np.diag([1.0, 2.0, 2.0, 3.0])
    problem = VolumeProblem(as_operator(Q), 100.0, 10.0)
    y = np.array([0.0, 1.0, -1.0, 1.0])  # no label for the first: as orthogonal as can be
    best = minimise_given_labels(problem, y, np.diag(Q))
    assert np.linalg.norm(best.h) == pytest.approx(1.0, abs=1e-9)
    assert best.eta == pytest.approx(100.0, rel=1e-6)
    assert abs(best.h[0]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("reg", [1e-2, 1.0, 30.0, 1e4])
def test_alternation_never_rises_and_ends_stationary(reg, rng):
    Q = laplacian_of("moons", 80)
    problem = VolumeProblem(as_operator(Q), reg, 1 / 80)
    for _ in range(5):
        found = alternate(problem, signs(rng.standard_normal(80)), np.linalg.eigvalsh(Q)[:3])
        assert found.status is Status.CONVERGED
        assert np.all(np.diff(found.history) <= 1e-12 * abs(found.objective))
        assert max(found.residuals.values()) < 1e-8


def test_every_partition_is_a_local_minimum_at_the_papers_reg(rng):
    """The opposite of the papers' stability theorem (notes, section 6), by enumeration."""
    Q = random_spd(rng, 6)
    problem = VolumeProblem(as_operator(Q), 1e-2, np.sqrt(6.0))
    for tail in itertools.product([-1.0, 1.0], repeat=5):
        y = np.array([1.0, *tail])
        found = alternate(problem, y, np.linalg.eigvalsh(Q)[:3])
        np.testing.assert_array_equal(signs(found.h), y)
        # Reduced Hessian: reg Q - eta I is positive definite outright.
        assert found.multiplier < 1e-2 * np.linalg.eigvalsh(Q)[0]


# ------------------------------------------------------------------ limits of section 4


def limit(Q, balance, reg, rng):
    problem = VolumeProblem(as_operator(Q), reg, balance)
    y = signs(rng.standard_normal(len(Q)))
    found = alternate(problem, y, np.linalg.eigvalsh(Q)[:3])
    assert found.status is Status.CONVERGED
    return found


@pytest.fixture
def moons_kernel():
    X, _ = make_two_moons(120, random_state=0)
    return X, gaussian_similarity(X, sigma="mean/4")


def one_minus_cosine(h, v):
    return 1 - abs(h @ v) / np.linalg.norm(v)


def test_limit_is_unnormalised_spectral_clustering(moons_kernel, rng):
    _, W = moons_kernel
    Q = laplacian(W, kind="unnormalized") + 0.1 * np.eye(120)
    found = limit(Q, 0.0, 1e6, rng)
    values, vectors = np.linalg.eigh(Q)
    assert one_minus_cosine(found.h, vectors[:, 1]) < 1e-6
    assert found.objective / 1e6 == pytest.approx(values[1], rel=1e-4)
    # Where Algorithm 1's break test would hand back the start, the right test goes on.
    start = signs(vectors[:, 1] - vectors[:, 1].mean()) / np.sqrt(120)
    steps = sqp(VolumeProblem(as_operator(Q), 1e6, 0.0), start, values[:3])
    assert steps.status is Status.CONVERGED
    assert steps.multiplier > 1e6 * values[0]
    assert one_minus_cosine(steps.h, vectors[:, 1]) < 1e-6


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "kernel"])
def test_limit_is_relaxed_k_means(moons_kernel, rng, plain):
    X, W = moons_kernel
    C = np.eye(120) - 1 / 120
    K = C @ (X @ X.T if plain else W) @ C
    values, vectors = np.linalg.eigh(K)
    found = limit(1.1 * values[-1] * np.eye(120) - K, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(found.h, vectors[:, -1]) < 1e-6  # v1, not v2 as eq. 9 would say


def test_limit_is_smic(moons_kernel, rng):
    _, W = moons_kernel
    K2 = W @ W
    values, vectors = np.linalg.eigh(K2)
    Q = 1.1 * values[-1] * np.eye(120) - K2
    first = limit(Q, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(first.h, vectors[:, -1]) < 1e-6
    # h orthogonal to the first (eq. 18): a large multiple of its projector keeps h away.
    away = 1e3 * values[-1] * np.outer(first.h, first.h)
    second = limit(Q + away, np.sqrt(120.0), 1e6, rng)
    assert one_minus_cosine(second.h, vectors[:, -2]) < 1e-6


# ------------------------------------------------------------------ the default mode


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("balance", [0.0, 1 / 40, 3.0, 100.0])
def test_first_step_is_the_papers(case, balance):
    Q, operator = CASES[case]("moons", 40)
    h0 = start_of(Q)
    step = solve_qp(VolumeProblem(operator, 1e-2, balance), h0, 0.0, np.linalg.eigvalsh(Q)[:3])
    field = FirstStep(operator, balance)(h0 * np.sqrt(40))
    np.testing.assert_allclose(field.x, step.x, rtol=1e-6, atol=1e-8)
    assert field.roughness == pytest.approx(step.x @ Q @ step.x, rel=1e-6)
    assert field.residual(operator) < 1e-7


@given(seed=st.integers(0, 10_000), balance=st.sampled_from([0.0, 0.1, 2.0, 50.0]))
@settings(max_examples=40, deadline=None)
def test_refinement_never_gets_rougher(seed, balance):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 40))
    Q = random_spd(rng, n, floor=0.01)
    y = signs(rng.standard_normal(n))
    if abs(y.sum()) == n:
        y[0] = -y[0]
    step = FirstStep(as_operator(Q), balance)
    refined = refine(step, y, max_iter=50)
    assert np.all(np.diff(refined.roughness) < 0)
    assert refined.settled
    # The end is a fixed point of the plain step, up to the share that counts as settled.
    again = FirstStep(as_operator(Q), balance)(refined.y)
    assert again.roughness <= refined.roughness[-1] * (1 + 1e-9)
    if balance == 0.0:
        inverse = np.linalg.inv(Q)
        ones = inverse.sum(axis=1)
        K = inverse - np.outer(ones, ones) / ones.sum()
        assert again.roughness == pytest.approx(n / (refined.y @ K @ refined.y), rel=1e-6)


def test_refinement_reaches_a_fixed_point_of_the_plain_step():
    X, _ = make_two_moons(400, noise=0.12, random_state=3)
    W = local_scaling_similarity(X, n_neighbors=8, graph="knn")
    Q = laplacian(W).toarray() + np.eye(400) / 400
    operator = as_operator(Q)
    refined = refine(FirstStep(operator, 1 / 400), start_of(Q) * 20)
    plain = signs(FirstStep(operator, 1 / 400)(refined.y).x)
    assert np.mean(plain != refined.y) <= 2e-3


def test_one_step_leaves_the_papers_labels():
    Q = laplacian_of("gaussians", 100)
    step = FirstStep(as_operator(Q), 1 / 100)
    y = start_of(Q) * 10
    one = refine(step, y, max_iter=1)
    np.testing.assert_array_equal(one.y, signs(FirstStep(as_operator(Q), 1 / 100)(y).x))
    assert len(one.roughness) == 1


# ------------------------------------------------------------------ starts


def test_candidates_follow_the_papers_rule():
    values = np.concatenate([[0.019, 0.02], 0.02 + 1e-5 * np.arange(1, 12)])
    Q = as_operator(np.diag(values))
    pairs = Q.smallest_eigenpairs(n_pairs_needed(values.size, None))
    found = candidates(pairs)
    np.testing.assert_allclose(found.values, values[1:11])
    assert found.degenerate is False
    assert candidates(pairs, n_candidates=3).values.size == 3
    far = as_operator(np.diag([0.01, 0.02, 0.5, 0.6])).smallest_eigenpairs(4)
    assert candidates(far).values.size == 1


def test_the_trivial_vector_comes_first_in_a_graph_of_two_parts():
    block = np.ones((5, 5))
    W = np.block([[block, np.zeros((5, 3))], [np.zeros((3, 5)), np.ones((3, 3))]])
    operator = as_operator(laplacian(W), shift=1 / 8)
    found = candidates(operator.smallest_eigenpairs(3), trivial=np.sqrt(W.sum(0)), n_candidates=1)
    assert len(set(found.labels(0)[:5])) == len(set(found.labels(0)[5:])) == 1
    assert found.labels(0)[0] != found.labels(0)[-1]
    assert not found.degenerate


def test_ties_are_seen():
    assert is_tied(np.array([0.1, 0.2, 0.2 + 1e-6]))
    assert not is_tied(np.array([0.1, 0.2, 0.21]))
    square = np.array([[0.0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]])
    pairs = as_operator(laplacian(square), shift=0.25).smallest_eigenpairs(3)
    assert candidates(pairs, n_candidates=1).degenerate


@pytest.mark.parametrize("solve", ["sqp", "first step"])
def test_a_start_with_all_rows_on_one_side_is_refused(solve):
    n = 6
    problem = VolumeProblem(as_operator(np.eye(n)), 1e-2, 1 / n)
    attempts = {
        "sqp": lambda: sqp(problem, np.ones(n) / np.sqrt(n), np.ones(3)),
        "first step": lambda: FirstStep(problem.operator, problem.balance)(np.ones(n)),
    }
    with pytest.raises(ValueError, match="does not tell the rows apart"):
        attempts[solve]()


def test_the_aistats_start_moves_fewer_labels():
    """eta0 = -0.001 smooths with a shift of 0.1 instead of 1/n (notes, 0.2)."""
    n = 600
    moved = np.zeros(2, dtype=int)
    for seed in range(5):
        X, _ = make_two_moons(n, noise=0.08, random_state=seed)
        L = laplacian(local_scaling_similarity(X, n_neighbors=10, graph="knn")).toarray()
        h0 = start_of(L)
        for j, (Q, eta0, stopping) in enumerate(
            [(L + np.eye(n) / n, 0.0, "norms"), (L, -1e-3, "squares")]
        ):
            problem = VolumeProblem(as_operator(Q), 1e-2, 1e-7)
            values = np.linalg.eigvalsh(Q)[:3]
            found = sqp(problem, h0, values, eta0=eta0, stopping=stopping)
            assert found.status is Status.CONVERGED
            moved[j] += np.sum(signs(found.h) != signs(h0))
    assert moved[1] < moved[0] / 2
