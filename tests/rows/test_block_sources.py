"""Row sources of tables in blocks, and tables of dask collections."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from helpers.blocks import (
    CHUNKINGS,
    Scaling,
    csr_blocks,
    data,
    in_blocks,
    quick,
    sources_agree,
    tables,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from volmar.rows.anywhere import (
    as_rows,
    bin_sums,
    centered_with_moments,
    constant_vector,
    mask_key,
)
from volmar.rows.blocks import BlockRows, as_beside, as_table, is_dask
from volmar.rows.blocks.recipes import tiles
from volmar.rows.blocks.sums import MomentSum, Sum
from volmar.rows.tiled import DenseRows, SparseRows
from volmar.separation.gep import edge_split


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
    """Rows of weight 0 do not contribute to sums, but are counted in the rows of bins."""
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
    """Like all cuts, these are between two rows, and a new row is assigned to the nearer side."""
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
    with pytest.raises(TypeError, match=r"^v\b"):
        rows.combine(np.ones(24))
    with pytest.raises(TypeError, match=r"^mask .*vector"):
        rows.moments(np.ones(24, dtype=bool))
    with pytest.raises(ValueError, match=r"^mask .*got dtype float64"):
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
    assert np.isnan(kept.shape[0])  # the input is not modified
    there = X[:, 0] > 2.0
    sources_agree(rows, DenseRows(X[there], sample_weight=X[there, 1] ** 2), rng)
    with pytest.raises(ValueError, match=r"^X .*least one row"):
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
    with pytest.raises(TypeError, match=r"^X .*astype\(float\)"):
        as_table(da.from_array(X, chunks=(3, 2)))


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"^X .*dimensions"):
        as_table(da.ones(6, chunks=3))
    with pytest.raises(ValueError, match="got a dask array with 3"):
        as_table(da.ones((6, 2, 2), chunks=3))
    with pytest.raises(ValueError, match=r"got shape \(0, 2\)"):
        as_table(da.ones((0, 2)))
    with pytest.raises(ValueError, match=r"got shape \(6, 0\)"):
        as_table(da.ones((6, 0)))


def test_arrays_in_the_same_blocks():
    X, rng = data()
    table, v = as_table(in_blocks(X)), rng.random(24)
    for other in (v, list(v), da.from_array(v, chunks=24), da.from_array(v, chunks=(7,))):
        found = as_beside(table, other, "sample_weight")
        np.testing.assert_array_equal(found.to_dask().compute(), v)
        assert as_beside(table, found, "sample_weight") is found
    # Equal arrays are stored once.
    n_given = len(table.rows_of.given)
    as_beside(table, v.copy(), "sample_weight")
    assert len(table.rows_of.given) == n_given
    for wrong in (v[:-1], v[:, None], 1.0, da.from_array(v[:-1], chunks=7), da.ones((24, 1))):
        with pytest.raises(ValueError, match=r"^sample_weight"):
            as_beside(table, wrong, "sample_weight")


def test_dask_collections_are_recognised():
    assert is_dask(da.ones(3))
    for other in (np.ones(3), [1.0], None, "dask", sparse.eye_array(3), dask.delayed(np.ones)(3)):
        assert not is_dask(other)
