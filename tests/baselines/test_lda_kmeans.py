"""LDA-KM: descent, directions, units."""

import numpy as np
import pytest
from helpers.scatter import correlated, covariances, every_cluster, labellings
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning

from reproduction.datasets import load
from volmar import DiscriminativeKMeans, LDAKMeans
from volmar.metrics import clustering_error
from volmar.solvers import Status


def log_wilks(X, labels, reg):
    total, within = covariances(X, labels)
    ridge = reg * np.diag(total.diagonal())
    return np.linalg.slogdet(within + ridge)[1] - np.linalg.slogdet(total + ridge)[1]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_objective_falls_to_a_fixed_point(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(12, 60)), int(rng.integers(2, 5))
    X = correlated(rng, n, int(rng.integers(1, 6)))
    reg = 10.0 ** rng.uniform(-3, 2)
    start = every_cluster(rng, n, k)
    model = LDAKMeans(k, reg=reg, init=start).fit(X)
    result = model.result_
    assert result.status is Status.CONVERGED
    assert result.is_stationary(1e-12)
    assert np.all(np.diff(result.history) < 0)
    assert result.history[0] == pytest.approx(log_wilks(X, start, reg), abs=1e-8)
    assert model.objective_ == pytest.approx(log_wilks(X, model.labels_, reg), abs=1e-8)
    again = LDAKMeans(k, reg=reg, init=model.labels_).fit(X)
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert again.n_iter_ == 1


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_the_best_labelling_stays(rng, n_clusters):
    n = 9 if n_clusters == 2 else 7
    for _ in range(5):
        X = correlated(rng, n, 2)
        candidates = list(labellings(n, n_clusters))
        values = [log_wilks(X, labels, 0.5) for labels in candidates]
        best = candidates[int(np.argmin(values))]
        stays = LDAKMeans(n_clusters, reg=0.5, init=best).fit(X)
        assert clustering_error(best, stays.labels_) == 0.0
        assert stays.objective_ == pytest.approx(min(values), abs=1e-10)
        found = LDAKMeans(n_clusters, reg=0.5, n_init=20, random_state=0).fit(X)
        assert found.objective_ >= min(values) - 1e-10


@pytest.mark.parametrize("n_clusters", [2, 4])
def test_directions_maximise_between_over_within(rng, n_clusters):
    X = correlated(rng, 100, 5)
    reg = 0.2
    model = LDAKMeans(n_clusters, reg=reg, random_state=0).fit(X)
    total, within = covariances(X, model.labels_)
    ridged, between = within + reg * np.diag(total.diagonal()), total - within
    W = model.components_.T
    assert W.shape == (5, n_clusters - 1)
    np.testing.assert_allclose(W.T @ ridged @ W, np.eye(n_clusters - 1), atol=1e-9)
    ratios = (W.T @ between @ W).diagonal()
    assert np.all(np.diff(ratios) <= 0)
    target = ridged @ W * ratios
    np.testing.assert_allclose(between @ W, target, atol=1e-9 * np.abs(target).max())
    eigenvalues = np.linalg.eigvals(np.linalg.solve(ridged, between)).real
    np.testing.assert_allclose(ratios, np.sort(eigenvalues)[::-1][: n_clusters - 1], rtol=1e-8)


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_without_reg_it_is_discriminant_analysis(rng, n_clusters):
    """Nearest mean in the subspace is LDA with equal priors."""
    X = correlated(rng, 120, 4)
    model = LDAKMeans(n_clusters, reg=0.0, random_state=0).fit(X)
    priors = np.full(n_clusters, 1 / n_clusters)
    lda = LinearDiscriminantAnalysis(solver="lsqr", priors=priors).fit(X, model.labels_)
    new = correlated(np.random.default_rng(1), 200, 4)
    np.testing.assert_array_equal(lda.predict(X), model.labels_)
    np.testing.assert_array_equal(lda.predict(new), model.predict(new))


@given(seed=st.integers(0, 10_000), n_clusters=st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_units_do_not_matter_from_given_labels(seed, n_clusters):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    factors = rng.choice([-1, 1], 3) * 10.0 ** rng.uniform(-6, 6, 3)
    model = LDAKMeans(n_clusters, init=every_cluster(rng, 40, n_clusters))
    labels, objective = model.fit(X).labels_, model.objective_
    components = np.abs(model.components_)
    np.testing.assert_array_equal(model.fit(X * factors + 3).labels_, labels)
    assert model.objective_ == pytest.approx(objective, abs=1e-9)
    np.testing.assert_allclose(np.abs(model.components_ * factors), components, atol=1e-6)


def test_the_start_depends_on_units(rng):
    """The start, k-means on the features as given, is not invariant."""
    X = rng.standard_normal((200, 2))
    X[:100, 0] += 12
    X[::2, 1] += 8  # a second pair of groups: either pair is a fixed point
    wide, narrow = np.repeat([0, 1], 100), np.arange(200) % 2
    assert clustering_error(wide, LDAKMeans(random_state=0).fit(X).labels_) == 0.0
    scaled = X * [1e-4, 1.0]
    assert clustering_error(narrow, LDAKMeans(random_state=0).fit(scaled).labels_) == 0.0
    assert clustering_error(wide, LDAKMeans(init=wide).fit(scaled).labels_) == 0.0


def test_more_clusters_than_features(rng):
    X = np.concatenate([rng.normal(c, 0.1, 20) for c in (0, 3, 6, 9)])[:, None]
    model = LDAKMeans(4, reg=0.01, random_state=0).fit(X)
    assert clustering_error(np.repeat(range(4), 20), model.labels_) == 0.0
    assert model.components_.shape == (1, 1)


def test_iteration_limit_and_tolerance():
    X = load("digits-3v8").X
    start = np.arange(len(X)) % 2
    free = LDAKMeans(init=start).fit(X)
    assert free.n_iter_ > 3
    with pytest.warns(ConvergenceWarning, match="max_iter=1.*Raise max_iter"):
        cut = LDAKMeans(init=start, max_iter=1).fit(X)
    assert cut.result_.status is Status.MAX_ITER
    assert cut.result_.residuals["moves"] > 0
    assert cut.result_.history == free.result_.history[:2]
    loose = LDAKMeans(init=start, tol=0.5).fit(X)
    assert loose.result_.status is Status.CONVERGED
    assert loose.n_iter_ < free.n_iter_
    assert 0 < loose.result_.residuals["moves"] <= 0.5
    with pytest.warns(ConvergenceWarning, match="max_iter=1.*Raise max_iter"):
        limited = DiscriminativeKMeans(init=start, max_iter=1).fit(X)
    assert limited.result_.status is Status.MAX_ITER
    assert limited.result_.residuals["moves"] > 0
