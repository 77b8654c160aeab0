"""P-values combined under any dependence."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from volmar.evidence.held_out import combine_p_values

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
    """Worst case of Markov's inequality: a third of the p-values is small together.

    This happens with probability `level`, for p-values chosen at random. Each of the six is
    uniform.
    """
    level, repeats, m = 0.2, 6000, 6
    rng = np.random.default_rng(3)
    # With probability `level`, two of six, chosen at random, are uniform below level / 3.
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
        ([], 0.5, r"^p_values .*got shape \(0,\)"),
        (0.3, 0.5, r"got shape \(\)"),
        ([[0.1, 0.2]], 0.5, r"got shape \(1, 2\)"),
        ([0.1, np.nan], 0.5, "got nan at position 1"),
        ([0.1, -0.1], 0.5, "got -0.1 at position 1"),
        ([1.1], 0.5, "got 1.1 at position 0"),
        ([0.1], 0.0, "^share .*got 0.0"),
        ([0.1], 1.5, "got 1.5"),
        ([0.1], float("nan"), "got nan"),
    ],
)
def test_bad_input_to_the_combination(p_values, share, message):
    with pytest.raises(ValueError, match=message):
        combine_p_values(p_values, share=share)
