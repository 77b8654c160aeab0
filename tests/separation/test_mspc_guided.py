"""MSPC with labels of some rows, and links between rows."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from volmar import MSPC
from volmar.guidance.guide import EmptyClusterError, Guide
from volmar.models import load_model, save_model
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation.gep import RegularizedCorrelation, bound
from volmar.separation.guided import GuidedScan


@pytest.fixture(scope="module")
def square():
    """Rows in the corners of a square, which a cut separates along either side."""
    corners = np.array([[0, 0, 0], [0, 8, 0], [8, 0, 0], [8, 8, 0.0]])
    X, corner = make_blobs([60] * 4, centers=corners, random_state=0)
    return X, corner


def bound_along(z, w, labels, weights, variance):
    """Return Theorem 2's bound of labels along w, from its definition."""
    p = z.scores(w)
    one, two = weights * labels, weights * ~labels
    if min(one.sum(), two.sum()) == 0:
        return -np.inf
    share = one.sum() / weights.sum()
    difference = one @ p / one.sum() - two @ p / two.sum()
    if difference < 0:
        return -np.inf
    explained = share * (1 - share) * difference**2 / variance
    return float(bound(np.array(explained), np.array(share)))


@pytest.mark.parametrize("seed", range(8))
def test_the_scan_finds_the_best_cut_that_is_allowed(seed):
    """Compare with all cuts of units that keep known rows on their sides."""
    rng = np.random.default_rng(seed)
    X, weights = rng.standard_normal((12, 3)), rng.uniform(0.5, 2.0, 12)
    units = np.array([0, 1, 0, 2, 3, 4, 5, 4, 6, 7, 2, 8])
    seeds = np.full(12, -1)
    seeds[[1, 3, 11]] = rng.integers(0, 2, 3)
    guide = Guide(2, seeds, units, weights=weights)
    z = standardized(as_rows(X, sample_weight=weights))
    regularized = RegularizedCorrelation(z.correlation, 0.5)
    w = rng.standard_normal(z.size)
    variance = regularized.variance(w)
    before = rng.integers(0, 2, 12).astype(bool)
    found = GuidedScan(guide, weights)(z, w, before, variance, 0.0)
    p = z.scores(w)
    means = np.bincount(units, weights * p) / np.bincount(units, weights)
    cuts = []
    for threshold in [means.min() - 1, *np.sort(means)]:
        sides = means > threshold
        known = seeds >= 0
        sides[units[known]] = seeds[known] == 1
        cuts.append(bound_along(z, w, sides[units], weights, variance))
    best = max(cuts)
    if np.isfinite(best):
        assert found.kappa2 == pytest.approx(best, rel=1e-10)
        assert found.kappa2 == pytest.approx(
            bound_along(z, w, found.labels, weights, variance), rel=1e-10
        )
    assert found.moves == np.mean(found.labels != before)


def test_the_bound_never_falls_and_is_that_of_the_labels(square):
    X, corner = square
    y = np.full(240, -1)
    y[::40] = corner[::40] % 2
    model = MSPC(random_state=0).fit(X, y)
    assert np.all(np.diff(model.result_.history) < 0)  # minus the bound
    assert model.status_.ok
    z = standardized(as_rows(X))
    regularized = RegularizedCorrelation(z.correlation, model.reg_)
    w = model.result_.w
    labels = model.result_.labels.astype(bool)
    direct = bound_along(z, w, labels, np.ones(240), regularized.variance(w))
    assert -model.objective_ == pytest.approx(direct, rel=1e-10)


@pytest.mark.parametrize("side", [0, 1])
def test_seeds_choose_among_splits(square, side):
    """Without labels both ways to cut the square are equally good."""
    X, corner = square
    truth = corner // 2 if side == 0 else corner % 2
    y = np.full(240, -1)
    y[::15] = truth[::15]
    np.testing.assert_array_equal(MSPC(random_state=0).fit(X, y).labels_, truth)


@pytest.mark.parametrize("k", [3, 4])
def test_the_discriminants_give_the_labels_back(square, k):
    X, corner = square
    truth = np.minimum(corner, k - 1)
    y = np.full(240, -1)
    y[::9] = truth[::9]
    y[5] = 0 if truth[5] else 1  # one of them wrong
    groups = np.full(240, -1)
    groups[[1, 2, 200]] = 0
    model = MSPC(k, tol=0.0, random_state=0).fit(X, y, must_link=groups)
    assert model.coef_.shape == (k, 3)
    assert model.result_.residuals["moves"] == 0.0
    units = np.arange(240)
    units[[1, 2, 200]] = 1
    units = np.unique(units, return_inverse=True)[1]
    guide = Guide(k, y, units)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_array_equal(guide.place(scores).labels, model.labels_)
    # The separation that is reported, from the labels.
    z = standardized(as_rows(X))
    Z = z.transform(X)
    means = np.array([Z[model.labels_ == c].mean(axis=0) for c in range(k)])
    between = (means.T * np.bincount(model.labels_) / 240) @ means
    matrix = RegularizedCorrelation(z.correlation, model.reg_).matrix
    assert -model.objective_ == pytest.approx(np.trace(np.linalg.solve(matrix, between)))


@pytest.mark.parametrize(
    "params",
    [
        {"solver": "mpm"},
        {"solver": "eig"},
        {"mode": "paper"},
        {"mode": "paper", "solver": "eig"},
        {"kernel": "rbf", "gamma": 0.1},
        {"scan": "histogram"},
        {"reg": 0.01, "init": "k-means"},
    ],
    ids=str,
)
@pytest.mark.parametrize("k", [2, 4])
def test_every_way_to_fit_keeps_what_is_known(square, params, k):
    X, corner = square
    truth = corner if k == 4 else corner % 2
    y = np.full(240, -1)
    y[::12] = truth[::12]
    model = MSPC(k, random_state=0, **params).fit(X, y)
    assert np.mean(model.labels_ == truth) > 0.99
    np.testing.assert_array_equal(model.labels_[::12], truth[::12])
    np.testing.assert_array_equal(model.predict(X)[y < 0], model.labels_[y < 0])


def test_sparse_rows_and_a_precomputed_kernel(square):
    X, corner = square
    y = np.full(240, -1)
    y[::12] = corner[::12]
    dense = MSPC(4, random_state=0).fit(X, y)
    of_sparse = MSPC(4, random_state=0).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.labels_, of_sparse.labels_)
    centred = X - X.mean(axis=0)
    model = MSPC(4, kernel="precomputed", random_state=0).fit(centred @ centred.T, y)
    assert np.mean(model.labels_ == corner) > 0.99


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    X = rng.standard_normal((60, 300))
    X[:, :60] += 1.5 * np.repeat(np.eye(3), 20, axis=1)[truth]
    y = np.full(60, -1)
    y[::5] = truth[::5]
    for k in (2, 3):
        rows = truth < k
        model = MSPC(k, random_state=0).fit(X[rows], y[rows])
        assert np.mean(model.labels_ == truth[rows]) > 0.95


@pytest.mark.parametrize("k", [2, 3])
def test_a_row_of_weight_two_is_two_rows(k):
    X, truth = make_blobs(120, 4, centers=k, cluster_std=3.0, random_state=3)
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 3, 120)
    y = np.full(120, -1)
    y[:12] = truth[:12]
    start = MSPC(k, random_state=0).fit(X).labels_
    guide = Guide(k, y, weights=weights.astype(float))
    twice = np.repeat(np.arange(120), weights)
    found = []
    for rows, given, seeds, labels in (
        (X, weights.astype(float), guide, start),
        (X[twice], None, Guide(k, y[twice]), start[twice]),
    ):
        model = MSPC(k, init=seeds.place(np.eye(k)[labels]).labels, reg=1.0, random_state=0)
        model._guide = seeds
        model.n_features_in_ = 4
        model._fit_once(rows, given)
        found.append(model)
    np.testing.assert_array_equal(found[0].labels_[twice], found[1].labels_)
    np.testing.assert_allclose(found[0].coef_, found[1].coef_, rtol=1e-6)


def test_a_cluster_that_no_row_would_be_in():
    model = MSPC(3, init=np.array([0, 0, 1, 1, 2, 2]), random_state=0)
    X = np.array([[0.0], [4.0], [4.0], [0.0], [2.0], [2.0]])
    model._guide = Guide(3, np.full(6, -1))
    model.n_features_in_ = 1
    with pytest.raises(EmptyClusterError, match="n_clusters=3"):
        model._fit_once(X, None)


def test_a_saved_model_has_the_names(square, tmp_path):
    X, corner = square
    y = np.full(240, None, dtype=object)
    y[::12] = np.array(["a", "b", "c", "d"])[corner[::12]]
    for k in (4, 5):
        model = MSPC(k, random_state=0).fit(X, y)
        save_model(tmp_path / f"{k}.volmar", model)
        loaded = load_model(tmp_path / f"{k}.volmar").model
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        np.testing.assert_array_equal(loaded.classes_, model.classes_)


@pytest.mark.parametrize("k", [2, 3])
def test_links_alone(square, k):
    """Opposite corners are linked: all labels within the limits keep the pairs together."""
    X, corner = square
    ends = np.flatnonzero(corner == 0)[:20], np.flatnonzero(corner == 1)[:20]
    groups = np.full(240, -1)
    groups[ends[0]] = groups[ends[1]] = np.arange(20)
    model = MSPC(k, random_state=0).fit(X, must_link=groups)
    np.testing.assert_array_equal(model.labels_[ends[0]], model.labels_[ends[1]])
    assert np.unique(model.labels_).size == k
    assert np.all(np.diff(np.bincount(model.labels_)) <= 0)  # by size, as without


def test_all_cuts_of_few_rows():
    """A fixed point is no worse than its neighbours along its own direction."""
    X, truth = make_blobs([5, 5], 2, centers=[[0, 0], [3, 0]], random_state=1)
    y = np.full(10, -1)
    y[[0, 9]] = truth[[0, 9]]
    model = MSPC(tol=0.0, random_state=0).fit(X, y)
    z = standardized(as_rows(X))
    w = model.result_.w
    variance = RegularizedCorrelation(z.correlation, model.reg_).variance(w)
    p = z.scores(w)
    free = y < 0
    allowed = []
    for sides in itertools.product([False, True], repeat=8):
        labels = truth.astype(bool)
        labels[free] = sides
        if (
            labels[free].all()
            or not labels[free].any()
            or p[free & labels].min() > p[free & ~labels].max()
        ):
            allowed.append(bound_along(z, w, labels, np.ones(10), variance))
    assert -model.objective_ == pytest.approx(max(allowed), rel=1e-9)


def test_classes_that_are_no_separated_clusters():
    """In a uniform distribution, labels are lost if the iteration converges."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    truth = np.digitize(X[:, 0], [0.15, 0.45])
    y = np.full(600, -1)
    y[:60] = truth[:60]
    model = MSPC(3, random_state=0).fit(X, y)
    assert model.n_iter_ == 1
    assert model.status_.ok
    settled = MSPC(3, init=truth, reg=model.reg_, random_state=0)
    settled._guide, settled.n_features_in_ = Guide(3, y), 2
    settled._fit_once(X, None)
    assert settled.n_iter_ > 1
    error = np.mean(model.labels_ != truth)
    assert error < 0.2
    assert error < np.mean(settled.labels_ != truth) - 0.1
