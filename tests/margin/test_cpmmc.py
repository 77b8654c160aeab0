"""CPMMC and KernelCPMMC: digits, starts, invariance, equivalences, edges, new rows."""

import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

from volmar.datasets import make_two_circles
from volmar.margin.cpmmc import CPMMC
from volmar.margin.kernel_cpmmc import KernelCPMMC
from volmar.metrics import clustering_error
from volmar.solvers import Status

BOTH = [CPMMC, KernelCPMMC]


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def pair_of(digits, a, b):
    kept = np.isin(digits.target, (a, b))
    return digits.data[kept], digits.target[kept]


def same_fit(one, other, tol=1e-8):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.objective_ == pytest.approx(one.objective_, rel=tol)


# ---------------------------------------------------------------------- digits


@pytest.mark.parametrize(
    ("pair", "nmi", "within"),
    [((1, 7), 1.0, 1e-12), ((2, 7), 1.0, 1e-12), ((3, 8), 0.775, 0.05), ((8, 9), 0.773, 0.05)],
)
def test_digits_by_the_path_to_10(digits, pair, nmi, within):
    X, y = pair_of(digits, *pair)
    model = CPMMC(C=10, anneal=(1.2, 3), balance=0, init="k-means", random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED
    assert model.result_.gap <= 0.01 * abs(model.result_.lower_bound)
    assert normalized_mutual_info_score(y, model.labels_) == pytest.approx(nmi, abs=within)


def starts_of_every_kind(X):
    rng = np.random.default_rng(0)
    Z = X - X.mean(axis=0)
    axes = np.linalg.svd(Z, full_matrices=False)[2]
    d = X.shape[1]
    # The last is the original Matlab code's w0.
    directions = [axes[0], axes[1], *rng.standard_normal((2, d)), np.full(d, 0.003)]
    return [
        KMeans(2, n_init=10, random_state=0).fit_predict(X),
        rng.integers(0, 2, len(X)),
        *[(Z @ w > 0).astype(int) for w in directions],
    ]


@pytest.mark.parametrize(
    ("parameters", "maximum"),
    [
        ({"C": 10, "anneal": (1.2, 3), "balance": 0}, 0.045),
        ({"C": 10, "anneal": (1.2, 3), "balance": 0.05}, 0.045),
        ({"C": 2, "anneal": (1.2,), "balance": 0}, 0.06),
        ({"C": 2, "anneal": (1.2,), "balance": 0.05}, 0.05),
    ],
)
def test_annealing_forgets_the_start(digits, parameters, maximum):
    X, y = pair_of(digits, 8, 9)
    starts = starts_of_every_kind(X)
    assert max(clustering_error(y, labels) for labels in starts) > 0.45
    errors = [clustering_error(y, CPMMC(init=s, **parameters).fit(X).labels_) for s in starts]
    assert max(errors) <= maximum
    assert max(errors) - min(errors) <= 0.01


def test_without_annealing_bad_starts_stay(digits):
    X, y = pair_of(digits, 8, 9)
    errors = [
        clustering_error(y, CPMMC(C=10, anneal=(), balance=0, init=labels).fit(X).labels_)
        for labels in starts_of_every_kind(X)[2:5]
    ]
    assert max(errors) > 0.25


def test_circles_need_the_kernel():
    X, y = make_two_circles(160, noise=0.02, factor=0.2, random_state=0)
    assert clustering_error(y, KernelCPMMC(random_state=0).fit(X).labels_) == 0.0
    assert clustering_error(y, CPMMC(random_state=0).fit(X).labels_) > 0.2


# ---------------------------------------------------------------------- equivalences

# At tol=1e-9 fits that differ by rounding end at one point.
TIGHT = {"tol": 1e-9, "C": 3.0}


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_linear_is_the_linear_kernel(groups, start, rng, threshold):
    linear = CPMMC(init=start, threshold=threshold, **TIGHT).fit(groups)
    kernel = KernelCPMMC(kernel="linear", init=start, threshold=threshold, **TIGHT).fit(groups)
    same_fit(linear, kernel)
    new = rng.standard_normal((30, 5)) * 3
    np.testing.assert_allclose(
        kernel.decision_function(new), linear.decision_function(new), atol=1e-5
    )
    np.testing.assert_allclose(groups.T @ kernel.dual_coef_, linear.coef_[0], atol=1e-5)
    assert kernel.dual_coef_.sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", BOTH)
def test_dense_is_csr(groups, start, kind):
    X = np.where(np.abs(groups) < 0.5, 0.0, groups)
    dense = kind(init=start, **TIGHT).fit(X)
    csr = kind(init=start, **TIGHT).fit(sparse.csr_array(X))
    same_fit(dense, csr)
    np.testing.assert_allclose(
        csr.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-5
    )


@pytest.mark.parametrize("kind", BOTH)
def test_float32_is_near_float64(groups, start, kind):
    double = kind(init=start).fit(groups)
    single = kind(init=start).fit(groups.astype(np.float32))
    np.testing.assert_array_equal(single.labels_, double.labels_)
    assert single.objective_ == pytest.approx(double.objective_, rel=0.02)
    exact = kind(init=start, tol=1e-5).fit(groups.astype(np.float32))
    assert exact.objective_ == pytest.approx(
        kind(init=start, tol=1e-5).fit(groups).objective_, rel=5e-5
    )


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
@pytest.mark.parametrize("kind", BOTH)
def test_weights_are_duplicated_rows(groups, start, rng, kind, threshold):
    counts = rng.integers(1, 4, len(groups))
    written = np.repeat(np.arange(len(groups)), counts)
    options = {"threshold": threshold, **TIGHT}
    weighted = kind(init=start, **options).fit(groups, sample_weight=counts)
    twice = kind(init=start[written], **options).fit(groups[written])
    np.testing.assert_array_equal(weighted.labels_[written], twice.labels_)
    assert weighted.objective_ == pytest.approx(twice.objective_, rel=1e-8)
    plain = kind(init=start, **options).fit(groups)
    assert abs(weighted.objective_ / plain.objective_ - 1) > 1e-4


@pytest.mark.parametrize("kind", BOTH)
def test_rows_without_weight_are_left_out(groups, start, rng, kind):
    weights = (rng.random(len(groups)) < 0.7) * rng.uniform(0.5, 2.0, len(groups))
    kept = weights > 0
    assert not kept.all()
    # Extreme values there must have no effect.
    X = groups.copy()
    X[~kept] = 30 * X[~kept] + 100
    gamma = {} if kind is CPMMC else {"gamma": 0.1}
    one = kind(init=start, **gamma, **TIGHT).fit(X, sample_weight=weights)
    other = kind(init=start[kept], **gamma, **TIGHT).fit(X[kept], sample_weight=weights[kept])
    np.testing.assert_array_equal(one.labels_[kept], other.labels_)
    assert one.objective_ == pytest.approx(other.objective_, rel=1e-8)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("init", ["given", "auto", "random"])
@pytest.mark.parametrize("kind", BOTH)
def test_a_common_factor_of_the_weights_changes_nothing(groups, start, rng, kind, init):
    weights = rng.uniform(0.5, 2.0, len(groups))
    model = kind(init=start if init == "given" else init, random_state=0)
    one = clone(model).fit(groups, sample_weight=weights)
    seven = clone(model).fit(groups, sample_weight=7 * weights)
    np.testing.assert_array_equal(one.labels_, seven.labels_)
    assert seven.objective_ == pytest.approx(one.objective_, rel=0.02)
    if init == "given":
        tight = clone(model).set_params(**TIGHT)
        same_fit(
            clone(tight).fit(groups, sample_weight=weights),
            clone(tight).fit(groups, sample_weight=7 * weights),
        )


def test_equal_weights_are_no_weights(groups, start):
    one = CPMMC(init=start, **TIGHT).fit(groups)
    same_fit(one, CPMMC(init=start, **TIGHT).fit(groups, sample_weight=np.full(60, 0.3)))


def test_precomputed_is_the_named_kernel(groups, start, rng):
    new = rng.standard_normal((10, 5))
    named = KernelCPMMC(gamma=0.1, init=start, **TIGHT).fit(groups)
    given = KernelCPMMC(kernel="precomputed", init=start, **TIGHT)
    given.fit(rbf_kernel(groups, gamma=0.1))
    same_fit(named, given)
    np.testing.assert_allclose(
        given.decision_function(rbf_kernel(new, groups, gamma=0.1)),
        named.decision_function(new),
        atol=1e-5,
    )
    # Without rows the start is the leading principal component.
    auto = KernelCPMMC(kernel="precomputed", random_state=0).fit(rbf_kernel(groups, gamma=0.1))
    assert clustering_error(np.arange(60) < 20, auto.labels_) <= 0.05


def test_all_rows_as_landmarks_are_the_exact_kernel(groups, start, rng):
    new = rng.standard_normal((20, 5))
    exact = KernelCPMMC(init=start, **TIGHT).fit(groups)
    nystroem = KernelCPMMC(
        init=start, method="nystroem", n_landmarks=60, random_state=0, **TIGHT
    ).fit(groups)
    np.testing.assert_array_equal(exact.labels_, nystroem.labels_)
    assert nystroem.objective_ == pytest.approx(exact.objective_, rel=1e-5)
    np.testing.assert_allclose(
        nystroem.decision_function(new), exact.decision_function(new), atol=1e-3
    )


# ---------------------------------------------------------------------- what is fitted


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_predict_gives_the_labels_of_training_rows(groups, kind, mode, threshold):
    model = kind(mode=mode, threshold=threshold, balance=0.01, C=5, random_state=0)
    model.fit(groups)
    assert model.status_ is Status.CONVERGED
    np.testing.assert_array_equal(model.predict(groups), model.labels_)
    truth = np.arange(60) < 20
    assert clustering_error(truth, model.labels_) <= 0.05
    f = model.decision_function(groups)
    np.testing.assert_allclose(f, model.result_.scores / model.result_.rho, atol=1e-9)
    assert model.n_iter_ == model.result_.n_iter
    assert model.objective_ == model.result_.objective


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_coefficients_are_the_decision_function(groups, dtype):
    X = groups.astype(dtype)
    model = CPMMC(balance=0.05, random_state=0).fit(X)
    assert model.coef_.shape == (1, 5)
    assert model.intercept_.shape == (1,)
    scores = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-5)
    # The mean score is in the balance box, in units of the margin.
    assert abs(np.mean(scores)) <= 0.05 + 1e-5


def test_kernel_coefficients_are_the_decision_function(groups, rng):
    model = KernelCPMMC(gamma=0.1, random_state=0).fit(groups)
    new = rng.standard_normal((9, 5))
    scores = rbf_kernel(new, groups, gamma=0.1) @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(new), scores, atol=1e-10)


@pytest.mark.parametrize("balance", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("C", [2.0, 5.0])
def test_share_of_rows_inside_the_margin(balance, C):
    """The nu property: with nu = 1/C, rows inside have weight C of n, and the weights' sum is 1.

    With |t| <= b rho their sum is at most 1 / (1 - b); at least 1 / C of the rows have weight.
    """
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((60, 3))
        X[:20] += 2
        sizes = rng.uniform(0.5, 2.0, 60)
        model = CPMMC(C=C, balance=balance, tol=1e-7, random_state=0).fit(X, sample_weight=sizes)
        assert model.status_ is Status.CONVERGED
        assert model.objective_ < 0
        f = np.abs(model.decision_function(X))
        p = sizes / sizes.sum()
        assert p @ (f < 1 - 1e-4) <= 1 / (C * (1 - balance)) + 1e-12
        assert p @ (f <= 1 + 1e-4) >= 1 / C - 1e-12


@pytest.mark.parametrize("kind", BOTH)
def test_pickle_clone_and_parameters(groups, kind):
    model = kind(C=3.0, anneal=(1.5,), random_state=3)
    assert clone(model).get_params() == model.get_params()
    assert kind().get_params()["C"] is None
    model.fit(groups)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.decision_function(groups), model.decision_function(groups))
    assert back.result_.residuals == model.result_.residuals


@pytest.mark.parametrize("options", [{}, {"kernel": "precomputed"}, {"method": "nystroem"}])
def test_pickle_leaves_the_kernel_matrix_behind(rng, options):
    X = rng.standard_normal((400, 2))
    K = rbf_kernel(X) if options.get("kernel") else X
    model = KernelCPMMC(random_state=0, n_landmarks=10, **options).fit(K)
    assert len(pickle.dumps(model)) < 0.1 * 8 * 400**2


@pytest.mark.parametrize("init", ["auto", "k-means", "random"])
@pytest.mark.parametrize("kind", BOTH)
def test_random_state_repeats_a_fit(rng, kind, init):
    X = rng.standard_normal((70, 4))
    one, other = (kind(init=init, random_state=5).fit(X) for _ in range(2))
    same_fit(one, other, tol=0)


def test_more_starts_are_not_worse_at_the_screening_C(rng):
    X = rng.standard_normal((80, 6))
    options = {"C": 1.2, "balance": 0, "anneal": (), "init": "random", "random_state": 0}
    few = CPMMC(n_init=1, tol=1e-4, **options).fit(X)
    many = CPMMC(n_init=12, tol=1e-4, **options).fit(X)
    assert many.objective_ < few.objective_


def test_starts_are_compared_on_a_sample(rng):
    X = rng.standard_normal((2500, 3)) + np.repeat([[0.0], [4.0]], 1250, axis=0)
    for init in ("auto", "k-means", "random"):
        model = CPMMC(init=init, random_state=0).fit(X, sample_weight=rng.uniform(0, 1, 2500))
        assert clustering_error(np.repeat([0, 1], 1250), model.labels_) < 0.01


# ---------------------------------------------------------------------- edges


@pytest.mark.parametrize("kernel", ["none", "linear", "rbf"])
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scale_of_x_is_of_no_matter(groups, kernel, scale):
    model = CPMMC(random_state=0) if kernel == "none" else KernelCPMMC(kernel=kernel)
    model.set_params(random_state=0)
    labels = clone(model).fit(groups).labels_
    scaled = model.fit(groups * scale)
    np.testing.assert_array_equal(scaled.labels_, labels)
    np.testing.assert_array_equal(scaled.predict(groups * scale), labels)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("dtype", "offset"), [(np.float64, 1e6), (np.float32, 1e4)])
def test_an_offset_is_of_no_matter(groups, kind, dtype, offset):
    far = (groups + offset).astype(dtype)
    near = far.astype(np.float64) - offset
    one = kind(random_state=0).fit(near)
    other = kind(random_state=0).fit(far)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    np.testing.assert_array_equal(other.predict(far), other.labels_)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-3)


@pytest.mark.parametrize("C", [2.0, 1e4])
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("case", ["two rows", "duplicates", "d > n", "constant column"])
def test_small_and_degenerate_shapes(rng, kind, case, C):
    X = {
        "two rows": np.array([[0.0, 1.0], [1.0, 1.0]]),
        "duplicates": np.repeat([[0.0, 0.0], [3.0, 1.0]], [4, 6], axis=0),
        "d > n": rng.standard_normal((8, 40)) + np.repeat([[0.0], [3.0]], 4, axis=0),
        "constant column": np.column_stack(
            [np.repeat([0.0, 5.0], 10) + 0.1 * rng.standard_normal(20), np.full(20, 7.0)]
        ),
    }[case]
    model = kind(C=C, random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED
    truth = X[:, 0] > X[:, 0].mean() if case != "d > n" else np.arange(8) > 3
    assert clustering_error(truth, model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("kind", BOTH)
def test_hard_margin_at_a_large_C(groups, kind):
    model = kind(C=1e4, tol=1e-6, random_state=0).fit(groups)
    assert np.abs(model.decision_function(groups)).min() == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("threshold", ["adaptive", "fixed"])
def test_equal_rows_are_refused(threshold):
    for model in (CPMMC, KernelCPMMC):
        gamma = {} if model is CPMMC else {"gamma": 1.0}
        with pytest.raises(ValueError, match=r"rows of X differ|fixed margin of 1|both sides"):
            model(init=np.arange(8) % 2, threshold=threshold, **gamma).fit(np.full((8, 2), 0.1))


def test_a_box_wider_than_the_scores_is_refused(groups):
    with pytest.raises(ValueError, match="balance=500"):
        CPMMC(balance=500, balance_unit="score", random_state=0).fit(groups)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("C", [1e-14, 1e-20])
def test_a_hopeless_C_of_the_fixed_threshold_is_refused(groups, kind, C):
    with pytest.raises(ValueError, match=rf"C={C:g} no hyperplane reaches the fixed margin of 1"):
        kind(threshold="fixed", C=C, balance=0, random_state=0).fit(groups)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"C": 0.9, "balance": 0}, ValueError, "^C=0.9"),
        ({"C": 1.2, "balance": 0.3}, ValueError, "^C=1.2"),
        ({"C": 0.9, "balance_unit": "score"}, ValueError, r"below C=1\."),
        ({"C": 0.0, "threshold": "fixed"}, ValueError, "C must be greater than 0"),
        ({"C": "high"}, TypeError, "C must be a number"),
        ({"balance": 1.0}, ValueError, "balance=1 .* below 1"),
        ({"balance": -0.1}, ValueError, "balance must be at least 0"),
        ({"balance_unit": "rows"}, ValueError, "balance_unit must be one of"),
        ({"threshold": "none"}, ValueError, "threshold must be one of"),
        ({"mode": "printed"}, ValueError, "mode must be one of"),
        ({"init": "k means"}, ValueError, "init must be one of"),
        ({"init": np.arange(59) % 2}, ValueError, "^init .*label per"),
        ({"init": np.arange(60) % 3}, ValueError, "^init .*got 3"),
        ({"init": np.zeros(60)}, ValueError, "^init .*got 1"),
        ({"cut_tol": 0.1}, ValueError, r"cut_tol=0.1 .*mode='paper'"),
        ({"cccp_tol": 0.1}, ValueError, r"cccp_tol=0.1 .*mode='paper'"),
        ({"mode": "paper", "cut_tol": 0.0}, ValueError, "^cut_tol .*greater"),
        ({"anneal": 1.2}, TypeError, "anneal must be"),
        ({"anneal": (0.5,)}, ValueError, "anneal must be at least 1"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"tol": 0.0}, ValueError, "tol must be greater than 0"),
    ],
)
def test_bad_parameters_are_refused_with_a_remedy(groups, kind, parameters, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        kind(**parameters).fit(groups)


@pytest.mark.parametrize("kind", BOTH)
def test_bad_data_are_refused(groups, kind):
    holes = groups.copy()
    holes[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        kind().fit(holes)
    with pytest.raises(ValueError, match="could not convert string"):
        kind().fit([["a", "b"], ["c", "d"]])
    with pytest.raises(ValueError, match="minimum of 2"):
        kind().fit(groups[:1])
    with pytest.raises(ValueError, match=r"^sample_weight"):
        kind().fit(groups, sample_weight=np.full(60, -1.0))


def test_nystroem_needs_rows(groups):
    with pytest.raises(ValueError, match="method='nystroem' needs rows"):
        KernelCPMMC(kernel="precomputed", method="nystroem").fit(groups @ groups.T)
    with pytest.raises(ValueError, match="method must be one of"):
        KernelCPMMC(method="landmarks").fit(groups)
    with pytest.raises(ValueError, match="symmetric"):
        KernelCPMMC(kernel="precomputed").fit(np.triu(np.ones((5, 5))) + np.eye(5))


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("kind", BOTH)
def test_an_early_end_warns(rng, kind, mode):
    X = rng.standard_normal((60, 4))
    with pytest.warns(ConvergenceWarning, match="Raise max_iter or (cut_)?tol"):
        model = kind(C=5, max_iter=1, mode=mode, random_state=0).fit(X)
    assert model.status_ is Status.MAX_ITER
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("kind", BOTH)
def test_the_papers_tolerances_have_their_effect(rng, kind):
    X = rng.standard_normal((60, 4))
    n_cuts = []
    for tol in (1.0, 0.05, 1e-4):
        model = kind(mode="paper", C=4, cut_tol=tol, cccp_tol=0.01, balance=0, random_state=0)
        result = model.fit(X).result_
        assert result.residuals["violation"] <= tol
        n_cuts.append(result.n_cuts)
    assert n_cuts[0] == 1
    assert 1 < n_cuts[1] < n_cuts[2]
