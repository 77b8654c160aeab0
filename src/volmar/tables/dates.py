"""Columns of dates: detected in text, and converted to decimal years."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_dates", "as_years", "date_layout", "date_parts"]

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
_LOOKED_AT = 1000  # values that must all be dates
_DAYS_PER_YEAR = 365.2425


def date_layout(values: list[str]) -> tuple[str | None, str]:
    """Return the layout of dates in text, and a remark if it is in doubt.

    The layout is "day first" or "month first" for dates such as 05/06/2024, "year first" if there
    are none, and None if the values are not dates. Dates with the year first or with the name of
    the month may be among them. A number above 12 is a day. If there is none, the day is first in
    dates with points, and the month is first in others.
    """
    if not values or any(_as_iso(value, "either") is None for value in values[:_LOOKED_AT]):
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
    """Return a pandas column as timestamps without a time zone, with NaT for other values.

    `layout` is that of the fitted column. Text such as 05/06/2024 is a date only if the layout has
    the day or the month first. The year may be first in any column.
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
    """Return a date in text as 2024-12-31, with its time. None for values that are not dates.

    The layout "either" accepts dates of both local layouts.
    """
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
    years = days.astype(np.int64) / (86_400_000 * _DAYS_PER_YEAR) + 1970.0
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
