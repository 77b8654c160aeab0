"""Margin methods on rows and weights at the limits of floating point."""

import warnings

import numpy as np
import pytest

from volmar import CPMMC, LGMMC, SKMMC, IterSVR
from volmar.solvers.l1_regression import solve_l1_regression


@pytest.mark.parametrize(("kind", "size"), [(CPMMC, 1e80), (CPMMC, 1e140), (SKMMC, 1e80)])
def test_the_papers_loops_take_a_far_outlier(rng, kind, size):
    X = rng.standard_normal((30, 3))
    X[3, 1] = size
    model = kind(mode="paper", random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert np.isfinite(model.result_.history).all()


@pytest.mark.parametrize("weight", [1.0, 1e90])
def test_regressions_of_large_rows_and_weights(rng, weight):
    X = rng.standard_normal((40, 3)) * 1e120
    model = IterSVR(kernel="linear", random_state=0).fit(X, sample_weight=np.full(40, weight))
    assert set(model.labels_) == {0, 1}
    assert np.isfinite(model.decision_function(X)).all()


def test_a_regression_that_certifies_nothing_returns_its_start():
    class Space:
        """Rows whose products are all NaN."""

        n_rows, weights = 6, None

        def vector(self, beta):
            return np.full(2, np.nan)

        def scores(self, w):
            return np.full(6, np.nan)

        def inner(self, one, others):
            return np.full(len(others), np.nan)

        def newton_direction(self, pull, active, C):
            return pull

        def fits(self, active):
            return False

        def refreshed(self, w):
            return w

    with np.errstate(invalid="ignore"):
        found = solve_l1_regression(Space(), np.repeat([-1.0, 1.0], 3), 1.0, max_iter=5)
    assert not found.status.ok


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("decades", [12, 90])
def test_weights_over_many_decades_leave_finite_scores(seed, decades):
    rng = np.random.default_rng(seed)
    X = np.array([[0.0] * 4, [1.0] * 4])[rng.integers(2, size=30)] * rng.normal(size=4)
    weights = 10.0 ** rng.uniform(-decades, decades, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        try:
            model = LGMMC(gamma=None, random_state=0).fit(X, sample_weight=weights)
        except ValueError as error:
            # The weights of the other kind of row may be lost beside the largest ones.
            assert "positive sample_weight are identical" in str(error)  # noqa: PT017
            assert np.unique(X[weights > 1e-12 * weights.max()], axis=0).shape[0] == 1
            return
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(model.dual_coef_).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)
