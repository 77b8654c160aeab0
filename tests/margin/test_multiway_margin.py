"""CPMMC and KernelCPMMC for more than two clusters at once."""

import pickle

import numpy as np
import pytest
from helpers.groups import overlapping_groups
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

from volmar import CPMMC, KernelCPMMC
from volmar.datasets import make_blobs
from volmar.margin.feature_space.linear import LinearSpace
from volmar.margin.multiway import balanced_weights, maximise_margins
from volmar.solvers import Status

BOTH = [CPMMC, KernelCPMMC]


TIGHT = {"tol": 1e-7, "C": 2.0}


def same_fit(one, other, tol=1e-5):
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.objective_ == pytest.approx(one.objective_, rel=tol)


def test_digits_beat_k_means():
    digits = load_digits()
    X, y = digits.data, digits.target
    model = CPMMC(10, random_state=0).fit(X)
    assert normalized_mutual_info_score(y, model.labels_) >= 0.80
    assert model.status_ is Status.CONVERGED
    assert model.result_.gap <= 0.01 * abs(model.result_.lower_bound)
    assert np.all(np.diff(model.result_.history) <= 0)
    np.testing.assert_array_equal(np.unique(model.labels_), np.arange(10))


@pytest.mark.parametrize(
    "centres",
    [
        [[-7, 0], [0, 0], [7, 0]],
        [[-8, 0], [8, 0], [0, 8], [0, -8], [0, 0]],
        [[7 * i, 7 * j] for i in range(3) for j in range(3)],
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_groups_at_the_mean_of_the_others_are_found(rng, centres, kind):
    """Cones around the mean could not find them: the offsets are needed."""
    centres = np.array(centres, dtype=float)
    y = np.arange(300) % len(centres)
    X = centres[y] + rng.standard_normal((300, 2))
    model = kind(len(centres), random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.97


@pytest.mark.parametrize(("k", "imbalance"), [(3, 20.0), (4, 6.0), (6, 10.0)])
def test_small_groups_are_not_given_up(k, imbalance):
    """A share 1 / C of the rows may be inside the margin; a small group must not be among them."""
    X, y = make_blobs(
        600, n_features=4, centers=k, imbalance=imbalance, separation=7.0, random_state=0
    )
    model = CPMMC(k, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.98


@pytest.fixture
def blobs(rng):
    X, start = overlapping_groups(rng, n=90, d=5)
    return X, start


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: CPMMC(4, **o),
        lambda **o: KernelCPMMC(4, **o),
        lambda **o: KernelCPMMC(4, method="nystroem", n_landmarks=20, **o),
    ],
)
def test_scores_labels_and_prediction_agree(blobs, make, dtype):
    X = blobs[0].astype(dtype)
    model = make(random_state=0).fit(X)
    scores = model.decision_function(X)
    assert scores.shape == (90, 4)
    np.testing.assert_array_equal(np.argmax(scores, axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(np.unique(model.labels_), np.arange(4))
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    result = model.result_
    np.testing.assert_allclose(scores, result.scores / result.rho, atol=tolerance, rtol=1e-4)
    np.testing.assert_allclose(result.t, result.scores.mean(axis=0), atol=tolerance)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), scores)


def test_fitted_attributes_of_the_linear_one(blobs):
    X = blobs[0]
    model = CPMMC(4, random_state=0).fit(X)
    assert model.coef_.shape == (4, 5)
    assert model.intercept_.shape == (4,)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-9)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-9)


def test_fitted_attributes_of_the_kernel(blobs):
    X = blobs[0]
    model = KernelCPMMC(4, gamma=0.1, random_state=0).fit(X)
    assert model.dual_coef_.shape == (90, 4)
    assert model.intercept_.shape == (4,)
    scores = rbf_kernel(X, gamma=0.1) @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-9)
    np.testing.assert_allclose(model.dual_coef_.sum(axis=0), 0.0, atol=1e-12)


def test_linear_is_the_linear_kernel(blobs, rng):
    X, start = blobs
    linear = CPMMC(4, init=start, **TIGHT).fit(X)
    kernel = KernelCPMMC(4, kernel="linear", init=start, **TIGHT).fit(X)
    same_fit(linear, kernel)
    new = rng.standard_normal((30, 5)) * 3
    np.testing.assert_allclose(
        kernel.decision_function(new), linear.decision_function(new), atol=1e-3
    )


@pytest.mark.parametrize("kind", BOTH)
def test_dense_is_csr(blobs, kind):
    X, start = blobs
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    same_fit(
        kind(4, init=start, **TIGHT).fit(X), kind(4, init=start, **TIGHT).fit(sparse.csr_array(X))
    )


def test_precomputed_is_the_kernel(blobs):
    X, start = blobs
    K = rbf_kernel(X, gamma=0.1)
    named = KernelCPMMC(4, gamma=0.1, init=start, **TIGHT).fit(X)
    given_matrix = KernelCPMMC(4, kernel="precomputed", init=start, **TIGHT).fit(K)
    same_fit(named, given_matrix)
    # Without labels the start comes from the leading components.
    model = KernelCPMMC(4, kernel="precomputed", random_state=0).fit(K)
    np.testing.assert_array_equal(model.predict(K), model.labels_)
    assert np.unique(model.labels_).size == 4


@pytest.mark.parametrize("kind", BOTH)
def test_a_weight_of_two_is_a_row_given_twice(blobs, rng, kind):
    X, start = blobs
    weights = rng.integers(1, 4, 90)
    weighted = kind(4, init=start, **TIGHT).fit(X, sample_weight=weights)
    twice = kind(4, init=np.repeat(start, weights), **TIGHT).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_array_equal(np.repeat(weighted.labels_, weights), twice.labels_)
    assert twice.objective_ == pytest.approx(weighted.objective_, rel=1e-5)
    plain = kind(4, init=start, **TIGHT).fit(X)
    assert plain.objective_ != pytest.approx(weighted.objective_, rel=1e-3)


@pytest.mark.parametrize("kind", BOTH)
def test_rows_of_weight_zero_have_no_effect(blobs, rng, kind):
    X, start = blobs
    far = np.vstack([X, 100.0 + rng.standard_normal((5, 5))])
    weights = np.r_[np.ones(90), np.zeros(5)]
    options = {"init": np.r_[start, np.zeros(5, dtype=int)], **TIGHT}
    options |= {"gamma": 0.1} if kind is KernelCPMMC else {}
    with_them = kind(4, **options).fit(far, sample_weight=weights)
    without = kind(4, **(options | {"init": start})).fit(X)
    np.testing.assert_array_equal(with_them.labels_[:90], without.labels_)
    assert with_them.objective_ == pytest.approx(without.objective_, rel=1e-5)


@pytest.mark.parametrize("kind", BOTH)
def test_scaled_and_shifted_rows_have_the_same_clusters(blobs, kind):
    X, start = blobs
    options = {"kernel": "linear"} if kind is KernelCPMMC else {}
    one = kind(4, init=start, **options).fit(X)
    other = kind(4, init=start, **options).fit(1e3 * X + 50.0)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    assert other.objective_ == pytest.approx(1e6 * one.objective_, rel=1e-6)


@pytest.mark.parametrize(("size", "minimum"), [(20, 20), (0.2, 18), (np.int64(22), 22), (1, 1)])
def test_minimum_sizes_are_kept(rng, size, minimum):
    """Two groups that overlap, one far away: without a minimum two clusters are enough."""
    X = rng.standard_normal((90, 3))
    X[:15] += 12.0
    for kind in BOTH:
        model = kind(4, min_cluster_size=size, random_state=0).fit(X)
        assert np.bincount(model.labels_, minlength=4).min() >= minimum
        np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_without_a_minimum_size_clusters_become_empty():
    X = make_blobs(300, n_features=6, centers=6, imbalance=8.0, separation=3, random_state=0)[0]
    start = KMeans(6, n_init=10, random_state=0).fit_predict(X)
    source = LinearSpace(X, balanced_weights(start, None, np.bincount(start, minlength=6)))
    free = maximise_margins(source, start, 6, C=1.2)
    assert np.unique(free.labels).size < 6
    kept = maximise_margins(source, start, 6, C=1.2, min_share=0.03)
    assert np.bincount(kept.labels, minlength=6).min() >= 9


def test_the_default_minimum_size_is_half_the_smallest_of_the_start(rng):
    X = rng.standard_normal((120, 2))
    start = np.repeat([0, 1, 2], [70, 30, 20])
    model = CPMMC(3, init=start).fit(X)
    assert np.bincount(model.labels_).min() >= 10


def test_a_large_C_is_reached_by_smaller_ones(blobs):
    X = blobs[0]
    model = CPMMC(4, C=8.0, random_state=0).fit(X)
    assert model.status_ is Status.CONVERGED
    direct = CPMMC(4, C=8.0, anneal=(), random_state=0)
    via = CPMMC(4, C=8.0, anneal=(2.0, 5.0), random_state=0).fit(X)
    np.testing.assert_array_equal(via.labels_, model.labels_)
    assert direct.fit(X).n_iter_ < via.n_iter_


def test_a_C_without_a_margin_keeps_the_clusters_of_a_smaller_one():
    X = np.random.default_rng(6).standard_normal((40, 1))
    with pytest.warns(ConvergenceWarning, match="at C=20 "):
        model = CPMMC(4, C=20.0, anneal=(1.2,), random_state=0).fit(X)
    assert model.status_ is Status.DEGENERATE
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert np.unique(model.labels_).size == 4


def test_many_rows_start_from_a_sample(rng):
    centres = 8.0 * rng.standard_normal((5, 6))
    y = rng.integers(0, 5, 3000)
    X = centres[y] + rng.standard_normal((3000, 6))
    model = CPMMC(5, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    same = CPMMC(5, random_state=0).fit(X)
    np.testing.assert_array_equal(same.labels_, model.labels_)


def test_every_row_a_cluster():
    X = 5.0 * np.eye(4)
    model = CPMMC(4, random_state=0).fit(X)
    np.testing.assert_array_equal(np.sort(model.labels_), np.arange(4))


@pytest.mark.parametrize("kind", BOTH)
def test_start_labels_may_have_any_names(blobs, kind):
    X, start = blobs
    names = np.array(["d", "a", "c", "b"])
    np.testing.assert_array_equal(
        kind(4, init=names[start]).fit(X).labels_,
        kind(4, init=np.argsort(np.argsort(names))[start]).fit(X).labels_,
    )


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"multiway": "both"}, ValueError, "^multiway"),
        ({"threshold": "fixed"}, ValueError, "^threshold"),
        ({"mode": "paper"}, ValueError, r"^mode\b"),
        ({"balance": 0.0}, ValueError, "^balance=0.0"),
        ({"balance_unit": "score"}, ValueError, "^balance_unit"),
        (
            {"init": "random"},
            ValueError,
            "^init='random'",
        ),
        ({"init": [0, 1] * 15}, ValueError, "^init .*got 2"),
        ({"init": np.array([0, "a", None] * 10, dtype=object)}, TypeError, "init holds labels of"),
        ({"C": 0.9}, ValueError, "^C=0.9"),
        ({"C": np.inf}, ValueError, "^C .*got inf"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"min_cluster_size": 0}, ValueError, "^min_cluster_size .*least 1"),
        ({"min_cluster_size": 0.4}, ValueError, "^min_cluster_size .*greater"),
        ({"min_cluster_size": 11}, ValueError, "^min_cluster_size=11"),
        ({"min_cluster_size": "big"}, TypeError, "^min_cluster_size .*got 'big'"),
        (
            {"n_clusters": 2, "min_cluster_size": 3},
            ValueError,
            "^min_cluster_size=3",
        ),
        (
            {"multiway": "recursive", "min_cluster_size": 3},
            ValueError,
            "^min_cluster_size=3",
        ),
    ],
)
def test_bad_parameters_are_named(rng, kind, parameters, error, message):
    with pytest.raises(error, match=message):
        kind(**({"n_clusters": 3} | parameters)).fit(rng.standard_normal((30, 2)))


@pytest.mark.parametrize("kind", BOTH)
def test_too_few_different_rows_are_named(kind):
    X = np.repeat([[0.0, 1.0], [2.0, 5.0]], 10, axis=0)
    with pytest.warns(ConvergenceWarning, match="Found 2 .*n_clusters"):
        kind(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match="n_clusters=3 clusters with at least"):
        kind(3, init=np.arange(20) % 3).fit(X)


def test_a_cluster_of_the_start_without_weight_is_named(rng):
    weights = np.r_[np.zeros(10), np.ones(20)]
    with pytest.raises(ValueError, match="2 of n_clusters=3"):
        CPMMC(3, init=np.repeat([0, 1, 2], 10)).fit(rng.standard_normal((30, 2)), None, weights)


def test_parameters_survive_a_clone():
    model = clone(CPMMC(3, multiway="recursive"))
    assert model.multiway == "recursive"
    assert model._is_recursive()
    assert not clone(KernelCPMMC(3))._is_recursive()
