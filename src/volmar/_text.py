"""Numbers, shares and lists as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def as_count(value: float) -> str:
    """Return a whole number with thousands separators."""
    return f"{int(value):,}"


def as_number(value: float | None, digits: int = 3, *, pad: bool = False) -> str:
    """Return a number rounded to `digits` significant digits; a dash if it is not finite.

    `pad` keeps trailing zeros, so that all numbers of a column have the same form.
    """
    if value is None or not np.isfinite(value):
        return "–"
    if value == 0 or abs(value) < 1e-12:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        places = max(digits - 1 - int(np.floor(np.log10(abs(value)))), 0)
        text = f"{value:,.{places}f}"
        text = text if pad or "." not in text else text.rstrip("0").rstrip(".")
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", "−")


def as_mean(value: float, spread: float) -> str:
    """Return a mean, with decimals according to the standard deviation of its column."""
    if not 1e-7 < spread < 1e7 or abs(value) >= 1e7:
        return as_number(value)
    # A spread of 2/3 counts as 1, so that all standardised columns have the same decimals.
    places = int(np.clip(2 - np.floor(np.log10(1.5 * spread)), 0, 9))
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, places) + 0.0:,.{places}f}".replace("-", "−")


def listed(words: Sequence[str], limit: int | None = None) -> str:
    """Return words joined as "a, b and c", or the first `limit` as "a, b and 7 more"."""
    if limit is not None and len(words) > limit:
        words = [*words[:limit], f"{len(words) - limit:,} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def counted(count: int, what: str) -> str:
    """Return "1 row" or "1,200 rows"."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def aligned(
    lines: Sequence[Sequence[str]], justify: Callable[[str, int], str] = str.ljust
) -> list[str]:
    """Return the lines of a table as text, with aligned columns except for the last."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
    return ["  ".join([*map(justify, line[:-1], widths), line[-1]]).rstrip() for line in lines]


def data_frame(rows: Sequence[Any], names: Sequence[str], instead: str) -> Any:
    """Return rows as a DataFrame; without pandas, raise an error that says what to use instead."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            f"this table needs pandas: pip install 'volmar[io]'. Without it, use {instead}."
        ) from error
    return pd.DataFrame(rows, columns=list(names))


def as_percent(share: float) -> str:
    """Return a share in per cent, with one decimal below 10 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 or share == 0 else f"{100 * share:.1f} %"


def signed(value: float) -> str:
    """Return a number with two significant digits and its sign."""
    return ("+" if value > 0 else "") + as_number(value, 2, pad=True)
