"""`read_table`: read a table from a file of any supported format, or a built-in data set."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
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
    MAX_FRAME_COLUMNS,
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

_TEXT = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv"}
_TEXT |= dict.fromkeys((".txt", ".dat", ".data", ""), "text")
_PARQUET, _FEATHER = (".parquet", ".pq"), (".feather", ".arrow")
_LIBSVM = (".svm", ".libsvm", ".svmlight")
_EXCEL = (".xlsx", ".xlsm", ".xls")
_JSON = (".json", ".jsonl", ".ndjson")
_PACKED = (*_TEXT, *_LIBSVM, *_JSON)
_SUFFIXES = {*_PACKED, *_PARQUET, *_FEATHER, *_EXCEL, ".npy", ".npz", ".gz"} - {""}
_FORMATS = "CSV, TSV, TXT, Parquet, Feather, Excel, JSON, JSON lines, NPY, NPZ and libsvm (.svm)"


@dataclass(frozen=True)
class LoadedTable:
    """A table that was read from a file, or a built-in data set.

    Attributes
    ----------
    name : str
        Name of the file or of the built-in data set.
    data : DataFrame, ndarray or csr_array
        The rows. NPY, NPZ and libsvm files and built-in data sets give an array.
    truth : ndarray or None
        True labels of built-in data sets and libsvm files. They are not used for clustering.
    feature_names : list of str or None
        Names of the columns of an array, if they are known.
    notes : list of str
        Decisions made while reading, such as the separator. One line each.
    path : Path or None
        The file. None for built-in data sets.
    """

    name: str
    data: Any
    truth: NDArray[Any] | None = None
    feature_names: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    path: Path | None = None


def read_table(source: str | Path) -> LoadedTable:
    """Read a table from a file, or load a built-in data set.

    Parameters
    ----------
    source : str or Path
        Path of a file, or name of a data set of `volmar.datasets.load` if there is no such file.
        The suffix of the file gives its format:

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
        If there is no such file or data set, or its content cannot be used.
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
    >>> read_table("digits-3v8").data.shape
    (357, 64)
    """
    if not str(source).strip():
        raise TableError("'' is not the path of a file. Give that of a table, or a data set.")
    sheet = None
    try:
        path = expanded_path(source)
    except ValueError as error:
        raise TableError(f"{one_line(error)}.") from error
    try:
        with reading(path, remedy="Check the path and its content."):
            if not path.exists():
                if not (found := _sheet_of(path)):
                    return _read_built_in(str(source))
                path, sheet = found
            return replace(_read_file(path, sheet), path=path)
    except MemoryError as error:
        reason = one_line(error) if error.args else "it does not fit into memory"
        raise TableError(
            f"{path.name} cannot be read: {reason}. Split it into a folder of Parquet or CSV "
            "files, and give the folder."
        ) from error


def read_fields(path: Path) -> Any:
    """Return the fields of a text file as a DataFrame of text. None for files of other kinds."""
    kind = _TEXT.get(_plain_suffix(path))
    return None if kind is None else _read_text(path, kind, dtype=str, na_filter=False)[0]


def _plain_suffix(path: Path) -> str:
    """Return the suffix in lower case, without the .gz of a compressed file."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _sheet_of(path: Path) -> tuple[Path, str] | None:
    """Return the file and the sheet of a path such as file.xlsx#Sheet2."""
    name, sign, sheet = path.name.partition("#")
    file = path.with_name(name) if sign and name else path
    if not sign or not sheet or not file.is_file():
        return None
    if file.suffix.lower() not in _EXCEL:
        raise TableError(f"{name} is no Excel file and has no sheet {shown(sheet)}. Omit the #.")
    return file, sheet


def _read_file(path: Path, sheet: str | None) -> LoadedTable:
    suffix, name = _plain_suffix(path), printable(path.name)
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
    if suffix in _TEXT:
        data, notes = _read_text(path, _TEXT[suffix])
    elif suffix in (*_PARQUET, *_FEATHER):
        data = _read_arrow(path, is_parquet=suffix in _PARQUET)
    elif suffix in _EXCEL:
        data, notes = _read_excel(path, sheet)
        name += "" if sheet is None else f"#{printable(sheet)}"
    elif suffix in _JSON:
        data, notes = _read_json(path, suffix)
    elif suffix in (".npy", ".npz"):
        data = _read_numpy(path)
    elif suffix in _LIBSVM:
        data, truth = _read_libsvm(path)
    else:
        raise TableError(
            f"{path.name} has the suffix {shown(suffix)}, which is not supported. Save the table "
            f"as CSV. Supported formats are {_FORMATS}."
        )
    return LoadedTable(name, data, truth, notes=notes)


def _read_built_in(name: str) -> LoadedTable:
    from volmar.datasets import list_datasets, load

    suffix = Path(name).suffix.lower().partition("#")[0]
    if "/" in name or "\\" in name or suffix in _SUFFIXES:
        raise TableError(f"There is no file {shown(name)}. Check the path.")
    try:
        data = load(name)
    except (FileNotFoundError, ConnectionError) as error:
        raise TableError(f"{one_line(error)}.") from error
    except ValueError as error:
        raise TableError(
            f"There is no file {shown(name)} and no built-in data set of that name. "
            f"{nearest(name, list_datasets())}"
        ) from error
    return LoadedTable(name, data.X, data.y, data.feature_names)


# ---------------------------------------------------------------------- text

_HEAD = 1 << 18  # bytes from which the layout is detected
_SEPARATORS = {"csv": ",;\t|", "tsv": "\t,;|", "text": ",;\t|"}
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_CONTROL = bytes(sorted({*range(9), *range(14, 27), *range(28, 32)}))
_NOT_UTF8 = "the file is not UTF-8 and was read as Latin-1"
_NO_HEADER = "the first {} holds only numbers and was read as a row; columns are named x0, x1, ..."


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


def _read_text(path: Path, kind: str, **more: Any) -> tuple[Any, list[str]]:
    """Return the DataFrame of a text file, read with `more` arguments of pandas, and notes.

    `kind` ("csv", "tsv", "text") orders the separators; "text" may also be separated by spaces.
    """
    pd = import_pandas()
    layout = find_layout(path, kind)
    notes, options = layout.notes, layout.options() | more

    def read(encoding: str) -> Any:
        # As a whole: in pieces, a column may have several types.
        with open_bytes(path, growth=layout.growth) as file:
            return pd.read_csv(file, low_memory=False, **(options | {"encoding": encoding}))

    with reading(path):
        try:
            frame = read(layout.encoding)
        except UnicodeDecodeError:
            frame = read("latin-1")
            notes = [*notes, _NOT_UTF8]
    if not len(frame):
        raise TableError(f"{path.name} has a header and no rows. Give a file with rows.")
    return frame, notes


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
    decimal = "."
    if separator != ",":
        fields = [one for record in records for one in record]
        comma, point = (
            next(filter(pattern.fullmatch, fields), None)
            for pattern in (_DECIMAL_COMMA, _DECIMAL_POINT)
        )
        decimal = "," if comma and not point else "."
        if comma and point:
            notes.append(
                f"the file has numbers with a comma ({comma}) and with a point ({point}), and "
                "the point was read as the decimal sign; save it without thousands separators"
            )
    if separator not in (",", "\t", r"\s+") or decimal != ".":
        sign = " and decimal commas" if decimal == "," else ""
        notes.append(f"the file was read with the separator {separator!r}{sign}")
    names: list[str] | None = [name.strip() for name in first]
    if _is_row(first, decimal):
        names = None
        notes.append(_NO_HEADER.format("line"))
    else:
        refuse_duplicates(
            path.name, [one.strip() or f"Unnamed: {j}" for j, one in enumerate(first)]
        )
        if nameless := [j for j, one in enumerate(first) if not one.strip()]:
            if len(nameless) > 1000:  # the time of pandas is quadratic in their number
                where = f"{path.name}: {len(nameless):,} fields of the first line are empty"
                raise TableError(f"{where}. Give every column a name.")
            calls = listed(f"'Unnamed: {j}'" for j in nameless)
            notes.append(
                f"columns without a name were named {calls}; if one holds row numbers, "
                "name it in id_column= or drop="
            )
    spaced = f"{separator} " in text
    return Layout(separator, decimal, encoding, spaced, names, len(first), notes, growth)


def _head(path: Path) -> bytes:
    with reading(path), open_bytes(path) as file:
        head: bytes = file.read(_HEAD)
        if head.count(b"\n") > 2:
            return head
        head += file.read(16 * _HEAD)  # enough for a header of 100,000 names
        is_all = not file.read(1)
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
    return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8", []


def _split(path: Path, text: str, kind: str) -> tuple[str, list[list[str]]]:
    """Return the separator, and the fields of the first lines.

    It is the first one that gives all lines the same number of fields, two or more.
    """
    found: dict[str, list[list[str]]] = {}
    wrong = None
    for separator in _SEPARATORS[kind]:
        reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)
        try:
            found[separator] = list(islice((record for record in reader if record), 20))
        except csv.Error as error:  # with the wrong separator, a field may be too long
            wrong = error
    if kind == "text":
        lines = (line.split() for line in text.splitlines())
        found[r"\s+"] = list(islice((line for line in lines if line), 20))
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
        columns = [_place(cell[1] or b"") for cell in _CELL.finditer(content)]
        n_rows, width = max([len(rows), *rows]), max(columns, default=0)
        refuse_empty(path.name, n_rows, width, len(columns))
        if n_rows > 1_048_576 or width > 16_384:
            raise TableError(
                f"{path.name}: a sheet has {n_rows:,} rows and {width:,} columns, more than Excel "
                "allows. Delete the empty rows and columns, or save the table as CSV."
            )


def _place(letters: bytes) -> int:
    """Return the number of a column from its letters: A is 1, AA is 27."""
    place = 0
    for letter in letters[:8].upper():
        place = 26 * place + letter - 64
    return place


def _letters(place: int) -> str:
    """Return the letters of a column in a spreadsheet: A, B, ..., Z, AA, for 0, 1, ..."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


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
    is_named = header.notna().to_numpy()
    places = [_letters(int(j)) for j in cells.columns]
    if not is_named.all():
        _refuse_merged(path, sheet, where)
        if 2 * is_named.sum() < len(header):
            n_names = f"the first row has {int(is_named.sum())} names for {len(header)} columns"
            raise TableError(f"{where}: {n_names}. Delete the rows above the header.")
    if is_named.all() and all(isinstance(value, int | float) for value in header):
        notes.append(_NO_HEADER.format("row"))
        names, rows = [f"x{j}" for j in range(len(header))], cells
    else:
        names = [
            str(value).strip() if known else f"Unnamed: {place}"
            for value, known, place in zip(header, is_named, places, strict=True)
        ]
        if not is_named.all():
            calls = listed(shown(n) for n, known in zip(names, is_named, strict=True) if not known)
            notes.append(f"columns without a name were named {calls}")
    refuse_duplicates(where, names, places)
    if not len(rows):
        raise TableError(f"{where} has a header and no rows. Give a file with rows.")
    if rows.isna().to_numpy().any():
        _refuse_formulas(path, sheet, where)
    return rows.set_axis(names, axis=1).reset_index(drop=True).infer_objects(), notes


def _refuse_merged(path: Path, sheet: str, where: str) -> None:
    """Raise `TableError` for merged cells in the header, of which only the first has a value."""
    if path.suffix.lower() == ".xls":
        return
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
    if path.suffix.lower() == ".xls":
        return
    import openpyxl

    results = openpyxl.load_workbook(path, read_only=True, data_only=True)
    formulas = openpyxl.load_workbook(path, read_only=True)
    try:
        for known, asked in zip(results[sheet].rows, formulas[sheet].rows, strict=False):
            for value, cell in zip(known, asked, strict=False):
                if value.value is None and cell.value is not None:
                    raise TableError(
                        f"{where}: the formula in cell {cell.coordinate} has no stored result. "
                        "Open the file in a spreadsheet program and save it, or save it as CSV."
                    )
    finally:
        results.close()
        formulas.close()


# ---------------------------------------------------------------------- JSON

_RECORDS = 'Save it with pandas by to_json(file, orient="records").'


def _read_json(path: Path, suffix: str) -> tuple[Any, list[str]]:
    """Return the DataFrame of a list of records (only .json) or of one record per line."""
    pd = import_pandas()
    with reading(path, remedy="Save it again as UTF-8."), open_bytes(path) as file:
        text = file.read().decode("utf-8-sig")
    if not text.strip():
        raise TableError(f"{path.name} is empty. Give a file with records.")
    # Python objects need much more memory than their text: an empty record of 3 bytes needs 72.
    n_objects = text.count("{") + text.count("[")
    needed = 2.0 * len(text) + 72.0 * n_objects + 32.0 * text.count(",")
    require_memory(needed, f"the content of {path.name}", "Save it as Parquet.")
    records: Any = _json_document(path, text) if suffix == ".json" else None
    if records is None:
        records = _json_lines(path, text)
    if isinstance(records, list):
        names = {name for record in records for name in record}
        refuse_wide(path.name, len(names), MAX_FRAME_COLUMNS)
        refuse_empty(path.name, len(records), len(names), sum(map(len, records)))
        needed = 16.0 * len(records) * len(names)
        require_memory(needed, f"the table of {path.name}", "Save it as Parquet.")
    with reading(path, remedy="Save it again as UTF-8."):  # text may hold half a surrogate pair
        frame = pd.DataFrame(records)
    if not frame.size:
        raise TableError(f"{path.name} has no values. Give a file with records.")
    return _without_nested(path, frame)


def _json_lines(path: Path, text: str) -> list[dict[str, Any]]:
    records = []
    # Not by splitlines, which also splits at characters that may be inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            where = f"{path.name}: line {number} is not valid JSON ({one_line(error)})"
            raise TableError(f"{where}. Write one record per line.") from error
        if not isinstance(record, dict):
            where = f"{path.name}: line {number} holds {_json_kind(record)}, not a record"
            raise TableError(where + '. Write every line as {"column": value, ...}.')
        records.append(record)
    return records


def _json_document(path: Path, text: str) -> Any:
    """Return a list of records, or a dict of columns. None if every line is a document."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data") and len(text.splitlines()) > 1:
            return None
        where = f"{path.name} is not valid JSON ({one_line(error)})"
        raise TableError(f"{where}. Save the table again.") from error
    if isinstance(content, list):
        odd = next((i for i, one in enumerate(content) if not isinstance(one, dict)), None)
        if odd is None:
            return content
        what = f"entry {odd} of the list is {_json_kind(content[odd])}, not a record"
        raise TableError(f"{path.name}: {what}. {_RECORDS}")
    if isinstance(content, dict) and content:
        columns = list(content.values())
        # The default of pandas.DataFrame.to_json: columns, each with its values by row name.
        by_name = all(isinstance(one, dict) and one.keys() == columns[0].keys() for one in columns)
        if by_name and columns[0]:
            return {name: list(one.values()) for name, one in content.items()}
        if all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
            return content
    raise TableError(f"{path.name} holds {_json_kind(content)}, not a list of records. {_RECORDS}")


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    return kinds.get(type(value), "null" if value is None else "a number")


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
    note = f"columns of lists or objects were left out: {quoted_names(nested)}; "
    note += "pandas.json_normalize flattens them"
    if len(nested) == len(frame.columns):
        raise TableError(f"{path.name} has no others: {note}.")
    return frame.drop(columns=nested).infer_objects(), [note] if nested else []


# ---------------------------------------------------------------------- Parquet and Feather


def _read_arrow(path: Path, *, is_parquet: bool) -> Any:
    """Read a Parquet or Feather file into a DataFrame, after checks of its size and content."""
    try:
        import pandas  # noqa: F401
        from pyarrow import feather, parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise need("pandas and pyarrow") from error
    # Opened here, because errors of pyarrow would show the whole path.
    kind = " as Parquet" if is_parquet else " as Feather"
    with reading(path, kind), path.open("rb") as file:
        if is_parquet:
            with parquet.ParquetFile(file) as opened:
                require_groups(opened, range(opened.num_row_groups), path.name)
                table = opened.read()
        else:
            table = feather.read_table(file)
        refuse_wide(path.name, table.num_columns, MAX_FRAME_COLUMNS)
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
    refuse_wide(name, array.shape[1])
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values count as missing
            return array.astype(np.float64)
    # Compiled code accepts only the native byte order.
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _sparse_table(name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the sparse matrix of the arrays that `scipy.sparse.save_npz` writes."""
    word = arrays["format"].item() if arrays["format"].size == 1 else ""
    layout = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    shape, data = arrays["shape"], arrays.get("data", np.array("missing"))
    nothing = np.array(np.nan)
    parts = [arrays.get(part, nothing) for part in _SPARSE_PARTS.get(layout, ("missing",))]
    unfit = TableError(
        f"{name} holds a sparse matrix whose arrays do not fit together. Save it again with "
        "scipy.sparse.save_npz."
    )
    has_numbers = data.dtype.kind in "biuf" and data.ndim == {"bsr": 3, "dia": 2}.get(layout, 1)
    if not has_numbers or any(a.ndim != 1 or a.dtype.kind not in "iu" for a in (shape, *parts)):
        raise unfit
    try:
        n_rows, n_columns = shape.tolist()
        _refuse_size(name, (n_rows, n_columns), data.size)
        with np.errstate(over="ignore"):
            values = data.astype(np.float64)
        inner: Any = (values, *parts) if layout != "coo" else (values, tuple(parts))
        matrix = getattr(sp, f"{layout}_array")(inner, shape=(n_rows, n_columns))
        if layout in ("csr", "csc", "bsr"):
            check_indices(matrix)
        return _checked_csr(name, sp.csr_array(matrix))
    except TableError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise unfit from error


def _refuse_size(name: str, shape: tuple[int, ...], n_values: int) -> None:
    """Refuse a matrix that is empty, too wide, or too large for the memory."""
    if min(shape) < 1:
        raise TableError(f"{name} holds an empty matrix of shape {shape}. Give a file with rows.")
    refuse_wide(name, shape[1])
    # The row pointers, and two copies (one sorted) of the values and indices.
    needed = 8.0 * shape[0] + 32.0 * n_values
    require_memory(needed, f"the matrix of {name}", "Save fewer rows or columns.")


def _checked_csr(name: str, X: Any) -> Any:
    """Return a CSR array without duplicate entries, with indices of 32 bits if they fit."""
    _refuse_size(name, X.shape, X.nnz)
    X.check_format(full_check=True)
    X.sum_duplicates()
    return with_short_indices(X)


def _read_libsvm(path: Path) -> tuple[Any, NDArray[Any] | None]:
    """Return the CSR array of a libsvm file, and its labels. None if all labels are equal."""
    from sklearn.datasets import load_svmlight_file

    remedy = "Write every line as 'label column:value column:value ...'."
    with reading(path, " as libsvm", remedy), open_bytes(path) as file:
        X, truth = load_svmlight_file(file)
    if 0 in X.shape:
        raise TableError(f"{path.name} has no rows with values. Give a file with rows.")
    # Files without labels have 0 in their place.
    is_labelled = bool((truth != truth[0]).any()) and bool(np.isfinite(truth).all())
    return _checked_csr(path.name, sp.csr_array(X)), truth if is_labelled else None
