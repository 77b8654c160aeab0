"""MSPC with tens to hundreds of clusters: exchanges, small clusters, sums and memory."""

import tracemalloc

import dask.array as da
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

from volmar import MSPC
from volmar.rows.anywhere import as_rows
from volmar.rows.blocks import as_table
from volmar.rows.cluster_sums import cluster_sums, own_scores, sums_by_discriminants
from volmar.rows.standardized import standardized
from volmar.separation.discriminants import (
    exchange_clusters,
    has_own_units,
    log_volume,
    refine_clusters,
    regularized_by,
    settle_clusters,
    shares_and_means,
    split_clusters,
    squared_distances,
)
from volmar.separation.gep import RegularizedCorrelation
from volmar.solvers import Status

REG = 0.3


def groups(n_groups, n_rows, n_features, distance, seed=0):
    """Normal groups of different sizes around random centres."""
    rng = np.random.default_rng(seed)
    y = rng.choice(n_groups, n_rows, p=rng.dirichlet(np.full(n_groups, 5.0)))
    y[:n_groups] = np.arange(n_groups)
    centres = distance / np.sqrt(2 * n_features) * rng.normal(size=(n_groups, n_features))
    return centres[y] + rng.normal(size=(n_rows, n_features)), y


def prepared(X, weights=None):
    z = standardized(as_rows(X, sample_weight=weights))
    return z, RegularizedCorrelation(z.correlation, REG)


def dense_log_volume(Z, labels):
    """log |S + reg I| - log |R + reg I| from the definition."""
    k = labels.max() + 1
    means = np.array([Z[labels == j].mean(axis=0) for j in range(k)])
    within, whole = Z - means[labels], Z - Z.mean(axis=0)
    ridge = REG * np.eye(Z.shape[1])
    return (
        np.linalg.slogdet(within.T @ within / len(Z) + ridge)[1]
        - np.linalg.slogdet(whole.T @ whole / len(Z) + ridge)[1]
    )


def volume_of(z, regularized, labels, k):
    return log_volume(regularized, *shares_and_means(z, cluster_sums(z.rows, labels, k)))


@pytest.fixture(scope="module")
def five():
    X, y = groups(5, 400, 6, 12.0)
    return X, y, (X - X.mean(axis=0)) / X.std(axis=0)


# ---------------------------------------------------------------------- the determinant


def test_the_volume_is_that_of_the_definition(five):
    X, y, Z = five
    z, regularized = prepared(X)
    assert volume_of(z, regularized, y, 5) == pytest.approx(dense_log_volume(Z, y), rel=1e-9)


def test_no_step_raises_the_volume(five):
    X, y, _ = five
    z, regularized = prepared(X)
    labels = np.random.default_rng(1).integers(0, 5, y.size)
    volumes = [volume_of(z, regularized, labels, 5)]
    for _ in range(15):
        step = refine_clusters(z, regularized, labels, 5, min_weight=1.0, max_iter=1)
        labels = step.labels
        volumes.append(volume_of(z, regularized, labels, 5))
    assert (np.diff(volumes) <= 1e-9).all()
    assert volumes[-1] < volumes[0] - 0.1


def test_a_merge_raises_the_volume_by_the_formula(five):
    X, y, Z = five
    z, regularized = prepared(X)
    shares, means = shares_and_means(z, cluster_sums(z.rows, y, 5))
    distance = squared_distances(regularized, shares, means)[1, 3]
    loss = shares[1] * shares[3] / (shares[1] + shares[3]) * distance
    merged = np.unique(np.where(y == 3, 1, y), return_inverse=True)[1]
    raised = dense_log_volume(Z, merged) - dense_log_volume(Z, y)
    assert np.log1p(loss) == pytest.approx(raised, rel=1e-8)


def test_a_split_lowers_the_volume_by_the_formula_and_finds_two_groups(five):
    X, y, Z = five
    labels = np.where(y == 4, 0, y)  # cluster 0 holds two groups
    z, regularized = prepared(X)
    sums = cluster_sums(z.rows, labels, 4)
    side, gain = split_clusters(z, regularized, sums, np.random.default_rng(0), 1.0)
    assert gain.argmax() == 0
    inside = labels == 0
    assert adjusted_rand_score(y[inside], side[inside]) > 0.95
    for j in range(4):
        split = np.where((labels == j) & side, 4, labels)
        lowered = dense_log_volume(Z, split) - dense_log_volume(Z, labels)
        assert np.log1p(-gain[j]) == pytest.approx(lowered, rel=1e-8)


# ---------------------------------------------------------------------- exchanges


def test_an_exchange_leaves_a_wrong_start(five):
    """Moving borders cannot fix two groups in one cluster and another split in two."""
    X, y, _ = five
    z, regularized = prepared(X)
    start = np.where(y == 4, 0, y)
    start[(y == 1) & (X[:, 0] > np.median(X[y == 1, 0]))] = 4
    stuck = refine_clusters(z, regularized, start, 5, min_weight=1.0)
    assert adjusted_rand_score(y, stuck.labels) < 0.9
    found = exchange_clusters(z, regularized, stuck, 5, 0, min_weight=1.0)
    assert adjusted_rand_score(y, found.labels) > 0.98
    before, after = (volume_of(z, regularized, one.labels, 5) for one in (stuck, found))
    assert after < before


def test_what_cannot_be_better_is_returned_as_it_is(five):
    X, y, _ = five
    z, regularized = prepared(X)
    settled = refine_clusters(z, regularized, y, 5, min_weight=1.0)
    assert exchange_clusters(z, regularized, settled, 5, 0, min_weight=1.0) is settled


def test_small_clusters_are_replaced(five):
    X, y, _ = five
    far = np.vstack([X, X[:3] + 60.0])  # three far rows are a cluster of the start
    truth = np.append(y, [5, 5, 5])
    start = np.where(truth == 4, 0, truth)
    start[truth == 5] = 4
    z, regularized = prepared(far)
    ends = {"min_weight": 10.0}
    assert refine_clusters(z, regularized, start, 5, **ends).history == ()
    found = settle_clusters(z, regularized, start, 5, 0, **ends)
    assert found.history
    assert np.bincount(found.labels, minlength=5).min() >= 10
    assert adjusted_rand_score(y, found.labels[:-3]) > 0.95


def test_no_clusters_are_made_of_too_few_rows(five):
    X, y, _ = five
    z, regularized = prepared(X)
    found = settle_clusters(z, regularized, y, 5, 0, min_weight=150.0)
    assert found.history == ()
    assert found.status is Status.DEGENERATE
    np.testing.assert_array_equal(found.labels, y)


# ---------------------------------------------------------------------- own units


def test_own_units_are_one_variance_for_all_features():
    X = groups(3, 200, 4, 8.0)[0] * [1.0, 3.0, 0.1, 10.0]
    z, _ = prepared(X)
    assert has_own_units(z)
    covariance = np.cov(X.T, bias=True)
    ridge = REG * np.trace(covariance) / 4 * np.eye(4)
    expected = (covariance + ridge) / np.outer(X.std(axis=0), X.std(axis=0))
    found = regularized_by(z, REG, in_own_units=True).matrix
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert not has_own_units(prepared(X / X.std(axis=0))[0])


def test_units_of_any_size_are_fine():
    X = groups(3, 200, 3, 8.0)[0] * [1e-150, 1.0, 1e150]
    z, _ = prepared(X)
    assert np.isfinite(regularized_by(z, 1.0, in_own_units=True).matrix).all()


# ---------------------------------------------------------------------- sums


@pytest.mark.parametrize("k", [7, 90])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_own_scores_are_those_of_a_loop(k, dtype, kind, weighted):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(5000, 3)) + 5.0).astype(dtype)
    labels = rng.integers(0, k, 5000)
    weights = rng.random(5000) + 0.5 if weighted else None
    rows = as_rows(kind(X), sample_weight=weights).centered()
    found = cluster_sums(rows, labels, k)
    mass = np.ones(5000) if weights is None else weights
    centred = X.astype(np.float64) - rows.offset
    for j in range(k):
        inside = labels == j
        assert found.weight[j] == pytest.approx(mass[inside].sum(), rel=1e-5)
        expected = mass[inside] @ centred[inside]
        np.testing.assert_allclose(found.vectors[j], expected, rtol=1e-3, atol=2e-2)
    W = rng.normal(size=(3, k))
    expected = np.einsum("ij,ij->i", centred, W.T[labels])
    np.testing.assert_allclose(own_scores(rows, W, labels), expected, rtol=1e-4, atol=1e-4)


def test_own_scores_need_rows_in_memory():
    table = as_table(da.from_array(np.ones((10, 2)), chunks=(5, 2)))
    with pytest.raises(TypeError, match="rows in memory"):
        own_scores(as_rows(table), np.ones((2, 1)), np.zeros(10, dtype=int))


def test_many_clusters_of_many_rows_take_no_matrix_of_both():
    n, k = 100_000, 500
    rng = np.random.default_rng(0)
    rows = as_rows(rng.normal(size=(n, 8)).astype(np.float32)).centered()
    directions, offsets = rng.normal(size=(8, k)), np.zeros(k)
    tracemalloc.start()
    sums_by_discriminants(rows, directions, offsets, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * 8 * n * k


# ---------------------------------------------------------------------- MSPC


@pytest.fixture(scope="module")
def hundred():
    X, y = groups(100, 5000, 20, 12.0)
    X = X.astype(np.float32)
    return X, y, MSPC(100, random_state=0).fit(X)


def test_a_hundred_groups_are_found(hundred):
    X, y, model = hundred
    assert adjusted_rand_score(y, model.labels_) > 0.95
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.decision_function(X).argmax(axis=1), model.labels_)
    assert len(model.tree_.leaves()) == 100
    assert (np.diff(np.bincount(model.labels_)) <= 0).all()


def test_leaves_are_no_smaller_than_clusters_may_be(hundred):
    _, _, model = hundred
    fewest = 0.04 / 100 * 5000
    assert min(leaf.n_rows for leaf in model.tree_.leaves()) >= fewest


def test_permuted_rows_have_the_same_clusters(hundred):
    X, y, model = hundred
    order = np.random.default_rng(3).permutation(len(X))
    other = MSPC(100, random_state=0).fit(X[order])
    assert adjusted_rand_score(y[order], other.labels_) > 0.95
    assert adjusted_rand_score(model.labels_[order], other.labels_) > 0.9


def test_blocks_have_the_clusters_of_rows_in_memory():
    X, y = groups(40, 4000, 10, 14.0)
    one = MSPC(40, random_state=0).fit(X)
    two = MSPC(40, random_state=0).fit(da.from_array(X, chunks=(700, 10)))
    np.testing.assert_array_equal(np.asarray(two.labels_), one.labels_)
    assert adjusted_rand_score(y, one.labels_) > 0.95
