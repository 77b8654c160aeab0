"""Columns of dates: detected in text, and converted to decimal years."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_dates", "as_years", "date_layout", "date_parts"]

_ISO = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?")
_LOCAL = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d{2})([T ]\d{1,2}:\d{2}.*)?")
_LOOKED_AT = 1000  # values from which the layout is detected
_DAYS_PER_YEAR = 365.2425


def date_layout(values: list[str]) -> str | None:
    """Return the layout of dates in text: "year first", "day first", "month first" or None.

    None means that the values are not dates. A number above 12 is a day. If there is none, the day
    is first in dates with points, and the month is first in others.
    """
    few = [value.strip() for value in values[:_LOOKED_AT]]
    if not few:
        return None
    if all(_ISO.fullmatch(value) for value in few):
        return "year first"
    matches = [_LOCAL.fullmatch(value) for value in few]
    found = [match.groups() for match in matches if match is not None]
    if len(found) < len(few):
        return None
    first, second = (np.array([int(one[place]) for one in found]) for place in (0, 2))
    if max(first.max(), second.max()) > 31 or min(first.max(), second.max()) > 12:
        return None
    day_first = first.max() > 12 or (second.max() <= 12 and found[0][1] == ".")
    return "day first" if day_first else "month first"


def as_dates(series: Any, layout: str | None) -> Any:
    """Return a pandas column as timestamps without a time zone, with NaT for other values."""
    import pandas as pd

    if isinstance(series.dtype, pd.PeriodDtype):
        series = series.dt.to_timestamp()
    is_day = str(series.dtype).startswith("date")  # date32[day][pyarrow], which has no time
    is_day &= isinstance(series.dtype, pd.ArrowDtype)
    if is_day or not pd.api.types.is_datetime64_any_dtype(series.dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about mixed layouts
            series = pd.to_datetime(
                series.astype(object),
                errors="coerce",
                format="mixed",
                dayfirst=layout == "day first",
                utc=True,
            )
    if getattr(series.dt, "tz", None) is not None:
        series = series.dt.tz_convert(None)
    return series


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
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"]
    months += ["Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    weekday = dates.dt.day_of_week.fillna(-1).astype(int).to_numpy()
    month = dates.dt.month.fillna(0).astype(int).to_numpy() - 1
    return {
        f"{name} (weekday)": pd.Categorical.from_codes(weekday, days),
        f"{name} (month)": pd.Categorical.from_codes(month, months),
    }
