"""Checks of parameters whose messages name the argument, the value and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse

__all__ = ["check_choice", "check_count", "check_flag", "check_magnitude", "check_number"]


def check_choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_count(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """Return `value` as an int if it is a whole number between `low` and `high`."""
    limits = f"at least {low}" if high is None else f"between {low} and {high}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer ({limits}), got {value!r}.")
    count = int(value)
    if count < low or (high is not None and count > high):
        raise ValueError(f"{name} must be {limits}, got {count}.")
    return count


def check_number(
    name: str, value: Any, *, low: float = -np.inf, high: float = np.inf, open_low: bool = False
) -> float:
    """Return `value` as a float if it is finite and between `low` and `high`.

    `open_low` leaves out `low` itself.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    inside = (low < number if open_low else low <= number) and number <= high
    if not np.isfinite(number) or not inside:
        relation = "greater than" if open_low else "at least"
        limits = f"{relation} {low:g}" + (f" and at most {high:g}" if np.isfinite(high) else "")
        limits = limits if np.isfinite(low) else "finite"
        if number == np.inf and np.isfinite(low) and high == np.inf:
            limits += " and finite"
        raise ValueError(f"{name} must be {limits}, got {value}.")
    return number


def check_magnitude(X: Any) -> None:
    """Refuse rows so large or so small that their squares leave the range of their dtype."""
    values = X.data if sparse.issparse(X) else X
    limits = np.finfo(X.dtype)
    # Squares of sums over many features must fit, with room to divide by them.
    high, low = np.sqrt(float(limits.max)) * 1e-4, np.sqrt(float(limits.tiny)) * 1e4
    with np.errstate(all="ignore"):
        # peak^2 <= sum of squares <= size peak^2: one fast pass settles nearly every X.
        flat = values.ravel(order="K")
        squares = float(flat @ flat)
    if values.size * low**2 < squares < high**2:
        return
    peak = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if peak > high or 0 < peak < low:
        raise ValueError(
            f"X has a largest magnitude of {peak:.3g}, whose square does not fit {X.dtype}. Scale "
            f"X to between {low:.0g} and {high:.0g} (sklearn.preprocessing.StandardScaler)."
        )
