"""The packing program: certificates, agreement with Clarabel, units, bad input."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from helpers.cvxpy_references import clarabel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from volmar.solvers import Status, solve_packing_sdp
from volmar.solvers.packing_sdp import PackingProblem

quick = settings(deadline=None, max_examples=40)


seeds = st.integers(0, 10_000)


@quick
@given(seed=seeds, n=st.integers(1, 25), r=st.integers(1, 25), spread=st.floats(0, 2))
def test_certificate_of_random_problems(seed, n, r, spread):
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((n, r)) * np.exp(spread * rng.standard_normal((n, 1)))
    upper = None if seed % 3 == 0 else np.exp(rng.normal(-2, 3)) / np.mean((F**2).sum(axis=1))
    result = solve_packing_sdp(F, upper=upper)
    assert result.is_certified(1e-6)
    g, Xi = result.g, result.dual
    total = g.sum()
    assert result.objective == pytest.approx(-total, rel=1e-12)
    # Primal and dual feasibility and both values, computed from F.
    largest = linalg.eigvalsh(F.T @ np.diag(g) @ F)[-1]
    assert largest <= 1 + 1e-12
    assert result.smallest_eigenvalue == pytest.approx(1 - largest, abs=1e-12)
    assert g.min() >= 0
    assert linalg.eigvalsh(Xi)[0] >= -1e-12 * max(np.trace(Xi), 1e-300)
    z = np.einsum("ij,jk,ik->i", F, Xi, F)
    if upper is None:
        assert z.min() >= 1 - 1e-9
        value = np.trace(Xi)
    else:
        assert g.max() <= upper
        value = np.trace(Xi) + upper * np.maximum(0, 1 - z).sum()
    assert result.bound == pytest.approx(value, rel=1e-9)
    assert result.gap == pytest.approx(value - total, abs=1e-9 * total)
    assert result.gap <= 1e-8 * total
    # No other feasible weights are better.
    for direction in rng.random((20, n)):
        other = direction / linalg.eigvalsh(F.T @ np.diag(direction) @ F)[-1]
        other = np.minimum(other, np.inf if upper is None else upper)
        assert other.sum() <= result.bound * (1 + 1e-12)


@pytest.mark.parametrize("upper", [None, 0.02, 0.1])
def test_packing_agrees_with_clarabel(upper, rng):
    for n, r in ((10, 4), (15, 15), (25, 6)):
        F = rng.standard_normal((n, r))
        result = solve_packing_sdp(F, upper=upper)
        g, status = clarabel(lambda g, F=F: np.eye(F.shape[1]) >> F.T @ cp.diag(g) @ F, n, upper)
        assert status == "optimal"
        assert -result.objective == pytest.approx(g.sum(), rel=1e-6)


def test_one_row_and_orthogonal_rows():
    assert solve_packing_sdp(np.array([[2.0]])).g == pytest.approx([0.25], rel=1e-7)
    assert solve_packing_sdp(np.array([[2.0]]), upper=0.1).g == pytest.approx([0.1])
    result = solve_packing_sdp(np.diag([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(result.g, [1, 1 / 4, 1 / 16], rtol=1e-6)
    assert solve_packing_sdp(np.ones((7, 3))).objective == pytest.approx(-1 / 3, rel=1e-7)


@pytest.mark.parametrize("upper", [0.0, 1e-12, 1e-3])
def test_a_small_bound_is_the_answer(upper, rng):
    F = rng.standard_normal((12, 5))
    result = solve_packing_sdp(F, upper=upper)
    np.testing.assert_array_equal(result.g, upper)
    assert result.is_certified(1e-12)
    assert result.gap == pytest.approx(0.0, abs=1e-15)
    assert result.n_iter == 0
    assert result.smallest_eigenvalue > 0
    assert not result.dual.any()


def test_rows_of_zeros(rng):
    F = np.vstack([np.zeros(3), rng.standard_normal((5, 3))])
    without = solve_packing_sdp(F[1:], upper=0.5)
    bounded = solve_packing_sdp(F, upper=0.5)
    assert bounded.g[0] == 0.5
    assert bounded.objective == pytest.approx(without.objective - 0.5, rel=1e-7)
    assert bounded.is_certified(1e-6)
    unbounded = solve_packing_sdp(F)
    assert unbounded.status is Status.UNBOUNDED
    assert unbounded.objective == -np.inf


@pytest.mark.parametrize("scale", [1e-150, 1e-10, 1e10, 1e150])
def test_units_do_not_matter(scale, rng):
    F = rng.standard_normal((15, 8))
    one, two = solve_packing_sdp(F), solve_packing_sdp(scale * F)
    np.testing.assert_allclose(two.g * scale**2, one.g, rtol=1e-9)
    assert two.residuals["relative gap"] <= 1e-8


def test_rows_of_very_different_size(rng):
    F = rng.standard_normal((30, 30)) * np.exp(4 * rng.standard_normal((30, 1)))
    for upper in (None, 1.0):
        assert solve_packing_sdp(F, upper=upper).residuals["relative gap"] <= 1e-8


def test_iteration_limit_keeps_the_certificate(rng):
    F = rng.standard_normal((20, 10))
    best = -solve_packing_sdp(F).objective
    for max_iter in (1, 3, 5):
        result = solve_packing_sdp(F, max_iter=max_iter)
        assert result.status is Status.MAX_ITER
        assert result.n_iter == max_iter
        assert -result.objective <= best * (1 + 1e-7) <= result.bound * (1 + 2e-7)
        assert result.smallest_eigenvalue >= 0


def test_rounding_is_reported_not_hidden(rng):
    result = solve_packing_sdp(rng.standard_normal((20, 10)), tol=1e-17)
    assert result.status is Status.FAILED
    assert result.residuals["relative gap"] <= 1e-9


@pytest.mark.parametrize(
    ("F", "upper", "message"),
    [
        (np.ones(3), None, r"^F .*got shape \(3,\)"),
        (np.ones((3, 0)), None, "F must be a matrix"),
        (np.array([[1.0, np.nan]]), None, "NaN or infinite"),
        (np.ones((3, 2)), -1.0, "^upper .*-1.0"),
        (np.ones((3, 2)), np.inf, "upper must be finite"),
    ],
)
def test_bad_packing_input(F, upper, message):
    with pytest.raises(ValueError, match=message):
        solve_packing_sdp(F, upper=upper)


@pytest.mark.parametrize("upper", [None, 0.3])
def test_the_problem_recomputes_the_certificate(upper, rng):
    F = rng.standard_normal((30, 4))
    found = solve_packing_sdp(F, upper=upper)
    again = found.check(PackingProblem(F, upper))
    assert again.is_certified(1e-6)
    assert again.objective == found.objective
    assert again.gap == pytest.approx(found.gap, abs=1e-12)
    heavier = replace(found, g=1.1 * found.g).check(PackingProblem(F, upper))
    assert not heavier.is_certified(1e-3)
    spoilt = replace(found, dual=found.dual - 0.5 * np.eye(4) * np.trace(found.dual))
    assert spoilt.check(PackingProblem(F, upper)).gap == np.inf
