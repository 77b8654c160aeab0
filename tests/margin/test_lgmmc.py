"""LGMMC: clusters, equivalent inputs, edges."""

import pickle
import re

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, saddle_by_cvxpy, same_fit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar.datasets import make_two_circles
from volmar.margin.lgmmc import LGMMC
from volmar.metrics import clustering_error
from volmar.solvers import Status

TRUTH = np.arange(60) < 25


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}])
def test_groups(near_halves, options):
    model = LGMMC(random_state=0, **options).fit(near_halves)
    assert model.status_ is Status.CONVERGED
    assert clustering_error(TRUTH, model.labels_) <= 0.02
    np.testing.assert_array_equal(model.predict(near_halves), model.labels_)
    assert model.objective_ == model.result_.objective < 0
    assert model.n_iter_ == model.result_.n_labellings
    f = model.decision_function(near_halves)
    np.testing.assert_allclose(f, model.result_.scores / model.result_.rho, atol=1e-8)
    assert abs(f.mean()) < 1e-8


def test_circles_need_the_kernel():
    X, y = make_two_circles(160, noise=0.02, factor=0.2, random_state=0)
    model = LGMMC(gamma="4*scale", random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    assert clustering_error(y, LGMMC(kernel="linear", random_state=0).fit(X).labels_) > 0.2


def test_a_small_C_gives_the_largest_distance_of_means(rng):
    """Where all rows weigh alike, |sum y_i z_i| is maximised: by brute force for 10 rows."""
    X = rng.standard_normal((10, 2))
    Y = all_labellings(10, 5)
    best = Y[np.linalg.norm(Y @ (X - X.mean(axis=0)), axis=1).argmax()]
    model = LGMMC(kernel="linear", C=1e-3, balance=0.5, n_init=30, random_state=0).fit(X)
    assert model.result_.n_labellings == 1
    np.testing.assert_allclose(model.result_.alpha, 0.1, rtol=1e-2)
    assert clustering_error(best > 0, model.labels_) <= 0.1


def test_a_larger_C_moves_rows_out_of_the_margin(rng):
    X = rng.standard_normal((300, 2)) * [2.0, 1.0]
    shares = []
    for C in (0.1, 30.0, 1000.0):
        model = LGMMC(kernel="linear", C=C, random_state=0, max_iter=100).fit(X)
        shares.append(np.mean(model.result_.alpha > 0))
    assert shares[0] == 1.0
    assert shares[0] > shares[1] > shares[2]


TIGHT = {"tol": 1e-6, "n_init": 20, "C": 10.0, "max_iter": 300, "random_state": 0}


def test_linear_is_the_precomputed_kernel(near_halves, rng):
    linear = LGMMC(kernel="linear", **TIGHT).fit(near_halves)
    given = LGMMC(kernel="precomputed", **TIGHT).fit(near_halves @ near_halves.T)
    same_fit(linear, given)
    new = rng.standard_normal((30, 5)) * 3
    f, g = linear.decision_function(new), given.decision_function(new @ near_halves.T)
    np.testing.assert_allclose(np.sign(f @ g) * g, f, atol=1e-3)
    scores = near_halves @ linear.coef_[0] + linear.intercept_[0]
    np.testing.assert_allclose(linear.decision_function(near_halves), scores, atol=1e-10)
    scores = near_halves @ near_halves.T @ given.dual_coef_ + given.intercept_[0]
    np.testing.assert_allclose(
        given.decision_function(near_halves @ near_halves.T), scores, atol=1e-10
    )


def test_precomputed_is_the_named_kernel(near_halves):
    named = LGMMC(gamma=0.1, **TIGHT).fit(near_halves)
    same_fit(named, LGMMC(kernel="precomputed", **TIGHT).fit(rbf_kernel(near_halves, gamma=0.1)))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_float32_is_near_float64(near_halves, kernel):
    double = LGMMC(kernel=kernel, random_state=0).fit(near_halves)
    single = LGMMC(kernel=kernel, random_state=0).fit(near_halves.astype(np.float32))
    same_fit(double, single, tol=0.01)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("scale", [1e-145, 1e-8, 1e8, 1e145])
def test_scale_of_x_is_of_no_matter(near_halves, kernel, scale):
    one = LGMMC(kernel=kernel, random_state=0).fit(near_halves)
    other = LGMMC(kernel=kernel, random_state=0).fit(near_halves * scale)
    assert clustering_error(one.labels_, other.labels_) == 0.0
    np.testing.assert_array_equal(other.predict(near_halves * scale), other.labels_)
    unit = scale**2 if kernel == "linear" else 1.0
    assert other.objective_ == pytest.approx(unit * one.objective_, rel=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e6), (np.float32, 1e4)])
def test_an_offset_is_of_no_matter(near_halves, kernel, dtype, offset):
    far = (near_halves + offset).astype(dtype)
    one = LGMMC(kernel=kernel, random_state=0).fit(far.astype(np.float64) - offset)
    other = LGMMC(kernel=kernel, random_state=0).fit(far)
    same_fit(one, other, tol=0.01)
    np.testing.assert_array_equal(other.predict(far), other.labels_)


def test_twice_the_rows_are_the_same_problem(near_halves):
    one = LGMMC(kernel="linear", **TIGHT).fit(near_halves)
    two = LGMMC(kernel="linear", **TIGHT).fit(np.repeat(near_halves, 2, axis=0))
    assert clustering_error(np.repeat(one.labels_, 2), two.labels_) == 0.0
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-3)


def test_random_state_repeats_a_fit(rng):
    X = rng.standard_normal((70, 4))
    one, other = (LGMMC(random_state=5).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert one.objective_ == other.objective_


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
    model = LGMMC(kernel="linear", balance=0.0, C=5.0, tol=1e-5, n_init=30, max_iter=200)
    found = model.set_params(random_state=0).fit(X).result_
    Z = X - X.mean(axis=0)
    C = 5.0 / np.square(Z).sum()
    assert found.objective == pytest.approx(
        saddle_by_cvxpy(Z, all_labellings(n, n % 2), C), rel=1e-4
    )
    # The wider set has the lower value.
    assert found.objective > saddle_by_cvxpy(Z, all_labellings(n, 6), C) * (1 - 1e-6)


def test_balance_allows_exactly_its_value():
    """0.58 times 100 is a rounding below 58: the labels of 79 rows and 21 have that sum."""
    X = np.repeat([[0.0], [1.0]], [79, 21], axis=0)
    allowed, refused = (
        LGMMC(kernel="linear", balance=balance, max_iter=300, random_state=0).fit(X).result_
        for balance in (0.58, 0.57)
    )
    assert allowed.n_labellings == 1
    assert allowed.objective == pytest.approx(allowed.labelled_objective)
    assert refused.objective > 1.01 * refused.labelled_objective
    nearly_one = LGMMC(kernel="linear", balance=np.nextafter(1.0, 0.0), random_state=0).fit(X)
    assert nearly_one.objective_ == pytest.approx(allowed.objective)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_large_C_converges(rng, kernel):
    X = rng.standard_normal((60, 5))
    model = LGMMC(kernel=kernel, C=1e8, random_state=0, max_iter=100).fit(X)
    assert model.status_ is Status.CONVERGED
    assert model.result_.residuals["master gap"] <= 0.01
    harder = LGMMC(kernel=kernel, C=1e10, random_state=0, max_iter=100).fit(X)
    assert harder.objective_ == pytest.approx(model.objective_, rel=0.05)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rows_are_refused(kernel, dtype):
    with pytest.raises(ValueError, match=r"rows of X .*kernel"):
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
        ({"C": 0.0}, ValueError, "^C .*got 0"),
        ({"C": 1e300}, ValueError, "^C .*got 1e[+]300"),
        ({"C": "high"}, TypeError, "C must be a number"),
        ({"balance": 1.0}, ValueError, "balance=1 .* below 1"),
        ({"balance": -0.1}, ValueError, "balance must be at least 0"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"n_clusters": "auto"}, ValueError, "^n_clusters must be a number"),
        ({"gamma": "automatic"}, ValueError, "gamma must be"),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(near_halves, parameters, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        LGMMC(**parameters).fit(near_halves)


def test_bad_data_are_refused(near_halves):
    holes = near_halves.copy()
    holes[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LGMMC().fit(holes)
    with pytest.raises(ValueError, match="minimum of 2"):
        LGMMC().fit(near_halves[:1])
    with pytest.raises(ValueError, match="must be square"):
        LGMMC(kernel="precomputed").fit(near_halves)


def test_an_early_end_warns_and_brackets_all_the_same(rng):
    X = rng.standard_normal((60, 6))
    options = {"kernel": "linear", "C": 100.0, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="violated .*max_iter"):
        early = LGMMC(max_iter=2, **options).fit(X)
    assert early.status_ is Status.MAX_ITER
    assert early.n_iter_ == 2
    full = LGMMC(max_iter=200, **options).fit(X)
    assert full.status_ is Status.CONVERGED
    assert early.result_.bound <= full.objective_ <= early.objective_
    np.testing.assert_array_equal(early.predict(X), early.labels_)


def test_pickle_clone_and_one_cluster(near_halves):
    model = LGMMC(C=3.0, random_state=3)
    assert clone(model).get_params() == model.get_params()
    model.fit(near_halves)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        back.decision_function(near_halves), model.decision_function(near_halves)
    )
    assert back.result_.residuals == model.result_.residuals
    assert not LGMMC(n_clusters=1).fit(near_halves).labels_.any()


@pytest.mark.parametrize("options", [{}, {"kernel": "precomputed"}])
def test_pickle_leaves_the_kernel_matrix_behind(rng, options):
    X = rng.standard_normal((400, 2))
    K = rbf_kernel(X) if options.get("kernel") else X
    model = LGMMC(random_state=0, **options).fit(K)
    assert len(pickle.dumps(model)) < 0.1 * 8 * 400**2


def test_random_restarts_of_arpack_are_the_same_in_every_fit():
    rng = np.random.default_rng(265089786)
    X = rng.normal(size=(54, 6)) + 6.0 * rng.integers(3, size=(54, 1))
    X[0, 0] = -1e87
    fits = [LGMMC(random_state=0).fit(X) for _ in range(3)]
    assert len({model.decision_function(X).tobytes() for model in fits}) == 1
