"""P-values of rows in clusters: formulas by brute force, false alarms, power."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.covariance import oas

from volmar.evidence import ClusterNovelty, calibrate_novelty
from volmar.evidence import novelty as module
from volmar.evidence.novelty import ClusterScatter, Sketch

ALPHAS = np.array([0.01, 0.05, 0.1])


def two_groups(rng, sizes=(120, 80), d=4, apart=6.0):
    X = rng.normal(size=(sum(sizes), d)) @ rng.normal(size=(d, d))
    labels = np.repeat([0, 1], sizes)
    X[labels == 1] += apart
    return X, labels


def fitted(X, labels, weights=None, **kwargs):
    weights = np.ones(len(X)) if weights is None else weights
    options = {"n_clusters": int(labels.max()) + 1, "sketch": None, "seed": 0, **kwargs}
    return ClusterScatter.fit(X, labels, weights, **options)


@pytest.mark.parametrize("d", [1, 3, 110])
def test_distances_are_those_of_the_inverse_covariance(d):
    rng = np.random.default_rng(d)
    X, labels = two_groups(rng, d=d)
    found = fitted(X, labels)
    assert found.axes.shape[2] == (d if d <= module.FULL else module.RANK)
    new = rng.normal(size=(15, d)) * 3
    own = rng.integers(2, size=15)
    expected = []
    for row, j in zip(new, own, strict=True):
        V = found.axes[j]
        covariance = V @ np.diag(found.variances[j]) @ V.T
        if np.isfinite(found.noise[j]):
            covariance += found.noise[j] * (np.eye(d) - V @ V.T)
        z = (row - found.mean) / found.scale - found.centers[found.starts[j] : found.starts[j + 1]]
        expected.append(np.einsum("ij,ij->i", z, np.linalg.solve(covariance, z.T).T).min())
    np.testing.assert_allclose(found.distances(new, own), expected, rtol=1e-8)


def test_the_covariance_is_that_of_rows_about_the_centres_of_their_cells(monkeypatch):
    """With one cell and no prior, the covariance is that of numpy."""
    monkeypatch.setattr(module, "MAX_CELLS", 1)
    monkeypatch.setattr(module, "PRIOR", 0.0)
    X, labels = two_groups(np.random.default_rng(0))
    weights = np.random.default_rng(1).uniform(0.5, 2, len(X))
    found = fitted(X, labels, weights)
    Z = (X - found.mean) / found.scale
    np.testing.assert_allclose(np.average(Z**2, axis=0, weights=weights), 1.0)
    for j in (0, 1):
        inside = labels == j
        w = weights[inside] * inside.sum() / weights[inside].sum()
        np.testing.assert_allclose(found.centers[j], np.average(Z[inside], axis=0, weights=w))
        apart = Z[inside] - found.centers[j]
        covariance = (apart.T * w) @ apart / (inside.sum() - 1)
        V = found.axes[j]
        np.testing.assert_allclose(V @ np.diag(found.variances[j]) @ V.T, covariance, rtol=1e-9)


def test_shrinkage_is_scikit_learns():
    X = np.random.default_rng(0).normal(size=(40, 12)) * np.arange(1, 13)
    expected = oas(X, assume_centered=True)[0]
    found = module._shrunk(X.T @ X, 40)
    # scikit-learn leaves out the terms of order 1 / d of the paper's equation.
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02 * np.trace(expected) / 12)
    np.testing.assert_array_equal(module._shrunk(np.zeros((3, 3)), 5), np.eye(3))


def test_sketches_are_linear_and_keep_inner_products():
    rng = np.random.default_rng(0)
    X = sparse.random_array((6, 5000), density=0.02, rng=rng, format="csr")
    draws = [Sketch.draw(5000, np.random.RandomState(seed)) for seed in range(60)]
    np.testing.assert_allclose(draws[0].of(X), draws[0].of(X.toarray()))
    np.testing.assert_allclose(draws[0].of(2 * X[:1] + X[1:2])[0], [2, 1] @ draws[0].of(X[:2]))
    grams = np.array([one.of(X) @ one.of(X).T for one in draws])
    error = grams.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(grams.mean(axis=0) - (X @ X.T).toarray()) <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("n", [60, 5000])
def test_p_values_are_the_share_of_distances_beyond(n):
    """P-values by brute force; with many rows, only large p-values may be rounded up."""
    rng = np.random.default_rng(0)
    distances = np.round(rng.exponential(size=n), 2 if n == 60 else 6)
    codes, folds = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    unused = fitted(rng.normal(size=(10, 1)), np.zeros(10, dtype=int))
    novelty = module._summary(unused, distances, codes, np.ones(n), folds, 1)
    assert novelty.distances.size <= 1000
    new = np.concatenate([distances[:50], rng.exponential(2, 300), [0.0, 1e9]])
    exact = (1 + (distances[None] >= new[:, None]).sum(axis=1)) / (1 + n)
    place = np.searchsorted(novelty.distances, new)
    found = (1 + np.append(novelty.counts, 0.0)[place]) / (1 + n)
    assert (found >= exact - 1e-12).all()
    tail = exact <= (1.0 if n == 60 else 500 / n)
    np.testing.assert_allclose(found[tail], exact[tail])
    assert np.abs(found - exact).max() <= 1.01 / 500


def blobs(rng):
    return np.concatenate([rng.normal(0, 1, (200, 3)), rng.normal(6, 1, (200, 3))])


def skewed(rng):
    return np.concatenate([rng.exponential(1, (250, 4)), -4 - rng.exponential(2, (250, 4))])


def unequal(rng):
    return np.concatenate([rng.normal(0, 1, (40, 5)), rng.normal(5, 1, (460, 5))])


def few_rows(rng):
    return np.concatenate([rng.normal(0, 1, (150, 50)), rng.normal(2, 1, (150, 50))])


@pytest.mark.parametrize("n_draws", [6, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("draw", [blobs, skewed, unequal, few_rows])
def test_false_alarms_are_at_the_level(draw, n_draws):
    """The share of rejected new rows exceeds alpha by at most two standard errors.

    It is not lower by more either, apart from the steps of the p-values and the case of 50 columns
    and 150 rows.
    """
    shares = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        X, new = draw(rng), draw(rng)
        labels = (X.sum(axis=1) > border_of(draw)).astype(int)
        novelty = calibrate_novelty(X, labels, random_state=seed)
        p = novelty.p_values(new, (new.sum(axis=1) > border_of(draw)).astype(int))
        shares.append((p[:, None] <= ALPHAS).mean(axis=0))
    shares = np.array(shares)
    error = 2 * shares.std(axis=0, ddof=1) / np.sqrt(n_draws)
    assert (shares.mean(axis=0) <= ALPHAS + error).all()
    low = 0.25 * ALPHAS if draw is few_rows else 0.8 * ALPHAS - 0.002
    assert (shares.mean(axis=0) >= low - error).all()


def border_of(draw):
    return {blobs: 9.0, skewed: -6.0, unequal: 12.5, few_rows: 50.0}[draw]


def test_strangers_are_found_inside_a_ring():
    """Clusters need not be elliptic: the centre of a ring is far from its rows."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 1000)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.05, (1000, 2))
    novelty = calibrate_novelty(X, np.zeros(1000, dtype=int), random_state=0)
    p = novelty.p_values([[0.0, 0.0], [3.0, 0.0], [1.0, 0.0]], [0, 0, 0])
    assert (p[:2] <= 0.01).all()
    assert p[2] > 0.1


@pytest.mark.parametrize("wide", [False, True])
def test_dense_and_sparse_rows_agree(wide):
    rng = np.random.default_rng(0)
    X, labels = two_groups(rng, d=400 if wide else 5)
    p = []
    for rows in (X, sparse.csr_array(X)):
        novelty = calibrate_novelty(rows, labels, random_state=0)
        assert (novelty.scatter.sketch is not None) == wide
        p.append(novelty.p_values(rows, labels))
    np.testing.assert_allclose(*p)


def test_wide_rows_have_their_false_alarms_and_power():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(2, 600, 400))
    zeros = np.zeros(600, dtype=int)
    novelty = calibrate_novelty(X, zeros, random_state=0)
    share = (novelty.p_values(new, zeros) <= 0.05).mean()
    assert 0.01 <= share <= 0.05 + 2 * np.sqrt(2 * 0.05 * 0.95 / 600)
    assert (novelty.p_values(new + 1.0, zeros) <= 0.05).mean() > 0.95


def test_far_more_columns_than_rows():
    """Most eigenvalues of the covariances are equal, and LAPACK may return too few of them."""
    X, labels = np.random.default_rng(0).normal(size=(12, 2000)), np.arange(12) % 2
    novelty = calibrate_novelty(X, labels, n_clusters=2, random_state=0)
    assert novelty.scatter.axes.shape[-1] == novelty.scatter.variances.shape[-1] == 16
    assert np.isfinite(novelty.scatter.distances(X, labels)).all()


def test_weights_are_relative_and_zeros_are_left_out():
    X, labels = two_groups(np.random.default_rng(0))
    w = np.random.default_rng(1).uniform(0.5, 2, len(X))
    new = X[::7] + 0.5
    p = [
        calibrate_novelty(X, labels, sample_weight=one, random_state=0).p_values(new, labels[::7])
        for one in (w, 1024.0 * w)
    ]
    np.testing.assert_allclose(*p)
    out = np.arange(len(X)) % 4 == 0
    fewer = calibrate_novelty(X, labels, sample_weight=~out * 1.0, random_state=0)
    np.testing.assert_array_equal(fewer.n_rows, np.bincount(labels[~out]))
    heavy = np.where(X[:, 0] > np.median(X[:, 0]), 1.0, 1e-3)
    shifted = calibrate_novelty(X, labels * 0, sample_weight=heavy, random_state=0)
    assert shifted.scatter.mean[0] > X[:, 0].mean()


def test_small_and_empty_clusters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    labels = np.array([0] * 55 + [1] * 3 + [3, -1])
    novelty = calibrate_novelty(X, labels, n_clusters=5, random_state=0)
    np.testing.assert_array_equal(novelty.n_rows, [55, 3, 0, 0, 0])
    np.testing.assert_allclose(novelty.min_p_values, [1 / 56, 1 / 4, 1, 1, 1])
    far = np.full((6, 2), 1e6)
    p = novelty.p_values(far, [0, 1, 2, 3, 4, -1])
    np.testing.assert_allclose(p, [1 / 56, 1 / 4, 1, 1, 1, 0])
    assert repr(novelty) == "ClusterNovelty(n_clusters=5, n_rows=58)"
    assert isinstance(novelty, ClusterNovelty)


def test_constant_columns_and_huge_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=100), np.full(100, 7.0)])
    zeros = np.zeros(100, dtype=int)
    novelty = calibrate_novelty(X, zeros, random_state=0)
    assert (novelty.p_values(X, zeros) > 0.01).mean() > 0.9
    p = novelty.p_values([[0.0, 8e3], [1e140, 7.0], [0.0, 7.0 + 1e-14]], [0, 0, 0])
    np.testing.assert_allclose(p[:2], 1 / 101)
    assert p[2] > 0.5
    same = calibrate_novelty(np.ones((20, 3)), np.zeros(20, dtype=int), random_state=0)
    assert same.p_values(np.ones((1, 3)), [0])[0] == 1.0


def test_many_clusters_share_one_covariance(monkeypatch):
    X, labels = two_groups(np.random.default_rng(0))
    monkeypatch.setattr(module, "MAX_ENTRIES", 20)
    novelty = calibrate_novelty(X, labels, random_state=0)
    assert novelty.scatter.axes.shape == (1, 4, 4)
    assert (novelty.p_values(X, labels) > 0.05).mean() > 0.9


def test_input_is_not_changed_and_seeds_repeat():
    X, labels = two_groups(np.random.default_rng(0))
    before = X.copy(), labels.copy()
    a, b = (calibrate_novelty(X, labels, random_state=3).p_values(X, labels) for _ in range(2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(labels, before[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, r"^labels .*\(200,\)"),
        ({"labels": np.full(200, 0.5)}, "^labels .*integers"),
        ({"labels": np.full(200, -1)}, "^labels .*cluster: all"),
        ({"labels": np.full(200, -2)}, "labels holds -2"),
        ({"labels": np.full(200, 500)}, "labels holds 500"),
        ({"n_clusters": 1}, "^n_clusters=1"),
    ],
)
def test_wrong_input_is_refused(change, message):
    X, labels = two_groups(np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        calibrate_novelty(X, **{"labels": labels, **change})


def test_wrong_new_rows_are_refused():
    X, labels = two_groups(np.random.default_rng(0))
    novelty = calibrate_novelty(X, labels, random_state=0)
    with pytest.raises(ValueError, match=r"^X .*calibration"):
        novelty.p_values(X[:, :3], labels)
    with pytest.raises(ValueError, match=r"^labels holds 2"):
        novelty.p_values(X, labels + 1)
