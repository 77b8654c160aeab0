"""The kind of a column: detected from its values and its name, or given by the user."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.dates import date_layout
from volmar.tables.errors import TableError, quoted_names, shown
from volmar.tables.numbers import as_numbers
from volmar.tables.orders import known_order

__all__ = ["KINDS", "ColumnKind", "check_kinds", "kind_of"]

KINDS = ("numeric", "ordinal", "categorical", "boolean", "date", "text", "id", "ignore")
# Maximum number of distinct values of a categorical column, and of an ordinal text column.
MAX_CATEGORIES, MAX_LEVELS = 50, 15
# Minimum number of rows for which a numeric column may be detected as boolean or as ids.
MIN_ROWS = 10
# Number of rows that are checked before all rows are.
FIRST_ROWS = 1000
# Maximum share of the values of a numeric text column that are not numbers.
FEW_WORDS = 0.05
# Integers without ties are serial numbers if random draws from their range would have more ties
# than this in expectation.
EXPECTED_TIES = 20.0
_ID = re.compile(r"(^|[ _.-])(id|ids|uuid|guid|key|index|idx|rownum|row|nr)$|[a-z]Id$|[a-z]ID$")
_CODE = re.compile(
    r"(^|[ _.-])(zip|zip[ _-]?code|post[ _-]?code|postal([ _-]?code)?|plz|(phone|telephone|fax)"
    r"([ _-]?(no|nr|number))?|ssn|iban|isbn|ean|barcode|sku|ip|ip[ _-]?address)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column, one of `KINDS`, with details for some kinds."""

    kind: str
    # Why the column is left out. Empty for features, except for dates whose layout is in doubt.
    reason: str = ""
    order: list[str] | None = None  # values of an ordinal text column, from low to high
    layout: str | None = None  # layout of dates in text, see `date_layout`


def check_kinds(kinds: Mapping[str, str] | None) -> None:
    """Raise `TableError` unless `kinds` is a dict of column names to kinds, or None."""
    if kinds is None:
        return
    if not isinstance(kinds, Mapping) or not all(isinstance(name, str) for name in kinds):
        raise TableError(
            f"kinds must be a dict of column names to kinds, got {shown(kinds)}. Give, for "
            "example, {'city': 'categorical'}."
        )
    for name, kind in kinds.items():
        if not isinstance(kind, str) or kind not in KINDS:
            raise TableError(
                f"kinds={{{shown(name)}: {shown(kind)}}} has an unknown kind. Choose from "
                f"{', '.join(KINDS)}."
            )


def kind_of(source: str, name: str, series: Any, given: str | None) -> ColumnKind:
    """Return the kind of a pandas column: the given one, or else the detected one."""
    if given is not None:
        return _given(source, name, series, given)
    found = _dtype_kind(series)
    if found == "number":
        return _kind_of_numbers(name, series)
    if found == "date":
        return ColumnKind("date")
    if found != "text":
        return ColumnKind("ignore", f"holds {found}")
    return _kind_of_text(name, series)


def _dtype_kind(series: Any) -> str:
    """Return "number", "text" or "date", or a description of other content."""
    import pandas as pd

    types, dtype = pd.api.types, series.dtype
    if isinstance(dtype, pd.CategoricalDtype) or types.is_bool_dtype(dtype):
        return "text"
    if types.is_complex_dtype(dtype):
        return "complex numbers"
    if types.is_numeric_dtype(dtype):
        return "number"
    if types.is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return "date"
    if types.is_timedelta64_dtype(dtype):
        return "durations"
    found = types.infer_dtype(series, skipna=True)
    if found in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        return "number"
    if found in ("string", "boolean", "mixed-integer", "mixed", "categorical"):
        return "text"
    if found in ("date", "datetime", "datetime64", "period"):
        return "date"
    return f"values of type {found}"


def _kind_of_numbers(name: str, series: Any) -> ColumnKind:
    numbers = as_numbers(series)
    first = numbers[:FIRST_ROWS]
    if (first[np.isfinite(first)] % 1 != 0).any() and np.unique(
        first[np.isfinite(first)]
    ).size > 2:
        return ColumnKind("numeric")  # more than two values, not all of them integers
    numbers = numbers[np.isfinite(numbers)]
    different = np.unique(numbers)
    if different.size == 2 and numbers.size >= MIN_ROWS:
        return ColumnKind("boolean")
    whole = bool(numbers.size) and bool((numbers == np.rint(numbers)).all())
    if whole:
        if _CODE.search(name):
            return ColumnKind("id", "its name suggests a code")
        if reason := _why_id(name, numbers, different.size):
            return ColumnKind("id", reason)
    return ColumnKind("numeric")


def _why_id(name: str, numbers: NDArray, n_different: int) -> str:
    n = numbers.size
    if n < MIN_ROWS or n_different < 0.95 * n:
        return ""
    if _ID.search(name):
        return "its name suggests an id, and nearly all values are unique"
    if n_different < n:
        return ""
    with np.errstate(over="ignore"):
        steps = np.diff(numbers)
        span = float(numbers.max() - numbers.min()) + 1.0
    if (steps == steps[0]).all():
        return "its values number the rows"
    if n * (n - 1) / (2.0 * span) > EXPECTED_TIES:
        return "all values are unique, as serial numbers are"
    return ""


def _kind_of_text(name: str, series: Any) -> ColumnKind:
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        words = [str(value) for value in series.cat.categories]
        if series.cat.ordered and 2 < len(words) <= MAX_CATEGORIES:
            return ColumnKind("ordinal", order=words)
    known = series.dropna()
    try:
        different = known.astype(object).unique()
    except TypeError:
        return ColumnKind("ignore", "holds lists or other nested values")
    n_different = len(different)
    if n_different <= 2:
        return ColumnKind("boolean")
    words = [str(value).strip() for value in different]
    layout, remark = date_layout(words)
    if layout or remark:
        return ColumnKind("date" if layout else "text", remark, layout=layout)
    if _CODE.search(name) and all(any(map(str.isdigit, word)) for word in words):
        return ColumnKind("id", "its name suggests a code")
    if any(word[0] == "0" and word[1:].isdigit() for word in words if len(word) > 1):
        return ColumnKind("id", "its numbers have leading zeros, as codes do")
    if _are_numbers(known):
        return ColumnKind("numeric")
    is_id = bool(_ID.search(name)) and n_different >= 0.95 * len(known)
    if n_different > MAX_CATEGORIES or n_different == len(known):
        many = f"{n_different:,} different values"
        if n_different == len(known):
            many += ", one per row"
        return ColumnKind("id" if is_id or not _has_spaces(words) else "text", many)
    order = None
    if n_different <= MAX_LEVELS and len(set(words)) == len(words):
        order = known_order(words)
    return ColumnKind("ordinal", order=order) if order else ColumnKind("categorical")


def _has_spaces(words: list[str]) -> bool:
    return sum(" " in word for word in words[:200]) > 0.5 * len(words[:200])


def _are_numbers(known: Any) -> bool:
    first = as_numbers(known.iloc[:FIRST_ROWS])
    if 2 * np.count_nonzero(~np.isnan(first)) < len(first):
        return False
    n_words = np.count_nonzero(np.isnan(as_numbers(known)))
    return bool(n_words <= FEW_WORDS * len(known))


def _given(source: str, name: str, series: Any, given: str) -> ColumnKind:
    """Return the kind given by the user. Raise `TableError` if the values do not fit it."""
    found = _dtype_kind(series)
    if given == "numeric" and found == "text" and not _is_bool(series):
        values = series.dropna().astype(object)
        wrong = values[np.isnan(as_numbers(values))]
        if 2 * len(wrong) > len(values):
            raise TableError(
                f"{source}: column {shown(name)} is given as numeric, but holds "
                f"{shown(wrong.iloc[0])}. Give it as categorical or ordinal."
            )
    if given == "date":
        layout, remark = None, ""
        if found == "text":
            words = [str(value) for value in series.dropna().astype(object).unique()]
            layout, remark = date_layout(words)
            if layout is None:
                remark = remark or f"it holds {quoted_names(words, 3)}"
                raise TableError(
                    f"{source}: column {shown(name)} is given as date, but {remark}. Write dates "
                    "as 2024-12-31."
                )
        elif found != "date":
            raise TableError(
                f"{source}: column {shown(name)} is given as date, but holds numbers. Write dates "
                "as 2024-12-31, or give it as numeric."
            )
        return ColumnKind("date", remark, layout=layout)
    if given == "ordinal" and found == "text":
        return ColumnKind("ordinal", order=_order_of(source, name, series))
    reason = "as requested" if given in ("text", "id", "ignore") else ""
    return ColumnKind(given, reason)


def _order_of(source: str, name: str, series: Any) -> list[str]:
    """Return the values of a column that the user gives as ordinal, from low to high."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype) and series.cat.ordered:
        return [str(value) for value in series.cat.categories]
    words = sorted({str(value).strip() for value in series.dropna().astype(object).unique()})
    order = known_order(words) if len(words) > 2 else words
    if order is None:
        raise TableError(
            f"{source}: the order of the values of column {shown(name)} is unknown "
            f"({quoted_names(words)}). Begin them with numbers (1 low, 2 high), or give an "
            "ordered pandas Categorical."
        )
    return order


def _is_bool(series: Any) -> bool:
    import pandas as pd

    return bool(
        pd.api.types.is_bool_dtype(series.dtype)
        or (series.dtype == object and pd.api.types.infer_dtype(series, skipna=True) == "boolean")
    )
