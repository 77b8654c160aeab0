"""`read_table`: a file of any kind that is understood, or a built-in set by its name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from volmar._files import expanded_path, printable
from volmar.tables.arrays import read_libsvm, read_numpy
from volmar.tables.errors import (
    TableError,
    nearest,
    one_line,
    shown,
)
from volmar.tables.text import read_text

__all__ = ["LoadedTable", "read_table"]

_TEXT = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "text",
    ".dat": "text",
    ".data": "text",
    "": "text",
}
_PARQUET = (".parquet", ".pq")
_FEATHER = (".feather", ".arrow")
_LIBSVM = (".svm", ".libsvm", ".svmlight")
EXCEL = (".xlsx", ".xlsm", ".xls")
JSON_LINES = (".jsonl", ".ndjson")
JSON = (".json",)
_PACKED = (*_TEXT, *_LIBSVM, *JSON_LINES, *JSON)
_SUFFIXES = {*_PACKED, *_PARQUET, *_FEATHER, *EXCEL, ".npy", ".npz", ".gz"} - {""}
_KINDS = "CSV, TSV, TXT, Parquet, Feather, Excel, JSON, JSON lines, NPY, NPZ and libsvm (.svm)"


@dataclass(frozen=True)
class LoadedTable:
    """A table as it was read.

    Attributes
    ----------
    name : str
        File name or built-in name.
    data : DataFrame, ndarray or csr_array
        The rows; an array for NPY, NPZ, libsvm and built-in sets.
    truth : ndarray or None
        True labels of built-in sets and libsvm files; never shown to a method.
    feature_names : list of str or None
        Names of an array's columns, where they are known.
    notes : list of str
        What reading had to decide, one line each.
    path : Path or None
        The file; None for built-in sets.
    """

    name: str
    data: Any
    truth: NDArray[Any] | None = None
    feature_names: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    path: Path | None = None


def read_table(source: str | Path) -> LoadedTable:
    """Read a table.

    Parameters
    ----------
    source : str or Path
        A file: .csv, .tsv, .txt (separator found by looking), .jsonl, .ndjson, .json (records),
        the same with .gz, .parquet or .pq, .feather or .arrow, .xlsx, .xlsm or .xls (the first
        sheet; "file.xlsx#Name" is another), .npy, .npz (its only two-dimensional array, or the
        one called X), .svm, .libsvm or .svmlight. Where there is no such path, a name that
        `volmar.datasets.load` knows.

    Returns
    -------
    LoadedTable

    Raises
    ------
    TableError
        For a path, a name or contents that cannot be used.
    ImportError
        Where pandas, pyarrow or openpyxl is needed and not installed.

    Notes
    -----
    A file may come from anybody: its parts are checked before they are used, and nothing in it is
    run. Refused are sparse matrices whose indices do not fit their shape, more than 2**22 columns
    (2**17 of text, Parquet and Feather files),
    Excel sheets larger than Excel's or empty for the most part, compressed text and workbooks that
    grow to more than 200 times their size (and 16 MiB), and content that needs more memory than is
    free.

    Examples
    --------
    >>> from volmar.tables import read_table
    >>> read_table("digits-3v8").data.shape
    (357, 64)
    """
    if not str(source).strip():
        raise TableError("'' is no file; give the path of a table, or the name of a built-in set")
    sheet = None
    try:
        path = expanded_path(source)
    except ValueError as error:
        raise TableError(one_line(error)) from error
    try:
        if path.is_dir():
            raise TableError(
                f"{path} is a folder without .parquet or .csv files; give a file, or a folder "
                "that has some"
            )
        if not path.exists():
            if not (found := _sheet_of(path)):
                return _read_built_in(str(source))
            path, sheet = found
    except OSError as error:
        raise TableError(f"{shown(source)} cannot be read: {error.strerror or error}") from error
    try:
        return replace(_read_file(path, sheet), path=path)
    except TableError:
        raise
    except MemoryError as error:
        reason = one_line(error) if error.args else "it does not fit into memory"
        raise TableError(
            f"{path.name} cannot be read: {reason}; split it into a folder of Parquet or CSV "
            "files and give the folder"
        ) from error
    except (ValueError, OSError) as error:
        reason = getattr(error, "strerror", None) or f"{one_line(error)}; save it again"
        raise TableError(f"{shown(source)} cannot be read: {reason}") from error


def read_fields(path: Path) -> Any:
    """Return the fields of a text file as a DataFrame of text, None for files of other kinds."""
    kind = _TEXT.get(_plain_suffix(path))
    return None if kind is None else read_text(path, kind, as_fields=True)[0]


def _plain_suffix(path: Path) -> str:
    """Return the suffix in lower case, without that of compression."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix == ".gz" else suffix


def _sheet_of(path: Path) -> tuple[Path, str] | None:
    """Return the file and the sheet of a path like file.xlsx#Sheet2."""
    name, sign, sheet = path.name.partition("#")
    file = path.with_name(name) if sign and name else path
    if not sign or not sheet or not file.is_file():
        return None
    if file.suffix.lower() not in EXCEL:
        raise TableError(
            f"{name} has no sheets, and {shown(sheet)} of it is asked for; leave out the # and "
            "what follows"
        )
    return file, sheet


def _read_file(path: Path, sheet: str | None = None) -> LoadedTable:
    suffix, name = _plain_suffix(path), printable(path.name)
    if suffix not in _PACKED and path.suffix.lower() == ".gz":
        raise TableError(
            f"{path.name}: only text tables are read compressed (.csv.gz, .tsv.gz, .jsonl.gz, "
            ".svm.gz); decompress it with gunzip"
        )
    if not path.is_file():
        raise TableError(f"{path} is not a regular file; save the table in a file")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty; give a file with rows")
    if suffix in _TEXT:
        frame, notes = read_text(path, _TEXT[suffix])
        return LoadedTable(name, frame, notes=notes)
    if suffix in (*_PARQUET, *_FEATHER):
        from volmar.tables.arrow import read_arrow

        return LoadedTable(name, read_arrow(path, is_parquet=suffix in _PARQUET))
    if suffix in EXCEL:
        from volmar.tables.excel import read_excel

        frame, notes = read_excel(path, sheet)
        if sheet is not None:
            name += f"#{printable(sheet)}"
        return LoadedTable(name, frame, notes=notes)
    if suffix in (*JSON, *JSON_LINES):
        from volmar.tables.json_records import read_json

        frame, notes = read_json(path, suffix)
        return LoadedTable(name, frame, notes=notes)
    if suffix in (".npy", ".npz"):
        return LoadedTable(name, read_numpy(path))
    if suffix in _LIBSVM:
        X, truth = read_libsvm(path)
        return LoadedTable(name, X, truth)
    raise TableError(
        f"{path.name}: files of kind {shown(suffix)} are not read; save the table as CSV "
        f"({_KINDS} are read)"
    )


def _read_built_in(name: str) -> LoadedTable:
    from volmar.datasets import list_datasets, load

    suffix = Path(name).suffix.lower().partition("#")[0]
    if "/" in name or "\\" in name or suffix in _SUFFIXES:
        raise TableError(f"there is no file {shown(name)}; check the path")
    try:
        data = load(name)
    except (FileNotFoundError, ConnectionError) as error:
        raise TableError(one_line(error)) from error
    except ValueError as error:
        raise TableError(
            f"there is no file {shown(name)} and no built-in set of that name; "
            f"{nearest(name, list_datasets())}"
        ) from error
    return LoadedTable(name, data.X, data.y, data.feature_names)
