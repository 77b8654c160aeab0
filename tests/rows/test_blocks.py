"""Rows in blocks: vectors by recipes, sums by passes and their journal agree with plain arrays."""

from __future__ import annotations

import io
import operator
import pickle

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from volmar.distributed import checkpoint, report_passes
from volmar.rows import (
    BlockRows,
    BlockTable,
    DenseRows,
    RowVector,
    SparseRows,
    as_beside,
    as_rows,
    as_table,
    bin_sums,
    centered_with_moments,
    constant_vector,
    drawn_rows,
    in_one_pass,
    is_dask,
    mask_key,
    prefetch,
)
from volmar.rows.blocks import tile as tile_module
from volmar.rows.blocks.recipes import Apply, digest
from volmar.rows.blocks.sums import MomentSum, Squares, Sum, Wanted
from volmar.rows.blocks.tile import View, tiles
from volmar.separation.bound import edge_split

quick = settings(max_examples=15, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(params=["one tile", "many tiles"])
def tiling(request, monkeypatch):
    """Run with tiles larger, and much smaller, than the blocks."""
    if request.param == "many tiles":
        monkeypatch.setattr(tile_module, "LEAST_ROWS", 3)
        for wanted in (Wanted, *Wanted.__subclasses__()):
            monkeypatch.setattr(wanted, "tile_bytes", 1)


class Scaling:
    """A feature map that can be checked by eye."""

    def transform(self, X):
        return (X.toarray() if sparse.issparse(X) else X) * X.dtype.type(2)


def cut_up(n, sizes):
    """Chunks of n rows with about these sizes, over and over."""
    chunks, left = [], n
    while left:
        for size in sizes:
            chunks.append(min(size, left))
            left -= chunks[-1]
            if not left:
                break
    return tuple(chunks)


CHUNKINGS = [(24,), (1,), (7,), (0, 13, 1, 0)]


def in_blocks(X, sizes=(7,), **options):
    return da.from_array(X, chunks=(cut_up(len(X), sizes), X.shape[1]), **options)


def csr_blocks(X, sizes=(7,), kind=sparse.csr_matrix):
    return in_blocks(X, sizes).map_blocks(kind, dtype=X.dtype, meta=kind((0, 0), dtype=X.dtype))


def data(n=24, d=5, seed=0, dtype=np.float64, density=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2.0
    X[rng.random((n, d)) >= density] = 0.0
    return X.astype(dtype), rng


def passes_of(action):
    """Return the reports of the passes that an action makes."""
    passes = []
    with report_passes(passes.append):
        action()
    return passes


# ---------------------------------------------------------------------- vectors


def vectors(n, sizes, seed, *dtypes):
    """Vectors over the rows of a table, and the arrays that they stand for."""
    rng = np.random.default_rng(seed)
    table = as_table(in_blocks(rng.normal(size=(n, 2)), sizes))
    least = {"u8": 0}
    arrays = [
        (rng.integers(least.get(kind, -3), 4, n) * (0.5 if "f" in kind else 1)).astype(kind)
        for kind in dtypes
    ]
    return table, [as_beside(table, array, "array") for array in arrays], arrays


def same(vector, array):
    """The vector has the array's shape, dtype and entries."""
    assert isinstance(vector, RowVector)
    assert (vector.shape, vector.ndim, vector.dtype) == (array.shape, array.ndim, array.dtype)
    assert (vector.size, len(vector)) == (array.size, len(array))
    found = vector.to_dask()
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert found.chunks[0] == vector.table.rows_of.X.chunks[0]
    np.testing.assert_array_equal(found.compute(), array)


kinds = st.sampled_from(["f8", "f4", "i8", "i2", "?", "u8"])
sizes_of_blocks = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any).map(tuple)
tables = {"n": st.integers(1, 30), "sizes": sizes_of_blocks, "seed": st.integers(0, 99)}
ARITHMETIC = [operator.add, operator.mul, np.maximum, np.minimum, operator.eq, operator.ne]
ARITHMETIC += [operator.lt, operator.le, operator.gt, operator.ge, np.logical_and]


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
def test_figures_of_vectors(n, sizes, seed, kind):
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


def test_nan_shows_in_figures():
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
    with pytest.raises(TypeError, match=r"float64 cannot be written into a vector of int64"):
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
    """Where there are as many columns as rows of a block, numpy would broadcast the wrong way."""
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
    with pytest.raises(TypeError, match="list of their numbers"):
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
    with pytest.raises(ValueError, match="never rises"):
        table.full(0.0, float).first_beyond(np.array([0.0]))
    with pytest.raises(TypeError, match="only being asked for"):
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
    """With a single row, constants of length 1 are no arrays with an entry for each row."""
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


# ---------------------------------------------------------------------- row sources


def close(one, two, dtype=np.float64):
    tolerance = 1e-11 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance * 10)


def moments_agree(one, two, dtype):
    close(one.center, two.center, dtype)
    assert one.weight == pytest.approx(two.weight, rel=1e-12)
    close(one.sum, two.sum, dtype)
    assert (one.second is None) == (two.second is None)
    if one.second is not None:
        close(one.second, two.second, dtype)


def sources_agree(blocks, rows, rng):
    """Everything that a row source can be asked for is the same in blocks and in memory."""
    n, d, dtype = rows.n_rows, rows.n_features, rows.dtype
    assert (blocks.n_rows, blocks.n_features, blocks.dtype) == (n, d, dtype)
    assert blocks.total_weight == pytest.approx(rows.total_weight, rel=1e-14)
    w, W, center = rng.normal(size=d), rng.normal(size=(d, 3)), rng.normal(size=d)
    v, mask = rng.normal(size=n), rng.random(n) < 0.4
    here = as_beside(blocks.table, v, "v")
    mask_here = as_beside(blocks.table, mask, "mask")
    for _ in range(2):
        for direction in (w, W):
            scores = blocks.scores(direction)
            assert scores.dtype == dtype
            close(scores.to_dask().compute(), rows.scores(direction), dtype)
        close(blocks.combine(here), rows.combine(v), dtype)
        block = blocks.scores(W)
        close(blocks.combine(block), rows.combine(rows.scores(W)), dtype)
        close(blocks.mean(), rows.mean(), dtype)
        for options in ({}, {"center": center}, {"second": False}):
            moments_agree(blocks.moments(**options), rows.moments(**options), dtype)
            moments_agree(
                blocks.moments(mask_here, **options), rows.moments(mask, **options), dtype
            )
        empty = blocks.moments(mask_here & ~mask_here, center=center)
        assert empty.weight == 0
        assert not empty.sum.any()
        assert blocks.mean_squared_norm() == pytest.approx(rows.mean_squared_norm(), rel=1e-5)
        for labels in (None, mask):
            given = None if labels is None else mask_here
            one = bin_sums(blocks, w, -1.5, 1.0, 9, given)
            two = bin_sums(rows, w, -1.5, 1.0, 9, labels)
            for a, b in zip(one, two, strict=True):
                close(a, b, dtype)
            assert one.rows.sum() == n
        centred, about = centered_with_moments(blocks)
        expected, about_mean = centered_with_moments(rows)
        close(centred.offset, expected.offset, dtype)
        moments_agree(about, about_mean, dtype)
        # and again, of the centred rows
        blocks, rows = blocks.centered(), rows.centered()
        close(blocks.mean(), np.zeros(d), dtype)


@pytest.mark.parametrize("sizes", CHUNKINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_agree_with_dense_rows(sizes, dtype, weighted):
    X, rng = data(dtype=dtype)
    weights = rng.integers(0, 3, 24).astype(float) if weighted else None
    blocks = as_rows(in_blocks(X, sizes), sample_weight=weights)
    assert isinstance(blocks, BlockRows)
    sources_agree(blocks, DenseRows(X, sample_weight=weights), rng)


def test_blocks_agree_over_tiles(tiling):
    X, rng = data(density=0.5)
    weights = rng.integers(0, 3, 24).astype(float)
    for lazy, rows in ((in_blocks(X, (11,)), X), (csr_blocks(X, (11,)), sparse.csr_array(X))):
        here = as_rows(rows, sample_weight=weights)
        sources_agree(as_rows(lazy, sample_weight=weights), here, rng)


@pytest.mark.parametrize("density", [0.5, 0.05])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
def test_blocks_agree_with_sparse_rows(density, weighted, kind):
    X, rng = data(density=density)
    X[0, 0] = 1.0
    weights = rng.integers(0, 3, 24).astype(float) if weighted else None
    rows = SparseRows(sparse.csr_array(X), sample_weight=weights)
    sources_agree(as_rows(csr_blocks(X, (11, 6), kind), sample_weight=weights), rows, rng)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint16, np.int64, np.float16, ">f8"])
def test_other_numbers(dtype):
    X = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(dtype)
    rows = as_rows(in_blocks(X, (8,)))
    assert rows.dtype == np.float64
    sources_agree(rows, DenseRows(X.astype(float)), np.random.default_rng(1))
    np.testing.assert_array_equal(rows.table[[3, 1]], X[[3, 1]].astype(float))


def test_weights_of_whole_blocks_are_zero(tiling):
    """Rows of weight 0 are left out of sums, and still counted among the rows of bins."""
    X, rng = data()
    weights = np.ones(24)
    weights[5:20] = 0.0
    sources_agree(
        as_rows(in_blocks(X), sample_weight=da.from_array(weights, chunks=7)),
        DenseRows(X, sample_weight=weights),
        rng,
    )


@quick
@given(**tables, bins=st.integers(2, 12))
def test_bins_by_brute_force(n, sizes, seed, bins):
    rng = np.random.default_rng(seed)
    X, w, weights = rng.normal(size=(n, 2)), rng.normal(size=2), rng.integers(0, 3, n) * 0.5
    labels = rng.random(n) < 0.5
    weights[0] = 1.0
    rows = as_rows(in_blocks(X, sizes), sample_weight=weights)
    found = bin_sums(rows, w, -2.0, 2.0, bins, as_beside(rows.table, labels, "labels"))
    p, edges = X @ w, np.linspace(-2.0, 2.0, bins + 1)
    edges[0], edges[-1] = -np.inf, np.inf
    for b in range(bins):
        inside = (edges[b] <= p) & (p < edges[b + 1])
        assert found.rows[b] == inside.sum()
        assert found.labelled[b] == (inside & labels).sum()
        assert found.weight[b] == weights[inside].sum()
        np.testing.assert_allclose(found.scores[b], weights[inside] @ p[inside], atol=1e-12)
        np.testing.assert_allclose(found.vectors[b], weights[inside] @ X[inside], atol=1e-12)


def test_edges_over_empty_bins_are_cut_in_the_middle():
    """As all cuts, those between two rows: a new row is given to the nearer side."""
    rows = DenseRows(np.array([[-1.0], [-0.9], [0.9], [1.0]]))
    bins = bin_sums(rows, np.ones(1), -2.0, 2.0, 100)
    found = edge_split(bins, np.linspace(-2.0, 2.0, 101), 2.0, 1.0)
    assert abs(found.threshold) < 0.05


def test_signatures_tell_sets_apart():
    X, rng = data(12)
    masks = [np.zeros(12, bool), np.ones(12, bool), *(rng.random((200, 12)) < 0.5)]
    different = {mask.tobytes() for mask in masks}
    for sizes in ((12,), (5,), (1,)):
        rows = as_rows(in_blocks(X, sizes))
        found = [mask_key(as_beside(rows.table, mask, "mask")) for mask in masks[:12]]
        assert len(set(found)) == len({mask.tobytes() for mask in masks[:12]})
        if sizes == (12,):
            first = found
        assert found == first
    assert len(different) > 100


def test_sources_refuse_arrays():
    X, _ = data()
    rows = as_rows(in_blocks(X))
    with pytest.raises(TypeError, match="v must be a vector over these rows"):
        rows.combine(np.ones(24))
    with pytest.raises(TypeError, match="mask must be a vector over these rows"):
        rows.moments(np.ones(24, dtype=bool))
    with pytest.raises(ValueError, match="mask must be boolean, got dtype float64"):
        rows.moments(constant_vector(rows, 1.0, float))
    with pytest.raises(TypeError, match="labels must be a vector"):
        bin_sums(rows, np.ones(5), 0.0, 1.0, 3, np.ones(24, dtype=bool))
    with pytest.raises(ValueError, match=r"w must have the shape \(5,\)"):
        rows.scores(np.ones(4))


@pytest.mark.parametrize("sizes", [(24,), (7,), (0, 13, 1)])
def test_mapped_tables(sizes):
    X, rng = data()
    table = as_table(in_blocks(X, sizes)).mapped(Scaling())
    sources_agree(as_rows(table), DenseRows(2 * X), rng)
    np.testing.assert_array_equal(table[[3, 1]], 2 * X[[3, 1]])
    twice = table.mapped(Scaling())
    np.testing.assert_array_equal(twice[[3, 1]], 4 * X[[3, 1]])
    assert twice.shape == (24, 5)


class Widening:
    """A map to a hundred times as many features."""

    def transform(self, X):
        return np.tile(X, (1, 100))


def test_tiles_are_cut_to_the_features():
    """A tile of wide features is no larger than one of rows."""
    X = np.ones((3000, 2))
    table = as_table(in_blocks(X, (3000,)))
    wide = as_rows(table.mapped(Widening()))
    scores = wide.scores(np.ones(200))
    assert wide.view.widening == wide.centered().view.widening == 100.0
    assert scores.recipe.widening == (scores > 0).recipe.widening == 100.0
    assert MomentSum(wide.view, np.zeros(200)).widening == Sum((scores > 0).recipe).widening
    assert Sum(table.full(1.0, float).recipe).widening == as_rows(table).view.widening == 1.0
    assert [tile.n_rows for tile in tiles(X, [], 0, 2**20)] == [3000]
    cut = [tile.n_rows for tile in tiles(X, [], 0, 2**20, 100.0)]
    assert sum(cut) == 3000
    assert max(cut) * 200 * 8 <= 2**20
    sources_agree(wide, DenseRows(np.tile(X, (1, 100))), np.random.default_rng(0))


def test_a_map_that_cannot_travel():
    class Local:
        def transform(self, X):
            return X

    with pytest.raises(TypeError, match="must be picklable"):
        as_table(in_blocks(data()[0])).mapped(Local())


def test_float32_far_from_zero():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(500, 3)) + 1e4).astype(np.float32)
    rows = as_rows(in_blocks(X, (120,)))
    centred, about = centered_with_moments(rows)
    exact = X.astype(np.float64)
    np.testing.assert_allclose(rows.mean(), exact.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(about.covariance(), np.cov(exact.T, bias=True), atol=1e-5)
    assert not centred.mean().any()


# ---------------------------------------------------------------------- from dask collections


def test_columns_in_several_chunks():
    X, _ = data()
    table = as_table(da.from_array(X, chunks=(7, 2)))
    np.testing.assert_array_equal(table[:], X)
    assert table.rows_of.X.chunks[1] == (5,)
    assert as_table(table) is table


def test_unknown_chunk_sizes():
    X, rng = data()
    lazy = da.from_array(X, chunks=(7, 2))
    kept = lazy[lazy[:, 0] > 2.0]
    assert np.isnan(kept.shape[0])
    rows = as_rows(kept, sample_weight=lazy[:, 1][lazy[:, 0] > 2.0] ** 2)
    assert np.isnan(kept.shape[0])  # what the user has stays as it is
    there = X[:, 0] > 2.0
    sources_agree(rows, DenseRows(X[there], sample_weight=X[there, 1] ** 2), rng)
    with pytest.raises(ValueError, match="a row and a column at least"):
        as_table(lazy[lazy[:, 0] > 1e9])


def test_data_frames():
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, rng = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame["f"] = rng.integers(0, 5, 24)
    lazy = dd.from_pandas(frame, npartitions=3)
    assert is_dask(lazy)
    weights = lazy["f"]
    rows = as_rows(lazy, sample_weight=weights)
    sources_agree(rows, DenseRows(frame.to_numpy(), sample_weight=frame["f"].to_numpy()), rng)
    with pytest.raises(ValueError, match="two dimensions"):
        as_table(weights)
    frame["g"] = "word"
    with pytest.raises(TypeError, match="must hold real numbers"):
        as_table(dd.from_pandas(frame, npartitions=3))


@pytest.mark.parametrize("dtype", [object, "U3", complex, "M8[s]"])
def test_other_entries_are_refused(dtype):
    X = np.ones((6, 2)).astype(dtype if dtype != "M8[s]" else "i8").astype(dtype)
    with pytest.raises(TypeError, match=r"real numbers.*astype\(float\)"):
        as_table(da.from_array(X, chunks=(3, 2)))


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"two dimensions.*reshape\(-1, 1\)"):
        as_table(da.ones(6, chunks=3))
    with pytest.raises(ValueError, match="got a dask array with 3"):
        as_table(da.ones((6, 2, 2), chunks=3))
    with pytest.raises(ValueError, match=r"got \(0, 2\)"):
        as_table(da.ones((0, 2)))
    with pytest.raises(ValueError, match=r"got \(6, 0\)"):
        as_table(da.ones((6, 0)))


def test_what_lies_beside():
    X, rng = data()
    table, v = as_table(in_blocks(X)), rng.random(24)
    for other in (v, list(v), da.from_array(v, chunks=24), da.from_array(v, chunks=(7,))):
        found = as_beside(table, other, "sample_weight")
        np.testing.assert_array_equal(found.to_dask().compute(), v)
        assert as_beside(table, found, "sample_weight") is found
    # Content that is the same is held once.
    n_given = len(table.rows_of.given)
    as_beside(table, v.copy(), "sample_weight")
    assert len(table.rows_of.given) == n_given
    for wrong in (v[:-1], v[:, None], 1.0, da.from_array(v[:-1], chunks=7), da.ones((24, 1))):
        with pytest.raises(ValueError, match=r"sample_weight must have one entry for each row"):
            as_beside(table, wrong, "sample_weight")


def test_dask_is_told_from_the_rest():
    assert is_dask(da.ones(3))
    for other in (np.ones(3), [1.0], None, "dask", sparse.eye_array(3), dask.delayed(np.ones)(3)):
        assert not is_dask(other)


# ---------------------------------------------------------------------- passes


def test_one_pass_brings_everything_together():
    X, rng = data()
    rows = as_rows(in_blocks(X))
    v = as_beside(rows.table, rng.random(24), "v")
    rows.first_guess()

    def asked():
        return (
            v.sum(),
            v.min(),
            (v > 0.5).any(),
            np.array_equal(v, v + 1),
            rows.mean()[0],
            rows.moments(v > 0.5, center=np.zeros(5)).weight,
            rows.mean_squared_norm(),
            rows.combine(v)[0],
            bin_sums(rows, np.ones(5), -1.0, 1.0, 4, v > 0.5).rows[0],
            mask_key(v > 0.5),
            v.distinct()[0].size,
            centered_with_moments(rows)[1].weight,
        )

    def prefetched():
        rows.prefetch(lambda: (asked(), found.append(rows.table.is_collecting)))

    found = []
    (report,) = passes_of(prefetched)
    assert found == [True]
    assert not rows.table.is_collecting
    assert (report.n_rows, report.n_blocks) == (24, 4)
    assert report.seconds >= 0
    assert {"Sum", "Extremes", "MomentSum", "Combination", "Binned"} <= set(report.figures)
    # What is known needs no pass, inside or outside.
    assert not passes_of(asked)
    assert not passes_of(prefetched)
    plain = as_rows(in_blocks(X, (24,)))
    assert rows.mean()[0] == pytest.approx(plain.mean()[0])
    assert rows.table.rows_of.n_passes == report.number


def test_passes_within_a_pass():
    table, (v, w), (a, b) = vectors(20, (6,), 0, "f8", "i8")
    found = []

    def outer():
        return v.sum(), in_one_pass(w.sum, None, w), v.max()

    assert len(passes_of(lambda: found.append(in_one_pass(outer, table)))) == 1
    assert found == [(a.sum(), b.sum(), a.max())]
    assert not table.is_collecting
    assert not passes_of(outer)


def test_rows_in_memory_are_asked_once():
    X, _ = data()
    calls = []
    assert as_rows(X).in_one_pass(lambda: calls.append(1) or 3) == 3
    assert in_one_pass(lambda: calls.append(1) or 4, X, None) == 4
    as_rows(X).prefetch(lambda: calls.append(1))
    prefetch(lambda: calls.append(1), X)
    assert len(calls) == 2


def test_errors_inside_a_pass_leave_a_clean_table():
    table, (v,), (a,) = vectors(20, (6,), 0, "f8")

    def failing():
        with pytest.raises(KeyError):
            table.prefetch(lambda: {}[v.sum()])

    assert not passes_of(failing)
    assert not table.is_collecting
    assert v.sum() == a.sum()
    with pytest.raises(TypeError, match="picked"):
        table.prefetch(lambda: v[[1, 2]])
    assert not table.is_collecting
    # An error of a block itself.
    broken = as_beside(table, table.rows_of.X[:, 0].map_blocks(_fail, dtype=float), "broken")
    with pytest.raises(ZeroDivisionError):
        table.prefetch(broken.sum)
    assert not table.is_collecting
    assert table.rows_of.n_passes == 1


def _fail(block):
    raise ZeroDivisionError


def test_stand_ins_do_not_stay():
    X, rng = data()
    rows = as_rows(in_blocks(X), sample_weight=rng.random(24) + 0.5)
    rows.first_guess()
    rows.prefetch(lambda: (rows.mean(), centered_with_moments(rows)))
    dense = DenseRows(X, sample_weight=rows.weights.to_dask().compute())
    close(rows.mean(), dense.mean())
    assert rows.total_weight == pytest.approx(dense.total_weight)


def test_only_the_blocks_that_hold_them_are_read():
    X, _ = data()
    read = []

    def seen(block, block_info=None):
        read.append(block_info[0]["chunk-location"][0])
        return block

    table = as_table(in_blocks(X).map_blocks(seen, dtype=X.dtype, meta=X[:0]))
    np.testing.assert_array_equal(table[[8, 23, 9]], X[[8, 23, 9]])
    assert sorted(read) == [1, 3]


def test_figures_are_handed_out_as_copies():
    X, _ = data()
    rows = as_rows(in_blocks(X))
    v = constant_vector(rows, 1.0, float)
    for figure in (rows.mean, lambda: rows.combine(v), lambda: rows.table[[1, 2]]):
        before = figure().copy()
        figure()[:] = -1.0
        np.testing.assert_array_equal(figure(), before)


def test_recipes_and_programs_travel():
    table, (v,), (a,) = vectors(9, (4,), 0, "f8")
    recipe = pickle.loads(pickle.dumps(np.where(v > 0, v, -1.0).recipe))
    assert recipe.key == np.where(v > 0, v, -1.0).recipe.key
    same(RowVector(table, recipe), np.where(a > 0, a, -1.0))
    assert Apply(np.add, [recipe, 1]).key != Apply(np.add, [recipe, 2]).key
    assert View(offset=np.zeros(2)).key != View(offset=np.ones(2)).key


def test_threads():
    X, rng = data(300)
    with dask.config.set(scheduler="threads"):
        sources_agree(as_rows(in_blocks(X, (20,))), DenseRows(X), rng)


# ---------------------------------------------------------------------- rows drawn


@quick
@given(**tables, count=st.integers(0, 12), zeros=st.floats(0, 1))
def test_rows_drawn_are_the_same_in_blocks(n, sizes, seed, count, zeros):
    rng = np.random.default_rng(seed)
    weights = rng.random(n) * (rng.random(n) >= zeros)
    table = as_table(in_blocks(np.ones((n, 1)), sizes))
    here = as_beside(table, weights, "weights")
    one = drawn_rows(n, weights, count, np.random.default_rng(seed))
    two = drawn_rows(n, here, count, np.random.default_rng(seed))
    np.testing.assert_array_equal(one, two)
    assert one.size == np.unique(one).size == min(count, np.count_nonzero(weights))
    assert np.all(weights[one] > 0)
    assert np.all(np.diff(one) > 0)


def test_a_draw_does_not_list_all_rows():
    """A few of 10^12 rows are drawn without an array of as many numbers."""
    chosen = drawn_rows(10**12, None, 5, np.random.default_rng(0))
    assert chosen.shape == (5,)


# ---------------------------------------------------------------------- the journal


def figures_of(X, sample_weight=None):
    rows = as_rows(X, sample_weight=sample_weight)
    centred = rows.centered()
    chosen = centred.scores(np.ones(X.shape[1])) > 0
    rows.prefetch(lambda: (chosen.sum(), centred.moments(chosen, center=np.zeros(X.shape[1]))))
    drawn = drawn_rows(X.shape[0], rows.weights, 3, np.random.default_rng(0))
    part = centred.moments(chosen, center=np.zeros(X.shape[1]))
    nothing = centred.moments(chosen & ~chosen, center=np.zeros(X.shape[1])).weight
    return rows.mean(), int(chosen.sum()), part.second, rows.table[drawn], nothing


def figures_agree(one, two):
    for a, b in zip(one, two, strict=True):
        close(a, b)


def journalled(folder, X, **options):
    found = {}
    with checkpoint(folder) as journal:
        passes = passes_of(lambda: found.update(figures=figures_of(X, **options)))
    return found["figures"], journal, passes


def test_what_is_written_down_is_not_found_again(tmp_path):
    X, rng = data()
    weights = rng.random(24)
    first, wrote, passes = journalled(
        tmp_path / "new" / "folder", in_blocks(X), sample_weight=weights
    )
    assert wrote.n_read == 0
    assert wrote.n_written == sum(len(report.figures) for report in passes) > 5
    again, read, none = journalled(
        tmp_path / "new" / "folder", in_blocks(X), sample_weight=weights
    )
    assert (read.n_read, read.n_written, none) == (wrote.n_written, 0, [])
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not list((tmp_path / "new" / "folder").glob(".*.part"))
    assert passes_of(lambda: figures_of(in_blocks(X), weights))  # outside, nothing is read


def test_a_fit_that_was_killed_goes_on(tmp_path):
    X, _ = data()
    whole, _, passes = journalled(tmp_path / "whole", in_blocks(X))
    n_passes = len(passes)
    assert n_passes > 3

    class Killed(BaseException):
        pass

    def kill(report):
        if report.number == 3:
            raise Killed

    with pytest.raises(Killed), checkpoint(tmp_path / "part"), report_passes(kill):
        figures_of(in_blocks(X))
    found, journal, passes = journalled(tmp_path / "part", in_blocks(X))
    figures_agree(found, whole)
    # What a pass found is saved before anybody is told of it.
    assert len(passes) == n_passes - 3
    assert journal.n_read >= 3


def test_other_data_are_refused(tmp_path):
    X, _ = data()
    journalled(tmp_path, in_blocks(X))
    other = X.copy()
    other[3, 1] += 1e-9
    for wrong in (in_blocks(other), in_blocks(X[:-1]), in_blocks(X.astype(np.float32))):
        rows = as_rows(wrong)
        with checkpoint(tmp_path):
            for _ in range(2):  # asked again, it is no better
                with pytest.raises(
                    ValueError, match=r"belongs to other data.*Give another folder"
                ):
                    rows.mean()
    journalled(tmp_path, in_blocks(X))


def test_an_empty_first_block_is_no_witness(tmp_path):
    X, _ = data()
    journalled(tmp_path, in_blocks(X, (0, 13)))
    with pytest.raises(ValueError, match="other data"):
        journalled(tmp_path, in_blocks(X + 1, (0, 13)))


def test_other_chunks_go_on(tmp_path):
    """Sums do not mind; the sums of each block, which rows are looked for by, are found anew."""
    X, rng = data()
    weights = rng.random(24) * (rng.random(24) < 0.5)
    plain = figures_of(in_blocks(X), sample_weight=weights)
    journalled(tmp_path, in_blocks(X, (7,)), sample_weight=weights)
    for path in tmp_path.glob("*.npz"):  # a part of them, as though it had been killed
        if path.name < "8":
            path.unlink()
    for sizes in ((11,), (1,), (24,)):
        found, journal, _ = journalled(tmp_path, in_blocks(X, sizes), sample_weight=weights)
        figures_agree(found, plain)
        assert journal.n_read > 0


def test_other_weights_are_not_mixed_up(tmp_path):
    X, rng = data()
    weights = [rng.random(24), rng.random(24), None]
    for _ in range(2):
        for one in weights:
            found, _, _ = journalled(tmp_path, in_blocks(X), sample_weight=one)
            figures_agree(found, figures_of(in_blocks(X), sample_weight=one))


def test_other_weights_of_the_same_name_are_refused(tmp_path):
    X, rng = data()
    for first in (True, False):
        weights = da.from_array(rng.random(24), chunks=7, name="weights")
        if first:
            journalled(tmp_path, in_blocks(X), sample_weight=weights)
            continue
        with pytest.raises(ValueError, match="other weights or labels than those named 'weights'"):
            journalled(tmp_path, in_blocks(X), sample_weight=weights)


class Hostile:
    """Tells when it is unpickled."""

    woken = 0

    def __reduce__(self):
        return _wake, ()


def _wake():
    Hostile.woken += 1
    return np.zeros(1)


def damaged(kind, whole):
    """The bytes of a file that is not what was written."""
    memory = io.BytesIO()
    if kind == "truncated":
        return whole[: len(whole) // 2]
    if kind == "empty":
        return b""
    if kind == "noise":
        return bytes(range(256)) * 4
    if kind == "flipped":
        middle = whole.find(b"\x93NUMPY") + 130
        return (
            whole[:middle]
            + bytes(255 - b for b in whole[middle : middle + 4])
            + whole[middle + 4 :]
        )
    if kind == "array":
        np.save(memory, np.ones(3))
    elif kind == "pickle":
        return pickle.dumps(Hostile())
    elif kind == "hostile":
        np.savez(memory, np.array([Hostile()], dtype=object))
    elif kind == "other names":
        np.savez(memory, first=np.ones(3))
    return memory.getvalue()


@pytest.mark.parametrize(
    "kind",
    ["truncated", "empty", "noise", "flipped", "array", "pickle", "hostile", "other names"],
)
def test_damaged_files_are_found_anew(tmp_path, kind):
    X, _ = data()
    plain, wrote, _ = journalled(tmp_path, in_blocks(X))
    before = {path: path.read_bytes() for path in tmp_path.glob("*.npz")}
    for path, content in before.items():
        path.write_bytes(damaged(kind, content))
    found, journal, _ = journalled(tmp_path, in_blocks(X))
    figures_agree(found, plain)
    assert Hostile.woken == 0
    # An empty figure has nothing to flip.
    assert journal.n_read <= 1
    assert journal.n_written >= wrote.n_written - 1
    _, healed, _ = journalled(tmp_path, in_blocks(X))
    assert healed.n_written == 0


def test_a_marker_that_is_no_text(tmp_path):
    journalled(tmp_path, in_blocks(data()[0]))
    (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="Give another folder"):
        journalled(tmp_path, in_blocks(data()[0]))


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(ValueError, match=r"needs a folder.*is a file"), checkpoint(path):
        pass


def test_objects_are_not_written_down(tmp_path):
    X, _ = data(9)
    with checkpoint(tmp_path) as journal:
        table = as_table(in_blocks(X, (4,)))
        labels = as_beside(table, np.array(list("abbabaaab"), dtype=object), "labels")
        assert list(labels.distinct()[0]) == ["a", "b"]
    assert journal.n_written == 0
    assert not list(tmp_path.glob("*.npz"))


def test_listeners_are_let_go():
    table, (v,), _ = vectors(9, (4,), 0, "f8")
    outer, inner = [], []
    with report_passes(outer.append):
        with report_passes(inner.append):
            v.sum()
        v.max()
    v.distinct()
    assert [report.number for report in outer] == [1, 2]
    assert [report.figures for report in inner] == [("Sum",)]
    assert table.rows_of.n_passes == 3


def test_squares_show_what_is_not_finite():
    X, _ = data()
    for wrong in (np.nan, np.inf, 1e200):
        Y = X.copy()
        Y[17, 2] = wrong
        for make in (in_blocks, csr_blocks):
            assert not np.isfinite(as_table(make(Y)).ask(Squares()))
    assert as_table(csr_blocks(X)).ask(Squares()) == pytest.approx((X**2).sum())


def test_figures_are_kept_up_to_a_size(monkeypatch):
    from volmar.rows.blocks import table as table_module

    monkeypatch.setattr(table_module, "KEPT_BYTES", 100)
    table, (v,), (a,) = vectors(9, (4,), 0, "f8")
    table.prefetch(lambda: [(v + k).sum() for k in range(40)])
    assert len(table.rows_of._known) <= 40
    for k in range(40):
        assert (v + k).sum() == (a + k).sum()


def test_table_is_a_matrix():
    X, _ = data()
    table = as_table(in_blocks(X))
    assert isinstance(table, BlockTable)
    assert (table.shape, table.ndim, len(table), table.dtype) == ((24, 5), 2, 24, X.dtype)
    np.testing.assert_array_equal(table.row_numbers().to_dask().compute(), np.arange(24))
    np.testing.assert_array_equal(table.first_mean(10), X[:10].mean(axis=0))
