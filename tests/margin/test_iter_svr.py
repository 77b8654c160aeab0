"""L1 regression, bias rules and IterSVR: certificates, brute force, invariance, edges."""

import itertools
import pickle
import re

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar.datasets import make_blobs, make_two_circles
from volmar.margin.engine.kernel_starts import kernel_k_means_start
from volmar.margin.engine.starts import principal_start
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.iter_svr import IterSVR
from volmar.margin.relaxations.bias_rules import least_loss_cut, widest_gap_cut
from volmar.margin.relaxations.iter_svr_solver import iterate_svr
from volmar.metrics import clustering_error
from volmar.solvers import Status
from volmar.solvers.l1_regression import balanced, solve_l1_regression

TIGHT = {"tol": 1e-8}


@pytest.fixture
def groups(rng):
    """Two groups of 20 and 40 rows in 5 features, 6 spreads apart."""
    X = rng.standard_normal((60, 5))
    X[:20] += [4.0, 4.0, 2.0, 0.0, 0.0]
    return X


@pytest.fixture
def start(groups):
    """Start labels that are wrong for some rows."""
    return (groups[:, 0] > 1.0).astype(int)


def noisy_labels(rng, n):
    return np.where(rng.random(n) < 0.4, 1.0, -1.0)


def reference(X, y, c):
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    loss = 0.5 * cp.sum_squares(w) + c @ cp.abs(y - X @ w - b)
    problem = cp.Problem(cp.Minimize(loss))
    problem.solve(solver=cp.CLARABEL)
    return problem.value


def dual_value(result, X, y, c):
    """The dual's value, after checking that the point is feasible."""
    beta = result.dual
    assert np.all(np.abs(beta) <= c * (1 + 1e-12))
    assert abs(beta.sum()) <= 1e-9 * max(c.sum(), 1e-300)
    w = (X - X.mean(axis=0)).T @ beta
    return beta @ y - 0.5 * w @ w


# ---------------------------------------------------------------------- the regression


@pytest.mark.parametrize("kind", ["features", "kernel"])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("shape", [(30, 3), (60, 5), (25, 60)])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_agrees_with_an_independent_solver(rng, kind, C, shape, weighted):
    n, d = shape
    X = rng.standard_normal((n, d)) + 2.0
    y = noisy_labels(rng, n)
    s = rng.integers(0, 4, n).astype(float) if weighted else None
    c = C * (np.ones(n) if s is None else s)
    space = LinearSpace(X, s)
    if kind == "kernel":
        space = KernelSpace(X @ X.T, s)
    result = solve_l1_regression(space, y, C, tol=1e-6)
    assert result.status is Status.CONVERGED
    assert result.objective == pytest.approx(reference(X, y, c), rel=1e-5)
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


def test_a_large_price_is_least_absolute_deviations(rng):
    X = rng.standard_normal((50, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.7
    y[:10] += 20 * rng.random(10)  # outliers, which the median does not see
    result = solve_l1_regression(LinearSpace(X), y, 1e4, tol=1e-7)
    np.testing.assert_allclose(result.normal, [1.0, -2.0, 0.5], atol=1e-3)
    np.testing.assert_allclose(result.scores[10:], y[10:], atol=1e-3)


def test_a_small_price_puts_every_coefficient_at_an_end(rng):
    X, y = rng.standard_normal((30, 4)), np.repeat([-1.0, 1.0], 15)
    C = 1e-6
    result = solve_l1_regression(LinearSpace(X), y, C, tol=1e-10)
    np.testing.assert_allclose(result.normal, C * X.T @ y, rtol=1e-6)


def test_a_warm_start_gives_the_same_answer_in_fewer_steps(rng):
    X = rng.standard_normal((300, 6))
    space = LinearSpace(X)
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(300) > 0, 1.0, -1.0)
    first = solve_l1_regression(space, y, 0.1, tol=1e-3)
    y[:3] *= -1
    cold = solve_l1_regression(space, y, 0.1, tol=1e-3)
    warm = solve_l1_regression(space, y, 0.1, start=first, tol=1e-3)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-3)
    assert warm.n_iter < cold.n_iter
    # Nor do targets that have little to do with the first ones lead astray.
    first = solve_l1_regression(space, y, 0.1, tol=1e-7)
    other = np.where(X[:, 1] > 0, 1.0, -1.0)
    far = solve_l1_regression(space, other, 0.1, start=first, tol=1e-7)
    assert far.status is Status.CONVERGED


def test_many_features_go_by_conjugate_gradients(rng, monkeypatch):
    X, y = rng.standard_normal((40, 30)), noisy_labels(rng, 40)
    s = rng.uniform(0.5, 2.0, 40)
    direct = solve_l1_regression(LinearSpace(X, s), y, 0.05, tol=1e-5)
    monkeypatch.setattr("volmar.margin.feature_space.linear.DIRECT_UP_TO", 10)
    space = LinearSpace(X, s)
    indirect = solve_l1_regression(space, y, 0.05, tol=1e-5)
    assert indirect.status is Status.CONVERGED
    assert space.n_passes > 2 * indirect.n_iter
    assert indirect.objective == pytest.approx(direct.objective, rel=3e-5)


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
    value = reference(X, targets, np.full(12, 0.5))
    assert result.objective == pytest.approx(value, abs=1e-6)


def test_balanced_stays_within_and_sums_to_zero(rng):
    for _ in range(20):
        beta = rng.standard_normal(9)
        even = balanced(beta)
        assert abs(even.sum()) < 1e-12
        assert np.all(np.abs(even) <= np.abs(beta) + 1e-15)
        assert np.all(even * beta >= 0)


def test_a_high_price_keeps_the_descent_and_the_coefficients_sum(rng):
    """Flat between kinks, the slope is small far beyond the minimum, too: only a fall counts.

    Of rows far from the origin the kernel's large common part must not eat the sum of t.
    """
    X = rng.standard_normal((40, 4))
    X[:18] += 4.0
    y = np.where(np.arange(40) < 18, 1.0, -1.0)
    for C in (1e4, 1e6):
        value = reference(X, y, np.full(40, C))
        for space in (LinearSpace(X), KernelSpace(X @ X.T)):
            result = solve_l1_regression(space, y, C, tol=1e-4)
            assert result.status is Status.CONVERGED
            assert result.objective == pytest.approx(value, rel=2e-4)
            assert result.objective - result.gap <= value * (1 + 1e-6)
        assert abs(result.normal[0].sum()) <= 1e-9 * C
        # Scores and norm are those of the coefficients, not a sum of the steps' roundings.
        w = (X - X.mean(axis=0)).T @ result.normal[0]
        np.testing.assert_allclose(
            result.scores - result.intercept, (X - X.mean(axis=0)) @ w, atol=1e-6
        )


def test_an_intercept_between_rows_leaves_room_for_a_step():
    """Half of the rows on either side and none within the width: every b between is as good."""
    rng = np.random.default_rng(65)
    for _ in range(30):
        x = rng.standard_normal((14, 1))
        y = np.where(rng.random(14) < 0.5, 1.0, -1.0)
        result = solve_l1_regression(KernelSpace(x @ x.T), y, 0.3, tol=1e-6)
        assert result.status is Status.CONVERGED
        assert result.n_iter < 80


def test_the_bound_is_never_below_that_of_nothing(rng):
    """beta = 0 is a point of the dual: no gap is wider than the objective."""
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
    value = reference(X.astype(float), y, np.full(12, C))
    assert result.objective == pytest.approx(value, rel=2e-2)


def test_converged_is_said_of_the_gap_that_is_returned(rng):
    """The answer's own scores are what counts, not those that the steps added up to."""

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


# ---------------------------------------------------------------------- bias rules


def loss_of(g, labels, s):
    """Least weighted L1 loss over a common bias, by trying every kink."""
    y = 2.0 * labels - 1
    return min(s @ np.abs(y - g - b) for b in y - g)


@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("floor", [1.0, 3.0])
def test_least_loss_cut_is_the_best_of_all_labellings(rng, size, floor):
    """Of all 2^8 where rows weigh the same, and of all cuts where they do not."""
    every = [np.array(bits) for bits in itertools.product([0, 1], repeat=8)]
    for trial in range(8):
        g = size * rng.standard_normal(8)
        s = np.ones(8) if trial < 5 else rng.integers(1, 3, 8).astype(float)
        cut = least_loss_cut(g, s, floor, 0.0)
        found = loss_of(g, cut.labels, s)
        labellings = every if trial < 5 else [(g > threshold).astype(int) for threshold in g]
        allowed = [y for y in labellings if floor <= s @ y <= s.sum() - floor]
        assert found == pytest.approx(min(loss_of(g, y, s) for y in allowed), rel=1e-10)
        assert floor <= s @ cut.labels <= s.sum() - floor
        np.testing.assert_array_equal(g + cut.bias > 0, cut.labels == 1)


def test_small_scores_are_cut_as_unevenly_as_allowed(rng):
    g = 1e-3 * rng.standard_normal(50)
    for floor in (1, 5, 20):
        labels = least_loss_cut(g, None, floor, 0.0).labels
        assert min(labels.sum(), 50 - labels.sum()) == floor


def test_widest_gap_cut(rng):
    g = np.concatenate([rng.uniform(-3, -2, 30), rng.uniform(0, 1, 20), [40.0]])
    np.testing.assert_array_equal(widest_gap_cut(g, None, 1, 0.0).labels, g > 30)
    cut = widest_gap_cut(g, None, 5, 0.0)
    np.testing.assert_array_equal(cut.labels, g > -1.5)
    assert -cut.bias == pytest.approx(0.5 * (g[:30].max() + g[30:].min()))
    # Rows without weight do not fill a gap, nor count for a side.
    weights = np.ones(52)
    weights[-1] = 0
    filled = widest_gap_cut(np.append(g, -1.0), weights, 5, 0.0)
    assert filled.bias == pytest.approx(cut.bias)


def test_where_no_cut_is_even_enough_the_most_even_one_is_made():
    g = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 5.0])
    for rule in (widest_gap_cut, least_loss_cut):
        np.testing.assert_array_equal(rule(g, None, 3, 0.0).labels, [0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("rule", [widest_gap_cut, least_loss_cut])
def test_neighbouring_numbers_can_be_cut(rule):
    """The middle of two neighbours in floating point is one of them."""
    for low in (1e8, 3.0, np.nextafter(3.0, 4.0), -5.0):
        g = np.array([low, np.nextafter(low, np.inf)])
        cut = rule(g, None, 1, 0.0)
        np.testing.assert_array_equal(cut.labels, [0, 1])
        np.testing.assert_array_equal(g + cut.bias > 0, [False, True])


# ---------------------------------------------------------------------- the loop


@pytest.mark.parametrize("C", [0.003, 0.03, 1.0])
@pytest.mark.parametrize("kind", ["features", "kernel"])
def test_the_objective_of_least_loss_never_rises(rng, C, kind):
    moved = 0
    for _ in range(6):
        X = rng.standard_normal((80, 4)) * [3, 1, 1, 1]
        X[:35, 0] += 5
        space = LinearSpace(X) if kind == "features" else KernelSpace(rbf_kernel(X))
        labels = rng.permutation(80) < 40
        result = iterate_svr(space, labels, C, least_loss_cut, floor=30, tol=1e-8, max_iter=200)
        assert result.status is Status.CONVERGED
        assert result.residuals["switched"] == 0.0
        history = np.array(result.history)
        assert np.all(np.diff(history) <= 1e-7 * history[0])
        assert 30 <= result.labels.sum() <= 50
        moved += result.n_iter - 1
    assert moved > 3


def test_uneven_labels_of_one_cloud_are_degenerate(rng):
    """The least loss is that of a constant, at every price; the round before is kept."""
    X = rng.standard_normal((200, 3))
    space = LinearSpace(X)
    first = (X[:, 0] > 0).astype(int)
    result = iterate_svr(space, first, 0.02, least_loss_cut, floor=8)
    assert result.status is Status.DEGENERATE
    assert result.labels.size == 200
    uneven = rng.permutation(200) < 10
    for C in (0.01, 10.0):
        value = reference(X, 2.0 * uneven - 1, np.full(200, C))
        assert value == pytest.approx(2 * C * 10, rel=1e-6)
        nothing = iterate_svr(space, uneven, C, least_loss_cut, floor=8)
        assert nothing.status is Status.DEGENERATE
        assert nothing.labels.size == 0
    with pytest.raises(ValueError, match="labels of the start is no better than a constant"):
        IterSVR(kernel="linear", init=uneven).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"no better than a constant.*min_cluster_size"):
        model = IterSVR(kernel="linear", init=first, bias="balance", min_cluster_size=8).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_cycle_ends_with_the_best_of_it(rng):
    """A rule that goes round in a circle of three labellings."""
    X = rng.standard_normal((20, 3))
    space = LinearSpace(X)
    circle = [X[:, j] > np.median(X[:, j]) for j in range(3)]
    calls = itertools.count()

    def rule(g, weights, floor, bias):
        cut = least_loss_cut(g, weights, floor, bias)
        return cut._replace(labels=circle[next(calls) % 3].astype(np.int64))

    result = iterate_svr(space, np.arange(20) % 2, 0.1, rule, floor=1, max_iter=50, tol=1e-7)
    assert result.status is Status.CYCLE
    assert result.n_iter < 12
    assert result.objective == pytest.approx(min(result.history[1:]), rel=1e-6)
    assert result.residuals["switched"] > 0


def test_gap_cycles_or_settles_but_always_ends(rng):
    statuses = set()
    for _ in range(30):
        X = rng.standard_normal((30, 2))
        space = KernelSpace(rbf_kernel(X))
        result = iterate_svr(
            space, rng.permutation(30) < 15, 0.3, widest_gap_cut, floor=3, max_iter=500
        )
        statuses.add(result.status)
        assert result.n_iter < 500
    assert statuses <= {Status.CONVERGED, Status.CYCLE}


def test_a_regression_that_failed_is_not_a_fixed_point_found(groups, start):
    """No tolerance is met below rounding: the status says so, with the remedy."""
    space = KernelSpace(rbf_kernel(groups, gamma=0.1))
    result = iterate_svr(space, start, 0.5, widest_gap_cut, floor=6, tol=1e-300)
    assert result.residuals["switched"] == 0.0
    assert result.status is Status.FAILED
    with pytest.warns(ConvergenceWarning, match=r"gap .* above tol=1e-300.*[Rr]aise tol"):
        model = IterSVR(init=start, tol=1e-300).fit(groups)
    assert model.status_ is Status.FAILED
    np.testing.assert_array_equal(model.predict(groups), model.labels_)


# ---------------------------------------------------------------------- the estimator

KINDS = [
    {"kernel": "linear"},
    {"gamma": 0.1},
    {"gamma": 0.1, "method": "nystroem", "n_landmarks": 30},
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("bias", ["gap", "balance"])
@pytest.mark.parametrize("init", ["k-means", "principal", "random"])
def test_groups_are_found_and_predicted(groups, options, bias, init):
    model = IterSVR(bias=bias, init=init, n_init=3, random_state=0, **options).fit(groups)
    assert model.status_ is Status.CONVERGED
    assert clustering_error(np.arange(60) < 20, model.labels_) <= 0.05
    np.testing.assert_array_equal(model.predict(groups), model.labels_)
    f = model.decision_function(groups)
    np.testing.assert_allclose(f, model.result_.scores, atol=1e-9)
    np.testing.assert_array_equal(f > 0, model.labels_ == 1)
    assert model.n_iter_ == model.result_.n_iter == len(model.result_.history)
    assert model.objective_ == model.result_.history[-1]
    assert model.result_.gap <= 1e-3 * model.objective_


def test_circles_need_the_kernel():
    X, y = make_two_circles(120, random_state=0)
    inside = (np.hypot(*X.T) < np.median(np.hypot(*X.T))).astype(int)
    inside[::10] = 1 - inside[::10]
    rbf = IterSVR(gamma=2.0 / X.var(), C=1.0, init=inside, bias="balance").fit(X)
    assert clustering_error(y, rbf.labels_) < 0.03
    with pytest.raises(ValueError, match="nothing to do with the rows"):
        IterSVR(kernel="linear", C=1.0, init=inside).fit(X)


@pytest.mark.parametrize("pair", [(1, 7), (2, 7), (3, 8)])
def test_pairs_of_digits(pair):
    digits = load_digits()
    kept = np.isin(digits.target, pair)
    model = IterSVR(random_state=0).fit(digits.data[kept])
    assert clustering_error(digits.target[kept], model.labels_) < 0.07


def test_linear_is_precomputed_is_its_rows(groups, start, rng):
    linear = IterSVR(kernel="linear", init=start, bias="balance", **TIGHT).fit(groups)
    new = rng.standard_normal((7, 5))
    K = IterSVR(kernel="precomputed", init=start, bias="balance", **TIGHT).fit(groups @ groups.T)
    np.testing.assert_array_equal(linear.labels_, K.labels_)
    assert K.objective_ == pytest.approx(linear.objective_, rel=1e-7)
    assert pytest.approx(linear.C_) == K.C_
    np.testing.assert_allclose(
        K.decision_function(new @ groups.T), linear.decision_function(new), atol=1e-4
    )
    scores = new @ linear.coef_[0] + linear.intercept_[0]
    np.testing.assert_allclose(linear.decision_function(new), scores, atol=1e-12)
    assert abs(K.dual_coef_.sum()) < 1e-9
    assert not hasattr(linear, "dual_coef_")
    assert not hasattr(K, "coef_")


def test_precomputed_is_the_named_kernel(groups, start, rng):
    named = IterSVR(gamma=0.1, init=start, **TIGHT).fit(groups)
    given = IterSVR(kernel="precomputed", init=start, **TIGHT).fit(rbf_kernel(groups, gamma=0.1))
    np.testing.assert_array_equal(named.labels_, given.labels_)
    new = rng.standard_normal((7, 5))
    k = rbf_kernel(new, groups, gamma=0.1)
    np.testing.assert_allclose(given.decision_function(k), named.decision_function(new), atol=1e-6)
    np.testing.assert_allclose(
        k @ named.dual_coef_ + named.intercept_, named.decision_function(new), atol=1e-9
    )
    auto = IterSVR(kernel="precomputed", random_state=0).fit(rbf_kernel(groups, gamma=0.1))
    assert clustering_error(np.arange(60) < 20, auto.labels_) <= 0.05


def test_all_rows_as_landmarks_are_the_exact_kernel(groups, start):
    exact = IterSVR(init=start, **TIGHT).fit(groups)
    nystroem = IterSVR(init=start, method="nystroem", n_landmarks=60, **TIGHT).fit(groups)
    np.testing.assert_array_equal(exact.labels_, nystroem.labels_)
    assert nystroem.objective_ == pytest.approx(exact.objective_, rel=1e-5)


@pytest.mark.parametrize("bias", ["gap", "balance"])
@pytest.mark.parametrize("options", KINDS[:2])
def test_dense_is_csr(groups, start, options, bias):
    groups[np.abs(groups) < 0.5] = 0
    dense = IterSVR(init=start, bias=bias, **options, **TIGHT).fit(groups)
    csr = IterSVR(init=start, bias=bias, **options, **TIGHT).fit(sparse.csr_array(groups))
    np.testing.assert_array_equal(dense.labels_, csr.labels_)
    assert csr.objective_ == pytest.approx(dense.objective_, rel=1e-7)
    np.testing.assert_array_equal(csr.predict(sparse.csr_array(groups)), csr.labels_)


@pytest.mark.parametrize("C", ["scale", 0.05])
@pytest.mark.parametrize("bias", ["gap", "balance"])
@pytest.mark.parametrize("options", [{"kernel": "linear"}, {"gamma": "scale"}])
def test_weight_two_is_a_row_written_twice(groups, start, rng, options, bias, C):
    sizes = rng.integers(0, 4, 60)
    written = np.repeat(np.arange(60), sizes)
    parameters = {"bias": bias, "C": C, **options, **TIGHT}
    weighted = IterSVR(init=start, **parameters).fit(groups, sample_weight=sizes)
    twice = IterSVR(init=start[written], **parameters).fit(groups[written])
    np.testing.assert_array_equal(weighted.labels_[written], twice.labels_)
    assert weighted.objective_ == pytest.approx(twice.objective_, rel=1e-6)
    assert pytest.approx(twice.C_, rel=1e-9) == weighted.C_
    plain = IterSVR(init=start, **parameters).fit(groups)
    assert abs(weighted.objective_ / plain.objective_ - 1) > 1e-4


@pytest.mark.parametrize("options", KINDS)
def test_a_common_factor_of_the_weights_changes_nothing(groups, rng, options):
    weights = rng.uniform(0.5, 2.0, 60)
    one = IterSVR(random_state=0, **options).fit(groups, sample_weight=weights)
    seven = IterSVR(random_state=0, **options).fit(groups, sample_weight=7 * weights)
    np.testing.assert_array_equal(one.labels_, seven.labels_)
    assert pytest.approx(one.C_ / 7) == seven.C_
    assert seven.objective_ == pytest.approx(one.objective_, rel=2e-3)


@pytest.mark.parametrize("options", KINDS[1:])
def test_rows_without_weight_have_no_say(groups, start, rng, options):
    weights = np.ones(60)
    weights[::6] = 0.0
    kept = weights > 0
    wild = groups.copy()
    wild[~kept] = 30 * wild[~kept] + 100
    options = {**options, "method": "exact", "bias": "balance"}
    one = IterSVR(init=start, **options, **TIGHT).fit(wild, sample_weight=weights)
    other = IterSVR(init=start[kept], **options, **TIGHT).fit(groups[kept])
    np.testing.assert_array_equal(one.labels_[kept], other.labels_)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-7)


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}, {"method": "nystroem"}])
@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e148])
def test_scale_of_x_is_of_no_matter(groups, options, scale):
    labels = IterSVR(random_state=0, **options).fit(groups).labels_
    scaled = IterSVR(random_state=0, **options).fit(groups * scale)
    np.testing.assert_array_equal(scaled.labels_, labels)
    np.testing.assert_array_equal(scaled.predict(groups * scale), labels)


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}])
@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e6), (np.float32, 1e4)])
def test_an_offset_is_of_no_matter(groups, options, dtype, offset):
    far = (groups + offset).astype(dtype)
    near = far.astype(np.float64) - offset
    if not options:
        options = {"gamma": 0.1}
    one = IterSVR(random_state=0, **options).fit(near)
    other = IterSVR(random_state=0, **options).fit(far)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.objective_ == pytest.approx(one.objective_, rel=5e-3)


@pytest.mark.parametrize("options", KINDS)
def test_float32_is_near_float64(groups, start, options):
    small = IterSVR(init=start, random_state=0, **options).fit(groups.astype(np.float32))
    large = IterSVR(init=start, random_state=0, **options).fit(groups)
    np.testing.assert_array_equal(small.labels_, large.labels_)
    assert small.objective_ == pytest.approx(large.objective_, rel=2e-3)
    np.testing.assert_array_equal(small.predict(groups.astype(np.float32)), small.labels_)


def test_permuted_rows_permute_the_labels(groups, start, rng):
    order = rng.permutation(60)
    one = IterSVR(init=start, **TIGHT).fit(groups)
    other = IterSVR(init=start[order], **TIGHT).fit(groups[order])
    np.testing.assert_array_equal(one.labels_[order], other.labels_)


def test_more_starts_are_not_worse(rng):
    X = rng.standard_normal((60, 4))
    options = {"init": "random", "bias": "balance", "random_state": 0}
    few = IterSVR(n_init=1, **options).fit(X)
    many = IterSVR(n_init=10, **options).fit(X)
    assert many.objective_ < few.objective_


def test_the_least_size_holds(rng):
    X = rng.standard_normal((50, 3))
    for size, fewest in ((10, 10), (0.4, 20), (1, 1)):
        for bias in ("gap", "balance"):
            model = IterSVR(min_cluster_size=size, bias=bias, random_state=0).fit(X)
            assert np.bincount(model.labels_, minlength=2).min() >= fewest


def test_a_degenerate_start_is_outdone_by_any_other(monkeypatch):
    """Uneven labels have the lowest loss, and a start that leads nowhere is no reason to stop."""
    X = np.exp(1.5 * np.random.default_rng(1).standard_normal((60, 4)))
    options = {"kernel": "linear", "init": "random", "random_state": 0}
    assert IterSVR(n_init=1, **options).fit(X).status_ is Status.CONVERGED
    assert IterSVR(n_init=10, **options).fit(X).status_ is Status.CONVERGED
    good, calls = (X[:, 0] > np.median(X[:, 0])).astype(int), itertools.count()

    def first_is_lonely(source, rng):
        return np.arange(60) == 7 if next(calls) == 0 else good

    monkeypatch.setattr("volmar.margin.iter_svr.random_start", first_is_lonely)
    model = IterSVR(n_init=2, **options).fit(X)
    assert model.status_ is Status.CONVERGED
    assert next(calls) == 2


# ---------------------------------------------------------------------- edges


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}, {"method": "nystroem"}])
@pytest.mark.parametrize("bias", ["gap", "balance"])
def test_two_rows(options, bias):
    X = np.array([[0.0, 1.0], [1.0, 1.0]])
    model = IterSVR(bias=bias, random_state=0, **options).fit(X)
    assert sorted(model.labels_) == [0, 1]
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("C", ["scale", 100.0])
@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}])
def test_duplicates_and_wide_rows(rng, options, C):
    twins = np.repeat([[0.0, 0.0], [3.0, 1.0]], [4, 6], axis=0)
    wide = rng.standard_normal((8, 40)) + np.repeat([[0.0], [3.0]], 4, axis=0)
    for X, truth in ((twins, np.arange(10) > 3), (wide, np.arange(8) > 3)):
        model = IterSVR(C=C, random_state=0, **options).fit(X)
        assert clustering_error(truth, model.labels_) == 0.0


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("options", [{"kernel": "linear"}, {"gamma": 1.0}])
def test_equal_rows_are_refused(options, value):
    with pytest.raises(ValueError, match="all 8 rows of X are the same"):
        IterSVR(init=np.arange(8) % 2, **options).fit(np.full((8, 2), value))


def test_pickle_clone_and_random_state(groups):
    model = IterSVR(random_state=3, init="random")
    assert clone(model).get_params() == model.get_params()
    model.fit(groups)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.decision_function(groups), model.decision_function(groups))
    np.testing.assert_array_equal(clone(model).fit(groups).labels_, model.labels_)
    assert dict(back.result_.residuals) == dict(model.result_.residuals)


@pytest.mark.parametrize("options", [{}, {"kernel": "precomputed"}, {"method": "nystroem"}])
def test_pickle_leaves_the_kernel_matrix_behind(rng, options):
    X = rng.standard_normal((400, 2)) + np.repeat([[0.0], [4.0]], 200, axis=0)
    K = rbf_kernel(X) if options.get("kernel") else X
    model = IterSVR(random_state=0, n_landmarks=10, **options).fit(K)
    assert len(pickle.dumps(model)) < 0.1 * 8 * 400**2


def test_an_early_end_warns(rng):
    X = rng.standard_normal((60, 4))
    with pytest.warns(ConvergenceWarning, match=r"after 1 regressions.*Raise max_iter"):
        model = IterSVR(max_iter=1, init="random", random_state=0).fit(X)
    assert model.status_ is Status.MAX_ITER
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.0}, ValueError, "C must be greater than 0"),
        ({"C": 1e300}, ValueError, r"C=1e\+300 is .* lower C"),
        ({"C": 1e300, "kernel": "linear"}, ValueError, r"C=1e\+300 is .* lower C"),
        ({"C": "auto"}, ValueError, "C must be one of 'scale'"),
        ({"bias": "median"}, ValueError, "bias must be one of 'balance', 'gap'"),
        ({"min_cluster_size": 0.6}, ValueError, "min_cluster_size must be .* at most 0.5"),
        ({"min_cluster_size": 0}, ValueError, "min_cluster_size must be at least 1"),
        ({"min_cluster_size": 31}, ValueError, "min_cluster_size=31 .* at most 30"),
        ({"init": "k means"}, ValueError, "init must be one of"),
        ({"init": np.zeros(60)}, ValueError, "init must hold n_clusters=2"),
        ({"init": np.arange(59) % 2}, ValueError, r"init must hold one label a row.*\(59,\)"),
        ({"method": "landmarks"}, ValueError, "method must be one of"),
        ({"method": "nystroem", "kernel": "linear"}, ValueError, "Use method='exact'"),
        ({"method": "nystroem", "kernel": "precomputed"}, ValueError, "Use method='exact'"),
        ({"n_landmarks": 1}, ValueError, "n_landmarks must be at least 2"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"gamma": -1.0}, ValueError, "gamma must be greater than 0"),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(groups, parameters, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        IterSVR(**parameters).fit(groups)


def test_a_kernel_that_is_none_is_refused(rng):
    K = rng.standard_normal((30, 30))
    K = K + K.T
    with pytest.raises(ValueError, match="not positive semi-definite"):
        IterSVR(kernel="precomputed", C=10.0, init=np.arange(30) % 2).fit(K)


@pytest.mark.parametrize("offset", [0.0, 10.0, 1e3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_kernel_that_was_rounded_is_a_kernel(rng, offset, dtype):
    for n, d in ((3, 1), (30, 5), (300, 1)):
        X = (rng.standard_normal((n, d)) + offset).astype(dtype)
        for K in (X @ X.T, (X @ X.T / d + 1) ** 3, rbf_kernel(X, gamma=1e-4)):
            assert KernelSpace(K.astype(np.float64)).is_gram()


@pytest.mark.parametrize("C", ["scale", 1e-3, 1.0])
def test_an_indefinite_kernel_is_refused_at_every_price(rng, C):
    """Its regression has no lower bound, so that a gap would be a lie."""
    K = rng.standard_normal((40, 40))
    K = K + K.T + 5 * np.eye(40)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        IterSVR(kernel="precomputed", C=C, init=np.arange(40) % 2).fit(K)
    # Rows without weight may be whatever they like.
    weights = np.r_[1.0, 1.0, np.zeros(38)]
    pair = IterSVR(kernel="precomputed", random_state=0).fit(K, sample_weight=weights)
    assert pair.labels_[0] != pair.labels_[1]
    # Minus the squared distances are a kernel as far as sums of zero go, which is all there is.
    X = rng.standard_normal((40, 3)) + np.repeat([[0.0], [4.0]], 20, axis=0)
    D = -((X[:, None] - X[None]) ** 2).sum(axis=2) / 2
    model = IterSVR(kernel="precomputed", C=C, random_state=0).fit(D)
    linear = IterSVR(kernel="linear", C=C, init=model.labels_).fit(X)
    assert model.objective_ == pytest.approx(linear.objective_, rel=2e-3)


def _sum_of_squares(K, labels):
    """Sum of squares within two clusters of a kernel matrix, from its definition."""
    total = K.trace()
    for side in (labels, ~labels):
        total -= K[np.ix_(side, side)].sum() / side.sum()
    return total


def test_kernel_k_means_start_is_a_fixed_point_of_lloyds_step():
    X, _ = make_two_circles(80, noise=0.02, random_state=0)
    K = rbf_kernel(X, gamma=2.0)
    labels = kernel_k_means_start(KernelSpace(K), np.random.default_rng(0))
    distances = np.empty((80, 2))
    for j, side in enumerate((~labels, labels)):
        inside = K[np.ix_(side, side)].mean()
        distances[:, j] = K.diagonal() - 2 * K[:, side].mean(axis=1) + inside
    np.testing.assert_array_equal(distances.argmin(axis=1), labels)
    first = principal_start(KernelSpace(K), np.random.default_rng(0))
    assert _sum_of_squares(K, labels) <= _sum_of_squares(K, first) + 1e-12


@pytest.mark.parametrize("init", ["kernel k-means", "spectral"])
@pytest.mark.parametrize("parameters", [{}, {"method": "nystroem"}, {"kernel": "linear"}])
def test_every_start_by_its_name(init, parameters):
    X, y = make_blobs(120, separation=7.0, random_state=0)
    model = IterSVR(init=init, random_state=0, **parameters).fit(X)
    assert clustering_error(y, model.labels_) <= 0.01


def test_a_spectral_start_follows_the_graph():
    """The rings fall apart on the graph, and IterSVR stays where it starts at a large C."""
    X, y = make_two_circles(200, noise=0.02, factor=0.4, random_state=0)
    model = IterSVR(init="spectral", C=500.0, gamma=2.0, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    with pytest.raises(ValueError, match="init='spectral' needs rows"):
        IterSVR(init="spectral", kernel="precomputed").fit(X @ X.T)
