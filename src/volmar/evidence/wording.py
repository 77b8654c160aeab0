"""Formatting of p-values in reports and messages."""

from __future__ import annotations

import numpy as np

# A p-value between its level and this value is a hint of a gap, not evidence for one.
HINT = 0.2
# Minimum effect of a confirmed border, a lower limit. One group has at most 0 in expectation.
MIN_EFFECT = 0.2


def p_value_text(p_value: float, minimum: float = 0.0, level: float | None = None) -> str:
    """Format a p-value with two digits, and the level it is compared with, if given.

    `minimum` is the smallest p-value that the test can return. A p-value that is not larger is an
    upper bound, and is rounded up.
    """
    beside = level_text(level)
    if p_value < 1e-4:  # no test makes enough draws to resolve smaller ones
        return f"p < 0.0001{beside}"
    if is_minimum(p_value, minimum):
        return f"p ≤ {rounded_up(p_value):.2g}{beside}"
    return f"p = {p_value:.2g}{beside}"


def level_text(level: float | None) -> str:
    """Format the level that follows a p-value; empty if there is none."""
    return "" if level is None or np.isnan(level) else f", level {level:.2g}"


def rounded_up(p_value: float) -> float:
    """Return a positive p-value rounded up to two digits, so that an upper bound stays valid."""
    digit = 10.0 ** (np.floor(np.log10(p_value)) - 1.0)
    return float(np.ceil(p_value / digit - 1e-9) * digit)


def is_minimum(p_value: float, minimum: float) -> bool:
    """Return whether a p-value is the smallest one that the test can return."""
    return bool(p_value < 1.0 and p_value <= minimum * (1.0 + 1e-9))
