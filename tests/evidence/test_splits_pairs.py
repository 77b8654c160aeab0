"""Pairs of cells in their convex regions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volmar.evidence.densities import Valley
from volmar.evidence.pairs import (
    _bottleneck,
    clearest_pairs,
    in_region,
)
from volmar.evidence.two_groups import searched_rows


def equidistant(k, distance, *, n=1000, d=8, seed=0):
    """k normal groups of equal size, each pair of centres at the same distance."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return rng.normal(size=(n, d)) + distance / np.sqrt(2.0) * np.eye(d)[y], y


# ---------------------------------------------------------------------- regions


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**20), st.integers(2, 6))
def test_the_region_is_its_formula_and_convex(seed, k):
    rng = np.random.default_rng(seed)
    coef, intercept = rng.normal(size=(2, k)), rng.normal(size=k)
    X = 3.0 * rng.normal(size=(80, 2))
    i, j = rng.choice(k, 2, replace=False)

    def inside(rows):
        return in_region(rows @ coef + intercept, i, j)

    values = X @ coef + intercept
    for row, found in zip(values, inside(X), strict=True):
        assert found == all(
            row[i] + row[j] >= 2.0 * row[other] for other in range(k) if other not in (i, j)
        )
    held = X[inside(X)]
    for a, b in itertools.combinations(held[:12], 2):
        for share in (0.5, 0.9):
            middle = (share * a + (1 - share) * b)[None, :]
            row = (middle @ coef + intercept)[0]
            slack = min(
                [row[i] + row[j] - 2.0 * row[other] for other in range(k) if other not in (i, j)],
                default=1.0,
            )
            assert inside(middle)[0] or slack > -1e-9


# ---------------------------------------------------------------------- bottleneck


def brute_force_bottleneck(k, strength):
    """Return the maximum, over all bipartitions, of the minimum significance across."""
    best = -np.inf
    for others in itertools.product([False, True], repeat=k - 1):
        sides = np.array([False, *others])
        if not sides.any():
            continue
        across = [strength[e] for e in strength if sides[e[0]] != sides[e[1]]]
        best = max(best, min(across))
    return best


def test_arcs_of_a_ring_have_no_bottleneck():
    """Opposite arcs have a deep valley between them; neighbours have none."""
    k = 6
    valleys = {
        (i, j): Valley(0.0, 0.0, 0.0) if (j - i) in (1, k - 1) else Valley(0.0, 0.9, 9.0)
        for i, j in itertools.combinations(range(k), 2)
    }
    tree, _ = _bottleneck(k, valleys)
    assert set(tree.values()) == {0.0}


def test_pairs_without_rows_between_them_are_never_the_clearest():
    valleys = {(0, 1): Valley(0.0, 0.5, 3.0), (1, 2): Valley(0.0, 0.1, 1.0)}
    tree, sides = _bottleneck(4, valleys)
    assert tree == {(0, 1): 3.0, (1, 2): 1.0}
    assert sides.tolist() in ([False, True, True, False], [False, True, True, True])


# ---------------------------------------------------------------------- clearest pairs


def test_the_partition_into_three_groups_cuts_none(rng):
    X, y = equidistant(3, 8.0, n=600, d=3)
    pairs = clearest_pairs(searched_rows(X, rng), rng)
    three = next(pair for pair in pairs if pair.cells.intercept.size == 3)
    for j in range(3):
        side = three.cells.predict(X[y == j])
        assert max(side.mean(), 1 - side.mean()) > 0.99


def test_a_partition_without_a_valley_is_no_pair():
    """Each partition has a valley that no path avoids, or is left out."""
    n_pairs = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = searched_rows(rng.normal(size=(200, 2)), rng)
        pairs = clearest_pairs(rows, rng)
        n_pairs += len(pairs)
        assert all(pair.significance > 0 and pair.depth > 0 for pair in pairs)
    assert n_pairs < 70  # of 80


@pytest.mark.parametrize(
    "X",
    [
        np.full((100, 3), 2.0),
        np.repeat(np.eye(3), 30, axis=0)[:30],
        np.random.default_rng(0).normal(size=(30, 2)),
    ],
    ids=["constant", "one value", "few rows"],
)
def test_rows_without_a_pair(X, rng):
    assert clearest_pairs(searched_rows(X, rng), rng) == []


# ---------------------------------------------------------------------- the split that is made


FOUR = 5.0 * np.array([[0.0, 0.0], [1.0, 0.1], [0.2, 1.1], [1.2, 1.3]])


def _scattered(rng):
    """Four centres in a square, at least 6 apart."""
    while True:
        centers = rng.uniform(-10, 10, (4, 2))
        gaps = np.linalg.norm(centers[:, None] - centers, axis=2)
        if gaps[np.triu_indices(4, 1)].min() >= 6:
            return centers


# ---------------------------------------------------------------------- merging


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**20), st.integers(2, 6))
def test_the_bottleneck_is_the_best_of_all_bipartitions(seed, k):
    rng = np.random.default_rng(seed)
    strength = {e: float(rng.random()) for e in itertools.combinations(range(k), 2)}
    valleys = {e: Valley(0.0, 0.5, value) for e, value in strength.items()}
    tree, sides = _bottleneck(k, valleys)
    assert len(tree) == k - 1
    assert all(tree[e] == strength[e] for e in tree)
    clearest = max(tree, key=tree.get)
    assert sides[clearest[1]]
    assert not sides[clearest[0]]
    across = [value for e, value in strength.items() if sides[e[0]] != sides[e[1]]]
    assert min(across) == tree[clearest] == brute_force_bottleneck(k, strength)
