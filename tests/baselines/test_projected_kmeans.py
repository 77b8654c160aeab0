"""Common properties of discriminative k-means and LDA-KM: inputs, certificates."""

import inspect
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.scatter import correlated, every_cluster
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from volmar import DiscriminativeKMeans, LDAKMeans, _memory
from volmar.metrics import clustering_error
from volmar.solvers import Status

BOTH = [LDAKMeans, DiscriminativeKMeans]


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("n_clusters", [2, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_predict_agrees_with_scores_and_labels(rng, estimator, n_clusters, dtype):
    X = correlated(rng, 150, 3).astype(dtype)
    model = estimator(n_clusters, random_state=0).fit(X)
    scores = model.decision_function(X)
    assert scores.shape == ((150,) if n_clusters == 2 else (150, n_clusters))
    chosen = scores > 0 if n_clusters == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), chosen)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    points = (X - model.mean_) @ model.components_.T
    distances = ((points[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    np.testing.assert_array_equal(distances.argmin(axis=1), model.labels_)
    assert model.result_.is_stationary(1e-12)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1e4), (np.float64, 1e9)])
def test_an_offset_does_not_matter(rng, estimator, dtype, offset):
    X = np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(6, 1, (40, 3))])
    model = estimator(random_state=0).fit((X + offset).astype(dtype))
    assert clustering_error(np.repeat([0, 1], 40), model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict((X + offset).astype(dtype)), model.labels_)
    assert model.objective_ == pytest.approx(estimator(random_state=0).fit(X).objective_, rel=1e-3)


@pytest.mark.parametrize("estimator", BOTH)
def test_constant_features_have_no_effect(rng, estimator):
    X = correlated(rng, 60, 3)
    padded = np.insert(X, 1, 0.1, axis=1)
    for reg in (0.0, 1.0):
        model = estimator(3, reg=reg, init=every_cluster(rng, 60, 3))
        labels = model.fit(X).labels_
        np.testing.assert_array_equal(model.fit(padded).labels_, labels)
        assert np.all(model.components_[:, 1] == 0)


@pytest.mark.parametrize("estimator", BOTH)
def test_more_features_than_rows(rng, estimator):
    X = rng.standard_normal((20, 50))
    X[:10] += 2
    model = estimator(reg=10.0, random_state=0).fit(X)
    assert clustering_error(np.repeat([0, 1], 10), model.labels_) == 0.0
    with pytest.raises(ValueError, match=r"singular .*reg=0.*Raise reg"):
        estimator(reg=0.0).fit(X)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_that_depend_on_each_other(rng, estimator, dtype):
    X = rng.standard_normal((60, 3))
    X = np.column_stack([X, X @ [1.0, 2.0, -1.0]]).astype(dtype)
    with pytest.raises(ValueError, match=r"singular .*reg=0"):
        estimator(reg=0.0).fit(X)
    assert estimator(reg=0.1, random_state=0).fit(X).result_.status is Status.CONVERGED


@pytest.mark.parametrize("estimator", BOTH)
def test_fewer_different_rows_than_clusters(estimator):
    X = np.repeat([[0.0, 1.0], [2.0, 5.0]], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match="Found 2 .*n_clusters=3"):
        model = estimator(3, random_state=0).fit(X)
    assert clustering_error(np.repeat([0, 1], 5), model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.cluster_centers_.shape[0] == 2
    assert np.isfinite(model.cluster_centers_).all()
    assert np.isfinite(model.decision_function(X)).all()
    with pytest.raises(ValueError, match=r"rows of X .*n_clusters=1"):
        estimator().fit(np.full((6, 2), 0.1))


def test_rows_that_are_equal_beside_a_large_regulariser_are_reported(rng):
    X = rng.standard_normal((28, 29)).astype(np.float32)
    with pytest.warns(ConvergenceWarning, match=r"Found 1 .*reg=1e\+15"):
        model = LDAKMeans(7, reg=1e15, init=np.arange(28) % 7).fit(X)
    assert model.result_.status is Status.DEGENERATE
    assert len(model.cluster_centers_) == 1
    np.testing.assert_array_equal(model.predict(X), model.labels_)


# In units of the outlier, other rows differ by rounding errors only.
@pytest.mark.filterwarnings("ignore:DiscriminativeKMeans ended with the status MAX_ITER")
@pytest.mark.filterwarnings("ignore:Found 2 clusters")
@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("outlier", [1e6, 1e9, 1e10, 1e13])
@pytest.mark.parametrize("seed", range(3))
def test_an_outlier_leaves_labels_as_predicted(estimator, outlier, seed):
    X = np.random.default_rng(seed).standard_normal((40, 3))
    X[5, 1] = outlier
    model = estimator(3, random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_the_limit_ended_has_the_labels_that_are_predicted(estimator, seed):
    X = np.random.default_rng(seed).standard_normal((200, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = estimator(6, n_init=1, max_iter=1, random_state=seed).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    sizes = np.bincount(model.labels_)
    assert np.all(sizes[:-1] >= sizes[1:])


@pytest.mark.parametrize("estimator", BOTH)
def test_columns_of_any_scale_give_finite_scores(rng, estimator):
    X = rng.standard_normal((40, 4)) * 10.0 ** np.array([-160.0, -50, 50, 148])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = estimator(3, random_state=0).fit(X)
        assert np.isfinite(model.decision_function(X)).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("estimator", BOTH)
def test_one_cluster(rng, estimator):
    model = estimator(1).fit(rng.standard_normal((5, 2)))
    np.testing.assert_array_equal(model.labels_, np.zeros(5))


@pytest.mark.parametrize("estimator", BOTH)
def test_start_from_labels_runs_once(rng, estimator):
    X = rng.standard_normal((40, 2))
    X[:20] += 5
    start = np.where(X[:, 0] > 2.5, "a", "b")
    model = estimator(init=start, random_state=0).fit(X)
    assert model.labels_[0] == 0  # "a" sorts first
    assert clustering_error(np.repeat([0, 1], 20), model.labels_) == 0.0


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"reg": -1.0}, ValueError, "^reg .*got -1"),
        ({"reg": "auto"}, TypeError, "^reg .*got 'auto'"),
        ({"n_init": 0}, ValueError, "^n_init"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
        ({"init": "pca"}, ValueError, "init must be one of 'k-means"),
        ({"init": [0, 1]}, ValueError, "^init .*label per"),
        ({"init": np.zeros(20)}, ValueError, "^init .*n_clusters=2"),
        ({"n_clusters": 40}, ValueError, "^n_clusters=40"),
    ],
)
def test_bad_parameters(rng, estimator, parameters, error, message):
    with pytest.raises(error, match=message):
        estimator(**parameters).fit(rng.standard_normal((20, 3)))


def test_bad_tolerance(rng):
    with pytest.raises(ValueError, match=r"^tol\b"):
        LDAKMeans(tol=2.0).fit(rng.standard_normal((20, 3)))


def test_memory_is_checked_first(monkeypatch, rng):
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"100 rows.*TruncatedSVD"):
        DiscriminativeKMeans().fit(rng.standard_normal((100, 2)))


@pytest.mark.parametrize("estimator", BOTH)
def test_scikit_learn_checks(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # checks fit on noise and constants
        results = check_estimator(estimator(random_state=0), on_skip=None, on_fail=None)
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    skipped = {r["check_name"] for r in results if r["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}
    assert Counter(r["status"] for r in results)["passed"] >= 40
    parameters = list(inspect.signature(estimator).parameters.values())
    assert parameters[0].name == "n_clusters"
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[1:])


@pytest.mark.parametrize("kind", BOTH)
def test_the_problem_recomputes_the_certificate(kind, rng):
    X = rng.standard_normal((90, 4)) + 5.0 * np.repeat(np.eye(4)[:3], 30, axis=0)
    model = kind(3, random_state=0).fit(X)
    problem = model._problem(X, None)
    again = model.result_.check(problem)
    assert again.objective == pytest.approx(model.objective_, rel=1e-12)
    assert again.is_stationary(0.0)
    assert not again.is_certified(1.0)
    worse = replace(model.result_, labels=np.roll(model.labels_, 7)).check(problem)
    assert worse.objective > again.objective
    assert not worse.is_stationary(0.01)
