"""The Rand loss of more than two clusters: its search against all labellings, and its fits."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, rand_score

from volmar import MultivariateMMC
from volmar.margin.engine.descent import maximise_margin
from volmar.margin.engine.multivariate_losses import RandLoss
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.multiway.pair_search import most_violated_pairs
from volmar.margin.multiway.problem import MultiwayMarginProblem
from volmar.margin.multiway.rand import MultiwayRand, unit
from volmar.solvers import Status


def all_labellings(n, k):
    return np.array(list(itertools.product(range(k), repeat=n)))


def deltas(y, others):
    """One minus the Rand index, pair by pair."""
    i, j = np.triu_indices(y.size, 1)
    return ((others[:, i] == others[:, j]) != (y[i] == y[j])).mean(axis=1)


def slacks(y, f, rho, others):
    rows = np.arange(y.size)
    return rho * deltas(y, others) + (f[rows, others] - f[rows, y]).mean(axis=1)


def case(rng, n, k):
    f = rng.normal(size=(n, k)) * rng.choice([0.1, 0.3, 1.0, 3.0])
    y = np.argmax(f, axis=1) if rng.random() < 0.6 else rng.integers(0, k, n)
    if rng.random() < 0.3:
        f = np.round(2 * f) / 2
    return y, f, rng.choice([0.0, 0.1, 1.0, 30.0])


@pytest.mark.parametrize(("n", "k"), [(2, 3), (5, 3), (6, 3), (7, 3), (5, 4)])
def test_no_labelling_asks_for_more_slack(n, k):
    """The labelling found is the best of all k^n, and the bound holds for all of them."""
    rng = np.random.default_rng([n, k])
    others = all_labellings(n, k)
    for _ in range(25):
        y, f, rho = case(rng, n, k)
        found = most_violated_pairs(y, f, rho)
        exact = slacks(y, f, rho, others).max()
        scale = max(1.0, rho)
        assert found.slack == pytest.approx(slacks(y, f, rho, found.labels[None])[0], abs=1e-11)
        assert found.slack == pytest.approx(exact, abs=1e-11 * scale)
        assert found.upper >= exact - 1e-9 * scale
        # The remaining difference is due to fractions of rows.
        assert found.upper <= exact + rho * (1e-3 + k**2 / (2 * n * (n - 1))) + 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(20, 120), k=st.integers(3, 4))
def test_the_bound_is_near_and_holds_against_local_search(seed, n, k):
    rng = np.random.default_rng(seed)
    y, f, rho = case(rng, n, k)
    found = most_violated_pairs(y, f, rho, max_boxes=1000)
    assert found.slack <= found.upper <= found.slack + rho * (1e-3 + k**2 / (2 * n * (n - 1)))
    # No change of one row is better, and labels drawn at random stay below the bound.
    single = np.repeat(found.labels[None], n * k, axis=0)
    single[np.arange(n * k), np.repeat(np.arange(n), k)] = np.tile(np.arange(k), n)
    for others in (single, rng.integers(0, k, (200, n)), rng.permuted(single, axis=1)):
        assert slacks(y, f, rho, others).max() <= found.upper + 1e-9 * max(1.0, rho)


def test_the_number_of_boxes_does_not_grow_with_the_rows():
    rng = np.random.default_rng(0)
    for n in (200, 5000):
        f = rng.normal(size=(n, 3)) + 2 * np.eye(3)[rng.integers(0, 3, n)]
        found = most_violated_pairs(np.argmax(f, axis=1), f, 1.0)
        assert found.upper - found.slack <= 1e-3
        assert found.n_boxes <= 100


def test_few_boxes_leave_a_valid_bound():
    rng = np.random.default_rng(1)
    y, f = rng.integers(0, 3, 7), rng.normal(size=(7, 3))
    exact = slacks(y, f, 1.0, all_labellings(7, 3)).max()
    found = [most_violated_pairs(y, f, 1.0, max_boxes=boxes) for boxes in (1, 5, 400)]
    assert all(one.slack - 1e-12 <= exact <= one.upper + 1e-9 for one in found)
    assert found[0].upper >= found[2].upper


def test_two_clusters_are_those_of_the_sorted_flips():
    rng = np.random.default_rng(2)
    for _ in range(10):
        y, f = rng.integers(0, 2, 30), rng.normal(size=30)
        # f_1 - f_0 = 2 f: a flip costs 2 y f / n, as in the loss of two clusters.
        found = most_violated_pairs(y, np.column_stack([-f, f]), 0.7, tol=1e-5)
        exact = RandLoss().violated(np.where(y == 1, 1.0, -1.0), f, 0.7).xi
        assert found.slack == pytest.approx(exact, abs=5e-3)
        assert found.slack - 1e-12 <= exact <= found.upper + 1e-9


# ---------------------------------------------------------------------- the loss


def test_values_are_rand_scores_with_offsets():
    rng = np.random.default_rng(3)
    beta = np.array([0.1, -0.3, 0.2])
    y, other = rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    chosen = np.where(other == y, 0, other + 1)
    expected = 1 - rand_score(y, other) + (beta[other] - beta[y]).mean()
    assert MultiwayRand(beta).value(y, chosen) == pytest.approx(expected, abs=1e-12)
    y = np.repeat([0, 1, 2], 200)
    first = MultiwayRand(np.zeros(3)).first(y, None)
    assert first.m == pytest.approx(1 / unit(3), abs=2e-3)


def test_the_objective_is_between_those_of_all_constraints():
    """The convex problem of the labels found, with all 3^7 labellings as constraints."""
    rng = np.random.default_rng(4)
    n, k, C = 7, 3, 4.0
    centers = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    start = np.array([0, 0, 0, 1, 1, 2, 2])
    X = rng.normal(size=(n, 2)) * 0.7 + centers[start]
    problem = MultiwayMarginProblem(LinearSpace(X), MultiwayRand(np.zeros(k)), min_share=1 / n)
    result = maximise_margin(problem, start, C=C, tol=1e-5)
    y, f = result.labels, result.scores
    assert result.status is Status.CONVERGED
    others = all_labellings(n, k)
    slack = slacks(y, f, result.rho, others).max()
    J = 0.5 * result.square - result.rho + C * slack
    assert result.objective == pytest.approx(J, abs=1e-9)
    error = problem.loss.error(y, f, result.rho)
    assert 0.0 <= error <= result.rho * (1e-3 + k**2 / (2 * n * (n - 1)))
    W, rho, xi = cp.Variable((2, k)), cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    Z = X - X.mean(axis=0)
    rows = np.arange(n)
    flips = np.zeros((len(others), n, k))
    flips[:, rows, y] += 1.0 / n
    for i in rows:
        flips[np.arange(len(others)), i, others[:, i]] -= 1.0 / n
    A = np.einsum("sik,id->sdk", flips, Z).reshape(len(others), -1)
    constraints = [A @ cp.vec(W, order="C") >= rho * deltas(y, others) - xi]
    model = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) - rho + C * xi), constraints)
    model.solve(solver=cp.CLARABEL)
    assert result.lower_bound - 1e-6 <= model.value <= J + 1e-6
    assert pytest.approx(model.value, abs=2e-5 * abs(J) + 1e-6) == J


# ---------------------------------------------------------------------- fits


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_three_groups_at_once(kernel):
    X, y = make_blobs(120, centers=[[0, 0], [8, 0], [0, 8]], random_state=0)
    model = MultivariateMMC(3, loss="rand", multiway="joint", kernel=kernel, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert not hasattr(model, "tree_")
    scores = model.decision_function(X)
    assert scores.shape == (120, 3)
    np.testing.assert_array_equal(np.argmax(scores, axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.objective_ - model.result_.gap <= model.result_.lower_bound + 1e-9
    assert model.result_.gap <= 0.05 * abs(model.objective_)
    if kernel == "linear":
        assert (model.coef_.shape, model.intercept_.shape) == ((3, 2), (3,))
        np.testing.assert_allclose(scores, X @ model.coef_.T + model.intercept_, atol=1e-9)


def test_iris_at_once_is_better_than_by_splits():
    X, y = load_iris(return_X_y=True)
    settings = {"loss": "rand", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        joint = MultivariateMMC(3, multiway="joint", **settings).fit(X)
        splits = MultivariateMMC(3, **settings).fit(X)
    assert adjusted_rand_score(y, joint.labels_) > 0.7 > adjusted_rand_score(y, splits.labels_)
    assert hasattr(splits, "tree_")


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"loss": "nmi"}, "loss='nmi' cannot be used for n_clusters=.*loss='rand'"),
        ({"loss": "rand", "mode": "paper"}, "mode='paper' has no meaning"),
        ({"loss": "rand", "threshold": "fixed"}, "threshold='fixed' has no meaning"),
        ({"loss": "rand", "balance": 0.1}, "balance=0.1 has no meaning"),
        ({"loss": "rand", "C": 0.5}, "C=0.5 is too small"),
        ({"loss": "rand", "min_cluster_size": 0.4}, "min_cluster_size"),
        ({"multiway": "pairwise"}, "multiway must be"),
    ],
)
def test_what_has_no_joint_problem_is_refused(parameters, match):
    X, _ = make_blobs(60, centers=3, random_state=0)
    with pytest.raises(ValueError, match=match):
        MultivariateMMC(3, **{"multiway": "joint", **parameters}).fit(X)


def test_a_minimum_size_is_for_clusters_at_once():
    X, _ = make_blobs(60, centers=3, random_state=0)
    with pytest.raises(ValueError, match="min_cluster_size=5 is only used for more than two"):
        MultivariateMMC(3, loss="rand", min_cluster_size=5).fit(X)
    settings = {"loss": "rand", "multiway": "joint", "random_state": 0}
    model = MultivariateMMC(3, min_cluster_size=15, **settings).fit(X)
    assert np.bincount(model.labels_).min() >= 15
