"""Functions of each row, sums by label and quantiles, in memory and in blocks."""

import dask.array as da
import numpy as np
import pytest
from helpers.blocks import in_blocks, passes_of, quick, same, tables
from hypothesis import given
from hypothesis import strategies as st

from volmar.distributed import report_passes
from volmar.rows.anywhere import (
    as_rows,
    cluster_sizes,
    column_products,
    every,
    row_wise,
    sums_by_label,
    weighted_quantile,
)
from volmar.rows.blocks import as_table, ranks
from volmar.rows.blocks.ranks import number_of, ordered_bits


def beside(table, array):
    return table.beside(da.from_array(array, chunks=(table.rows_of.X.chunks[0],)))


def shifted_pairs(values, labels, table):
    return values[:, None] + table[labels]


@given(**tables)
@quick
def test_a_function_of_each_row(n, sizes, seed):
    rng = np.random.default_rng(seed)
    table = as_table(in_blocks(rng.normal(size=(n, 2)), sizes))
    values, labels = rng.normal(size=n), rng.integers(0, 3, n)
    # The constant has as many entries as there are rows, but is not a vector.
    constant = rng.normal(size=(3, 2))
    found = row_wise(shifted_pairs, beside(table, values), beside(table, labels), constant)
    same(found, row_wise(shifted_pairs, values, labels, constant))


def test_vectors_over_other_rows_are_refused():
    one, two = (as_table(in_blocks(np.ones((9, 2)))).full(1.0, np.float64) for _ in range(2))
    with pytest.raises(ValueError, match="different rows"):
        row_wise(np.add, one, two)


@given(**tables, weighted=st.booleans())
@quick
def test_sums_and_first_rows_by_label(n, sizes, seed, weighted):
    rng = np.random.default_rng(seed)
    table = as_table(in_blocks(rng.normal(size=(n, 2)), sizes))
    labels, weights = rng.integers(0, 4, n), rng.integers(0, 5, n) * 0.5
    there = beside(table, labels)
    w, w_there = (weights, beside(table, weights)) if weighted else (None, None)
    for function in (sums_by_label, cluster_sizes):
        near, far = function(labels, w, 4), function(there, w_there, 4)
        np.testing.assert_array_equal(far, near)
    columns = rng.normal(size=(n, 3))
    of = as_rows(table).scores(np.eye(2, 3))
    product = column_products(of, of * 2.0)
    np.testing.assert_allclose(product, 2.0 * (of.to_dask().compute() ** 2).sum(axis=0))
    np.testing.assert_allclose(column_products(columns, columns), (columns**2).sum(axis=0))


@given(**tables, kind=st.sampled_from(["f8", "f4", "tied"]), level=st.floats(0.0, 1.2))
@quick
def test_a_quantile_by_passes_is_the_sorted_one(n, sizes, seed, kind, level):
    rng = np.random.default_rng(seed)
    table = as_table(in_blocks(rng.normal(size=(n, 2)), sizes))
    values = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4, n)
    values = np.round(values) if kind == "tied" else values.astype(kind)
    weights = rng.random(n)
    weights /= weights.sum()
    for w in (weights, np.full(n, 1.0 / n), None):
        mass = level if w is not None else level * n
        near = weighted_quantile(values, w, mass)
        of = None if w is None else beside(table, w)
        far = weighted_quantile(beside(table, values), of, mass)
        assert near == far
        order = np.argsort(values)
        total = np.cumsum((np.ones(n) if w is None else w)[order])
        reached = np.flatnonzero(total >= mass * (1 - 1e-9))
        assert near == values[order[reached[0] if reached.size else -1]]


def test_a_quantile_of_tied_and_many_rows(monkeypatch):
    monkeypatch.setattr(ranks, "FEW", 5)
    rng = np.random.default_rng(0)
    table = as_table(in_blocks(np.ones((3000, 1)), (700,)))
    for values in (np.full(3000, -0.25), rng.normal(size=3000), rng.integers(0, 3, 3000) / 3.0):
        there = beside(table, values)
        passes = []
        with report_passes(passes.append):
            found = weighted_quantile(there, None, 1200)
        assert found == np.sort(values)[1199]
        assert len(passes) <= 5


def test_bits_are_in_the_order_of_numbers():
    for kind in ("f4", "f8"):
        limits = np.finfo(kind)
        values = np.array(
            [-np.inf, limits.min, -1.0, -limits.tiny, -0.0, 0.0, limits.tiny, 1.0, np.inf], kind
        )
        bits = ordered_bits(values)
        assert np.all(np.diff(bits.astype(float)) >= 0)
        assert bits[4] == bits[5]
        np.testing.assert_array_equal([number_of(one, np.dtype(kind)) for one in bits], values)


def test_every_so_manieth_entry_costs_one_pass():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(500, 3)), rng.random(500)
    table = as_table(in_blocks(X, (120,)))
    given_weights = beside(table, weights)
    w = rng.normal(size=3)
    found = []

    def look():
        found.append(every(as_rows(table).scores(w), 7))
        found.append(every(given_weights * 2.0, 7))
        found.append(every(as_rows(table).scores(2 * w), 7))

    assert len(passes_of(look)) == 2
    for far, near in zip(found, (X @ w, 2.0 * weights, 2 * X @ w), strict=True):
        np.testing.assert_allclose(far, near[::7], rtol=1e-12)
        np.testing.assert_array_equal(every(near, 7), near[::7])
