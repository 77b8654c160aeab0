"""Separation scores with more features than rows: equal to those of the features' covariances."""

import sys

import numpy as np
import pytest
from scipy import sparse

from volmar.metrics import msp_score, separation_score


@pytest.fixture
def by_columns(monkeypatch):
    """Score by the covariances of the features, for any shape of X."""

    def scored(score, *args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules["volmar.metrics.separation"], "is_wide", lambda rows: False)
            return score(*args, **kwargs)

    return scored


def rows(k, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(60) % k)
    X = rng.normal(size=(60, 90)) + 0.5 * rng.normal(size=(k, 90))[y]
    X[:, 3] = 1.0
    X[y == 0, 4] = 0.0  # constant in a cluster
    X[y == 1, 4] = 0.0
    return X * 10.0 ** rng.uniform(-2, 2, 90), y


@pytest.mark.parametrize("score", [msp_score, separation_score])
@pytest.mark.parametrize("cross_fit", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_they_are_the_same(by_columns, score, cross_fit, k):
    X, y = rows(k)
    keywords = {"cross_fit": cross_fit, "random_state": 0}
    expected = by_columns(score, X, y, **keywords)
    assert 0.0 < expected < 1.0
    assert score(X, y, **keywords) == pytest.approx(expected, rel=1e-7)
    assert score(sparse.csr_array(X), y, **keywords) == pytest.approx(expected, rel=1e-6)
    assert score(X.astype(np.float32), y, **keywords) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("score", [msp_score, separation_score])
def test_degenerate_pairs(score):
    X, y = rows(2)
    with pytest.raises(ValueError, match="Pass reg"):
        score(X, y, reg=0.0)
    assert score(np.ones((6, 9)), [0, 0, 0, 1, 1, 1]) == 0.0
    assert score(np.repeat(X[:2], 3, axis=0), [0, 0, 0, 1, 1, 1]) > 0.8
