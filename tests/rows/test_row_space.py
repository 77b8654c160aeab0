"""Rows in a basis of their span are equivalent to the standardised rows."""

import sys

import numpy as np
import pytest
from scipy import sparse

from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import row_space, standardized, standardized_columns


def wide(n=20, d=70, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3, d) + rng.normal(size=d)
    X[:, 5] = 2.5
    return X


def weights_of(n, kind):
    if kind is None:
        return None
    weights = np.random.default_rng(1).uniform(0.5, 3.0, n)
    if kind == "zeros":
        weights[::4] = 0.0
    return weights


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", [None, "positive", "zeros"])
def test_it_has_the_inner_products_and_the_scores_of_standardised_rows(make, kind):
    X = wide()
    weights = weights_of(len(X), kind)
    rows = as_rows(make(X), sample_weight=weights)
    z, plain = standardized(rows), standardized_columns(rows)
    np.testing.assert_allclose(z.mean, plain.mean, atol=1e-9)
    np.testing.assert_allclose(z.scale, plain.scale, rtol=1e-9)
    np.testing.assert_array_equal(z.kept, plain.kept)
    Z = plain.transform(X)
    counted = slice(None) if weights is None else np.flatnonzero(weights)
    T = z.rows.X
    np.testing.assert_allclose((T @ T.T)[counted], (Z @ Z.T)[counted], atol=1e-7)
    # Directions of T are directions of the columns, with the same scores.
    w = np.random.default_rng(2).normal(size=(z.size, 3))
    expected = T @ w
    np.testing.assert_allclose((X - z.mean) @ z.coefficients(w), expected, atol=1e-6)
    np.testing.assert_allclose(z.scores(w), expected, atol=1e-12)
    np.testing.assert_allclose(z.transform(X), T, atol=1e-6)


def test_directions_of_columns_keep_their_scores_and_their_lengths():
    X = wide()
    z = standardized(as_rows(X))
    Z = (X - z.mean)[:, z.kept] / z.scale[z.kept]
    normal = np.random.default_rng(0).normal(size=X.shape[1])
    t = z.direction(normal)
    np.testing.assert_allclose(z.rows.X @ t, (X - z.mean) @ normal, atol=1e-7)
    assert np.isclose(t @ t, ((normal * z.scale)[z.kept] ** 2).sum())
    columns = z.column_directions(np.array([0, 30]))
    np.testing.assert_allclose(z.rows.X @ columns, Z[:, [0, 30]], atol=1e-8)
    np.testing.assert_allclose((columns**2).sum(axis=0), 1.0)
    v = np.random.default_rng(3).normal(size=len(X))
    plain = standardized_columns(as_rows(X))
    own, expected = z.own_units_direction(v), plain.own_units_direction(v)
    np.testing.assert_allclose(z.rows.X @ own, Z @ expected, rtol=1e-6, atol=1e-6)
    assert np.isclose(own @ own, expected @ expected)


def test_rows_in_their_own_units_keep_their_distances():
    X = wide()
    z = standardized(as_rows(X))
    C = X - X.mean(axis=0)
    np.testing.assert_allclose(z.own_units @ z.own_units.T, C @ C.T, rtol=1e-9, atol=1e-6)


def test_dependent_rows_have_fewer_coordinates():
    X = np.repeat(wide(n=6), 3, axis=0)
    z = standardized(as_rows(X))
    assert z.lift.shape[1] == 5
    assert z.size == 6  # and one for all directions in which no row varies
    low = np.random.default_rng(0).normal(size=(30, 2)) @ np.ones((2, 1)) * np.ones((30, 40))
    assert standardized(as_rows(low)).lift.shape[1] == 1


def test_two_rows_and_equal_rows():
    two = standardized(as_rows(np.array([[0.0, 1.0, 5.0], [2.0, 1.0, 9.0]])))
    np.testing.assert_array_equal(two.kept, [0, 2])
    np.testing.assert_allclose(np.abs(two.rows.X[:, 0]), np.sqrt(2.0))
    assert standardized(as_rows(np.ones((3, 5)))).kept.size == 0


def test_float32_rows_keep_their_digits_far_from_zero():
    X = wide().astype(np.float32)
    X += 1000 * X.std(axis=0)
    z, exact = standardized(as_rows(X)), standardized(as_rows(X.astype(np.float64)))
    assert z.rows.dtype == np.float64
    np.testing.assert_allclose(z.rows.X, exact.rows.X, atol=1e-8)


def test_tiles_of_columns_change_nothing(monkeypatch):
    module = sys.modules["volmar.rows.standardized"]
    X = wide()
    whole = row_space(as_rows(X))
    monkeypatch.setattr(module, "_TILE_ENTRIES", 1)
    monkeypatch.setattr(module, "_MIN_TILE_COLUMNS", 3)
    tiled = row_space(as_rows(X))
    np.testing.assert_allclose(tiled.rows.X @ tiled.rows.X.T, whole.rows.X @ whole.rows.X.T)
    w = np.random.default_rng(0).normal(size=tiled.size)
    np.testing.assert_allclose((X - X.mean(axis=0)) @ tiled.coefficients(w), tiled.scores(w))


def test_as_many_rows_as_columns_take_the_columns():
    square = np.random.default_rng(0).normal(size=(30, 30))
    assert standardized(as_rows(square)).size == 30
    assert standardized(as_rows(square[:29])).lift.shape[1] == 28
