"""Tables in text files: detect the separator, decimal sign, encoding and header, and read."""

from __future__ import annotations

import codecs
import csv
import io
import re
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

_HEAD = 1 << 18  # bytes from which the layout is detected
_LONG_HEAD = 1 << 22  # bytes if the lines are longer: enough for a header of 100,000 names
_RECORDS = 20  # lines from which the separator is detected
_MAX_NAMELESS = 1000  # columns without a name
_SEPARATORS = {"csv": ",;\t|", "tsv": "\t,;|", "text": ",;\t|"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_CONTROL = bytes(sorted({*range(9), *range(14, 27), *range(28, 32)}))


@dataclass(frozen=True)
class Layout:
    """The layout of a text file. The first three fields are arguments of `pandas.read_csv`."""

    separator: str
    decimal: str
    encoding: str
    spaced: bool  # whether spaces follow separators
    names: list[str] | None  # the header; None if the first line is a row
    width: int  # number of columns
    notes: list[str]
    growth: float  # minimum bytes of memory per byte of the file

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

    `kind` is "csv", "tsv" or "text". It gives the order in which separators are tried; "text" may
    also be separated by spaces. With `as_fields`, all columns are text, exactly as in the file.
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
        raise TableError(f"{path.name} has a header and no rows. Give a file with rows.")
    return frame, notes


def _read(pd: Any, path: Path, growth: float, options: dict[str, Any]) -> Any:
    # As a whole: in pieces, a column may have several types.
    with open_bytes(path, growth=growth) as file:
        return pd.read_csv(file, low_memory=False, **options)


_NOT_UTF8 = "the file is not UTF-8 and was read as Latin-1"


def find_layout(path: Path, kind: str) -> Layout:
    """Return the layout of a text file, detected from its beginning."""
    head = _head(path)
    if not head.strip(b" \t\r\n\xef\xbb\xbf"):
        raise TableError(f"{path.name} is empty. Give a file with a header and rows.")
    encoding, notes = _encoding(path, head)
    # Old files of the Mac end lines by "\r" alone. pandas reads them, too.
    text = head.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")
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
            f"{path.name}: the first line has {len(first)} fields, row {number} has {longest}. "
            "Give every column a name, and every row as many fields as there are names."
        )
    decimal = _decimal(separator, records)
    if decimal == "." and separator != ",":
        both = [_found(pattern, records) for pattern in (_DECIMAL_COMMA, _DECIMAL_POINT)]
        if all(both):
            notes.append(
                f"the file has numbers with a comma ({both[0]}) and with a point ({both[1]}), and "
                "the point was read as the decimal sign; save it without thousands separators"
            )
    spaced = f"{separator} " in text
    if separator not in (",", "\t", r"\s+") or decimal != ".":
        sign = " and decimal commas" if decimal == "," else ""
        notes.append(f"the file was read with the separator {separator!r}{sign}")
    if _is_row(first, decimal):
        notes.append(
            "the first line holds only numbers and was read as a row; the columns are named "
            "x0, x1, ..."
        )
        return Layout(separator, decimal, encoding, spaced, None, len(first), notes, growth)
    names = [name.strip() for name in first]
    refuse_duplicates(path.name, [name or f"Unnamed: {j}" for j, name in enumerate(names)])
    if nameless := [j for j, name in enumerate(names) if not name]:
        if len(nameless) > _MAX_NAMELESS:  # the time of pandas is quadratic in their number
            raise TableError(
                f"{path.name}: {len(nameless):,} fields of the first line are empty. Give every "
                "column a name."
            )
        calls = listed(f"'Unnamed: {j}'" for j in nameless)
        notes.append(
            f"columns without a name were named {calls}; if one holds row numbers, "
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
            f"{path.name}: the first line is longer than {len(head):,} bytes. Save the table with "
            "one row per line."
        )
    return head


def _encoding(path: Path, head: bytes) -> tuple[str, list[str]]:
    # The mark of UTF-32 begins with that of UTF-16.
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32", []
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", []
    start = head[: 1 << 16]
    n_control = len(start) - len(start.translate(None, _CONTROL))
    if b"\0" in start or n_control > 0.01 * len(start):
        raise TableError(
            f"{path.name} is not a text file. Save the table as CSV in UTF-8, or give the file "
            "the suffix of its format (.parquet, .npy, .npz, .csv.gz)."
        )
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The last character may be cut off.
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
        except csv.Error as error:  # with the wrong separator, a field may be too long
            wrong = error
    if kind == "text":
        lines = (line.split() for line in text.splitlines())
        found[r"\s+"] = list(islice((line for line in lines if line), _RECORDS))
    found = {separator: records for separator, records in found.items() if records}
    if not found:
        raise TableError(
            f"{path.name}: {wrong or 'the file has no values'}. Save the table as CSV again."
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
    if _found(_DECIMAL_POINT, records):
        return "."
    return "," if _found(_DECIMAL_COMMA, records) else "."


def _found(pattern: re.Pattern[str], records: list[list[str]]) -> str | None:
    """Return the first field that matches."""
    return next((one for record in records for one in record if pattern.fullmatch(one)), None)


def _is_row(fields: list[str], decimal: str) -> bool:
    """Return whether the first line is a row: only numbers, other than the names 0, 1, 2, ..."""
    if not fields[0].strip() or fields == [str(j) for j in range(len(fields))]:
        return False
    try:
        # An empty field is a missing value.
        [float(field.replace(decimal, ".")) for field in fields if field.strip()]
    except ValueError:
        return False
    return True


def _reason(error: BaseException) -> str:
    """Return the reason and a remedy, without the preamble of the parser."""
    if isinstance(error, PermissionError):
        return "permission denied. Change the permissions of the file."
    text = getattr(error, "strerror", None) or one_line(error)
    remedy = "Correct that line." if "fields in line" in text else "Save the table again."
    return f"{text}. {remedy}"
