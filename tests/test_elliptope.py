"""The elliptope saddle solver: Clarabel's value, a dual bound that is one, two groups from M."""

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity, local_scaling_similarity
from volmar.solvers import Status, solve_elliptope_saddle
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope_rounding import round_as_printed, round_centred, round_randomly

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def similarity(name, n, sigma="mean/4"):
    return gaussian_similarity(SETS[name](n, random_state=0)[0], sigma=sigma)


def printed_program(Q, reg, C, unit_norm, balance):
    """JMLR eq. 13 (unit_norm) or eq. 22, as printed, by an interior point solver."""
    n = len(Q)
    M = cp.Variable((n, n), PSD=True)
    mu, nu = cp.Variable(n, nonneg=True), cp.Variable(n, nonneg=True)
    t = cp.Variable()
    eta = cp.Variable() if unit_norm else cp.Constant(0.0)
    column = cp.reshape(1 - mu + nu, (n, 1), order="C")
    corner = cp.reshape(t + eta - 2 * C * cp.sum(mu), (1, 1), order="C")
    top = reg * cp.multiply(Q, M) - eta * np.eye(n)
    constraints = [cp.diag(M) == 1, cp.bmat([[top, column], [column.T, corner]]) >> 0]
    if balance is not None:
        constraints.append(cp.abs(cp.sum(M, axis=1)) <= balance)
    program = cp.Problem(cp.Minimize(t), constraints)
    program.solve(solver=cp.CLARABEL)
    return program.value


CASES = [
    # name, n, reg, C, unit norm, balance
    ("moons", 20, 1e-3, 1.0, True, None),
    ("gaussians", 20, 1.0, 1.0, True, None),
    ("moons", 20, 2.0, 1.0, True, None),
    ("gaussians", 20, 1.0, 1.1 / np.sqrt(20), True, None),
    ("gaussians", 20, 1.0, 1.0, True, 1.0),
    ("moons", 20, 1.0, 1.0, True, 2.0),
    ("gaussians", 30, 1.0, 1.0, True, None),
    ("moons", 20, 1.0, 1e-3, False, None),
    ("gaussians", 20, 1.0, 1.0, False, None),
    ("moons", 20, 1.0, 1000.0, False, None),
    ("moons", 20, 1.0, 1.0, False, 1.0),
    ("moons", 40, 1.0, 1.0, False, None),
]


@pytest.mark.parametrize(("name", "n", "reg", "C", "unit_norm", "balance"), CASES)
def test_value_agrees_with_clarabel(name, n, reg, C, unit_norm, balance):
    Q = similarity(name, n) + (np.eye(n) / n if unit_norm else 0)
    found = solve_elliptope_saddle(
        Q, reg=reg, C=C, unit_norm=unit_norm, balance=balance, max_iter=2000
    )
    value = printed_program(Q, reg, C, unit_norm, balance)
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


def test_the_lower_bound_holds_for_every_labelling(rng):
    """Weak duality at points of the elliptope that have nothing to do with the solution."""
    n = 30
    Q = similarity("moons", n) + np.eye(n) / n
    for balance in (None, 2.0):
        found = solve_elliptope_saddle(Q, balance=balance, max_iter=150)
        inner = BoxQP(n, 1.0, unit_norm=True)
        for _ in range(50):
            y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
            if balance is not None and abs(y.sum()) > balance:
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
    from volmar.solvers import elliptope

    Q = similarity("moons", 60) + np.eye(60) / 60
    small = solve_elliptope_saddle(Q, max_iter=50)
    monkeypatch.setattr(elliptope, "DENSE_UP_TO", 10)
    large = solve_elliptope_saddle(Q, max_iter=50)
    assert large.lower_bound == pytest.approx(small.lower_bound, rel=1e-4)


def test_proximal_term_picks_one_of_many(rng):
    """Two blocks that do not touch: the sign between them is free, and M's block undetermined."""
    Q = np.kron(np.eye(2), np.full((10, 10), 0.8)) + 0.25 * np.eye(20)
    found = solve_elliptope_saddle(Q, reg=0.1, proximal=1e-3, max_iter=2000)
    assert found.gap <= 1e-4 * abs(found.objective)
    M = found.factor @ found.factor.T
    assert np.abs(M[:10, 10:]).max() < 1e-2  # the least norm is between the two signs
    assert M[:10, :10].min() > 0.99


def test_what_has_no_meaning_is_refused_or_flagged():
    Q = similarity("moons", 20) + np.eye(20) / 20
    with pytest.raises(ValueError, match=r"C=0.1 leaves no point of norm 1 .* at least"):
        solve_elliptope_saddle(Q, C=0.1)
    assert solve_elliptope_saddle(Q, reg=1e3, max_iter=100).status is Status.DEGENERATE


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
