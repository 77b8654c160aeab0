"""Formatted p-values."""

import pytest

from volmar.evidence.wording import p_value_text


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0312, "p = 0.031"), (1.0, "p = 1"), (3e-5, "p < 0.0001"), (0.0, "p < 0.0001")],
)
def test_p_values_in_words(p, text):
    assert p_value_text(p) == text
    assert p_value_text(p, 0.05) == f"{text}, level 0.05"
