"""Artificial data against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volmar.datasets import make_blobs, make_two_circles, make_two_gaussians, make_two_moons


def test_two_gaussians_follow_the_paper():
    X, y = make_two_gaussians(20_000, random_state=0)
    assert X.shape == (20_000, 3)
    assert np.bincount(y).tolist() == [10_000, 10_000]
    assert set(X[y == 0, 2]) == {3.0}
    assert set(X[y == 1, 2]) == {-3.0}
    for label, variances in ((0, [100, 4]), (1, [4, 100])):
        covariance = np.cov(X[y == label, :2].T)
        np.testing.assert_allclose(np.diag(covariance), variances, rtol=0.05)
        assert abs(covariance[0, 1]) < 0.6
        assert np.abs(X[y == label, :2].mean(axis=0)).max() < 0.4


def test_two_moons_and_circles_without_noise_lie_on_their_curves():
    X, y = make_two_moons(60, noise=0.0, random_state=1)
    np.testing.assert_allclose(np.linalg.norm(X[y == 0], axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(X[y == 1] - [1, 0.5], axis=1), 1)
    X, y = make_two_circles(60, noise=0.0, factor=0.3, random_state=1)
    np.testing.assert_allclose(np.linalg.norm(X[y == 0], axis=1), 1)
    np.testing.assert_allclose(np.linalg.norm(X[y == 1], axis=1), 0.3)


@pytest.mark.parametrize(
    "make", [make_two_gaussians, make_two_moons, make_two_circles, make_blobs]
)
def test_generators_are_seeded_shuffled_and_leave_the_global_state_alone(make):
    before = np.random.get_state()[1].copy()
    X, y = make(101, random_state=3)
    again, y_again = make(101, random_state=3)
    other, _ = make(101, random_state=4)
    assert np.array_equal(np.random.get_state()[1], before)
    assert np.array_equal(X, again)
    assert np.array_equal(y, y_again)
    assert not np.allclose(X, other)
    assert sorted(np.bincount(y).tolist()) == [50, 51]
    assert np.count_nonzero(np.diff(y)) > 20  # sorted labels would change once


@settings(deadline=None)
@given(
    n=st.integers(10, 400),
    weights=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=6),
    seed=st.integers(0, 5),
)
def test_blob_sizes_are_the_fractions_to_within_one_point(n, weights, seed):
    fractions = np.array(weights) / sum(weights)
    centers = len(weights)
    _, y = make_blobs(n, centers=centers, imbalance=fractions.tolist(), random_state=seed)
    sizes = np.bincount(y, minlength=centers)
    assert sizes.sum() == n
    assert sizes.min() >= 1
    if (n * fractions >= 1).all():
        assert np.abs(sizes - n * fractions).max() < 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"n_samples": 100, "imbalance": [0.29, 0.71]}, [29, 71]),
        ({"n_samples": 100, "imbalance": 9.0}, [90, 10]),
        ({"n_samples": 70, "imbalance": 4.0, "centers": 3}, [40, 20, 10]),
        ({"n_samples": 5, "imbalance": 1000.0, "centers": 3}, [3, 1, 1]),
        ({"n_samples": 7, "centers": 1}, [7]),
    ],
)
def test_blob_sizes(arguments, expected):
    _, y = make_blobs(**arguments, random_state=0)
    assert np.bincount(y).tolist() == expected


@pytest.mark.parametrize(("centers", "n_features"), [(2, 1), (4, 1), (2, 2), (3, 2), (5, 4)])
def test_blob_centres_are_the_separation_apart(centers, n_features):
    X, y = make_blobs(
        40_000, centers=centers, n_features=n_features, separation=7.0, random_state=0
    )
    means = np.array([X[y == label].mean(axis=0) for label in range(centers)])
    distances = np.linalg.norm(means[:, None] - means, axis=2) + 1e9 * np.eye(centers)
    np.testing.assert_allclose(distances.min(axis=1), 7.0, atol=0.1)
    spread = np.array([X[y == label].std(axis=0) for label in range(centers)])
    np.testing.assert_allclose(spread, 1.0, atol=0.05)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make_two_gaussians(1), ValueError, "n_samples must be at least 2, got 1"),
        (lambda: make_two_moons(10.5), TypeError, "n_samples"),
        (lambda: make_two_moons(noise=-1), ValueError, "noise"),
        (lambda: make_two_circles(noise=math.nan), ValueError, "noise"),
        (lambda: make_two_circles(factor=1.0), ValueError, "factor"),
        (lambda: make_two_circles(factor="a"), TypeError, "factor"),
        (lambda: make_blobs(3, centers=4), ValueError, "^n_samples .*got 3"),
        (lambda: make_blobs(imbalance=0.5), ValueError, "^imbalance .*got 0.5"),
        (lambda: make_blobs(imbalance=[0.5, 0.6]), ValueError, "^imbalance .*fractions"),
        (
            lambda: make_blobs(imbalance=[1.5, -0.5]),
            ValueError,
            "^imbalance .*fractions",
        ),
        (
            lambda: make_blobs(imbalance=[1.0]),
            ValueError,
            "^imbalance .*centers",
        ),
        (
            lambda: make_blobs(separation=-2.0),
            ValueError,
            "^separation",
        ),
        (lambda: make_blobs(n_features=True), TypeError, "^n_features"),
    ],
)
def test_generators_name_the_bad_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()
