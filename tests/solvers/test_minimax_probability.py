"""The minimax probability problem against the SOCP, its certificate, and its edges."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.solvers import Status, solve_minimax_probability


def random_moments(seed, d, spread=1.0):
    rng = np.random.default_rng(seed)
    covariances = []
    for _ in range(2):
        A = rng.standard_normal((d, d + 2)) * np.exp(spread * rng.standard_normal((d, 1)))
        covariances.append(A @ A.T / d + 1e-3 * np.eye(d))
    return rng.standard_normal(d), *covariances


def socp(difference, S1, S2):
    w = cp.Variable(difference.size)
    roots = [linalg.cholesky(S, lower=True) for S in (S1, S2)]
    objective = cp.Minimize(sum(cp.norm(L.T @ w) for L in roots))
    cp.Problem(objective, [w @ difference == 1]).solve(solver=cp.CLARABEL)
    return 1 / objective.value


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_agrees_with_the_socp(d):
    for seed in range(10):
        moments = random_moments(seed, d)
        result = solve_minimax_probability(*moments)
        assert result.kappa == pytest.approx(socp(*moments), rel=1e-6)


@given(seed=st.integers(0, 100_000), d=st.integers(1, 12), spread=st.floats(0, 3))
@settings(max_examples=150, deadline=None)
def test_the_gap_certifies(seed, d, spread):
    difference, S1, S2 = random_moments(seed, d, spread)
    result = solve_minimax_probability(difference, S1, S2)
    assert result.status is Status.CONVERGED
    assert 0 <= result.gap <= 1e-8 * result.kappa
    assert result.w @ difference == pytest.approx(1.0)
    s1, s2 = (np.sqrt(result.w @ S @ result.w) for S in (S1, S2))
    assert result.kappa == pytest.approx(1 / (s1 + s2))
    assert result.probability == pytest.approx(result.kappa**2 / (1 + result.kappa**2))
    # No other direction does better.
    for w in np.random.default_rng(seed).standard_normal((20, d)):
        other = abs(w @ difference) / (np.sqrt(w @ S1 @ w) + np.sqrt(w @ S2 @ w))
        assert other <= result.kappa + result.gap + 1e-12
    mean1 = np.random.default_rng(1).standard_normal(d)
    b = result.intercept(mean1)
    mean2 = mean1 - difference
    assert b == pytest.approx(-(result.w @ mean2 + result.kappa * s2), abs=1e-8)


def test_few_factorisations_and_fewer_from_a_neighbour():
    steps, warm = [], []
    for seed in range(20):
        difference, S1, S2 = random_moments(seed, 10)
        result = solve_minimax_probability(difference, S1, S2)
        steps.append(result.n_iter)
        warm.append(solve_minimax_probability(difference, 1.01 * S1, S2, t=result.t).n_iter)
    assert np.mean(steps) <= 6
    assert np.mean(warm) < np.mean(steps)


def test_equal_means_have_no_direction():
    result = solve_minimax_probability(np.zeros(3), np.eye(3), np.eye(3))
    assert result.status is Status.DEGENERATE
    assert result.kappa == result.probability == 0.0


def test_singular_covariances_raise():
    with pytest.raises(np.linalg.LinAlgError):
        solve_minimax_probability(np.ones(2), np.zeros((2, 2)), np.zeros((2, 2)))


def test_very_unequal_covariances():
    result = solve_minimax_probability(np.array([1.0, 0.5]), 1e-8 * np.eye(2), 1e4 * np.eye(2))
    assert result.status is Status.CONVERGED
    assert result.gap <= 1e-8 * result.kappa


def test_standardized_matches_its_definition(rng):
    X = rng.standard_normal((40, 4)) * [1.0, 1e3, 1e-3, 1.0] + [5.0, 0.0, 1.0, 7.0]
    X[:, 3] = 7.0
    weights = rng.random(40)
    z = standardized(as_rows(X, sample_weight=weights))
    mean = np.average(X, axis=0, weights=weights)
    sd = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    Z = ((X - mean) / np.where(sd > 0, sd, 1))[:, :3]
    np.testing.assert_array_equal(z.kept, [0, 1, 2])
    np.testing.assert_allclose(z.correlation, (Z * weights[:, None]).T @ Z / weights.sum())
    w, v = rng.standard_normal(3), rng.standard_normal(40)
    np.testing.assert_allclose(z.scores(w), Z @ w, atol=1e-10)
    np.testing.assert_allclose(z.combine(v), Z.T @ v, atol=1e-10)
    part = z.rows.moments(X[:, 0] > 5, center=np.zeros(4))
    m, S = z.mean_and_covariance(part)
    inside, w_in = Z[X[:, 0] > 5], weights[X[:, 0] > 5]
    np.testing.assert_allclose(m, np.average(inside, axis=0, weights=w_in), atol=1e-10)
    np.testing.assert_allclose(S, np.cov(inside.T, aweights=w_in, bias=True), atol=1e-10)


def test_variances_that_rounding_makes_negative_are_zero():
    w = np.array([1.0, -1.0])
    S = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-17]]) - 1e-16 * np.outer(w, w)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = solve_minimax_probability(w, S, np.eye(2))
    assert np.isfinite(found.kappa)
    assert found.s1 >= 0.0


def test_no_variance_along_the_best_direction_is_singular():
    with pytest.raises(np.linalg.LinAlgError):
        solve_minimax_probability(np.array([1.0, 0.0]), np.zeros((2, 2)), np.zeros((2, 2)))
