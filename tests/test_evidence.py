"""Humps, mixtures and p-values: each piece against its definition, the test on known samples."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from volmar.evidence import combine_p_values, hump_test, humps
from volmar.evidence.mixture import N_STEPS, NARROWEST, STARTS, _components, two_group_index

GRID = humps.GRID
SMALL = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def known_samples():
    rng = np.random.default_rng(11)
    yield rng.normal(size=150)
    yield rng.exponential(size=400)
    yield rng.standard_t(3, 300)
    yield rng.random(200)
    yield np.concatenate([rng.normal(size=150), rng.normal(4, 0.5, 40)])
    yield np.concatenate([rng.normal(size=100), rng.normal(5, 1, 100), rng.normal(9, 1, 60)])


def smoothed(x):
    shares, n = humps.density_on_grid(x)
    return humps._smoothed(shares[None, :], humps._bandwidth(n))[0]


# ---------------------------------------------------------------------- filling the valleys


def has_one_hump(values):
    steps = [step for step in np.sign(np.diff(values)) if step]
    return steps == sorted(steps, reverse=True)


@given(SMALL)
@settings(max_examples=60, deadline=None)
def test_fill_is_the_least_mass_that_leaves_one_hump(values):
    """All functions with one hump above a few integers; a best one has integers too."""
    candidates = itertools.product(*[range(value, max(values) + 1) for value in values])
    least = min(sum(one) for one in candidates if has_one_hump(one)) - sum(values)
    assert humps.fill(np.array([values, values[::-1]], dtype=float)) == pytest.approx(least)


def test_fill_of_a_valley_by_hand():
    # Up to the lower of the two peaks, 2, on either side of the valley.
    assert humps.fill(np.array([[0, 3, 1, 0, 2, 0.0]]))[0] == 1 + 2
    assert humps.fill(np.array([[0, 1, 3, 3, 2.0]]))[0] == 0


def test_the_deepest_valley_is_in_the_middle_of_the_gap():
    side = np.linspace(-1, 1, 60)
    x = np.concatenate([side, 20 + side])
    assert humps.deepest_valley(x) == pytest.approx(10, abs=0.5)
    assert humps.deepest_valley(-3 * x + 5) == pytest.approx(-25, abs=1.5)
    assert humps.deepest_valley(x.astype(np.float32)) == pytest.approx(10, abs=0.5)


def test_a_valley_with_a_flat_bottom_is_cut_in_its_middle():
    x = np.repeat([0.0, 10.0], [30_000, 10_000]) + np.linspace(-0.05, 0.05, 40_000)
    assert humps.deepest_valley(x) == pytest.approx(5.0, abs=0.2)


def test_without_a_valley_the_mean_is_taken():
    x = norm.ppf((np.arange(200) + 0.5) / 200) + 3
    assert humps.deepest_valley(x) == pytest.approx(x.mean())
    assert humps.deepest_valley(np.full(50, 2.5)) == 2.5


# ---------------------------------------------------------------------- the nearest with one hump


def nearest_with_mode(values, mode):
    fitted = cp.Variable(len(values))
    limits = [fitted[i] <= fitted[i + 1] for i in range(mode)]
    limits += [fitted[i] >= fitted[i + 1] for i in range(mode, len(values) - 1)]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(fitted - values)), limits)
    problem.solve(solver=cp.CLARABEL)
    return fitted.value, problem.value


@pytest.mark.parametrize("seed", range(4))
def test_the_nearest_density_with_one_hump_is_the_programmes(seed):
    rng = np.random.default_rng(seed)
    values = np.concatenate([[0.0], rng.random(8) * np.array([1, 3, 5, 4, 2, 3, 2, 1]), [0.0]])
    fits = [nearest_with_mode(values, mode) for mode in range(values.size)]
    best, _ = min(fits, key=lambda fit: fit[1])
    np.testing.assert_allclose(humps._one_hump(values), best / best.sum(), atol=1e-5)


@pytest.mark.parametrize("x", list(known_samples()))
def test_no_other_mode_fits_better(x):
    density = smoothed(x)
    found = humps._one_hump(density)
    assert has_one_hump(np.round(found, 15))
    assert found.sum() == pytest.approx(1.0)
    assert found.min() >= 0

    def error(mode):
        up = isotonic_regression(density[:mode]).x if mode else np.empty(0)
        down = isotonic_regression(density[mode:], increasing=False).x
        return np.sum((np.concatenate([up, down]) - density) ** 2)

    # Regression keeps the sum, so that the scale is that of the density.
    distance = np.sum((found * density.sum() - density) ** 2)
    assert distance == pytest.approx(min(map(error, range(GRID))), rel=1e-9, abs=1e-20)


def test_a_density_with_one_hump_is_its_own():
    density = norm.pdf(np.arange(GRID), 100, 30)
    np.testing.assert_allclose(humps._one_hump(density), density / density.sum(), rtol=1e-12)
    falling = np.linspace(1, 0, GRID)
    np.testing.assert_allclose(humps._one_hump(falling), falling / falling.sum(), atol=1e-15)


# ---------------------------------------------------------------------- the grid


@given(st.lists(st.floats(0, GRID - 1), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_bins_keep_the_mass_and_the_mean(u):
    u = np.array([u, u[::-1]])
    shares = humps._binned(u)
    assert shares.shape == (2, GRID)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares @ np.arange(GRID), u.mean(axis=1), atol=1e-9)
    # Nothing travels further than a step.
    np.testing.assert_array_less(shares @ np.arange(GRID) ** 2, (u**2).mean(axis=1) + 0.2501)


@pytest.mark.parametrize("n", [20, 300, 10**6])
def test_smoothing_is_the_convolution_with_a_gaussian(n):
    rng = np.random.default_rng(n)
    shares = rng.dirichlet(np.full(GRID, 0.1), size=3)
    width = humps._bandwidth(n) * (GRID - 1)
    distances = np.subtract.outer(np.arange(GRID), np.arange(GRID))
    direct = shares @ norm.pdf(distances, scale=width)
    np.testing.assert_allclose(humps._smoothed(shares, humps._bandwidth(n)), direct, atol=1e-7)
    assert humps._bandwidth(300) == humps.BANDWIDTH
    assert humps._bandwidth(300 * 32) == pytest.approx(humps.BANDWIDTH / 2)


def test_far_points_are_left_out():
    x = np.random.default_rng(0).normal(size=200)
    shares, n = humps.density_on_grid(np.append(x, [1e6, -1e9]))
    assert n == 200
    assert shares.sum() == pytest.approx(1.0)
    assert humps.density_on_grid(np.append(np.zeros(190), x[:10])) is None
    assert humps.density_on_grid(x[:19]) is None


# ---------------------------------------------------------------------- the test


def two_normals(n=200, distance=5.0, share=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) + distance * (np.arange(n) < share * n)


def undecided():
    """A flat top that looks like two humps, a little: its p-value is near 0.13."""
    return np.random.default_rng(1).random(200)


@pytest.mark.parametrize(("n", "distance", "share"), [(200, 5.0, 0.5), (300, 6.0, 0.1)])
@pytest.mark.parametrize("seed", range(5))
def test_two_groups_are_seen(n, distance, share, seed):
    test = hump_test(two_normals(n, distance, share, seed), np.random.default_rng(0))
    assert test.p_value <= 0.02
    # What is missing between the humps is of the order of the smaller one at most.
    assert 0 < test.statistic < 1.5


NULLS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t3": lambda rng, n: rng.standard_t(3, n),
}


@pytest.mark.parametrize("n", [60, 250])
@pytest.mark.parametrize("name", NULLS)
def test_one_hump_is_kept(name, n):
    """100 samples; a share above the bounds has a chance below one in a thousand at the level."""
    p_values = []
    for seed in range(100):
        rng = np.random.default_rng([seed, n])
        p_values.append(hump_test(NULLS[name](rng, n), rng, n_draws=99).p_value)
    p_values = np.array(p_values)
    for level in (0.05, 0.1, 0.25):
        assert np.mean(p_values <= level) <= level + 3.1 * math.sqrt(level * (1 - level) / 100)


def test_the_flat_top_is_the_hardest():
    """The level on uniform samples is about twice the nominal one, as the docstring says."""
    rng = np.random.default_rng(5)
    p_values = np.array([hump_test(rng.random(150), rng, n_draws=99).p_value for _ in range(150)])
    assert np.mean(p_values <= 0.05) < 0.18


def test_the_same_generator_gives_the_same():
    x = two_normals(distance=3.0)
    first, second = (hump_test(x, np.random.default_rng(4)) for _ in range(2))
    assert first == second
    assert type(first.p_value) is float


@pytest.mark.parametrize(("scale", "shift"), [(2.0**-40, 0.0), (1024.0, -4096.0), (3.7e9, 1e9)])
def test_units_do_not_matter(scale, shift):
    plain = hump_test(undecided(), np.random.default_rng(4))
    moved = hump_test(scale * undecided() + shift, np.random.default_rng(4))
    assert 0.03 < plain.p_value < 0.5  # it could move either way
    assert moved.p_value == pytest.approx(plain.p_value, abs=0.01)
    assert moved.statistic == pytest.approx(plain.statistic, rel=1e-6)


def test_order_and_direction_do_not_matter_to_the_statistic():
    x = two_normals(distance=3.0)
    value = hump_test(x, np.random.default_rng(4)).statistic
    assert hump_test(x[::-1], np.random.default_rng(4)).statistic == pytest.approx(value)
    assert hump_test(-x, np.random.default_rng(4)).statistic == pytest.approx(value)


@pytest.mark.parametrize("scale", [1e308, 1e-300])
def test_extreme_scales(scale):
    x = np.concatenate([np.linspace(-1, -0.9, 40), np.linspace(0.9, 1, 40)])
    assert hump_test(scale * x, np.random.default_rng(0)).p_value == 1 / 401
    assert hump_test(scale * np.linspace(-1, 1, 99), np.random.default_rng(0)).p_value > 0.3


def test_the_input_is_left_alone_and_may_be_anything_real():
    x = two_normals()
    before = x.copy()
    p_value = hump_test(x, np.random.default_rng(0)).p_value
    np.testing.assert_array_equal(x, before)
    assert hump_test(x.tolist(), np.random.default_rng(0)).p_value == p_value
    assert hump_test(x.astype(np.float32), np.random.default_rng(0)).p_value == p_value
    ages = np.random.default_rng(1).normal(40, 12, 300).round().astype(int)
    assert hump_test(ages, np.random.default_rng(0)).p_value > 0.05


def test_counts_are_drawn_as_points_are(monkeypatch):
    """A sample with a p-value in the middle; the numbers are four standard errors and more."""
    x = np.random.default_rng(5).random(1500)
    by_points = hump_test(x, np.random.default_rng(0), n_draws=1000)
    monkeypatch.setattr(humps, "DRAW_POINTS_UP_TO", 1000)
    by_counts = hump_test(x, np.random.default_rng(0), n_draws=1000)
    assert by_counts.statistic == by_points.statistic
    assert 0.1 < by_points.p_value < 0.9
    assert by_counts.p_value == pytest.approx(by_points.p_value, abs=0.1)


def test_large_samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50_000)
    assert hump_test(x, rng).p_value > 0.05
    assert hump_test(np.append(x, rng.normal(5, 0.5, 5000)), rng).p_value == 1 / 401


def test_draws_come_in_blocks(monkeypatch):
    x = undecided()
    whole = hump_test(x, np.random.default_rng(0), n_draws=501)
    monkeypatch.setattr(humps, "BLOCK", 100 * x.size)
    parts = hump_test(x, np.random.default_rng(0), n_draws=501)
    assert 0.03 < whole.p_value < 0.5
    assert parts.p_value == pytest.approx(whole.p_value, abs=0.08)
    null = np.full(GRID, 1 / GRID)
    blocks = list(humps._draws(null, x.size, 250, np.random.default_rng(0)))
    assert [len(block) for block in blocks] == [100, 100, 50]
    for block in blocks:
        np.testing.assert_allclose(block.sum(axis=1), 1.0)


def test_rounding_is_no_valley(monkeypatch):
    """Draws without a valley reach a statistic that is nothing but rounding."""
    quantiles = norm.ppf((np.arange(400) + 0.5) / 400)
    exact = humps.fill
    monkeypatch.setattr(humps, "fill", lambda f: exact(f) + (3e-16 if len(f) == 1 else 0.0))
    test = hump_test(quantiles, np.random.default_rng(0))
    assert 0 < test.statistic < 1e-12
    assert test.p_value == 1.0


@pytest.mark.parametrize(
    "x", [np.arange(19.0), np.full(100, 3.0), np.append(np.zeros(95), np.arange(5.0))]
)
def test_what_says_nothing_has_p_value_one(x):
    assert hump_test(x, np.random.default_rng(0)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("x", "options", "error", "message"),
    [
        ([0.0, np.nan], {}, ValueError, "got nan at position 1"),
        ([np.inf] + [0.0] * 30, {}, ValueError, "got inf at position 0"),
        (np.ones((30, 2)), {}, ValueError, r"got shape \(30, 2\)"),
        (["a", "b"], {}, TypeError, "real numbers"),
        (np.arange(30), {"n_draws": 0}, ValueError, "n_draws must be an integer, at least 1"),
        (np.arange(30), {"n_draws": 10.5}, ValueError, "got 10.5"),
        (np.arange(30), {"rng": 0}, TypeError, "rng must be a numpy.random.Generator, got 0"),
    ],
)
def test_bad_input_to_the_hump_test(x, options, error, message):
    options = {"rng": np.random.default_rng(0), **options}
    with pytest.raises(error, match=message):
        hump_test(x, **options)


# ---------------------------------------------------------------------- two components


def binned(*samples):
    return np.array([humps.density_on_grid(x)[0] for x in samples])


def test_a_step_never_lowers_the_likelihood():
    shares = binned(*known_samples())
    grid = np.linspace(0, 1, GRID)
    mean, square = shares @ grid, shares @ grid**2
    for quantile in STARTS:
        second = np.where(np.cumsum(shares, axis=1) > quantile, 0.98, 0.02)
        last = -np.inf
        for _ in range(N_STEPS):
            logs = _components(shares, second, grid, grid**2, mean, square)
            likelihood = (shares * np.logaddexp(*logs)).sum(axis=1)
            assert (likelihood >= last - 1e-10).all()
            last = likelihood
            second = np.exp(logs[1] - np.logaddexp(*logs))


def test_components_are_weighted_normals():
    """Against the density of scipy, less the constant, at the weighted moments."""
    shares = binned(two_normals(share=0.3))
    grid = np.linspace(0, 1, GRID)
    second = np.linspace(0.01, 0.99, GRID)[None, :]
    logs = _components(shares, second, grid, grid**2, shares @ grid, shares @ grid**2)
    for found, part in zip(logs, (1 - second, second), strict=True):
        weights = (shares * part)[0]
        center = np.average(grid, weights=weights)
        deviation = math.sqrt(np.average((grid - center) ** 2, weights=weights))
        assert deviation > NARROWEST
        expected = norm.logpdf(grid, center, deviation) + math.log(weights.sum())
        np.testing.assert_allclose(found[0] - 0.5 * math.log(2 * math.pi), expected, atol=1e-8)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.06])
def test_the_index_prefers_groups_to_skew_and_tails(share):
    rng = np.random.default_rng(2)
    plain = [NULLS[name](rng, 400) for name in ("normal", "t3", "exponential")]
    index = two_group_index(binned(two_normals(400, 4.0, share), *plain))
    assert (index >= 0).all()
    assert index[0] > 100 * index[1:3].max()
    assert index[0] > index[3]


def test_the_index_takes_each_sample_by_itself():
    samples = list(known_samples())
    together = two_group_index(binned(*samples))
    alone = [two_group_index(binned(x))[0] for x in samples]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    assert two_group_index(np.empty((0, GRID))).shape == (0,)
    mirrored = two_group_index(binned(*samples)[:, ::-1])
    np.testing.assert_allclose(mirrored[[4, 5]], together[[4, 5]], rtol=0.05)


def test_a_sample_at_two_places_has_a_finite_index():
    shares = np.zeros((2, GRID))
    shares[0, [60, 200]] = 0.5
    shares[1, 100] = 1.0
    index = two_group_index(shares)
    assert np.isfinite(index).all()
    assert index[0] > 100 * index[1]


# ---------------------------------------------------------------------- combined p-values

P_VALUES = st.lists(st.integers(0, 20).map(lambda i: i / 20), min_size=1, max_size=12)


@given(P_VALUES, st.sampled_from([0.1, 0.25, 1 / 3, 0.5, 0.7, 1.0]))
@settings(max_examples=100, deadline=None)
def test_combined_is_the_formula(p_values, share):
    p = np.array(p_values)
    enough = [q for q in p if np.sum(p <= q) >= share * p.size - 1e-9]
    assert combine_p_values(p_values, share=share) == pytest.approx(min(1, min(enough) / share))


def test_known_combinations():
    p = np.random.default_rng(0).random(30) / 20
    assert combine_p_values(p, share=1 / 30) == pytest.approx(30 * p.min())
    assert combine_p_values(p, share=1.0) == p.max()
    assert combine_p_values(p, share=0.1) == pytest.approx(10 * np.sort(p)[2])
    # 0.07 * 100 comes out above 7.
    p = np.random.default_rng(1).random(100) / 20
    assert combine_p_values(p, share=0.07) == pytest.approx(np.sort(p)[6] / 0.07)
    assert combine_p_values([0.02]) == pytest.approx(0.06)
    assert combine_p_values([0.0, 0.0, 0.9, 1.0, 1.0, 1.0]) == 0.0


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.95, 1.0])
def test_valid_under_dependence(correlation):
    rng = np.random.default_rng(7)
    repeats, m = 4000, 6
    common, own = rng.normal(size=(repeats, 1)), rng.normal(size=(repeats, m))
    p = norm.cdf(math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own)
    combined = np.array([combine_p_values(row) for row in p])
    for level in (0.05, 0.2):
        bound = level + 3 * math.sqrt(level * (1 - level) / repeats)
        assert np.mean(combined <= level) <= bound


def test_the_bound_is_reached_under_the_worst_dependence():
    """A third of the p-values small together, in a share `level` of all cases: Markov's equality.

    One draw decides which; each of the six is uniform by itself.
    """
    level, repeats, m = 0.2, 6000, 6
    rng = np.random.default_rng(3)
    # Uniform below level / 3 for two of six, chosen at random, with chance `level`; else above.
    together = rng.random(repeats) < level
    p = rng.uniform(level / 3, 1, (repeats, m))
    for row in np.flatnonzero(together):
        p[row, rng.permutation(m)[:2]] = rng.uniform(0, level / 3, 2)
    for column in p.T:
        assert np.mean(column <= level / 3) == pytest.approx(level / 3, abs=0.015)
    combined = np.array([combine_p_values(row) for row in p])
    assert np.mean(combined <= level) == pytest.approx(level, abs=0.02)


@pytest.mark.parametrize(
    ("p_values", "share", "message"),
    [
        ([], 0.5, r"p_values must be .* got shape \(0,\)"),
        (0.3, 0.5, r"got shape \(\)"),
        ([[0.1, 0.2]], 0.5, r"got shape \(1, 2\)"),
        ([0.1, np.nan], 0.5, "got nan at position 1"),
        ([0.1, -0.1], 0.5, "got -0.1 at position 1"),
        ([1.1], 0.5, "got 1.1 at position 0"),
        ([0.1], 0.0, "share must be greater than 0 and at most 1, got 0.0"),
        ([0.1], 1.5, "got 1.5"),
        ([0.1], float("nan"), "got nan"),
    ],
)
def test_bad_input_to_the_combination(p_values, share, message):
    with pytest.raises(ValueError, match=message):
        combine_p_values(p_values, share=share)
