"""`read_table`: read a table from a file of any supported format."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._files import expanded_path, printable
from volmar._input import with_short_indices
from volmar._memory import require_memory
from volmar._npy import check_indices
from volmar.tables.errors import (
    MAX_COLUMNS,
    TableError,
    import_pandas,
    listed,
    nearest,
    need,
    one_line,
    open_bytes,
    quoted_names,
    reading,
    refuse_bomb,
    refuse_duplicates,
    refuse_empty,
    refuse_wide,
    shown,
)

# Separators of text by suffix, in the order in which they are tried. " " stands for any spaces.
TEXT = {".csv": ",;\t|", ".tsv": "\t,;|", ".tab": "\t,;|"}
TEXT |= dict.fromkeys((".txt", ".dat", ".data", ""), ",;\t| ")
_ARROW = {".parquet": "Parquet", ".pq": "Parquet", ".feather": "Feather", ".arrow": "Feather"}
_LIBSVM = (".svm", ".libsvm", ".svmlight")
_EXCEL = (".xlsx", ".xlsm", ".xls")
_JSON = (".json", ".jsonl", ".ndjson")
_NUMPY = (".npy", ".npz")
_PACKED = {*TEXT, *_LIBSVM, *_JSON}
_SUFFIXES = {*_PACKED, *_ARROW, *_EXCEL, *_NUMPY, ".gz"} - {""}
_FORMATS = "CSV, TSV, TXT, Parquet, Feather, Excel, JSON, JSON lines, NPY, NPZ and libsvm (.svm)"


@dataclass(frozen=True)
class LoadedTable:
    """A table that was read from a file.

    Attributes
    ----------
    name : str
        Name of the file.
    data : DataFrame, ndarray or csr_array
        The rows. NPY, NPZ and libsvm files give an array.
    truth : ndarray or None
        True labels of libsvm files. They are not used for clustering.
    feature_names : list of str or None
        Names of the columns of an array, if they are known.
    notes : list of str
        Decisions made while reading, such as the separator. One line each.
    path : Path or None
        The file.
    """

    name: str
    data: Any
    truth: NDArray[Any] | None = None
    feature_names: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    path: Path | None = None


def read_table(source: str | Path) -> LoadedTable:
    """Read a table from a file.

    Parameters
    ----------
    source : str or Path
        Path of a file, whose suffix gives its format:

        - .csv, .tsv, .txt: text, whose separator is detected;
        - .jsonl, .ndjson, .json: records;
        - .svm, .libsvm, .svmlight: sparse rows with labels;
        - all of these with .gz appended;
        - .parquet or .pq, .feather or .arrow;
        - .xlsx, .xlsm or .xls: the first sheet, or the one named as in "file.xlsx#Name";
        - .npy, .npz: the array called X, or the only two-dimensional array.

    Returns
    -------
    LoadedTable

    Raises
    ------
    TableError
        If there is no such file, or its content cannot be used.
    ImportError
        If pandas, pyarrow or openpyxl is needed and not installed.

    Notes
    -----
    Files need not be trusted: their content is checked before it is used, and no code in them is
    executed. The following raise a `TableError`: sparse matrices whose indices do not fit their
    shape; more than 2**22 columns (2**17 in text, Parquet and Feather files); Excel sheets that
    are larger than Excel allows or almost empty; compressed text and workbooks that decompress to
    more than 200 times their size and more than 16 MiB; and content that needs more than the free
    memory.

    Examples
    --------
    >>> from volmar.tables import read_table
    >>> table = read_table("customers.csv")  # doctest: +SKIP
    """
    if not str(source).strip():
        raise TableError("'' is not the path of a file. Give that of a table.")
    try:
        path = expanded_path(source)
    except ValueError as error:
        raise TableError(f"{one_line(error)}.") from error
    try:
        with reading(path, remedy="Check the path and its content."):
            if path.exists():
                return _read_file(path, None)
            name, _, sheet = path.name.partition("#")
            if not (name and sheet) or not path.with_name(name).is_file():
                raise TableError(f"There is no file {shown(str(source))}. Check the path.")
            if Path(name).suffix.lower() not in _EXCEL:
                raise TableError(
                    f"{name} is no Excel file and has no sheet {shown(sheet)}. Omit the #."
                )
            return _read_file(path.with_name(name), sheet)
    except MemoryError as error:
        reason = one_line(error) if error.args else "it does not fit into memory"
        raise TableError(
            f"{path.name} cannot be read: {reason}. Split it into a folder of Parquet or CSV "
            "files, and give the folder."
        ) from error


def read_fields(path: Path) -> Any:
    """Return the fields of a text file as a DataFrame of text. None for files of other kinds."""
    known = TEXT.get(plain_suffix(path))
    return None if known is None else _read_text(path, known, dtype=str, na_filter=False)[0]


def plain_suffix(path: Path) -> str:
    """Return the suffix in lower case, without the .gz of a compressed file."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _read_file(path: Path, sheet: str | None) -> LoadedTable:
    suffix, name = plain_suffix(path), printable(path.name)
    if path.is_dir():
        raise TableError(
            f"{path} is a folder without .parquet or .csv files. Give a file, or a folder with "
            "such files."
        )
    if suffix not in _PACKED and path.suffix.lower() == ".gz":
        raise TableError(f"{path.name} is compressed and no text file. Decompress it by gunzip.")
    if not path.is_file():
        raise TableError(f"{path} is not a regular file. Save the table in a file.")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty. Give a file with rows.")
    notes: list[str] = []
    truth = None
    if suffix in TEXT:
        data, notes = _read_text(path, TEXT[suffix])
    elif suffix in _ARROW:
        data = _read_arrow(path, _ARROW[suffix])
    elif suffix in _EXCEL:
        data, notes = _read_excel(path, sheet)
        name += "" if sheet is None else f"#{printable(sheet)}"
    elif suffix in _JSON:
        data, notes = _read_json(path, suffix)
    elif suffix in _NUMPY:
        data = _read_numpy(path)
    elif suffix in _LIBSVM:
        data, truth = _read_libsvm(path)
    else:
        raise TableError(
            f"{path.name} has the suffix {shown(suffix)}, which is not supported. Save the table "
            f"as CSV. Supported formats are {_FORMATS}."
        )
    return LoadedTable(name, data, truth, notes=notes, path=path)


# ---------------------------------------------------------------------- text

_HEAD = 1 << 18  # bytes from which the layout is detected
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_CONTROL = bytes(sorted({*range(9), *range(14, 27), *range(28, 32)}))
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_MARKS |= {codecs.BOM_UTF8: "utf-8-sig"}
_NOT_UTF8 = "the file is not UTF-8 and was read as Latin-1"
_NO_HEADER = "the first {} holds only numbers and was read as a row; columns are named x0, x1, ..."


@dataclass(frozen=True)
class Layout:
    """The layout of a text file, as detected from its beginning."""

    options: dict[str, Any]  # arguments of `pandas.read_csv`
    names: list[str]
    notes: list[str]
    growth: float  # minimum bytes of memory per byte of the file


def _read_text(path: Path, separators: str, **more: Any) -> tuple[Any, list[str]]:
    """Return the DataFrame of a text file, read with `more` arguments of pandas, and notes."""
    pd = import_pandas()
    layout = find_layout(path, separators)
    options = layout.options | more

    def read(encoding: str) -> Any:
        # As a whole: in pieces, a column may have several types.
        with open_bytes(path, growth=layout.growth) as file:
            return pd.read_csv(file, low_memory=False, **(options | {"encoding": encoding}))

    with reading(path):
        try:
            frame, notes = read(options["encoding"]), layout.notes
        except UnicodeDecodeError:
            frame, notes = read("latin-1"), [*layout.notes, _NOT_UTF8]
    if not len(frame):
        raise TableError(f"{path.name} has a header and no rows. Give a file with rows.")
    return frame, notes


def find_layout(path: Path, separators: str) -> Layout:
    """Return the layout of a text file. Of the separators, the first that fits is chosen."""
    head = _head(path)
    encoding = _encoding(path, head)
    notes = [_NOT_UTF8] if encoding == "latin-1" else []
    # Old files of the Mac end lines by "\r" alone. pandas reads them, too.
    text = head.decode(encoding, errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if len(head) >= _HEAD:
        text = text[: text.rfind("\n") + 1] or text
    separator, records = _split(path, text, separators)
    first = records[0]
    refuse_wide(path.name, len(first))
    for number, record in enumerate(records):
        if len(record) > len(first):
            n_fields = f"{len(first)} fields, row {number} has {max(map(len, records))}"
            raise TableError(
                f"{path.name}: the first line has {n_fields}. Give every column a name, and every "
                "row as many fields as there are names."
            )
    fields = [one for record in records for one in record] if separator != "," else []
    comma = next(filter(_DECIMAL_COMMA.fullmatch, fields), None)
    point = next(filter(_DECIMAL_POINT.fullmatch, fields), None)
    decimal = "," if comma and not point else "."
    if comma and point:
        notes.append(
            f"the file has numbers with a comma ({comma}) and with a point ({point}), and "
            "the point was read as the decimal sign; save it without thousands separators"
        )
    if separator not in (",", "\t", r"\s+") or decimal != ".":
        sign = " and decimal commas" if decimal == "," else ""
        notes.append(f"the file was read with the separator {separator!r}{sign}")
    has_header = not _is_row(first, decimal)
    n_empty = sum(not one.strip() for one in first)
    if not has_header:
        names = [f"x{j}" for j in range(len(first))]
        notes.append(_NO_HEADER.format("line"))
    elif n_empty > 1000:  # the time of pandas is quadratic in their number
        where = f"{path.name}: {n_empty:,} fields of the first line are empty"
        raise TableError(f"{where}. Give every column a name.")
    else:
        names = _filled([one.strip() for one in first], range(len(first)), notes)
        refuse_duplicates(path.name, names)
    options = {
        "sep": separator,
        "decimal": decimal,
        "encoding": encoding,
        "skipinitialspace": f"{separator} " in text,
        "header": 0 if has_header else None,
        "names": None if has_header else names,
    }
    n_separated = len(text.split()) if separator == r"\s+" else text.count(separator)
    growth = max(1.0, 8.0 * (n_separated + text.count("\n")) / len(text))
    return Layout(options, names, notes, growth)


def _filled(names: list[str], places: Iterable[Any], notes: list[str]) -> list[str]:
    """Return names with those that are missing made of the places of their columns."""
    known = [name or f"Unnamed: {place}" for name, place in zip(names, places, strict=True)]
    if not all(names):
        calls = listed(repr(new) for name, new in zip(names, known, strict=True) if not name)
        notes.append(
            f"columns without a name were named {calls}; if one holds row numbers, "
            "name it in id_column= or drop="
        )
    return known


def _head(path: Path) -> bytes:
    packed = path.suffix.lower() == ".gz"
    with reading(path), gzip.GzipFile(path) if packed else path.open("rb") as file:
        head: bytes = file.read(_HEAD)
        is_all = len(head) < _HEAD
        if head.count(b"\n") <= 2:
            head += file.read(16 * _HEAD)  # enough for a header of 100,000 names
            is_all = not file.read(1)
    if not head.strip(b" \t\r\n\xef\xbb\xbf"):
        raise TableError(f"{path.name} is empty. Give a file with a header and rows.")
    if not is_all and b"\n" not in head and b"\r" not in head:
        raise TableError(
            f"{path.name}: the first line is longer than {len(head):,} bytes. Save the table with "
            "one row per line."
        )
    return head


def _encoding(path: Path, head: bytes) -> str:
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "utf-8")
    if marked in ("utf-16", "utf-32"):
        return marked
    start = head[: 1 << 16]
    n_control = len(start) - len(start.translate(None, _CONTROL))
    if b"\0" in start or n_control > 0.01 * len(start):
        raise TableError(
            f"{path.name} is not a text file. Save the table as CSV in UTF-8, or give the file "
            "the suffix of its format (.parquet, .npy, .npz, .csv.gz)."
        )
    try:  # a character at the end may be cut off
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < _HEAD)
    except UnicodeDecodeError:
        return "latin-1"
    return marked


def _split(path: Path, text: str, separators: str) -> tuple[str, list[list[str]]]:
    """Return the separator, and the fields of the first lines.

    It is the first one that gives all lines the same number of fields, two or more.
    """
    found: dict[str, list[list[str]]] = {}
    wrong = None
    for separator in separators:
        lines: Iterable[list[str]] = (line.split() for line in text.splitlines())
        if separator != " ":
            lines = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        try:
            if records := list(islice(filter(None, lines), 20)):
                found[separator if separator != " " else r"\s+"] = records
        except csv.Error as error:  # with the wrong separator, a field may be too long
            wrong = error
    if not found:
        raise TableError(
            f"{path.name}: {wrong or 'the file has no values'}. Save the table as CSV again."
        ) from wrong
    semicolon = found.get(";", [[]])[0]
    if len(semicolon) > 1 and all(map(_DECIMAL_COMMA.fullmatch, semicolon)):
        return ";", found[";"]
    several = {sep: records for sep, records in found.items() if len(records[0]) > 1}
    even = [sep for sep, records in several.items() if len(set(map(len, records))) == 1]
    separator = next(iter([*even, *several, *({","} & found.keys()), *found]))
    return separator, found[separator]


def _is_row(fields: list[str], decimal: str) -> bool:
    """Return whether the first line is a row: only numbers, other than the names 0, 1, 2, ..."""
    if not fields[0].strip() or fields == [str(j) for j in range(len(fields))]:
        return False
    try:
        # An empty field is a missing value.
        [float(one.replace(decimal, ".")) for one in fields if one.strip()]
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------------- Excel

_ROW = re.compile(rb"<(?:\w+:)?row\b(?:[^>]*?\br=[\"']0*(\d+))?")
_CELL = re.compile(rb"<(?:\w+:)?c\b(?:[^>]*?\br=[\"']([A-Za-z]*))?")


def _read_excel(path: Path, sheet: str | None) -> tuple[Any, list[str]]:
    """Return the DataFrame of a sheet, and notes. If `sheet` is None, the first one is read."""
    pd = import_pandas()
    is_old = path.suffix.lower() == ".xls"
    try:
        __import__("xlrd" if is_old else "openpyxl")
    except ImportError as error:
        if not is_old:
            raise need("openpyxl") from error
        # Not an `ImportError`: no extra of volmar installs xlrd.
        raise TableError(
            f"{path.name} needs xlrd. Save the table as .xlsx, or run pip install xlrd."
        ) from error
    with reading(path, " as Excel", "Remove a password, or save the table as CSV."):
        if not is_old:
            _refuse_large(path)
        with pd.ExcelFile(path) as book:
            names = [str(name) for name in book.sheet_names]
            if sheet is not None and sheet not in names:
                raise TableError(
                    f"{path.name} has no sheet {shown(sheet)}. {nearest(sheet, names)}"
                )
            cells = pd.read_excel(book, sheet_name=sheet or names[0], header=None)
        return _sheet_table(path, sheet, names, cells)


def _refuse_large(path: Path) -> None:
    """Refuse a small workbook that is large in memory, where empty cells count, too."""
    with zipfile.ZipFile(path) as members:
        infos = members.infolist()
        n_bytes = sum(info.file_size for info in infos)
        refuse_bomb(path.name, path.stat().st_size, n_bytes)
        # Twelve bytes of Python objects per byte of XML: an empty row takes 64 bytes for 6.
        require_memory(12 * n_bytes, f"the content of {path.name}", "Save it as CSV.")
        sheets = [members.read(info) for info in infos if "worksheets/" in info.filename]
    for content in sheets:
        rows = [int((row[1] or b"0")[:12]) for row in _ROW.finditer(content)]
        letters = [(cell[1] or b"")[:8].upper() for cell in _CELL.finditer(content)]
        columns = [reduce(lambda place, one: 26 * place + one - 64, word, 0) for word in letters]
        n_rows, width = max([len(rows), *rows]), max(columns, default=0)
        refuse_empty(path.name, n_rows, width, len(columns))
        if n_rows > 1_048_576 or width > 16_384:
            raise TableError(
                f"{path.name}: a sheet has {n_rows:,} rows and {width:,} columns, more than Excel "
                "allows. Delete the empty rows and columns, or save the table as CSV."
            )


def _sheet_table(
    path: Path, asked: str | None, sheets: list[str], cells: Any
) -> tuple[Any, list[str]]:
    sheet, notes = asked or sheets[0], []
    where = f"{path.name}#{sheet}" if len(sheets) > 1 else path.name
    if asked is None and len(sheets) > 1:
        notes.append(
            f"the file has {len(sheets)} sheets, of which {shown(sheet)} was read; "
            f"'{printable(path.name)}#NAME' reads another one ({quoted_names(sheets[1:])})"
        )
    cells = cells.dropna(axis=1, how="all").dropna(axis=0, how="all")
    if not cells.size:
        other = f", or '{path.name}#NAME' for another sheet" if len(sheets) > 1 else ""
        raise TableError(f"{where} is empty. Give a file with a header and rows{other}.")
    header, rows = cells.iloc[0], cells.iloc[1:]
    known, places = header.notna().to_numpy(), [_letters(int(j)) for j in cells.columns]
    is_zipped = path.suffix.lower() != ".xls"
    if not known.all() and is_zipped:
        _refuse_merged(path, sheet, where)
    if 2 * known.sum() < len(header):
        n_names = f"the first row has {known.sum()} names for {len(header)} columns"
        raise TableError(f"{where}: {n_names}. Delete the rows above the header.")
    if known.all() and all(isinstance(value, int | float) for value in header):
        notes.append(_NO_HEADER.format("row"))
        names, rows = [f"x{j}" for j in range(len(header))], cells
    else:
        names = _filled(header.where(known, "").astype(str).str.strip().tolist(), places, notes)
        refuse_duplicates(where, names, places)
    if not len(rows):
        raise TableError(f"{where} has a header and no rows. Give a file with rows.")
    if is_zipped and rows.isna().to_numpy().any():
        _refuse_formulas(path, sheet, where)
    return rows.set_axis(names, axis=1).reset_index(drop=True).infer_objects(), notes


def _letters(place: int) -> str:
    """Return the letters of a column in a spreadsheet: A, B, ..., Z, AA, for 0, 1, ..."""
    return (_letters(place // 26 - 1) if place >= 26 else "") + chr(65 + place % 26)


def _refuse_merged(path: Path, sheet: str, where: str) -> None:
    """Raise `TableError` for merged cells in the header, of which only the first has a value."""
    import openpyxl

    found = openpyxl.load_workbook(path)[sheet]
    merged = [str(cells) for cells in found.merged_cells.ranges if cells.min_row == found.min_row]
    if merged:
        raise TableError(
            f"{where}: the cells {listed(sorted(merged))} of the header are merged. Split them, "
            "and give every column its own name in one row."
        )


def _refuse_formulas(path: Path, sheet: str, where: str) -> None:
    """Raise `TableError` for formulas without a stored result, which look like empty cells."""
    import openpyxl

    with (
        closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as results,
        closing(openpyxl.load_workbook(path, read_only=True)) as formulas,
    ):
        for known, asked in zip(results[sheet].rows, formulas[sheet].rows, strict=False):
            for value, cell in zip(known, asked, strict=False):
                if value.value is None and cell.value is not None:
                    raise TableError(
                        f"{where}: the formula in cell {cell.coordinate} has no stored result. "
                        "Open the file in a spreadsheet program and save it, or save it as CSV."
                    )


# ---------------------------------------------------------------------- JSON

_RECORDS = 'Save it with pandas by to_json(file, orient="records").'


def _read_json(path: Path, suffix: str) -> tuple[Any, list[str]]:
    """Return the DataFrame of a list of records (only .json) or of one record per line."""
    pd = import_pandas()
    remedy = "Save it again as UTF-8."
    with reading(path, remedy=remedy), open_bytes(path) as file:
        text = file.read().decode("utf-8-sig")
    if not text.strip():
        raise TableError(f"{path.name} is empty. Give a file with records.")
    # Python objects need much more memory than their text: an empty record of 3 bytes needs 72.
    n_objects = text.count("{") + text.count("[")
    needed = 2.0 * len(text) + 72.0 * n_objects + 32.0 * text.count(",")
    require_memory(needed, f"the content of {path.name}", "Save it as Parquet.")
    records = _json_records(path.name, text, is_whole=suffix == ".json")
    if isinstance(records, list):
        names = {name for record in records for name in record}
        refuse_wide(path.name, len(names))
        refuse_empty(path.name, len(records), len(names), sum(map(len, records)))
        needed = 16.0 * len(records) * len(names)
        require_memory(needed, f"the table of {path.name}", "Save it as Parquet.")
    with reading(path, remedy=remedy):  # text may hold half a surrogate pair
        frame = pd.DataFrame(records)
    if not frame.size:
        raise TableError(f"{path.name} has no values. Give a file with records.")
    return _without_nested(path, frame)


def _json_records(source: str, text: str, *, is_whole: bool) -> Any:
    """Return a list of records, or a dict of columns."""
    if not is_whole:
        # Not by splitlines, which also splits at characters that may be inside a string.
        lines = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
        remedy = 'Write every line as {"column": value, ...}.'
        records = [_json_value(f"{source}: line {i}", line, remedy) for i, line in lines]
        for (i, _), record in zip(lines, records, strict=True):
            if not isinstance(record, dict):
                what = f"line {i} holds {_json_kind(record)}, not a record"
                raise TableError(f"{source}: {what}. {remedy}")
        return records
    try:
        content = _json_value(source, text, "Save the table again.")
    except TableError as error:
        if "Extra data" in str(error) and "\n" in text.strip():
            return _json_records(source, text, is_whole=False)
        raise
    if isinstance(content, list):
        for i, record in enumerate(content):
            if not isinstance(record, dict):
                what = f"entry {i} of the list is {_json_kind(record)}, not a record"
                raise TableError(f"{source}: {what}. {_RECORDS}")
        return content
    columns = list(content.values()) if isinstance(content, dict) else []
    # The default of pandas.DataFrame.to_json: columns, each with its values by row name.
    if all(isinstance(one, dict) and one.keys() == columns[0].keys() != set() for one in columns):
        columns = [list(one.values()) for one in columns]
    if columns and all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
        return dict(zip(content, columns, strict=True))
    raise TableError(f"{source} holds {_json_kind(content)}, not a list of records. {_RECORDS}")


def _json_value(source: str, text: str, remedy: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TableError(f"{source} is not valid JSON ({one_line(error)}). {remedy}") from error


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    return kinds.get(type(value), "null" if value is None else "a number")


def _without_nested(path: Path, frame: Any) -> tuple[Any, list[str]]:
    """Leave out columns of lists and objects. Empty texts become missing values, as in CSV."""
    texts = [name for name, dtype in frame.dtypes.items() if dtype.kind not in "biuf"]
    nested = [n for n in texts if any(isinstance(value, list | dict) for value in frame[n])]
    note = f"columns of lists or objects were left out: {quoted_names(nested)}; "
    note += "pandas.json_normalize flattens them"
    if len(nested) == len(frame.columns):
        raise TableError(f"{path.name} has no others: {note}.")
    frame = frame.drop(columns=nested)
    for name in set(texts) - set(nested):
        frame[name] = frame[name].where(frame[name] != "", None)
    return frame.infer_objects(), [note] if nested else []


# ---------------------------------------------------------------------- Parquet and Feather


def _read_arrow(path: Path, kind: str) -> Any:
    """Read a Parquet or Feather file into a DataFrame, after checks of its size and content."""
    try:
        import pandas  # noqa: F401
        from pyarrow import feather, parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise need("pandas and pyarrow") from error
    # Opened here, because errors of pyarrow would show the whole path.
    with reading(path, f" as {kind}"), path.open("rb") as file:
        if kind == "Parquet":
            with parquet.ParquetFile(file) as opened:
                require_groups(opened, range(opened.num_row_groups), path.name)
                table = opened.read()
        else:
            table = feather.read_table(file)
        refuse_wide(path.name, table.num_columns)
        table.validate(full=True)  # otherwise text that is not UTF-8 raises an error later
    frame = arrow_frame(path.name, table)
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if not len(frame):
        raise TableError(f"{path.name} has no rows. Give a file with rows.")
    return frame


def require_groups(opened: Any, groups: Iterable[int], name: str) -> None:
    """Raise `MemoryError` if row groups do not fit into memory. The file may be much smaller."""
    about, schema = opened.metadata, opened.schema
    n_rows = sum(max(about.row_group(group).num_rows, 0) for group in groups)
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4}  # bytes per value in memory
    width = sum(widths.get(schema.column(j).physical_type, 8) for j in range(len(schema)))
    require_memory(float(n_rows) * width, f"the content of {name}", "Save it in several files.")


def arrow_frame(source: str, table: Any) -> Any:
    """Return a pyarrow table as a DataFrame, without pandas metadata that does not fit."""
    import pyarrow as pa

    try:
        return table.to_pandas()
    except MemoryError:
        raise
    except Exception as wrong:  # the metadata is JSON with any content
        if not table.num_columns:
            raise TableError(f"{source} has no columns. Give a table with columns.") from wrong
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        is_coded = pa.types.is_dictionary(column.type)
        try:
            # The categories of pandas must be unique and not missing.
            plain = column.cast(column.type.value_type) if is_coded else column
            found.append(plain.to_pandas())
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise TableError(
                f"{source}: column {shown(name)} of type {column.type!s:.80} cannot be read: "
                f"{one_line(error)}. Leave it out of the table."
            ) from error
    frame = import_pandas().concat(found, axis=1, ignore_index=True)
    return frame.set_axis(table.column_names, axis=1)


# ---------------------------------------------------------------------- NPY, NPZ and libsvm


# Index arrays of each sparse format, in the order of the constructors of SciPy.
_SPARSE_PARTS = {
    **dict.fromkeys(("csr", "csc", "bsr"), ("indices", "indptr")),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}


def _read_numpy(path: Path) -> Any:
    """Return the array of an NPY file, or the table of an NPZ file as an array or CSR array."""
    remedy = "Save only numbers, with numpy.save(file, array.astype(float))."
    # NumPy would not close a damaged file.
    with reading(path, " as a NumPy file", remedy), path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return _checked_array(path.name, loaded)
        with loaded:
            return _npz_table(path.name, loaded)


def _npz_table(name: str, archive: Any) -> Any:
    """Return the table of an NPZ file: its sparse matrix, the array X, or the only matrix."""
    names = list(archive.files)
    if len(set(names)) < len(names):
        raise TableError(f"{name} has two arrays with the same name. Save it again.")
    is_sparse = {"shape", "format"} <= set(names)
    # Checked before anything is decompressed.
    sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
    if "X" in names and not is_sparse:
        names = ["X"]
    n_bytes = sum(sizes[one] for one in names)
    require_memory(n_bytes, f"the content of {name}", "Save fewer rows or columns.")
    arrays = {one: archive[one] for one in names}
    if is_sparse:
        return _sparse_table(name, arrays)
    tables = arrays if "X" in arrays else {k: v for k, v in arrays.items() if v.ndim == 2}
    if len(tables) == 1:
        return _checked_array(name, next(iter(tables.values())))
    found = f"{len(tables)} ({quoted_names(tables)})" if tables else "none"
    raise TableError(
        f"{name} must have exactly one two-dimensional array, got {found}. "
        "Name the table 'X', with numpy.savez(file, X=table)."
    )


def _checked_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise TableError(
            f"{name} must hold numbers, got values of dtype {array.dtype!s:.40}. Save them as "
            "float64, or save the table as CSV or Parquet."
        )
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise TableError(
            f"{name} must hold an array of rows and columns, got the shape {array.shape}. "
            "Reshape it with array.reshape(len(array), -1)."
        )
    if 0 in array.shape:
        raise TableError(f"{name} is an empty array of shape {array.shape}. Give rows.")
    refuse_wide(name, array.shape[1], MAX_COLUMNS)
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values count as missing
            return array.astype(np.float64)
    # Compiled code accepts only the native byte order.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _sparse_table(name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the sparse matrix of the arrays that `scipy.sparse.save_npz` writes."""
    nothing = np.array("missing")
    layout, data = "".join(arrays["format"].astype(str).ravel()), arrays.get("data", nothing)
    parts = [arrays.get(part, nothing) for part in _SPARSE_PARTS.get(layout, ("missing",))]
    if data.ndim != {"bsr": 3, "dia": 2}.get(layout, 1):
        data = nothing
    try:
        indices = [part.astype(np.int64, casting="same_kind") for part in parts]
        with np.errstate(over="ignore"):
            values = data.astype(np.float64, casting="same_kind")
        n_rows, n_columns = arrays["shape"].astype(np.int64, casting="same_kind").tolist()
        inner: Any = (values, tuple(indices)) if layout == "coo" else (values, *indices)
        matrix = getattr(sp, f"{layout}_array")(inner, shape=(n_rows, n_columns))
        return _checked_csr(name, matrix)
    except TableError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise TableError(
            f"{name} holds a sparse matrix whose arrays do not fit together. Save it again with "
            "scipy.sparse.save_npz."
        ) from error


def _checked_csr(name: str, matrix: Any) -> Any:
    """Return a matrix as a CSR array without duplicates, with indices of 32 bits if they fit."""
    n_rows, n_columns = matrix.shape
    if not (n_rows and n_columns):
        raise TableError(
            f"{name} holds an empty matrix of shape {matrix.shape}. Give a file with rows."
        )
    refuse_wide(name, n_columns, MAX_COLUMNS)
    # The row pointers, and two copies (one sorted) of the values and indices.
    needed = 8.0 * n_rows + 32.0 * matrix.nnz
    require_memory(needed, f"the matrix of {name}", "Save fewer rows or columns.")
    if matrix.format in ("csr", "csc", "bsr"):
        check_indices(matrix)
    rows = sp.csr_array(matrix)
    rows.sum_duplicates()
    return with_short_indices(rows)


def _read_libsvm(path: Path) -> tuple[Any, NDArray[Any] | None]:
    """Return the CSR array of a libsvm file, and its labels. None if all labels are equal."""
    from sklearn.datasets import load_svmlight_file

    remedy = "Write every line as 'label column:value column:value ...'."
    with reading(path, " as libsvm", remedy), open_bytes(path) as file:
        X, truth = load_svmlight_file(file)
        rows = _checked_csr(path.name, X)
    # Files without labels have 0 in their place.
    is_labelled = bool((truth != truth[0]).any()) and bool(np.isfinite(truth).all())
    return rows, truth if is_labelled else None
