"""Mixtures of labellings instead of correlation matrices, against all labellings."""

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, label_mixture_value
from scipy import sparse

from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs import gaussian_similarity
from volmar.solvers import Status, label_mixture, solve_elliptope_saddle, solve_label_mixture
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import ElliptopeProblem
from volmar.solvers.label_mixture import balanced_signs

SETS = {"gaussians": make_two_gaussians, "moons": make_two_moons, "circles": make_two_circles}


def matrix(name, n, sigma="mean/2", seed=1):
    X, _ = SETS[name](n, random_state=seed)
    return gaussian_similarity(X, sigma=sigma, self_loops=True) + np.eye(n) / n


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    ("n", "limit", "reg", "C"), [(8, 0, 0.5, 1), (9, 3, 0.5, 0.5), (7, 1, 1, 1)]
)
@pytest.mark.parametrize("enumerates", [True, False])
def test_the_relaxation_over_all_labellings(name, n, limit, reg, C, enumerates, monkeypatch):
    if not enumerates:
        monkeypatch.setattr(label_mixture, "ENUMERATED", 0)
    Q = matrix(name, n)
    found = solve_label_mixture(Q, reg=reg, C=C, limit=limit, tol=1e-6)
    value = label_mixture_value(Q, reg, C, limit)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(value, rel=2e-6)
    assert found.lower_bound <= value + 1e-6
    assert found.gap >= found.objective - found.lower_bound
    if enumerates:
        assert found.is_certified(1e-5)
    # All labellings of the mixture are within the limit.
    signs = np.sign(found.factor)
    assert np.all(np.abs(signs.sum(axis=0)) <= limit)
    np.testing.assert_allclose(np.sum(found.factor**2, axis=1), 1.0)
    # The value is between those of correlation matrices and of single labellings.
    wider = solve_elliptope_saddle(Q, reg=reg, C=C, balance=limit**2 / n, tol=1e-6)
    assert wider.lower_bound <= found.objective
    inner = BoxQP(n, C, unit_norm=True)
    single = min(inner.solve(reg * Q * np.outer(y, y)).value for y in all_labellings(n, limit))
    assert found.objective <= single + 1e-6


def test_it_is_tighter_than_correlation_matrices():
    Q = matrix("gaussians", 7)
    found = solve_label_mixture(Q, limit=1)
    wider = solve_elliptope_saddle(Q, balance=1 / 7)
    assert found.factor.shape[1] > 1  # a mixture
    assert found.lower_bound > wider.objective + 0.1


def test_many_rows_have_a_certified_gap():
    Q = matrix("moons", 60, "mean/10")
    for given in (Q, sparse.csr_matrix(Q)):
        found = solve_label_mixture(given, reg=0.5, limit=np.sqrt(60))
        assert found.is_certified(1e-5)
        again = found.check(ElliptopeProblem(given, reg=0.5, balance=7**2 / 60 - 13 / 60))
        assert again.objective == pytest.approx(found.objective)
        assert again.gap <= 1e-4


def test_a_search_that_is_cut_short_reports_it(monkeypatch):
    monkeypatch.setattr(label_mixture, "MAX_LABELLINGS", 2)
    found = solve_label_mixture(matrix("gaussians", 7), limit=1)
    assert found.status is Status.MAX_ITER
    assert found.lower_bound <= found.objective


def test_large_weights_are_degenerate():
    assert solve_label_mixture(matrix("moons", 12), reg=1e3).status is Status.DEGENERATE


def test_balanced_signs_are_the_best(rng):
    for n, allowed in ((7, 1), (8, 0), (8, 2), (6, 6)):
        f = rng.standard_normal(n) + 0.7
        best = max(y @ f for sign in (1, -1) for y in sign * all_labellings(n, allowed))
        y = balanced_signs(f, allowed)
        assert y @ f == pytest.approx(best)
        assert abs(y.sum()) <= allowed
