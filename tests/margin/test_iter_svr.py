"""IterSVR: clusters, equivalent inputs, starts, edges."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from volmar.datasets import make_two_circles
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.iter_svr import IterSVR
from volmar.metrics import clustering_error
from volmar.solvers import Status

TIGHT = {"tol": 1e-8}


KINDS = [
    {"kernel": "linear"},
    {"gamma": 0.1},
]


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("bias", ["gap", "balance"])
@pytest.mark.parametrize("init", ["k-means", "principal", "random"])
def test_groups_are_found_and_predicted(groups, options, bias, init):
    model = IterSVR(bias=bias, init=init, random_state=0, **options).fit(groups)
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
    with pytest.raises(ValueError, match="unrelated to the rows"):
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


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}])
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


def test_the_minimum_size_holds(rng):
    X = rng.standard_normal((50, 3))
    for size, minimum in ((10, 10), (0.4, 20), (1, 1)):
        for bias in ("gap", "balance"):
            model = IterSVR(min_cluster_size=size, bias=bias, random_state=0).fit(X)
            assert np.bincount(model.labels_, minlength=2).min() >= minimum


@pytest.mark.parametrize("options", [{"kernel": "linear"}, {}])
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
    with pytest.raises(ValueError, match="all 8 rows of X"):
        IterSVR(init=np.arange(8) % 2, **options).fit(np.full((8, 2), value))


def test_pickle_clone_and_random_state(groups):
    model = IterSVR(random_state=3, init="random")
    assert clone(model).get_params() == model.get_params()
    model.fit(groups)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.decision_function(groups), model.decision_function(groups))
    np.testing.assert_array_equal(clone(model).fit(groups).labels_, model.labels_)
    assert dict(back.result_.residuals) == dict(model.result_.residuals)


@pytest.mark.parametrize("options", [{}, {"kernel": "precomputed"}])
def test_pickle_leaves_the_kernel_matrix_behind(rng, options):
    X = rng.standard_normal((400, 2)) + np.repeat([[0.0], [4.0]], 200, axis=0)
    K = rbf_kernel(X) if options.get("kernel") else X
    model = IterSVR(random_state=0, **options).fit(K)
    assert len(pickle.dumps(model)) < 0.1 * 8 * 400**2


def test_an_early_end_warns(rng):
    X = rng.standard_normal((60, 4))
    with pytest.warns(ConvergenceWarning, match="after 1 .*max_iter"):
        model = IterSVR(max_iter=1, init="random", random_state=0).fit(X)
    assert model.status_ is Status.MAX_ITER
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.0}, ValueError, "C must be greater than 0"),
        ({"C": 1e300}, ValueError, r"C=1e\+300 is .* Lower C"),
        ({"C": 1e300, "kernel": "linear"}, ValueError, r"C=1e\+300 is .* Lower C"),
        ({"C": "auto"}, ValueError, "C must be one of 'scale'"),
        ({"bias": "median"}, ValueError, r"^bias\b"),
        ({"min_cluster_size": 0.6}, ValueError, "^min_cluster_size .*most 0.5"),
        ({"min_cluster_size": 0}, ValueError, "^min_cluster_size .*least 1"),
        ({"min_cluster_size": 31}, ValueError, "^min_cluster_size=31"),
        ({"init": "k means"}, ValueError, "init must be one of"),
        ({"init": np.zeros(60)}, ValueError, "init must hold n_clusters=2"),
        ({"init": np.arange(59) % 2}, ValueError, "^init .*label per"),
        ({"n_clusters": "auto"}, ValueError, "^n_clusters must be a number"),
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
def test_an_indefinite_kernel_is_refused_at_every_C(rng, C):
    """Its regression has no lower bound, so a gap would be wrong."""
    K = rng.standard_normal((40, 40))
    K = K + K.T + 5 * np.eye(40)
    with pytest.raises(ValueError, match="not positive semi-definite"):
        IterSVR(kernel="precomputed", C=C, init=np.arange(40) % 2).fit(K)
    # The negated squared distances are a kernel for coefficients of sum zero, which is enough.
    X = rng.standard_normal((40, 3)) + np.repeat([[0.0], [4.0]], 20, axis=0)
    D = -((X[:, None] - X[None]) ** 2).sum(axis=2) / 2
    model = IterSVR(kernel="precomputed", C=C, random_state=0).fit(D)
    linear = IterSVR(kernel="linear", C=C, init=model.labels_).fit(X)
    assert model.objective_ == pytest.approx(linear.objective_, rel=2e-3)
