"""The elliptope saddle solver: comparison with Clarabel, dual bounds, and rounding of M."""

import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity, local_scaling_similarity
from volmar.solvers import Status, solve_elliptope_saddle
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import (
    ElliptopeProblem,
    _Saddle,
    gap_reference,
    round_as_printed,
    round_centred,
    round_randomly,
    unit_rows,
)

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def similarity(name, n, sigma="mean/4"):
    return gaussian_similarity(SETS[name](n, random_state=0)[0], sigma=sigma)


def printed_program(Q, reg, C, unit_norm, balance, balance_of):
    """Value and eta of JMLR eq. 13 (unit_norm) or eq. 22 as printed, by Clarabel."""
    n = len(Q)
    M = cp.Variable((n, n), PSD=True)
    mu, nu = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    t = cp.Variable()
    eta = cp.Variable() if unit_norm else cp.Constant(0.0)
    column = cp.reshape(1 - mu + nu, (n, 1), order="C")
    corner = cp.reshape(t + eta - 2 * C * cp.sum(mu), (1, 1), order="C")
    top = reg * cp.multiply(Q, M) - eta * np.eye(n)
    constraints = [cp.diag(M) == 1, cp.bmat([[top, column], [column.T, corner]]) >> 0]
    if balance is not None and balance_of == "rows":
        constraints.append(cp.abs(cp.sum(M, axis=1)) <= balance)
    elif balance is not None:
        constraints.append(cp.sum(M) <= n * balance)
    program = cp.Problem(cp.Minimize(t), constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate", at the last digits
        program.solve(solver=cp.CLARABEL)
    return program.value, float(eta.value)


CASES = [
    # name, n, reg, C, unit norm, balance, and whether it bounds rows or their mean
    ("moons", 20, 1e-3, 1.0, True, None, None),
    ("gaussians", 20, 1.0, 1.0, True, None, None),
    ("moons", 20, 2.0, 1.0, True, None, None),
    ("gaussians", 20, 1.0, 1.1 / np.sqrt(20), True, None, None),
    ("gaussians", 20, 1.0, 1.0, True, 1.0, "rows"),
    ("moons", 20, 1.0, 1.0, True, 2.0, "rows"),
    ("gaussians", 30, 1.0, 1.0, True, None, None),
    ("moons", 20, 1.0, 1e-3, False, None, None),
    ("gaussians", 20, 1.0, 1.0, False, None, None),
    ("moons", 20, 1.0, 1000.0, False, None, None),
    ("moons", 20, 1.0, 1.0, False, 1.0, "rows"),
    ("moons", 40, 1.0, 1.0, False, None, None),
    ("gaussians", 20, 1.0, 1.0, True, 1.0, "mean"),
    ("moons", 20, 1e-2, 1.0, True, 1.0, "mean"),
    ("moons", 20, 1.0, 1.0, True, 2.0, "mean"),
    ("circles", 20, 2.0, 1.0, True, 0.5, "mean"),
    ("moons", 20, 1.0, 1.0, False, 1.0, "mean"),
    ("gaussians", 20, 1.0, 0.05, False, 1.0, "mean"),
    ("circles", 20, 1.0, 50.0, False, 1.0, "mean"),
]


@pytest.mark.parametrize(("name", "n", "reg", "C", "unit_norm", "balance", "of"), CASES)
def test_value_agrees_with_clarabel(name, n, reg, C, unit_norm, balance, of):
    Q = similarity(name, n) + (np.eye(n) / n if unit_norm else 0)
    found = solve_elliptope_saddle(
        Q,
        reg=reg,
        C=C,
        unit_norm=unit_norm,
        balance=balance,
        row_balance=of == "rows",
        max_iter=2000,
    )
    value, _ = printed_program(Q, reg, C, unit_norm, balance, of)
    if of == "mean":
        assert found.status is Status.CONVERGED
        assert np.ptp(found.balance_multipliers) == 0
        assert found.balance_multipliers[0] >= 0
    scale = max(1.0, abs(value))
    assert abs(found.objective - value) <= 1e-5 * scale
    assert found.lower_bound <= value + 1e-5 * scale
    assert found.gap <= 1e-4 * scale
    assert found.residuals["balance"] <= 1e-5
    np.testing.assert_allclose(np.linalg.norm(found.factor, axis=1), 1.0)
    if unit_norm:
        assert np.linalg.norm(found.a) == pytest.approx(1.0, abs=1e-8)
        assert found.eta < 0
    else:
        assert found.eta == 0


@pytest.mark.parametrize("unit_norm", [True, False])
def test_no_balance_at_all_is_the_same_of_rows_and_of_their_mean(unit_norm):
    """M is positive semi-definite: 1'M1 <= 0 is M1 = 0."""
    Q = similarity("moons", 20) + np.eye(20) / 20
    settings = {"balance": 0.0, "unit_norm": unit_norm, "max_iter": 3000}
    mean = solve_elliptope_saddle(Q, row_balance=False, **settings)
    rows = solve_elliptope_saddle(Q, row_balance=True, **settings)
    value, _ = printed_program(Q, 1.0, 1.0, unit_norm, 0.0, "rows")
    for found in (mean, rows):
        assert found.status is Status.CONVERGED
        assert found.objective == pytest.approx(value, rel=1e-4)  # Clarabel's last digits
    assert mean.objective == pytest.approx(rows.objective, rel=1e-5)
    # A tiny bound on the mean is nearly M1 = 0: |M1|^2 <= n 1'M1.
    near = solve_elliptope_saddle(Q, **{**settings, "balance": 1e-4}).objective
    assert near == pytest.approx(mean.objective, rel=1e-3)
    assert near <= mean.objective


def test_the_lower_bound_holds_for_every_labelling(rng):
    """Weak duality holds at points of the elliptope that are unrelated to the solution."""
    n = 30
    Q = similarity("moons", n) + np.eye(n) / n
    for balance, of in ((None, "mean"), (2.0, "mean"), (2.0, "rows")):
        found = solve_elliptope_saddle(Q, balance=balance, row_balance=of == "rows", max_iter=150)
        inner = BoxQP(n, 1.0, unit_norm=True)
        for _ in range(50):
            y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
            uneven = abs(y.sum()) if of == "rows" else y.sum() ** 2 / n
            if balance is not None and uneven > balance:
                continue
            assert inner.solve(Q * np.outer(y, y)).value >= found.lower_bound - 1e-9


@pytest.mark.parametrize("C", [0.25, 1.0])
@pytest.mark.parametrize("unit_norm", [True, False])
def test_box_program_is_solved_to_its_slack(rng, C, unit_norm):
    for _ in range(10):
        A = rng.standard_normal((25, 25))
        H = A @ A.T / 25 * 3
        point = BoxQP(25, C, unit_norm=unit_norm).solve(H)
        assert point.slack < 1e-6
        assert np.all(point.a >= 0)
        assert np.all(point.a <= C)
        a = cp.Variable(25)
        shifted = H - point.eta * np.eye(25)
        program = cp.Problem(
            cp.Maximize(2 * cp.sum(a) - cp.quad_form(a, cp.psd_wrap(shifted)) - point.eta),
            [a >= 0, a <= C],
        )
        program.solve(solver=cp.CLARABEL)
        assert point.value == pytest.approx(program.value, rel=1e-6)
        if unit_norm and point.eta < 0:
            assert np.linalg.norm(point.a) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("C", [0.05, 0.5, 50.0])
def test_box_program_of_nearly_singular_matrices(C, monkeypatch):
    """With a wide kernel and warm starts, no solve after the first needs L-BFGS."""
    X, _ = make_two_moons(80, random_state=0)
    H = np.eye(80) - 1 / 80
    K = H @ gaussian_similarity(X, sigma="mean", self_loops=True) @ H
    assert np.linalg.eigvalsh(K)[40] < 1e-8
    box = BoxQP(80, C, unit_norm=False)
    rng = np.random.default_rng(0)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    box.solve(K * np.outer(y, y))
    monkeypatch.setattr(BoxQP, "_by_projection", None)
    for _ in range(5):
        V = np.column_stack([y, 0.2 * rng.standard_normal((80, 2))])
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        matrix = K * (V @ V.T)
        point = box.solve(matrix)
        assert point.slack <= 1e-10 * point.value
        a = cp.Variable(80)
        program = cp.Problem(
            cp.Maximize(2 * cp.sum(a) - cp.quad_form(a, cp.psd_wrap(matrix))), [a >= 0, a <= C]
        )
        program.solve(solver=cp.CLARABEL)
        assert point.value == pytest.approx(program.value, rel=1e-6)


def test_sparse_and_dense_agree():
    X, _ = make_two_moons(120, random_state=0)
    W = local_scaling_similarity(X, n_neighbors=6, graph="knn")
    Q = sparse.csr_matrix(W + sparse.identity(120) / 120)
    one = solve_elliptope_saddle(Q, balance=1.0, tol=1e-5)
    two = solve_elliptope_saddle(Q.toarray(), balance=1.0, tol=1e-5)
    assert one.objective == pytest.approx(two.objective, rel=1e-4)
    assert one.lower_bound <= two.objective * (1 + 1e-9)
    assert two.lower_bound <= one.objective * (1 + 1e-9)


def test_the_large_certificate_is_the_small_one(monkeypatch):
    from volmar.solvers import elliptope as elliptope_problem

    Q = similarity("moons", 60) + np.eye(60) / 60
    small = solve_elliptope_saddle(Q, max_iter=50)
    monkeypatch.setattr(elliptope_problem, "DENSE_UP_TO", 10)
    large = solve_elliptope_saddle(Q, max_iter=50)
    assert large.lower_bound == pytest.approx(small.lower_bound, rel=1e-4)


@pytest.mark.parametrize("unit_norm", [True, False])
@pytest.mark.parametrize(("balance", "row_balance"), [(None, False), (1.0, False), (2.0, True)])
def test_the_problem_itself_certifies_the_result(rng, unit_norm, balance, row_balance):
    Q = similarity("moons", 30) + np.eye(30) / 30
    options = {"unit_norm": unit_norm, "balance": balance, "row_balance": row_balance}
    found = solve_elliptope_saddle(Q, max_iter=400, **options)
    again = found.check(ElliptopeProblem(Q, **options))
    assert again.objective == pytest.approx(found.objective, rel=1e-9)
    assert again.gap == pytest.approx(found.gap, abs=1e-9 * abs(found.objective))
    for name, residual in found.residuals.items():
        assert again.residuals[name] == pytest.approx(residual, abs=1e-8), name
    # The problem detects a dual point that was changed.
    spoilt = replace(found, bound_y=found.bound_y - 0.1)
    assert spoilt.check(ElliptopeProblem(Q, **options)).gap >= found.gap - 1e-9
    elsewhere = replace(found, factor=unit_rows(rng.standard_normal(found.factor.shape)))
    assert elsewhere.check(ElliptopeProblem(Q, **options)).gap > found.gap + 1e-6


def test_a_multiplier_that_is_off_does_not_cost_the_bound(rng):
    Q = gaussian_similarity(rng.standard_normal((60, 5)), sigma="mean/4")
    found = solve_elliptope_saddle(Q, balance=1.0, tol=1e-5)
    assert found.status is Status.CONVERGED
    assert found.balance_multipliers.max() > 1e-5  # the balance binds
    saddle = _Saddle(Q, balance=1.0)
    primal = saddle.measured(found.factor)
    saddle.s_plus += found.balance_multipliers + 1e-3
    bound, _ = saddle.lower_bound(primal, -np.inf, 1e-5)
    kept = saddle.bound(saddle.dual_point(found.factor, primal.point.a, saddle.s_plus))
    assert primal.gap(kept) > 1e-2 * primal.reference
    assert primal.gap(bound) <= 1e-4 * primal.reference


def test_iterations_and_history_are_reported():
    Q = similarity("moons", 20) + np.eye(20) / 20
    found = solve_elliptope_saddle(Q, balance=1.0)
    assert 0 < found.n_iter <= 1000
    assert found.history[-1] == pytest.approx(found.objective, abs=found.gap)
    assert len(solve_elliptope_saddle(Q, balance=1.0, max_iter=10).history) == 1


@pytest.mark.parametrize("unit_norm", [True, False])
@pytest.mark.parametrize("row_balance", [True, False])
def test_the_objective_is_never_below_the_bound(unit_norm, row_balance):
    """An M that slightly violates the balance has a value below that of the best balanced M."""
    n_missed = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 30))
        Q = gaussian_similarity(rng.standard_normal((n, 2)), sigma="mean/4") + np.eye(n) / n
        balance = float(rng.choice([0.0, 0.3, 1.0]))
        found = solve_elliptope_saddle(
            Q,
            unit_norm=unit_norm,
            balance=balance,
            row_balance=row_balance,
            tol=10.0 ** -rng.integers(2, 6),
            max_iter=300,
        )
        assert found.lower_bound <= found.objective
        assert found.gap >= found.objective - found.lower_bound
        n_missed += found.residuals["balance"] > 0
        # The dual point bounds M after correction for its violation of the balance.
        V, s = found.factor, found.balance_multipliers
        G = Q * np.outer(found.bound_a, found.bound_a) - (s[:, None] + s) / 2
        assert np.linalg.eigvalsh(np.diag(found.bound_y) - G)[0] >= -1e-9
        sums = V @ V.sum(axis=0)
        by_rows = row_balance or balance == 0.0
        worst = np.abs(sums).max() if by_rows else max(sums.mean(), 0.0)
        dual = 2 * found.bound_a.sum() - found.bound_y.sum() - worst * np.abs(s).sum()
        assert dual <= found.objective + 1e-9 * abs(found.objective)
    assert n_missed > 3


@pytest.mark.parametrize("unit_norm", [True, False])
def test_the_room_beside_one_cluster_holds_for_every_matrix(unit_norm, rng):
    """An M whose centred part is larger has a larger gap."""
    X, _ = make_two_circles(30, random_state=0)
    Q = gaussian_similarity(X, sigma="mean/4", self_loops=True) + np.eye(30) / 30
    problem = ElliptopeProblem(Q, reg=0.3, C=1.0, unit_norm=unit_norm)
    room = problem.room_beside_one(1e-3)
    assert 0 < room < 0.5
    inner = BoxQP(30, 1.0, unit_norm=unit_norm)
    one = inner.solve(0.3 * Q)
    best = solve_elliptope_saddle(Q, reg=0.3, unit_norm=unit_norm, tol=1e-6)
    assert best.objective == pytest.approx(one.value, rel=1e-5)  # M = 11' is optimal
    reference = gap_reference(one.value, problem.change(one.a))
    weighs = one.a > 1e-9 * one.a.max()
    for share in np.geomspace(1e-3, 1.0, 8):
        V = unit_rows(np.column_stack([np.ones(30), share * rng.standard_normal((30, 2))]))
        gap = inner.solve(0.3 * Q * (V @ V.T)).value - one.value
        centred = V[weighs] - V[weighs].mean(axis=0)
        assert np.sum(centred**2) / weighs.sum() <= room * gap / (1e-3 * reference) * (1 + 1e-6)
    assert ElliptopeProblem(Q, balance=1.0).room_beside_one(1e-3) == 1.0
    # Two unconnected groups: M is not unique.
    blocks = np.kron(np.eye(2), np.full((5, 5), 0.5)) + 0.5 * np.eye(10)
    assert ElliptopeProblem(blocks).room_beside_one(1e-3) == 1.0
    # With negative entries one cluster is not the solution.
    split = np.kron([[1.0, -0.5], [-0.5, 1.0]], np.full((5, 5), 0.5)) + 0.5 * np.eye(10)
    assert ElliptopeProblem(split).room_beside_one(1e-3) == 1.0


def test_a_box_beyond_one_is_the_box_of_one():
    Q = similarity("moons", 20) + np.eye(20) / 20
    one, huge = (solve_elliptope_saddle(Q, C=C, balance=1.0) for C in (1.0, 1e300))
    assert huge.objective == one.objective
    np.testing.assert_array_equal(huge.a, one.a)


def test_the_round_that_is_degenerate_is_the_one_returned():
    """On Iris, eta is negative in an early round and zero in a later one."""
    X = StandardScaler().fit_transform(load_iris().data)
    X = X[np.random.default_rng(0).choice(150, 60, replace=False)]
    Q = gaussian_similarity(X, sigma="mean", self_loops=True) + np.eye(60) / 60
    found = solve_elliptope_saddle(Q, reg=3.0)
    assert found.status is Status.DEGENERATE
    assert np.linalg.norm(found.a) < 1 - 1e-6
    assert found.eta == 0.0


@pytest.mark.parametrize("balance", [None, 1.0])
def test_what_is_refused_has_no_negative_eta(balance):
    """The smallest degenerate weight of a grid; an unbalanced M may look degenerate earlier."""
    X = np.random.default_rng(0).standard_normal((10, 2))
    Q = gaussian_similarity(X, sigma="mean", self_loops=True) + np.eye(10) / 10
    weights = np.geomspace(0.3, 30, 40)
    refused = [
        solve_elliptope_saddle(Q, reg=reg, balance=balance).status is Status.DEGENERATE
        for reg in weights
    ]
    first = int(np.argmax(refused))
    assert first > 0
    assert all(refused[first:])
    assert printed_program(Q, weights[first], 1.0, True, balance, "mean")[1] >= -1e-4
    assert printed_program(Q, weights[first - 1], 1.0, True, balance, "mean")[1] < 0


def test_what_has_no_meaning_is_refused_or_flagged():
    Q = similarity("moons", 20) + np.eye(20) / 20
    with pytest.raises(ValueError, match=r"^C\b"):
        solve_elliptope_saddle(Q, C=0.1)
    assert solve_elliptope_saddle(Q, reg=1e3, max_iter=100).status is Status.DEGENERATE


def test_random_rounding_passes_over_what_is_less_balanced(rng):
    """The value alone would put all rows on one side."""
    y = np.where(np.arange(30) < 14, 1.0, -1.0)
    V = np.column_stack([y, 0.8 * rng.standard_normal((30, 3))])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    uneven = abs(round_centred(V).y.sum())
    assert abs(round_randomly(V, lambda z: -abs(z.sum()), 200, 0).y.sum()) <= uneven


@pytest.mark.parametrize("reg", [1.0, 1e-3])
def test_the_relative_gap_is_of_what_the_matrix_can_change(reg):
    Q = similarity("moons", 20) + np.eye(20) / 20
    found = solve_elliptope_saddle(Q, reg=reg, balance=1.0, tol=1e-5)
    reference = min(found.objective, reg * found.a @ np.abs(Q) @ found.a)
    assert found.residuals["relative gap"] == pytest.approx(found.gap / reference)
    assert found.is_certified(1e-5)
    short = solve_elliptope_saddle(Q, reg=reg, balance=1.0, tol=1e-5, max_iter=20)
    assert not short.is_certified(0.5 * short.residuals["relative gap"])


def test_a_smoothed_singular_problem_against_clarabel():
    """A wide centred kernel with a nearly nonsmooth inner maximum; eta zero, unequal groups."""
    X = np.vstack([np.zeros((24, 2)), [[3.0, 0.0]] * 6])
    X = X + 0.4 * np.random.default_rng(0).standard_normal(X.shape)
    H = np.eye(30) - 1 / 30
    K = H @ gaussian_similarity(X, sigma="mean", self_loops=True) @ H
    for balance in (0.3, 1.0):
        found = solve_elliptope_saddle(
            K, C=0.5, unit_norm=False, balance=balance, tol=1e-5, max_iter=3000
        )
        value, _ = printed_program(K, 1.0, 0.5, False, balance, "mean")
        assert found.status is Status.CONVERGED
        assert found.objective == pytest.approx(value, rel=3e-5)
        assert found.lower_bound <= value * (1 + 1e-6)
        sparser = solve_elliptope_saddle(
            sparse.csr_matrix(K),
            C=0.5,
            unit_norm=False,
            balance=balance,
            tol=1e-5,
            max_iter=3000,
        )
        assert sparser.objective == pytest.approx(value, rel=3e-5)


def test_rounding_finds_the_groups_of_a_block_matrix(rng):
    y = np.where(np.arange(30) < 12, 1.0, -1.0)
    V = np.column_stack([y, 0.05 * rng.standard_normal((30, 3))])
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    for rounded in (
        round_centred(V),
        round_as_printed(V),
        round_randomly(V, lambda z: -abs(z @ y), 20, 0),
    ):
        assert abs(rounded.y @ y) == 30
        assert rounded.determined
    nothing = round_centred(np.ones((30, 1)))
    assert not nothing.determined
    assert nothing.rank == 1
