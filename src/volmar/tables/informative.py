"""Columns that tell rows apart, and those that are left out because they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.notes import note_left_out, note_same

__all__ = ["CodedColumn", "chosen", "distinct_categories", "informative_numbers", "range_of"]

# A column with fewer values than this is left out: the rest would be guesses.
FEWEST_KNOWN = 1 / 3
# Rows by which columns are compared first, digits of them, and rows that a comparison needs: of
# two rows, all columns are copies.
N_COMPARED, DIGITS, FEWEST_ROWS = 64, 7, 10

#: Name, codes (-1 for missing) and values of a column of categories.
CodedColumn = tuple[str, NDArray[np.intp], list[str]]


def range_of(X: NDArray[Any]) -> tuple[Any, Any]:
    """Return the smallest and the largest value of each column; inf and -inf without any."""
    return np.fmin.reduce(X, initial=np.inf), np.fmax.reduce(X, initial=-np.inf)


def chosen(items: list[Any], keep: NDArray[np.bool_]) -> list[Any]:
    """Return the items to keep."""
    return [item for item, stays in zip(items, keep, strict=True) if stays]


def informative_numbers(
    names: list[str], X: NDArray[Any], *, fills: bool, notes: list[str]
) -> tuple[NDArray[np.bool_], dict[str, str]]:
    """Return which columns vary, have enough values and copy no other, and why not the others.

    `fills`: missing values will be filled in, so that a column must have enough others.
    """
    n = len(X)
    counts = np.isnan(X).sum(axis=0)
    low, high = range_of(X)
    varies = low < high
    no_value = "without any value"
    left_out = note_left_out(notes, chosen(names, counts == n), no_value, no_value)
    left_out |= note_left_out(notes, chosen(names, ~varies & (counts < n)))
    keep = varies.copy()
    if fills:
        keep &= counts <= (1 - FEWEST_KNOWN) * n
        which = "that miss more than two thirds of their values"
        gone = chosen(names, varies & ~keep)
        left_out |= note_left_out(notes, gone, which, "misses most of its values")
    for copy, first in copies_of(X, np.flatnonzero(keep)):
        keep[copy] = False
        left_out[names[copy]] = f"a copy of {names[first]}"
        note_same(notes, names[copy], names[first])
    return keep, left_out


def distinct_categories(
    coded: list[CodedColumn], notes: list[str]
) -> tuple[list[CodedColumn], dict[str, str]]:
    """Return columns of at least two categories, no two alike, and why others are left out."""
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
            left_out[name] = f"says the same as {first}"
            note_same(notes, name, first)
    return kept, left_out


def _in_order_of_rows(code: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return codes numbered as they come: equal for columns that divide the rows alike."""
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def copies_of(X: NDArray[Any], places: Any) -> list[tuple[int, int]]:
    """Return pairs of columns of which the first is the second in another unit; all vary."""
    if len(X) < FEWEST_ROWS:
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
    """Return columns moved and scaled to the range 0 to 1, the first value in the lower half.

    Copies in other units, with the other sign perhaps, become equal up to rounding.
    """
    low, high = range_of(X)
    scaled = (X - low) / np.where(high > low, high - low, 1.0)
    known = ~np.isnan(scaled)
    start = scaled[known.argmax(axis=0), np.arange(X.shape[1])]
    scaled = np.where(start > 0.5, 1.0 - scaled, scaled)
    return np.asarray(np.round(scaled, DIGITS) + 0.0)
