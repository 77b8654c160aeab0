"""Checks of parameters and arrays, and a sign convention for eigenvectors.

Every message names the argument, the value and a remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_random_state as _check_random_state

_BLOCK_ROWS = 256  # rows of a dense matrix that are compared with their columns at a time
_MAX_COUNT = 2**31 - 1  # the largest C int


def shown(value: Any) -> str:
    """Return the repr of any value for a message, shortened and on one line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # integers of more than 4300 digits, and classes with a failing __repr__
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:97]}..."


def shortened(text: str, longest: int = 120) -> str:
    """Return a text on one line, cut to at most `longest` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def check_choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`; raise a ValueError otherwise."""
    options = tuple(options)
    if not isinstance(value, str) or value not in options:
        known = ", ".join(map(repr, options))
        raise ValueError(f"{name} must be one of {known}, got {shown(value)}.")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool if it is True or False; raise a TypeError otherwise."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, got {shown(value)}.")
    return bool(value)


def check_count(name: str, value: Any, *, low: int = 1, high: int | None = None) -> int:
    """Return `value` as an int if it is a whole number between `low` and `high`."""
    limits = f"at least {low}" if high is None else f"between {low} and {high}"
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer ({limits}), got {shown(value)}.")
    count = int(value)
    if count < low or (high is not None and count > high):
        raise ValueError(f"{name} must be {limits}, got {shown(count)}.")
    if count > _MAX_COUNT:
        raise ValueError(f"{name} must be at most {_MAX_COUNT}, got {shown(count)}.")
    return count


def check_number(
    name: str, value: Any, *, low: float = -np.inf, high: float = np.inf, open_low: bool = False
) -> float:
    """Return `value` as a float if it is finite and in [low, high], or (low, high]."""
    if not is_number(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}.")
    number = as_float(value)
    if isinstance(value, Integral) and abs(number) >= 2.0**63 and np.isfinite(number):
        raise ValueError(  # NumPy converts such integers to dtype object
            f"{name}={shown(value)} is an integer of more than 64 bits. Pass it as a float."
        )
    inside = (low < number if open_low else low <= number) and number <= high
    if not np.isfinite(number) or not inside:
        relation = "greater than" if open_low else "at least"
        limits = f"{relation} {low:g}" + (f" and at most {high:g}" if np.isfinite(high) else "")
        limits = limits if np.isfinite(low) else "finite"
        if number == np.inf and np.isfinite(low) and high == np.inf:
            limits += " and finite"
        got = str(value) if isinstance(value, float) else shown(value)
        raise ValueError(f"{name} must be {limits}, got {got}.")
    return number


def is_number(value: Any) -> bool:
    """Return whether a value is a float or an integer of Python or NumPy, but not a bool."""
    kinds = (float, int, np.floating, np.integer)
    return isinstance(value, kinds) and not isinstance(value, bool)


def as_float(value: Any) -> float:
    """Return a number as a float; integers beyond its range become infinite."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def check_random_state(random_state: Any) -> np.random.RandomState:
    """Return the RandomState of a `random_state`, as scikit-learn does: no `Generator`."""
    try:
        return _check_random_state(random_state)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            "random_state must be None, an integer between 0 and 2**32 - 1 or a "
            f"numpy.random.RandomState, got {shown(random_state)}."
        ) from None


def is_finite(values: NDArray) -> bool:
    """Return whether all values are finite: nearly always a finite sum shows it in one pass."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def check_magnitude(
    X: Any, *, name: str = "X", dtype: Any = None, may_be_small: bool = False
) -> None:
    """Refuse values so large or so small that their squares overflow or underflow.

    `dtype` is the type in which they will be squared, by default that of `X`. New rows that are
    compared with training rows `may_be_small`: they then count as zero.
    """
    values = X.data if sparse.issparse(X) else X
    dtype = np.dtype(X.dtype if dtype is None else dtype)
    limits = np.finfo(dtype)
    # Squares of sums over many features must fit, with room to divide by them.
    high, low = np.sqrt(float(limits.max)) * 1e-4, np.sqrt(float(limits.tiny)) * 1e4
    with np.errstate(all="ignore"):
        # peak^2 <= sum of squares <= size peak^2: one fast pass accepts nearly every X.
        flat = values.ravel(order="K")
        squares = float(flat @ flat)
    if values.size * low**2 < squares < high**2:
        return
    peak = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
    if peak > high or (0 < peak < low and not may_be_small):
        raise ValueError(
            f"{name} has a largest magnitude of {peak:.3g}, whose square does not fit {dtype}. "
            f"Scale {name} to between {low:.0g} and {high:.0g} "
            "(sklearn.preprocessing.StandardScaler)."
        )


def fix_signs(vectors: NDArray) -> NDArray:
    """Flip a vector, or each column, so that its entry of largest magnitude is positive.

    Magnitudes within a relative 1e-6 of the largest count as equal, and the first of these entries
    decides. Otherwise rounding would choose between the two ends of a symmetric eigenvector.
    """
    magnitude = np.abs(vectors)
    leader = np.argmax(magnitude >= (1 - 1e-6) * magnitude.max(axis=0), axis=0)
    leading = np.take_along_axis(vectors, np.expand_dims(leader, 0), axis=0)[0]
    return vectors * np.where(leading < 0, -1.0, 1.0)


def check_symmetric(matrix: Any, name: str, *, what: str = "", tol: float = 1e-6) -> float:
    """Return the largest |A_ij - A_ji|; raise if it exceeds `tol` times the largest magnitude.

    A dense matrix is compared block by block, so no second n x n array is allocated. Messages
    begin with `what`, by default the `name` of the argument.
    """
    difference, i, j = _largest_asymmetry(matrix)
    if difference > tol * abs(matrix).max():
        raise ValueError(
            f"{what or name} must be symmetric, but {name}[{i}, {j}] and {name}[{j}, {i}] differ "
            f"by {difference:.3g}. Use ({name} + {name}.T) / 2."
        )
    return difference


def _largest_asymmetry(matrix: Any) -> tuple[float, int, int]:
    if sparse.issparse(matrix):
        differences = sparse.coo_array(abs(matrix - matrix.T))
        if differences.nnz == 0:
            return 0.0, 0, 0
        at = int(np.argmax(differences.data))
        i, j = sorted((int(differences.row[at]), int(differences.col[at])))
        return float(differences.data[at]), i, j
    worst, where = 0.0, (0, 0)
    for start in range(0, matrix.shape[0], _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        block = np.abs(matrix[start:stop, start:] - matrix[start:, start:stop].T)
        at = int(np.argmax(block))
        if block.flat[at] > worst:
            worst = float(block.flat[at])
            row, column = np.unravel_index(at, block.shape)
            where = (start + int(row), start + int(column))
    i, j = sorted(where)
    return worst, i, j
