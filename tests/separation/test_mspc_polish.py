"""MSPC with polish="density": the test for a gap, the hyperplane, and invalid parameters."""

import numpy as np
import pytest

from volmar import MSPC
from volmar.base.row_density import row_density
from volmar.metrics import clustering_error
from volmar.rows import as_rows, standardized
from volmar.separation.gep import SeparationResult
from volmar.separation.polish import NEAR, has_gap
from volmar.separation.problem import SeparationRows


def two_groups(rng, n=600, d=8, share=0.5, apart=5.0):
    y = (np.arange(n) < share * n).astype(int)
    X = rng.standard_normal((n, d))
    X[:, 0] += apart * y
    return X, y


def skewed_groups(rng, n=800, d=10):
    """Return two groups of different spread with a gap, which moments alone do not locate."""
    X, y = two_groups(rng, n, d, apart=0.0)
    X[:, 0] = np.where(y == 1, 3.0 + 3.0 * rng.exponential(size=n), 0.5 * rng.standard_normal(n))
    X[:, 1] += np.where(y == 1, 0.4 * X[:, 0], 0.0)
    return X, y


def rows_of(X, reg=1.0):
    source = as_rows(X)
    return SeparationRows(X, source, standardized, reg, None, 0.02 * len(X))


def depth_of(model, X):
    """Return the relative depth of the valley at the hyperplane of a model."""
    problem, unit = row_density(standardized(as_rows(X)), 0.9)
    v = model.coef_[0] * X.std(axis=0)
    b = -(model.intercept_[0] + model.coef_[0] @ X.mean(axis=0)) / np.linalg.norm(v)
    return problem.relative_depth(problem.projections(v), b / unit)


def test_the_valley_is_deeper_and_the_split_the_same(rng):
    X, y = skewed_groups(rng)
    plain = MSPC(random_state=0).fit(X)
    model = MSPC(polish="density", random_state=0).fit(X)
    assert model.polished_
    assert not plain.polished_
    moved = clustering_error(plain.labels_, model.labels_)
    assert 0 < moved <= NEAR * min(np.bincount(plain.labels_)) / len(X)
    assert clustering_error(y, model.labels_) < 0.01
    assert depth_of(model, X) > depth_of(plain, X)
    assert model.result_.residuals["gradient"] < 5e-3
    assert model.msp_lower_bound_ == pytest.approx(model.result_.lower_bound, rel=1e-6)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(
        X @ model.coef_[0] + model.intercept_[0], model.decision_function(X), atol=1e-9
    )


@pytest.mark.parametrize("shape", [(600, 8), (100, 300)])
def test_noise_has_no_gap(rng, shape):
    """Also if the rows of the fit show a gap, as with many features."""
    for _ in range(5):
        X = rng.standard_normal(shape)
        plain = MSPC(random_state=0).fit(X)
        model = MSPC(polish="density", random_state=0).fit(X)
        assert not model.polished_
        np.testing.assert_array_equal(plain.labels_, model.labels_)
        np.testing.assert_array_equal(plain.coef_, model.coef_)


def test_gap_of_given_directions(rng):
    X, _ = two_groups(rng)
    rows = rows_of(X)
    w, other = np.eye(8)[0], np.eye(8)[1]
    labels = X[:, 0] > X[:, 0].mean()
    assert has_gap(rows, SeparationResult(0.0, labels=labels, w=w, reg=1.0), 0)
    labels = X[:, 1] > X[:, 1].mean()
    assert not has_gap(rows, SeparationResult(0.0, labels=labels, w=other, reg=1.0), 0)


def test_columns_of_two_values_are_no_gap(rng):
    X = rng.standard_normal((800, 3))
    X[:, 0] = rng.integers(0, 2, 800)
    w = np.eye(3)[0]
    assert not has_gap(rows_of(X), SeparationResult(0.0, labels=X[:, 0] > 0, w=w, reg=1.0), 0)


def test_float32_stays_float32_and_weights_count(rng):
    X, _ = skewed_groups(rng)
    model = MSPC(polish="density", random_state=0).fit(X.astype(np.float32))
    assert model.polished_
    assert model.decision_function(X.astype(np.float32)).dtype == np.float32
    double = MSPC(polish="density", random_state=0).fit(X)
    assert clustering_error(double.labels_, model.labels_) < 0.01
    even = MSPC(polish="density", random_state=0).fit(X, sample_weight=np.full(len(X), 2.0))
    assert clustering_error(double.labels_, even.labels_) < 0.02


def test_kernels_and_more_clusters(rng):
    X, _ = two_groups(rng, n=300, d=2)
    MSPC(polish="density", kernel="rbf", random_state=0).fit(X)
    X[100:200, 1] += 8.0
    model = MSPC(3, polish="density", random_state=0).fit(X)
    assert np.unique(model.labels_).size == 3
    assert all(hasattr(node.model, "polished_") for node in model.tree_.splits())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"polish": "valley"}, "polish"),
        ({"polish": "density", "mode": "paper"}, "mode='paper'"),
        ({"polish": "density", "multiway": "pairwise"}, "multiway='pairwise'"),
    ],
)
def test_bad_parameters(rng, params, message):
    with pytest.raises(ValueError, match=message):
        MSPC(**params).fit(rng.standard_normal((50, 2)))


def test_batches_and_blocks_are_refused(rng):
    X = rng.standard_normal((100, 2))
    with pytest.raises(ValueError, match="partial_fit does not support polish='density'"):
        MSPC(polish="density").partial_fit(X)
    dask_array = pytest.importorskip("dask.array")
    with pytest.raises((TypeError, ValueError), match="polish='density'"):
        MSPC(polish="density").fit(dask_array.from_array(X, chunks=(50, 2)))
