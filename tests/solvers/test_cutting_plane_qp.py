"""The cutting-plane QP: certificates, closed forms, an independent solver, bad input."""

from __future__ import annotations

import dataclasses
import functools
import pickle

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from volmar.solvers import Status, cutting_plane_qp, solve_cutting_plane_qp
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult, WorkingSet

FORMS = [("adaptive", "absolute"), ("adaptive", "relative"), ("fixed", "absolute")]
KINDS = ["plain", "duplicated", "near-duplicated", "low rank", "blind to t", "zero"]


def cuts_of(kind, n_cuts, rng):
    """A, s, m of random hinge cuts on centred data; the first cut is c = 1."""
    n = int(rng.integers(max(n_cuts, 6), 120))
    d = 1 + int(rng.integers(2)) if kind == "low rank" else int(rng.integers(2, 30))
    X = rng.normal(size=(n, d)) * rng.choice([0.3, 1.0, 2.0], size=d)
    X -= X.mean(axis=0)
    y = np.where(X @ rng.normal(size=d) + 0.5 * rng.normal() > 0, 1.0, -1.0)
    c = (rng.random((n_cuts, n)) < rng.random((n_cuts, 1))).astype(float)
    c[0] = 1.0
    if kind == "duplicated":
        c[n_cuts // 2 :] = c[: n_cuts - n_cuts // 2]
    if kind == "near-duplicated":
        for k in range(1, n_cuts):
            c[k] = c[k - 1]
            c[k, rng.integers(n)] = 0.0
    A, s, m = (c * y) @ X / n, (c * y).mean(axis=1), c.mean(axis=1)
    if kind == "blind to t":
        s = np.zeros_like(s)
    if kind == "zero":
        A = np.zeros_like(A)
    return A, s, m


def primal_value(A, s, m, C, threshold, w, rho, t):
    """Objective of (w, rho, t) with the smallest feasible slack."""
    xi = max(0.0, (rho * m - A @ w - t * s).max())
    return 0.5 * w @ w + C * xi - (rho if threshold == "adaptive" else 0.0)


def certificate(A, s, m, C, tau, threshold, balance, result):
    """Largest relative violation of feasibility and of primal = dual, from A alone."""
    lam, rho, xi, t = result.weights, result.rho, result.xi, result.t
    w = A.T @ lam
    adaptive, relative = threshold == "adaptive", (threshold, balance) == ("adaptive", "relative")
    box = tau * rho if relative else tau
    # Values below the rounding error of s @ lam count as zero; a box of 1e3 would magnify them.
    energy, pull = 0.5 * w @ w, max(abs(s @ lam) - 1e-15 * lam.sum(), 0.0)
    unit = (A**2).sum(axis=1).max() * (1 / m.max() if adaptive else min(C, 1.0)) ** 2
    size = energy + C * xi + rho + box * pull + (unit or tau * np.abs(s).max() or 1.0)
    primal = energy + C * xi - (rho if adaptive else 0.0)
    dual = -energy + (0.0 if adaptive else m @ lam) - (0.0 if relative else tau * pull)
    reach = m @ lam - (tau * pull if relative else 0.0)
    violations = [
        (rho * m - A @ w - t * s - xi).max() / size,
        (abs(t) - box) / size,
        -xi / size,
        -rho / size,
        -lam.min() / C,
        lam.sum() / C - 1.0,
        1.0 - reach if adaptive else 0.0,
        (primal - dual) / size,
        abs(primal - result.objective) / size,
        abs(dual - result.lower_bound) / size,
    ]
    return max(violations)


@functools.cache
def reference(n_cuts, threshold, balance):
    """The primal as a parametrised cvxpy problem, compiled once for each shape."""
    A, s, m = cvxpy.Parameter((n_cuts, n_cuts)), cvxpy.Parameter(n_cuts), cvxpy.Parameter(n_cuts)
    C, tau = cvxpy.Parameter(nonneg=True), cvxpy.Parameter(nonneg=True)
    w, xi, t = cvxpy.Variable(n_cuts), cvxpy.Variable(nonneg=True), cvxpy.Variable()
    rho = cvxpy.Variable(nonneg=True)
    half = tau * rho if balance == "relative" else tau
    constraints = [m * rho - A @ w - s * t <= xi, t <= half, -t <= half]
    objective = 0.5 * cvxpy.sum_squares(w) + C * xi
    if threshold == "adaptive":
        objective -= rho
    else:
        constraints.append(rho == 1)
    return cvxpy.Problem(cvxpy.Minimize(objective), constraints), (A, s, m, C, tau), (rho, xi, t)


def is_unique(s, m, C, tau, threshold, balance, result, tol=1e-5):
    """Return whether strictly active constraints determine (rho, xi, t); w is unique."""
    lam = result.weights
    pull = s @ lam
    rows = [np.array([m[k], -1.0, -s[k]]) for k in np.flatnonzero(lam > tol)]
    if C - lam.sum() > tol:
        rows.append(np.array([0.0, 1.0, 0.0]))
    relative = (threshold, balance) == ("adaptive", "relative")
    reach = m @ lam - (tau * abs(pull) if relative else 0.0)
    if threshold == "fixed" or reach - 1.0 > tol:
        rows.append(np.array([1.0, 0.0, 0.0]))
    if tau == 0:
        rows.append(np.array([0.0, 0.0, 1.0]))
    elif abs(pull) > tol:
        rows.append(np.array([-tau * np.sign(pull) if relative else 0.0, 0.0, 1.0]))
    return len(rows) >= 3 and np.linalg.svd(np.array(rows), compute_uv=False)[2] > 1e-3


@pytest.mark.parametrize(("threshold", "balance"), FORMS)
def test_agrees_with_an_independent_solver(threshold, balance):
    rng = np.random.default_rng(20)
    agreed = compared = 0
    for trial in range(200):
        kind = KINDS[trial % len(KINDS)]
        n_cuts = int(rng.choice([1, 2, 4, 9, 20]))
        A, s, m = cuts_of(kind, n_cuts, rng)
        C, tau = float(rng.choice([1.0, 1.2, 2.0, 10.0, 1e3])), float(rng.choice([0.0, 0.05, 0.3]))
        options = {"C": C, "tau": tau, "threshold": threshold, "balance": balance}
        result = solve_cutting_plane_qp(A @ A.T, s, m, **options)
        if result.status is Status.UNBOUNDED:
            continue
        problem, parameters, variables = reference(n_cuts, threshold, balance)
        # Clarabel gets a square factor of the same Gram matrix, at its own best scale.
        q = np.linalg.qr(A.T, mode="r").T if n_cuts <= A.shape[1] else A
        square = np.zeros((n_cuts, n_cuts))
        square[:, : min(q.shape[1], n_cuts)] = q[:, :n_cuts]
        for parameter, value in zip(parameters, (square, s, m, C, tau), strict=True):
            parameter.value = value
        try:
            problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        except cvxpy.SolverError:  # a few of those with C = 1e3; counted below
            continue
        agreed += 1
        scale = 1e-2 + abs(problem.value)
        assert abs(result.objective - problem.value) <= 1e-7 * scale, (trial, options)
        if is_unique(s, m, C, tau, threshold, balance, result):
            compared += 1
            ours = np.array([result.rho, result.xi, result.t])
            theirs = np.array([variable.value.item() for variable in variables])
            np.testing.assert_allclose(ours, theirs, atol=1e-7 * (1 + np.abs(ours).max()))
    assert agreed >= 160
    assert compared >= 120


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(KINDS),
    n_cuts=st.integers(1, 60),
    form=st.sampled_from(FORMS),
    C=st.sampled_from([1.0, 1.2, 2.0, 10.0, 1e4]),
    tau=st.sampled_from([0.0, 0.05, 0.3, 5.0, 1e3]),
    exponent=st.integers(-8, 8),
)
def test_certificate_on_any_working_set(seed, kind, n_cuts, form, C, tau, exponent):
    A, s, m = cuts_of(kind, n_cuts, np.random.default_rng(seed))
    A = A * 10.0 ** (exponent / 2)
    threshold, balance = form
    result = solve_cutting_plane_qp(
        A @ A.T, s, m, C=C, tau=tau, threshold=threshold, balance=balance
    )
    if result.status is Status.UNBOUNDED:
        assert balance == "relative"
        return
    assert result.status is Status.CONVERGED, result.reason
    problem = WorkingSet(A @ A.T, s, m, C, tau, threshold, balance)
    assert result.check(problem).is_stationary(1e-8)
    assert result.gap >= 0
    assert certificate(A, s, m, C, tau, threshold, balance, result) <= 1e-6


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    form=st.sampled_from(FORMS),
    C=st.sampled_from([1.0, 2.0, 10.0]),
)
def test_no_feasible_point_is_below_the_lower_bound(seed, form, C):
    rng = np.random.default_rng(seed)
    A, s, m = cuts_of("plain", int(rng.integers(1, 12)), rng)
    threshold, balance = form
    tau = 0.2
    result = solve_cutting_plane_qp(
        A @ A.T, s, m, C=C, tau=tau, threshold=threshold, balance=balance
    )
    if not result.status.ok:
        return
    best = A.T @ result.weights
    for spread in (1e-3, 0.1, 1.0):
        w = best + spread * np.linalg.norm(best) * rng.normal(size=best.size)
        rho = abs(result.rho * (1 + spread * rng.normal())) if threshold == "adaptive" else 1.0
        box = tau * rho if balance == "relative" else tau
        value = primal_value(A, s, m, C, threshold, w, rho, rng.uniform(-box, box))
        assert value >= result.lower_bound - 1e-12 * (1 + abs(value))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), form=st.sampled_from(FORMS))
def test_one_more_cut_never_lowers_the_optimum(seed, form):
    rng = np.random.default_rng(seed)
    A, s, m = cuts_of("plain", 10, rng)
    G = A @ A.T
    options = {"C": 3.0, "tau": 0.05, "threshold": form[0], "balance": form[1]}
    values = [
        solve_cutting_plane_qp(G[:k, :k], s[:k], m[:k], **options).objective for k in range(1, 11)
    ]
    assert np.all(np.diff(values) >= -1e-9 * (1 + np.abs(values[1:])))


@pytest.mark.parametrize("s", [0.5, -0.5])
def test_one_cut_has_the_closed_form(s):
    # w = l a with m l = 1 (absolute) or (1 - tau |s|) l = 1 (relative), and xi = 0.
    G, tau = np.array([[4.0]]), 0.1
    one = np.array([1.0])
    result = solve_cutting_plane_qp(G, np.array([s]), one, C=2.0, tau=tau)
    assert result.weights == pytest.approx([1.0])
    assert (result.rho, result.xi, result.t) == pytest.approx((4.05, 0.0, np.sign(s) * tau))
    assert result.objective == pytest.approx(-2.05)

    result = solve_cutting_plane_qp(G, np.array([s]), one, C=2.0, tau=tau, balance="relative")
    assert result.weights == pytest.approx([1 / 0.95])
    rho = 4.0 / 0.95**2
    assert (result.rho, result.xi, result.t) == pytest.approx((rho, 0.0, np.sign(s) * tau * rho))

    # Fixed: w = l a with 4 l + tau |s| = 1.
    result = solve_cutting_plane_qp(G, np.array([s]), one, C=2.0, tau=tau, threshold="fixed")
    assert result.weights == pytest.approx([0.95 / 4])
    assert (result.rho, result.xi, result.t) == pytest.approx((1.0, 0.0, np.sign(s) * tau))


def test_the_smallest_margin_is_chosen_where_it_is_not_unique():
    # At C = 1 every rho >= |a|^2 with xi = rho - |a|^2 is optimal.
    result = solve_cutting_plane_qp(np.array([[9.0]]), np.zeros(1), np.ones(1), C=1.0)
    assert (result.rho, result.xi) == pytest.approx((9.0, 0.0), abs=1e-6)


def test_without_any_signal_the_margin_is_zero():
    G, s, m = np.zeros((3, 3)), np.array([0.2, -0.1, 0.0]), np.array([1.0, 0.5, 0.3])
    result = solve_cutting_plane_qp(G, s, m, C=2.0)
    assert result.status.ok
    assert (result.rho, result.xi, result.t, result.objective) == pytest.approx((0, 0, 0, 0))
    # Fixed: only slack can satisfy the cut with the largest m.
    result = solve_cutting_plane_qp(G, s, m, C=2.0, threshold="fixed")
    assert result.xi == pytest.approx(1.0)
    assert result.objective == pytest.approx(2.0)


@pytest.mark.parametrize(("threshold", "balance"), FORMS)
def test_opposite_cuts_leave_no_direction(threshold, balance):
    a = np.array([[1.0, 2.0], [-1.0, -2.0]])
    result = solve_cutting_plane_qp(
        a @ a.T, np.zeros(2), np.ones(2), C=5.0, threshold=threshold, balance=balance
    )
    assert result.status.ok
    assert np.linalg.norm(a.T @ result.weights) <= 1e-9
    assert result.xi == pytest.approx(1.0 if threshold == "fixed" else 0.0, abs=1e-9)


@pytest.mark.parametrize(("tau", "s"), [(0.0, 0.4), (0.3, 0.0)])
def test_t_is_exactly_zero_without_room_or_effect(tau, s):
    rng = np.random.default_rng(1)
    A = rng.normal(size=(5, 3)) + 1
    for threshold, balance in FORMS:
        result = solve_cutting_plane_qp(
            A @ A.T,
            np.full(5, s),
            np.linspace(1, 0.5, 5),
            C=4.0,
            tau=tau,
            threshold=threshold,
            balance=balance,
        )
        assert result.t == 0.0


@pytest.mark.parametrize(("threshold", "balance"), FORMS)
@pytest.mark.parametrize("factor", [1e-8, 1e8])
def test_scale_of_the_data_carries_through(threshold, balance, factor):
    A, s, m = cuts_of("plain", 8, np.random.default_rng(3))
    G = A @ A.T
    tau = 0.05
    # Adaptive: all values are in units of G. Fixed: weights and C are in units of 1 / G.
    adaptive = threshold == "adaptive"
    grow = factor if adaptive else 1.0
    C_factor = 1.0 if adaptive else 1.0 / factor
    tau_factor = factor if (threshold, balance) == ("adaptive", "absolute") else 1.0
    options = {"threshold": threshold, "balance": balance}
    small = solve_cutting_plane_qp(G, s, m, C=5.0, tau=tau, **options)
    large = solve_cutting_plane_qp(
        factor * G, s, m, C=5.0 * C_factor, tau=tau * tau_factor, **options
    )
    np.testing.assert_allclose(large.weights, small.weights * C_factor, atol=1e-8 * C_factor)
    assert large.rho == pytest.approx(small.rho * grow, rel=1e-7)
    assert large.t == pytest.approx(small.t * grow, rel=1e-7)
    assert large.objective == pytest.approx(small.objective * factor ** (1 if adaptive else -1))


def test_a_repeated_cut_changes_nothing_but_the_weights():
    A, s, m = cuts_of("plain", 6, np.random.default_rng(4))
    twice = [np.concatenate([x, x]) for x in (A, s, m)]
    once = solve_cutting_plane_qp(A @ A.T, s, m, C=4.0, tau=0.1)
    again = solve_cutting_plane_qp(twice[0] @ twice[0].T, twice[1], twice[2], C=4.0, tau=0.1)
    np.testing.assert_allclose(again.weights[:6] + again.weights[6:], once.weights, atol=1e-8)
    assert (again.rho, again.t) == pytest.approx((once.rho, once.t))


def test_a_gram_matrix_in_single_precision_is_accepted_and_its_rounding_reported():
    rng = np.random.default_rng(5)
    A = rng.normal(size=(20, 4)) + 2
    m = np.linspace(1, 0.2, 20)
    G = (A @ A.T).astype(np.float32)
    assert np.linalg.eigvalsh(G.astype(float))[0] < 0
    single = solve_cutting_plane_qp(G, np.zeros(20), m, C=3.0)
    double = solve_cutting_plane_qp(A @ A.T, np.zeros(20), m, C=3.0)
    assert single.status.ok
    assert double.residuals["gram"] <= 1e-13 < single.residuals["gram"] <= 1e-6
    assert single.objective == pytest.approx(double.objective, rel=1e-5)


def test_too_small_a_C_is_unbounded_with_a_remedy():
    result = solve_cutting_plane_qp(np.eye(2), np.zeros(2), np.array([0.5, 0.4]), C=1.0)
    assert result.status is Status.UNBOUNDED
    assert result.objective == -np.inf
    assert result.rho == np.inf
    assert "raise C to at least 2" in result.reason
    assert "tau" not in result.reason
    fixed = solve_cutting_plane_qp(
        np.eye(2), np.zeros(2), np.array([0.5, 0.4]), C=1.0, threshold="fixed"
    )
    assert fixed.status.ok
    without = solve_cutting_plane_qp(np.eye(1), np.zeros(1), np.zeros(1), C=1.0)
    assert "add a cut with m > 0" in without.reason
    relative = solve_cutting_plane_qp(
        np.eye(1), np.ones(1), np.ones(1), C=1.0, tau=0.5, balance="relative"
    )
    assert relative.status is Status.UNBOUNDED
    assert "raise C to at least 2 or lower tau" in relative.reason


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), tau=st.sampled_from([0.1, 1.0, 5.0]))
def test_the_smallest_bounded_C_is_exact(seed, tau):
    rng = np.random.default_rng(seed)
    n_cuts = int(rng.integers(1, 9))
    A = rng.normal(size=(n_cuts, 5))
    m = rng.uniform(0.1, 1, n_cuts)
    s = m * rng.uniform(-1, 1, n_cuts)
    # Maximum of m'l - tau e over the simplex with e >= |s'l|, as a linear programme.
    lp = linprog(
        np.append(-m, tau),
        A_ub=np.array([np.append(s, -1.0), np.append(-s, -1.0)]),
        b_ub=np.zeros(2),
        A_eq=np.append(np.ones(n_cuts), 0.0)[None],
        b_eq=[1.0],
    )
    if lp.fun >= -1e-3:
        return
    needed = -1.0 / lp.fun
    solve = functools.partial(
        solve_cutting_plane_qp, A @ A.T, s, m, tau=tau, balance="relative", threshold="adaptive"
    )
    assert solve(C=needed * (1 - 1e-6)).status is Status.UNBOUNDED
    assert solve(C=needed * (1 + 1e-6)).status is Status.CONVERGED


def test_a_cycling_active_set_is_tried_again_and_total_failure_is_reported(monkeypatch):
    A, s, m = cuts_of("plain", 5, np.random.default_rng(6))
    real = cutting_plane_qp.daqp.solve
    calls = []

    def fails_first(*arguments, **options):
        calls.append(None)
        x, value, flag, info = real(*arguments, **options)
        return x, value, -2 if len(calls) == 1 else flag, info

    monkeypatch.setattr(cutting_plane_qp.daqp, "solve", fails_first)
    result = solve_cutting_plane_qp(A @ A.T, s, m, C=2.0)
    assert result.status.ok
    assert result.ridge == 1e-3

    def fails(*arguments, **options):
        return (*real(*arguments, **options)[:2], -2, {})

    monkeypatch.setattr(cutting_plane_qp.daqp, "solve", fails)
    result = solve_cutting_plane_qp(A @ A.T, s, m, C=2.0)
    assert result.status is Status.FAILED
    assert np.isnan(result.objective)
    assert "rescale" in result.reason


def test_an_inexact_answer_is_never_called_solved(monkeypatch):
    A, s, m = cuts_of("plain", 5, np.random.default_rng(7))
    exact = solve_cutting_plane_qp(A @ A.T, s, m, C=2.0)
    real = cutting_plane_qp.daqp.solve

    def wrong(*arguments, **options):
        x, value, flag, info = real(*arguments, **options)
        return x, value, flag, {"lam": 0.9 * info["lam"] + 0.01}

    monkeypatch.setattr(cutting_plane_qp.daqp, "solve", wrong)
    result = solve_cutting_plane_qp(A @ A.T, s, m, C=2.0)
    assert result.status is Status.FAILED
    assert "residual does not fall below" in result.reason
    assert result.lower_bound <= exact.objective <= result.objective


def test_the_result_survives_pickling_and_knows_its_certificate():
    A, s, m = cuts_of("plain", 5, np.random.default_rng(8))
    result = solve_cutting_plane_qp(A @ A.T, s, m, C=2.0, tau=0.1)
    assert isinstance(result, CuttingPlaneResult)
    assert result.is_certified(1e-9)
    problem = WorkingSet(A @ A.T, s, m, 2.0, 0.1, "adaptive", "absolute")
    assert result.check(problem).is_certified(1e-9)
    assert not dataclasses.replace(result, rho=2 * result.rho).check(problem).is_certified(1e-9)
    assert set(result.residuals) == {
        "primal_feasibility",
        "dual_feasibility",
        "complementarity",
        "duality_gap",
        "gram",
    }
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.weights, result.weights)
    assert again.lower_bound == result.lower_bound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"G": np.eye(3)}, r"got \(3, 3\), \(2,\) and \(2,\)"),
        ({"G": np.zeros((0, 0)), "s": np.zeros(0), "m": np.zeros(0)}, "at least one"),
        ({"s": np.array([np.nan, 0])}, "must be finite, got NaN"),
        ({"G": np.array([[np.inf, 0], [0, 1]])}, "must be finite"),
        ({"G": np.array([[1.0, 2.0], [2.0, 1.0]])}, "^G .*semi-definite"),
        ({"G": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"G": np.array([[0.0, 1.0], [1.0, 0.0]])}, "Gram matrix"),
        ({"C": 0.0}, "^C .*got 0.0"),
        ({"C": np.inf}, "^C .*got inf"),
        ({"tau": -0.1}, r"^tau\b"),
        ({"threshold": "auto"}, "^threshold"),
        ({"balance": "none"}, "^balance"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"G": np.eye(2), "s": np.zeros(2), "m": np.ones(2), "C": 2.0} | change
    G, s, m = (arguments.pop(name) for name in "Gsm")
    with pytest.raises(ValueError, match=message):
        solve_cutting_plane_qp(G, s, m, **arguments)
