"""Rules for the width of a Gaussian similarity."""

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.points import points
from scipy.spatial.distance import cdist, pdist

from volmar.graphs.distances import distance_range, mean_distance, resolve_sigma, rms_distance
from volmar.graphs.graph import make_similarity


@pytest.mark.parametrize("n", [2, 17, 1500])
def test_distance_statistics_agree_with_all_pairs(n):
    X = points(n, n=n, d=5) + 100.0
    distances = pdist(X)
    assert mean_distance(X) == pytest.approx(distances.mean(), rel=1e-10)
    assert distance_range(X) == pytest.approx(distances.max() - distances.min(), abs=1e-6)
    assert rms_distance(X) == pytest.approx(np.sqrt((cdist(X, X) ** 2).mean()), rel=1e-10)


@pytest.mark.parametrize("statistic", [mean_distance, distance_range, rms_distance])
def test_distance_statistics_take_sparse_and_float32(statistic):
    X = points(0) * (points(1) > 0.5)
    assert statistic(sp.csr_matrix(X)) == pytest.approx(statistic(X), rel=1e-7)
    assert statistic(X.astype(np.float32)) == pytest.approx(statistic(X), rel=1e-6)


@pytest.mark.parametrize(
    ("rule", "statistic", "factor"),
    [
        ("mean", mean_distance, 1.0),
        ("mean/10", mean_distance, 0.1),
        ("2*mean", mean_distance, 2.0),
        (" 0.5 * mean / 2 ", mean_distance, 0.25),
        ("4*rms", rms_distance, 4.0),
        ("rms", rms_distance, 1.0),
        ("0.3*range", distance_range, 0.3),
        ("range/10", distance_range, 0.1),
        ("1e-1*range", distance_range, 0.1),
    ],
)
def test_sigma_rules(rule, statistic, factor):
    X = points(0)
    assert resolve_sigma(X, rule) == pytest.approx(factor * statistic(X))


def test_sigma_numbers_pass_through():
    assert resolve_sigma(points(0), 3) == 3.0
    assert resolve_sigma(points(0), np.float32(0.5)) == 0.5


@pytest.mark.parametrize(
    "sigma",
    [0, -1.0, np.nan, np.inf, True, None, "median", "mean*2", "0*mean", "mean/0", "mean/-2", "",
     "__import__('os')", "mean+1", "1e999*mean", [1.0]],
)  # fmt: skip
def test_bad_sigma_is_named(sigma):
    with pytest.raises(ValueError, match=r"^sigma .*positive"):
        resolve_sigma(points(0), sigma)
    with pytest.raises(ValueError, match="sigma must be"):
        make_similarity("gaussian", sigma=sigma)


@pytest.mark.parametrize("rule", ["mean", "rms/2", "range"])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_sigma_rule_on_constant_data(rule, wrap):
    with pytest.raises(ValueError, match=r"same point\. Give sigma as a number"):
        resolve_sigma(wrap(np.full((5, 2), 0.1)), rule)


def test_range_of_two_points_is_refused():
    with pytest.raises(ValueError, match="range of two points is zero"):
        resolve_sigma([[0.0], [1.0]], "range")
