"""The relaxation over all labellings, against brute force."""

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, centred, saddle_by_cvxpy

from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.lgmmc import (
    balanced_labels,
    climb,
    generate_labels,
)
from volmar.solvers import Status
from volmar.solvers.label_kernel_svm import solve_label_kernel_svm


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "limit", "C"), [(7, 1, 1.0), (8, 2, 0.3), (8, 6, 3.0), (2, 0, 1.0)])
def test_the_relaxation_over_all_labellings(seed, n, limit, C):
    rng = np.random.default_rng(seed)
    Z = centred(rng, n, 3)
    Y = all_labellings(n, limit)
    truth = saddle_by_cvxpy(Z, Y, C)
    for source in (LinearSpace(Z), KernelSpace(Z @ Z.T)):
        found = generate_labels(source, C=C, limit=limit, n_init=40, tol=1e-7, max_iter=200)
        assert found.status is Status.CONVERGED
        assert found.objective == pytest.approx(truth, rel=1e-5)
        # No single labelling is better than the relaxation, nor is the bound above it.
        singles = [solve_label_kernel_svm(Z, y[None, :], C=C).objective for y in Y]
        assert found.bound <= truth + 1e-7
        assert truth <= min(singles) + 1e-7
        assert found.gap == pytest.approx(found.objective - found.bound)
        assert found.residuals["master gap"] <= 1e-7
        if abs(int(2 * found.labels.sum()) - n) <= limit:
            assert found.labelled_objective >= min(singles) - 1e-9


@pytest.mark.parametrize(("n", "limit"), [(5, 1), (7, 1), (7, 3)])
def test_the_relaxation_of_the_identity(n, limit):
    """Whose Krylov spaces have one dimension: searches in that alone would miss labellings."""
    Y, C = all_labellings(n, limit), 30.0 / (n - 1)
    truth = saddle_by_cvxpy(np.eye(n) - 1 / n, Y, C)
    found = generate_labels(KernelSpace(np.eye(n)), C=C, limit=limit, n_init=40, tol=1e-4)
    assert found.objective == pytest.approx(truth, rel=1e-3)


def test_few_starts_leave_an_upper_bound(rng):
    Z = centred(rng, 8, 3)
    truth = saddle_by_cvxpy(Z, all_labellings(8, 2), 1.0)
    for seed in range(10):
        source = LinearSpace(Z)
        found = generate_labels(source, C=1.0, limit=2, n_init=1, tol=1e-6, seed=seed)
        assert found.bound <= truth <= found.objective + 1e-7


def test_the_objective_falls_with_every_round(rng):
    source = LinearSpace(rng.standard_normal((80, 6)))
    found = generate_labels(source, C=0.3, limit=40, tol=1e-4, max_iter=200)
    assert found.status is Status.CONVERGED
    assert len(found.history) == found.n_iter > 5
    assert np.all(np.diff(found.history) <= 1e-5 * abs(found.objective))
    assert found.residuals["violation"] <= 1e-4
    assert found.weights.sum() == pytest.approx(1.0)
    assert np.all(np.diff(found.weights) <= 0)


def test_other_searches_find_little_that_is_more_violated(rng):
    """Noise has many similar labellings: some are missed, but far fewer than without climbing."""
    Z = centred(rng, 200, 12)
    C, tol = 1.0, 1e-2
    source = LinearSpace(Z)
    found = generate_labels(source, C=C, limit=100, tol=tol, n_init=20, max_iter=200)
    assert found.status is Status.CONVERGED
    starts = [balanced_labels(Z @ v, found.alpha, 100) for v in rng.standard_normal((100, 12))]
    _, worst = climb(source, found.alpha, np.array(starts), 100)
    value = -0.5 * (worst + found.alpha @ found.alpha / C)
    assert found.objective - value <= 0.08 * abs(found.objective)


def test_margin_and_value_of_the_labels(rng):
    """The value at the labels, by a fine grid of margins and the best length of each."""
    Z = centred(rng, 40, 4)
    C = 0.5
    found = generate_labels(LinearSpace(Z), C=C, limit=20)
    f, square = np.abs(found.scores), float(found.normal @ found.normal)
    np.testing.assert_allclose(found.scores, Z @ found.normal, atol=1e-12)
    r = np.linspace(0.2, 5, 4001) * found.rho
    slack = np.maximum(r[:, None] - f, 0.0)
    values = -0.5 * r**2 / (square + C * np.square(slack).sum(axis=1))
    assert found.labelled_objective == pytest.approx(values.min(), rel=1e-5)
    assert found.rho == pytest.approx(r[values.argmin()], rel=5e-3)
    y = np.where(found.labels > 0, 1.0, -1.0)
    best = solve_label_kernel_svm(Z, y[None, :], C=C).objective
    assert best <= found.labelled_objective


def test_the_mixture_is_nearly_as_good_for_its_labels_as_their_own_machine():
    """On noise, the worst case: nine tenths of the best value at the median of draws."""
    ratios = []
    for seed in range(8):
        Z = centred(np.random.default_rng(seed), 40, 4)
        found = generate_labels(LinearSpace(Z), C=0.5, limit=20)
        y = np.where(found.labels > 0, 1.0, -1.0)
        best = solve_label_kernel_svm(Z, y[None, :], C=0.5).objective
        ratios.append(found.labelled_objective / best)
    assert max(ratios) <= 1.0 + 1e-9
    assert np.median(ratios) >= 0.9
    assert min(ratios) >= 0.8
