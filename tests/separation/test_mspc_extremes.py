"""MSPC on rows, kernels and weights at the limits of floating point."""

import warnings

import numpy as np
import pytest

from volmar import MSPC
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation.gep import mean_difference
from volmar.separation.two_way import separation_mpm


@pytest.fixture(autouse=True)
def _no_runtime_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.mark.parametrize("solver", ["gep", "mpm", "eig"])
@pytest.mark.parametrize("seed", range(4))
def test_columns_of_any_scale(solver, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 2)) * 10.0 ** rng.uniform(-140, 140, 2)
    X[:25, 0] *= -1.0
    model = MSPC(solver=solver, random_state=0).fit(X)
    assert set(model.labels_) == {0, 1}
    assert np.isfinite(model.decision_function(X)).all()
    np.testing.assert_array_equal(model.predict(X), model.labels_)


@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("shape", [(50, 1), (20, 40)])
def test_large_rows_are_cut_like_small_ones(rng, mode, shape):
    X = rng.standard_normal(shape)
    X[: shape[0] // 2] += 5
    small = MSPC(3, mode=mode, random_state=0).fit(X)
    large = MSPC(3, mode=mode, random_state=0).fit(X * 2.0**400)
    np.testing.assert_array_equal(large.labels_, small.labels_)


@pytest.mark.parametrize("seed", range(5))
def test_far_outliers_in_one_column(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 1)) * 10.0 ** rng.choice([0, 0, 0, 0, 0, 50, 100], (50, 1))
    model = MSPC(5, solver="mpm", random_state=0).fit(X)
    assert set(model.labels_) == set(range(5))


@pytest.mark.filterwarnings("ignore:the kernel is not positive semidefinite")
def test_a_part_whose_start_has_no_weight_on_one_side_is_not_split():
    K = np.eye(36, k=1) + np.eye(36, k=-1)
    weights = np.random.default_rng(0).integers(0, 4, 36)
    model = MSPC(10, kernel="precomputed", mode="paper", random_state=0)
    assert set(model.fit(K, sample_weight=weights).labels_) == set(range(10))


def test_a_start_without_weight_on_one_side_is_refused(rng):
    X = rng.standard_normal((12, 2))
    weights = np.repeat([1.0, 0.0], 6)
    z = standardized(as_rows(X, sample_weight=weights))
    for one_side in (weights > 0, weights == 0):
        with pytest.raises(ValueError, match="on one side of the start"):
            mean_difference(z, one_side)
        with pytest.raises(ValueError, match="on one side of the start"):
            separation_mpm(z, one_side, 1.0, min_weight=1.0)


def test_features_that_do_not_fit_float32_are_refused(rng):
    X = (rng.standard_normal((60, 3)) * 1e12).astype(np.float32)
    with pytest.raises(ValueError, match="for float32"):
        MSPC(kernel="polynomial", gamma=1e-8, random_state=0).fit(X)
    model = MSPC(kernel="polynomial", gamma=1e-8, random_state=0).fit(X.astype(np.float64))
    assert set(model.labels_) == {0, 1}


def test_a_regulariser_beside_which_correlations_are_rounding_is_refused(rng):
    X = rng.standard_normal((40, 3))
    with pytest.raises(ValueError, match=r"^reg\b"):
        MSPC(reg=1e308).fit(X)
    for solver in ("gep", "mpm"):
        assert set(MSPC(reg=1e15, solver=solver, random_state=0).fit(X).labels_) == {0, 1}
