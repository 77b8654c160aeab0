"""Few rows with many columns have the same margins as without the basis of their span."""

import numpy as np
import pytest

from volmar import CPMMC, SKMMC
from volmar.margin.feature_space import linear
from volmar.metrics import clustering_error


def groups(n=60, d=300, k=2, shift=1.5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.normal(size=(n, d)) + 5.0
    for group in range(1, k):
        X[y == group, 20 * group : 20 * group + 20] += shift
    return X, y


@pytest.fixture
def by_columns(monkeypatch):
    """Make fits use products with the columns for any shape of X."""

    def fitted(model, X, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(linear, "SPANNED_ROWS", 0)
            return model.fit(X, *args, **kwargs)

    return fitted


@pytest.mark.parametrize("params", [{}, {"mode": "paper"}, {"n_clusters": 3}, {"balance": 0.1}])
@pytest.mark.parametrize("weighted", [False, True])
def test_cpmmc(by_columns, params, weighted):
    X, y = groups(k=params.get("n_clusters", 2), shift=3.0)
    weights = None
    if weighted:
        weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
        weights[:2] = 0.0
    row = CPMMC(random_state=0, **params).fit(X, sample_weight=weights)
    column = by_columns(CPMMC(random_state=0, **params), X, sample_weight=weights)
    assert clustering_error(y, row.labels_) == 0.0
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert row.objective_ == pytest.approx(column.objective_, rel=1e-6)
    np.testing.assert_allclose(row.coef_, column.coef_, atol=1e-3 * np.abs(column.coef_).max())
    np.testing.assert_array_equal(row.predict(X), row.labels_)


def test_cpmmc_is_as_exact_in_float32():
    X, y = groups(shift=3.0)
    far = (X + 1e4).astype(np.float32)
    row = CPMMC(random_state=0).fit(far)
    assert clustering_error(y, row.labels_) == 0.0
    wide = CPMMC(random_state=0).fit(far.astype(np.float64))
    assert row.objective_ == pytest.approx(wide.objective_, rel=1e-6)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
def test_skmmc(by_columns, gamma):
    X, y = groups(shift=3.0)
    row = SKMMC(gamma=gamma, random_state=0).fit(X)
    column = by_columns(SKMMC(gamma=gamma, random_state=0), X)
    assert clustering_error(y, row.labels_) == 0.0
    np.testing.assert_array_equal(row.labels_, column.labels_)
    assert row.objective_ == pytest.approx(column.objective_, rel=1e-6)
    assert row.basis_vectors_.shape[1] == X.shape[1]
    np.testing.assert_array_equal(row.predict(X), row.labels_)
    new = groups(shift=3.0, seed=1)[0]
    np.testing.assert_allclose(
        row.decision_function(new), column.decision_function(new), atol=0.05
    )


def test_equal_rows_are_refused():
    with pytest.raises(ValueError, match="rows of X differ"):
        CPMMC().fit(np.full((4, 9), 0.1))
