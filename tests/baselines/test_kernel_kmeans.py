"""Kernel k-means: fixed points, agreement with brute force and with KMeans, properties."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from reproduction.datasets import load
from volmar import KernelKMeans, _memory
from volmar.baselines.kernel_kmeans import KernelProblem, kernel_kmeans, start_labels
from volmar.datasets import make_two_circles
from volmar.metrics import clustering_error
from volmar.rows.anywhere import scale_gamma
from volmar.solvers import Status


def cost(K, labels):
    """The objective from its definition: squared distances to the means."""
    total = 0.0
    for c in np.unique(labels):
        w = (labels == c).astype(float)
        mean = w / w.sum()
        total += w @ (K.diagonal() - 2 * K @ mean + mean @ K @ mean)
    return total


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_objective_falls_to_a_fixed_point(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 30)), 2 + int(rng.integers(0, 2))
    A = rng.standard_normal((n, 4))
    problem = KernelProblem(A @ A.T)
    labels = start_labels(problem, k, "k-means++", seed)
    result = kernel_kmeans(problem, labels, k)
    assert result.status is Status.CONVERGED
    assert result.is_stationary(1e-12)
    assert np.all(np.diff(result.history) <= 0)
    assert set(result.labels) == set(range(k))
    exact = cost(problem.K, result.labels)
    assert result.objective == pytest.approx(exact, abs=1e-9)
    checked = result.check(problem)
    assert checked.objective == pytest.approx(result.objective, rel=1e-9, abs=1e-9)
    assert checked.is_stationary(0.0)
    assert not checked.is_certified(1.0)  # there is no bound on the distance from the best labels
    again = kernel_kmeans(problem, result.labels, k)
    np.testing.assert_array_equal(again.labels, result.labels)


def test_against_all_labellings(rng):
    """The global optimum is a fixed point; restarts are never below it and come near."""
    for _ in range(10):
        X = rng.standard_normal((9, 2))
        K = rbf_kernel(X, gamma=0.7)
        candidates = [
            np.array(labels) for labels in product([0, 1], repeat=9) if 0 < sum(labels) < 9
        ]
        costs = [cost(K, labels) for labels in candidates]
        best = candidates[int(np.argmin(costs))]
        stays = KernelKMeans(kernel="precomputed", init=best).fit(K)
        assert clustering_error(best, stays.labels_) == 0.0
        assert stays.objective_ == pytest.approx(min(costs), abs=1e-12)
        found = KernelKMeans(kernel="precomputed", n_init=50, random_state=0)
        objective = found.fit(K).objective_
        assert min(costs) - 1e-12 <= objective < 1.05 * min(costs)


def test_linear_kernel_is_kmeans():
    data = load("digits-3v8")
    model = KernelKMeans(kernel="linear", n_init=20, random_state=0).fit(data.X)
    reference = KMeans(2, n_init=20, random_state=0).fit(data.X)
    assert model.objective_ == pytest.approx(reference.inertia_, rel=1e-6)
    assert clustering_error(reference.labels_, model.labels_) < 0.01


def test_circles_with_a_fitting_width():
    X, y = make_two_circles(200, noise=0.02, factor=0.2, random_state=0)
    model = KernelKMeans(gamma=4.0, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) == 0.0
    X_new, y_new = make_two_circles(200, noise=0.02, factor=0.2, random_state=1)
    assert clustering_error(y_new, model.predict(X_new)) == 0.0


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_permuted_rows_permute_labels(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 2))
    order = rng.permutation(30)
    model = KernelKMeans(random_state=1)
    labels = model.fit(X).labels_
    # Two starts with the same objective up to rounding may swap the numbers of the clusters.
    assert clustering_error(model.fit(X[order]).labels_, labels[order]) == 0.0


@pytest.mark.parametrize("n_clusters", [2, 4])
def test_predict_agrees_with_scores_and_labels(rng, n_clusters):
    X = rng.standard_normal((80, 3))
    model = KernelKMeans(n_clusters, random_state=0).fit(X)
    scores = model.decision_function(X)
    assert scores.shape == ((80,) if n_clusters == 2 else (80, n_clusters))
    chosen = scores > 0 if n_clusters == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), chosen)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_precomputed_and_float32_agree(rng):
    X = np.vstack([rng.normal(0, 1, (40, 5)), rng.normal(3, 1, (40, 5))])
    X[X < 0.2] = 0.0
    make = {"gamma": 0.1, "random_state": 0}
    dense = KernelKMeans(**make).fit(X)
    single = KernelKMeans(**make).fit(X.astype(np.float32))
    given_K = KernelKMeans(kernel="precomputed", random_state=0).fit(rbf_kernel(X, gamma=0.1))
    for other in (single, given_K):
        assert clustering_error(other.labels_, dense.labels_) == 0.0
    assert single._mean_weights.dtype == np.float32
    predicted = given_K.predict(rbf_kernel(X[30:50], X, gamma=0.1))
    np.testing.assert_array_equal(predicted, given_K.labels_[30:50])


def test_start_from_labels_runs_once(rng):
    X = rng.standard_normal((30, 2))
    start = np.where(X[:, 0] > 0, "a", "b")
    model = KernelKMeans(init=start, kernel="linear").fit(X)
    assert model.result_.history[0] >= model.objective_
    ends = np.argmin(X[:, 0]), np.argmax(X[:, 0])
    assert np.ptp(model.labels_[list(ends)]) == 1  # on the sides of the start


def test_indefinite_kernel_is_said_to_cycle(rng):
    A = rng.standard_normal((40, 40))
    K = (A + A.T) / 2
    statuses = set()
    for seed in range(30):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = KernelKMeans(kernel="precomputed", n_init=1, random_state=seed).fit(K)
        statuses.add(model.result_.status)
        assert ["the status CYCLE" in str(one.message) for one in caught] == [
            True for _ in range(model.result_.status is Status.CYCLE)
        ]
        assert model.result_.status is not Status.MAX_ITER
        assert (model.result_.residuals["moves"] > 0) == (model.result_.status is Status.CYCLE)
    assert Status.CYCLE in statuses


def test_iteration_limit_is_reported():
    data = load("digits-3v8")
    with pytest.warns(ConvergenceWarning, match="MAX_ITER .*max_iter=1"):
        model = KernelKMeans(init="random", n_init=1, max_iter=1, random_state=0).fit(data.X)
    assert model.result_.status is Status.MAX_ITER
    assert model.result_.residuals["moves"] > 0
    assert model.n_iter_ == 1


def test_equal_rows_are_one_cluster():
    with pytest.warns(ConvergenceWarning, match="Found 1 .*n_clusters=2"):
        model = KernelKMeans(random_state=0).fit(np.ones((6, 2)))
    assert set(model.labels_) == {0}
    assert set(model.predict(np.ones((6, 2)))) == {0}
    assert model.objective_ == pytest.approx(0.0)


def test_rows_that_a_kernel_does_not_distinguish_are_reported():
    X = np.random.default_rng(0).standard_normal((6, 2))
    with pytest.warns(ConvergenceWarning, match="than n_clusters=2"):
        model = KernelKMeans(kernel=lambda a, b: np.ones((len(a), len(b))), random_state=0).fit(X)
    assert set(model.labels_) == {0}
    assert model.result_.status is Status.DEGENERATE
    assert model.objective_ == pytest.approx(0.0)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_means_that_no_row_is_nearest_to_are_no_clusters():
    # Two distinct rows with this kernel, in four clusters of the start.
    K = np.kron(np.eye(2), np.ones((4, 4)))
    start = np.array([0, 1, 0, 1, 2, 3, 2, 3])
    model = KernelKMeans(4, kernel="precomputed", init=start)
    with pytest.warns(ConvergenceWarning, match="than n_clusters=4"):
        model.fit(K)
    np.testing.assert_array_equal(model.labels_, np.repeat([0, 1], 4))
    assert model.decision_function(K).shape == (8,)
    np.testing.assert_array_equal(model.predict(K), model.labels_)


@pytest.mark.parametrize("seed", range(4))
def test_labels_are_as_predicted_whatever_ended_the_run(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for max_iter in (1, 2, 300):
            model = KernelKMeans(5, init="random", n_init=1, max_iter=max_iter, random_state=seed)
            model.fit(X)
            np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_a_kernel_of_negative_distances_keeps_the_best_labels(rng):
    A = rng.standard_normal((20, 20))
    with pytest.warns(ConvergenceWarning):
        model = KernelKMeans(3, kernel="precomputed", random_state=0).fit(A + A.T)
    assert model.objective_ == min(model.result_.history)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_scale_does_not_matter(rng, scale):
    X = np.vstack([rng.normal(0, 1, (30, 2)), rng.normal(4, 1, (30, 2))])
    labels = KernelKMeans(random_state=0).fit(X).labels_
    np.testing.assert_array_equal(KernelKMeans(random_state=0).fit(scale * X).labels_, labels)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_init": 0}, ValueError, "^n_init"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
        ({"gamma": -1.0}, ValueError, "^gamma .*got -1"),
        ({"gamma": "automatic"}, ValueError, "^gamma .*positive"),
        ({"init": "pca"}, ValueError, "init must be one of 'k-means"),
        ({"init": [0, 1]}, ValueError, "^init .*label per"),
        ({"kernel": "gauss"}, ValueError, "kernel='gauss' is not known"),
        ({"n_clusters": 40}, ValueError, "^n_clusters=40"),
        ({"kernel": "precomputed"}, ValueError, "must be square"),
    ],
)
def test_bad_parameters(rng, parameters, error, message):
    with pytest.raises(error, match=message):
        KernelKMeans(**parameters).fit(rng.standard_normal((20, 3)))


def test_asymmetric_kernel(rng):
    K = rng.random((10, 10))
    with pytest.raises(ValueError, match=r"symmetric.*K\.T"):
        KernelKMeans(kernel="precomputed").fit(K)


def test_memory_is_checked_first(monkeypatch, rng):
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"100 rows .*iB.*Nystroem"):
        KernelKMeans().fit(rng.standard_normal((100, 2)))


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (lambda a, b: np.full((len(a), len(b)), np.nan), ValueError, "has NaN or infinite"),
        (lambda a, b: (a @ b.T).astype(complex), TypeError, "complex128. It must return real"),
        (lambda a, b: np.triu(a @ b.T), ValueError, "must be symmetric"),
    ],
)
def test_callables_that_return_nonsense(rng, kernel, error, message):
    with pytest.raises(error, match=message):
        KernelKMeans(kernel=kernel).fit(rng.standard_normal((20, 3)))


def test_integer_kernels_are_taken(rng):
    X = rng.integers(0, 5, (20, 3)).astype(float)
    given = KernelKMeans(kernel=lambda a, b: (a @ b.T).astype(int), random_state=0).fit(X)
    named = KernelKMeans(kernel=lambda a, b: a @ b.T, random_state=0).fit(X)
    np.testing.assert_array_equal(given.labels_, named.labels_)


@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1e4), (np.float64, 1e9)])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_an_offset_does_not_matter(rng, kernel, dtype, offset):
    X = np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(6, 1, (40, 3))])
    model = KernelKMeans(kernel=kernel, random_state=0).fit((X + offset).astype(dtype))
    assert clustering_error(np.repeat([0, 1], 40), model.labels_) == 0.0
    assert model.objective_ > 0
    np.testing.assert_array_equal(model.predict((X + offset).astype(dtype)), model.labels_)


def test_new_rows_are_scored_in_blocks(rng, monkeypatch):
    X = rng.standard_normal((50, 3))
    model = KernelKMeans(random_state=0).fit(X)
    whole = model.decision_function(X)
    monkeypatch.setattr("volmar.rows.kernel.KERNEL_BLOCK", 350)
    np.testing.assert_allclose(model.decision_function(X), whole, rtol=1e-12)


def test_moves_at_the_limit_are_those_of_one_more_iteration():
    X = load("digits-3v8").X
    free = KernelKMeans(init="random", n_init=1, random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        cut = free.set_params(max_iter=free.n_iter_ - 1).fit(X)
    assert cut.result_.status is Status.MAX_ITER
    assert cut.result_.residuals["moves"] == 0.0  # the labels are there, the check was not


def test_multiples_of_the_scale_of_gamma():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) * [1.0, 2.0, 3.0]
    scale = scale_gamma(X)
    for rule, factor in {
        "scale": 1.0,
        "4*scale": 4.0,
        "scale/4": 0.25,
        " 0.5 * scale ": 0.5,
    }.items():
        one = KernelKMeans(gamma=rule, random_state=0).fit(X)
        other = KernelKMeans(gamma=factor * scale, random_state=0).fit(X)
        assert one.objective_ == pytest.approx(other.objective_)
    for rule in ("automatic", "scale/0", "1..2*scale", "scale*4", "-1*scale"):
        with pytest.raises(ValueError, match="gamma must be"):
            KernelKMeans(gamma=rule).fit(X)
