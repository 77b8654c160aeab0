"""The error of this room, and how its messages show names and values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["TableError", "listed", "nearest", "need", "shown"]


class TableError(ValueError):
    """A table, or a wish about it, that cannot be used; one line that ends with the remedy."""


def shown(value: Any) -> str:
    """Return a value as a message shows it: on one line, in quotes, not too long."""
    text = repr(str(value))
    return text if len(text) <= 200 else text[:150] + "..." + text[-40:]


def listed(values: Iterable[str], most: int = 5) -> str:
    """Return a few of the values with commas between, and how many more there are."""
    words = list(values)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def nearest(name: str, known: Sequence[str]) -> str:
    """Return what to choose from: the names most like this one, or the first few."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(shown, near))}?"
    return f"there are {listed(map(shown, known), 8)}"


def need(package: str, extra: str = "io") -> ImportError:
    """Return the error for a library of an extra that is not installed."""
    return ImportError(
        f"this kind of table needs {package}, which is not installed: "
        f"pip install 'volmar[{extra}]'"
    )
