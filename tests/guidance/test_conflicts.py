"""Labels under cannot-link pairs, against brute force."""

import itertools

import numpy as np
import pytest

from volmar.guidance import conflicts as conflicts_module
from volmar.guidance.conflicts import conflict_graph
from volmar.guidance.guide import Guide


def best_by_trying_all(gains, pairs, fixed, k):
    """Return the minimum number of broken pairs, and the largest gains with that number."""
    best = (np.inf, np.inf)
    rows = np.arange(fixed.size)
    for labels in itertools.product(range(k), repeat=fixed.size):
        c = np.array(labels)
        if (c[fixed >= 0] != fixed[fixed >= 0]).any():
            continue
        n_broken = int((c[pairs[:, 0]] == c[pairs[:, 1]]).sum())
        best = min(best, (n_broken, -float(gains[rows, c].sum())))
    return best


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("seed", range(12))
def test_small_graphs_are_solved_exactly(k, seed):
    rng = np.random.default_rng(seed)
    n = 6
    pairs = np.array([p for p in itertools.combinations(range(n), 2) if rng.random() < 0.45])
    if not pairs.size:
        pairs = np.array([[0, 1]])
    gains = rng.standard_normal((n, k)) + (np.arange(k) == 0)
    fixed = np.full(n, -1)
    if seed % 2:
        fixed[rng.integers(n)] = rng.integers(k)
    found = conflict_graph(pairs, n).separate(gains, fixed)
    n_broken, value = best_by_trying_all(gains, pairs, fixed, k)
    labels = found.labels
    assert (labels[pairs[:, 0]] == labels[pairs[:, 1]]).sum() == n_broken
    assert gains[np.arange(n), labels].sum() == pytest.approx(-value)
    assert found.bound == pytest.approx(-value)


def test_seeds_may_leave_no_colouring():
    """A path of three rows whose ends have different labels cannot have two colours."""
    graph = conflict_graph(np.array([[0, 1], [1, 2]]), 3)
    gains = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    found = graph.separate(gains, np.array([0, -1, 1]))
    assert found.labels.tolist() == [0, 1, 1]


def test_a_bound_is_given_where_the_search_is_cut_short(monkeypatch):
    monkeypatch.setattr(conflicts_module, "MAX_NODES", 3)
    rng = np.random.default_rng(0)
    pairs = np.array(list(itertools.combinations(range(7), 2)))
    gains = rng.standard_normal((7, 8))
    found = conflict_graph(pairs, 7).separate(gains, np.full(7, -1))
    assert np.unique(found.labels).size == 7
    value = gains[np.arange(7), found.labels].sum()
    assert found.bound >= value
    assert found.bound == pytest.approx(gains.max(axis=1).sum())


def test_long_chains_have_two_colours_and_many_pairs_are_quick():
    n = 5000
    rng = np.random.default_rng(0)
    pairs = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    f = rng.standard_normal(n)
    guide = Guide(2, np.full(n, -1), apart=pairs)
    placed = guide.place_sides(f)
    assert placed.broken.shape == (0, 2)
    even = f[::2].sum() > f[1::2].sum()
    assert placed.labels[0] == even
    # For three clusters the chain is too long for a search.
    gains = rng.standard_normal((n, 3))
    placed = Guide(3, np.full(n, -1), apart=pairs).place(gains)
    assert placed.broken.shape == (0, 2)
    assert placed.gap > 0


def test_broken_pairs_are_returned_as_rows():
    triangle = np.array([[2, 4], [2, 6], [4, 6]])
    placed = Guide(2, np.full(8, -1), apart=triangle).place_sides(np.ones(8))
    assert placed.broken.shape == (1, 2)
    row, other = placed.broken[0]
    assert placed.labels[row] == placed.labels[other]


def test_units_are_apart_as_a_whole():
    units = np.array([0, 0, 1, 1, 2])
    guide = Guide(2, np.full(5, -1), units, np.array([[0, 2]]))
    placed = guide.place_sides(np.array([1.0, 1.0, 3.0, -0.5, 1.0]))
    assert placed.labels.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_sizes_and_pairs_together(seed):
    """Size limits are kept, and pairs if possible."""
    rng = np.random.default_rng(seed)
    n, k = 8, 2 + seed % 2
    gains = rng.standard_normal((n, k)) + np.arange(k)
    pairs = np.array([[0, 1], [2, 3], [4, 5]])
    high = np.full(k, np.ceil(n / k))
    guide = Guide(k, np.full(n, -1), apart=pairs, high=high)
    placed = guide.place(gains)
    assert (np.bincount(placed.labels, minlength=k) <= high).all()
    assert placed.broken.shape == (0, 2)
    best = max(
        sum(gains[i, c[i]] for i in range(n))
        for c in itertools.product(range(k), repeat=n)
        if (np.bincount(c, minlength=k) <= high).all() and all(c[a] != c[b] for a, b in pairs)
    )
    value = gains[np.arange(n), placed.labels].sum()
    assert value <= best + 1e-9
    assert value + placed.gap >= best - 1e-9


def test_sizes_come_before_pairs():
    """Three rows in pairwise conflict, and room for one row outside cluster 0."""
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    guide = Guide(
        3,
        np.full(4, -1),
        apart=pairs,
        low=np.array([3.0, 0.0, 0.0]),
        high=np.array([3.0, 1.0, 1.0]),
    )
    placed = guide.place(np.zeros((4, 3)))
    assert np.bincount(placed.labels, minlength=3)[0] == 3
    assert placed.excess == 0
    assert 1 <= placed.broken.shape[0] <= 3
