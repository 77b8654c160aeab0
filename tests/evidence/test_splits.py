"""The search for a split: rows, cells, directions, valleys."""

import numpy as np
import pytest
from scipy import sparse

from volmar.evidence import two_groups as direction_module
from volmar.evidence.densities import (
    N_BINS,
    binned,
    deepest_valleys,
    folded_sample,
    two_group_index,
)
from volmar.evidence.pairs import LinearCells
from volmar.evidence.two_groups import n_searched, searched_rows, two_group_direction
from volmar.metrics.separation_bound import separation_along


def groups(n=600, distance=6.0, share=0.5, d=4, seed=0):
    """Normal rows; the first share of them is moved along the second feature."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[: round(share * n), 1] += distance
    return X


def direction_of(X, seed=0):
    rng = np.random.default_rng(seed)
    return two_group_direction(searched_rows(X, rng), rng)


def away(scores, moved):
    """Difference of the means in standard deviations within groups."""
    within = np.concatenate([scores[one] - scores[one].mean() for one in (moved, ~moved)])
    return abs(scores[moved].mean() - scores[~moved].mean()) / within.std()


# ---------------------------------------------------------------------- rows


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_searched_rows_are_standardised_columns(dtype, rng):
    X = ((rng.normal(size=(300, 4)) + 5.0) * [1.0, 1e-6, 1e6, 30.0]).astype(dtype)
    X[:, 3] = 7.0
    rows = searched_rows(X, rng)
    assert rows.basis is None
    assert rows.T.shape == (300, 3)
    np.testing.assert_allclose(rows.T.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(rows.T.std(axis=0), 1.0, rtol=1e-5)
    assert rows.scale[3] == 0.0
    np.testing.assert_allclose(rows.mean, X.mean(axis=0, dtype=np.float64))


@pytest.mark.parametrize("shape", [(400, 3), (300, 150), (80, 400)], ids=["few", "many", "more"])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_directions_of_the_search_are_directions_of_the_rows(shape, convert, rng):
    """Scores by coefficients agree with those in the coordinates of the search."""
    X = rng.normal(size=shape) * rng.uniform(0.1, 10.0, shape[1]) + 3.0
    X[:, 1] = 5.0
    rows = searched_rows(convert(X), np.random.default_rng(0))
    r = rows.T.shape[1]
    most = direction_module.MAX_DIMENSIONS
    if shape[1] > shape[0]:  # in as many dimensions as rows, every split looks perfect
        most = max(5, shape[0] // 5)
    assert r == min(shape[1] - 1, most)
    t = rng.normal(size=(r, 2))
    coef = rows.coefficients(t)
    assert coef.shape == (shape[1], 2)
    assert not coef[1].any()
    np.testing.assert_allclose((X - rows.mean) @ coef, rows.T @ t, atol=1e-8)
    np.testing.assert_allclose(rows.coefficients(t[:, 0]), coef[:, 0])
    w = rng.normal(size=rows.columns.shape[1])
    np.testing.assert_allclose((X - rows.mean) @ rows.of_columns(w), rows.columns @ w, atol=1e-8)


def test_principal_components_are_the_leading_ones(rng):
    X = rng.normal(size=(500, 120))
    X[:, 50:] += 3.0 * rng.normal(size=(500, 1))
    rows = searched_rows(X, rng)
    assert rows.T.shape == (500, 100)
    values = np.linalg.svd((X - X.mean(axis=0)) / X.std(axis=0), compute_uv=False)[:100]
    np.testing.assert_allclose(np.sort(np.linalg.norm(rows.T, axis=0))[::-1], values, rtol=1e-8)


def test_many_rows_are_sampled(monkeypatch, rng):
    monkeypatch.setattr(direction_module, "MAX_ROWS", 300)
    X = groups(5000)
    rows = searched_rows(X, np.random.default_rng(0))
    assert rows.T.shape == (300, 4)
    assert not np.allclose(rows.mean, X.mean(axis=0), rtol=1e-6, atol=0)
    assert np.argmax(abs(direction_of(X))) == 1
    assert n_searched(4) == 300


def test_numbers_of_searched_rows():
    assert [n_searched(d) for d in (1, 1000, 2000, 5000, 10**6)] == [2000, 2000, 1000, 400, 300]


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_units_of_any_size(scale, rng):
    X = groups(200)
    plain, other = searched_rows(X, rng), searched_rows(scale * X, rng)
    np.testing.assert_allclose(other.T, plain.T, rtol=1e-9)
    w = direction_of(scale * X)
    assert np.isfinite(w).all()
    np.testing.assert_allclose(scale * w, direction_of(X), rtol=1e-6)


def test_constant_columns_at_a_distance(rng):
    """A constant column stays constant in spite of rounding."""
    X = np.column_stack([rng.normal(size=100), np.full(100, 0.1) + 1e9, np.full(100, 1 / 3)])
    assert (searched_rows(X, rng).scale > 0).tolist() == [True, False, False]


def test_too_many_features_are_refused_before_the_allocation(rng):
    X = sparse.csr_array((100, 100_000_000))
    with pytest.raises(MemoryError, match="100000000 features"):
        searched_rows(X, rng)


# ---------------------------------------------------------------------- cells


def test_a_hyperplane_is_two_cells(rng):
    X, w = rng.normal(size=(50, 3)), rng.normal(size=3)
    cells = LinearCells.hyperplane(w, 0.3)
    np.testing.assert_allclose(cells.decision_function(X), X @ w - 0.3)
    np.testing.assert_array_equal(cells.predict(X), X @ w > 0.3)
    on_the_border = LinearCells.hyperplane(np.array([1.0]), 2.0)
    assert on_the_border.predict(np.array([[2.0], [2.1]])).tolist() == [0, 1]
    other = LinearCells(cells.coef, cells.intercept, ~cells.sides)
    np.testing.assert_allclose(other.decision_function(X), 0.3 - X @ w)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_cells_by_brute_force(k, convert, rng):
    X = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.7)
    coef, intercept = rng.normal(size=(k, 3)), rng.normal(size=k)
    sides = np.arange(k) % 2 == 0
    cells = LinearCells(coef, intercept, sides)
    expected = np.empty(60)
    for row, x in enumerate(X):
        values = [sum(a * b for a, b in zip(coef[i], x, strict=True)) for i in range(k)]
        values = np.array(values) + intercept
        expected[row] = values[sides].max() - values[~sides].max()
    np.testing.assert_allclose(cells.functions(convert(X)), X @ coef.T + intercept)
    np.testing.assert_allclose(cells.decision_function(convert(X)), expected, atol=1e-12)
    largest = sides[np.argmax(X @ coef.T + intercept, axis=1)]
    np.testing.assert_array_equal(cells.predict(convert(X)), largest)


# ---------------------------------------------------------------------- direction


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("scale", [1.0, 1e-8, 1e8])
def test_the_direction_of_the_groups_is_found(share, scale):
    X = groups(600, share=share, d=10) * scale + 3 * scale
    scores = X @ direction_of(X)
    assert away(scores, np.arange(600) < share * 600) > 5


@pytest.mark.parametrize("d", [10, 50])
@pytest.mark.parametrize("seed", range(3))
def test_a_small_group_in_one_column_is_found(d, seed):
    X = groups(800, distance=6.0, share=0.1, d=d, seed=seed)
    w = direction_of(X, seed)
    assert np.argmax(abs(w)) == 1
    assert away(X @ w, np.arange(800) < 80) > 5


@pytest.mark.parametrize("seed", range(3))
def test_groups_in_correlated_columns_are_found(seed):
    """No column shows two groups; their difference does."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 6))
    common = 8.0 * rng.normal(size=600)
    X[:, 0] += common
    X[:, 1] += common
    moved = np.arange(600) < 200
    X[moved, 0] += 4.0
    X[moved, 1] -= 4.0
    assert away(X @ direction_of(X, seed), moved) > 4.5


def test_columns_of_different_units():
    X = groups(500, share=0.3, d=5) * [1e-8, 1e8, 1.0, 1e3, 1e-3]
    assert away(X @ direction_of(X), np.arange(500) < 150) > 5


def test_the_direction_is_the_best_of_those_looked_at(monkeypatch):
    seen = []

    def spied(shares):
        seen.append((shares, two_group_index(shares)))
        return seen[-1][1]

    monkeypatch.setattr(direction_module, "two_group_index", spied)
    X = groups(300)
    w = direction_of(X)
    shares = np.vstack([one for one, _ in seen])
    index = np.concatenate([one for _, one in seen])
    # Columns, principal and random directions at once, three rounds of discriminants.
    assert len(seen) == 4
    found = binned([X @ w]).shares
    np.testing.assert_allclose(found[0], shares[np.argmax(index)], atol=1e-9)


def test_sparse_and_single_precision_rows_have_the_same_direction():
    X = groups(240).astype(np.float32)
    plain = direction_of(X.astype(np.float64))
    np.testing.assert_allclose(direction_of(X), plain, atol=1e-4 * abs(plain).max())
    thin = direction_of(sparse.csr_array(X))
    np.testing.assert_allclose(thin, plain, atol=1e-4 * abs(plain).max())
    exact = direction_of(sparse.csr_array(X.astype(np.float64)))
    np.testing.assert_array_equal(exact, plain)


def test_constant_columns_have_no_coefficient():
    X = np.hstack([np.full((300, 1), 1e5), groups(300), np.zeros((300, 1))])
    w = direction_of(X)
    assert w[0] == w[-1] == 0.0
    assert np.argmax(abs(w)) == 2


def test_rows_without_a_direction():
    np.testing.assert_array_equal(direction_of(np.full((50, 3), 7.0)), 0.0)


def test_a_single_column():
    X = groups(200)[:, [1]]
    w = direction_of(X)
    assert w.shape == (1,)
    assert w[0] != 0


@pytest.mark.parametrize("seed", range(2))
def test_more_columns_than_rows(seed):
    X = groups(120, d=2000, seed=seed)
    X[:60, :200] += 1.0
    w = direction_of(X, seed)
    assert w.shape == (2000,)
    assert np.isfinite(w).all()
    assert away(X @ w, np.arange(120) < 60) > 4


def test_nearly_constant_columns_do_not_warn():
    X = np.zeros((5000, 2))
    X[7, 0] = X[9, 1] = 1.0
    assert direction_of(X).shape == (2,)


def test_the_cut_of_two_means_is_the_best_of_all(rng):
    projections = np.column_stack(
        [rng.normal(size=40), rng.exponential(size=40), np.arange(40) % 3, np.full(40, 0.3)]
    )
    ordered = np.sort(projections.T, axis=1)
    cuts, explained = direction_module._two_means(ordered, np.full(ordered.shape, 1 / 40))
    for x, cut, share in zip(projections.T[:3], cuts, explained, strict=False):
        total = ((x - x.mean()) ** 2).sum()

        def within(c, x=x):
            return sum(((x[s] - x[s].mean()) ** 2).sum() for s in (x > c, x <= c))

        values = np.unique(x)
        least = min(within(c) for c in 0.5 * (values[1:] + values[:-1]))
        assert within(cut) == pytest.approx(least)
        assert share == pytest.approx(1.0 - least / total)
    assert explained[3] == 0.0
    # Distinct values with their shares, as in bins.
    values, counts = np.unique(projections[:, 2], return_counts=True)
    cut, share = direction_module._two_means(values[None, :], counts[None, :] / 40)
    assert (cut[0], share[0]) == pytest.approx((cuts[2], explained[2]))


def test_columns_are_chosen_by_rows_of_all_groups(rng):
    """Rows sorted by group, and a column that is constant in most rows."""
    X = rng.normal(size=(1000, 150))
    X[700:, 120] += 8.0
    X[:, 60] = 0.3
    X[-3:, 60] = [1.0, 2.0, 3.0]
    columns = direction_module._columns_to_look_at(searched_rows(X, rng), rng)
    assert columns.size == direction_module.MAX_COLUMNS
    assert 120 in columns


# ---------------------------------------------------------------------- valleys


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("size", [300, 6000])
def test_the_valley_of_two_groups_by_brute_force(share, size, rng):
    """Densities of a Gaussian kernel with the bandwidth of the mode test, up to 64 bins."""
    n_small = round(share * size)
    x = np.append(rng.normal(size=size - n_small), rng.normal(6.0, 1.0, n_small))
    (valley,) = deepest_valleys([x])
    h = 0.13 * (300 / size) ** (1 / 7) * np.diff(np.quantile(x, [0.05, 0.95]))[0]
    place = np.linspace(0.0, 6.0, 300)
    density = np.exp(-0.5 * ((place[:, None] - x) / h) ** 2).mean(axis=1) / np.sqrt(2 * np.pi)
    at = 50 + np.argmin(density[50:250])
    bottom, lower = density[at], min(density[:at].max(), density[at:].max())
    assert valley.place == pytest.approx(place[at], abs=0.3)
    assert valley.depth == pytest.approx(1.0 - bottom / lower, abs=0.04)
    error = np.sqrt((lower + bottom) / (2.0 * np.sqrt(np.pi) * size))
    assert valley.significance == pytest.approx((lower - bottom) / error, rel=0.08)
    moved = deepest_valleys([1e-6 * x + 5.0])[0]
    assert moved.place == pytest.approx(1e-6 * valley.place + 5.0, abs=1e-8)
    assert moved[1:] == pytest.approx(valley[1:])


def test_valleys_of_several_samples_are_those_of_each(rng):
    samples = [
        np.concatenate([rng.normal(size=200), rng.normal(7.0, 1.0, size=20)]),
        np.ones(50),
        rng.normal(size=10),
        np.concatenate([rng.normal(size=100), rng.normal(9.0, 1.0, size=100)]),
    ]
    together = deepest_valleys(samples)
    for sample, valley in zip(samples, together, strict=True):
        assert repr(deepest_valleys([sample])[0]) == repr(valley)
    small, constant, few, clear = together
    assert 2.5 < small.place < 5.5
    for none in (constant, few):
        assert np.isnan(none.place)
        assert none.depth == none.significance == 0
    assert clear.depth > 0.8
    assert clear.significance > 5
    assert deepest_valleys([]) == []


@pytest.mark.parametrize("size", [125, 500])
def test_bins_hold_the_samples(size, rng):
    far = np.append(rng.normal(size=size - size // 25), rng.normal(50.0, 1.0, size // 25))
    samples = [rng.normal(size=size), np.zeros(size), far, -far, rng.random(size) - 1e6]
    found = binned(samples)
    assert found.shares.shape == found.densities.shape == (5, N_BINS)
    np.testing.assert_allclose(found.shares.sum(axis=1), [1, 0, 1, 1, 1])
    # Densities are shares per bandwidth: their mean times the length of the grid is one.
    length = N_BINS * found.step
    sums = found.densities.mean(axis=1) * length
    np.testing.assert_allclose(sums, [1, 0, 1, 1, 1], atol=0.03)
    # The same for samples of different sizes.
    ragged = binned([*samples, np.arange(19.0), np.empty(0)])
    np.testing.assert_array_equal(ragged.shares[:5], found.shares)
    assert not ragged.shares[5:].any()
    for sample, i in ((samples[i], i) for i in (0, 2, 3, 4)):
        # The grid is that of the mode test, and so are the counts below each bin.
        grid = folded_sample(sample)
        assert (found.bandwidth[i], found.n[i]) == (grid.bandwidth, grid.n)
        assert (i in found.folds) == (i in (2, 3))
        edges = np.array([binned_value(found, i, at) for at in range(N_BINS + 1)])
        below = np.searchsorted(np.sort(sample), edges)
        counts = (below[1:] - below[0]) / found.n[i]
        gap = found.shares[i].max() if i in found.folds else 1e-9
        np.testing.assert_allclose(np.cumsum(found.shares[i]), counts, atol=gap)


def binned_value(found, i, at):
    return found.values_at(np.full(len(found.n), float(at)))[i]


def test_one_exact_normal_sample_has_no_valley():
    x = np.sqrt(2.0) * np.linspace(-1, 1, 999)
    assert deepest_valleys([x])[0].depth < 0.05


# ---------------------------------------------------------------------- along a line


def test_separation_along_is_theorem_2_in_one_dimension():
    rng = np.random.default_rng(1)
    f = np.concatenate([rng.normal(0, 1, 300), rng.normal(5, 2, 100)])
    side = f > 2.5
    m1, m0, r = f[side].mean(), f[~side].mean(), side.mean()
    within = r * f[side].var() + (1 - r) * f[~side].var()
    # kappa_LB^2 = (w'D)^2 / (2 sum of the variances weighted so) of MSPC eq. 4.
    kappa2 = r * (1 - r) * (m1 - m0) ** 2 / (2 * max(r, 1 - r) * within)
    assert separation_along(f, side) == pytest.approx(kappa2 / (1 + kappa2), rel=1e-12)
    weights = rng.integers(1, 4, f.size)
    repeated = separation_along(np.repeat(f, weights), np.repeat(side, weights))
    assert separation_along(f, side, weights.astype(float)) == pytest.approx(repeated, rel=1e-12)
    assert separation_along(f, np.zeros(400, dtype=bool)) == 0.0
    assert separation_along(np.ones(400), side) == 0.0


def test_the_uniform_density_attains_three_quarters():
    f = np.linspace(-1.0, 1.0, 20001)
    assert separation_along(f, f > 0) == pytest.approx(0.75, abs=1e-3)
    f = np.random.default_rng(0).standard_normal(20001)
    assert separation_along(f, f > 0) < 0.66
