"""A p-value in words."""

from __future__ import annotations

import numpy as np

__all__ = ["is_minimum", "level_text", "p_value_text", "rounded_up"]

# Draws that no test of the house makes: smaller p-values are not told apart.
SMALLEST = 1e-4
# A p-value above its level and not above this one is a hint of a gap, and no evidence.
HINT = 0.2


def p_value_text(p_value: float, minimum: float = 0.0, level: float | None = None) -> str:
    """Return a p-value with two digits, and the level that it is compared with if given.

    A p-value that is no larger than `minimum`, the smallest one that the test could have given, is
    an upper bound, and is rounded up.

    Examples
    --------
    >>> from volmar.evidence.wording import p_value_text
    >>> p_value_text(0.0312), p_value_text(3 / 401, 3 / 401)
    ('p = 0.031', 'p ≤ 0.0075')
    >>> p_value_text(0.0312, level=0.05)
    'p = 0.031, level 0.05'
    """
    beside = level_text(level)
    if p_value < SMALLEST:
        return f"p < {SMALLEST:.4f}{beside}"
    if is_minimum(p_value, minimum):
        return f"p ≤ {rounded_up(p_value):.2g}{beside}"
    return f"p = {p_value:.2g}{beside}"


def level_text(level: float | None) -> str:
    """Return what follows a p-value: its level, or nothing where there is none."""
    return "" if level is None or np.isnan(level) else f", level {level:.2g}"


def rounded_up(p_value: float) -> float:
    """Return a positive p-value rounded up to two digits: a bound stays one."""
    digit = 10.0 ** (np.floor(np.log10(p_value)) - 1.0)
    return float(np.ceil(p_value / digit - 1e-9) * digit)


def is_minimum(p_value: float, minimum: float) -> bool:
    """Return whether a test could have given no smaller p-value."""
    return bool(p_value < 1.0 and p_value <= minimum * (1.0 + 1e-9))
