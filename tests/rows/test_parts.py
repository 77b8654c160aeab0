"""Parts of rows and their samples, sums of clusters: memory, blocks and brute force agree."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.blocks import close, csr_blocks, data, in_blocks, passes_of, quick, tables
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from volmar.rows import (
    BlockRows,
    Split,
    as_beside,
    as_rows,
    as_table,
    cluster_sums,
    discriminant_labels,
    of_rows,
    parts_of,
    sums_by_discriminants,
)
from volmar.rows.cells import Cells
from volmar.rows.parts import row_ranks


class Above:
    """The rows whose j-th column is above a cut, as a split that can travel."""

    def __init__(self, j, cut):
        self.j, self.cut = j, cut

    def __call__(self, X):
        column = X[:, [self.j]]
        return (column.toarray() if sparse.issparse(column) else column)[:, 0] > self.cut


def expected_sample(rows, weights, most, seed):
    """By hand: all rows of a small part, else those of positive weight that rank first."""
    if rows.size <= most:
        return rows
    weights = np.ones(rows.max() + 1) if weights is None else weights
    counted = rows[weights[rows] > 0]
    ranks = row_ranks(counted.astype(np.uint64), seed, 1.0)
    return np.sort(counted[np.argsort(ranks)[:most]])


def check_part(part, rows, X, weights, most, seed):
    assert part.n_rows == rows.size
    assert part.weight == pytest.approx(rows.size if weights is None else weights[rows].sum())
    if rows.size:
        assert part.first == rows[0]
    chosen = expected_sample(rows, weights, most, seed)
    np.testing.assert_array_equal(part.numbers, chosen)
    assert part.is_whole == (chosen.size == rows.size)
    found = part.X.toarray() if sparse.issparse(part.X) else part.X
    np.testing.assert_array_equal(found, X[chosen])
    assert found.dtype == X.dtype
    if weights is None:
        assert part.weights is None
    else:
        np.testing.assert_array_equal(part.weights, weights[chosen])


def grown(source, seed, X, weights, most):
    """Split twice, the second time both sides together, and check all parts."""
    every = np.arange(len(X))
    check_part(source.root, every, X, weights, most, seed)
    first, second = Above(0, 2.0), Above(1, 2.5)
    split = Split(first(source.root.X), first)
    (halves,) = source.split([(source.root, split)], 1)
    source.draw(halves)
    sides = [every[~first(X)], every[first(X)]]
    for half, rows in zip(halves, sides, strict=True):
        check_part(half, rows, X, weights, most, seed)
    both = [(half, Split(second(half.X), second)) for half in halves if half.n_rows]
    quarters = [part for pair in source.split(both, len(both)) for part in pair]
    source.draw(quarters)
    inside = [rows for rows in sides if rows.size]
    expected = [
        side for rows in inside for side in (rows[~second(X[rows])], rows[second(X[rows])])
    ]
    for quarter, rows in zip(quarters, expected, strict=True):
        check_part(quarter, rows, X, weights, most, seed)
    labels = np.empty(len(X), dtype=int)
    for number, rows in enumerate(expected):
        labels[rows] = number + 3
    numbers = range(3, 3 + len(expected))
    chosen = source.root.numbers
    np.testing.assert_array_equal(source.sample_labels(quarters, numbers), labels[chosen])
    return source.labels(quarters, numbers), labels


@quick
@given(**tables, most=st.integers(2, 12), kind=st.sampled_from(["dense", "float32", "csr"]))
def test_the_same_samples_in_memory_and_in_blocks(n, sizes, seed, most, kind):
    X, rng = data(n, 3, seed, np.float32 if kind == "float32" else np.float64)
    for weights in (None, rng.integers(0, 3, n).astype(float)):
        if weights is not None and not weights.any():
            continue
        memory = parts_of(
            sparse.csr_matrix(X) if kind == "csr" else X, weights, most=most, seed=seed
        )
        found, labels = grown(memory, seed, X, weights, most)
        np.testing.assert_array_equal(found, labels)
        lazy = csr_blocks(X, sizes) if kind == "csr" else in_blocks(X, sizes)
        table = as_table(lazy)
        beside = None if weights is None else as_beside(table, weights, "weights")
        blocks = parts_of(table, beside, most=most, seed=seed)
        found, labels = grown(blocks, seed, X, weights, most)
        np.testing.assert_array_equal(found.to_dask().compute(), labels)


def test_samples_are_fair_and_depend_on_the_seed():
    X = np.zeros((4000, 1))
    drawn = [parts_of(X, None, most=1000, seed=seed).root.numbers for seed in range(40)]
    counts = np.bincount(np.concatenate(drawn), minlength=4000)
    # Binomial: 10 of 40 on average, with a variance of 7.5.
    assert counts.mean() == 10
    assert abs(counts.var() - 7.5) < 1.0
    neighbours = [np.mean(np.isin(numbers + 1, numbers)) for numbers in drawn]
    assert abs(np.mean(neighbours) - 0.25) < 0.02


def test_few_rows_travel():
    X, _ = data(6000, 3)
    table = as_table(in_blocks(X, (700,)))
    (report,) = passes_of(lambda: parts_of(table, None, most=500, seed=0))
    assert report.figures == ("Drawn",)
    (whole,) = table.rows_of._known.values()
    assert 500 <= len(whole[5]) < 700


def test_a_limit_that_was_too_low(monkeypatch):
    """Without spare rows about every second sample needs another pass, and is still exact."""
    monkeypatch.setattr("volmar.rows.parts.SPARE", -3.0)
    X, _ = data(3000, 3)
    table = as_table(in_blocks(X, (700,)))
    assert len(passes_of(lambda: parts_of(table, None, most=500, seed=1))) == 2
    root = parts_of(table, None, most=500, seed=1).root
    check_part(root, np.arange(3000), X, None, 500, 1)


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
