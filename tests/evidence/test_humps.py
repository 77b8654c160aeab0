"""The mode test: each part against its definition, and the test on known samples."""

import math

import cvxpy as cp
import numpy as np
import pytest
from helpers.samples import NULLS, binned, has_one_hump, known_samples, two_normals
from scipy.optimize import isotonic_regression
from scipy.stats import ks_2samp, norm

from volmar.evidence import densities, humps
from volmar.evidence.densities import GRID, folded_sample
from volmar.evidence.humps import hump_test


def smoothed(x):
    return densities.smoothed(binned(x), 0.065 * (300 / x.size) ** 0.2 * (GRID - 1))[0]


# ---------------------------------------------------------------------- nearest unimodal function


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
    # Sums of shares; with a valley of a fifth of the sample they could not be so close.
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
    # Folding and unfolding returns the values of the sample.
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
        longest = (1 + 2 * densities.OVERHANG + 6.0) * np.ptp(
            np.quantile(x, [0.05, 0.95])
        ) / found.bandwidth + 2 * 3.0
        assert found.shares.size <= 2 + 5 * longest


# ---------------------------------------------------------------------- the test


def undecided():
    """A flat top that looks slightly bimodal: its p-value is near 0.13."""
    return np.random.default_rng(1).random(200)


@pytest.mark.parametrize(("n", "distance", "share"), [(200, 5.0, 0.5), (300, 6.0, 0.1)])
@pytest.mark.parametrize("seed", range(5))
def test_two_groups_are_seen(n, distance, share, seed):
    test = hump_test(two_normals(n, distance, share, seed), np.random.default_rng(0))
    assert test.p_value <= 0.02
    assert 1.5 < test.statistic < 2 * math.sqrt(n)  # in standard errors


@pytest.mark.parametrize("n", [60, 250])
@pytest.mark.parametrize("name", NULLS)
def test_one_hump_is_kept(name, n):
    """100 samples; at the nominal level, exceeding the bounds has a probability below 0.001."""
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


@pytest.mark.parametrize("n", [50, 300, pytest.param(3000, marks=pytest.mark.nightly)])
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
    [  # 60 samples each; in 200 other samples the share was at least 0.15 higher, but for the last
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


@pytest.mark.parametrize("n", [60, 800])
def test_poisson_counts_are_as_good_as_points(n):
    """The depths have the distribution of samples of n points, by Kolmogorov-Smirnov at 0.001."""
    found = folded_sample(np.random.default_rng(5).random(n))
    null = humps._null(found.density(found.shares[None, :])[0], found.shares, found.n)

    def depths(shares):
        return humps.missing_mass(found.heights(found.density(shares))).max(axis=1)

    draws = np.vstack(list(humps._draws(null, found.n, 2000, np.random.default_rng(0))))
    assert draws.shape == (2000, null.size)
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, atol=5 / math.sqrt(n))
    np.testing.assert_allclose(draws.mean(axis=0), null, atol=6 * math.sqrt(null.max() / n / 2000))
    points = np.random.default_rng(1).multinomial(found.n, null, size=2000) / found.n
    assert ks_2samp(depths(draws), depths(points)).pvalue > 0.001


def test_a_valley_without_draws_is_surely_significant():
    """The bound of the notes against Bennett's inequality, for any expected density.

    The variance of the kernel's sum S is at most its height times the mean of S; of a smooth
    density it is 1 / (2 sqrt(pi)) times that.
    """
    height, unit = 1 / math.sqrt(2 * math.pi), 2 * math.sqrt(math.pi)
    mean = np.geomspace(0.01, 1e6, 2000)
    root = np.sqrt(unit * mean + 3)

    def log_up(noise):
        excess = ((root + noise / 2) ** 2 - 3) / unit - mean
        relative = excess / mean
        return -(mean / height) * ((1 + relative) * np.log1p(relative) - relative)

    def log_down(noise):
        lack = mean - (np.maximum(root - noise / 2, 0) ** 2 - 3) / unit
        possible = root - noise / 2 >= math.sqrt(3)  # g is never below that
        return np.where(possible, -(lack**2) / (2 * height * mean), -np.inf)

    for depth in (12.0, 15.0, 18.0, 25.0, 40.0, 100.0):
        worst = min(
            max(log_up(part * depth).max(), log_down((1 - part) * depth).max())
            for part in np.linspace(0.2, 0.7, 26)
        )
        assert worst <= -(depth**2) / humps.CERTAIN


def test_deep_valleys_need_no_draws(monkeypatch):
    x = two_normals(3000, 7.0)
    expected = hump_test(x, np.random.default_rng(0), n_draws=10**9)
    assert expected.p_value == 1 / (10**9 + 1)  # which would take hours to draw
    monkeypatch.setattr(humps, "CERTAIN", 1e9)
    assert hump_test(x, np.random.default_rng(0), n_draws=200) == (
        expected.statistic,
        1 / 201,
    )


def test_large_samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50_000)
    assert hump_test(x, rng).p_value > 0.05
    assert hump_test(np.append(x, rng.normal(5, 0.5, 5000)), rng).p_value == 1 / 401


def test_draws_come_in_batches_that_grow_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(humps, "BLOCK", 100 * GRID)
    null = np.full(GRID, 1 / GRID)
    batches = list(humps._draws(null, 300, 420, np.random.default_rng(0)))
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
    """Draws from the null itself, whose p-values are uniform except for early stopping."""
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
    """A statistic that is only rounding error is not a valley, and needs no draws."""
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
        (np.arange(30), {"n_draws": 0}, ValueError, "^n_draws"),
        (np.arange(30), {"n_draws": 10.5}, ValueError, "got 10.5"),
        (np.arange(30), {"rng": 0}, TypeError, r"^rng\b"),
    ],
)
def test_bad_input_to_the_hump_test(x, options, error, message):
    options = {"rng": np.random.default_rng(0), **options}
    with pytest.raises(error, match=message):
        hump_test(x, **options)
