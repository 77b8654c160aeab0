"""Discriminative k-means: the paper's kernel, its results, linear maps."""

import numpy as np
import pytest
from helpers.scatter import correlated, covariances, every_cluster, labellings
from sklearn.cluster import KMeans

from reproduction.datasets import data_folder, load
from volmar import DiscriminativeKMeans, KernelKMeans, LDAKMeans
from volmar.baselines.projected_kmeans import whitening
from volmar.metrics import clustering_error
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized


def paper_kernel(X, lam):
    """I - (I + XX'/lam)^-1 of the centred rows, as Ye, Zhao and Wu write it."""
    X = X - X.mean(axis=0)
    eye = np.eye(len(X))
    return eye - np.linalg.inv(eye + X @ X.T / lam)


def absolute(reg, X):
    """Return the regulariser of the paper over n: `reg` times the mean variance."""
    return reg * X.var(axis=0).mean()


@pytest.mark.parametrize("shape", [(30, 4), (8, 20)])
@pytest.mark.parametrize("reg", [1e-3, 1.0, 100.0])
def test_whitened_rows_have_the_kernel_of_the_paper(rng, shape, reg):
    """Woodbury: I - (I + XX'/lam)^-1 = X (X'X + lam I)^-1 X', lam = n rho."""
    X = correlated(rng, *shape)
    model = DiscriminativeKMeans(reg=reg, random_state=0).fit(X)
    Y = (X - model.mean_) @ model.components_.T
    rho = absolute(reg, X)
    kernel = paper_kernel(X, len(X) * rho)
    np.testing.assert_allclose(Y @ Y.T / len(X), kernel, atol=1e-9)
    centred = X - X.mean(axis=0)
    ridge = centred.T @ centred + len(X) * rho * np.eye(X.shape[1])
    np.testing.assert_allclose(centred @ np.linalg.solve(ridge, centred.T), kernel, atol=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_same_as_kernel_kmeans_on_the_n_by_n_kernel(seed):
    rng = np.random.default_rng(seed)
    n, k, reg = int(rng.integers(10, 60)), int(rng.integers(2, 5)), 10.0 ** rng.uniform(-3, 2)
    X = rng.standard_normal((n, int(rng.integers(1, 6))))
    # Each row starts with the nearest of k rows, so that no cluster becomes empty: the two
    # implementations handle empty clusters differently.
    start = ((X[:, None] - X[rng.permutation(n)[:k]]) ** 2).sum(axis=2).argmin(axis=1)
    model = DiscriminativeKMeans(k, reg=reg, init=start).fit(X)
    K = paper_kernel(X, n * absolute(reg, X))
    kernel = KernelKMeans(k, kernel="precomputed", init=start).fit(K)
    assert model.objective_ == pytest.approx(kernel.objective_, abs=1e-9)
    np.testing.assert_array_equal(model.labels_, kernel.labels_)
    again = KernelKMeans(k, kernel="precomputed", init=model.labels_)
    np.testing.assert_array_equal(again.fit(K).labels_, model.labels_)
    assert again.objective_ == pytest.approx(model.objective_, abs=1e-9)
    assert model.result_.is_stationary(1e-12)


def test_best_of_all_labellings(rng):
    """Restarts reach the best of all labellings, which maximises tr (Sigma + rho I)^-1 S_b."""
    for _ in range(5):
        X, reg = correlated(rng, 8, 2), 0.3
        rho = absolute(reg, X)
        values, ratios = [], []
        for labels in labellings(8, 2):
            kernel = paper_kernel(X, 8 * rho)
            fitted = sum(
                kernel[np.ix_(labels == c, labels == c)].sum() / np.sum(labels == c)
                for c in (0, 1)
            )
            values.append(np.trace(kernel) - fitted)
            total, within = covariances(X, labels)
            ratios.append(np.trace(np.linalg.solve(total + rho * np.eye(2), total - within)))
        assert np.argmin(values) == np.argmax(ratios)
        found = DiscriminativeKMeans(reg=reg, n_init=50, random_state=0).fit(X)
        assert found.objective_ == pytest.approx(min(values), abs=1e-10)


def test_large_reg_is_kmeans_and_no_reg_forgets_linear_maps(rng):
    X = np.vstack([rng.normal(0, 1, (40, 3)), rng.normal(3, 1, (40, 3))])
    reference = KMeans(2, n_init=10, random_state=0).fit(X)
    plain = DiscriminativeKMeans(reg=1e8, random_state=0).fit(X)
    assert clustering_error(reference.labels_, plain.labels_) == 0.0
    assert plain.objective_ * absolute(1e8, X) * 80 == pytest.approx(reference.inertia_, rel=1e-6)
    start = every_cluster(rng, 80, 3)
    free = DiscriminativeKMeans(3, reg=0.0, init=start).fit(X)
    mapped = DiscriminativeKMeans(3, reg=0.0, init=start).fit(X @ rng.standard_normal((3, 3)) + 7)
    np.testing.assert_array_equal(free.labels_, mapped.labels_)
    assert free.objective_ == pytest.approx(mapped.objective_, abs=1e-9)


def test_whitening_takes_any_units(rng):
    """A column in units of 1e-9 of another, and two linearly dependent columns."""
    X = rng.standard_normal((50, 4))
    X[:, 3] = 1 - X[:, 2]
    X *= [1e9, 1.0, 1.0, 1.0]
    A = whitening(standardized(as_rows(X)), 1.0 / absolute(1.0, X))
    target = np.linalg.inv(np.cov(X, rowvar=False, ddof=0) + np.eye(4))
    np.testing.assert_allclose(A @ A.T, target, atol=1e-8)


def test_a_common_unit_of_all_columns_does_not_matter(rng):
    X = correlated(rng, 60, 4)
    for wide in (X, X[:3]):
        one = DiscriminativeKMeans(random_state=0).fit(wide)
        for factor in (7.3, 1e-3, 1e6):
            other = DiscriminativeKMeans(random_state=0).fit(factor * wide)
            np.testing.assert_array_equal(other.labels_, one.labels_)
            np.testing.assert_allclose(factor * other.components_, one.components_, atol=1e-9)


@pytest.mark.skipif(data_folder() is None, reason="the data folder is not there")
@pytest.mark.parametrize(
    ("name", "percent"), [("breast-with-id", 3.81), ("satellite-1v2", 4.07), ("letter-AvB", 5.59)]
)
def test_errors_of_the_mspc_paper(name, percent):
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


def test_a_regulariser_beyond_64_bits(rng):
    X = rng.normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"^reg\b"):
        DiscriminativeKMeans(reg=2**70).fit(X)
    assert set(DiscriminativeKMeans(reg=2.0**70).fit(X).labels_) == {0, 1}
