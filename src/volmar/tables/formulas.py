"""Escape text that a spreadsheet would evaluate as a formula."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["neutral", "neutral_fields", "neutral_frame"]

# A character that begins a formula, also in full width, at the start or after invisible
# characters. It counts after apostrophes as well, so that different texts stay different after
# escaping. A reader may drop a leading tab, line end or NUL, so these always count.
_FORMULA = re.compile(
    r"'*(?:[\t\r\n\0]|[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]*[=+\-@＝＋－＠])"
)
# Numbers with a sign are not formulas: with a decimal point or comma, grouped digits, or a per
# cent sign. Dashes alone stand for a missing value.
_NUMBER = re.compile(
    r"'*[ ]*(?:[+\-]?"
    r"(?:\d+(?:[.,]\d*)?|[.,]\d+|\d{1,3}(?:[.,' \xa0\u202f]\d{3})+(?:[.,]\d*)?|inf(?:inity)?|nan)"
    r"(?:e[+\-]?\d+)?[ ]*%?|-+)[ ]*",
    re.ASCII | re.IGNORECASE,
)
# Text that begins like this is never a formula.
_PLAIN = re.compile(r"[0-9A-Za-z]")


def neutral(text: str) -> str:
    """Return the text, with an apostrophe in front if it would be a formula."""
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


def neutral_fields(fields: list[str]) -> list[str]:
    """Return the texts with formulas escaped by `neutral`."""
    is_plain = _PLAIN.match
    return [field if is_plain(field) else neutral(field) for field in fields]


def neutral_frame(frame: Any) -> Any:
    """Return a DataFrame with formulas in column names and values escaped."""
    import pandas as pd

    names = neutral_fields([str(name) for name in frame.columns])
    columns = {}
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            columns[name] = column.cat.rename_categories(_neutral_value)
        elif pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column):
            columns[name] = column.map(_neutral_value, na_action="ignore")
        else:
            columns[name] = column
    return pd.DataFrame(columns, index=frame.index)


def _neutral_value(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    changed = text if _PLAIN.match(text) else neutral(text)
    return changed if changed != text else value
