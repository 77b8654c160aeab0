"""The minimax probability machine: the SOCP, the kernel derivation, Chebyshev, invariances."""

import pickle
import warnings
from collections import Counter

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.multiclass import OneVsOneClassifier
from sklearn.utils.estimator_checks import check_estimator

from volmar.datasets import make_two_circles
from volmar.separation.minimax_probability_machine import MinimaxProbabilityMachine
from volmar.solvers import Status, minimax_probability

EXPECTED_SKIPS = {
    "check_array_api_input": "array API support is not claimed",
}


def two_groups(seed, n=60, d=4, distance=1.5):
    """Two groups with different covariances, classes 0 and 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3 % 2
    maps = rng.standard_normal((2, d, d)) + 1.5 * np.eye(d)
    X = np.einsum("ij,ijk->ik", rng.standard_normal((n, d)), maps[y])
    X[y == 1] += distance * rng.standard_normal(d)
    return X, y


def cone_kappa(difference, roots):
    """Return 1 / min sum_k |A_k v| over v with v'difference = 1, by Clarabel in units near 1."""
    size, scale = linalg.norm(difference), linalg.norm(roots[0], 2)
    v = cp.Variable(difference.size)
    objective = cp.Minimize(sum(cp.norm(A / scale @ v) for A in roots))
    cp.Problem(objective, [v @ (difference / size) == 1]).solve(solver=cp.CLARABEL)
    return size / (scale * objective.value)


# ------------------------------------------------------------------ the optimum


@pytest.mark.parametrize("reg", [1e-6, 1e-2, 1.0])
def test_agrees_with_the_socp_on_real_data(reg):
    X, y = load_breast_cancer(return_X_y=True)
    model = MinimaxProbabilityMachine(reg=reg).fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    groups = [Z[y == 1], Z[y == 0]]
    covariances = [np.cov(G.T, bias=True) + reg * np.eye(30) for G in groups]
    difference = groups[0].mean(axis=0) - groups[1].mean(axis=0)
    kappa = cone_kappa(difference, [linalg.cholesky(S) for S in covariances])
    assert model.kappa_ == pytest.approx(kappa, rel=1e-6)
    assert model.result_.is_certified(1e-9)
    # kappa again, from coef_ alone: it is in the coordinates of X.
    w = model.coef_[0] * X.std(axis=0)
    roots = [np.sqrt(w @ S @ w) for S in covariances]
    assert w @ difference == pytest.approx(1.0)
    assert 1 / sum(roots) == pytest.approx(model.kappa_)
    means = model.decision_function(np.stack([X[y == k].mean(axis=0) for k in (1, 0)]))
    np.testing.assert_allclose(means, [kappa * roots[0], -kappa * roots[1]], rtol=1e-5)
    p = model.separation_probability_
    assert np.sqrt(p / (1 - p)) == pytest.approx(model.kappa_)
    assert model.score(X, y) > 0.95


@pytest.mark.parametrize("kernel", ["rbf", "poly", "precomputed"])
@pytest.mark.parametrize("reg", [1e-2, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_kernel_form_agrees_with_its_derivation(kernel, reg, weighted):
    """Lanckriet et al. (2003), section 4, in the coefficients of w = sum_i alpha_i phi(x_i).

    With p_k the weights of class k, summing to 1: w'mu_k = alpha'K p_k and
    w'S_k w = alpha'K (diag p_k - p_k p_k') K alpha; w'w = alpha'K alpha; e1 is the largest
    eigenvalue of C^(1/2) K C^(1/2) with C = diag p - p p' and p the weights of all rows.
    """
    X, y = two_groups(3, n=40, d=2)
    weights = np.random.default_rng(1).random(40) + 0.1 if weighted else np.ones(40)
    K = polynomial_kernel(X, gamma=0.5) if kernel == "poly" else rbf_kernel(X, gamma=0.5)
    spectrum, U = linalg.eigh(K)
    kept = spectrum > 1e-12 * spectrum[-1]
    half = np.sqrt(spectrum[kept])[:, None] * U[:, kept].T  # K = half' half; v = half alpha
    shares = [weights * (y == k) / weights[y == k].sum() for k in (1, 0)]

    def centring(p):
        """A root C of diag p - p p' = C'C."""
        return np.sqrt(p)[:, None] * (np.eye(p.size) - p)

    everything = centring(weights / weights.sum())
    e1 = linalg.eigvalsh(everything @ K @ everything.T)[-1]
    ridge = np.sqrt(reg * e1) * np.eye(len(half))
    roots = [np.vstack([centring(p) @ half.T, ridge]) for p in shares]
    kappa = cone_kappa(half @ (shares[0] - shares[1]), roots)

    given = K if kernel == "precomputed" else X
    gamma = "scale" if kernel == "precomputed" else 0.5
    model = MinimaxProbabilityMachine(kernel=kernel, gamma=gamma, reg=reg)
    model.fit(given, y, sample_weight=weights)
    assert model.kappa_ == pytest.approx(kappa, rel=1e-6)
    assert not hasattr(model, "coef_")
    scores = model.decision_function(given)
    assert shares[0] @ scores - shares[1] @ scores == pytest.approx(1.0)


@given(
    seed=st.integers(0, 10_000),
    reg=st.sampled_from([1e-9, 1e-3, 1.0]),
    kernel=st.sampled_from(["linear", "rbf"]),
    shape=st.sampled_from([(12, 2), (40, 3), (25, 6), (10, 12)]),
    heavy=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_the_bound_holds_on_the_training_rows(seed, reg, kernel, shape, heavy):
    """One-sided Chebyshev for the empirical distribution; a regulariser only adds slack."""
    rng = np.random.default_rng(seed)
    n, d = shape
    X = rng.standard_cauchy((n, d)) if heavy else rng.standard_normal((n, d))
    X[:, 0] += 2 * (np.arange(n) % 2)
    y, weights = np.arange(n) % 2, rng.random(n) + 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly singular at 1e-9
        model = MinimaxProbabilityMachine(reg=reg, kernel=kernel).fit(X, y, weights)
    signed = model.decision_function(X) * np.where(y == 1, 1, -1)
    for k in (0, 1):
        share = weights[(y == k) & (signed > -1e-7)].sum() / weights[y == k].sum()
        assert share >= model.separation_probability_ - 1e-7


def test_the_bound_is_attained():
    """Two points per class at distance 1 with shares 0.8 and 0.2: the bound is attained."""
    X = np.array([[0.0], [1.0], [1.0], [2.0]])
    model = MinimaxProbabilityMachine(reg=0).fit(X, [0, 0, 1, 1], [0.8, 0.2, 0.2, 0.8])
    # mu = 0.2 and 1.8, s = 0.4: kappa = 1.6 / 0.8.
    assert model.kappa_ == pytest.approx(2.0)
    assert model.separation_probability_ == pytest.approx(0.8)
    assert model.coef_[0, 0] * 1.0 + model.intercept_[0] == pytest.approx(0.0, abs=1e-12)


# ------------------------------------------------------------------ invariances


@given(seed=st.integers(0, 10_000), kernel=st.sampled_from(["linear", "rbf"]))
@settings(max_examples=30, deadline=None)
def test_weight_two_is_a_row_written_twice(seed, kernel):
    X, y = two_groups(seed)
    weights = np.random.default_rng(seed).integers(0, 3, y.size)
    weights[:3] = 1
    model = MinimaxProbabilityMachine(kernel=kernel)
    one = clone(model).fit(X, y, sample_weight=weights)
    two = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.kappa_ == pytest.approx(two.kappa_, rel=1e-8)
    new = two_groups(seed + 1)[0]
    np.testing.assert_allclose(one.decision_function(new), two.decision_function(new), atol=1e-6)


@given(seed=st.integers(0, 10_000), reg=st.sampled_from([0.0, 1e-2, 1.0]))
@settings(max_examples=30, deadline=None)
def test_rescaled_features_change_nothing(seed, reg):
    X, y = two_groups(seed)
    rng = np.random.default_rng(seed)
    factors = 10.0 ** rng.uniform(-6, 6, 4) * rng.choice([-1, 1], 4)
    one = MinimaxProbabilityMachine(reg=reg).fit(X, y)
    two = MinimaxProbabilityMachine(reg=reg).fit(X * factors, y)
    assert one.kappa_ == pytest.approx(two.kappa_, rel=1e-9)
    np.testing.assert_array_equal(one.predict(X), two.predict(X * factors))
    np.testing.assert_allclose(one.coef_, two.coef_ * factors, rtol=1e-5, atol=1e-8)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_theorem_1_any_invertible_map_without_a_regulariser(seed):
    X, y = two_groups(seed, d=3)
    rng = np.random.default_rng(seed)
    Q = [linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2)]
    P = Q[0] * rng.uniform(0.3, 3, 3) @ Q[1]
    shift = rng.standard_normal(3)
    one = MinimaxProbabilityMachine(reg=1e-12).fit(X, y)
    two = MinimaxProbabilityMachine(reg=1e-12).fit(X @ P + shift, y)
    assert one.kappa_ == pytest.approx(two.kappa_, rel=1e-7)
    np.testing.assert_allclose(
        one.decision_function(X), two.decision_function(X @ P + shift), atol=1e-4
    )


def test_a_regulariser_depends_on_rotations():
    """The invariance above needs reg = 0. This would fail if reg were ignored."""
    X, y = two_groups(0)
    Q = linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    X = X * [1, 10, 100, 1000]
    one, two = (MinimaxProbabilityMachine(reg=1.0).fit(Z, y) for Z in (X, X @ Q))
    assert abs(one.kappa_ - two.kappa_) > 1e-3


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_swapped_classes_swap_the_sides(kernel):
    X, y = two_groups(5)
    one = MinimaxProbabilityMachine(kernel=kernel).fit(X, y)
    two = MinimaxProbabilityMachine(kernel=kernel).fit(X, np.where(y == 0, "b", "a"))
    np.testing.assert_array_equal(two.classes_, ["a", "b"])
    np.testing.assert_allclose(one.decision_function(X), -two.decision_function(X), atol=1e-7)
    np.testing.assert_array_equal(two.predict(X) == "a", one.predict(X) == 1)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_sparse_is_dense(kernel):
    X, y = two_groups(6, n=90)
    X[np.abs(X) < 0.7] = 0.0
    dense = MinimaxProbabilityMachine(kernel=kernel).fit(X, y)
    for kind in (sparse.csr_matrix, sparse.csr_array, sparse.csc_array):
        other = MinimaxProbabilityMachine(kernel=kernel).fit(kind(X), y)
        assert other.kappa_ == pytest.approx(dense.kappa_, rel=1e-9)
        np.testing.assert_allclose(
            other.decision_function(kind(X)), dense.decision_function(X), atol=1e-7
        )


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_float32_is_near_float64(kernel):
    X, y = two_groups(7, n=200)
    X += 1000.0
    single = X.astype(np.float32)
    one = MinimaxProbabilityMachine(kernel=kernel).fit(single.astype(np.float64), y)
    two = MinimaxProbabilityMachine(kernel=kernel).fit(single, y)
    assert two.kappa_ == pytest.approx(one.kappa_, rel=1e-3)
    agree = one.predict(single.astype(np.float64)) == two.predict(single)
    assert agree.mean() >= 0.99


def test_classes_far_apart_keep_their_digits():
    """Covariances about the mean of all rows would lose 1e14 of 1e16 here."""
    X, y = two_groups(8, distance=0.0)
    X[y == 1] += 1e7
    model = MinimaxProbabilityMachine(reg=0).fit(X, y)
    groups = [X[y == 1] - 1e7, X[y == 0]]
    difference = 1e7 + groups[0].mean(axis=0) - groups[1].mean(axis=0)
    w = model.coef_[0]
    roots = [np.sqrt(w @ np.cov(G.T, bias=True) @ w) for G in groups]
    assert w @ difference / sum(roots) == pytest.approx(model.kappa_, rel=1e-4)
    assert model.score(X, y) == 1.0


# ------------------------------------------------------------------ landmarks


def test_circles_by_landmarks_and_exactly(monkeypatch):
    X, y = make_two_circles(400, noise=0.05, factor=0.4, random_state=0)
    X_new, y_new = make_two_circles(200, noise=0.05, factor=0.4, random_state=1)
    exact = MinimaxProbabilityMachine(kernel="rbf").fit(X, y)
    few = MinimaxProbabilityMachine(kernel="rbf", n_components=40, random_state=0).fit(X, y)
    assert few.feature_map_.n_components <= 40 < exact.feature_map_.n_components
    assert few.kappa_ == pytest.approx(exact.kappa_, rel=0.01)
    for model in (exact, few):
        assert model.score(X_new, y_new) == 1.0
    assert MinimaxProbabilityMachine().fit(X, y).score(X_new, y_new) < 0.7
    # The same again where features are computed as they are read.
    monkeypatch.setattr("volmar.rows.anywhere.FEATURE_BYTES", 1)
    again = clone(few).fit(X, y)
    assert again.kappa_ == pytest.approx(few.kappa_, rel=1e-10)
    # Beyond the size up to which a kernel is exact, landmarks are the default.
    monkeypatch.setattr("volmar.base.kernel.EXACT_KERNEL_UP_TO", 399)
    monkeypatch.setattr("volmar.base.kernel.N_LANDMARKS", 40)
    np.testing.assert_array_equal(
        clone(exact).set_params(random_state=0).fit(X, y).decision_function(X_new),
        again.decision_function(X_new),
    )


def test_kernel_rules_and_seeds_are_those_of_other_methods():
    X, y = two_groups(5)
    scale = 1.0 / (X.shape[1] * X.var())
    by_rule = MinimaxProbabilityMachine(kernel="rbf", gamma="4*scale").fit(X, y)
    by_number = MinimaxProbabilityMachine(kernel="rbf", gamma=4 * scale).fit(X, y)
    assert by_rule.kappa_ == pytest.approx(by_number.kappa_, rel=1e-6)
    maps = [
        MinimaxProbabilityMachine(
            kernel="rbf", n_components=5, random_state=np.random.RandomState(seed)
        )
        .fit(X, y)
        .feature_map_
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(maps[0].landmarks_, maps[1].landmarks_)
    assert not np.array_equal(maps[0].landmarks_, maps[2].landmarks_)


def test_weightless_rows_are_no_landmarks():
    X, y = two_groups(9)
    weights = (np.arange(60) < 40).astype(float)
    model = MinimaxProbabilityMachine(kernel="rbf", gamma=0.1, n_components=10, random_state=0)
    one = clone(model).fit(X, y, weights).decision_function(X)
    two = clone(model).fit(X[:40], y[:40]).decision_function(X)
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_leading_components_of_a_precomputed_kernel():
    X, y = two_groups(10)
    K = X @ X.T
    every = MinimaxProbabilityMachine(kernel="precomputed").fit(K, y)
    four = MinimaxProbabilityMachine(kernel="precomputed", n_components=4).fit(K, y)
    two = MinimaxProbabilityMachine(kernel="precomputed", n_components=2).fit(K, y)
    assert four.kappa_ == pytest.approx(every.kappa_, rel=1e-9)  # of rank 4
    assert two.feature_map_.n_components == 2
    assert two.kappa_ < every.kappa_
    with pytest.raises(TypeError, match="Sparse data was passed"):
        every.fit(sparse.csr_array(K), y)


def test_callable_kernel_is_the_named_one():
    X, y = two_groups(10)
    named = MinimaxProbabilityMachine(kernel="rbf", gamma=0.3).fit(X, y)
    own = MinimaxProbabilityMachine(kernel=rbf_kernel, kernel_params={"gamma": 0.3}).fit(X, y)
    found = own.decision_function(X)
    np.testing.assert_allclose(found, named.decision_function(X), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ edges


def test_constant_and_duplicated_features():
    X, y = two_groups(11)
    wide = np.hstack([X, np.full((60, 1), 3.0), X[:, :1]])
    model = MinimaxProbabilityMachine().fit(wide, y)
    assert model.coef_.shape == (1, 6)
    assert model.coef_[0, 4] == 0.0
    assert model.coef_[0, 0] == pytest.approx(model.coef_[0, 5])
    with pytest.raises(ValueError, match="singular with reg=0"):
        MinimaxProbabilityMachine(reg=0).fit(wide, y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(5))
def test_no_regulariser_and_fewer_rows_than_features(dtype, seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((30, 40)).astype(dtype), np.arange(30) % 2
    with pytest.raises(ValueError, match=r"singular with reg=0"):
        MinimaxProbabilityMachine(reg=0).fit(X, y)
    with pytest.raises(ValueError, match=r"singular with reg=0"):
        MinimaxProbabilityMachine(reg=0, kernel="rbf").fit(X[:, :3], y)
    model = MinimaxProbabilityMachine(reg=1e-6).fit(X.astype(np.float64), y)
    assert model.separation_probability_ > 0.99  # for random labels
    assert MinimaxProbabilityMachine().fit(X, y).result_.status is Status.CONVERGED


def test_one_row_a_class_is_the_middle():
    model = MinimaxProbabilityMachine().fit([[0.0, 1.0], [2.0, 1.0]], [0, 1])
    np.testing.assert_allclose(model.coef_, [[0.5, 0.0]])
    np.testing.assert_allclose(model.intercept_, [-0.5])


@pytest.mark.parametrize(
    "X",
    [
        np.array([[0.1, 0.1], [0.7, 0.7], [0.1, 0.7], [0.7, 0.1]]),
        np.ones((4, 3)),
    ],
    ids=["xor", "constant"],
)
def test_equal_means_warn(X):
    y = [0, 0, 1, 1]
    with pytest.warns(ConvergenceWarning, match="same mean.*rbf"):
        model = MinimaxProbabilityMachine().fit(X, y)
    assert model.result_.status is Status.DEGENERATE
    assert model.kappa_ == model.separation_probability_ == 0.0
    np.testing.assert_array_equal(model.predict(X), [0, 0, 0, 0])


def test_equal_rows_to_a_kernel():
    with pytest.raises(ValueError, match="alike to this kernel"):
        MinimaxProbabilityMachine(kernel="rbf").fit(np.ones((4, 2)), [0, 0, 1, 1])
    with pytest.warns(ConvergenceWarning, match="classes have the same mean"):
        MinimaxProbabilityMachine(kernel="rbf", n_components=2).fit(np.ones((4, 2)), [0, 0, 1, 1])


def test_a_large_gap_warns(monkeypatch):
    monkeypatch.setattr(minimax_probability, "MAX_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match="nearly singular. Use a larger reg"):
        MinimaxProbabilityMachine().fit(*two_groups(0))


def test_another_fit_leaves_nothing_behind():
    X, y = two_groups(12)
    model = MinimaxProbabilityMachine().fit(X, y)
    model.set_params(kernel="rbf").fit(X, y)
    assert not hasattr(model, "coef_")
    with pytest.raises(ValueError, match="1 class"):
        model.fit(X, np.zeros(60))
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_pickle_and_clone(kernel):
    X, y = two_groups(13)
    model = MinimaxProbabilityMachine(kernel=kernel, reg=0.2, n_components=20, random_state=0)
    model.fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.result_.status is Status.CONVERGED
    fresh = clone(model)
    assert not hasattr(fresh, "result_")
    assert fresh.get_params() == model.get_params()
    np.testing.assert_array_equal(fresh.fit(X, y).predict(X), model.predict(X))


def test_more_classes_by_pairs():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 2)) + np.array([[0, 0], [6, 0], [0, 6]])[y]
    assert OneVsOneClassifier(MinimaxProbabilityMachine()).fit(X, y).score(X, y) > 0.95


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"reg": -1.0}, ValueError, "^reg .*got -1.0"),
        ({"reg": "much"}, TypeError, "^reg .*got 'much'"),
        ({"reg": np.nan}, ValueError, "^reg .*got nan"),
        ({"kernel": "wavy"}, ValueError, "kernel='wavy' is not known"),
        ({"gamma": "auto"}, ValueError, "^gamma .*got 'auto'"),
        ({"gamma": 0.0}, ValueError, "gamma must be greater than 0"),
        ({"kernel_params": {"a": 1}}, ValueError, "^kernel_params"),
        ({"n_components": 0}, ValueError, "^n_components .*got 0"),
        ({"n_components": 2.5}, TypeError, "^n_components .*integer"),
        (
            {"n_components": 61, "kernel": "rbf"},
            ValueError,
            "^n_components .*between 1",
        ),
        ({"kernel": "precomputed"}, ValueError, "square kernel matrix.*60, 4"),
        ({"kernel": rbf_kernel, "gamma": 1.0}, ValueError, "gamma=1.0 has no meaning"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        MinimaxProbabilityMachine(**parameters).fit(*two_groups(0))


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        (np.arange(60) % 3, None, "OneVsOne"),
        (np.zeros(60), None, "y has 1 class.*needs 2"),
        (np.arange(60) % 2, np.arange(60) % 2, "^sample_weight .*classes"),
        (np.arange(60) % 2, -np.ones(60), "^sample_weight .*negative"),
        (np.linspace(0, 1, 60), None, "Unknown label type"),
    ],
)
def test_bad_labels_and_weights(y, weights, message):
    with pytest.raises(ValueError, match=message):
        MinimaxProbabilityMachine().fit(two_groups(0)[0], y, weights)


def test_bad_rows():
    X, y = two_groups(0)
    with pytest.raises(ValueError, match="square does not fit"):
        MinimaxProbabilityMachine().fit(X * 1e200, y)
    with pytest.raises(ValueError, match="NaN"):
        MinimaxProbabilityMachine().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="3 features"):
        MinimaxProbabilityMachine().fit(X, y).predict(X[:, :3])


# ------------------------------------------------------------------ scikit-learn


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
def test_scikit_learn_checks(kernel):
    with warnings.catch_warnings():
        # The checks fit noise and constants, which cause warnings.
        warnings.simplefilter("ignore")
        results = check_estimator(
            MinimaxProbabilityMachine(kernel=kernel, random_state=0), on_skip=None, on_fail=None
        )
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= set(EXPECTED_SKIPS)
    counts = Counter(r["status"] for r in results)
    assert counts["xfail"] == 0
    assert counts["passed"] >= 50
