"""Passes over rows in blocks, and draws of rows."""

from __future__ import annotations

import pickle

import dask
import numpy as np
import pytest
from helpers.blocks import (
    close,
    csr_blocks,
    data,
    in_blocks,
    passes_of,
    quick,
    same,
    sources_agree,
    tables,
    vectors,
)
from hypothesis import given
from hypothesis import strategies as st

from volmar.distributed import report_passes
from volmar.rows.anywhere import (
    as_rows,
    bin_sums,
    centered_with_moments,
    constant_vector,
    drawn_rows,
    in_one_pass,
    mask_key,
    prefetch,
)
from volmar.rows.blocks import BlockTable, RowVector, as_beside, as_table
from volmar.rows.blocks.recipes import Apply, RowView
from volmar.rows.blocks.sums import Squares
from volmar.rows.tiled import DenseRows


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
    # Cached results need no pass, inside or outside of the call.
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
    with pytest.raises(TypeError, match="selected"):
        table.prefetch(lambda: v[[1, 2]])
    assert not table.is_collecting
    # An error in a block.
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


def test_results_are_returned_as_copies():
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
    assert RowView(offset=np.zeros(2)).key != RowView(offset=np.ones(2)).key


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
    """Drawing a few of 10^12 rows does not allocate an array of 10^12 numbers."""
    chosen = drawn_rows(10**12, None, 5, np.random.default_rng(0))
    assert chosen.shape == (5,)


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


def test_results_are_cached_up_to_a_size(monkeypatch):
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
