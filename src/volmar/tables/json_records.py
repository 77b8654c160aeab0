"""Tables in JSON files: one record per line, or a list of records."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from volmar._memory import require_memory
from volmar.tables.errors import (
    MAX_FRAME_COLUMNS,
    TableError,
    import_pandas,
    one_line,
    open_bytes,
    quoted_names,
    refuse_empty,
    refuse_wide,
)

__all__ = ["read_json"]

_REMEDY = 'Save it with pandas by to_json(file, orient="records").'


def read_json(path: Path, suffix: str) -> tuple[Any, list[str]]:
    """Return the DataFrame of a JSON file, and notes.

    `suffix` is the suffix of the file without .gz. A ".json" file holds a list of records or one
    record per line, ".jsonl" and ".ndjson" files hold one record per line.
    """
    pd = import_pandas()
    try:
        with open_bytes(path) as file:
            text = file.read().decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(f"{path.name} cannot be decompressed: {error}. Save it again.") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{path.name} is not UTF-8. Save it again as UTF-8.") from error
    if not text.strip():
        raise TableError(f"{path.name} is empty. Give a file with records.")
    # Python objects need much more memory than their text: an empty record of 3 bytes needs 72.
    n_objects = text.count("{") + text.count("[")
    needed = 2.0 * len(text) + 72.0 * n_objects + 32.0 * text.count(",")
    require_memory(needed, f"the content of {path.name}", "Save it as Parquet.")
    records: Any = _whole(path, text) if suffix == ".json" else None
    if records is None:
        records = _lines(path, text)
    if isinstance(records, list):
        names = {name for record in records for name in record}
        refuse_wide(path.name, len(names), MAX_FRAME_COLUMNS)
        refuse_empty(path.name, len(records), len(names), sum(map(len, records)))
        needed = 16.0 * len(records) * len(names)
        require_memory(needed, f"the table of {path.name}", "Save it as Parquet.")
    try:
        frame = records if hasattr(records, "columns") else pd.DataFrame.from_records(records)
    except UnicodeEncodeError as error:
        raise TableError(
            f"{path.name} holds text with half of a surrogate pair ({one_line(error)}). Save it "
            "again as UTF-8."
        ) from error
    if not frame.size:
        raise TableError(f"{path.name} has no values. Give a file with records.")
    return _without_nested(path, frame)


def _lines(path: Path, text: str) -> list[dict[str, Any]]:
    records = []
    # Not by splitlines, which also splits at characters that may be inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TableError(
                f"{path.name}: line {number} is not valid JSON ({one_line(error)}). Write one "
                "record per line."
            ) from error
        if not isinstance(record, dict):
            raise TableError(
                f"{path.name}: line {number} holds {_kind(record)}, not a record. Write every "
                'line as {"column": value, ...}.'
            )
        records.append(record)
    return records


def _whole(path: Path, text: str) -> Any:
    """Return the records of a JSON document. None if it has one document per line."""
    import pandas as pd

    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data") and len(text.splitlines()) > 1:
            return None
        raise TableError(
            f"{path.name} is not valid JSON ({one_line(error)}). Save the table again."
        ) from error
    if isinstance(content, list):
        odd = next((i for i, one in enumerate(content) if not isinstance(one, dict)), None)
        if odd is not None:
            raise TableError(
                f"{path.name}: entry {odd} of the list is {_kind(content[odd])}, not a record. "
                + _REMEDY
            )
        return content
    if isinstance(content, dict) and content:
        columns = list(content.values())
        # The default of pandas.DataFrame.to_json: columns, each with its values by row name.
        by_name = all(isinstance(one, dict) and one.keys() == columns[0].keys() for one in columns)
        by_place = all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns)
        if by_place or (by_name and columns[0]):
            lists = columns if by_place else [list(one.values()) for one in columns]
            return pd.DataFrame(dict(zip(content, lists, strict=True)))
    raise TableError(f"{path.name} holds {_kind(content)}, not a list of records. {_REMEDY}")


def _without_nested(path: Path, frame: Any) -> tuple[Any, list[str]]:
    """Leave out columns of lists and objects. Empty texts become missing values, as in CSV."""
    nested = []
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind in "biuf":
            continue
        if any(isinstance(value, list | dict) for value in column):
            nested.append(name)
        elif (column == "").any():
            frame = frame.assign(**{name: column.where(column != "", None)})
    if len(nested) == len(frame.columns):
        raise TableError(
            f"{path.name}: all columns hold lists or objects ({quoted_names(nested)}). "
            "Flatten the records with pandas.json_normalize."
        )
    notes = []
    if nested:
        notes.append(
            f"columns of lists or objects were left out: {quoted_names(nested)}; "
            "pandas.json_normalize flattens them"
        )
    return frame.drop(columns=nested).infer_objects(), notes


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    return kinds.get(type(value), "null" if value is None else "a number")
