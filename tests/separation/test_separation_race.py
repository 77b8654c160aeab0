"""The race of starts: its parts against brute force, and data with clear groups."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from volmar import MSPC
from volmar.evidence.densities import valleys_at
from volmar.metrics import clustering_error, separation_score
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation.discriminants import pooled_separation
from volmar.separation.gep import RegularizedCorrelation, best_split, best_splits
from volmar.separation.race import (
    StartRows,
    held_out_scores,
    normal_group_directions,
    race,
    two_means,
)


def two_groups(n, d, distance, share, seed, informative=1):
    rng = np.random.default_rng(seed)
    y = np.arange(n) < round(share * n)
    X = rng.normal(size=(n, d))
    X[:, :informative] += distance / np.sqrt(informative) * y[:, None]
    order = rng.permutation(n)
    return X[order], y[order]


# ------------------------------------------------------------------ pieces


@pytest.mark.parametrize("min_share", [0.0, 0.02, 0.3])
def test_many_cuts_at_once_are_those_of_one_at_a_time(min_share):
    rng = np.random.default_rng(0)
    P = np.column_stack(
        [rng.normal(size=101), rng.integers(0, 4, 101), rng.exponential(size=101), np.zeros(101)]
    )
    variances = np.array([1.3, 2.0, 3.0, 1.0])
    ordered = np.sort(P.T, axis=1)
    thresholds, kappa2, with_ridge = best_splits(ordered, variances, min_share, 0.7)
    np.testing.assert_allclose(with_ridge, best_splits(ordered, variances + 0.7, min_share)[1])
    for j, variance in enumerate(variances):
        centred = P[:, j] - P[:, j].mean()
        one = best_split(centred, None, variance, min_share * 101)
        assert kappa2[j] == pytest.approx(one.kappa2)
        if np.isfinite(one.kappa2):
            assert thresholds[j] == pytest.approx(one.threshold + P[:, j].mean())


def test_too_few_rows_for_two_sides():
    thresholds, kappa2 = best_splits(np.zeros((2, 3)), np.ones(2), 0.7)
    assert np.isneginf(kappa2).all()
    assert thresholds.shape == (2,)


def test_valleys_of_many_samples_are_those_of_one_at_a_time():
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(6, 200)) + 8 * (rng.random((6, 200)) < 0.3)
    samples[5] = 1.0
    samples.sort(axis=1)
    cuts = np.array([4.0, 0.0, 4.0, 8.0, 4.0, 0.0])
    found = valleys_at(samples, cuts)
    for i in range(6):
        alone = valleys_at(samples[i : i + 1], cuts[i : i + 1])
        assert (found.mass[i], found.depth[i]) == pytest.approx((alone.mass[0], alone.depth[0]))
    assert found.depth[0] > 0.5  # between the groups
    assert found.depth[1] < 0.2  # at a mode
    assert found.depth[5] == 0


def test_two_means_is_k_means():
    X, y = two_groups(300, 4, 6.0, 0.3, 0)
    Z = X - X.mean(axis=0)
    rng = np.random.default_rng(0)
    labels = two_means(Z, rng.random((300, 5)) < 0.5)
    usual = KMeans(2, n_init=10, random_state=0).fit_predict(Z)
    assert clustering_error(labels, usual) == 0
    assert clustering_error(y, labels) < 0.02
    assert two_means(Z, np.ones((300, 2), dtype=bool)).shape == (300, 0)


def test_normal_groups_are_those_of_a_mixture_with_one_covariance():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    X = rng.normal(size=(2000, 4))
    X[:700, 1] += 4.0
    X = X @ root
    z = standardized(as_rows(X))
    Z = (X - z.mean) / z.scale
    start = (np.arange(2000) < 900).astype(float)
    w = normal_group_directions(Z, RegularizedCorrelation(z.correlation, 0.0), start[:, None], 300)
    mixture = GaussianMixture(
        2, covariance_type="tied", tol=1e-9, max_iter=500, means_init=[Z[:900].mean(axis=0),
        Z[900:].mean(axis=0)], random_state=0,
    ).fit(Z)  # fmt: skip
    expected = np.linalg.solve(mixture.covariances_, np.diff(mixture.means_, axis=0)[0])
    cosine = abs(expected @ w[:, 0]) / np.linalg.norm(expected) / np.linalg.norm(w[:, 0])
    assert cosine == pytest.approx(1.0, abs=1e-6)


def test_held_out_score_prefers_a_small_group_to_half_of_the_noise():
    rng = np.random.default_rng(0)
    n = 1000
    small = rng.normal(size=n) + 7 * (np.arange(n) < 80)
    flat = rng.uniform(size=n)
    scores = held_out_scores(np.column_stack([small, rng.normal(size=n), flat]), 0.02, 1.0)
    assert scores.score[0] > 2 * scores.score[1:].max()
    assert scores.kappa2[0] < scores.kappa2[2]  # the bound alone would prefer the flat one


def test_pooled_separation_is_that_of_every_pair():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    X = rng.normal(size=(400, 3)) + np.array([[0, 0, 0], [3, 0, 1], [0, 4, 0]])[y]
    z = standardized(as_rows(X))
    Z = (X - z.mean) / z.scale
    found = pooled_separation(z, RegularizedCorrelation(z.correlation, 0.1), y, 3)
    shares = np.bincount(y) / 400
    means = np.array([Z[y == j].mean(axis=0) for j in range(3)])
    within = sum(shares[j] * np.cov(Z[y == j].T, bias=True) for j in range(3)) + 0.1 * np.eye(3)
    worst = np.ones(3)
    for i in range(3):
        for j in range(3):
            if i != j:
                gap = means[i] - means[j]
                smaller = min(shares[i], shares[j]) / (shares[i] + shares[j])
                kappa2 = 0.5 * smaller * gap @ np.linalg.solve(within, gap)
                worst[i] = min(worst[i], kappa2 / (1 + kappa2))
    assert found == pytest.approx(shares @ worst)


def test_copies_of_a_row_go_to_one_half():
    """Otherwise the rows would confirm a direction that fits their own noise."""
    X, _ = two_groups(12, 10, 0.0, 0.5, 0)
    numbers = np.repeat(np.arange(12), 20)
    Z = X[numbers]
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    rows = StartRows(Z, Z, None)
    apart = [race(rows, 1.0, 8, 0.02, seed, numbers).score for seed in range(5)]
    mixed = [race(rows, 1.0, 8, 0.02, seed).score for seed in range(5)]
    assert np.median(apart) < 0.8 * np.median(mixed)


# ------------------------------------------------------------------ easy data


@pytest.mark.parametrize("solver", ["gep", "mpm"])
@pytest.mark.parametrize(
    ("n", "d", "distance", "share"),
    [
        (400, 2, 8.0, 0.1),
        (600, 2, 8.0, 0.05),
        (400, 10, 8.0, 0.1),
        (400, 10, 6.0, 0.3),
        (400, 50, 6.0, 0.5),
        (800, 100, 6.0, 0.5),
    ],
)
def test_groups_of_any_size_in_one_column_of_many(solver, n, d, distance, share):
    errors = []
    for seed in range(4):
        X, y = two_groups(n, d, distance, share, seed)
        errors.append(clustering_error(y, MSPC(solver=solver, random_state=0).fit(X).labels_))
    assert np.max(errors) < 0.04


@pytest.mark.parametrize("scan", ["exact", "histogram"])
def test_small_groups_by_both_scans(scan):
    X, y = two_groups(500, 5, 8.0, 0.08, 3)
    assert clustering_error(y, MSPC(scan=scan, random_state=0).fit(X).labels_) < 0.02


def test_long_groups_beside_each_other_need_a_small_reg():
    rng = np.random.default_rng(2)
    y = np.arange(500) < 250
    X = rng.normal(size=(500, 2)) * [8.0, 1.0]
    X[:, 1] += 6.0 * y
    turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    model = MSPC(random_state=0).fit(X @ turn)
    assert clustering_error(y, model.labels_) < 0.02
    assert model.reg_ in (1.0, 0.1)
    hidden = rng.normal(size=(600, 10))
    hidden[:150, 0] += 7.0
    root = np.linalg.qr(rng.normal(size=(10, 10)))[0] * np.sqrt(np.geomspace(1, 100, 10))
    model = MSPC(random_state=0).fit(hidden @ root.T)
    assert clustering_error(np.arange(600) < 150, model.labels_) < 0.02
    assert model.reg_ == 0.1
    assert model.result_.reg == 0.1


def test_a_given_reg_is_kept():
    X, _ = two_groups(300, 4, 6.0, 0.4, 0)
    for reg in (0.0, 0.3, 5.0):
        model = MSPC(reg=reg, random_state=0).fit(X)
        assert model.reg_ == model.result_.reg == reg
    assert MSPC(mode="paper", random_state=0).fit(X).reg_ == 1.0
    assert MSPC(solver="eig").fit(X).reg_ == 1.0


def test_the_units_of_the_user_help_where_they_mean_something():
    """Two of fifty columns separate the groups, and k-means on X finds them."""
    rng = np.random.default_rng(0)
    y = np.arange(300) < 120
    X = np.hstack([rng.normal(size=(300, 2)) + 5 * y[:, None], 0.1 * rng.normal(size=(300, 50))])
    assert clustering_error(y, MSPC(random_state=0).fit(X).labels_) < 0.02


@pytest.mark.parametrize("kind", ["float32", "sparse", "weights", "few rows"])
def test_other_rows(kind):
    X, y = two_groups(400, 6, 8.0, 0.15, 1)
    weights = None
    if kind == "float32":
        X = X.astype(np.float32)
    elif kind == "sparse":
        X = sparse.csr_array(np.where(np.abs(X) < 0.5, 0.0, X))
    elif kind == "weights":
        weights = np.where(y, 1.0, 2.0)
    else:
        X, y = two_groups(14, 3, 20.0, 0.36, 1)
    model = MSPC(random_state=0).fit(X, sample_weight=weights)
    assert clustering_error(y, model.labels_) < 0.03


@pytest.mark.parametrize("sizes", [(360, 40), (186, 14), (190, 10), (768, 32), (1940, 60)])
def test_a_small_round_group_far_away(sizes):
    """Here the regularised bound of a halved noise column is above that of the true groups."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = np.repeat([0, 1], sizes)
        X = rng.normal(size=(y.size, 2))
        X[y == 1, 0] += 8.0
        assert clustering_error(y, MSPC(random_state=seed).fit(X).labels_) < 0.01


@pytest.mark.parametrize(("n", "d"), [(200, 20), (400, 50)])
def test_round_groups_in_many_columns(n, d):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        X = rng.normal(size=(n, d))
        X[y == 1, 0] += 6.0
        assert clustering_error(y, MSPC(random_state=seed).fit(X).labels_) < 0.03


# ------------------------------------------------------------------ more than two clusters


def customers(seed, n=900):
    """Three groups of 70, 20 and 10 % in three of six columns with different units."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], [int(0.7 * n), int(0.2 * n), n - int(0.9 * n)])
    X = rng.normal(size=(n, 6))
    X[:, :3] += np.array([[0, 0, 0], [3.5, 2.5, 0], [0, 3.0, 4.5]])[y]
    return X * [1000.0, 1.0, 12.0, 0.1, 5.0, 300.0], y


def test_k_clusters_of_uneven_size():
    for seed in range(3):
        X, y = customers(seed)
        model = MSPC(3, random_state=0).fit(X)
        assert adjusted_rand_score(y, model.labels_) > 0.9
        assert separation_score(X, model.labels_) > separation_score(X, y) - 0.02


def test_the_middle_of_three_groups_is_not_cut():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = rng.normal(size=(600, 6))
    X[:, 0] += 7 * y
    for solver in ("gep", "mpm"):
        model = MSPC(3, solver=solver, random_state=0).fit(X)
        assert clustering_error(y, model.labels_) < 0.01
        np.testing.assert_array_equal(model.predict(X), model.labels_)
