"""With many rows a sample is clustered first, and its cut is made while summing moments."""

import numpy as np
import pytest

from volmar import MSPC
from volmar.metrics import clustering_error, msp_score
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import standardized
from volmar.separation import two_way
from volmar.separation.gep import bound, coarse_splits
from volmar.separation.problem import SeparatingPlanes, SeparationRows


def brute(X, weights, center):
    about = X.astype(np.float64) - center
    return weights.sum(), weights @ about, (about * weights[:, None]).T @ about


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_pass_brings_the_moments_of_both_sides(rng, dtype, order, weighted):
    X = rng.normal(np.array([0, 5, -3, 100]), size=(9000, 4)).astype(dtype, order=order)
    weights = rng.uniform(0.0, 3.0, 9000) if weighted else None
    w, threshold = np.array([1.0, -0.5, 0.0, 0.0]), -2.4
    centred, whole, mask, part = as_rows(X, sample_weight=weights).centered_with_cut(w, threshold)
    np.testing.assert_array_equal(mask, X.astype(np.float64) @ w > threshold)
    w = np.ones(9000) if weights is None else weights
    mean = w @ X.astype(np.float64) / w.sum()
    tol = 1e-6 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(centred.offset, mean, atol=tol)
    for found, (weight, total, second) in (
        (whole, brute(X, w, centred.offset)),
        (part, brute(X[mask], w[mask], centred.offset)),
    ):
        assert found.weight == pytest.approx(weight)
        np.testing.assert_allclose(found.sum, total, atol=tol * weight)
        np.testing.assert_allclose(found.second, second, atol=10 * tol * weight)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_guess_far_from_the_mean_costs_no_digits(rng, dtype):
    """The rows of the first guess of the mean have no weight and are far away."""
    X = rng.normal(size=(8192, 3))
    X[::8] += 1e6
    X = X.astype(dtype)
    weights = np.ones(8192)
    weights[::8] = 0.0
    _, moments = as_rows(X, sample_weight=weights).centered_with_moments()
    expected = np.cov(X[weights > 0].T.astype(np.float64), bias=True)
    tol = 1e-4 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(moments.covariance(), expected, atol=tol)


def test_moments_of_constant_columns_take_one_pass(rng, monkeypatch):
    X = np.column_stack([rng.normal(size=5000), np.full(5000, 0.1), np.full(5000, 1e7)])
    rows = as_rows(X)
    calls = []
    moments = type(rows).moments
    monkeypatch.setattr(type(rows), "moments", lambda *a, **k: calls.append(1) or moments(*a, **k))
    z = standardized(rows)
    np.testing.assert_array_equal(z.kept, [0])
    assert len(calls) == 1


def test_coarse_cuts_are_nearly_the_best(rng):
    P = np.column_stack(
        [
            rng.normal(size=2000),
            rng.normal(size=2000) + 7 * (np.arange(2000) < 100),
            rng.exponential(size=2000),
            np.zeros(2000),
        ]
    )
    P -= P.mean(axis=0)
    ridge = np.full(4, 0.3)
    cuts = coarse_splits(P, P.var(axis=0), ridge, 0.02)
    assert np.isinf(cuts[3])
    for p, cut in zip(P.T[:3], cuts[:3], strict=True):
        variance = p.var() + 0.3
        ordered = np.sort(p)
        sizes = np.arange(40, 1961)
        sums = np.cumsum(ordered)[sizes - 1]
        values = bound(sums**2 / (sizes * (2000 - sizes) * variance), sizes / 2000)
        below = int((p <= cut).sum())
        assert values[below - 40] > 0.995 * values.max()


def make_groups(n, d, rng, distance=6.0):
    y = rng.random(n) < 0.3
    X = rng.normal(size=(n, d)) * np.geomspace(1, 100, d)
    X[:, 0] += distance * y
    return X, y


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_first_ends_where_all_rows_at_once_do(rng, monkeypatch, dtype, weighted):
    X, y = make_groups(24_000, 5, rng)
    X = X.astype(dtype)
    weights = rng.uniform(0.5, 2.0, len(X)) if weighted else None
    model = MSPC(random_state=0).fit(X, sample_weight=weights)
    monkeypatch.setattr(two_way, "LONG", 10**9)
    plain = MSPC(random_state=0).fit(X, sample_weight=weights)
    assert clustering_error(model.labels_, plain.labels_) < 0.004
    assert clustering_error(y, model.labels_) < 0.01
    assert model.msp_ == pytest.approx(plain.msp_, abs=0.002)
    assert model.result_.objective == pytest.approx(plain.result_.objective, rel=1e-3)
    assert model.result_.residuals["moves"] <= 1e-3
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    if not weighted:
        assert model.msp_ == pytest.approx(msp_score(X, model.labels_, reg=model.reg_), abs=1e-5)


def test_sides_follow_the_rows_that_differ_from_the_first_cut(rng):
    X, _ = make_groups(3000, 3, rng)
    rows = SeparationRows(X, as_rows(X), standardized, 1.0, None, 30.0)
    planes = SeparatingPlanes(X.mean(axis=0), np.array([1.0, 0.0, 0.0]), 0.5)
    labels, difference = rows.cut_first(planes)
    np.testing.assert_array_equal(labels, X[:, 0] - X[:, 0].mean() > 0.5)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(difference, Z[labels].mean(axis=0) - Z[~labels].mean(axis=0))
    few, many = labels.copy(), ~labels
    few[:50] = ~few[:50]
    for other in (labels, few, many):
        for found, mask in zip(rows.sides(other), (other, ~other), strict=True):
            weight, total, second = brute(X, mask.astype(float), X.mean(axis=0))
            assert found.weight == weight
            np.testing.assert_allclose(found.sum, total, atol=1e-8)
            np.testing.assert_allclose(found.second, second, rtol=1e-9, atol=1e-6)


def test_a_sample_of_equal_rows_is_not_the_end(rng):
    X = np.zeros((30_000, 2))
    X[:3] = [[5.0, 1.0], [6.0, -1.0], [5.5, 0.5]]
    labels = MSPC(min_cluster_size=2, random_state=3).fit(X).labels_
    assert labels[:3].all()
    assert not labels[3:].any()
