"""Find the columns that carry information, and leave out constant columns and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.notes import note_left_out, note_same

__all__ = ["CodedColumn", "chosen", "distinct_categories", "informative_numbers", "range_of"]

# Minimum share of known values in a column whose missing values will be filled in.
MIN_KNOWN = 1 / 3
# To find copies, columns are compared first on `N_COMPARED` rows, rounded to `DIGITS` digits.
# A table must have `MIN_ROWS` rows: with two rows, all columns are copies of each other.
N_COMPARED, DIGITS, MIN_ROWS = 64, 7, 10

#: Name, codes (-1 for missing) and values of a column of categories.
CodedColumn = tuple[str, NDArray[np.intp], list[str]]


def range_of(X: NDArray[Any]) -> tuple[Any, Any]:
    """Return the minimum and maximum of each column; inf and -inf for columns without values."""
    return np.fmin.reduce(X, initial=np.inf), np.fmax.reduce(X, initial=-np.inf)


def chosen(items: list[Any], keep: NDArray[np.bool_]) -> list[Any]:
    """Return the items for which `keep` is True."""
    return [item for item, stays in zip(items, keep, strict=True) if stays]


def informative_numbers(
    names: list[str], X: NDArray[Any], *, fills: bool, notes: list[str]
) -> tuple[NDArray[np.bool_], dict[str, str]]:
    """Return the mask of the informative columns, and the reasons for leaving out the others.

    An informative column varies and is not a copy of another one. With `fills`, missing values
    will be filled in, and at most two thirds of its values may be missing.
    """
    n = len(X)
    counts = np.isnan(X).sum(axis=0)
    low, high = range_of(X)
    varies = low < high
    no_value = "without values"
    left_out = note_left_out(notes, chosen(names, counts == n), no_value, no_value)
    left_out |= note_left_out(notes, chosen(names, ~varies & (counts < n)))
    keep = varies.copy()
    if fills:
        keep &= counts <= (1 - MIN_KNOWN) * n
        which = "with more than two thirds of their values missing"
        gone = chosen(names, varies & ~keep)
        left_out |= note_left_out(notes, gone, which, "most values are missing")
    for copy, first in copies_of(X, np.flatnonzero(keep)):
        keep[copy] = False
        left_out[names[copy]] = f"a copy of {names[first]}"
        note_same(notes, names[copy], names[first])
    return keep, left_out


def distinct_categories(
    coded: list[CodedColumn], notes: list[str]
) -> tuple[list[CodedColumn], dict[str, str]]:
    """Return the distinct columns of two categories or more, and the reasons for the others."""
    left_out = note_left_out(notes, [name for name, _, values in coded if len(values) < 2])
    kept: list[CodedColumn] = []
    names: dict[bytes, str] = {}
    for name, code, values in coded:
        if len(values) < 2:
            continue
        first = names.setdefault(_in_order_of_rows(code).tobytes(), name)
        if first == name:
            kept.append((name, code, values))
        else:
            left_out[name] = f"duplicates {first}"
            note_same(notes, name, first)
    return kept, left_out


def _in_order_of_rows(code: NDArray[np.intp]) -> NDArray[np.intp]:
    """Renumber codes by first occurrence, so that equal partitions have equal codes."""
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def copies_of(X: NDArray[Any], places: Any) -> list[tuple[int, int]]:
    """Return pairs (copy, original) of columns that differ at most by unit and sign."""
    if len(X) < MIN_ROWS:
        return []
    few_rows = np.linspace(0, len(X) - 1, min(len(X), N_COMPARED)).astype(int)
    with np.errstate(all="ignore"):
        keys = _in_own_units(X[np.ix_(few_rows, places)])
    first: dict[bytes, list[int]] = {}
    found = []
    for key, j in zip(keys.T, places, strict=True):
        same = first.setdefault(key.tobytes(), [])
        twin = next((i for i in same if _are_copies(X[:, [i]], X[:, [j]])), None)
        if twin is None:
            same.append(int(j))
        else:
            found.append((int(j), twin))
    return found


def _are_copies(one: NDArray[Any], other: NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):
        return np.array_equal(_in_own_units(one), _in_own_units(other), equal_nan=True)


def _in_own_units(X: NDArray[Any]) -> NDArray[Any]:
    """Return columns scaled to the range 0 to 1, and flipped if the first value is above 0.5.

    Copies in other units, or with the opposite sign, become equal up to rounding.
    """
    low, high = range_of(X)
    scaled = (X - low) / np.where(high > low, high - low, 1.0)
    known = ~np.isnan(scaled)
    start = scaled[known.argmax(axis=0), np.arange(X.shape[1])]
    scaled = np.where(start > 0.5, 1.0 - scaled, scaled)
    return np.asarray(np.round(scaled, DIGITS) + 0.0)
