"""`TableError`, its messages, and the opening of files, whose errors become a `TableError`."""

from __future__ import annotations

import difflib
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from volmar._files import printable
from volmar._memory import available_memory

MAX_COLUMNS = 2**22  # a name and a kind are stored for each column
MAX_FRAME_COLUMNS = 2**17  # pandas needs 20 microseconds per column
MAX_DENSE_BYTES = 1 << 30  # maximum size of a sparse table that is made dense


class TableError(ValueError):
    """A table, or an option for it, that cannot be used. The message ends with a remedy."""

    def __init__(self, text: str = ""):
        super().__init__(printable(text))


def shown(value: Any) -> str:
    """Return a value for a message: on one line, in quotes, shortened to 200 characters."""
    text = repr(str(value))
    return text if len(text) <= 200 else text[:150] + "..." + text[-40:]


def listed(values: Iterable[str], limit: int = 5) -> str:
    """Join the first `limit` values by commas, and add the number of the others."""
    words = list(values)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more


def quoted_names(names: Iterable[Any], limit: int = 5) -> str:
    """Join quoted names by commas, as `listed` does."""
    known = list(names)
    # Only the names that are listed are formatted: there may be thousands.
    return listed([*map(shown, known[:limit]), *known[limit:]], limit)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests similar names, or lists the first known ones."""
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"Did you mean {' or '.join(map(shown, near))}?"
    return f"Choose from {quoted_names(known, 8)}."


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, without the full stop, in 200 characters."""
    text = str(error).replace("Error tokenizing data. C error:", "")
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def refuse_duplicates(
    source: str, names: Sequence[str], places: Sequence[Any] | None = None
) -> None:
    """Refuse two columns of the same name. `places` name them in the message, by default 1, 2."""
    seen: dict[str, Any] = {}
    for name, place in zip(names, places or range(1, len(names) + 1), strict=True):
        if name in seen:
            raise TableError(
                f"{source}: columns {seen[name]} and {place} are both called {shown(name)}. "
                "Rename one of them in the file."
            )
        seen[name] = place


def refuse_wide(source: str, n_columns: int, limit: int = MAX_FRAME_COLUMNS) -> None:
    """Refuse more than `limit` columns."""
    if n_columns > limit:
        raise TableError(
            f"{source} has {n_columns:,} columns, more than the maximum of {limit:,}. Save fewer "
            "columns, save numbers as NPY or NPZ, or correct a column number that is too large."
        )


def refuse_empty(source: str, n_rows: int, n_columns: int, n_values: int) -> None:
    """Refuse a large table with a value in less than one of 1,000 cells: empty ones cost, too."""
    if n_rows * n_columns > 10_000_000 and 1000 * n_values < n_rows * n_columns:
        raise TableError(
            f"{source}: a table of {n_rows:,} rows and {n_columns:,} columns has {n_values:,} "
            "cells with a value. Delete the empty rows and columns, or save it as libsvm (.svm)."
        )


def refuse_bomb(source: str, n_packed: int, n_bytes: int) -> None:
    """Refuse a file that decompresses to far more: only repeated lines shrink to a 200th."""
    if n_bytes > max(1 << 24, 200 * n_packed):
        raise TableError(
            f"{source} may be a decompression bomb: its {n_packed:,} bytes decompress to more "
            "than 200 times as many. Decompress it yourself if you trust it."
        )


def open_bytes(path: Path, *, growth: float = 1.0) -> Any:
    """Open a file to read all of it; one whose name ends with .gz is decompressed into memory.

    Content that needs more than the free memory, at `growth` bytes per byte, raises `TableError`.
    Without growth, only decompressed content is checked.
    """
    n_packed, available = path.stat().st_size, available_memory()
    is_packed, n_bytes, content = path.suffix.lower() == ".gz", n_packed, None
    growth = max(growth, is_packed)
    if is_packed:
        n_bytes, content = 0, io.BytesIO()
        with gzip.GzipFile(path) as file:
            while growth * n_bytes <= available and (piece := file.read(1 << 20)):
                n_bytes += content.write(piece)
                refuse_bomb(path.name, n_packed, n_bytes)
        content.seek(0)
    if growth * n_bytes > available:
        raise TableError(
            f"{path.name} does not fit into memory. Split it into a folder of Parquet or CSV "
            "files, and give the folder."
        )
    return content or path.open("rb")


@contextmanager
def reading(path: Path, kind: str = "", remedy: str = "Save the table again.") -> Iterator[None]:
    """Turn every error about the content of a file into a `TableError` of one line.

    Damaged files raise any exception: those of zip and XML, and of NumPy, which parses Python.
    """
    try:
        yield
    except (TableError, MemoryError, ImportError):
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None)
        if isinstance(error, PermissionError):
            remedy = "Check the permissions of the file."
        elif reason is None:
            reason = one_line(error).replace(str(path), path.name)
            remedy = "Correct that line." if "fields in line" in reason else remedy
            if "pickle" in reason:  # NumPy advises to load it unsafely
                reason = "it holds Python objects, which could execute code, or something else"
        raise TableError(f"{path.name[:255]} cannot be read{kind}: {reason}. {remedy}") from error


def import_pandas() -> Any:
    """Return pandas, or raise an error that names the command that installs it."""
    try:
        import pandas as pd
    except ImportError as error:
        raise need("pandas") from error
    return pd


def need(package: str, extra: str = "io") -> ImportError:
    """Return the `ImportError` for an optional package, with the command that installs it."""
    return ImportError(
        f"This kind of table needs {package}, which is not installed. "
        f"Run pip install 'volmar[{extra}]'."
    )
