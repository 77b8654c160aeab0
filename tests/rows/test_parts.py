"""Parts of rows and their samples, sums of clusters: memory, blocks and brute force agree."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.blocks import close, csr_blocks, data, in_blocks, passes_of, quick, tables
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from volmar.rows import parts
from volmar.rows.anywhere import as_rows, of_rows
from volmar.rows.blocks import BlockRows, as_beside, as_table
from volmar.rows.cluster_sums import cluster_sums, discriminant_labels, sums_by_discriminants
from volmar.rows.parts import Cells, Parts, Split, row_ranks


class Above:
    """The rows whose j-th column is above a cut, as a picklable split."""

    def __init__(self, j, cut):
        self.j, self.cut = j, cut

    def __call__(self, X):
        column = X[:, [self.j]]
        return (column.toarray() if sparse.issparse(column) else column)[:, 0] > self.cut


def first_rows(rows, weights, most, seed):
    """Return the expected sample: all rows if few, else the first drawn of positive weight."""
    if rows.size <= most:
        return rows
    weights = np.ones(rows.max() + 1) if weights is None else weights
    counted = rows[weights[rows] > 0]
    ranks = row_ranks(counted.astype(np.uint64), seed, 1.0)
    return np.sort(counted[np.argsort(ranks)[:most]])


def check_sample(part, pool, X, weights, most, seed):
    """Check a part; `pool` contains its drawn rows."""
    chosen = first_rows(pool, weights, most, seed)
    np.testing.assert_array_equal(part.numbers, chosen)
    found = part.X.toarray() if sparse.issparse(part.X) else part.X
    np.testing.assert_array_equal(found, X[chosen])
    assert found.dtype == X.dtype
    if weights is None:
        assert part.weights is None
    else:
        np.testing.assert_array_equal(part.weights, weights[chosen])


def grown(source, X, weights, most, seed, size, fewest):
    """Split twice and check all parts; return the labels, the expected labels, and the parts."""
    every = np.arange(len(X))
    root, pool = source.root, first_rows(every, weights, size, seed)
    assert root.n_rows == len(X)
    check_sample(root, pool, X, weights, most, seed)
    # All rows of each part, the drawn rows, and the size of their pool.
    leaves, inside = [root], [(every, pool, pool.size, len(X))]
    for side in (Above(0, 2.0), Above(1, 2.5)):
        halves, parted = [], []
        for leaf, (rows, drawn, total, of) in zip(leaves, inside, strict=True):
            if np.unique(side(X[rows])).size < 2 or not leaf.numbers.size:
                halves, parted = [*halves, leaf], [*parted, (rows, drawn, total, of)]
                continue
            halves += source.split(leaf, Split(side(leaf.X), side))
            for is_second in (False, True):
                mine = [some[side(X[some]) == is_second] for some in (rows, drawn)]
                parted.append((*mine, total, of))
        leaves, inside = halves, parted
        source.draw(leaves)
        for i, (rows, drawn, total, of) in enumerate(inside):
            if drawn.size < min(fewest, most, total) and total < of:  # it gets a separate pool
                new = first_rows(rows, weights, most, seed)
                inside[i] = rows, new, new.size, rows.size
        for leaf, (rows, drawn, total, of) in zip(leaves, inside, strict=True):
            check_sample(leaf, drawn, X, weights, most, seed)
            assert leaf.is_whole == (leaf.numbers.size == drawn.size and total == of)
            if total == of:
                assert leaf.n_rows == rows.size
    found = source.sizes(leaves)
    w = np.ones(len(X)) if weights is None else weights
    np.testing.assert_array_equal(found.n_rows, [rows.size for rows, *_ in inside])
    np.testing.assert_allclose(found.weight, [w[rows].sum() for rows, *_ in inside])
    np.testing.assert_array_equal(found.first, [rows[0] for rows, *_ in inside])
    labels = np.empty(len(X), dtype=int)
    for number, (rows, *_) in enumerate(inside):
        labels[rows] = number + 3
    numbers = range(3, 3 + len(leaves))
    np.testing.assert_array_equal(source.sample_labels(leaves, numbers), labels[root.numbers])
    return source.labels(leaves, numbers), labels, leaves


@quick
@given(
    **tables,
    most=st.integers(2, 12),
    more=st.integers(0, 25),
    fewest=st.sampled_from([0, 5, 99]),
    kind=st.sampled_from(["dense", "float32", "csr"]),
)
def test_the_same_samples_in_memory_and_in_blocks(n, sizes, seed, most, more, fewest, kind):
    X, rng = data(n, 3, seed, np.float32 if kind == "float32" else np.float64)
    size = min(n, most + more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "POOL_BYTES", (most + more) * 3 * X.dtype.itemsize)
        patch.setattr(parts, "MIN_POOL_ROWS", fewest)
        for weights in (None, rng.integers(0, 3, n).astype(float)):
            if weights is not None and not weights.any():
                continue
            given_rows = sparse.csr_matrix(X) if kind == "csr" else X
            memory = Parts(given_rows, weights, most=most, seed=seed)
            found, labels, here = grown(memory, X, weights, most, seed, size, fewest)
            np.testing.assert_array_equal(found, labels)
            table = as_table(csr_blocks(X, sizes) if kind == "csr" else in_blocks(X, sizes))
            beside = None if weights is None else as_beside(table, weights, "weights")
            blocks = Parts(table, beside, most=most, seed=seed)
            found, labels, there = grown(blocks, X, weights, most, seed, size, fewest)
            np.testing.assert_array_equal(found.to_dask().compute(), labels)
            for one, other in zip(here, there, strict=True):
                np.testing.assert_array_equal(one.numbers, other.numbers)
                assert (one.n_rows, one.is_whole) == (other.n_rows, other.is_whole)
                assert one.weight == pytest.approx(other.weight, rel=1e-12)


def test_samples_are_fair_and_depend_on_the_seed():
    X = np.zeros((4000, 1))
    drawn = [Parts(X, None, most=1000, seed=seed).root.numbers for seed in range(40)]
    counts = np.bincount(np.concatenate(drawn), minlength=4000)
    # Binomial: 10 of 40 on average, with a variance of 7.5.
    assert counts.mean() == 10
    assert abs(counts.var() - 7.5) < 1.0
    neighbours = [np.mean(np.isin(numbers + 1, numbers)) for numbers in drawn]
    assert abs(np.mean(neighbours) - 0.25) < 0.02


def test_sizes_are_estimated_in_the_pool(monkeypatch):
    monkeypatch.setattr(parts, "POOL_BYTES", 2000 * 24)
    monkeypatch.setattr(parts, "MIN_POOL_ROWS", 100)
    X, rng = data(20_000, 3)
    weights = rng.integers(0, 3, 20_000).astype(float)
    source = Parts(X, weights, most=500, seed=0)
    side = Above(0, 2.5)
    half = source.split(source.root, Split(side(source.root.X), side))[1]
    assert half.n_rows == pytest.approx(np.count_nonzero(side(X)), rel=0.1)
    assert half.weight == pytest.approx(weights[side(X)].sum(), rel=0.1)
    source.draw([half])
    assert half.numbers.size == 500
    assert half.scale == pytest.approx(half.weight / half.weights.sum())


def test_few_rows_travel(monkeypatch):
    monkeypatch.setattr(parts, "POOL_BYTES", 0)
    X, _ = data(6000, 3)
    table = as_table(in_blocks(X, (700,)))
    (report,) = passes_of(lambda: Parts(table, None, most=500, seed=0))
    assert report.figures == ("Drawn",)
    (whole,) = table.rows_of._known.values()
    assert 500 <= len(whole[5]) < 700


def test_a_limit_that_was_too_low(monkeypatch):
    """If too few rows are below the limit, another pass is made, and the sample is exact."""
    monkeypatch.setattr(parts, "SPARE", -3.0)
    monkeypatch.setattr(parts, "POOL_BYTES", 0)
    X, _ = data(3000, 3)
    table = as_table(in_blocks(X, (700,)))
    assert len(passes_of(lambda: Parts(table, None, most=500, seed=1))) == 2
    root = Parts(table, None, most=500, seed=1).root
    check_sample(root, np.arange(3000), X, None, 500, 1)


def test_a_deep_tree_has_cells():
    sides = [Above(0, float(cut)) for cut in range(3000)]
    path, paths = (), []
    for side in sides:
        paths.append((*path, (side, False)))
        path = (*path, (side, True))
    cells = pickle.loads(pickle.dumps(Cells([paths[0], paths[7], path], [5, 0, 2])))
    rows = np.array([[-1.0], [6.5], [8.5], [5000.0]])
    np.testing.assert_array_equal(cells(rows), [5, 0, -1, 2])


# ---------------------------------------------------------------------- sums of clusters


@quick
@given(**tables, kind=st.sampled_from(["dense", "float32", "csr"]), weighted=st.booleans())
def test_sums_of_clusters(n, sizes, seed, kind, weighted):
    X, rng = data(n, 3, seed, np.float32 if kind == "float32" else np.float64)
    weights = rng.integers(1, 4, n).astype(float) if weighted else None
    labels, before = rng.integers(0, 4, n), rng.integers(0, 4, n)
    W, offsets = rng.normal(size=(3, 4)), rng.normal(size=4)
    memory = as_rows(sparse.csr_matrix(X) if kind == "csr" else X, sample_weight=weights)
    lazy = csr_blocks(X, sizes) if kind == "csr" else in_blocks(X, sizes)
    blocks = as_rows(as_table(lazy), sample_weight=weights)
    w = np.ones(n) if weights is None else weights
    for rows in (memory, memory.centered(), blocks, blocks.centered()):
        seen = X - (0.0 if rows.offset is None else rows.offset)
        best = np.argmax(seen @ W + offsets, axis=1)
        is_lazy = isinstance(rows, BlockRows)
        over = (lambda v: as_beside(rows.table, v, "v")) if is_lazy else (lambda v: v)  # noqa: B023
        given_labels = cluster_sums(rows, over(labels), 4)
        found = sums_by_discriminants(rows, W, offsets, over(before))
        for sums, own in ((given_labels, labels), (found, best)):
            held = sums.labels.to_dask().compute() if is_lazy else sums.labels
            np.testing.assert_array_equal(held, own)
            np.testing.assert_array_equal(sums.n_rows, np.bincount(own, minlength=4))
            close(sums.weight, np.bincount(own, w, 4))
            one_hot = (own[:, None] == np.arange(4)) * w[:, None]
            close(sums.vectors, one_hot.T @ seen, X.dtype)
            first = [np.flatnonzero(own == j)[0] if (own == j).any() else n for j in range(4)]
            np.testing.assert_array_equal(sums.first, first)
        assert found.moved == np.count_nonzero(best != before)
        assert (found.key == given_labels.key) == np.array_equal(best, labels)
        alone = discriminant_labels(rows, W, offsets)
        np.testing.assert_array_equal(alone.to_dask().compute() if is_lazy else alone, best)


def test_functions_of_rows():
    X, _ = data(24)
    for rows, found in ((X, None), (as_table(in_blocks(X)), "blocks")):
        side = of_rows(rows, Above(0, 2.0), bool)
        side = side if found is None else side.to_dask().compute()
        np.testing.assert_array_equal(side, X[:, 0] > 2.0)


def test_functions_that_cannot_travel():
    X, _ = data(24)
    with pytest.raises(TypeError, match="must be picklable"):
        of_rows(as_table(in_blocks(X)), lambda rows: rows[:, 0] > 2.0, bool)
