"""LGMMC as printed (JMLR section 7.1): rows not centred, the paper's C, labels of the mixture."""

import warnings

import numpy as np
import pytest
from helpers.cvxpy_references import all_labellings, saddle_by_cvxpy
from sklearn.metrics.pairwise import rbf_kernel

from volmar import GMMC, LGMMC, SDPMMC
from volmar.datasets import make_two_circles, make_two_gaussians, make_two_moons
from volmar.graphs.distances import mean_distance
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.metrics import clustering_error


def quiet_fit(model, X, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X, **given)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_the_printed_programme_over_all_labellings(C):
    """The paper's candidates for C; nine rows have 2^8 labellings."""
    X, _ = make_two_moons(9, random_state=0)
    Z = np.linalg.cholesky(rbf_kernel(X, gamma=1.0) + 1e-13 * np.eye(9))
    value = saddle_by_cvxpy(Z, all_labellings(9, 0.3 * 9), C)
    model = LGMMC(mode="paper", gamma=1.0, C=C, tol=1e-7, n_init=30, random_state=0).fit(X)
    assert model.objective_ == pytest.approx(value, rel=1e-6)
    assert model.result_.bound <= value + 1e-9 * abs(value)
    # Value of the labels: the mixture of one labelling.
    y = 2.0 * model.labels_ - 1.0
    own = saddle_by_cvxpy(Z, [y], C)
    assert model.result_.labelled_objective == pytest.approx(own, rel=1e-5)
    assert own >= value - 1e-7 * abs(value)


def test_the_rows_as_they_are_in_every_space():
    """A linear kernel of rows off the origin: as rows and as a matrix."""
    X, _ = make_two_moons(9, random_state=0)
    X = X + 1.0
    settings = {"mode": "paper", "C": 0.1, "tol": 1e-4, "max_iter": 200, "random_state": 0}
    linear = LGMMC(kernel="linear", **settings).fit(X)
    given = LGMMC(kernel="precomputed", **settings).fit(X @ X.T)
    value = saddle_by_cvxpy(X, all_labellings(9, 0.3 * 9), 0.1)
    for model in (linear, given):
        assert model.objective_ == pytest.approx(value, rel=1e-3)
    assert linear.intercept_ == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(linear.decision_function(X), X @ linear.coef_[0], rtol=1e-6)
    moved = LGMMC(kernel="linear", **settings).fit(X + 10.0)
    assert moved.objective_ != pytest.approx(linear.objective_, rel=1e-3)


def test_labels_are_those_of_the_mixture():
    X, y = make_two_circles(300, random_state=0)
    model = LGMMC(mode="paper", gamma="4*scale", random_state=0).fit(X)
    assert abs(np.mean(2.0 * model.labels_ - 1.0)) <= 0.3 + 0.05
    assert model.result_.scores.min() * model.result_.scores.max() < 0
    assert clustering_error(model.labels_, model.predict(X)) <= 0.1
    assert 0.0 <= clustering_error(y, model.labels_) <= 0.5


def test_what_none_stands_for():
    X, _ = make_two_moons(40, random_state=0)
    cases = [
        ({}, {"C": 30.0}),
        ({"mode": "paper"}, {"C": 1.0, "balance": 0.3, "gamma": "scale"}),
    ]
    for given, values in cases:
        one = LGMMC(random_state=0, **given).fit(X)
        other = LGMMC(random_state=0, **given, **values).fit(X)
        assert one.objective_ == other.objective_
        np.testing.assert_array_equal(one.labels_, other.labels_)
    with pytest.raises(ValueError, match="mode must be one of"):
        LGMMC(mode="printed").fit(X)


@pytest.mark.parametrize("make", [GMMC, SDPMMC, LGMMC])
@pytest.mark.parametrize(
    ("kernel", "gamma", "expected"),
    [("rbf", 0.7, 0.7), ("rbf", None, 0.5), ("rbf", "scale", "scale"), ("linear", "scale", None)],
)
def test_intercept_and_gamma(make, kernel, gamma, expected):
    X, _ = make_two_moons(40, random_state=0)
    model = quiet_fit(make(kernel=kernel, gamma=gamma), X)
    assert model.intercept_.shape == (1,)
    if expected == "scale":
        expected = 1.0 / (2 * X.var())
    assert model.gamma_ == (expected if expected is None else pytest.approx(expected))
    given = quiet_fit(make(kernel="precomputed"), X @ X.T)
    assert given.gamma_ is None


def test_the_papers_call_of_gmmc():
    """C_e = 1e4 and K + I/n."""
    X, _ = make_two_moons(30, random_state=0)
    own = quiet_fit(GMMC(), X)
    shifted = quiet_fit(GMMC(balance_weight=1e4, shift=1 / 30), X)
    assert own.objective_ == shifted.objective_


@pytest.mark.parametrize("mode", ["paper", "default"])
@pytest.mark.parametrize("make", [make_two_circles, make_two_gaussians])
def test_the_search_finds_the_labelling_of_a_narrow_kernel(make, mode):
    """Random starts alone stop at a value above that of the true labels."""
    X, y = make(200, random_state=0)
    K = rbf_kernel(X, gamma=50.0 / mean_distance(X) ** 2)
    model = quiet_fit(LGMMC(kernel="precomputed", mode=mode, random_state=0), K)
    assert clustering_error(y, model.labels_) <= 0.03


def test_axes_of_the_kernel_graph():
    """Eigenvectors of D^-1 K by their equation."""
    X, _ = make_two_moons(60, random_state=0)
    K = rbf_kernel(X, gamma=5.0)
    axes = KernelSpace(K).graph_axes
    walk = K / K.sum(axis=1, keepdims=True)
    values = np.sort(np.linalg.eigvals(walk).real)[::-1][1 : 1 + axes.shape[1]]
    assert axes.shape == (60, 5)
    np.testing.assert_allclose(walk @ axes, axes * values, atol=2e-3 * np.abs(axes).max())
    assert KernelSpace(K - 0.5).graph_axes.shape == (60, 0)
    assert KernelSpace(K[:2, :2]).graph_axes.shape == (2, 0)
