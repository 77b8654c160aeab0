"""LGMMC: the programme over given labellings, label generation, the relaxation, the estimator."""

import itertools
import pickle
import re

import cvxpy as cp
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from volmar.datasets import make_two_circles
from volmar.margin.feature_space.sources import KernelSource, LinearSource
from volmar.margin.feature_space.subspace import Subspace
from volmar.margin.lgmmc import LGMMC
from volmar.margin.relaxations.label_generation import (
    balanced_labels,
    climb,
    largest_possible_square,
    measure,
)
from volmar.margin.relaxations.lgmmc_solver import generate_labels
from volmar.metrics import clustering_error
from volmar.rows import as_rows
from volmar.solvers import Status
from volmar.solvers.label_kernel_svm import solve_label_kernel_svm


def all_labellings(n, limit, weights=1.0):
    """Every labelling with |sum| at most `limit`, one of each pair y, -y."""
    ys = np.array([(1, *tail) for tail in itertools.product((-1, 1), repeat=n - 1)])
    return ys[np.abs((weights * ys).sum(axis=1)) <= limit].astype(float)


def saddle_by_cvxpy(Z, Y, C, weights=1.0):
    """The saddle's value, as a quadratically constrained programme in alpha."""
    alpha, top = cp.Variable(len(Z), nonneg=True), cp.Variable()
    cuts = [cp.sum_squares((Z * y[:, None]).T @ alpha) <= top for y in Y]
    roots = np.sqrt(weights * np.ones(len(Z)))
    goal = cp.Minimize(top + cp.sum_squares(cp.multiply(1.0 / roots, alpha)) / C)
    problem = cp.Problem(goal, [cp.sum(alpha) == 1, *cuts])
    problem.solve(solver=cp.CLARABEL)
    return -0.5 * problem.value


def machine_by_cvxpy(Z, y, C, weights=1.0):
    """The primal as printed (JMLR section 7.1) for one labelling."""
    w, rho, xi = cp.Variable(Z.shape[1]), cp.Variable(), cp.Variable(len(Z))
    roots = np.sqrt(weights * np.ones(len(Z)))
    loss = cp.sum_squares(cp.multiply(roots, xi))
    goal = cp.Minimize(0.5 * cp.sum_squares(w) - rho + 0.5 * C * loss)
    problem = cp.Problem(goal, [cp.multiply(y, Z @ w) >= rho - xi])
    problem.solve(solver=cp.CLARABEL)
    return problem.value, rho.value


def centred(rng, n, d):
    Z = rng.standard_normal((n, d))
    return Z - Z.mean(axis=0)


@pytest.fixture
def groups(rng):
    """Two groups of 25 and 35 rows in 5 features, 6 spreads apart."""
    X = rng.standard_normal((60, 5))
    X[:25] += [4.0, 4.0, 2.0, 0.0, 0.0]
    return X


TRUTH = np.arange(60) < 25

# ---------------------------------------------------------------------- given labellings


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_one_labelling_is_the_printed_machine(rng, C):
    Z = centred(rng, 15, 3)
    y = np.where(rng.random(15) < 0.5, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, y[None, :], C=C, tol=1e-10)
    value, rho = machine_by_cvxpy(Z, y, C)
    assert found.objective == pytest.approx(value, rel=1e-5)
    assert found.rho == pytest.approx(rho, rel=1e-4)
    np.testing.assert_allclose(found.normals[0], Z.T @ (found.alpha * y), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("n", "d", "T", "C"), [(12, 3, 6, 0.3), (25, 4, 9, 3.0), (40, 2, 5, 0.05)]
)
def test_the_saddle_is_that_of_cvxpy(seed, n, d, T, C):
    rng = np.random.default_rng(seed)
    Z = centred(rng, n, d)
    Y = np.where(rng.standard_normal((T, n)) > 0, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, Y, C=C, tol=1e-9)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(saddle_by_cvxpy(Z, Y, C), rel=1e-5)
    assert found.gap <= 1e-9 * abs(found.objective)
    # The certificate, written out again.
    assert found.alpha.min() >= 0
    assert found.alpha.sum() == pytest.approx(1.0)
    squares = np.square((Y * found.alpha) @ Z).sum(axis=1)
    dual = -0.5 * (squares.max() + found.alpha @ found.alpha / C)
    assert dual == pytest.approx(found.objective - found.gap, rel=1e-9)
    # Weight only where the square is the largest.
    assert np.all(squares[found.weights > 1e-6] >= squares.max() * (1 - 1e-4))
    assert found.weights.sum() == pytest.approx(1.0)


def test_the_saddle_falls_with_every_labelling_and_from_every_start(rng):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    values = [solve_label_kernel_svm(Z, Y[:T], C=0.5, tol=1e-9).objective for T in range(1, 9)]
    assert np.all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0]
    for _ in range(3):
        weights, alpha = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(30))
        again = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-9, weights=weights, alpha=alpha)
        assert again.objective == pytest.approx(values[-1], rel=1e-7)


def test_the_saddle_says_when_it_was_stopped(rng):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    exact = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-10)
    early = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-10, max_iter=1)
    assert early.status is Status.MAX_ITER
    assert early.objective - early.gap <= exact.objective <= early.objective
    assert early.gap > exact.gap


@pytest.mark.parametrize("scale", [1e-145, 1e-60, 1e145])
def test_the_saddle_in_any_units(rng, scale):
    Z = centred(rng, 30, 4)
    Y = np.where(rng.standard_normal((8, 30)) > 0, 1.0, -1.0)
    one = solve_label_kernel_svm(Z, Y, C=0.5, tol=1e-9)
    other = solve_label_kernel_svm(Z * scale, Y, C=0.5 / scale**2, tol=1e-9)
    assert other.status is Status.CONVERGED
    np.testing.assert_allclose(other.weights, one.weights, atol=1e-6)
    np.testing.assert_allclose(other.normals / scale, one.normals, atol=1e-6)
    for name in ("objective", "rho"):
        assert getattr(other, name) / scale**2 == pytest.approx(getattr(one, name), rel=1e-7)
    assert other.history[-1] == other.objective
    squares = np.square((Y * other.alpha) @ Z).sum(axis=1)
    dual = -0.5 * (squares.max() + 2.0 * other.alpha @ other.alpha)
    assert (other.objective - other.gap) / scale**2 == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("C", [1e5, 1e8])
def test_a_margin_that_is_nearly_hard(C):
    """Sets of rows inside the margin recur here, and a step of the primal lets in few rows."""
    for seed in range(110, 130):
        rng = np.random.default_rng(seed)
        Z, y = centred(rng, 5, 3), np.where(rng.random(5) < 0.5, 1.0, -1.0)
        found = solve_label_kernel_svm(Z, y[None, :], C=C / np.square(Z).sum(), tol=1e-6)
        assert found.status is Status.CONVERGED
        assert found.gap <= 1e-6 * abs(found.objective)


# ---------------------------------------------------------------------- generation


@pytest.mark.parametrize("limit", [0, 2, 4, 8])
def test_sorting_is_the_best_balanced_labelling(rng, limit):
    Y = all_labellings(8, limit)
    for _ in range(20):
        f, alpha = rng.standard_normal(8) + 0.7, rng.random(8) * (rng.random(8) < 0.7)
        y = balanced_labels(f, alpha, limit)
        assert abs(int(y.sum())) <= limit
        assert y @ (alpha * f) == pytest.approx(np.abs(Y @ (alpha * f)).max())


def test_rows_of_no_weight_change_sides_first():
    f = np.array([5.0, 4.0, 3.0, 2.0, 1.0, -1.0])
    alpha = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(balanced_labels(f, alpha, 2), [1, -1, 1, 1, 1, -1])


@pytest.mark.parametrize("limit", [0, 6, 20])
def test_climbing_never_falls_and_ends_where_sorting_changes_nothing(rng, limit):
    source = LinearSource(as_rows(rng.standard_normal((20, 3))))
    for _ in range(20):
        alpha = rng.dirichlet(np.ones(20))
        start = balanced_labels(rng.standard_normal(20), alpha, limit)
        end = climb(source, alpha, start, limit)
        assert end.square >= measure(source, alpha, start).square
        assert end.square == pytest.approx(measure(source, alpha, end.y).square)
        assert abs(int(end.y.sum())) <= limit
        again = balanced_labels(source.scores(end.vector), alpha, limit)
        assert measure(source, alpha, again).square <= end.square * (1 + 1e-8)


@pytest.mark.parametrize("n", [9, 70])
def test_no_labelling_is_beyond_the_eigenvalue(rng, n):
    Z = centred(rng, n, 3)
    for _ in range(5):
        alpha = rng.dirichlet(np.full(n, 0.3))
        bound = largest_possible_square(LinearSource(as_rows(Z)), alpha, rng)
        exact = np.linalg.eigvalsh(Z.T @ (Z * alpha[:, None]))[-1]
        assert exact * (1 - 1e-9) <= bound <= exact * 1.0011
        if n == 9:
            squares = np.square((all_labellings(9, 9) * alpha) @ Z).sum(axis=1)
            assert squares.max() <= bound


def test_no_eigenvalue_hides_behind_many_that_are_alike(rng):
    n = 300
    Q = np.linalg.qr(np.column_stack([np.ones(n), rng.standard_normal((n, n - 1))]))[0][:, 1:]
    values = np.concatenate([[1.005], np.ones(n // 2), 0.99 * rng.random(n // 2 - 2)])
    source = KernelSource((Q * values) @ Q.T)
    for seed in range(40):
        start = np.random.default_rng(seed)
        assert largest_possible_square(source, np.full(n, 1 / n), start) >= 1.005 / n


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_the_subspace_is_orthonormal_and_shortens(rng, kind):
    Z = centred(rng, 30, 6)
    source = LinearSource(as_rows(Z)) if kind == "linear" else KernelSource(Z @ Z.T)
    space = Subspace(source)
    space.add_leading(4, rng)
    gram = [source.inner(vector, space.basis) for vector in space.basis]
    np.testing.assert_allclose(gram, np.eye(4), atol=1e-10)
    v = rng.standard_normal(30)
    whole = source.vector(v)
    short = space.vector(v)
    np.testing.assert_allclose(short, space.coordinates(whole), atol=1e-10)
    assert short @ short < source.inner(whole, [whole])[0]
    np.testing.assert_allclose(source.scores(space.lift(short)), space.scores(short), atol=1e-10)
    # The whole space has six dimensions, and no seventh is made of rounding.
    space.add_leading(20, rng)
    for _ in range(5):
        space.add(source.vector(rng.standard_normal(30)))
    assert len(space.basis) == 6


def test_the_subspace_of_a_kernel_near_the_identity_stays_orthonormal(rng):
    """Each Krylov vector is new by 1e-5 of its length or less, and errors must not add up."""
    X = rng.standard_normal((60, 5))
    source = KernelSource(laplacian_kernel(X, gamma=1.5))
    space = Subspace(source)
    space.add_leading(12, rng)
    for _ in range(5):
        space.add(source.vector(rng.standard_normal(60)))
    gram = [source.inner(vector, space.basis) for vector in space.basis]
    assert len(gram) > 8
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-8)


# ---------------------------------------------------------------------- the relaxation


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "limit", "C"), [(7, 1, 1.0), (8, 2, 0.3), (8, 6, 3.0), (2, 0, 1.0)])
def test_the_relaxation_over_all_labellings(seed, n, limit, C):
    rng = np.random.default_rng(seed)
    Z = centred(rng, n, 3)
    Y = all_labellings(n, limit)
    truth = saddle_by_cvxpy(Z, Y, C)
    for source in (LinearSource(as_rows(Z)), KernelSource(Z @ Z.T)):
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
    found = generate_labels(KernelSource(np.eye(n)), C=C, limit=limit, n_init=40, tol=1e-4)
    assert found.objective == pytest.approx(truth, rel=1e-3)


def test_few_starts_leave_an_upper_bound(rng):
    Z = centred(rng, 8, 3)
    truth = saddle_by_cvxpy(Z, all_labellings(8, 2), 1.0)
    for seed in range(10):
        source = LinearSource(as_rows(Z))
        found = generate_labels(source, C=1.0, limit=2, n_init=1, tol=1e-6, seed=seed)
        assert found.bound <= truth <= found.objective + 1e-7


def test_the_objective_falls_with_every_round(rng):
    source = LinearSource(as_rows(rng.standard_normal((80, 6))))
    found = generate_labels(source, C=0.3, limit=40, tol=1e-4, max_iter=200)
    assert found.status is Status.CONVERGED
    assert len(found.history) == found.n_iter > 5
    assert np.all(np.diff(found.history) <= 1e-5 * abs(found.objective))
    assert found.residuals["violation"] <= 1e-4
    assert found.weights.sum() == pytest.approx(1.0)
    assert np.all(np.diff(found.weights) <= 0)
    assert 0 < found.rank_share < 1


def test_other_searches_find_little_that_is_more_violated(rng):
    """Noise has many labellings alike: some are missed, though far fewer than without climbing."""
    Z = centred(rng, 200, 12)
    C, tol = 1.0, 1e-2
    source = LinearSource(as_rows(Z))
    found = generate_labels(source, C=C, limit=100, tol=tol, n_init=20, max_iter=200)
    assert found.status is Status.CONVERGED
    searched = [
        climb(
            source,
            found.alpha,
            balanced_labels(Z @ rng.standard_normal(12), found.alpha, 100),
            100,
        )
        for _ in range(100)
    ]
    worst = max(labelling.square for labelling in searched)
    value = -0.5 * (worst + found.alpha @ found.alpha / C)
    assert found.objective - value <= 0.08 * abs(found.objective)


def test_margin_and_value_of_the_labels(rng):
    """The value at the labels, by a fine grid of margins and the best length of each."""
    Z = centred(rng, 40, 4)
    C = 0.5
    found = generate_labels(LinearSource(as_rows(Z)), C=C, limit=20)
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
    """On noise, the worst there is: nine tenths of the best value at the median of draws."""
    ratios = []
    for seed in range(8):
        Z = centred(np.random.default_rng(seed), 40, 4)
        found = generate_labels(LinearSource(as_rows(Z)), C=0.5, limit=20)
        y = np.where(found.labels > 0, 1.0, -1.0)
        best = solve_label_kernel_svm(Z, y[None, :], C=0.5).objective
        ratios.append(found.labelled_objective / best)
    assert max(ratios) <= 1.0 + 1e-9
    assert np.median(ratios) >= 0.9
    assert min(ratios) >= 0.8


# ---------------------------------------------------------------------- clusters


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}, {"method": "nystroem"}])
def test_groups(groups, options):
    model = LGMMC(max_label_mean=0.5, random_state=0, n_landmarks=30, **options).fit(groups)
    assert model.status_ is Status.CONVERGED
    assert clustering_error(TRUTH, model.labels_) <= 0.02
    np.testing.assert_array_equal(model.predict(groups), model.labels_)
    assert model.objective_ == model.result_.objective < 0
    assert model.n_iter_ == model.result_.n_labellings
    f = model.decision_function(groups)
    np.testing.assert_allclose(f, model.result_.scores / model.result_.rho, atol=1e-8)
    assert abs(f.mean()) < 1e-8


def test_circles_need_the_kernel():
    X, y = make_two_circles(160, noise=0.02, factor=0.2, random_state=0)
    for method in ("exact", "nystroem"):
        model = LGMMC(method=method, n_landmarks=50, random_state=0).fit(X)
        assert clustering_error(y, model.labels_) == 0.0
    assert clustering_error(y, LGMMC(kernel="linear", random_state=0).fit(X).labels_) > 0.2


def test_a_small_price_is_the_largest_distance_of_means(rng):
    """Where all rows weigh alike, |sum y_i z_i| is maximised: by brute force for 10 rows."""
    X = rng.standard_normal((10, 2))
    Y = all_labellings(10, 5)
    best = Y[np.linalg.norm(Y @ (X - X.mean(axis=0)), axis=1).argmax()]
    model = LGMMC(kernel="linear", C=1e-3, max_label_mean=0.5, n_init=30, random_state=0).fit(X)
    assert model.result_.n_labellings == 1
    np.testing.assert_allclose(model.result_.alpha, 0.1, rtol=1e-2)
    assert clustering_error(best > 0, model.labels_) <= 0.1


def test_the_price_moves_rows_out_of_the_margin(rng):
    X = rng.standard_normal((300, 2)) * [2.0, 1.0]
    shares = []
    for C in (0.1, 30.0, 1000.0):
        model = LGMMC(kernel="linear", C=C, random_state=0, max_iter=100).fit(X)
        shares.append(np.mean(model.result_.alpha > 0))
    assert shares[0] == 1.0
    assert shares[0] > shares[1] > shares[2]


# ---------------------------------------------------------------------- equivalences

TIGHT = {"tol": 1e-6, "n_init": 20, "C": 10.0, "max_iter": 300, "random_state": 0}


def same_fit(one, other, tol=1e-5):
    assert clustering_error(one.labels_, other.labels_) == 0.0
    assert other.objective_ == pytest.approx(one.objective_, rel=tol)


def test_linear_is_the_precomputed_kernel(groups, rng):
    linear = LGMMC(kernel="linear", **TIGHT).fit(groups)
    given = LGMMC(kernel="precomputed", **TIGHT).fit(groups @ groups.T)
    same_fit(linear, given)
    new = rng.standard_normal((30, 5)) * 3
    f, g = linear.decision_function(new), given.decision_function(new @ groups.T)
    np.testing.assert_allclose(np.sign(f @ g) * g, f, atol=1e-3)
    scores = groups @ linear.coef_[0] + linear.intercept_[0]
    np.testing.assert_allclose(linear.decision_function(groups), scores, atol=1e-10)
    scores = groups @ groups.T @ given.dual_coef_ + given.intercept_[0]
    np.testing.assert_allclose(given.decision_function(groups @ groups.T), scores, atol=1e-10)


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}, {"method": "nystroem"}])
def test_dense_is_csr(groups, options):
    X = np.where(np.abs(groups) < 0.5, 0.0, groups)
    dense = LGMMC(n_landmarks=20, **options, **TIGHT).fit(X)
    csr = LGMMC(n_landmarks=20, **options, **TIGHT).fit(sparse.csr_array(X))
    same_fit(dense, csr)
    np.testing.assert_array_equal(csr.predict(sparse.csr_array(X)), csr.labels_)


def test_precomputed_is_the_named_kernel_and_all_landmarks_are(groups):
    named = LGMMC(gamma=0.1, **TIGHT).fit(groups)
    same_fit(named, LGMMC(kernel="precomputed", **TIGHT).fit(rbf_kernel(groups, gamma=0.1)))
    landmarks = LGMMC(gamma=0.1, method="nystroem", n_landmarks=60, **TIGHT).fit(groups)
    same_fit(named, landmarks, tol=1e-4)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_float32_is_near_float64(groups, kernel):
    double = LGMMC(kernel=kernel, random_state=0).fit(groups)
    single = LGMMC(kernel=kernel, random_state=0).fit(groups.astype(np.float32))
    same_fit(double, single, tol=0.01)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("scale", [1e-145, 1e-8, 1e8, 1e145])
def test_scale_of_x_is_of_no_matter(groups, kernel, scale):
    one = LGMMC(kernel=kernel, random_state=0).fit(groups)
    other = LGMMC(kernel=kernel, random_state=0).fit(groups * scale)
    assert clustering_error(one.labels_, other.labels_) == 0.0
    np.testing.assert_array_equal(other.predict(groups * scale), other.labels_)
    unit = scale**2 if kernel == "linear" else 1.0
    assert other.objective_ == pytest.approx(unit * one.objective_, rel=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e6), (np.float32, 1e4)])
def test_an_offset_is_of_no_matter(groups, kernel, dtype, offset):
    far = (groups + offset).astype(dtype)
    one = LGMMC(kernel=kernel, random_state=0).fit(far.astype(np.float64) - offset)
    other = LGMMC(kernel=kernel, random_state=0).fit(far)
    same_fit(one, other, tol=0.01)
    np.testing.assert_array_equal(other.predict(far), other.labels_)


def test_twice_the_rows_are_the_same_problem(groups):
    one = LGMMC(kernel="linear", **TIGHT).fit(groups)
    two = LGMMC(kernel="linear", **TIGHT).fit(np.repeat(groups, 2, axis=0))
    assert clustering_error(np.repeat(one.labels_, 2), two.labels_) == 0.0
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-3)


def test_random_state_repeats_a_fit(rng):
    X = rng.standard_normal((70, 4))
    one, other = (LGMMC(random_state=5).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.objective_ == other.objective_


# ---------------------------------------------------------------------- weights


def weighted_rows(rng, n, d, weights):
    Z = rng.standard_normal((n, d))
    return Z - np.average(Z, axis=0, weights=weights)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_one_labelling_with_weights_is_the_printed_machine(rng, C):
    weights = rng.uniform(0.05, 3.0, 15)
    Z = weighted_rows(rng, 15, 3, weights)
    y = np.where(rng.random(15) < 0.5, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, y[None, :], C=C, tol=1e-10, sample_weight=weights)
    value, rho = machine_by_cvxpy(Z, y, C, weights)
    assert found.objective == pytest.approx(value, rel=1e-5)
    assert found.rho == pytest.approx(rho, rel=1e-4)
    assert value != pytest.approx(machine_by_cvxpy(Z, y, C)[0], rel=1e-3)


# Factorised over the rows, and over the features.
@pytest.mark.parametrize(("n", "d", "T", "C"), [(12, 3, 6, 0.3), (40, 2, 5, 0.5), (60, 3, 2, 3.0)])
@pytest.mark.parametrize("seed", range(2))
def test_the_weighted_saddle_is_that_of_cvxpy_and_of_rows_written_often(seed, n, d, T, C):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 5, n)
    Z = weighted_rows(rng, n, d, weights)
    Y = np.where(rng.standard_normal((T, n)) > 0, 1.0, -1.0)
    found = solve_label_kernel_svm(Z, Y, C=C, tol=1e-9, sample_weight=weights)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(saddle_by_cvxpy(Z, Y, C, weights), rel=1e-5)
    squares = np.square((Y * found.alpha) @ Z).sum(axis=1)
    dual = -0.5 * (squares.max() + found.alpha @ (found.alpha / weights) / C)
    assert dual == pytest.approx(found.objective - found.gap, rel=1e-9)
    written = np.repeat(np.arange(n), weights)
    often = solve_label_kernel_svm(Z[written], Y[:, written], C=C, tol=1e-9)
    assert found.objective == pytest.approx(often.objective, rel=1e-8)
    assert found.rho == pytest.approx(often.rho, rel=1e-4)
    together = np.bincount(written, often.alpha)
    np.testing.assert_allclose(found.alpha, together, atol=1e-3 * together.max())


@pytest.mark.parametrize("C", [1e5, 1e8])
def test_a_weighted_margin_that_is_nearly_hard(C):
    for seed in range(150, 180):
        rng = np.random.default_rng(seed)
        Z, y = centred(rng, 5, 3), np.where(rng.random(5) < 0.5, 1.0, -1.0)
        weights = 10.0 ** rng.uniform(-2, 2, 5)
        price = C / np.square(Z).sum()
        found = solve_label_kernel_svm(Z, y[None, :], C=price, tol=1e-6, sample_weight=weights)
        assert found.status is Status.CONVERGED
        assert found.gap <= 1e-6 * abs(found.objective)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_sorting_by_weight_is_balanced_and_nearly_the_best(rng, share):
    exact = 0
    for _ in range(60):
        weights = rng.uniform(0.1, 2.0, 8)
        f, alpha = rng.standard_normal(8) + 0.7, rng.random(8) * (rng.random(8) < 0.8)
        limit = max(share * weights.sum(), weights.max())
        y = balanced_labels(f, alpha, limit, weights)
        assert abs(weights @ y) <= limit * (1 + 1e-12)
        best = np.abs(all_labellings(8, limit, weights) @ (alpha * f)).max()
        assert best - y @ (alpha * f) <= 2 * np.max(alpha * np.abs(f))
        exact += y @ (alpha * f) >= best - 1e-12
        if abs(weights @ np.sign(f)) <= limit:
            np.testing.assert_array_equal(y, np.sign(f))
    assert exact >= 30


def test_the_row_that_the_relaxation_cuts_in_two_changes_sides():
    """Costs of 5, 4 and 1 for each unit of weight: there is no room for the 4, but for the 1."""
    f, weights = np.array([5.0, 4.0, 1.0, -1.0]), np.array([2.0, 2.0, 1.0, 1.0])
    y = balanced_labels(f, weights, 2.0, weights)
    np.testing.assert_array_equal(y, [1, 1, -1, -1])
    y = balanced_labels(f, weights, 1.0, np.array([2.0, 3.0, 1.0, 1.0]))
    np.testing.assert_array_equal(y, [1, -1, 1, -1])
    np.testing.assert_array_equal(balanced_labels(-f, weights, 2.0, weights), [-1, -1, 1, 1])
    # Two of weight 2 that cost 1/8 a unit make room for four that cost 1/5.
    alpha, weights = np.array([0.25, 0.25, 0.2, 0.2, 0.2, 0.2]), np.array([2.0, 2, 1, 1, 1, 1])
    y = balanced_labels(np.ones(6), alpha, 2.0, weights)
    np.testing.assert_array_equal(y, [-1, -1, 1, 1, 1, 1])


@pytest.mark.parametrize("limit", [0, 3, 6])
def test_sorting_by_equal_weights_is_sorting(rng, limit):
    for n in (8, 9):
        allowed = max(limit, n % 2)
        for _ in range(20):
            f, alpha = rng.standard_normal(n) + 0.7, rng.random(n)
            y = balanced_labels(f, alpha, max(allowed, 1), np.ones(n))
            np.testing.assert_array_equal(y, balanced_labels(f, alpha, allowed))


def test_climbing_and_the_bound_with_weights_are_those_of_rows_written_often(rng):
    weights = rng.integers(1, 4, 20)
    written = np.repeat(np.arange(20), weights)
    Z = rng.standard_normal((20, 3))
    one = LinearSource(as_rows(Z, sample_weight=weights))
    often = LinearSource(as_rows(Z[written]))
    limit = 0.9 * weights.sum()
    for _ in range(20):
        alpha = rng.dirichlet(np.ones(20))
        shared = (alpha / weights)[written]
        start = balanced_labels(rng.standard_normal(20), alpha, limit, weights)
        end = climb(one, alpha, start, limit, weights)
        same = climb(often, shared, start[written], limit)
        np.testing.assert_array_equal(end.y[written], same.y)
        assert end.square == pytest.approx(same.square)
        bounds = [
            largest_possible_square(source, pulls, np.random.default_rng(0))
            for source, pulls in ((one, alpha), (often, shared))
        ]
        assert bounds[0] == pytest.approx(bounds[1], rel=2e-3)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("share", "binds"), [(0.4, True), (0.95, False)])
def test_the_weighted_relaxation_over_all_labellings(seed, share, binds):
    """Against all labellings of the rows, and all of the rows written often, whose copies part."""
    rng = np.random.default_rng(seed)
    weights = rng.permutation([1, 1, 1, 1, 2, 3])
    Z, C, limit = weighted_rows(rng, 6, 2, weights), 1.0, share * weights.sum()
    truth = saddle_by_cvxpy(Z, all_labellings(6, limit, weights), C, weights)
    written = np.repeat(np.arange(6), weights)
    parted = saddle_by_cvxpy(Z[written], all_labellings(9, limit), C)
    assert parted <= truth * (1 - 1e-6)
    shares, unit = weights / weights.sum(), weights.mean()
    for source in (
        LinearSource(as_rows(Z, sample_weight=weights)),
        KernelSource(Z @ Z.T, shares),
    ):
        # The source's weights have a mean of 1.
        found = generate_labels(
            source, C=C * unit, limit=limit / unit, n_init=40, tol=1e-7, max_iter=200
        )
        assert found.status is Status.CONVERGED
        assert found.bound <= parted + 1e-7
        assert found.objective >= truth - 1e-6 * abs(truth)
        assert found.objective == pytest.approx(truth, rel=1e-2 if binds else 1e-5)
        assert found.residuals["master gap"] <= 1e-7


def test_margin_and_value_of_the_labels_with_weights(rng):
    weights = rng.integers(0, 4, 40)
    written = np.repeat(np.arange(40), weights)
    X = rng.standard_normal((40, 4))
    model = LGMMC(kernel="linear", C=10.0, max_label_mean=0.5, random_state=0)
    one = model.fit(X, sample_weight=weights)
    Z = X - np.average(X, axis=0, weights=weights)
    f, w = (Z @ one.result_.normal)[written], one.result_.normal
    C = 10.0 / np.square(Z[written]).sum()
    r = np.linspace(0.2, 5, 4001) * one.result_.rho
    slack = np.maximum(r[:, None] - np.abs(f), 0.0)
    values = -0.5 * r**2 / (w @ w + C * np.square(slack).sum(axis=1))
    assert one.result_.labelled_objective == pytest.approx(values.min(), rel=1e-5)
    assert one.result_.rho == pytest.approx(r[values.argmin()], rel=5e-3)
    assert abs(np.average(one.result_.scores, weights=weights)) < 1e-9
    assert not one.result_.alpha[weights == 0].any()


KINDS = [{"kernel": "linear"}, {}, {"kernel": "linear", "max_label_mean": 0.1}]


@pytest.mark.parametrize("options", KINDS)
def test_weight_two_is_a_row_written_twice(groups, rng, options):
    weights = rng.integers(0, 4, 60)
    written = np.repeat(np.arange(60), weights)
    one = LGMMC(**options, **TIGHT).fit(groups, sample_weight=weights)
    often = LGMMC(**options, **TIGHT).fit(groups[written])
    assert clustering_error(one.labels_[written], often.labels_) == 0.0
    np.testing.assert_array_equal(one.predict(groups), one.labels_)
    # Where the balance binds, copies of rows written twice part.
    binds = "max_label_mean" in options
    assert one.objective_ == pytest.approx(often.objective_, rel=5e-3 if binds else 1e-6)
    assert one.objective_ >= often.objective_ * (1 + 1e-6)
    assert one.result_.bound == pytest.approx(often.result_.bound, rel=3e-2 if binds else 2e-3)
    plain = LGMMC(**options, **TIGHT).fit(groups)
    assert abs(one.objective_ / plain.objective_ - 1) > 1e-3


def test_noise_with_weights_has_the_value_of_rows_written_often(rng):
    """Many labellings share the solution, and the starts differ: the value is the same."""
    X, weights = rng.random((15, 30)), rng.integers(0, 5, 15)
    options = {"tol": 1e-5, "n_init": 50, "max_iter": 500, "random_state": 0}
    one = LGMMC(**options).fit(X, sample_weight=weights)
    often = LGMMC(**options).fit(np.repeat(X, weights, axis=0))
    assert one.result_.n_labellings > 1
    assert one.objective_ == pytest.approx(often.objective_, rel=1e-4)
    assert one.result_.rank_share == pytest.approx(often.result_.rank_share, rel=1e-2)
    assert one.result_.bound == pytest.approx(often.result_.bound, rel=2e-3)


@pytest.mark.parametrize("options", [*KINDS, {"method": "nystroem", "n_landmarks": 20}])
def test_a_common_factor_of_the_weights_changes_nothing(groups, rng, options):
    weights = rng.uniform(0.5, 2.0, 60)
    one = LGMMC(random_state=0, **options).fit(groups, sample_weight=weights)
    for factor in (1e-90, 7.0, 1e90):
        other = LGMMC(random_state=0, **options).fit(groups, sample_weight=factor * weights)
        np.testing.assert_array_equal(one.labels_, other.labels_)
        assert other.objective_ == pytest.approx(one.objective_, rel=1e-6)


def test_linear_with_weights_is_the_precomputed_kernel(groups, rng):
    weights = rng.uniform(0.0, 2.0, 60)
    linear = LGMMC(kernel="linear", **TIGHT).fit(groups, sample_weight=weights)
    K = groups @ groups.T
    given = LGMMC(kernel="precomputed", **TIGHT).fit(K, sample_weight=weights)
    same_fit(linear, given)
    f, g = linear.decision_function(groups), given.decision_function(K)
    np.testing.assert_allclose(np.sign(f @ g) * g, f, atol=1e-3)


@pytest.mark.parametrize("options", KINDS)
def test_equal_weights_are_no_weights(groups, options):
    one = LGMMC(random_state=0, **options).fit(groups)
    other = LGMMC(random_state=0, **options).fit(groups, sample_weight=np.full(60, 0.3))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-8)


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {"gamma": 0.05}])
def test_rows_without_weight_have_no_say_but_a_label(rng, options):
    weights = rng.uniform(0.5, 2.0, 60) * (rng.random(60) < 0.7)
    kept = weights > 0
    wild = rng.standard_normal((60, 5))
    wild[~kept] = 30 * wild[~kept] + 100
    one = LGMMC(random_state=0, **options).fit(wild, sample_weight=weights)
    other = LGMMC(random_state=0, **options).fit(wild[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(one.labels_[kept], other.labels_)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-6)
    assert one.result_.rank_share == pytest.approx(other.result_.rank_share, rel=1e-6)
    np.testing.assert_allclose(one.decision_function(wild), other.decision_function(wild))
    np.testing.assert_array_equal(one.predict(wild), one.labels_)


def test_weights_of_any_size(groups):
    """Rows that weigh next to nothing are as good as left out, also of the balance."""
    weights = np.where(np.arange(60) % 3 == 0, 1e-200, 1.0)
    one = LGMMC(kernel="linear", **TIGHT).fit(groups, sample_weight=weights)
    other = LGMMC(kernel="linear", **TIGHT).fit(groups[weights == 1.0])
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-6)
    assert clustering_error(one.labels_[weights == 1.0], other.labels_) == 0.0
    assert clustering_error(TRUTH, one.labels_) <= 0.02


def test_a_row_heavier_than_the_balance_allows_is_alone_at_most():
    X = np.array([[0.0], [9.0], [10.0], [11.0]])
    for balance in (0.0, 0.3, 0.99):
        model = LGMMC(kernel="linear", max_label_mean=balance, random_state=0)
        model.fit(X, sample_weight=[20.0, 1.0, 1.0, 1.0])
        assert clustering_error([0, 1, 1, 1], model.labels_) == 0.0
        assert model.status_ is Status.CONVERGED
        assert model.result_.n_labellings == 1


@pytest.mark.parametrize("seed", [1, 6])
def test_balance_0_is_halves_to_within_the_heaviest_row(seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.2, 2.0, 8)
    Z = weighted_rows(rng, 8, 2, weights)
    C = 5.0 / (weights @ np.square(Z).sum(axis=1))
    truth = saddle_by_cvxpy(Z, all_labellings(8, weights.max(), weights), C, weights)
    model = LGMMC(kernel="linear", max_label_mean=0.0, C=5.0, tol=1e-5, n_init=30, max_iter=200)
    found = model.set_params(random_state=0).fit(Z, sample_weight=weights).result_
    assert found.objective == pytest.approx(truth, rel=1e-5)
    # The wider set has a lower value.
    assert found.objective > (1 - 2e-3) * saddle_by_cvxpy(Z, all_labellings(8, 99), C, weights)


def test_weights_move_the_balance():
    """Nine rows on one side and one on the other are halves where that one has a weight of 9."""
    X = np.repeat([[0.0], [1.0]], [9, 1], axis=0)
    options = {"kernel": "linear", "max_label_mean": 0.0, "random_state": 0, "max_iter": 300}
    plain = LGMMC(**options).fit(X).result_
    assert plain.objective > 1.01 * plain.labelled_objective
    halves = LGMMC(**options).fit(X, sample_weight=[*[1.0] * 9, 9.0])
    assert halves.result_.n_labellings == 1
    assert halves.objective_ == pytest.approx(halves.result_.labelled_objective)
    written = np.repeat([[0.0], [1.0]], [9, 9], axis=0)
    assert halves.objective_ == pytest.approx(LGMMC(**options).fit(written).objective_)


def test_weights_of_parts_that_are_split_again(rng):
    X = np.concatenate([rng.standard_normal((20, 2)) + c for c in ([0, 0], [12, 0], [4, 14])])
    truth = np.repeat(np.arange(3), 20)
    model = LGMMC(3, random_state=0).fit(X, sample_weight=rng.integers(0, 4, 60))
    assert clustering_error(truth, model.labels_) == 0.0


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_weights_with_csr_and_float32(groups, rng, kernel):
    X = np.where(np.abs(groups) < 0.5, 0.0, groups)
    weights = rng.uniform(0.0, 2.0, 60)
    dense = LGMMC(kernel=kernel, **TIGHT).fit(X, sample_weight=weights)
    same_fit(dense, LGMMC(kernel=kernel, **TIGHT).fit(sparse.csr_array(X), sample_weight=weights))
    single = LGMMC(kernel=kernel, random_state=0).fit(X.astype(np.float32), sample_weight=weights)
    double = LGMMC(kernel=kernel, random_state=0).fit(X, sample_weight=weights)
    same_fit(double, single, tol=0.01)


def test_bad_weights_are_refused(groups):
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        LGMMC().fit(groups, sample_weight=np.full(60, -1.0))
    for kernel in ("linear", "rbf"):
        with pytest.raises(ValueError, match="rows with a positive sample_weight, 1"):
            LGMMC(kernel=kernel).fit(groups, sample_weight=np.arange(60) == 7)


# ---------------------------------------------------------------------- edges


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("C", [1.0, 30.0, 1e4])
@pytest.mark.parametrize(
    "case", ["two rows", "three rows", "duplicates", "d > n", "constant column"]
)
def test_small_and_degenerate_shapes(rng, kernel, case, C):
    X = {
        "two rows": np.array([[0.0, 1.0], [1.0, 1.0]]),
        "three rows": np.array([[0.0, 1.0], [5.0, 1.0], [5.2, 1.0]]),
        "duplicates": np.repeat([[0.0, 0.0], [3.0, 1.0]], [4, 6], axis=0),
        "d > n": rng.standard_normal((8, 40)) + np.repeat([[0.0], [3.0]], 4, axis=0),
        "constant column": np.column_stack(
            [np.repeat([0.0, 5.0], 10) + 0.1 * rng.standard_normal(20), np.full(20, 7.0)]
        ),
    }[case]
    model = LGMMC(kernel=kernel, C=C, random_state=0).fit(X)
    truth = X[:, 0] > X[:, 0].mean() if case != "d > n" else np.arange(8) > 3
    assert clustering_error(truth, model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert np.isfinite(model.result_.gap)


@pytest.mark.parametrize("n", [9, 10])
def test_balance_0_is_halves_as_near_as_may_be(rng, n):
    X = rng.standard_normal((n, 2))
    model = LGMMC(kernel="linear", max_label_mean=0.0, C=5.0, tol=1e-5, n_init=30, max_iter=200)
    found = model.set_params(random_state=0).fit(X).result_
    Z = X - X.mean(axis=0)
    C = 5.0 / np.square(Z).sum()
    assert found.objective == pytest.approx(
        saddle_by_cvxpy(Z, all_labellings(n, n % 2), C), rel=1e-4
    )
    # The wider set has the lower value.
    assert found.objective > saddle_by_cvxpy(Z, all_labellings(n, 6), C) * (1 - 1e-6)


def test_balance_allows_what_it_says():
    """0.58 times 100 is a rounding below 58: the labels of 79 rows and 21 have that sum."""
    X = np.repeat([[0.0], [1.0]], [79, 21], axis=0)
    allowed, refused = (
        LGMMC(kernel="linear", max_label_mean=balance, max_iter=300, random_state=0).fit(X).result_
        for balance in (0.58, 0.57)
    )
    assert allowed.n_labellings == 1
    assert allowed.objective == pytest.approx(allowed.labelled_objective)
    assert refused.objective > 1.01 * refused.labelled_objective
    nearly_one = LGMMC(kernel="linear", max_label_mean=np.nextafter(1.0, 0.0), random_state=0).fit(
        X
    )
    assert nearly_one.objective_ == pytest.approx(allowed.objective)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_large_price_converges(rng, kernel):
    X = rng.standard_normal((60, 5))
    model = LGMMC(kernel=kernel, C=1e8, random_state=0, max_iter=100).fit(X)
    assert model.status_ is Status.CONVERGED
    assert model.result_.residuals["master gap"] <= 0.01
    harder = LGMMC(kernel=kernel, C=1e10, random_state=0, max_iter=100).fit(X)
    assert harder.objective_ == pytest.approx(model.objective_, rel=0.05)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_are_refused(kernel, dtype):
    with pytest.raises(ValueError, match="rows of X are the same to the kernel"):
        LGMMC(kernel=kernel, gamma=1.0).fit(np.full((8, 2), 0.1, dtype=dtype))


def test_a_kernel_that_is_none_is_refused(rng):
    K = rng.standard_normal((20, 20))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        LGMMC(kernel="precomputed", random_state=0).fit(K + K.T + 2 * np.eye(20))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        LGMMC(kernel="precomputed", random_state=0).fit(-K @ K.T)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.0}, ValueError, "C must be at least 1e-10 and at most 1e[+]10, got 0"),
        ({"C": 1e300}, ValueError, "C must be at least 1e-10 and at most 1e[+]10, got 1e[+]300"),
        ({"C": "high"}, TypeError, "C must be a number"),
        ({"max_label_mean": 1.0}, ValueError, "max_label_mean=1 .* below 1"),
        ({"max_label_mean": -0.1}, ValueError, "max_label_mean must be at least 0"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"method": "landmarks"}, ValueError, "method must be one of"),
        ({"n_landmarks": 1}, ValueError, "n_landmarks must be at least 2"),
        ({"gamma": "automatic"}, ValueError, "gamma must be"),
        ({"kernel": "precomputed", "method": "nystroem"}, ValueError, "needs rows"),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(groups, parameters, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        LGMMC(**parameters).fit(groups)


def test_bad_data_are_refused(groups):
    holes = groups.copy()
    holes[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LGMMC().fit(holes)
    with pytest.raises(ValueError, match="minimum of 2"):
        LGMMC().fit(groups[:1])
    with pytest.raises(ValueError, match="must be square"):
        LGMMC(kernel="precomputed").fit(groups)


def test_an_early_end_warns_and_brackets_all_the_same(rng):
    X = rng.standard_normal((60, 6))
    options = {"kernel": "linear", "C": 100.0, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="still violated .* Raise max_iter or tol"):
        early = LGMMC(max_iter=2, **options).fit(X)
    assert early.status_ is Status.MAX_ITER
    assert early.n_iter_ == 2
    full = LGMMC(max_iter=200, **options).fit(X)
    assert full.status_ is Status.CONVERGED
    assert early.result_.bound <= full.objective_ <= early.objective_
    np.testing.assert_array_equal(early.predict(X), early.labels_)


def test_pickle_clone_and_one_cluster(groups):
    model = LGMMC(C=3.0, random_state=3)
    assert clone(model).get_params() == model.get_params()
    model.fit(groups)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.decision_function(groups), model.decision_function(groups))
    assert back.result_.residuals == model.result_.residuals
    assert not LGMMC(n_clusters=1).fit(groups).labels_.any()


@pytest.mark.parametrize("options", [{}, {"kernel": "precomputed"}, {"method": "nystroem"}])
def test_pickle_leaves_the_kernel_matrix_behind(rng, options):
    X = rng.standard_normal((400, 2))
    K = rbf_kernel(X) if options.get("kernel") else X
    model = LGMMC(random_state=0, n_landmarks=10, **options).fit(K)
    assert len(pickle.dumps(model)) < 0.1 * 8 * 400**2
