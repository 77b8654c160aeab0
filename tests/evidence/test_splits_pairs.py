"""Pairs of cells in their convex regions, the final split, and merged clusters."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.cluster import KMeans

from volmar.evidence import held_out as made
from volmar.evidence import two_groups as searched_module
from volmar.evidence.densities import Valley, deepest_valleys
from volmar.evidence.held_out import make_split
from volmar.evidence.humps import hump_test
from volmar.evidence.pairs import (
    _bottleneck,
    _disjoint,
    clearest_pairs,
    in_region,
    merged_labels,
    pairwise_valleys,
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


def rejections(samples):
    rng = np.random.default_rng(0)
    return sum(hump_test(sample, rng, n_draws=100).p_value <= 0.05 for sample in samples)


def test_two_cells_of_one_gaussian_have_two_modes_and_their_region_has_one():
    """If the third cell is a wedge between two others, their union is not convex."""
    coef, intercept = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, -1.0]]), np.array([0.0, 0.0, 1.0])
    unions, regions = [], []
    for seed in range(40):
        values = np.random.default_rng(seed).normal(size=(2500, 2)) @ coef + intercept
        score = values[:, 1] - values[:, 0]
        unions.append(score[np.argmax(values, axis=1) < 2])
        regions.append(score[in_region(values, 0, 1)])
    assert rejections(unions) >= 30
    assert rejections(regions) <= 5


@pytest.mark.parametrize("shape", ["disc", "normal"])
def test_sectors_of_one_piece_have_one_mode_in_their_region(shape):
    """Cells of k-means; held-out rows of the same density are tested."""
    samples = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(800, 2))
        if shape == "disc":
            X *= (np.sqrt(rng.random(800)) / np.linalg.norm(X, axis=1))[:, None]
        centers = KMeans(3, n_init=1, random_state=seed).fit(X[:400]).cluster_centers_
        values = X[400:] @ centers.T - 0.5 * (centers**2).sum(axis=1)
        samples.append((values[:, 1] - values[:, 0])[in_region(values, 0, 1)])
    assert min(map(len, samples)) > 100
    assert rejections(samples) <= 5


def test_valleys_of_pairs_are_those_in_their_regions(rng):
    X, y = equidistant(4, 5.0, n=400, d=4)
    found = pairwise_valleys(X, X, y, 4)
    assert [pair for pair, *_ in found] == list(itertools.combinations(range(4), 2))
    means = np.array([X[y == j].mean(axis=0) for j in range(4)])
    within = X - means[y]
    S = within.T @ within / 400
    S += 0.1 * np.trace(S) / 4 * np.eye(4)
    directions = np.linalg.solve(S, means.T)
    values = X @ directions - 0.5 * np.diag(means @ directions)
    for (i, j), rows, valley in found:
        inside = np.flatnonzero(in_region(values, i, j))
        np.testing.assert_array_equal(rows, inside)
        scores = (values[:, j] - values[:, i])[inside]
        assert valley == pytest.approx(deepest_valleys([scores])[0])
        assert valley.depth > 0.5
        assert np.mean((scores > valley.place) == (y[rows] == j)) > 0.98


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
    chosen = _disjoint(tree)
    assert chosen[0] == clearest
    assert len({cell for e in chosen for cell in e}) == 2 * len(chosen)
    assert all(tree[e] >= 0.5 * tree[clearest] for e in chosen)


def test_pairs_that_are_tested_together_have_no_common_cell():
    edges = {(0, 1): 9.0, (1, 2): 8.0, (2, 3): 7.0, (4, 5): 3.0, (6, 7): 5.0}
    assert _disjoint(edges) == [(0, 1), (2, 3), (6, 7)]
    many = {(2 * i, 2 * i + 1): 9.0 - 0.1 * i for i in range(6)}
    assert _disjoint(many) == [(0, 1), (2, 3), (4, 5), (6, 7)]


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


@pytest.mark.parametrize("distance", [4.0, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_five_groups_at_equal_distance_have_a_clear_pair(distance, seed):
    X, y = equidistant(5, distance, seed=seed)
    rng = np.random.default_rng(20 + seed)
    pairs = clearest_pairs(searched_rows(X, rng), rng)
    best = max(pairs, key=lambda pair: pair.significance)
    ((scores, rows), *others) = best.samples(best.functions(X))
    cells = np.argmax(best.cells.functions(X), axis=1)
    inside = np.isin(np.arange(len(X)), rows)
    assert not inside[np.concatenate([[0], *(rows for _, rows in others)]).astype(int)[1:]].any()
    assert best.cells.intercept.size == 5
    for cell in best.pair:
        members = np.bincount(y[(cells == cell) & inside], minlength=5)
        assert members.max() >= 100
        assert members.max() >= 0.9 * members.sum()
    assert hump_test(scores, rng).p_value < 0.05


def test_a_pair_scores_between_its_cells(rng):
    X, _ = equidistant(3, 8.0, n=600, d=3)
    for pair in clearest_pairs(searched_rows(X, rng), rng):
        values = pair.functions(X)
        np.testing.assert_array_equal(values, pair.cells.functions(X))
        samples = pair.samples(values)
        for (i, j), (scores, rows) in zip((pair.pair, *pair.others), samples, strict=True):
            np.testing.assert_array_equal(rows, np.flatnonzero(in_region(values, i, j)))
            np.testing.assert_array_equal(scores, (values[:, j] - values[:, i])[rows])
        seen = np.concatenate([rows for _, rows in samples])
        assert np.unique(seen).size == seen.size
        i, j = pair.pair
        assert pair.cells.sides.tolist()[j]
        assert not pair.cells.sides[i]
        assert 0.0 < pair.depth <= 1.0
        assert pair.significance > 0


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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("by_direction", [True, False])
def test_no_blob_is_cut(seed, by_direction):
    rng = np.random.default_rng(seed)
    centers = FOUR if seed < 6 else _scattered(rng)
    y = np.arange(400) % 4
    X = centers[y] + rng.normal(size=(400, 2))
    cells = make_split(X, np.random.default_rng(seed), by_direction=by_direction)
    side = cells.predict(X)
    assert 0 < side.mean() < 1
    for j in range(4):
        assert max(side[y == j].mean(), 1 - side[y == j].mean()) >= 0.98


def _scattered(rng):
    """Four centres in a square, at least 6 apart."""
    while True:
        centers = rng.uniform(-10, 10, (4, 2))
        gaps = np.linalg.norm(centers[:, None] - centers, axis=2)
        if gaps[np.triu_indices(4, 1)].min() >= 6:
            return centers


def test_the_split_of_two_groups_is_in_the_valley(rng):
    X = rng.normal(size=(400, 4))
    X[:80, 1] += 6.0
    cells = make_split(X, rng)
    side = cells.predict(X)
    moved = np.arange(400) < 80
    assert max(np.mean(side == moved), np.mean(side != moved)) > 0.99
    thin = make_split(sparse.csr_array(X), rng).predict(sparse.csr_array(X))
    assert max(np.mean(thin == moved), np.mean(thin != moved)) > 0.99


def test_constant_rows_have_no_split(rng):
    assert make_split(np.ones((100, 2)), rng) is None


def test_known_directions_are_not_searched_again(rng, monkeypatch):
    """A direction with a gap is the split; without a gap, pairs of clusters are tried as well."""
    X = rng.normal(size=(600, 3))
    X[:300, 0] += 12.0
    known = [np.array([1.0, 0.1, 0.0]), np.array([0.0, 1.0, 0.0])]
    monkeypatch.setattr(made, "two_group_direction", None)
    with monkeypatch.context() as patched:
        patched.setattr(made, "clearest_pairs", None)
        cells = make_split(X, rng, directions=known)
    np.testing.assert_array_equal(cells.coef[1], known[0])
    np.testing.assert_array_equal(cells.predict(X), np.arange(600) < 300)
    side = make_split(X, rng, directions=known[1:]).predict(X)
    assert abs(np.mean(side == (np.arange(600) < 300)) - 0.5) > 0.49


# ---------------------------------------------------------------------- merging


def test_halves_of_a_blob_are_merged():
    """A third cluster's hyperplane has cut the first blob."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 3
    X = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[y] + rng.normal(size=(600, 2))
    cut = np.where((y == 0) & (X[:, 1] > 0.3), 3, y)
    new = merged_labels(X, cut, rng)
    assert new.tolist() == [0, 1, 2, 0]
    thin = merged_labels(sparse.csr_array(X), cut, rng)
    assert thin.tolist() == [0, 1, 2, 0]
    asked = []

    def never(one, other):
        asked.append((one.tolist(), other.tolist()))
        return False

    assert merged_labels(X, cut, rng, may_merge=never).tolist() == [0, 1, 2, 3]
    assert ([0], [3]) in asked
    # New numbers follow the order of the old ones.
    swapped = np.array([3, 1, 2, 0])[cut]
    assert merged_labels(X, swapped, rng).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_real_clusters_are_not_merged(k, seed):
    X, y = equidistant(k, 5.0, seed=seed)
    assert merged_labels(X, y, np.random.default_rng(seed)).tolist() == list(range(k))


def test_tails_of_far_clusters_are_no_reason_to_merge():
    """A large cluster and four small ones far from it, of which only one is adjacent to it."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(2000) < 0.6, 0, rng.integers(1, 5, 2000))
    corners = np.array([[0, 0, 0], [12, 0, 0], [12, 7, 0], [12, 0, 7], [12, 7, 7]], dtype=float)
    X = rng.normal(size=(2000, 10))
    X[:, :3] += corners[y]
    assert merged_labels(X, y, rng).tolist() == list(range(5))


def test_two_clusters_are_left(rng):
    """The last split was tested on held-out rows."""
    X = rng.normal(size=(200, 2))
    assert merged_labels(X, (X[:, 0] > 0).astype(int), rng).tolist() == [0, 1]
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    assert np.unique(merged_labels(X, y, rng)).size == 2


def test_many_rows_are_merged_by_a_sample(monkeypatch):
    monkeypatch.setattr(searched_module, "MAX_ROWS", 600)
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 3
    X = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[y] + rng.normal(size=(6000, 2))
    cut = np.where((y == 0) & (X[:, 1] > 0.3), 3, y)
    assert merged_labels(X, cut, rng).tolist() == [0, 1, 2, 0]


def test_a_cluster_of_which_no_row_is_drawn_stays(monkeypatch):
    monkeypatch.setattr(searched_module, "MAX_ROWS", 300)
    rng = np.random.default_rng(0)
    y = np.arange(6000) % 3
    X = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[y] + rng.normal(size=(6000, 2))
    y[4000], X[4000] = 3, [40.0, 40.0]
    y[5999] = 4
    new = merged_labels(X, y, rng)
    assert new.shape == (5,)
    assert new.tolist() == list(range(5))
