"""GMMC: eq. 24 as printed, its scores, clusters, edges."""

import itertools
import warnings

import cvxpy as cp
import numpy as np
import pytest
from helpers.cvxpy_references import clarabel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, optimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar import GMMC
from volmar.datasets import make_two_circles
from volmar.margin.gmmc import GMMCProblem, solve_gmmc
from volmar.metrics import clustering_error
from volmar.solvers import Status

quick = settings(deadline=None, max_examples=40)


seeds = st.integers(0, 10_000)


PRICES = [None, 1e-3, 0.2, 1.0, 1e3]


def groups(rng, n=40, apart=6.0, d=2):
    X = rng.standard_normal((n, d))
    X[n // 2 :, 0] += apart
    return X, np.repeat([0, 1], [n // 2, n - n // 2])


def problem(seed, n, C, *, weight=1e4, apart=3.0, gamma=0.3):
    X, _ = groups(np.random.default_rng(seed), n, apart)
    return GMMCProblem(rbf_kernel(X, gamma=gamma), C, weight, 1.0 / n)


def printed_matrix(given):
    """B of W = B - diag((gamma; 0)), as it stands above eq. 24."""
    n = given.n
    P = np.hstack([np.eye(n), np.ones((n, 1))])
    c = np.append(np.ones(n), 0.0)
    inverse = linalg.inv(given.K + given.shift * np.eye(n))
    B = P.T @ inverse @ P + given.balance_weight * np.outer(c, c)
    return (B + B.T) / 2


def smallest(B, g):
    return linalg.eigvalsh(B - np.diag(np.append(g, 0.0)))[0]


def quietly(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X)


@pytest.mark.parametrize("C", PRICES)
@pytest.mark.parametrize("n", [10, 20, 30])
def test_equation_24_against_clarabel(n, C):
    """Where Clarabel breaks a constraint, ours is kept, at no loss beyond the gap."""
    given_problem = problem(n, n, C)
    B = printed_matrix(given_problem)
    result = solve_gmmc(given_problem, tol=1e-9)
    assert result.is_certified(1e-6)
    total = result.g.sum()
    assert smallest(B, result.g) >= -1e-13 * linalg.eigvalsh(B)[-1]
    g, status = clarabel(lambda g: cp.diag(cp.hstack([g, 0])) << B, n, C)
    if g is None:
        return
    violation = max(-smallest(B, g), 0.0)
    assert max(-smallest(B, result.g), 0.0) <= max(violation, 1e-10)
    assert g.sum() == pytest.approx(total, rel=1e-6 if status == "optimal" else 1e-4)
    # Drawn back into the constraints, theirs is not better.
    F = given_problem.features
    g = np.clip(g, 0, C)
    g /= max(linalg.eigvalsh(F.T @ np.diag(g) @ F)[-1], 1.0)
    assert g.sum() <= total + result.gap + 1e-12


@pytest.mark.parametrize("C", [None, 0.3])
def test_equation_24_where_clarabel_is_exact(C):
    """A small C_e leaves a matrix that Clarabel can work with."""
    given_problem = problem(3, 16, C, weight=1.0)
    B = printed_matrix(given_problem)
    result = solve_gmmc(given_problem)
    g, status = clarabel(lambda g: cp.diag(cp.hstack([g, 0])) << B, 16, C)
    assert status.startswith("optimal")
    assert -result.objective == pytest.approx(g.sum(), rel=2e-6)
    np.testing.assert_allclose(result.g, g, atol=5e-3 * g.max())


@quick
@given(seed=seeds, n=st.integers(2, 12), weight=st.floats(-2, 6))
def test_features_are_the_schur_complement(seed, n, weight):
    """W >= 0 if and only if I - F'Diag(gamma)F >= 0, on both sides of the border."""
    rng = np.random.default_rng(seed)
    given_problem = problem(seed, n, None, weight=10.0**weight)
    B = printed_matrix(given_problem)
    assert linalg.eigvalsh(B)[0] > 0  # gamma = 0 is in the interior
    M = B[:-1, :-1] - np.outer(B[:-1, -1], B[-1, :-1]) / B[-1, -1]
    F = given_problem.features
    np.testing.assert_allclose(M @ F @ F.T, np.eye(n), atol=1e-6)
    g = rng.random(n)
    g /= linalg.eigvalsh(F.T @ np.diag(g) @ F)[-1]
    noise = 1e-12 * linalg.eigvalsh(B)[-1]
    assert smallest(B, 0.99 * g) > -noise
    assert smallest(B, 1.01 * g) < noise
    assert abs(smallest(B, g)) < noise


def best_labels(given_problem):
    """Value and labels of eq. 23 by a least-squares problem for every sign pattern."""
    n = given_problem.n
    B = printed_matrix(given_problem)
    M = B[:-1, :-1] - np.outer(B[:-1, -1], B[-1, :-1]) / B[-1, -1]
    R = linalg.cholesky(M)
    values = {}
    for tail in itertools.product([-1.0, 1.0], repeat=n - 1):
        y = np.array((1.0, *tail))
        # u = y (1 + nu) with nu >= 0; lambda is minimised out in M.
        _, distance = optimize.nnls(R * y, -(R @ y))
        values[tuple(y)] = distance**2
    best = min(values, key=values.get)
    return values, np.array(best)


@pytest.mark.parametrize("seed", range(12))
def test_no_labels_are_below_the_bound(seed):
    n = 2 + seed % 5
    given_problem = problem(seed, n, None, apart=1.0 + seed / 4, gamma=0.2)
    result = solve_gmmc(given_problem)
    values, best = best_labels(given_problem)
    assert min(values.values()) >= -result.objective * (1 - 1e-6)
    assert result.labelled_objective >= min(values.values()) * (1 - 1e-6)
    if result.eigenvalue_ratio < 1e-5:  # tight: the labels are optimal
        assert result.labelled_objective == pytest.approx(min(values.values()), rel=1e-4)
        assert clustering_error((best > 0).astype(int), result.labels) == 0.0


def test_some_of_these_relaxations_are_tight():
    tight = [
        solve_gmmc(problem(seed, 2 + seed % 5, None, apart=1.0 + seed / 4, gamma=0.2))
        for seed in range(12)
    ]
    assert 3 <= sum(result.eigenvalue_ratio < 1e-5 for result in tight) < 12


@quick
@given(seed=seeds, exponent=st.floats(-2, 1))
def test_no_scores_are_below_the_soft_bound(seed, exponent):
    rng = np.random.default_rng(seed)
    C = 10.0**exponent
    given_problem = problem(seed, 8, C, weight=5.0)
    B = printed_matrix(given_problem)
    result = solve_gmmc(given_problem)

    def printed(w):
        return w @ B @ w + C * np.maximum(0, 1 - w[:-1] ** 2).sum()

    intercept = -result.intercept  # lambda of eq. 23
    own = np.append(result.scores, intercept)
    for w in (own, *rng.standard_normal((20, 9)), *(own + 0.1 * rng.standard_normal((20, 9)))):
        assert printed(w) >= -result.objective - 1e-9
    # Linear in the square of the scale between the scales that bring a row to the margin.
    best = min(printed(t * own) for t in (0.0, *1 / np.abs(result.scores)))
    assert result.labelled_objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("C", [None, 1.0, 0.15])
def test_scores_are_the_null_vector_of_w(C):
    """Where W has one zero eigenvalue, labels are the signs of its vector, intercept included."""
    given_problem = problem(1, 40, C, apart=10.0, gamma=0.02)
    result = solve_gmmc(given_problem, tol=1e-10)
    W = printed_matrix(given_problem) - np.diag(np.append(result.g, 0.0))
    values, vectors = linalg.eigh(W)
    assert abs(values[0]) < 1e-9 < values[1] / 100
    w = vectors[:, 0] * np.sign(vectors[0, 0] * result.scores[0])
    np.testing.assert_array_equal(result.labels, w[:-1] > 0)
    own = np.append(result.scores, -result.intercept)
    np.testing.assert_allclose(w / np.abs(w).max(), own / np.abs(own).max(), atol=1e-5)
    assert result.eigenvalue_ratio < 1e-5


def test_scores_are_a_null_vector_of_w_among_several():
    """Where the relaxation is not tight, W w = 0 still holds, intercept included."""
    given_problem = problem(1, 40, None, apart=6.0, gamma=0.1)
    result = solve_gmmc(given_problem, tol=1e-10)
    assert 0.01 < result.eigenvalue_ratio < 0.9
    B = printed_matrix(given_problem)
    W = B - np.diag(np.append(result.g, 0.0))
    values = linalg.eigvalsh(W)
    assert 2 <= (values < 1e-8 * values[1:].mean()).sum() <= 5
    w = np.append(result.scores, -result.intercept)
    assert w @ W @ w < 1e-7 * (w @ B @ w)


def test_support_vectors_are_at_the_margin():
    result = solve_gmmc(problem(1, 40, None, apart=10.0, gamma=0.02), tol=1e-10)
    support = result.g > 1e-4 * result.g.max()
    np.testing.assert_allclose(np.abs(result.scores[support]), 1.0, rtol=1e-3)
    assert np.abs(result.scores).min() > 1 - 1e-3
    assert 2 <= support.sum() < 40


@quick
@given(seed=seeds, C=st.sampled_from([None, 0.05, 0.3, 1.0]), shift=st.sampled_from([None, 0.0]))
def test_decision_function_is_the_model_of_the_scores(seed, C, shift):
    """f(x_i) is the score minus the contribution of the shift; coefficients sum to zero."""
    X, _ = groups(np.random.default_rng(seed), 25, apart=seed % 7)
    model = quietly(GMMC(C=C, shift=shift), X)
    used = 1 / 25 if shift is None else 0.0
    expected = model.scores_ - used * model.dual_coef_
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-8)
    assert abs(model.dual_coef_.sum()) < 1e-9 * max(np.abs(model.dual_coef_).sum(), 1e-300)
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)
    np.testing.assert_array_equal(model.labels_, model.scores_ > 0)


@pytest.mark.parametrize("C", [None, 1.0, 0.3])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_separated_groups(kernel, C, rng):
    X, y = groups(rng, 60, apart=8.0)
    model = GMMC(kernel=kernel, C=C).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    assert model.result_.is_certified(1e-6)
    assert np.mean(model.predict(X) == model.labels_) >= 0.95
    X_new, y_new = groups(rng, 60, apart=8.0)
    swapped = int(model.labels_[0] != y[0])
    assert np.mean(model.predict(X_new) == (y_new ^ swapped)) >= 0.95


def test_circles():
    X, y = make_two_circles(120, noise=0.02, factor=0.2, random_state=0)
    assert clustering_error(y, GMMC().fit(X).labels_) == 0.0


@pytest.mark.parametrize("n", [2, 3])
def test_two_and_three_rows(n):
    X = np.array([[0.0, 0.0], [5.0, 5.0], [0.1, 0.0]])[:n]
    model = GMMC().fit(X)
    np.testing.assert_array_equal(model.labels_ == model.labels_[0], [True, False, True][:n])
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert quietly(GMMC(C=None), X).result_.residuals["relative gap"] <= 1e-7


def test_a_small_C_gives_the_first_kernel_component(rng):
    X, _ = groups(rng, 30)
    centred = rbf_kernel(X, gamma=0.1)
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    values, vectors = linalg.eigh(centred)
    smallest = 1 / (values[-1] + 1 / 30)
    for C in (1e-9, 1e-3, 0.999 * smallest):
        with pytest.warns(UserWarning, match="margin.*Raise C") as seen:
            model = GMMC(C=C, gamma=0.1).fit(X)
        assert f"{smallest:.3g}" in str(seen[0].message)
        assert clustering_error((vectors[:, -1] > 0).astype(int), model.labels_) == 0.0
        assert model.smallest_C_ == pytest.approx(smallest)
        np.testing.assert_array_equal(model.result_.g, C)
        assert model.result_.is_certified(1e-9)
        assert np.mean(model.scores_**2) == pytest.approx(1.0)
        np.testing.assert_array_equal(model.predict(X), model.labels_)
    above = GMMC(C=1.001 * smallest, gamma=0.1).fit(X)  # no warning
    np.testing.assert_array_equal(above.labels_, model.labels_)


def test_a_large_C_is_the_hard_margin(rng):
    X, _ = groups(rng, 30)
    soft, hard = GMMC(C=1e3).fit(X), GMMC(C=None).fit(X)
    assert soft.objective_ == pytest.approx(hard.objective_, rel=1e-6)
    np.testing.assert_array_equal(soft.labels_, hard.labels_)


def test_the_shift_may_be_zero(rng):
    """Duplicated rows and a kernel of rank 2 have no inverse, and need none."""
    X, y = groups(rng, 30, apart=8.0)
    twice, y = np.vstack([X, X]), np.append(y, y)
    for kernel in ("rbf", "linear"):
        model = GMMC(kernel=kernel, shift=0.0).fit(twice)
        assert clustering_error(y, model.labels_) == 0.0
        np.testing.assert_array_equal(model.labels_[:30], model.labels_[30:])
        np.testing.assert_array_equal(model.predict(twice), model.labels_)
        assert model.result_.is_certified(1e-6)


@quick
@given(seed=seeds)
def test_permuted_rows_permute_labels(seed):
    rng = np.random.default_rng(seed)
    X, _ = groups(rng, 20, apart=5.0)
    order = rng.permutation(20)
    one, two = quietly(GMMC(), X), quietly(GMMC(), X[order])
    # If two clusters have the same size, the first row is in cluster 0.
    is_tied = 2 * one.labels_.sum() == 20
    sign = -1.0 if is_tied and one.labels_[order[0]] == 1 else 1.0
    np.testing.assert_allclose(two.scores_, sign * one.scores_[order], atol=1e-3)


def test_precomputed_and_single_precision(rng):
    X, _ = groups(rng, 30)
    X_new, _ = groups(rng, 10)
    model = GMMC(gamma=0.2).fit(X)
    K = rbf_kernel(X, gamma=0.2)
    matrix = GMMC(kernel="precomputed").fit(K)
    np.testing.assert_array_equal(matrix.labels_, model.labels_)
    K_new = rbf_kernel(X_new, X, gamma=0.2)
    scores = model.decision_function(X_new)
    np.testing.assert_allclose(matrix.decision_function(K_new), scores, atol=1e-6)
    assert matrix.__sklearn_tags__().input_tags.pairwise
    assert not model.__sklearn_tags__().input_tags.pairwise
    single = GMMC(gamma=0.2).fit(X.astype(np.float32))
    np.testing.assert_array_equal(single.labels_, model.labels_)
    assert single.objective_ == pytest.approx(model.objective_, rel=1e-4)


def test_units_and_offset_of_the_kernel(rng):
    """t K with C / t, C_e / t and shift t is the same problem; so is K plus a constant."""
    X, _ = groups(rng, 30)
    K = rbf_kernel(X, gamma=0.2)
    base = GMMC(kernel="precomputed", shift=1 / 30).fit(K)
    for t in (1e-6, 1e6):
        model = GMMC(kernel="precomputed", C=1 / t, balance_weight=1e4 / t, shift=t / 30)
        np.testing.assert_allclose(model.fit(t * K).scores_, base.scores_, atol=1e-6)
        default = GMMC(kernel="precomputed", C=1 / t, balance_weight=1e4 / t).fit(t * K)
        np.testing.assert_array_equal(default.scores_, model.scores_)
    moved = GMMC(kernel="precomputed", shift=1 / 30).fit(K + 7.0)
    np.testing.assert_allclose(moved.scores_, base.scores_, atol=1e-6)
    np.testing.assert_allclose(
        moved.decision_function(K + 7.0), base.decision_function(K), atol=1e-6
    )


def test_an_offset_of_the_rows_does_not_matter(rng):
    X, _ = groups(rng, 30)
    model, far = GMMC().fit(X), GMMC().fit(X + 1e6)
    np.testing.assert_allclose(
        far.decision_function(X + 1e6), model.decision_function(X), atol=1e-4
    )


def test_ties_are_degenerate():
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    with pytest.warns(UserWarning, match="the same largest margin"):
        model = GMMC(C=None).fit(corners)
    assert model.result_.status is Status.DEGENERATE
    assert model.result_.eigenvalue_ratio > 0.999
    with pytest.warns(UserWarning, match="the same largest margin") as seen:
        GMMC(C=None, kernel="precomputed", balance_weight=1e4).fit(np.eye(5))
    assert seen[0].filename == __file__


def test_a_small_balance_weight_is_warned_of(rng):
    X, _ = groups(rng, 30)
    with pytest.warns(UserWarning, match="one cluster.*balance_weight=1e-06"):
        model = GMMC(balance_weight=1e-6).fit(X)
    assert not model.labels_.any()
    assert not model.predict(X).any()


def test_an_iteration_limit_is_warned_of(rng):
    X, _ = groups(rng, 30)
    with pytest.warns(ConvergenceWarning, match="after 2 iterations"):
        model = GMMC(max_iter=2).fit(X)
    assert model.result_.status is Status.MAX_ITER
    assert model.n_iter_ == 2


def test_extreme_values_of_C_and_shift(rng):
    X, _ = groups(rng)
    hard = GMMC(C=None).fit(X)
    assert GMMC(C=1e300).fit(X).objective_ == hard.objective_
    with pytest.raises(ValueError, match=r"^shift=1e\+300"):
        GMMC(shift=1e300).fit(X)
    with pytest.raises(ValueError, match=r"^balance_weight=1e-300"):
        GMMC(balance_weight=1e-300).fit(X)


def test_equal_rows_are_refused():
    with pytest.raises(ValueError, match="all 8 rows of X"):
        GMMC().fit(np.ones((8, 2)))
    with pytest.raises(ValueError, match="whose values are all 0"):
        GMMC(kernel="precomputed").fit(np.zeros((8, 8)))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.0}, ValueError, "^C .*got 0.0"),
        ({"C": "soft"}, TypeError, "^C .*got 'soft'"),
        ({"balance_weight": 0.0}, ValueError, "^balance_weight .*greater"),
        ({"balance_weight": np.inf}, ValueError, "^balance_weight .*greater"),
        ({"shift": -1.0}, ValueError, "shift must be at least 0"),
        ({"gamma": -1.0}, ValueError, "gamma must be greater than 0"),
        ({"gamma": "auto"}, ValueError, "^gamma .*positive"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"kernel": "nonsense"}, ValueError, "^kernel='nonsense'"),
        ({"kernel_params": 3}, TypeError, "^kernel_params"),
        ({"kernel": "poly", "degree": "x"}, TypeError, "^degree"),
        ({"kernel": "sigmoid", "coef0": None}, TypeError, "^coef0"),
    ],
)
def test_bad_parameters(parameters, error, message, rng):
    with pytest.raises(error, match=message):
        GMMC(**parameters).fit(groups(rng)[0])


def test_bad_kernel_matrices(rng):
    A = rng.standard_normal((12, 12))
    with pytest.raises(ValueError, match=r"symmetric.*K\.T"):
        GMMC(kernel="precomputed").fit(A)
    indefinite = A + A.T
    with pytest.raises(ValueError, match="positive semidefinite") as seen:
        GMMC(kernel="precomputed").fit(indefinite)
    # The remedy in the message works.
    shift = float(str(seen.value).split("shift=")[1].split()[0])
    assert quietly(GMMC(kernel="precomputed", shift=shift), indefinite).result_.status.ok
    with pytest.raises(ValueError, match="must be square"):
        GMMC(kernel="precomputed").fit(A[:5])


def test_one_cluster_is_one_cluster(rng):
    model = GMMC(n_clusters=1).fit(groups(rng)[0])
    assert not model.labels_.any()
