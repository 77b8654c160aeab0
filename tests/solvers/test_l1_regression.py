"""L1 regression: certificates, agreement with cvxpy, edges."""

import numpy as np
import pytest
from helpers.cvxpy_references import l1_value_by_cvxpy

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.solvers import Status
from volmar.solvers.l1_regression import balanced, solve_l1_regression


def noisy_labels(rng, n):
    return np.where(rng.random(n) < 0.4, 1.0, -1.0)


def dual_value(result, X, y, c):
    """The dual's value, after checking that the point is feasible."""
    beta = result.dual
    assert np.all(np.abs(beta) <= c * (1 + 1e-12))
    assert abs(beta.sum()) <= 1e-9 * max(c.sum(), 1e-300)
    w = (X - X.mean(axis=0)).T @ beta
    return beta @ y - 0.5 * w @ w


@pytest.mark.parametrize("kind", ["features", "kernel"])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("shape", [(30, 3), (60, 5), (25, 60)])
def test_regression_agrees_with_an_independent_solver(rng, kind, C, shape):
    n, d = shape
    X = rng.standard_normal((n, d)) + 2.0
    y = noisy_labels(rng, n)
    c = np.full(n, C)
    space = KernelSpace(X @ X.T) if kind == "kernel" else LinearSpace(X)
    result = solve_l1_regression(space, y, C, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.objective == pytest.approx(l1_value_by_cvxpy(X, y, c), rel=1e-5)
    assert result.gap <= 1e-6 * result.objective
    # The certificate, recomputed from the dual point alone.
    lower = dual_value(result, X, y, c)
    assert result.objective - lower == pytest.approx(result.gap, abs=1e-9 * result.objective)
    assert lower <= result.objective * (1 + 1e-9)


def test_the_objective_is_that_of_the_point(rng):
    X, y = rng.standard_normal((40, 4)) + 5.0, rng.standard_normal(40)
    result = solve_l1_regression(LinearSpace(X), y, 0.3, tol=1e-7)
    w = result.normal
    scores = (X - X.mean(axis=0)) @ w + result.intercept
    np.testing.assert_allclose(result.scores, scores, atol=1e-10)
    value = 0.5 * w @ w + 0.3 * np.abs(y - scores).sum()
    assert result.objective == pytest.approx(value, rel=1e-12)
    # No other constant is better.
    for change in (-0.01, 0.01):
        assert 0.5 * w @ w + 0.3 * np.abs(y - scores - change).sum() >= value - 1e-12


def test_a_large_C_gives_least_absolute_deviations(rng):
    X = rng.standard_normal((50, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.7
    y[:10] += 20 * rng.random(10)  # outliers, which do not change the median
    result = solve_l1_regression(LinearSpace(X), y, 1e4, tol=1e-7)
    np.testing.assert_allclose(result.normal, [1.0, -2.0, 0.5], atol=1e-3)
    np.testing.assert_allclose(result.scores[10:], y[10:], atol=1e-3)


def test_a_small_C_puts_every_coefficient_at_a_bound(rng):
    X, y = rng.standard_normal((30, 4)), np.repeat([-1.0, 1.0], 15)
    C = 1e-6
    result = solve_l1_regression(LinearSpace(X), y, C, tol=1e-10)
    np.testing.assert_allclose(result.normal, C * X.T @ y, rtol=1e-6)


def test_an_early_end_of_the_regression_is_still_certified(rng):
    X, y = rng.standard_normal((60, 5)), noisy_labels(rng, 60)
    space = LinearSpace(X)
    early = solve_l1_regression(space, y, 1.0, tol=1e-9, max_iter=3)
    late = solve_l1_regression(space, y, 1.0, tol=1e-7)
    assert early.status is Status.MAX_ITER
    assert early.n_iter == 3
    assert early.objective - early.gap <= late.objective <= early.objective
    assert list(early.history) == sorted(early.history, reverse=True)


@pytest.mark.parametrize("targets", [np.ones(12), np.repeat([-1.0, 1.0], [1, 11])])
def test_regression_on_constant_or_lonely_targets(rng, targets):
    X = rng.standard_normal((12, 3))
    result = solve_l1_regression(LinearSpace(X), targets, 0.5, tol=1e-8)
    value = l1_value_by_cvxpy(X, targets, np.full(12, 0.5))
    assert result.objective == pytest.approx(value, abs=1e-6)


def test_balanced_stays_within_and_sums_to_zero(rng):
    for _ in range(20):
        beta = rng.standard_normal(9)
        even = balanced(beta)
        assert abs(even.sum()) < 1e-12
        assert np.all(np.abs(even) <= np.abs(beta) + 1e-15)
        assert np.all(even * beta >= 0)


def test_a_large_C_keeps_the_descent_and_the_sum_of_coefficients(rng):
    """The slope may be small between kinks far beyond the minimum: the objective must decrease.

    For rows far from the origin, the large constant of the kernel must not cancel the sum of t.
    """
    X = rng.standard_normal((40, 4))
    X[:18] += 4.0
    y = np.where(np.arange(40) < 18, 1.0, -1.0)
    for C in (1e4, 1e6):
        value = l1_value_by_cvxpy(X, y, np.full(40, C))
        for space in (LinearSpace(X), KernelSpace(X @ X.T)):
            result = solve_l1_regression(space, y, C, tol=1e-4)
            assert result.status is Status.CONVERGED
            assert result.objective == pytest.approx(value, rel=2e-4)
            assert result.objective - result.gap <= value * (1 + 1e-6)
        assert abs(result.normal[0].sum()) <= 1e-9 * C
        # Scores and norm are recomputed from the coefficients, without accumulated rounding.
        w = (X - X.mean(axis=0)).T @ result.normal[0]
        np.testing.assert_allclose(
            result.scores - result.intercept, (X - X.mean(axis=0)) @ w, atol=1e-6
        )


def test_an_intercept_between_rows_leaves_room_for_a_step():
    """With half of the rows on either side and none within the width, b is not unique."""
    rng = np.random.default_rng(65)
    for _ in range(30):
        x = rng.standard_normal((14, 1))
        y = np.where(rng.random(14) < 0.5, 1.0, -1.0)
        result = solve_l1_regression(KernelSpace(x @ x.T), y, 0.3, tol=1e-6)
        assert result.status is Status.CONVERGED
        assert result.n_iter < 80


def test_the_bound_is_never_below_that_of_zero(rng):
    """beta = 0 is a dual point, so the gap is at most the objective."""
    X, y = 1e4 * rng.standard_normal((20, 5)), noisy_labels(rng, 20)
    result = solve_l1_regression(LinearSpace(X), y, 1e3, max_iter=1)
    assert result.status is Status.MAX_ITER
    assert result.gap <= result.objective
    assert dual_value(result, X, y, np.full(20, 1e3)) >= result.objective - result.gap - 1e-6


@pytest.mark.parametrize("C", [50.0, 5e3])
def test_float32_rows_are_always_a_gram_matrix(rng, C):
    """Second moments of rank 11 in 30 features, rounded in float32, are not quite definite."""
    X = rng.standard_normal((12, 30)).astype(np.float32)
    y = noisy_labels(rng, 12)
    result = solve_l1_regression(LinearSpace(X), y, C, tol=1e-2)
    value = l1_value_by_cvxpy(X.astype(float), y, np.full(12, C))
    assert result.objective == pytest.approx(value, rel=2e-2)


def test_converged_is_said_of_the_gap_that_is_returned(rng):
    """The status depends on the recomputed scores, not on those accumulated by the steps."""

    class Drifting(LinearSpace):
        drift = 0.0

        def refreshed(self, w):
            return (1 + self.drift) * w

    X = rng.standard_normal((60, 5))
    y = np.where(X[:, 0] + 0.3 * X[:, 1] ** 2 > 0, 1.0, -1.0)
    statuses = []
    for drift in (0.0, 0.5):
        space = Drifting(X)
        space.drift = drift
        result = solve_l1_regression(space, y, 1.0, tol=1e-4)
        statuses.append(result.status)
        assert (result.status is Status.CONVERGED) == (result.gap <= 1e-4 * result.objective)
    assert statuses == [Status.CONVERGED, Status.FAILED]
