"""Formatting of p-values in reports and messages."""

from __future__ import annotations

import numpy as np

# A p-value between its level and this value is a hint of a gap, not evidence for one.
HINT = 0.2
# Minimum effect of a confirmed border, a lower limit. One group has at most 0 in expectation.
MIN_EFFECT = 0.2


def p_value_text(p_value: float, level: float | None = None) -> str:
    """Format a p-value with two digits, and the level it is compared with, if given."""
    beside = level_text(level)
    return f"p < 0.0001{beside}" if p_value < 1e-4 else f"p = {p_value:.2g}{beside}"


def level_text(level: float | None) -> str:
    """Format the level that follows a p-value; empty if there is none."""
    return "" if level is None or np.isnan(level) else f", level {level:.2g}"
