"""Known orders of text values: survey answers, sizes, levels, and ranges of numbers."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files

__all__ = ["known_order"]

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
