"""Vectors over rows in blocks agree with plain arrays."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from helpers.blocks import (
    ARITHMETIC,
    data,
    in_blocks,
    kinds,
    quick,
    same,
    tables,
    vectors,
)
from hypothesis import given
from hypothesis import strategies as st

from volmar.rows.anywhere import as_rows
from volmar.rows.blocks import BlockRows, as_beside, as_table
from volmar.rows.blocks.recipes import digest
from volmar.rows.tiled import DenseRows


@quick
@given(**tables, one=kinds, two=kinds, function=st.sampled_from(ARITHMETIC))
def test_two_vectors(n, sizes, seed, one, two, function):
    _, (v, w), (a, b) = vectors(n, sizes, seed, one, two)
    same(function(v, w), function(a, b))


@quick
@given(
    **tables,
    kind=st.sampled_from(["f8", "f4", "i8"]),
    constant=st.sampled_from([2, -1.5, np.float32(0.5), np.float64(3), np.array([2.0])]),
)
def test_vectors_and_constants(n, sizes, seed, kind, constant):
    _, (v,), (a,) = vectors(n, sizes, seed, kind)
    for function in (operator.sub, operator.truediv, operator.ge, operator.add):
        same(function(v, constant), function(a, constant))
        with np.errstate(all="ignore"):
            same(function(constant, v + 10), function(constant, a + 10))
    same(-v, -a)
    same(abs(v), abs(a))
    same(np.abs(v) ** 2, np.abs(a) ** 2)
    same(np.isfinite(v), np.isfinite(a))
    same(np.sqrt(abs(v)), np.sqrt(abs(a)))


@quick
@given(**tables, one=kinds, two=kinds)
def test_choices_and_masks(n, sizes, seed, one, two):
    _, (v, w, mask), (a, b, m) = vectors(n, sizes, seed, one, two, "?")
    same(np.where(mask, v, w), np.where(m, a, b))
    same(np.where(v > 0, 1.0, -1.0), np.where(a > 0, 1.0, -1.0))
    same(np.where(mask, v, 0), np.where(m, a, 0))
    same(~mask, ~m)
    same(mask & (v > 0), m & (a > 0))
    same(mask | (v > 0), m | (a > 0))
    same(mask ^ (v > 0), m ^ (a > 0))
    for kind in ("f8", "f4", "i8", "?"):
        same(v.astype(kind), a.astype(kind))


@quick
@given(**tables, kind=kinds)
def test_reductions_of_vectors(n, sizes, seed, kind):
    _, (v, w), (a, b) = vectors(n, sizes, seed, kind, "f8")
    assert v.sum() == a.sum(dtype=np.int64 if kind in ("i2", "?") else None)
    assert np.sum(v) == v.sum(axis=0) == np.sum(v, 0) == v.sum()
    assert v.mean() == np.mean(v) == pytest.approx(a.mean(dtype=np.float64))
    assert (v.min(), v.max()) == (a.min(), a.max()) == (np.min(v), np.max(v))
    assert v.min().dtype == a.dtype
    if kind != "?":
        assert np.ptp(v) == np.ptp(a)
    assert (v.any(), v.all()) == (a.any(), a.all()) == (np.any(v), np.all(v))
    assert np.count_nonzero(v) == np.count_nonzero(a)
    assert np.array_equal(v, v.copy())
    assert np.array_equal(v, w) == np.array_equal(a, b)
    assert not np.array_equal(v, 1)
    assert v @ w == pytest.approx(a @ b)
    values, counts = np.unique(a, return_counts=True)
    found, often = v.distinct()
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(often, counts)


def test_sums_keep_64_bits():
    X = np.ones((1000, 1))
    table = as_table(in_blocks(X, (300,)))
    small = as_beside(table, np.full(1000, 127, dtype=np.int8), "v")
    assert small.sum() == 127_000
    assert table.full(True, bool).sum() == 1000
    thirds = table.full(np.float32(1 / 3), np.float32)
    assert thirds.sum() == pytest.approx(1000 * float(np.float32(1 / 3)), rel=1e-14)
    many = as_beside(table, np.full(1000, 2**63, dtype=np.uint64), "v")
    assert many.sum() == 0  # modulo 2^64, without a warning


def test_nan_shows_in_reductions():
    array = np.array([1.0, np.nan, 3.0, np.nan])
    table = as_table(in_blocks(np.ones((4, 1)), (2,)))
    v = as_beside(table, array, "v")
    assert np.isnan([v.min(), v.max(), v.sum()]).all()
    assert v.any()
    assert v.all()
    assert not np.array_equal(v, v.copy())
    found, often = v.distinct()
    np.testing.assert_array_equal(found, [1.0, 3.0, np.nan])
    np.testing.assert_array_equal(often, [1, 1, 2])


@quick
@given(**tables)
def test_in_place(n, sizes, seed):
    _, (v, w), (a, b) = vectors(n, sizes, seed, "f4", "f8")
    alias, before = v, v.copy()
    v += 1
    v *= w  # float64 goes into float32, as in numpy
    v /= 2.0
    v -= w
    c = a.copy()
    c += 1
    c *= b
    c /= 2.0
    c -= b
    assert alias is v
    same(v, c)
    same(before, a)


def test_in_place_refuses_what_numpy_refuses():
    table, (v, w), _ = vectors(6, (4,), 0, "i8", "f8")
    with pytest.raises(TypeError, match=r"float64 .*int64"):
        v += w
    block = BlockRows(table).scores(np.eye(2))
    with pytest.raises(ValueError, match="does not"):
        w += block


@quick
@given(**tables, k=st.integers(2, 4))
def test_columns(n, sizes, seed, k):
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(n, 3)), rng.integers(-2, 3, (3, k)).astype(float)
    rows = as_rows(in_blocks(X, sizes))
    S, dense = rows.scores(W), DenseRows(X).scores(W)
    np.testing.assert_allclose(S.to_dask().compute(), dense, rtol=1e-12, atol=1e-12)
    S, dense = np.floor(S), np.floor(dense)
    same(S, dense)
    for j in range(-k, k):
        same(S[:, j], dense[:, j])
    same(S * np.arange(1.0, k + 1), dense * np.arange(1.0, k + 1))
    same(S[:, 1] - S[:, 0], dense[:, 1] - dense[:, 0])
    same(np.argmax(S, axis=1), np.argmax(dense, axis=1))
    np.testing.assert_array_equal(S.sum(axis=0), dense.sum(axis=0))
    assert S.sum() == dense.sum()
    assert S.mean() == pytest.approx(dense.mean())
    np.testing.assert_allclose(S.mean(axis=0), dense.mean(axis=0))
    assert (S.min(), S.max()) == (dense.min(), dense.max())
    numbers = rng.integers(0, n, 5)
    np.testing.assert_array_equal(S[numbers], dense[numbers])


@pytest.mark.parametrize("n", [2, 3, 5])
def test_entries_of_rows_are_never_taken_for_columns(n):
    """If there are as many columns as rows in a block, NumPy would broadcast the wrong way."""
    X = np.arange(3.0 * n).reshape(n, 3)
    rows = as_rows(in_blocks(X, (3,)))
    S, v = rows.scores(np.eye(3)), rows.scores(np.ones(3))
    for wrong in (lambda: S * v, lambda: np.where(v > 0, S, 0.0), lambda: v + np.ones((1, 3))):
        with pytest.raises((TypeError, ValueError), match=r"row by row|for each row"):
            wrong()
    same(S * np.array([1.0, 2.0, 3.0]), X * np.array([1.0, 2.0, 3.0]))


@quick
@given(**tables)
def test_entries_by_number(n, sizes, seed):
    table, (v,), (a,) = vectors(n, sizes, seed, "f8")
    rng = np.random.default_rng(seed)
    X = table[:]
    for numbers in (rng.integers(0, n, 6), rng.integers(-n, n, 6), np.array([0, 0, n - 1])):
        np.testing.assert_array_equal(v[numbers], a[numbers])
        np.testing.assert_array_equal(table[numbers], X[numbers])
    for some in (slice(None), slice(1, None, 2), slice(None, None, -1), slice(0, 0), []):
        np.testing.assert_array_equal(v[some], a[some])
        np.testing.assert_array_equal(table[some], X[some])
    assert v[n - 1] == v[-1] == a[-1]
    assert np.ndim(v[0]) == 0


def test_numbers_that_are_none():
    table, (v,), _ = vectors(6, (4,), 0, "f8")
    for source in (v, table):
        with pytest.raises(IndexError, match="below 6"):
            source[[6]]
        with pytest.raises(IndexError, match="below 6"):
            source[[-7]]
        with pytest.raises(TypeError, match="dtype bool"):
            source[np.ones(6, dtype=bool)]
        with pytest.raises(TypeError, match="dtype float64"):
            source[np.array([1.0])]
        with pytest.raises(TypeError, match="by a vector over rows"):
            source[v > 0]
    with pytest.raises(TypeError, match="list of row numbers"):
        table[3]
    with pytest.raises(TypeError, match="whole columns"):
        v[:, 0]
    with pytest.raises(TypeError, match="whole columns"):
        v[1:, 0]


@quick
@given(**tables, whole=st.booleans(), zeros=st.floats(0, 0.95))
def test_first_beyond(n, sizes, seed, whole, zeros):
    rng = np.random.default_rng(seed)
    array = rng.integers(1, 4, n) * (1.0 if whole else 0.375)
    array[rng.random(n) < zeros] = 0
    array[rng.integers(n)] = 1.0
    table = as_table(in_blocks(np.ones((n, 1)), sizes))
    v = as_beside(table, array.astype(int) if whole else array, "v")
    targets = np.concatenate([rng.random(8) * array.sum(), np.cumsum(array), [0, 1e9]])
    last = np.flatnonzero(array)[-1]
    expected = np.minimum(np.searchsorted(np.cumsum(array), targets, side="right"), last)
    np.testing.assert_array_equal(v.first_beyond(targets), expected)
    assert v.first_beyond(np.empty(0)).size == 0


def test_first_beyond_over_tiles(tiling):
    X, rng = data(200)
    table = as_table(in_blocks(X, (50, 1)))
    array = rng.random(200) * (rng.random(200) < 0.5)
    array[-60:] = 0.0
    targets = rng.random(100) * array.sum()
    expected = np.searchsorted(np.cumsum(array), targets, side="right")
    np.testing.assert_array_equal(as_beside(table, array, "v").first_beyond(targets), expected)


def test_first_beyond_refuses():
    table, (v,), _ = vectors(6, (4,), 0, "f8")
    with pytest.raises(ValueError, match="must have a positive sum"):
        table.full(0.0, float).first_beyond(np.array([0.0]))
    with pytest.raises(TypeError, match="being collected"):
        table.prefetch(lambda: abs(v).first_beyond(np.array([0.5])))
    assert not table.is_collecting


def test_vectors_are_no_arrays():
    table, (v,), (a,) = vectors(6, (4,), 0, "f8")
    _, (other,), _ = vectors(6, (4,), 1, "f8")
    for action in (lambda: np.asarray(v), lambda: list(v), lambda: float(np.array(v))):
        with pytest.raises(TypeError, match=r"to_dask\(\)"):
            action()
    with pytest.raises(TypeError, match=r"any\(\) or all\(\)"):
        bool(v > 0)
    for action in (lambda: v + a, lambda: a * v, lambda: np.where(a > 0, v, 0.0)):
        with pytest.raises(TypeError, match="an entry for each row"):
            action()
    with pytest.raises(TypeError, match="an entry for each row"):
        BlockRows(table).scores(np.eye(2)) + a[:, None]
    with pytest.raises(ValueError, match="different rows"):
        v + other
    with pytest.raises(ValueError, match="other rows"):
        as_beside(table, other, "sample_weight")
    for action in (
        lambda: np.sort(v),
        lambda: np.add.reduce(v),
        lambda: np.cumsum(v),
        lambda: np.divmod(v, 2),
        lambda: v @ np.ones(3),
        lambda: np.argmax(v),
        lambda: v.sum(axis=1),
        lambda: v.mean(axis=1),
        lambda: np.add(v, 1, where=a > 0),
        lambda: v + np.ones(3),
    ):
        with pytest.raises((TypeError, ValueError)):
            action()
    assert repr(v) == "RowVector(shape=(6,), dtype=float64)"


def test_a_row_is_no_exception():
    """With a single row, constants of length 1 are not treated as arrays over the rows."""
    _, (v,), (a,) = vectors(1, (1,), 0, "f8")
    same(v + np.array([2.0]), a + 2.0)


def test_keys_tell_objects_apart():
    one, two = np.array(["a", "b"], dtype=object), np.array(["a", "c"], dtype=object)
    assert digest(one) == digest(one.copy()) != digest(two)
    assert digest(1) != digest(1.0) != digest("1.0")
    assert digest(np.zeros(2)) != digest(np.zeros((2, 1))) != digest(np.zeros(2, np.float32))


def test_labels_of_any_kind():
    X, _ = data(9)
    table = as_table(in_blocks(X, (4,)))
    for labels in (np.array(list("abbabaaab")), np.array(list("abbabaaab"), dtype=object)):
        v = as_beside(table, labels, "labels")
        values, counts = v.distinct()
        assert list(values) == ["a", "b"]
        assert list(counts) == [5, 4]
        same(v == values[1], labels == "b")
