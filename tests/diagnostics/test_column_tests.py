"""The test of which differences are real, and how often it errs."""

import numpy as np
import pytest
from helpers.groups import kmeans
from scipy import stats

from volmar import MSPC
from volmar.diagnostics import describe_clusters
from volmar.diagnostics.describe_clusters import (
    disjoint_subsets,
    sign_flip_p_values,
)

# ------------------------------------------------------------------------------ rules


def test_sign_flips_are_exact():
    t = np.random.default_rng(0).normal(size=(6, 20))
    signs = 1 - 2 * np.array(np.meshgrid(*[[0, 1]] * 6)).reshape(6, -1)
    sums = np.abs(signs.T @ t)
    expected = np.mean(sums >= np.abs(t.sum(axis=0)) - 1e-9, axis=0)
    np.testing.assert_allclose(sign_flip_p_values(t), expected)
    assert sign_flip_p_values(np.ones((6, 1)))[0] == 2.0**-5
    assert sign_flip_p_values(np.zeros((6, 1)))[0] == 1


def test_subsets_are_disjoint_and_have_their_share_of_every_cluster():
    codes = np.random.default_rng(0).choice([-1, 0, 1], 1000, p=[0.1, 0.8, 0.1])
    subsets = disjoint_subsets(codes, 7, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(subsets)), np.arange(1000))
    for c in (-1, 0, 1):
        counts = [np.sum(codes[subset] == c) for subset in subsets]
        assert max(counts) - min(counts) <= 1


# ------------------------------------------------------------------------------ false claims


def too_many(seed):
    """Two groups and three clusters: one group is split at random."""
    X = np.random.default_rng(seed).normal(size=(400, 12))
    X[:200, :3] += 3
    return X, np.arange(12) < 3, kmeans(3, seed)


def skewed(seed):
    """Four groups of very different sizes; columns that do not differ are exponential."""
    rng = np.random.default_rng(seed)
    group = rng.choice(4, 600, p=[0.5, 0.3, 0.14, 0.06])
    means = np.random.default_rng(5).normal(size=(4, 10)) * 3
    X = rng.exponential(size=(600, 40))
    X[:, :10] = rng.normal(size=(600, 10)) + means[group]
    return X, np.arange(40) < 10, kmeans(4, seed)


def wide(seed):
    """Three groups of 240 rows in 400 columns."""
    rng = np.random.default_rng(seed)
    group = rng.choice(3, 240, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(240, 400))
    X[:, :40] += 2 * (group == 1)[:, None]
    X[:, 40:70] += 2 * (group == 2)[:, None]
    return X, np.arange(400) < 70, kmeans(3, seed)


def naive(X, labels, q):
    p = np.array(
        [stats.ttest_ind(X[labels == c], X[labels != c]).pvalue for c in np.unique(labels)]
    )
    return stats.false_discovery_control(p.ravel()).reshape(p.shape) <= q


def false_share(real, differs):
    return real[:, ~differs].sum() / max(real.sum(), 1)


@pytest.mark.parametrize(
    ("draw", "least_power", "naive_fails"),
    [(too_many, 0.1, True), (skewed, 0.4, True), (wide, 0.7, False)],
)
def test_the_false_discovery_rate_holds_where_that_of_t_tests_does_not(
    draw, least_power, naive_fails
):
    q, ours, plain, power = 0.1, [], [], []
    for seed in range(20):
        X, differs, model = draw(seed)
        labels = model.fit(X).labels_
        found = describe_clusters(X, model, q=q, random_state=seed)
        ours.append(false_share(found.real, differs))
        power.append(found.real[:, differs].mean())
        plain.append(false_share(naive(X, labels, q), differs))
    assert np.mean(ours) <= q + 2 * np.std(ours) / np.sqrt(len(ours))
    assert np.mean(power) > least_power
    if naive_fails:
        assert np.mean(plain) > 2 * q


@pytest.mark.parametrize(("d", "k"), [(2, 2), (5, 3), (20, 2), (20, 5)])
def test_nothing_is_real_in_noise(d, k):
    claims = []
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(300, d))
        model = kmeans(k, seed).fit(X)
        assert naive(X, model.labels_, 0.05).any()
        claims.append(describe_clusters(X, model, random_state=seed).real.any())
    assert np.mean(claims) <= 0.1


def test_clusters_too_small_for_small_subsets_are_found_again_in_larger_ones():
    """70, 20 and 10 % of 900 rows: a tenth has 9 rows of the smallest group."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))
    centres *= 6 / min(
        np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (0, 2), (1, 2))
    )
    X = centres[rng.choice(3, 900, p=[0.7, 0.2, 0.1])] + rng.normal(size=(900, 8))
    model = MSPC(3, random_state=0).fit(X)
    found = describe_clusters(X, model, random_state=0)
    assert found.found_again.min() > 0.9
    assert found.real.mean() > 0.8
