"""The dip: its definition as linear programs, exact cases, and the p-value on known samples."""

import importlib
import math
import sys

import numpy as np
import pytest
from helpers import ROOT
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from volmar.evidence.modes.dip import dip_p_value, dip_statistic, dip_test, modal_search

SIZES = [4, 7, 11, 40, 1500, 30_000, 72_000, 10**6]

TIED = st.lists(st.integers(0, 6), min_size=1, max_size=12)
UNTIED = st.lists(st.integers(0, 3000), min_size=1, max_size=12, unique=True)
SAMPLES = st.one_of(TIED, UNTIED, st.lists(st.integers(-50, 50), min_size=1, max_size=60))


def distances_by_mode(x):
    """Return the minimum of sup |F - G| over unimodal G, for a mode at each distinct value of x.

    Variables are the values of G at the points, twice at the mode (the limit from the left and
    the value: a jump is allowed there, and only there), and the distance d. Off the mode G is
    continuous, so that both sides of a jump of F bound one value.

    A mode p between two points is covered. Convexity before p and concavity after it make the
    chord across this gap at least as steep as the chord before it or the chord after it. Replace
    G by the polygon through its values: in the first case it is convex up to the point right of
    the gap, in the second concave from the point left of it.
    """
    z, lower, upper = corners(x)
    return {mode: distance(z, lower, upper, mode) for mode in range(z.size)}


def corners(x):
    """Return the distinct values, and the distribution function before and after each jump."""
    z, counts = np.unique(np.asarray(x, dtype=float), return_counts=True)
    upper = np.cumsum(counts) / counts.sum()
    z = (z - z[0]) / (z[-1] - z[0]) if z.size > 1 else z
    return z, upper - counts / counts.sum(), upper


def distance(z, lower, upper, mode, *, meet=True):
    k = z.size
    # Values 0..mode are those up to the mode (its left limit last), the rest from the mode on.
    at = np.concatenate([z[: mode + 1], z[mode:]])
    ceiling = np.concatenate([lower[: mode + 1], upper[mode : mode + 1], lower[mode + 1 :]])
    floor = np.concatenate([upper[:mode], lower[mode : mode + 1], upper[mode:]])
    identity, column = np.eye(k + 1), np.ones((k + 1, 1))
    rows = [np.hstack([identity, -column]), np.hstack([-identity, -column])]
    rising = np.hstack([identity[:-1] - identity[1:], np.zeros((k, 1))])
    rows.append(rising if meet else np.delete(rising, mode, axis=0))
    for j in range(1, k):
        if j not in {mode, mode + 1}:
            before, after = at[j] - at[j - 1], at[j + 1] - at[j]
            sign = 1.0 if j < mode else -1.0
            bend = np.zeros((1, k + 2))
            bend[0, j - 1 : j + 2] = -sign * after, sign * (before + after), -sign * before
            rows.append(bend)
    constraints = np.vstack(rows)
    bounds = np.concatenate([ceiling, -floor, np.zeros(len(constraints) - 2 * (k + 1))])
    cost = np.append(np.zeros(k + 1), 1.0)
    solution = linprog(cost, A_ub=constraints, b_ub=bounds, bounds=(0, 1), method="highs")
    assert solution.status == 0
    return solution.fun


def check_against_the_definition(x):
    dip = dip_statistic(x)
    distances = distances_by_mode(x)
    # Only a sample of one distinct value has less than 1 / (2 n).
    least = 0.5 / len(x)
    if len(distances) > 1:
        assert min(distances.values()) >= least - 1e-9
    assert dip.value == pytest.approx(max(min(distances.values()), least), abs=1e-8)
    # The best fit may have its mode inside the modal interval.
    low, high = np.searchsorted(np.unique(x), dip.modal_interval)
    inside = min(distances[mode] for mode in range(low, high + 1))
    assert inside <= dip.value + 1e-8


@given(TIED)
@settings(max_examples=80, deadline=None)
def test_definition_with_ties(x):
    check_against_the_definition(x)


@given(UNTIED)
@settings(max_examples=80, deadline=None)
def test_definition_without_ties(x):
    check_against_the_definition(x)


def flat_between_steep(rng):
    """The convex and the concave half each reach the lone point, and cannot meet there."""
    return np.concatenate(
        [np.linspace(0, 1, 15), [1.45 + 0.1 * rng.random()], np.linspace(2, 3, 15)]
    )


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random(30),
        lambda rng: np.concatenate([rng.normal(0, 1, 15), rng.normal(3, 0.5, 20)]),
        lambda rng: rng.standard_cauchy(30),
        lambda rng: rng.integers(0, 12, 60),
        lambda rng: np.round(rng.exponential(1, 60), 1),
        lambda rng: np.concatenate([np.full(9, 0.3), rng.random(25)]),
        flat_between_steep,
    ],
)
def test_definition_on_larger_samples(draw):
    check_against_the_definition(draw(np.random.default_rng(3)))


def test_the_two_halves_have_to_meet():
    """If G could decrease at the mode, the lone point would fit better than any unimodal G."""
    z, lower, upper = corners(flat_between_steep(np.random.default_rng(3)))
    apart = distance(z, lower, upper, 15, meet=False)
    assert apart < min(distance(z, lower, upper, mode) for mode in range(z.size)) - 1e-3


@given(SAMPLES, st.floats(0.01, 100), st.floats(-100, 100), st.randoms())
@settings(max_examples=100, deadline=None)
def test_units_direction_and_order_do_not_matter(x, scale, shift, random):
    x = np.array(x)
    value = dip_statistic(x).value
    assert dip_statistic(scale * x + shift).value == pytest.approx(value, rel=1e-9)
    assert dip_statistic(-x).value == pytest.approx(value, rel=1e-9)
    shuffled = random.sample(x.tolist(), x.size)
    assert dip_statistic(shuffled) == dip_statistic(x)


@given(SAMPLES)
@settings(max_examples=100, deadline=None)
def test_bounds_and_copies(x):
    """G = 1/4 before the median and 3/4 from it on is within 1/4 of any F."""
    assume(len(x) > 1)
    value = dip_statistic(x).value
    assert 0.5 / len(x) <= value <= 0.25 + 1e-12
    low, high = dip_statistic(x).modal_interval
    assert low <= high
    assert {low, high} <= set(map(float, x))
    if len(set(x)) > 1:
        assert dip_statistic([*x, *x]).value == pytest.approx(value)  # the same F


@pytest.mark.parametrize(
    ("x", "value"),
    [
        ([5.0], 1 / 2),
        # One of the two is off the mode: 1 - d <= G <= 1/2 + d there.
        ([0, 1], 1 / 4),
        ([0, 1, 7], 1 / 6),
        ([3, 3, 3, 3], 1 / 8),
        # A jump of any size is allowed at the mode: the other value decides.
        ([0, 0, 0, 1], 1 / 8),
        ([0, 0, 1, 1], 1 / 4),
        (np.arange(50.0), 1 / 100),
        # Spacings that widen from the mode outwards on both sides.
        (np.concatenate([-(np.arange(20.0) ** 2), np.arange(1, 20.0) ** 3]), 1 / 78),
    ],
)
def test_known_values(x, value):
    assert dip_statistic(x).value == pytest.approx(value, rel=1e-12)


@given(st.tuples(*[st.floats(1e-3, 1e3)] * 3))
@settings(deadline=None)
def test_four_values_by_hand(spacings):
    """The mode is at the second or the third; the chord past the other decides."""
    first, middle, last = spacings
    x = np.cumsum([0.0, first, middle, last])
    expected = max(1.0, 2 * middle / (middle + max(first, last))) / 8
    assert dip_statistic(x).value == pytest.approx(expected, rel=1e-9)


def test_modal_interval_lies_in_the_larger_lump():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, 300), rng.normal(10, 1, 100)])
    low, high = dip_statistic(x).modal_interval
    assert -2 < low < high < 2


@pytest.mark.parametrize(
    ("x", "value"),
    [
        ([-1.7e308, -1.6e308, 1.6e308, 1.7e308], 3.2 / 3.3 / 4),
        ([0.0, 5e-324, 1.0, 1.0 + 2**-52], 2 / 8),
        (np.exp(np.arange(-700.0, 700.0)), 1 / 2800),
        (np.array([0, 1, 2, 2**62], dtype=np.int64), 1 / 8),
        (np.array([True, False, True]), 1 / 6),
        (np.float32([0.1, 0.2, 0.2]), 1 / 6),
    ],
)
def test_extreme_values_and_types(x, value):
    assert dip_statistic(x).value == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([], ValueError, r"at least one value, got shape \(0,\)"),
        ([[1.0, 2.0]], ValueError, r"got shape \(1, 2\). Pass one feature"),
        (3.0, ValueError, r"got shape \(\)"),
        ([0.0, np.nan], ValueError, "got nan at position 1. Drop or impute"),
        ([np.inf, 0.0], ValueError, "got inf at position 0"),
        (["a", "b"], TypeError, "x must hold real numbers"),
        ([1j], TypeError, "dtype complex128"),
    ],
)
@pytest.mark.parametrize("function", [dip_statistic, dip_test])
def test_bad_samples_are_refused(function, x, error, message):
    with pytest.raises(error, match=message):
        function(x)


def test_bad_statistics_are_refused():
    with pytest.raises(ValueError, match="statistic"):
        dip_p_value(0.6, 10)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        dip_p_value(0.1, 0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_up_to_three_values_say_nothing(n):
    assert dip_test(np.random.default_rng(n).random(n)).p_value == 1.0


@pytest.mark.parametrize("n", SIZES)
def test_p_value_falls_with_the_statistic(n):
    statistics = np.linspace(0, min(0.25, 1.5 / math.sqrt(n)), 500)
    p_values = np.array([dip_p_value(statistic, n) for statistic in statistics])
    assert (np.diff(p_values) <= 0).all()
    assert p_values[0] == 1.0
    smallest = {4: 1e-4, 1500: 1e-4, 30_000: 1e-3, 72_000: 1e-3, 10**6: 1e-3}.get(n, 1e-4)
    assert p_values[-1] == smallest
    # Values in between are resolved: there are no long steps.
    between = (p_values > 2 * smallest) & (p_values < 0.9)
    assert np.unique(p_values[between]).size > 50


@pytest.mark.parametrize("n", SIZES)
def test_the_least_dip_has_p_value_one(n):
    assert dip_p_value(0.5 / n, n) == 1.0
    assert dip_p_value(0.5 / n * (1 + 1e-12), n) == 1.0


def test_p_value_of_four_values_is_exact():
    """With middle / (middle + max(first, last)) > t / 2 for exponentials: 1 - t + t / (4 - t)."""
    # A third of the samples is above the minimum dip; the next column of the table is at 0.3.
    for t in np.linspace(1.07, 1.9, 30):
        exact = 1 - t + t / (4 - t)
        error = 4 * math.sqrt(exact * (1 - exact) / 100_000)
        assert dip_p_value(t / 8, 4) == pytest.approx(exact, abs=error + 0.01 * exact)


def test_beyond_the_table_the_root_of_n_scales():
    for statistic in np.linspace(0.001, 0.003, 10):
        assert dip_p_value(statistic, 72_000) == pytest.approx(
            dip_p_value(statistic / 2, 4 * 72_000)
        )


def shares(draw, n, repeats, levels):
    rng = np.random.default_rng(n)
    p_values = np.array([dip_test(draw(rng, n)).p_value for _ in range(repeats)])
    return [np.mean(p_values <= level) for level in levels]


@pytest.mark.parametrize("n", [5, 12, 25, 70, 350, 3000])
def test_level_on_uniform_samples(n):
    """Sizes on and between the rows of the table; the numbers are four standard errors."""
    repeats, levels = 1500, (0.01, 0.05, 0.1, 0.25)
    for share, level in zip(
        shares(lambda rng, n: rng.random(n), n, repeats, levels), levels, strict=True
    ):
        assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / repeats)


def test_conservative_on_normal_samples():
    for n, most in ((20, 0.05), (100, 0.02), (1000, 0.005)):
        (share,) = shares(lambda rng, n: rng.normal(size=n), n, 600, (0.05,))
        assert share < most


def test_two_lumps_are_found():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, 100), rng.normal(5, 1, 100)])
    test = dip_test(x)
    assert test.statistic == dip_statistic(x).value
    assert test.p_value == 1e-4


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("benchmarks.make_dip_table")
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_the_table_is_the_scripts(script):
    lines = script.TABLE.read_text(encoding="utf-8").splitlines()
    header, *rows = [line.split(",") for line in lines]
    assert header == ["n", "draws", *map(str, script.P_VALUES)]
    assert {int(row[0]): int(row[1]) for row in rows} == script.DRAWS
    for row in rows:
        draws = int(row[1])
        kept = [round(p * draws) >= script.LEAST_BEYOND for p in script.P_VALUES]
        assert [cell != "" for cell in row[2:]] == kept
        quantiles = np.array([cell for cell in row[2:] if cell], dtype=float)
        assert (np.diff(quantiles) >= 0).all()


def test_the_script_draws_uniform_samples(script):
    """Spacings instead of sorted samples; two samples of dips, compared at their quartiles."""
    n, draws = 30, 800
    simulated = script.scaled_dips(n, draws)
    np.testing.assert_array_equal(simulated, script.scaled_dips(n, draws))
    rng = np.random.default_rng(1)
    plain = [math.sqrt(n) * dip_statistic(rng.random(n)).value for _ in range(draws)]
    for level in (0.25, 0.5, 0.75, 0.95):
        share = np.mean(plain <= np.quantile(simulated, level))
        assert abs(share - level) < 4 * math.sqrt(2 * level * (1 - level) / draws)


def test_search_takes_counts():
    x = np.array([0.0, 1.0, 1.0, 4.0, 4.0, 4.0, 9.0])
    doubled, low, high = modal_search(*np.unique(x, return_counts=True))
    assert doubled / 14 == pytest.approx(dip_statistic(x).value)
    assert dip_statistic(x).modal_interval == (np.unique(x)[low], np.unique(x)[high])
