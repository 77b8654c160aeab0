"""MSPC with more than two clusters: discriminants, the number of clusters."""

import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from volmar import MSPC
from volmar.base.recursion import PostponedSplitError, RecursiveResult
from volmar.datasets import make_blobs
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation import race
from volmar.separation.discriminants import MultiwaySeparationResult, refine_clusters
from volmar.separation.gep import RegularizedCorrelation
from volmar.solvers import Status


@pytest.fixture(scope="module")
def mixture():
    """Four clusters in units that differ by up to 1e4, with a constant feature."""
    X, y = make_blobs(240, centers=4, n_features=5, separation=8.0, random_state=2)
    X = X @ np.random.default_rng(0).normal(size=(5, 5)) * 10.0 ** np.arange(-2, 3)
    return np.column_stack([X, np.full(240, 3.0)]), y


def _prepared(X, reg=1.0, weights=None):
    z = standardized(as_rows(X, sample_weight=weights))
    return z, RegularizedCorrelation(z.correlation, reg)


def _dense_discriminants(Z, labels, reg):
    """(S + reg I)^-1 of the means with S from its definition."""
    k = labels.max() + 1
    means = np.array([Z[labels == j].mean(axis=0) for j in range(k)])
    centred = Z - means[labels]
    S = centred.T @ centred / len(Z) + reg * np.eye(Z.shape[1])
    V = np.linalg.solve(S, means.T)
    return V, -0.5 * np.einsum("jp,pj->j", means, V)


def test_discriminants_are_those_of_the_definition(mixture):
    X, y = mixture
    z, regularized = _prepared(X)
    Z = (X - X.mean(axis=0))[:, :5] / X.std(axis=0)[:5]
    result = refine_clusters(z, regularized, y, 4, min_weight=1.0, max_iter=1)
    V, offsets = _dense_discriminants(Z, y, 1.0)
    np.testing.assert_allclose(result.directions, V, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(result.offsets, offsets, rtol=1e-8)
    R = Z.T @ Z / len(Z)
    means = np.array([Z[y == j].mean(axis=0) for j in range(4)])
    B = (means.T * np.bincount(y) / 240) @ means
    separation = np.trace(np.linalg.solve(R + np.eye(5), B))
    assert result.objective == pytest.approx(-separation, rel=1e-9)


def test_two_clusters_have_theorem_2s_direction(mixture):
    """The pooled direction is that of the whole correlation, (R + reg I)^-1 D."""
    X, y = mixture
    X, y = X[y < 2], y[y < 2]
    z, regularized = _prepared(X)
    V = refine_clusters(z, regularized, y, 2, min_weight=1.0, max_iter=1).directions
    Z = (X - X.mean(axis=0))[:, :5] / X.std(axis=0)[:5]
    D = regularized.solve(Z[y == 1].mean(axis=0) - Z[y == 0].mean(axis=0))
    w = V[:, 1] - V[:, 0]
    assert abs(w @ D) / np.linalg.norm(w) / np.linalg.norm(D) == pytest.approx(1.0, abs=1e-10)


def test_labels_are_a_fixed_point(mixture):
    X, y = mixture
    start = np.random.default_rng(0).permutation(y)
    z, regularized = _prepared(X)
    result = refine_clusters(z, regularized, start, 4, min_weight=1.0, tol=0.0)
    assert result.status is Status.CONVERGED
    scores = z.scores(result.directions) + result.offsets
    np.testing.assert_array_equal(scores.argmax(axis=1), result.labels)
    assert result.residuals["moves"] == 0.0


def test_a_step_that_would_empty_a_cluster_is_not_made():
    """Clusters 1 and 2 have the same mean, so one of them gets all tied rows."""
    X = np.array([[0.0], [0.1], [5.0], [5.2], [5.1], [5.1]])
    z, regularized = _prepared(X)
    labels = np.array([0, 0, 1, 1, 2, 2])
    result = refine_clusters(z, regularized, labels, 3, min_weight=1.0)
    assert result.status is Status.DEGENERATE
    np.testing.assert_array_equal(result.labels, labels)
    assert result.history == ()


def test_recovers_four_clusters_in_any_units(mixture):
    X, y = mixture
    model = MSPC(4, random_state=0).fit(X)
    assert adjusted_rand_score(y, model.labels_) > 0.96
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.decision_function(X).shape == (240, 4)
    scaled = MSPC(4, random_state=0).fit(X * [3, 1e-3, 7, 1, 1e4, 1])
    assert adjusted_rand_score(scaled.labels_, model.labels_) == 1.0


def test_coefficients_give_the_scores(mixture):
    X, _ = mixture
    model = MSPC(4, random_state=0).fit(X)
    assert model.coef_.shape == (4, 6)
    np.testing.assert_allclose(
        X @ model.coef_.T + model.intercept_, model.decision_function(X), rtol=1e-6, atol=1e-8
    )


def test_sparse_and_float32(mixture):
    X, _ = mixture
    dense = MSPC(4, init="k-means", random_state=0)
    csr = MSPC(4, init="k-means", random_state=0)
    a, b = dense.fit(X).labels_, csr.fit(sparse.csr_array(X)).labels_
    assert adjusted_rand_score(a, b) > 0.96
    single = MSPC(4, random_state=0).fit(X.astype(np.float32))
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32


def test_weight_two_is_a_row_twice(mixture):
    X, y = mixture
    weights = np.random.default_rng(5).integers(1, 3, 240)
    repeated = np.repeat(np.arange(240), weights)
    ends = {"min_weight": 1.0, "tol": 0.0}
    one = refine_clusters(*_prepared(X, weights=weights), y, 4, **ends)
    two = refine_clusters(*_prepared(X[repeated]), y[repeated], 4, **ends)
    np.testing.assert_array_equal(one.labels[repeated], two.labels)
    np.testing.assert_allclose(one.directions, two.directions, rtol=1e-6, atol=1e-9)


def test_start_labels_are_for_two_clusters(mixture):
    X, y = mixture
    with pytest.raises(ValueError, match="init holds one entry per row"):
        MSPC(4, init=y).fit(X)


def test_the_minimum_cluster_size_refers_to_all_rows():
    X, _ = make_blobs(200, centers=3, imbalance=[0.6, 0.3, 0.1], random_state=0)
    with pytest.warns(ConvergenceWarning, match="min_cluster_size=0.2. The labels"):
        sizes = np.bincount(MSPC(3, min_cluster_size=0.2, random_state=0).fit(X).labels_)
    assert sizes.min() >= 40
    with pytest.raises(ValueError, match=r"^min_cluster_size"):
        MSPC(3, min_cluster_size=0.4, random_state=0).fit(X)


def test_kernels_split_rings():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 450)
    y = np.repeat([0, 1, 2], 150)
    X = (np.array([0.1, 2.0, 4.0])[y] + 0.05 * rng.normal(size=450))[:, None]
    X = X * np.column_stack([np.cos(angle), np.sin(angle)])
    model = MSPC(3, kernel="rbf", gamma=0.5, reg=0.01, random_state=0).fit(X)
    assert len(set(model.labels_)) == 3
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert not hasattr(model, "coef_")


def test_the_tree_is_kept_if_no_refinement_is_valid(monkeypatch, mixture):
    X, _ = mixture
    refined = MSPC(4, random_state=0).fit(X)

    def refuse(z, regularized, labels, k, *_, **__):
        return refine_clusters(z, regularized, labels, k, min_weight=np.inf)

    monkeypatch.setattr("volmar.separation.discriminants.settle_clusters", refuse)
    model = MSPC(4, random_state=0).fit(X)
    assert isinstance(model.result_, RecursiveResult)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    # The numbers of clusters of similar size depend on the rows that refinement moves.
    numbers = re.compile(r"cluster \d")
    assert numbers.sub("", str(model.tree_)) == numbers.sub("", str(refined.tree_))


def test_leaves_have_the_numbers_of_the_clusters_that_they_became():
    X, y = make_blobs(600, centers=4, n_features=3, separation=8.0, random_state=1)
    keep = np.flatnonzero(np.random.default_rng(0).random(600) < np.array([0.3, 1, 0.6, 0.8])[y])
    model = MSPC(4, random_state=0).fit(X[keep])
    assert isinstance(model.result_, MultiwaySeparationResult)
    by_size = sorted(model.tree_.leaves(), key=lambda leaf: leaf.label)
    sizes = np.bincount(model.labels_)
    np.testing.assert_allclose([leaf.n_rows for leaf in by_size], sizes, atol=10)
    assert (np.diff(sizes) < -10).all()


def test_scores_do_not_follow_a_parameter_set_later(mixture):
    X, _ = mixture
    model = MSPC(4, random_state=0).fit(X)
    scores = model.decision_function(X)
    np.testing.assert_array_equal(model.set_params(n_clusters=2).decision_function(X), scores)


def test_a_minimum_share_of_any_type_refers_to_all_rows():
    X, _ = make_blobs(200, centers=3, imbalance=[0.6, 0.3, 0.1], random_state=0)
    with pytest.warns(ConvergenceWarning, match="smaller min_cluster_size"):
        plain = MSPC(3, min_cluster_size=0.25, random_state=0).fit(X)
    with pytest.warns(ConvergenceWarning, match="smaller min_cluster_size"):
        single = MSPC(3, min_cluster_size=np.float32(0.25), random_state=0).fit(X)
    assert np.bincount(single.labels_).min() >= 50
    np.testing.assert_array_equal(single.labels_, plain.labels_)


@pytest.mark.parametrize("size", [0.3, 60])
def test_cross_fitted_halves_have_half_the_minimum_size(size):
    """Two groups of 100 can have at least 60 rows each; the cross-fitted halves cannot."""
    X, y = make_blobs(200, centers=2, separation=10.0, random_state=0)
    model = MSPC(3, min_cluster_size=size, random_state=0)
    with pytest.warns(ConvergenceWarning, match="Found 2 clusters"):
        model.fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0
    assert model.tree_.root.probability > 0.9


def test_the_minimum_cluster_size_refers_to_the_total_weight():
    """Ten rows have half of the weight; a third of it is more than each other group has."""
    rng = np.random.default_rng(0)
    centres = np.repeat([[0, 0], [20, 0], [20, 20]], [10, 45, 45], axis=0)
    X = centres + rng.normal(scale=0.5, size=(100, 2))
    weights = np.repeat([9.0, 1.0], [10, 90])
    model = MSPC(3, min_cluster_size=0.3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="size=0.3"):
        model.fit(X, sample_weight=weights)
    assert model.min_cluster_weight_ == 54.0
    np.testing.assert_array_equal(np.bincount(model.labels_, weights), [90.0, 90.0])
    least = MSPC(3, min_cluster_size=0.15, random_state=0).fit(X, sample_weight=weights)
    assert sorted(np.bincount(least.labels_, weights)) == [45.0, 45.0, 90.0]


@pytest.fixture(scope="module")
def six_groups():
    rng = np.random.default_rng(0)
    sizes = [400, 300, 200, 150, 120, 80]
    centres = np.repeat(4.0 * rng.standard_normal((6, 6)), sizes, axis=0)
    return centres + rng.standard_normal(centres.shape)


def test_postponed_splits_leave_the_tree_as_it_is(six_groups, monkeypatch):
    n_postponed = 0

    def counted(found, hurdle):
        nonlocal n_postponed
        try:
            check(found, hurdle)
        except PostponedSplitError:
            n_postponed += 1
            raise

    check = race._check_promise
    monkeypatch.setattr(race, "_check_promise", counted)
    lazy = MSPC(6, random_state=0).fit(six_groups)
    assert n_postponed > 1
    monkeypatch.setattr(race, "_check_promise", lambda found, hurdle: None)
    eager = MSPC(6, random_state=0).fit(six_groups)
    sizes = [[node.n_rows for node in model.tree_.nodes()] for model in (lazy, eager)]
    assert sizes[0] == sizes[1]
    np.testing.assert_array_equal(lazy.labels_, eager.labels_)


def test_postponed_splits_are_made_where_no_others_are_left(six_groups, monkeypatch):
    monkeypatch.setattr(race, "MAX_GAIN", 1e-9)  # postpone every split that may be
    model = MSPC(9, random_state=0).fit(six_groups)
    assert len(model.tree_.leaves()) == 9
    assert all("_hurdle" not in vars(node.model) for node in model.tree_.splits())
