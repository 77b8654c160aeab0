"""Formatted p-values."""

import numpy as np
import pytest

from volmar.evidence.held_out import LINEAR, held_out_test
from volmar.evidence.wording import p_value_text


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
