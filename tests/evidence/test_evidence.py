"""Humps, mixtures and p-values: each piece against its definition, the test on known samples."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.stats import ks_2samp, norm

from volmar.diagnostics import split_test
from volmar.evidence import LINEAR, combine_p_values, held_out_test, hump_test
from volmar.evidence.modes import densities, folded, humps
from volmar.evidence.modes.folded import folded_sample
from volmar.evidence.modes.mixture import N_STEPS, NARROWEST, STARTS, _components, two_group_index
from volmar.evidence.modes.valleys_at import grid_shares, valleys_at
from volmar.evidence.wording import p_value_text

GRID = densities.GRID
SMALL = st.lists(st.integers(0, 3), min_size=1, max_size=5)


def known_samples():
    rng = np.random.default_rng(11)
    yield rng.normal(size=150)
    yield rng.exponential(size=400)
    yield rng.standard_t(3, 300)
    yield rng.random(200)
    yield np.concatenate([rng.normal(size=150), rng.normal(4, 0.5, 40)])
    yield np.concatenate([rng.normal(size=100), rng.normal(5, 1, 100), rng.normal(9, 1, 60)])


def binned(*samples):
    """Shares on a grid over the middle nine tenths and some more; points beyond are left out."""
    found = []
    for x in samples:
        low, high = np.quantile(x, [0.05, 0.95])
        u = ((x - low) / (high - low) + 0.6) / 2.2
        u = u[(u >= 0) & (u <= 1)] * (GRID - 1)
        found.append(grid_shares(u[None, :], np.ones((1, u.size)))[0])
    return np.array(found)


def smoothed(x):
    return densities.smoothed(binned(x), 0.065 * (300 / x.size) ** 0.2 * (GRID - 1))[0]


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
    assert densities.fill(np.array([values, values[::-1]], dtype=float)) == pytest.approx(least)


def test_fill_of_a_valley_by_hand():
    # Up to the lower of the two peaks, 2, on either side of the valley.
    assert densities.fill(np.array([[0, 3, 1, 0, 2, 0.0]]))[0] == 1 + 2
    assert densities.fill(np.array([[0, 1, 3, 3, 2.0]]))[0] == 0


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
    found, _ = humps._nearest_unimodal(values, humps._peaks(values))
    np.testing.assert_allclose(found, best, atol=1e-5)


@pytest.mark.parametrize("x", list(known_samples()))
def test_no_other_mode_fits_better(x):
    density = smoothed(x)
    found, mode = humps._nearest_unimodal(density, humps._peaks(density))
    assert has_one_hump(np.round(found, 15))
    assert found[mode] == found.max()
    assert found.sum() == pytest.approx(density.sum())
    assert found.min() >= 0

    def error(mode):
        up = isotonic_regression(density[:mode]).x if mode else np.empty(0)
        down = isotonic_regression(density[mode:], increasing=False).x
        return np.sum((np.concatenate([up, down]) - density) ** 2)

    distance = np.sum((found - density) ** 2)
    assert distance == pytest.approx(min(map(error, range(GRID))), rel=1e-9, abs=1e-20)


def test_a_density_with_one_hump_is_its_own():
    for density in (norm.pdf(np.arange(GRID), 100, 30), np.linspace(1, 0, GRID)):
        for values in (density, density[::-1]):
            found, _ = humps._nearest_unimodal(values, humps._peaks(values))
            np.testing.assert_allclose(found, values, atol=1e-15)


@pytest.mark.parametrize("x", list(known_samples()))
def test_the_null_is_unimodal_and_near_the_sample(x):
    found = folded_sample(x)
    density = found.density(found.shares[None, :])[0]
    null = humps._null(density, found.shares, found.n)
    assert has_one_hump(np.round(null, 15))
    assert null.sum() == pytest.approx(1.0)
    assert null.min() >= 0
    # Sums of shares, which no valley of a fifth of the sample could leave so near.
    assert np.abs(np.cumsum(null) - np.cumsum(found.shares)).max() < 0.2


def test_the_null_keeps_a_flat_top_as_wide_as_it_is():
    """Smoothed twice, the plateau of the fit to the smoothed density would be too narrow."""
    x = np.linspace(0, 1, 2001)
    found = folded_sample(x)
    density = found.density(found.shares[None, :])[0]
    again = found.density(humps._null(density, found.shares, found.n)[None, :])[0]
    rounder = found.density(density[None, :] / density.sum())[0]

    def flat(values):
        return np.count_nonzero(values > 0.99 * values.max())

    assert flat(rounder) < 0.8 * flat(density)
    assert flat(again) > 0.9 * flat(density)


# ---------------------------------------------------------------------- the grid


@given(st.lists(st.floats(0, GRID - 1), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_bins_keep_the_mass_and_the_mean(u):
    u = np.array([u, u[::-1]])
    shares = grid_shares(u, np.ones(u.shape))
    assert shares.shape == (2, GRID)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares @ np.arange(GRID), u.mean(axis=1), atol=1e-9)
    # Nothing travels further than a step.
    np.testing.assert_array_less(shares @ np.arange(GRID) ** 2, (u**2).mean(axis=1) + 0.2501)


@pytest.mark.parametrize("width", [28.5, 16.6, 3.3])
def test_smoothing_is_the_convolution_with_a_gaussian(width):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(GRID, 0.1), size=3)
    distances = np.subtract.outer(np.arange(GRID), np.arange(GRID))
    direct = shares @ norm.pdf(distances, scale=width)
    np.testing.assert_allclose(densities.smoothed(shares, width), direct, atol=1e-7)


def test_far_points_are_left_out():
    x = np.random.default_rng(0).normal(size=200)
    x = np.sort(np.concatenate([x, x + 6]))
    cuts = np.array([3.0])
    near = valleys_at(x[None, :], cuts)
    far = valleys_at(np.sort(np.append(x, [1e6, -1e9]))[None, :], cuts)
    assert far.mass == pytest.approx(near.mass, rel=0.05)
    assert far.depth == pytest.approx(near.depth, rel=0.02)
    assert near.depth > 0.7
    flat = valleys_at(np.sort(np.append(np.zeros(190), [-1.0, 1.0]))[None, :], cuts)
    assert flat.mass == flat.depth == 0


# ---------------------------------------------------------------------- the grid of the test


def test_the_grid_of_the_test_keeps_the_mass_and_smooths_by_a_gaussian():
    x = np.concatenate([np.random.default_rng(0).normal(size=280), np.full(20, 9.0)])
    found = folded_sample(x)
    assert found.n == 300
    assert found.shares.sum() == pytest.approx(1.0)
    places = found.start + found.step * np.arange(found.shares.size)
    assert 0.15 < found.step <= 0.2
    direct = found.shares @ norm.pdf(np.subtract.outer(places, places))
    np.testing.assert_allclose(found.density(found.shares[None, :])[0], direct, atol=1e-12)
    assert direct.sum() * found.step == pytest.approx(1.0, abs=0.01)


def test_a_few_far_points_do_not_stretch_the_grid():
    x = np.random.default_rng(0).normal(size=300)
    plain = folded_sample(x)
    for far in ([1e6, -1e9], [50.0, 51.0, 1e300]):
        found = folded_sample(np.append(x, far))
        assert found.n == plain.n == 300
        assert abs(found.shares.size - plain.shares.size) <= 3


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("distance", [8, 12, 1e5])
def test_a_far_group_is_folded_in_and_cut_off_where_it_was_seen(distance, sign):
    rng = np.random.default_rng(3)
    x = sign * np.append(rng.normal(size=285), rng.normal(distance, 1, 15))
    found = folded_sample(x)
    assert found.n == 300
    assert found.shares.size < 300
    edges = np.array([3.5, distance - 3.0])
    assert edges[0] < sign * humps.deepest_valley(x) < edges[1]
    # There and back: the values of the sample are at their places.
    np.testing.assert_array_less(0, np.diff(found.folded))
    at = (found.folded - found.start) / found.step
    values = [found.value_at(place) for place in at]
    ends = [value for value in (min(values), max(values)) if abs(value) > 4]
    assert ends == [pytest.approx(sign * np.max(sign * x))]
    test = hump_test(x, np.random.default_rng(0))
    assert test.p_value <= 0.02


def test_a_heavy_tail_has_a_grid_of_limited_length():
    rng = np.random.default_rng(0)
    for x in (rng.standard_cauchy(10_000), rng.pareto(0.3, 10_000), rng.lognormal(0, 4, 300)):
        found = folded_sample(x)
        longest = (1 + 2 * folded.OVERHANG + 2 * folded.LONGEST) * np.ptp(
            np.quantile(x, [0.05, 0.95])
        ) / found.bandwidth + 2 * folded.MARGIN
        assert found.shares.size <= 2 + folded.RESOLUTION * longest


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
    assert 1.5 < test.statistic < 2 * math.sqrt(n)  # in standard errors


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


FLAT = {
    "uniform": lambda rng, n: rng.random(n),
    "smooth edges": lambda rng, n: rng.random(n) + 0.05 * rng.normal(size=n),
    "trapezoid": lambda rng, n: rng.random(n) + 0.3 * rng.random(n),
    "disc": lambda rng, n: np.sqrt(rng.random(n)) * np.cos(2 * np.pi * rng.random(n)),
    "arc": lambda rng, n: 2 * np.sin(np.pi / 6 * rng.random(n)),
}


def shares_below(sampler, n, repeats, seed, **options):
    p_values = []
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, repeat, n])
        p_values.append(hump_test(sampler(rng, n), rng, **options).p_value)
    p_values = np.array(p_values)
    return {level: np.mean(p_values <= level) for level in (0.01, 0.05, 0.25, 0.5)}


@pytest.mark.parametrize("n", [50, 300, 3000])
@pytest.mark.parametrize("name", FLAT)
def test_flat_tops_are_kept_too(name, n):
    """200 samples, and three and a half standard errors, since there are 15 cases."""
    shares = shares_below(FLAT[name], n, 200, seed=1, n_draws=199)
    for level in (0.01, 0.05):
        assert shares[level] <= level + 3.5 * math.sqrt(level * (1 - level) / 200)


def test_the_level_of_all_flat_samples_together():
    """1,200 samples and three standard errors, so that twice the nominal level would be seen."""
    found = [shares_below(FLAT[name], 1000, 240, seed=2, n_draws=199) for name in FLAT]
    assert np.mean([shares[0.05] for shares in found]) <= 0.07
    assert np.mean([shares[0.01] for shares in found]) <= 0.02


HEAVY = {
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
    "pareto": lambda rng, n: rng.pareto(0.5, n),
    "lognormal": lambda rng, n: rng.lognormal(0, 2, n),
    "beta": lambda rng, n: rng.beta(1, 3, n),
    "dense and wide": lambda rng, n: rng.normal(size=n) * np.where(rng.random(n) < 0.5, 0.2, 1),
    "far points": lambda rng, n: np.append(rng.normal(size=n - 5), 1e6 * rng.normal(size=5)),
}


@pytest.mark.parametrize("n", [100, 600])
@pytest.mark.parametrize("name", HEAVY)
def test_tails_are_no_groups(name, n):
    shares = shares_below(HEAVY[name], n, 100, seed=3, n_draws=99)
    assert shares[0.05] <= 0.05 + 3.1 * math.sqrt(0.05 * 0.95 / 100)


@pytest.mark.parametrize(
    ("n", "distance", "share", "least"),
    [  # 60 samples each; of 200 other samples the share was 0.15 higher or more, but for the last
        (300, 3.0, 0.5, 0.25),
        (300, 3.5, 0.5, 0.75),
        (150, 4.0, 0.5, 0.75),
        (300, 4.0, 0.3, 0.70),
        (300, 5.0, 0.1, 0.60),
        (600, 6.0, 0.05, 0.80),
        (600, 10.0, 0.03, 0.70),
    ],
)
def test_power(n, distance, share, least):
    def sampler(rng, n):
        return rng.normal(size=n) + distance * (rng.random(n) < share)

    assert shares_below(sampler, n, 60, seed=4, n_draws=199)[0.05] >= least


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
    """The draws have the same distribution of depths: Kolmogorov-Smirnov at one in a thousand."""
    found = folded_sample(np.random.default_rng(5).random(800))
    null = humps._null(found.density(found.shares[None, :])[0], found.shares, found.n)

    def depths():
        draws = np.vstack(list(humps._draws(null, found.n, 1000, np.random.default_rng(0))))
        assert draws.shape == (1000, null.size)
        np.testing.assert_allclose(draws.sum(axis=1), 1.0)
        np.testing.assert_allclose(draws.mean(axis=0), null, atol=6e-4)
        return humps.missing_mass(found.heights(found.density(draws))).max(axis=1)

    by_points = depths()
    monkeypatch.setattr(humps, "DRAW_POINTS_UP_TO", 100)
    assert ks_2samp(by_points, depths()).pvalue > 0.001


def test_large_samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50_000)
    assert hump_test(x, rng).p_value > 0.05
    assert hump_test(np.append(x, rng.normal(5, 0.5, 5000)), rng).p_value == 1 / 401


def test_draws_come_in_batches_that_grow_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(humps, "BLOCK", 100 * 200)
    null = np.full(GRID, 1 / GRID)
    batches = list(humps._draws(null, 200, 420, np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [50, 100, 100, 100, 70]


def test_draws_end_when_enough_have_reached_the_statistic(monkeypatch):
    n_drawn = []
    draws = humps._draws

    def counted(*arguments):
        for batch in draws(*arguments):
            n_drawn.append(len(batch))
            yield batch

    monkeypatch.setattr(humps, "_draws", counted)
    test = hump_test(undecided(), np.random.default_rng(0), n_draws=100_000)
    assert sum(n_drawn) < 2000
    assert humps.ENOUGH / sum(n_drawn) <= test.p_value < 0.5
    n_drawn.clear()
    assert hump_test(two_normals(), np.random.default_rng(0), n_draws=1500).p_value == 1 / 1501
    assert sum(n_drawn) == 1500
    n_drawn.clear()
    quantiles = norm.ppf((np.arange(400) + 0.5) / 400)
    assert hump_test(quantiles, np.random.default_rng(0)).p_value == 1.0
    assert not n_drawn


@pytest.mark.parametrize("n_draws", [99, 400])
def test_p_values_with_an_early_end_are_valid(n_draws, monkeypatch):
    """Draws from the null itself, whose p-values are uniform but for the early end."""
    found = folded_sample(np.random.default_rng(5).random(300))
    null = np.ones_like(found.shares) / found.shares.size
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(1000):
        shares = rng.multinomial(found.n, null)[None, :] / found.n
        depth = humps.missing_mass(found.heights(found.density(shares))).max()
        p_values.append(humps._p_value(depth, found, null, n_draws, rng))
    for level in (0.02, 0.05, 0.2, 0.5, 0.8):
        share = np.mean(np.array(p_values) <= level)
        assert share == pytest.approx(
            level, abs=0.012 + 3.3 * math.sqrt(level * (1 - level) / 1000)
        )


def test_rounding_is_no_valley(monkeypatch):
    """A statistic that is nothing but rounding is no valley, and needs no draws."""
    quantiles = norm.ppf((np.arange(400) + 0.5) / 400)
    exact = humps.missing_mass
    monkeypatch.setattr(humps, "missing_mass", lambda f: exact(f) + 3e-13)
    test = hump_test(quantiles, np.random.default_rng(0))
    assert 0 < test.statistic < 1e-12
    assert test.p_value == 1.0
    assert humps.deepest_valley(quantiles) == pytest.approx(quantiles.mean())


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


# ------------------------------------------------------------------------------ in words


@pytest.mark.parametrize(
    ("p", "minimum", "text"),
    [
        (0.0312, 0.0, "p = 0.031"),
        (1.0, 0.01, "p = 1"),
        (3 / 401, 3 / 401, "p ≤ 0.0075"),
        (0.01069, 0.01069, "p ≤ 0.011"),
        (0.00211, 0.00211, "p ≤ 0.0022"),  # a bound is rounded up
        (0.0021, 0.0021, "p ≤ 0.0021"),
        (0.00211, 0.001, "p = 0.0021"),
        (3e-5, 3e-5, "p < 0.0001"),
        (0.0, 0.0, "p < 0.0001"),
        (1.0, 1.0, "p = 1"),
    ],
)
def test_p_values_in_words(p, minimum, text):
    assert p_value_text(p, minimum) == text


def test_a_clear_gap_has_the_smallest_p_value_that_the_draws_allow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    found = held_out_test(X, LINEAR, level=0.05, rng=np.random.default_rng(0))
    assert 0 < found.p_minimum < found.p_value
    X[:150] += 8
    found = held_out_test(X, LINEAR, level=0.05, rng=np.random.default_rng(0))
    assert found.p_value == found.p_minimum < 0.05
    result = split_test(X, random_state=0)
    assert result.p_value == result.p_minimum
    assert p_value_text(result.p_value, result.p_minimum) in str(result)
    assert "p ≤ " in str(result)
    # The table of the dip has an end of its own.
    assert split_test(X, test="dip", random_state=0).p_minimum == 0
