"""A sample first: the result and the certificate are those of all rows."""

import dask.array as da
import numpy as np
import pytest

from volmar import CPMMC
from volmar.distributed import report_passes
from volmar.margin.engine import descent as sampling
from volmar.margin.engine.descent import first_sample, maximise_margin
from volmar.margin.engine.multivariate_losses import RandLoss
from volmar.margin.engine.problem import HingeLoss, MarginProblem
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.solvers import Status

TOL = 0.01


@pytest.fixture
def few_are_many(monkeypatch):
    """Samples of a fifth of the rows from 2,000 rows on."""
    monkeypatch.setattr(sampling, "MANY_ROWS", 2_000)
    monkeypatch.setattr(sampling, "SAMPLE_SHARE", 0.2)


def groups(n=3_000, d=4, k=2, seed=0, shift=4.0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    X = rng.standard_normal((n, d))
    X += shift * rng.standard_normal((k, d))[truth]
    return X, truth


def both_ways(X, monkeypatch, sample_weight=None, **params):
    """Return the fits with a sample first and without."""
    model = CPMMC(random_state=0, **params).fit(X, sample_weight=sample_weight)
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "MANY_ROWS", np.inf)
        other = CPMMC(random_state=0, **params).fit(X, sample_weight=sample_weight)
    return model, other


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_few_passes_to_the_same_clusters(few_are_many, monkeypatch, dtype, k, weighted):
    X, _ = groups(k=k)
    weights = np.random.default_rng(1).integers(0, 3, len(X)) if weighted else None
    model, other = both_ways(X.astype(dtype), monkeypatch, weights, n_clusters=k)
    assert model.result_.n_passes < other.result_.n_passes
    for one in (model, other):
        assert one.result_.status is Status.CONVERGED
        assert one.result_.gap <= TOL * abs(one.objective_)
    # Both are within the tolerance of the optimum of the same labels.
    assert model.objective_ == pytest.approx(other.objective_, rel=2 * TOL)
    assert np.mean(model.labels_ == other.labels_) > 0.995


def test_the_bound_is_one_of_all_rows(few_are_many):
    """No hyperplane is below the bound: a far more exact descent from the labels stays above."""
    X, _ = groups(shift=0.8)
    problem = MarginProblem(LinearSpace(X), HingeLoss(), tau=0.05)
    labels = X[:, 0] > 0
    result = maximise_margin(problem, labels, C=2.0, sample=first_sample(problem, labels, 0))
    exact = maximise_margin(problem, result.labels, C=2.0, tol=1e-5)
    assert result.objective - result.gap == pytest.approx(result.lower_bound)
    # Relabelling may lower it further than the labels of the result allow.
    own = problem.loss.violated(np.where(result.labels > 0, 1.0, -1.0), exact.scores, exact.rho)
    J = problem.objective(exact.square, exact.rho, own.xi, 2.0)
    assert result.lower_bound <= J + 1e-9


def test_unequal_sizes(few_are_many, monkeypatch):
    X, _ = groups()
    X[: len(X) // 10] += 20.0
    model, other = both_ways(X, monkeypatch)
    assert model.balance_ == pytest.approx(other.balance_)
    np.testing.assert_array_equal(model.labels_, other.labels_)


def test_a_sample_that_leads_nowhere_is_left(few_are_many):
    X, _ = groups()
    problem = MarginProblem(LinearSpace(X), HingeLoss(), tau=0.05)
    labels = X[:, 0] > 0
    sample = first_sample(problem, labels, 0)
    alike = sample._replace(problem=problem.on(LinearSpace(np.ones((50, 4))), np.arange(50)))
    alike = alike._replace(labels=np.arange(50) % 2)
    found = maximise_margin(problem, labels, C=2.0, sample=alike)
    plain = maximise_margin(problem, labels, C=2.0)
    assert found.objective == plain.objective
    assert found.n_iter == plain.n_iter


def test_who_has_no_sample(few_are_many):
    X, _ = groups()
    labels = X[:, 0] > 0
    few, many = X[:1_000], np.repeat(X, 60, axis=1)
    assert first_sample(MarginProblem(LinearSpace(few), HingeLoss()), labels, 0) is None
    # A quarter of the rows has fewer than 100 rows for each of 240 features.
    assert first_sample(MarginProblem(LinearSpace(many), HingeLoss()), labels, 0) is None
    assert first_sample(MarginProblem(LinearSpace(X), RandLoss()), labels, 0) is None
    K = KernelSpace(X @ X.T)
    assert first_sample(MarginProblem(K, HingeLoss()), labels, 0) is None


@pytest.mark.parametrize("k", [2, 4])
def test_rows_in_blocks(few_are_many, monkeypatch, k):
    X, _ = groups(k=k)
    blocks = da.from_array(X, chunks=(1_000, 4))
    passes, passes_of_all = [], []
    with report_passes(passes.append):
        model = CPMMC(k, random_state=0).fit(blocks)
    memory = CPMMC(k, random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_.compute(), memory.labels_)
    assert model.objective_ == pytest.approx(memory.objective_, rel=1e-9)
    monkeypatch.setattr(sampling, "MANY_ROWS", np.inf)
    with report_passes(passes_of_all.append):
        CPMMC(k, random_state=0).fit(blocks)
    assert len(passes) < len(passes_of_all)


def test_the_answer_is_repeatable(few_are_many):
    X, _ = groups(shift=0.5)
    one, two = (CPMMC(random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.objective_ == two.objective_
