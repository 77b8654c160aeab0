"""LDA-KM and discriminative k-means: certificates, identities, properties, figures."""

import inspect
import warnings
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from volmar import KernelKMeans, _memory
from volmar.baselines.discriminative_kmeans import DiscriminativeKMeans, whitening
from volmar.baselines.lda_kmeans import LDAKMeans
from volmar.baselines.projected_kmeans import drawn_centres
from volmar.datasets import data_folder, load
from volmar.metrics import clustering_error
from volmar.rows import as_rows, standardized
from volmar.solvers import Status

BOTH = [LDAKMeans, DiscriminativeKMeans]


def covariances(X, labels, weights=None):
    """Total and within-cluster covariance from their definitions."""
    w = np.ones(len(X)) if weights is None else weights
    total = np.cov(X, rowvar=False, aweights=w, ddof=0).reshape(X.shape[1], -1)
    within = np.zeros_like(total)
    for c in np.unique(labels):
        part = labels == c
        centred = X[part] - np.average(X[part], axis=0, weights=w[part])
        within += (w[part, None] * centred).T @ centred / w.sum()
    return total, within


def log_wilks(X, labels, reg, weights=None):
    total, within = covariances(X, labels, weights)
    ridge = reg * np.diag(total.diagonal())
    return np.linalg.slogdet(within + ridge)[1] - np.linalg.slogdet(total + ridge)[1]


def paper_kernel(X, lam):
    """I - (I + XX'/lam)^-1 of the centred rows, as Ye, Zhao and Wu write it."""
    X = X - X.mean(axis=0)
    eye = np.eye(len(X))
    return eye - np.linalg.inv(eye + X @ X.T / lam)


def correlated(rng, n, d):
    """Rows whose features are mixed and have different units."""
    mixed = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    return mixed * 10.0 ** rng.uniform(-2, 2, d) + rng.uniform(-5, 5, d)


def labellings(n, n_clusters):
    for labels in product(range(n_clusters), repeat=n):
        if len(set(labels)) == n_clusters and labels[0] == 0:
            yield np.array(labels)


def every_cluster(rng, n, n_clusters):
    return rng.permutation(np.arange(n) % n_clusters)


# ------------------------------------------------------------------ discriminative k-means


@pytest.mark.parametrize("shape", [(30, 4), (8, 20)])
@pytest.mark.parametrize("reg", [1e-3, 1.0, 100.0])
def test_whitened_rows_have_the_kernel_of_the_paper(rng, shape, reg):
    """Woodbury: I - (I + XX'/lam)^-1 = X (X'X + lam I)^-1 X', lam = n reg."""
    X = correlated(rng, *shape)
    model = DiscriminativeKMeans(reg=reg, random_state=0).fit(X)
    Y = (X - model.mean_) @ model.components_.T
    kernel = paper_kernel(X, len(X) * reg)
    np.testing.assert_allclose(Y @ Y.T / len(X), kernel, atol=1e-9)
    centred = X - X.mean(axis=0)
    ridge = centred.T @ centred + len(X) * reg * np.eye(X.shape[1])
    np.testing.assert_allclose(centred @ np.linalg.solve(ridge, centred.T), kernel, atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_same_as_kernel_kmeans_on_the_n_by_n_kernel(seed):
    rng = np.random.default_rng(seed)
    n, k, reg = int(rng.integers(10, 60)), int(rng.integers(2, 5)), 10.0 ** rng.uniform(-3, 2)
    X = rng.standard_normal((n, int(rng.integers(1, 6))))
    # Each row starts with the nearest of k rows, so that no cluster runs empty on the way: what
    # each of the two does about that is its own affair.
    start = ((X[:, None] - X[rng.permutation(n)[:k]]) ** 2).sum(axis=2).argmin(axis=1)
    model = DiscriminativeKMeans(k, reg=reg, init=start).fit(X)
    kernel = KernelKMeans(k, kernel="precomputed", init=start).fit(paper_kernel(X, n * reg))
    assert model.objective_ == pytest.approx(kernel.objective_, abs=1e-9)
    np.testing.assert_array_equal(model.labels_, kernel.labels_)
    again = KernelKMeans(k, kernel="precomputed", init=model.labels_)
    np.testing.assert_array_equal(again.fit(paper_kernel(X, n * reg)).labels_, model.labels_)
    assert again.objective_ == pytest.approx(model.objective_, abs=1e-9)
    assert model.result_.is_stationary(1e-12)


def test_best_of_all_labellings(rng):
    """Restarts reach the best of all labellings, which maximises tr (Sigma + reg I)^-1 S_b."""
    for _ in range(5):
        X, reg = correlated(rng, 8, 2), 0.3
        values, ratios = [], []
        for labels in labellings(8, 2):
            kernel = paper_kernel(X, 8 * reg)
            fitted = sum(
                kernel[np.ix_(labels == c, labels == c)].sum() / np.sum(labels == c)
                for c in (0, 1)
            )
            values.append(np.trace(kernel) - fitted)
            total, within = covariances(X, labels)
            ratios.append(np.trace(np.linalg.solve(total + reg * np.eye(2), total - within)))
        assert np.argmin(values) == np.argmax(ratios)
        found = DiscriminativeKMeans(reg=reg, n_init=50, random_state=0).fit(X)
        assert found.objective_ == pytest.approx(min(values), abs=1e-10)


def test_large_reg_is_kmeans_and_no_reg_forgets_linear_maps(rng):
    X = np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(3, 1, (40, 3))])
    reference = KMeans(2, n_init=10, random_state=0).fit(X)
    plain = DiscriminativeKMeans(reg=1e8, random_state=0).fit(X)
    assert clustering_error(reference.labels_, plain.labels_) == 0.0
    assert plain.objective_ * 1e8 * 80 == pytest.approx(reference.inertia_, rel=1e-6)
    start = every_cluster(rng, 80, 3)
    free = DiscriminativeKMeans(3, reg=0.0, init=start).fit(X)
    mapped = DiscriminativeKMeans(3, reg=0.0, init=start).fit(X @ rng.standard_normal((3, 3)) + 7)
    np.testing.assert_array_equal(free.labels_, mapped.labels_)
    assert free.objective_ == pytest.approx(mapped.objective_, abs=1e-9)


def test_whitening_takes_any_units(rng):
    """A column in units of 1e-9 of another, and two columns that depend on each other."""
    X = rng.standard_normal((50, 4))
    X[:, 3] = 1 - X[:, 2]
    X *= [1e9, 1.0, 1.0, 1.0]
    A = whitening(standardized(as_rows(X)), 1.0)
    target = np.linalg.inv(np.cov(X, rowvar=False, ddof=0) + np.eye(4))
    np.testing.assert_allclose(A @ A.T, target, atol=1e-8)


# ------------------------------------------------------------------------------- LDA-KM


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_objective_falls_to_a_fixed_point(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(12, 60)), int(rng.integers(2, 5))
    X = correlated(rng, n, int(rng.integers(1, 6)))
    weights, reg = rng.random(n) + 0.1, 10.0 ** rng.uniform(-3, 2)
    start = every_cluster(rng, n, k)
    model = LDAKMeans(k, reg=reg, init=start).fit(X, sample_weight=weights)
    result = model.result_
    assert result.status is Status.CONVERGED
    assert result.is_stationary(1e-12)
    assert np.all(np.diff(result.history) < 0)
    assert result.history[0] == pytest.approx(log_wilks(X, start, reg, weights), abs=1e-8)
    assert model.objective_ == pytest.approx(log_wilks(X, model.labels_, reg, weights), abs=1e-8)
    again = LDAKMeans(k, reg=reg, init=model.labels_).fit(X, sample_weight=weights)
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
    """What invariance does not cover: k-means on the features as given."""
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
    cut = LDAKMeans(init=start, max_iter=1).fit(X)
    assert cut.result_.status is Status.MAX_ITER
    assert cut.result_.residuals["moves"] > 0
    assert cut.result_.history == free.result_.history[:2]
    loose = LDAKMeans(init=start, tol=0.5).fit(X)
    assert loose.result_.status is Status.CONVERGED
    assert loose.n_iter_ < free.n_iter_
    assert 0 < loose.result_.residuals["moves"] <= 0.5
    limited = DiscriminativeKMeans(init=start, max_iter=1).fit(X)
    assert limited.result_.status is Status.MAX_ITER
    assert limited.result_.residuals["moves"] > 0


# --------------------------------------------------------------------------------- figures


@pytest.mark.skipif(data_folder() is None, reason="the data folder is not there")
@pytest.mark.parametrize(
    ("name", "percent"), [("breast-with-id", 3.81), ("satellite-1v2", 4.07), ("letter-AvB", 5.59)]
)
def test_figures_of_the_mspc_paper(name, percent):
    """Table 2: start by k-means, reg by the labels. To one row: 3.66 on breast, 5.53 printed."""
    data = load(name, scale="symmetric")
    errors = [
        100 * clustering_error(data.y, LDAKMeans(reg=reg, random_state=0).fit(data.X).labels_)
        for reg in 10.0 ** np.arange(-4, 5)
    ]
    one_row = 100 / len(data.y)
    assert min(errors) == pytest.approx(percent, abs=one_row + 0.005)
    start = KMeans(2, n_init=10, random_state=0).fit(data.X).labels_
    errors = [
        100 * clustering_error(data.y, DiscriminativeKMeans(reg=r, init=start).fit(data.X).labels_)
        for r in 10.0 ** np.arange(-4, 5)
    ]
    assert min(errors) == pytest.approx(percent, abs=0.005)


# ------------------------------------------------------------------------------------ both


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


@given(seed=st.integers(0, 10_000), estimator=st.sampled_from(BOTH))
@settings(max_examples=40, deadline=None)
def test_weight_two_is_a_row_written_twice(seed, estimator):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 3))
    weights = rng.integers(0, 3, 30)
    weights[:4] = 1
    model = estimator(random_state=seed)
    weighted = model.fit(X, sample_weight=weights).objective_
    new = rng.standard_normal((10, 3))
    predicted = model.predict(new)
    model.fit(np.repeat(X, weights, axis=0))
    assert weighted == pytest.approx(model.objective_, abs=1e-9)
    assert clustering_error(predicted, model.predict(new)) == 0.0


@given(seed=st.integers(0, 10_000), estimator=st.sampled_from(BOTH))
@settings(max_examples=25, deadline=None)
def test_permuted_rows_permute_labels(seed, estimator):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 2))
    order = rng.permutation(30)
    model = estimator(random_state=1)
    labels = model.fit(X).labels_
    assert clustering_error(model.fit(X[order]).labels_, labels[order]) == 0.0


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("n_clusters", [2, 3])
def test_dense_and_sparse_agree(rng, estimator, n_clusters):
    X = np.vstack([rng.normal(0, 1, (40, 5)), rng.normal(3, 1, (40, 5))])
    X[X < 0.2] = 0.0
    model = estimator(n_clusters, random_state=0)
    dense, scores = model.fit(X).labels_, model.decision_function(X)
    csr = clone(model).fit(sparse.csr_matrix(X))
    np.testing.assert_array_equal(csr.labels_, dense)
    np.testing.assert_allclose(csr.decision_function(sparse.csr_matrix(X)), scores, atol=1e-9)
    np.testing.assert_allclose(model.decision_function(sparse.csr_array(X)), scores, atol=1e-9)
    np.testing.assert_allclose(csr.decision_function(X), scores, atol=1e-9)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 1e4), (np.float64, 1e9)])
def test_an_offset_does_not_matter(rng, estimator, dtype, offset):
    X = np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(6, 1, (40, 3))])
    model = estimator(random_state=0).fit((X + offset).astype(dtype))
    assert clustering_error(np.repeat([0, 1], 40), model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict((X + offset).astype(dtype)), model.labels_)
    assert model.objective_ == pytest.approx(estimator(random_state=0).fit(X).objective_, rel=1e-3)


@pytest.mark.parametrize("estimator", BOTH)
def test_constant_features_say_nothing(rng, estimator):
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
    with pytest.raises(ValueError, match=r"reg=0 leaves the covariance of X singular.*Raise reg"):
        estimator(reg=0.0).fit(X)


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_that_depend_on_each_other(rng, estimator, dtype):
    X = rng.standard_normal((60, 3))
    X = np.column_stack([X, X @ [1.0, 2.0, -1.0]]).astype(dtype)
    with pytest.raises(ValueError, match="reg=0 leaves the covariance of X singular"):
        estimator(reg=0.0).fit(X)
    assert estimator(reg=0.1, random_state=0).fit(X).result_.status is Status.CONVERGED


@pytest.mark.parametrize("estimator", BOTH)
def test_fewer_different_rows_than_clusters(estimator):
    X = np.repeat([[0.0, 1.0], [2.0, 5.0]], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 2 of n_clusters=3 clusters were found"):
        model = estimator(3, random_state=0).fit(X)
    assert model.result_.status is Status.DEGENERATE
    assert clustering_error(np.repeat([0, 1], 5), model.labels_) == 0.0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    with pytest.raises(ValueError, match=r"all rows of X .* are equal.*Use n_clusters=1"):
        estimator().fit(np.full((6, 2), 0.1))


@pytest.mark.parametrize("estimator", BOTH)
def test_no_row_goes_to_a_cluster_without_weight(rng, estimator):
    X = rng.standard_normal((8, 2))
    weights = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    init = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    with pytest.warns(ConvergenceWarning, match="Lower n_clusters"):
        model = estimator(init=init).fit(X, sample_weight=weights)
    assert np.unique(model.predict(np.vstack([X, X * 100]))).size == 1
    assert np.isfinite(model.result_.history).all()


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


def test_drawn_centres_are_different_rows(rng):
    X = np.repeat(rng.standard_normal((4, 2)), [1, 50, 3, 2], axis=0)
    for seed in range(20):
        assert len(np.unique(drawn_centres(X, 4, np.ones(56), seed), axis=0)) == 4
        assert len(drawn_centres(X, 6, np.ones(56), seed)) == 4
    weights = np.zeros(56)
    weights[[3, 55]] = 1.0
    drawn = drawn_centres(X, 2, weights, 0)
    assert {tuple(row) for row in drawn} == {tuple(X[3]), tuple(X[55])}


@pytest.mark.parametrize("estimator", BOTH)
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"reg": -1.0}, ValueError, "reg must be at least 0, got -1"),
        ({"reg": "auto"}, TypeError, "reg must be a number, got 'auto'"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1, got 0"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be an integer"),
        ({"init": "pca"}, ValueError, "init must be one of 'k-means"),
        ({"init": [0, 1]}, ValueError, "init must hold one label a row"),
        ({"init": np.zeros(20)}, ValueError, "init must hold n_clusters=2 different labels"),
        ({"n_clusters": 40}, ValueError, "n_clusters=40 is more than the number of rows"),
    ],
)
def test_bad_parameters(rng, estimator, parameters, error, message):
    with pytest.raises(error, match=message):
        estimator(**parameters).fit(rng.standard_normal((20, 3)))


def test_bad_tolerance(rng):
    with pytest.raises(ValueError, match="tol must be at least 0 and at most 1, got 2"):
        LDAKMeans(tol=2.0).fit(rng.standard_normal((20, 3)))


def test_memory_is_checked_first(monkeypatch, rng):
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"whitened copy of 100 rows.*TruncatedSVD"):
        DiscriminativeKMeans().fit(sparse.csr_array(rng.standard_normal((100, 2))))


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
