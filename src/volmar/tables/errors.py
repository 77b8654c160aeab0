"""The error of this room, and how its messages show names and values."""

from __future__ import annotations

import difflib
import gzip
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from volmar._files import printable
from volmar._memory import available_memory

__all__ = [
    "MAX_COLUMNS",
    "MAX_FRAME_COLUMNS",
    "TableError",
    "import_pandas",
    "listed",
    "nearest",
    "need",
    "one_line",
    "open_bytes",
    "quoted_names",
    "refuse_bomb",
    "refuse_duplicates",
    "refuse_wide",
    "shown",
]


# A table with more columns is refused: a name and a kind are kept for each.
MAX_COLUMNS = 2**22
# The same of tables whose columns have types of their own: pandas needs 20 microseconds for each.
MAX_FRAME_COLUMNS = 2**17
# A compressed file may grow to so many times its size, unless it stays small. No text but copies
# of one line is compressed by that much.
_MOST_GROWTH, _SMALL = 200, 1 << 24


class TableError(ValueError):
    """A table, or a wish about it, that cannot be used; one line that ends with the remedy."""

    def __init__(self, text: str = ""):
        super().__init__(printable(text))


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
    known = list(names)
    # Thousands of names are not turned into text for a few of them.
    return listed([*map(shown, known[:most]), *known[most:]], most)


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


def refuse_wide(source: str, n_columns: int, most: int = MAX_COLUMNS) -> None:
    """Refuse more columns than `most`."""
    if n_columns > most:
        raise TableError(
            f"{source} has {n_columns:,} columns, and at most {most:,} are read; save fewer "
            "columns, numbers as NPY or NPZ, or correct a column number that is too large"
        )


def refuse_bomb(source: str, n_packed: int, n_bytes: int) -> None:
    """Refuse `n_bytes` of content that were compressed to much less than a table can be."""
    if n_bytes > max(_SMALL, _MOST_GROWTH * n_packed):
        raise TableError(
            f"{source} is refused as a decompression bomb: its {n_packed:,} bytes decompress to "
            f"more than {_MOST_GROWTH} times as many; decompress it, if you trust it"
        )


def open_bytes(path: Path, *, growth: float = 1.0) -> Any:
    """Open a file for reading; one that ends with .gz is decompressed.

    Reading raises `TableError` for a file that is larger than the free memory, where each byte of
    it needs `growth` bytes.
    """
    return io.BufferedReader(_Bounded(path, growth), 1 << 17)


class _Bounded(io.RawIOBase):
    """The content of a file, up to the size of the free memory."""

    def __init__(self, path: Path, growth: float):
        self._name, self._n_packed = path.name, path.stat().st_size
        is_packed = path.suffix.lower() == ".gz"
        self._file: Any = gzip.GzipFile(path) if is_packed else path.open("rb")
        self._is_packed, self._n_read = is_packed, 0
        self._limit = available_memory() / growth

    def readable(self) -> bool:
        """Tell that this is for reading."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes, and count them."""
        n_bytes = self._file.readinto(buffer)
        self._n_read += n_bytes
        if self._n_read > self._limit:
            raise TableError(
                f"{self._name} does not fit into memory; split it into a folder of Parquet or CSV "
                "files and give the folder"
            )
        if self._is_packed:
            refuse_bomb(self._name, self._n_packed, self._n_read)
        return int(n_bytes)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()


def nearest(name: str, known: Sequence[str]) -> str:
    """Return what to choose from: the names most like this one, or the first few."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(shown, near))}?"
    return f"there are {quoted_names(known, 8)}"


def one_line(error: BaseException, shorter: Mapping[str, str] | None = None) -> str:
    """Return an error's text on one line, without a full stop and not too long.

    `shorter` has words to replace: a path by its last part.
    """
    text = str(error)
    for word, other in {"Error tokenizing data. C error:": "", **(shorter or {})}.items():
        text = text.replace(word, other)
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
