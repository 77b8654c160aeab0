"""Fitted attributes of margin estimators: intercepts of one shape, and the gamma used."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from volmar import SKMMC, IterSVR, KernelCPMMC

CASES = [
    (SKMMC, {}),
    (SKMMC, {"mode": "paper", "cut_tol": 10.0}),
    (KernelCPMMC, {}),
    (KernelCPMMC, {"method": "nystroem", "n_landmarks": 20}),
    (KernelCPMMC, {"kernel": "linear"}),
    (IterSVR, {}),
    (IterSVR, {"kernel": "linear"}),
]


@pytest.fixture
def X(rng):
    return rng.standard_normal((60, 2)) + 6.0 * (np.arange(60) % 2)[:, None]


@pytest.mark.parametrize(("kind", "parameters"), CASES)
def test_the_intercept_of_two_clusters_is_an_array_of_one(X, kind, parameters):
    model = kind(random_state=0, **parameters).fit(X)
    assert isinstance(model.intercept_, np.ndarray)
    assert model.intercept_.shape == (1,)
    if hasattr(model, "coef_"):
        by_hand = X @ model.coef_[0] + model.intercept_
    elif kind is SKMMC:
        k = rbf_kernel(X, model.basis_vectors_, gamma=model.gamma_)
        by_hand = k @ model.dual_coef_ + model.intercept_
    elif hasattr(model, "dual_coef_"):
        # Coefficients of sum zero: kernels of differences, where rows are moved, are the same.
        Z = X - X.mean(axis=0)
        K = Z @ Z.T if model.gamma_ is None else rbf_kernel(X, gamma=model.gamma_)
        by_hand = K @ model.dual_coef_ + model.intercept_
    else:
        return
    np.testing.assert_allclose(model.decision_function(X), by_hand, atol=1e-6)


def test_the_intercept_of_more_has_one_for_each(X):
    model = KernelCPMMC(3, random_state=0).fit(np.vstack([X, X[::2] + np.array([0.0, 14.0])]))
    assert model.intercept_.shape == (3,)


def test_gamma_is_none_without_one(X):
    for kind in (KernelCPMMC, IterSVR):
        assert kind(kernel="linear", random_state=0).fit(X).gamma_ is None
        assert kind(kernel="precomputed", random_state=0).fit(X @ X.T).gamma_ is None
        assert kind(gamma=0.3, random_state=0).fit(X).gamma_ == 0.3
    assert SKMMC(gamma=0.3, random_state=0).fit(X).gamma_ == 0.3
