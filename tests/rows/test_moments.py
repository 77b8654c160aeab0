"""Moments can be added, subtracted, merged and shifted, as if computed from the rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volmar.rows.protocol import Moments
from volmar.rows.tiled import DenseRows


def brute(X, center, weights=None):
    """Moments by their definition, one row at a time."""
    weights = np.ones(len(X)) if weights is None else weights
    total, second = np.zeros(X.shape[1]), np.zeros((X.shape[1],) * 2)
    for row, weight in zip(X, weights, strict=True):
        total += weight * (row - center)
        second += weight * np.outer(row - center, row - center)
    return Moments(center, weights.sum(), total, second)


def assert_same(a, b, rtol=1e-12):
    scale = max(abs(a.second).max(), abs(b.second).max(), 1e-300)
    np.testing.assert_array_equal(a.center, b.center)
    np.testing.assert_allclose(a.weight, b.weight, rtol=rtol)
    # A sum has the unit of the rows, the second moments that of their squares.
    largest = max(abs(a.sum).max(), np.sqrt(scale * a.weight))
    np.testing.assert_allclose(a.sum, b.sum, rtol=0, atol=rtol * largest)
    np.testing.assert_allclose(a.second, b.second, rtol=0, atol=rtol * scale)


@st.composite
def split_rows(draw):
    n = draw(st.integers(2, 60))
    d = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(scale=10.0 ** draw(st.integers(-3, 3)), size=(n, d))
    X += rng.normal(size=d) * X.std()
    mask = rng.random(n) < 0.5
    mask[0], mask[-1] = True, False
    return X, mask, rng


@given(split_rows())
@settings(max_examples=60, deadline=None)
def test_add_and_subtract_follow_the_rows(data):
    X, mask, _ = data
    center = X.mean(axis=0)
    everything, one, two = (brute(rows, center) for rows in (X, X[mask], X[~mask]))
    assert_same(one + two, everything)
    assert_same(everything - one, two)
    assert_same((everything - one) + one, everything)


@given(split_rows())
@settings(max_examples=60, deadline=None)
def test_merge_of_moments_about_different_centres(data):
    X, mask, _ = data
    one = brute(X[mask], X[mask].mean(axis=0))
    two = brute(X[~mask], X[~mask].mean(axis=0))
    merged = one + two.shifted(one.center)
    assert_same(merged, brute(X, one.center))
    np.testing.assert_allclose(
        merged.covariance(), np.cov(X.T, bias=True).reshape(merged.second.shape), rtol=1e-9
    )


@given(split_rows())
@settings(max_examples=60, deadline=None)
def test_shift_there_and_back(data):
    X, _, rng = data
    moments = brute(X, X.mean(axis=0))
    center = moments.center + rng.normal(size=X.shape[1]) * X.std()
    assert_same(moments.shifted(center), brute(X, center))
    back = moments.shifted(center).shifted(moments.center)
    assert_same(back, moments)


@given(split_rows())
@settings(max_examples=60, deadline=None)
def test_covariance_forms_of_joining_and_leaving_rows(data):
    """S' = [N S ± m S_s ± (N m / (N ± m)) d d'] / (N ± m), d the difference of the means."""
    X, mask, _ = data
    center = X.mean(axis=0)
    cluster, subset = brute(X[mask], center), brute(X[~mask], center)
    N, m = cluster.weight, subset.weight
    S, S_s = cluster.covariance(), subset.covariance()
    diff = subset.mean - cluster.mean
    joined = (N * S + m * S_s + N * m / (N + m) * np.outer(diff, diff)) / (N + m)
    np.testing.assert_allclose((cluster + subset).covariance(), joined, atol=1e-12 * X.var())

    both = cluster + subset
    N, S = both.weight, both.covariance()
    diff = subset.mean - both.mean
    left = (N * S - m * S_s - N * m / (N - m) * np.outer(diff, diff)) / (N - m)
    tolerance = 1e-12 * X.var() * len(X) ** 2
    np.testing.assert_allclose((both - subset).covariance(), left, atol=tolerance)


@given(split_rows())
@settings(max_examples=40, deadline=None)
def test_a_weight_of_two_is_a_row_given_twice(data):
    X, mask, _ = data
    center = X[0]
    doubled = DenseRows(np.vstack([X, X[mask]])).moments(center=center)
    weighted = DenseRows(X, sample_weight=1.0 + mask).moments(center=center)
    assert_same(weighted, doubled)
    np.testing.assert_allclose(weighted.mean, doubled.mean, rtol=1e-10, atol=1e-12 * X.std())


def test_mean_and_covariance_are_numpys():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(50, 4)) + 3.0, rng.random(50)
    moments = brute(X, np.zeros(4), weights)
    np.testing.assert_allclose(moments.mean, np.average(X, axis=0, weights=weights), rtol=1e-13)
    expected = np.cov(X.T, aweights=weights, bias=True)
    np.testing.assert_allclose(moments.covariance(), expected, atol=1e-13)


def test_many_switches_do_not_drift():
    """Moments of a cluster keep 11 digits in 300 updates by rows that join and leave."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 5)) + 20.0
    rows = DenseRows(X)
    mask = rng.random(500) < 0.5
    moments = rows.moments(mask)
    for _ in range(300):
        new = mask ^ (rng.random(500) < 0.1)
        moments = moments + rows.moments(new & ~mask) - rows.moments(mask & ~new)
        mask = new
    np.testing.assert_allclose(
        moments.covariance(), np.cov(X[mask].T, bias=True), rtol=0, atol=1e-11
    )


def test_removing_everything_leaves_nothing():
    rows = DenseRows(np.eye(3), sample_weight=np.array([0.1, 0.2, 0.3]))
    mask = np.array([True, False, True])
    rest = rows.moments() - rows.moments(mask) - rows.moments(~mask)
    assert 0 <= rest.weight < 1e-15
    np.testing.assert_allclose(rest.second, 0, atol=1e-16)


def test_moments_cannot_be_changed():
    moments = DenseRows(np.eye(3)).moments()
    for array in (moments.center, moments.sum, moments.second):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    with pytest.raises(AttributeError):
        moments.weight = 2.0
    center = np.zeros(3)
    moments = DenseRows(np.eye(3)).moments(center=center)
    center[0] = 5.0
    np.testing.assert_array_equal(moments.center, 0)


def test_pickle():
    moments = DenseRows(np.eye(3)).moments()
    assert_same(pickle.loads(pickle.dumps(moments)), moments, rtol=0)


def test_bad_use_is_named():
    rows = DenseRows(np.arange(12.0).reshape(4, 3))
    moments = rows.moments()
    with pytest.raises(ValueError, match=r"different centres.*shifted"):
        moments + rows.moments(center=np.zeros(3))
    with pytest.raises(ValueError, match=r"^moments .*without"):
        moments - rows.moments(second=False)
    with pytest.raises(ValueError, match="no second moments"):
        rows.moments(second=False).covariance()
    with pytest.raises(ValueError, match=r"weight 4 .*weight 2"):
        rows.moments(np.array([True, True, False, False])) - moments
    empty = rows.moments(np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="weight 0 have no mean"):
        empty.mean  # noqa: B018 - a property that raises
    with pytest.raises(ValueError, match="weight 0 have no mean"):
        empty.covariance()
    with pytest.raises(ValueError, match=r"^center .*shape \(3,\)"):
        moments.shifted(np.zeros(2))
    with pytest.raises(TypeError):
        moments + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((2, 1)), 1.0, np.zeros(2)), "^center .*dimension"),
        ((np.zeros(2), 1.0, np.zeros(3)), r"sum must have the shape \(2,\)"),
        ((np.zeros(2), 1.0, np.zeros(2), np.zeros((2, 3))), "^second"),
    ],
)
def test_bad_shapes_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Moments(*arguments)


def test_what_is_not_numbers_is_named():
    with pytest.raises(TypeError, match=r"^sum .*numbers"):
        Moments(np.zeros(2), 1.0, ["a", "b"])
