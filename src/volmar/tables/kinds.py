"""The kind of a column, detected or given, and its values as numbers, dates or ranks."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.errors import TableError, quoted_names, shown

KINDS = ("numeric", "ordinal", "categorical", "boolean", "date", "text", "id", "ignore")
MAX_CATEGORIES = 50  # maximum number of distinct values of a categorical column
# Minimum number of rows to detect a numeric column as boolean, as ids or as a copy of another one.
MIN_ROWS = 10
FIRST_ROWS = 1000  # number of rows that are checked before all rows are
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
    first = first[np.isfinite(first)]
    if (first % 1 != 0).any() and np.unique(first).size > 2:
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
    # Random draws from their range would have more than 20 ties in expectation.
    if n * (n - 1) / (2.0 * span) > 20.0:
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
    if n_different <= 15 and len(set(words)) == len(words):
        order = known_order(words)
    return ColumnKind("ordinal", order=order) if order else ColumnKind("categorical")


def _has_spaces(words: list[str]) -> bool:
    return sum(" " in word for word in words[:200]) > 0.5 * len(words[:200])


def _are_numbers(known: Any) -> bool:
    first = as_numbers(known.iloc[:FIRST_ROWS])
    if 2 * np.count_nonzero(~np.isnan(first)) < len(first):
        return False
    n_words = np.count_nonzero(np.isnan(as_numbers(known)))
    return bool(n_words <= 0.05 * len(known))


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


# ---------------------------------------------------------------------- numbers


def is_real(dtype: Any) -> bool:
    """Return whether a pandas dtype holds real numbers or booleans."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(dtype) and not is_complex_dtype(dtype))


def as_numbers(series: Any) -> NDArray[np.float64]:
    """Return a pandas column as float64: NaN for other values, infinity for too large numbers."""
    import pandas as pd

    with np.errstate(over="ignore"):
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
            return series.to_numpy(dtype=np.float64)  # ten times as fast as with na_value
        if is_real(series.dtype):
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        values = series.astype(object)
        try:
            parsed = pd.to_numeric(values, errors="coerce")
        except (OverflowError, TypeError, ValueError):
            parsed = None
        if parsed is None or parsed.dtype.kind not in "biuf":
            # Integers of 400 digits, complex numbers or objects of other libraries.
            parsed = pd.to_numeric(values.map(_plain_number), errors="coerce")
        return parsed.to_numpy(dtype=np.float64, na_value=np.nan)


def _plain_number(value: Any) -> Any:
    """Return text unchanged, and other values as float, NaN if that is not possible."""
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
    except (TypeError, ValueError):
        return np.nan


# ---------------------------------------------------------------------- dates

_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august"]
_MONTHS += ["september", "october", "november", "december"]
_TIME = (
    r"(?:[T ] *(\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)? ?(?:[AP]M)? ?"
    r"(?:Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)?))?"
)
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})" + _TIME, re.IGNORECASE)
_LOCAL = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})" + _TIME, re.IGNORECASE)
_NAMED = re.compile(
    r"(?:(\d{1,2})[-/. ]+([a-z]{3,9})|([a-z]{3,9})[-/. ]+(\d{1,2}))[-/., ]+(\d{4})" + _TIME,
    re.IGNORECASE,
)


def date_layout(values: list[str]) -> tuple[str | None, str]:
    """Return the layout of dates in text, and a remark if it is in doubt.

    It is "day first" or "month first" for dates such as 05/06/2024, "year first" without them,
    and None if the values are no dates. A number above 12 is a day. If there is none, the day is
    first in dates with points, and the month in others.
    """
    if not values or any(_as_iso(value, "either") is None for value in values[:FIRST_ROWS]):
        return None, ""
    matches = [_LOCAL.fullmatch(value.strip()) for value in values]
    local = [match for match in matches if match is not None]
    if not local:
        return "year first", ""
    first, second = (np.array([int(match[place]) for match in local]) for place in (1, 3))
    if max(first.max(), second.max()) > 31:
        return None, ""
    if min(first.max(), second.max()) > 12:
        one, other = (local[int(place.argmax())][0] for place in (first, second))
        return None, f"the day is first in dates such as {one}, the month in others ({other})"
    day_first = first.max() > 12 or (second.max() <= 12 and local[0][2] == ".")
    layout = "day first" if day_first else "month first"
    # A number above 31 can only be a year.
    has_year = any(len(match[4]) > 2 or int(match[4]) > 31 for match in local)
    if has_year and max(first.max(), second.max()) > 12:
        return layout, ""
    seen = next((match[0] for match in local if match[1] != match[3]), local[0][0])
    return layout, f"{seen} as {str(_as_iso(seen, layout))[:10]}"


def as_dates(series: Any, layout: str | None) -> Any:
    """Return a column as timestamps without a time zone, NaT for other values.

    Text such as 05/06/2024 is a date only in a `layout` with the day or the month first.
    """
    import pandas as pd

    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    is_day = str(series.dtype).startswith("date")  # date32[day][pyarrow], which has no time
    is_day &= isinstance(series.dtype, pd.ArrowDtype)
    if is_day or not pd.api.types.is_datetime64_any_dtype(series.dtype):
        values = [_as_iso(value, layout) for value in series.astype(object)]
        dates = pd.to_datetime(values, errors="coerce", format="mixed", utc=True)
        series = pd.Series(dates, index=series.index)
    if getattr(series.dt, "tz", None) is not None:
        series = series.dt.tz_convert(None)
    return series


def _as_iso(value: Any, layout: str | None) -> Any:
    """Return a date in text as 2024-12-31 with its time, None for others; "either" takes all."""
    if not isinstance(value, str):
        # A number is not a date: pandas would read it as nanoseconds since 1970.
        moment = value.to_timestamp() if hasattr(value, "to_timestamp") else value
        return moment if isinstance(moment, datetime.date | np.datetime64) else None
    text = value.strip()
    if match := _YEAR_FIRST.fullmatch(text):
        year, _, month, day, time = match.groups()
    elif match := _LOCAL.fullmatch(text):
        day, _, month, year, time = match.groups()
        if layout not in ("day first", "month first", "either"):
            return None
        if layout == "month first":
            day, month = month, day
        if len(year) == 2:  # as in POSIX, whatever the present year is
            year = f"{19 if int(year) > 68 else 20}{year}"
    elif match := _NAMED.fullmatch(text):
        day, name, other, second, year, time = match.groups()
        word = (name or other).lower()
        full = next((full for full in _MONTHS if full.startswith(word)), None)
        if full is None:
            return None
        day, month = day or second, str(_MONTHS.index(full) + 1)
    else:
        return None
    date = f"{year}-{int(month):02}-{int(day):02}"
    return date if time is None else f"{date} {time.replace(',', '.')}"


def as_years(dates: Any) -> NDArray[np.float64]:
    """Return timestamps as decimal years, such as 2024.5 for mid-2024; NaN for NaT."""
    days = dates.to_numpy().astype("datetime64[ms]")
    missing = np.isnat(days)
    years = days.astype(np.int64) / (86_400_000 * 365.2425) + 1970.0
    return np.where(missing, np.nan, years)


def date_parts(dates: Any, name: str) -> dict[str, Any]:
    """Return the weekday and the month of timestamps as categoricals, to describe clusters."""
    import pandas as pd

    days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    months = [name[:3].title() for name in _MONTHS]
    weekday = dates.dt.day_of_week.fillna(-1).astype(int).to_numpy()
    month = dates.dt.month.fillna(0).astype(int).to_numpy() - 1
    return {
        f"{name} (weekday)": pd.Categorical.from_codes(weekday, days),
        f"{name} (month)": pd.Categorical.from_codes(month, months),
    }


# ---------------------------------------------------------------------- ranks

_SCALES = tomllib.loads((files("volmar.tables") / "scales.toml").read_text(encoding="utf-8"))
_PLACES = [
    {word: place for place, words in enumerate(scale) for word in words.split("|")}
    for scale in _SCALES.values()
]
# A number at the front: "1 - bad", "18-24", "65+", "< 10", "10k to 20k".
_NUMBER = re.compile(r"^(under|below|less than|up to|over|above|more than|at least|[<>]=?)?\s*"
                     r"[$€£]?\s*(\d[\d,]*\.?\d*)\s*(k|m)?(?![a-z])", re.IGNORECASE)  # fmt: skip
_BELOW = ("under", "below", "less than", "up to", "<", "<=")
_THOUSANDS = {"k": 1e3, "m": 1e6}


def known_order(values: list[str]) -> list[str] | None:
    """Return text values from low to high, or None if their order is unknown.

    There must be at least three values, all from one scale. Capitals, "_" and "-" are ignored.
    Ranges of numbers are ordered by their first number.

    >>> known_order(["Agree", "Disagree", "Neutral", "Strongly agree"])
    ['Disagree', 'Neutral', 'Agree', 'Strongly agree']
    >>> known_order(["65+", "18-24", "25-64"])
    ['18-24', '25-64', '65+']
    """
    if len(values) < 3:
        return None
    words = [" ".join(re.split(r"[\s_-]+", value.strip().lower())) for value in values]
    for places in _PLACES:
        found = [places.get(word) for word in words]
        if None not in found and len(set(found)) == len(found):
            return [value for _, value in sorted(zip(found, values, strict=True))]
    return _by_numbers(values)


def _by_numbers(values: list[str]) -> list[str] | None:
    """Order values by the number they begin with. None if one has none, or two are equal."""
    keys = []
    for value in values:
        match = _NUMBER.match(value.strip())
        if match is None:
            return None
        before, number, unit = match.groups()
        size = float(number.replace(",", "").rstrip(".")) * _THOUSANDS.get((unit or "").lower(), 1)
        # "under 10" comes before "10 to 20", "over 20" after "20 to 30".
        side = 0 if before is None else -1 if before.lower() in _BELOW else 1
        keys.append((size, side))
    if len(set(keys)) < len(keys):
        return None
    return [value for _, value in sorted(zip(keys, values, strict=True))]
