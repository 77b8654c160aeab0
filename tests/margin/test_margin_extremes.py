"""Margin methods on rows at the limits of floating point."""

import numpy as np
import pytest

from volmar import CPMMC, SKMMC, IterSVR
from volmar.solvers.l1_regression import solve_l1_regression


@pytest.mark.parametrize(("kind", "size"), [(CPMMC, 1e80), (CPMMC, 1e140), (SKMMC, 1e80)])
def test_the_papers_loops_take_a_far_outlier(rng, kind, size):
    X = rng.standard_normal((30, 3))
    X[3, 1] = size
    model = kind(mode="paper", random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert np.isfinite(model.result_.history).all()


def test_regressions_of_large_rows(rng):
    X = rng.standard_normal((40, 3)) * 1e120
    model = IterSVR(kernel="linear", random_state=0).fit(X)
    assert set(model.labels_) == {0, 1}
    assert np.isfinite(model.decision_function(X)).all()


def test_a_regression_that_certifies_nothing_returns_its_start():
    class Space:
        """Rows whose products are all NaN."""

        n_rows = 6

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
