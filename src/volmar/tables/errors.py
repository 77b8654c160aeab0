"""The error of this room, and how its messages show names and values."""

from __future__ import annotations

import difflib
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "TableError",
    "import_pandas",
    "listed",
    "nearest",
    "need",
    "one_line",
    "open_bytes",
    "quoted_names",
    "refuse_duplicates",
    "shown",
]


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


def quoted_names(names: Iterable[Any], most: int = 5) -> str:
    """Return names in quotes, the first few of many."""
    return listed(map(shown, names), most)


def refuse_duplicates(
    source: str, names: Sequence[str], places: Sequence[Any] | None = None
) -> None:
    """Refuse two columns of one name; `places` is what messages call them, 1, 2, ... if None."""
    seen: dict[str, Any] = {}
    for name, place in zip(names, places or range(1, len(names) + 1), strict=True):
        if name in seen:
            raise TableError(
                f"{source}: columns {seen[name]} and {place} are both called {shown(name)}; "
                "rename one of them in the file"
            )
        seen[name] = place


def open_bytes(path: Path) -> Any:
    """Open a file for reading; one that ends with .gz is decompressed."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def nearest(name: str, known: Sequence[str]) -> str:
    """Return what to choose from: the names most like this one, or the first few."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(shown, near))}?"
    return f"there are {quoted_names(known, 8)}"


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, without a full stop and not too long."""
    text = str(error).replace("Error tokenizing data. C error:", "")
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def import_pandas() -> Any:
    """Return pandas, or say how it is installed."""
    try:
        import pandas as pd
    except ImportError as error:
        raise need("pandas") from error
    return pd


def need(package: str, extra: str = "io") -> ImportError:
    """Return the error for a library of an extra that is not installed."""
    return ImportError(
        f"this kind of table needs {package}, which is not installed: "
        f"pip install 'volmar[{extra}]'"
    )
