"""Tables in text files: the separator, the decimal sign, the encoding and the header, found."""

from __future__ import annotations

import csv
import io
import re
import warnings
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from volmar.tables.errors import (
    MAX_FRAME_COLUMNS,
    TableError,
    import_pandas,
    listed,
    one_line,
    open_bytes,
    refuse_duplicates,
    refuse_wide,
)

__all__ = ["Layout", "find_layout", "read_text"]

_HEAD = 1 << 18  # bytes looked at
_LONG_HEAD = 1 << 22  # where two lines do not fit: room for a header of 100,000 names
_RECORDS = 20
_MOST_NAMELESS = 1000
_SEPARATORS = {"csv": ",;\t|", "tsv": "\t,;|", "text": ",;\t|"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_CONTROL = bytes(sorted({*range(9), *range(14, 27), *range(28, 32)}))


@dataclass(frozen=True)
class Layout:
    """How a text file is read: `pandas.read_csv` takes the first three as they are."""

    separator: str
    decimal: str
    encoding: str
    spaced: bool  # whether spaces follow separators
    names: list[str] | None  # the header; None where the first line is a row
    width: int  # number of columns
    notes: list[str]
    growth: float  # bytes of memory that a byte of the file needs, at least

    def options(self) -> dict[str, Any]:
        """Return the arguments of `pandas.read_csv`."""
        return {
            "sep": self.separator,
            "decimal": self.decimal,
            "encoding": self.encoding,
            "skipinitialspace": self.spaced,
            "header": None if self.names is None else 0,
            "names": [f"x{j}" for j in range(self.width)] if self.names is None else None,
        }


def read_text(path: Path, kind: str, *, as_fields: bool = False) -> tuple[Any, list[str]]:
    """Return the DataFrame of a text file, and notes.

    `kind` ("csv", "tsv" or "text") is the separator that is expected first; "text" may have
    spaces between its values, too. With `as_fields` all columns are text, as in the file.
    """
    pd = import_pandas()

    layout = find_layout(path, kind)
    notes = layout.notes
    options = layout.options()
    if as_fields:
        options |= {"dtype": str, "na_filter": False}
    try:
        try:
            frame = _read(pd, path, layout.growth, options)
        except UnicodeDecodeError:
            frame = _read(pd, path, layout.growth, {**options, "encoding": "latin-1"})
            notes = [*notes, _NOT_UTF8]
    except TableError:
        raise
    except (ValueError, OverflowError, OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path.name}: {_reason(error)}") from error
    if not len(frame):
        raise TableError(f"{path.name} has a header and no rows; give a file with rows")
    return frame, notes


def _read(pd: Any, path: Path, growth: float, options: dict[str, Any]) -> Any:
    # Pandas is faster in pieces; where a column's type then depends on the piece, in one.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.DtypeWarning)
        try:
            with open_bytes(path, growth=growth) as file:
                return pd.read_csv(file, **options)
        except pd.errors.DtypeWarning:
            with open_bytes(path, growth=growth) as file:
                return pd.read_csv(file, low_memory=False, **options)


_NOT_UTF8 = "the file is not in UTF-8; it was read as Latin-1"


def find_layout(path: Path, kind: str) -> Layout:
    """Look at the beginning of a text file."""
    head = _head(path)
    if not head.strip(b" \t\r\n\xef\xbb\xbf"):
        raise TableError(f"{path.name} is empty; give a file with a header and rows")
    encoding, notes = _encoding(path, head)
    text = head.decode(encoding, errors="replace")
    if len(head) >= _HEAD:
        text = text[: text.rfind("\n") + 1] or text
    separator, records = _split(path, text, kind)
    first = records[0]
    refuse_wide(path.name, len(first), MAX_FRAME_COLUMNS)
    n_fields = len(text.split()) if separator == r"\s+" else text.count(separator)
    growth = max(1.0, 8.0 * (n_fields + text.count("\n")) / len(text))
    if (longest := max(map(len, records))) > len(first):
        number = next(i for i, record in enumerate(records) if len(record) > len(first))
        raise TableError(
            f"{path.name}: its first line has {len(first)} fields and row {number} has {longest}; "
            "give every column a name, and every row as many fields as there are names"
        )
    decimal = _decimal(separator, records)
    spaced = f"{separator} " in text
    if separator not in (",", "\t", r"\s+") or decimal != ".":
        sign = " and decimal commas" if decimal == "," else ""
        notes.append(f"the file was read with {separator!r} between its values{sign}")
    if _is_row(first, decimal):
        notes.append(
            "the first line holds numbers only, so it was read as a row; the columns are "
            "called x0, x1, ..."
        )
        return Layout(separator, decimal, encoding, spaced, None, len(first), notes, growth)
    names = [name.strip() for name in first]
    refuse_duplicates(path.name, [name or f"Unnamed: {j}" for j, name in enumerate(names)])
    if nameless := [j for j, name in enumerate(names) if not name]:
        if len(nameless) > _MOST_NAMELESS:  # pandas takes a time quadratic in their number
            raise TableError(
                f"{path.name}: {len(nameless):,} fields of its first line are empty; give every "
                "column a name"
            )
        calls = listed(f"'Unnamed: {j}'" for j in nameless)
        notes.append(
            f"columns without a name are called {calls}; if one is a row number, "
            "name it in id_column= or drop="
        )
    return Layout(separator, decimal, encoding, spaced, names, len(first), notes, growth)


def _head(path: Path) -> bytes:
    try:
        with open_bytes(path) as file:
            head: bytes = file.read(_HEAD)
            if head.count(b"\n") > 2:
                return head
            head += file.read(_LONG_HEAD)
            is_all = not file.read(1)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path.name} cannot be read: {_reason(error)}") from error
    if not is_all and b"\n" not in head and b"\r" not in head:
        raise TableError(
            f"{path.name}: its first line is longer than {len(head):,} bytes; save the table with "
            "a row a line"
        )
    return head


def _encoding(path: Path, head: bytes) -> tuple[str, list[str]]:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16", []
    start = head[: 1 << 16]
    n_control = len(start) - len(start.translate(None, _CONTROL))
    if b"\0" in start or n_control > 0.01 * len(start):
        raise TableError(
            f"{path.name} is not a text file; save the table as CSV, or give the file the suffix "
            "of what it is (.parquet, .npy, .npz, .csv.gz)"
        )
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last bytes may be a part of a character.
        if len(head) < _HEAD or error.start < len(head) - 4:
            return "latin-1", [_NOT_UTF8]
    return "utf-8-sig" if head.startswith(b"\xef\xbb\xbf") else "utf-8", []


def _split(path: Path, text: str, kind: str) -> tuple[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    wrong = None
    for separator in _SEPARATORS[kind]:
        reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        try:
            found[separator] = list(islice((record for record in reader if record), _RECORDS))
        except csv.Error as error:  # a field that is too long, if this is the wrong separator
            wrong = error
    if kind == "text":
        lines = (line.split() for line in text.splitlines())
        found[r"\s+"] = list(islice((line for line in lines if line), _RECORDS))
    found = {separator: records for separator, records in found.items() if records}
    if not found:
        raise TableError(
            f"{path.name}: {wrong or 'it has no values'}; save the table as CSV again"
        ) from wrong
    semicolon = found.get(";", [[]])[0]
    if len(semicolon) > 1 and all(map(_DECIMAL_COMMA.fullmatch, semicolon)):
        return ";", found[";"]
    several = {sep: records for sep, records in found.items() if len(records[0]) > 1}
    even = [sep for sep, records in several.items() if len(set(map(len, records))) == 1]
    separator = next(iter([*even, *several]), "," if "," in found else next(iter(found)))
    return separator, found[separator]


def _decimal(separator: str, records: list[list[str]]) -> str:
    if separator == ",":
        return "."
    fields = [field for record in records for field in record]
    if any(map(_DECIMAL_POINT.fullmatch, fields)):
        return "."
    return "," if any(map(_DECIMAL_COMMA.fullmatch, fields)) else "."


def _is_row(fields: list[str], decimal: str) -> bool:
    """Tell whether a first line is no header: numbers only, and not 0, 1, 2, ... in order."""
    if not fields[0].strip() or fields == [str(j) for j in range(len(fields))]:
        return False
    try:
        # An empty field is a missing value.
        [float(field.replace(decimal, ".")) for field in fields if field.strip()]
    except ValueError:
        return False
    return True


def _reason(error: BaseException) -> str:
    """Return what went wrong on one line, without the parser's preamble."""
    if isinstance(error, PermissionError):
        return "permission denied; change the permissions of the file"
    text = getattr(error, "strerror", None) or one_line(error)
    return text + ("; correct that line" if "fields in line" in text else "; save the table again")
