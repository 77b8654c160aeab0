"""Minimum density hyperplanes: easy data, properties, more than two clusters, bad input."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from volmar import MSPC, MinimumDensityHyperplane
from volmar.metrics import clustering_error
from volmar.solvers.hyperplane_density import HEIGHT


def two_groups(rng, n=600, d=20, share=0.5, apart=6.0):
    """Return rows with two groups in one column, and the group of each row."""
    y = (np.arange(n) < share * n).astype(int)
    X = rng.standard_normal((n, d))
    X[:, d // 2] += apart * y
    return X, y


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_two_groups(rng, d, share):
    X, y = two_groups(rng, d=d, share=share)
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    assert model.relative_depth_ > 3
    assert model.result_.is_stationary(2e-3)


def test_a_tenth_of_the_rows_takes_a_wider_slab(rng):
    X, y = two_groups(rng, n=1000, share=0.1)
    model = MinimumDensityHyperplane(max_offset=1.5, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    assert np.bincount(model.labels_).min() >= 90


@pytest.mark.parametrize("shape", [(300, 5), (40, 100)])
def test_noise_has_a_finite_answer(rng, shape):
    model = MinimumDensityHyperplane(random_state=0).fit(rng.standard_normal(shape))
    assert np.isfinite(model.relative_depth_)
    assert np.isfinite(model.objective_)
    assert np.bincount(model.labels_).min() >= 0.02 * shape[0]


def test_objective_is_the_density_of_the_rows(rng):
    """The sum of kernels at the hyperplane, in units of the first principal component."""
    X, _ = two_groups(rng, n=300, d=3)
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    sigma = np.sqrt(np.linalg.eigvalsh(np.corrcoef(X.T))[-1])
    v = model.coef_[0] * X.std(axis=0)
    assert np.linalg.norm(v) == pytest.approx(1.0)
    b = -(model.intercept_[0] + model.coef_[0] @ X.mean(axis=0))
    np.testing.assert_allclose(Z @ v - b, model.decision_function(X), atol=1e-12)
    h = 0.9 * sigma * 300**-0.2
    density = np.mean(np.exp(-0.5 * ((Z @ v - b) / h) ** 2)) * HEIGHT / h
    assert model.objective_ == pytest.approx(density * sigma, rel=1e-4)


def test_units_do_not_matter(rng):
    X, _ = two_groups(rng, d=6)
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    scaled = MinimumDensityHyperplane(random_state=0).fit(X * 10.0 ** np.arange(-3, 3) + 5.0)
    np.testing.assert_array_equal(model.labels_, scaled.labels_)
    assert model.objective_ == pytest.approx(scaled.objective_, rel=1e-6)


@pytest.mark.parametrize("shape", [(200, 4), (40, 60)])
def test_weights_are_copies(rng, shape):
    X = rng.standard_normal(shape)
    X[: shape[0] // 2, 0] += 5.0
    weights = rng.integers(0, 4, shape[0])
    one = MinimumDensityHyperplane(random_state=0).fit(X, sample_weight=weights)
    two = MinimumDensityHyperplane(random_state=0).fit(X.repeat(weights, axis=0))
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-6)
    assert one.relative_depth_ == pytest.approx(two.relative_depth_, rel=1e-6)


def test_order_of_rows_does_not_matter(rng):
    X, _ = two_groups(rng, d=5, share=0.3)
    order = rng.permutation(len(X))
    one = MinimumDensityHyperplane(random_state=0).fit(X)
    two = MinimumDensityHyperplane(random_state=0).fit(X[order])
    np.testing.assert_array_equal(one.labels_[order], two.labels_)


def test_float32_and_sparse_rows(rng):
    X, _ = two_groups(rng, d=5, share=0.3)
    X[np.abs(X) < 0.3] = 0.0
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    single = MinimumDensityHyperplane(random_state=0).fit(X.astype(np.float32))
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert np.mean(single.labels_ != model.labels_) < 0.01
    rows = sparse.csr_array(X)
    thin = MinimumDensityHyperplane(random_state=0).fit(rows)
    np.testing.assert_allclose(thin.decision_function(rows), model.decision_function(X), atol=1e-6)


def test_many_rows_are_searched_by_a_sample(rng):
    X, y = two_groups(rng, n=12_000, d=5, share=0.3)
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.005
    assert model.result_.is_stationary(2e-3)
    weights = np.where(y == 1, 0.1, 1.0)
    weighted = MinimumDensityHyperplane(random_state=0, max_offset=3.0)
    weighted.fit(X, sample_weight=weights)
    assert clustering_error(y, weighted.labels_) < 0.01


def test_columns_of_few_values_do_not_win(rng):
    """Two binary columns have empty intervals; the one between the groups should be found."""
    X, y = two_groups(rng, n=1500, d=6)
    X[:, :2] = rng.integers(0, 2, (1500, 2))
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01


def test_predict_is_labels_and_sign_of_scores(rng):
    X, _ = two_groups(rng, d=3, share=0.3)
    model = MinimumDensityHyperplane(random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.labels_ == 1)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-9
    )


def test_more_than_two_clusters():
    X, y = make_blobs(900, centers=4, n_features=5, cluster_std=1.0, random_state=3)
    model = MinimumDensityHyperplane(4, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.02
    assert model.decision_function(X).shape == (900, 4)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert not hasattr(model, "coef_")
    auto = MinimumDensityHyperplane("auto", random_state=0).fit(X)
    assert auto.tree_.n_leaves == 4


def test_auto_of_two_groups_has_a_hyperplane(rng):
    X, _ = two_groups(rng, d=4)
    model = MinimumDensityHyperplane("auto", random_state=0).fit(X)
    assert model.coef_.shape == (1, 4)
    noise = MinimumDensityHyperplane("auto", random_state=0).fit(rng.standard_normal((300, 4)))
    assert noise.tree_.n_leaves == 1


def test_start_from_labels_and_from_a_model(rng):
    X, y = two_groups(rng, share=0.3)
    first = MSPC(random_state=0).fit(X)
    model = MinimumDensityHyperplane(init=first, random_state=0).fit(X)
    assert clustering_error(y, model.labels_) < 0.01
    np.testing.assert_array_equal(model.previous_clusters_, [0, 1])
    wrong = MinimumDensityHyperplane(init=y, random_state=0).fit(X)
    np.testing.assert_array_equal(wrong.labels_, model.labels_)


def test_few_iterations_are_reported(rng):
    X, _ = two_groups(rng, apart=1.0)
    with pytest.warns(UserWarning, match="max_iter=1"):
        MinimumDensityHyperplane(max_iter=1, tol=1e-12, random_state=0).fit(X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_offset": -1.0}, "max_offset"),
        ({"n_init": 0}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0.0}, "tol"),
        ({"init": "k-means"}, "init"),
        ({"init": np.zeros(3)}, "one label per row"),
        ({"min_cluster_size": 0.7}, "min_cluster_size"),
    ],
)
def test_bad_parameters(rng, params, message):
    with pytest.raises(ValueError, match=message):
        MinimumDensityHyperplane(**params).fit(rng.standard_normal((20, 2)))


def test_bad_rows(rng):
    with pytest.raises(ValueError, match="are equal"):
        MinimumDensityHyperplane().fit(np.ones((20, 2)))
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises((TypeError, ValueError), match="MinimumDensityHyperplane"):
        MinimumDensityHyperplane().fit(dask_array.from_array(rng.standard_normal((20, 2))))


def test_extreme_rows_are_no_trouble(rng):
    X = rng.standard_normal((50, 2))
    X[0] = 1e6
    for rows in (X, X * 1e-150, np.vstack([X[:2], X[:1].repeat(30, axis=0)])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = MinimumDensityHyperplane(random_state=0).fit(rows)
        assert np.unique(model.labels_).size == 2
