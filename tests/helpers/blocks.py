"""Tables in blocks, the equivalent arrays, and comparisons of both."""

from __future__ import annotations

import operator

import dask.array as da
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from scipy import sparse

from volmar.distributed import report_passes
from volmar.rows.anywhere import bin_sums, centered_with_moments
from volmar.rows.blocks import RowVector, as_beside, as_table

quick = settings(max_examples=15, deadline=None)


class Scaling:
    """A feature map with obvious results."""

    def transform(self, X):
        return (X.toarray() if sparse.issparse(X) else X) * X.dtype.type(2)


def cut_up(n, sizes):
    """Return chunk sizes for n rows that repeat the given sizes."""
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
    """Return the reports of the passes during an action."""
    passes = []
    with report_passes(passes.append):
        action()
    return passes


def vectors(n, sizes, seed, *dtypes):
    """Return vectors over the rows of a table, and the equivalent arrays."""
    rng = np.random.default_rng(seed)
    table = as_table(in_blocks(rng.normal(size=(n, 2)), sizes))
    least = {"u8": 0}
    arrays = [
        (rng.integers(least.get(kind, -3), 4, n) * (0.5 if "f" in kind else 1)).astype(kind)
        for kind in dtypes
    ]
    return table, [as_beside(table, array, "array") for array in arrays], arrays


def same(vector, array):
    """Assert that a vector has the shape, dtype and entries of an array."""
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
    """Assert that all methods of a row source give the same results in blocks and in memory."""
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
        # and again for the centred rows
        blocks, rows = blocks.centered(), rows.centered()
        close(blocks.mean(), np.zeros(d), dtype)
