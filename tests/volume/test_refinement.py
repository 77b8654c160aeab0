"""The first step of Algorithm 1 and its repetition."""

import numpy as np
import pytest
from helpers.volume_problems import (
    CASES,
    WatchedOperator,
    laplacian_of,
    moons_graph,
    random_spd,
    random_spectrum,
    start_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from volmar.datasets import make_two_moons
from volmar.graphs import laplacian, local_scaling_similarity
from volmar.operators import as_operator
from volmar.operators import sparse as sparse_module
from volmar.operators.sparse import SparseOperator
from volmar.volume import descent
from volmar.volume.descent import FirstStep, refine, solve_qp
from volmar.volume.problem import VolumeProblem, signs


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
    assert np.all(np.diff(refined.merits) > 0)
    assert refined.settled
    # The end is a fixed point of the plain step, up to the share that counts as settled.
    again = FirstStep(as_operator(Q), balance)(refined.labels)
    assert again.roughness <= -refined.merits[-1] * (1 + 1e-9)
    if balance == 0.0:
        inverse = np.linalg.inv(Q)
        ones = inverse.sum(axis=1)
        K = inverse - np.outer(ones, ones) / ones.sum()
        assert again.roughness == pytest.approx(
            n / (refined.labels @ K @ refined.labels), rel=1e-6
        )


def test_refinement_reaches_a_fixed_point_of_the_plain_step():
    X, _ = make_two_moons(400, noise=0.12, random_state=3)
    W = local_scaling_similarity(X, n_neighbors=8, graph="knn")
    Q = laplacian(W).toarray() + np.eye(400) / 400
    operator = as_operator(Q)
    refined = refine(FirstStep(operator, 1 / 400), start_of(Q) * 20)
    plain = signs(FirstStep(operator, 1 / 400)(refined.labels).x)
    assert np.mean(plain != refined.labels) <= 2e-3


def test_one_step_leaves_the_papers_labels():
    Q = laplacian_of("gaussians", 100)
    step = FirstStep(as_operator(Q), 1 / 100)
    y = start_of(Q) * 10
    one = refine(step, y, max_iter=1)
    np.testing.assert_array_equal(one.labels, signs(FirstStep(as_operator(Q), 1 / 100)(y).x))
    assert len(one.merits) == 1


def test_changed_labels_are_solved_as_accurately_as_new_ones(rng):
    """The right side of a change is shorter, so that its relative accuracy may be lower."""
    n = 400
    operator = WatchedOperator(as_operator(random_spectrum(rng, n)[0]))
    step = FirstStep(operator, 0.1, rtol=1e-3)
    y = signs(rng.standard_normal(n))
    step(y)
    y[:100] *= -1
    step(y)
    assert len(operator.allowed) == 3
    np.testing.assert_allclose(operator.allowed, 1e-3 * np.sqrt(n))


@pytest.mark.parametrize("balance", [0.0, 1 / 3000, 0.5])
def test_constraints_hold_exactly_whatever_the_solves(monkeypatch, balance):
    """Rough solves are not those of a symmetric inverse: y'Z1 is not 1'Zy."""
    monkeypatch.setattr(sparse_module, "TWO_LEVEL_FROM", 1)
    n = 3000
    X, L = moons_graph(n)
    operator = SparseOperator(L, shift=1 / n, bounds=(0, 2))
    assert operator.solve(0.0, np.ones(n), rtol=1e-2).method == "two-level"
    step = FirstStep(operator, balance, rtol=1e-2)
    for column in X.T:
        y = signs(column - np.quantile(column, 0.4))
        x = step(y).x
        assert y @ x == pytest.approx(np.sqrt(n), rel=1e-9)
        assert abs(x.sum()) == pytest.approx(balance, abs=1e-9 * np.abs(x).sum())


def test_few_rows_settle_at_a_fixed_point_of_the_plain_step():
    """With fewer than 500 rows, two in a thousand means that no row moves."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        operator = as_operator(random_spectrum(rng, 60)[0])
        found = refine(FirstStep(operator, 0.1), signs(rng.standard_normal(60)), max_iter=100)
        assert found.settled
        np.testing.assert_array_equal(
            signs(FirstStep(operator, 0.1)(found.labels).x), found.labels
        )


def test_extrapolation_saves_steps(monkeypatch):
    n = 3000
    X, L = moons_graph(n)
    operator = SparseOperator(L, shift=1 / n, bounds=(0, 2))
    y = signs(X[:, 0] - np.median(X[:, 0]))
    extrapolated = refine(FirstStep(operator, 1 / n), y, max_iter=200)
    monkeypatch.setattr(descent, "MAX_BETA", 0.0)
    plain = refine(FirstStep(operator, 1 / n), y, max_iter=200)
    assert len(extrapolated.merits) < len(plain.merits)
