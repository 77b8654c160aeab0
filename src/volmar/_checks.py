"""Checks of parameters and arrays whose messages name argument, value and remedy; signs."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = [
    "check_choice",
    "check_count",
    "check_flag",
    "check_magnitude",
    "check_number",
    "check_sample_weight",
    "check_symmetric",
    "check_weight_range",
    "fix_signs",
]

# Rows of a dense matrix that are compared with their columns at a time.
_BLOCK_ROWS = 256


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


def fix_signs(vectors: NDArray) -> NDArray:
    """Flip a vector, or each column, so that its entry of largest magnitude is positive.

    Entries within 1e-6 of the largest count as equal and the first of them decides: rounding
    must not choose between the two ends of a symmetric eigenvector.
    """
    magnitude = np.abs(vectors)
    leader = np.argmax(magnitude >= (1 - 1e-6) * magnitude.max(axis=0), axis=0)
    leading = np.take_along_axis(vectors, np.expand_dims(leader, 0), axis=0)[0]
    return vectors * np.where(leading < 0, -1.0, 1.0)


def check_symmetric(matrix: Any, name: str, *, what: str = "", tol: float = 1e-6) -> float:
    """Return the largest |A_ij - A_ji|; refuse one above `tol` times the largest entry.

    A dense matrix is compared block by block: no second n x n array is allocated. `name` is the
    argument in the message, `what` a longer name of it.
    """
    difference, i, j = _largest_asymmetry(matrix)
    if difference > tol * abs(matrix).max():
        raise ValueError(
            f"{what or name} must be symmetric, got {name}[{i}, {j}] and {name}[{j}, {i}] that "
            f"differ by {difference:.3g}. Use ({name} + {name}.T) / 2."
        )
    return difference


def _largest_asymmetry(matrix: Any) -> tuple[float, int, int]:
    if sparse.issparse(matrix):
        gaps = sparse.coo_array(abs(matrix - matrix.T))
        if gaps.nnz == 0:
            return 0.0, 0, 0
        at = int(np.argmax(gaps.data))
        i, j = sorted((int(gaps.row[at]), int(gaps.col[at])))
        return float(gaps.data[at]), i, j
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


def check_sample_weight(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return weights as float64 of shape (n_rows,), or None for equal weights.

    They are finite, not negative and not all zero. One number is the weight of every row.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        weights = np.full(n_rows, float(sample_weight))
    else:
        weights = np.asarray(sample_weight)
        if weights.dtype.kind not in "biufO":
            raise TypeError(f"sample_weight must hold real numbers, got dtype {weights.dtype}.")
        weights = weights.astype(np.float64, copy=False)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have one weight for each row, shape ({n_rows},), got shape "
            f"{weights.shape}."
        )
    check_weight_range(float(weights.min()), float(weights.max()))
    return weights


def check_weight_range(low: float, high: float) -> None:
    """Refuse the smallest and largest of sample weights that cannot be weights."""
    if not (np.isfinite(low) and np.isfinite(high)) or low < 0:
        worst = low if not low >= 0 else high
        raise ValueError(
            f"sample_weight must be finite and not negative, got {worst:g}. A row of weight 0 is "
            "a row left out."
        )
    if not high > 0:
        raise ValueError("sample_weight must have a positive entry, got only zeros.")
    if not 1e-100 < high < 1e100:
        raise ValueError(
            f"sample_weight has a largest entry of {high:.3g}, whose square does not fit "
            "float64. Divide the weights by their mean."
        )
