"""The elliptope saddle with triangle constraints, against Clarabel."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from helpers.cvxpy_references import equation_22, kernel, triangles

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.margin import SDPMMCProblem
from volmar.solvers import solve_elliptope_saddle, solve_elliptope_triangles


@pytest.mark.parametrize(
    ("make", "n", "balance", "row_balance", "center"),
    [
        (make_two_moons, 12, None, False, True),
        (make_two_circles, 15, 1.0, True, True),
        (make_two_circles, 15, 0.2, False, True),
        (make_two_gaussians, 12, 1.0, True, True),
        (make_two_gaussians, 12, 1.0, False, False),
        (make_two_gaussians, 14, None, False, False),
    ],
)
def test_triangles_against_clarabel(make, n, balance, row_balance, center):
    K = kernel(make, n, center=center)
    of = "rows" if row_balance else "mean"
    found = solve_elliptope_triangles(K, C=0.5, balance=balance, row_balance=of == "rows")
    value = equation_22(K, 0.5, balance, row_balance=row_balance, triangle=True)
    assert found.objective == pytest.approx(value, rel=1e-5)
    assert found.gap <= 1e-5 * value
    M = found.factor @ found.factor.T
    np.testing.assert_allclose(M.diagonal(), 1.0)
    assert min(slack.min() for slack in triangles(M)) >= -1e-9
    if balance is not None:
        sums = M.sum(axis=1)
        assert (np.abs(sums).max() if row_balance else sums.mean()) <= balance + 1e-9


@pytest.mark.parametrize("of", ["mean", "rows"])
def test_the_bound_with_triangles_follows_from_its_multipliers(of):
    """Recompute the dual value from the returned multipliers, and compare it with labels."""
    K = kernel(make_two_moons, 12, center=True)
    found = solve_elliptope_triangles(
        K, C=0.5, balance=1.0, row_balance=of == "rows", max_iter=400
    )
    free = solve_elliptope_saddle(K, C=0.5, unit_norm=False, balance=1.0, row_balance=of == "rows")
    assert found.triangle_multipliers.min() >= 0
    assert found.triangle_multipliers.max() > 1e-3
    assert found.lower_bound > free.objective  # the constraints are active here
    n = len(K)
    G = K * np.outer(found.a, found.a)
    s, shift = found.balance_multipliers, found.triangle_multipliers
    G -= (s[:, None] + s) / 2
    signs = [(1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1)]
    for t, (i, j, k) in enumerate(itertools.combinations(range(n), 3)):
        for sign, weight in zip(signs, shift[:, t], strict=True):
            for size, (p, q) in zip(sign, [(i, j), (j, k), (i, k)], strict=True):
                G[p, q] += weight * size / 2
                G[q, p] += weight * size / 2
    y = cp.Variable(n)
    program = cp.Problem(cp.Minimize(cp.sum(y)), [cp.diag(y) >> (G + G.T) / 2])
    program.solve(solver=cp.CLARABEL)
    bound = 2 * found.a.sum() - program.value - np.abs(s).sum() - shift.sum()
    assert found.lower_bound <= bound + 1e-4
    assert bound <= found.objective + 1e-6
    problem, rng = SDPMMCProblem(K, 0.5), np.random.default_rng(0)
    for _ in range(30):
        labels = rng.permutation(np.repeat([-1.0, 1.0], n // 2))
        assert problem.machine(labels).value >= found.lower_bound
