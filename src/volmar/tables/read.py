"""`read_table`: read a table from a file of any supported format, or a built-in data set."""

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
        raise TableError(
            "'' is not the path of a file. Give the path of a table, or the name of a built-in "
            "data set."
        )
    sheet = None
    try:
        path = expanded_path(source)
    except ValueError as error:
        raise TableError(f"{one_line(error)}.") from error
    try:
        if path.is_dir():
            raise TableError(
                f"{path} is a folder without .parquet or .csv files. Give a file, or a folder "
                "with such files."
            )
        if not path.exists():
            if not (found := _sheet_of(path)):
                return _read_built_in(str(source))
            path, sheet = found
    except OSError as error:
        reason = error.strerror or error
        raise TableError(
            f"{shown(source)} cannot be read: {reason}. Check the path and its permissions."
        ) from error
    try:
        return replace(_read_file(path, sheet), path=path)
    except TableError:
        raise
    except MemoryError as error:
        reason = one_line(error) if error.args else "it does not fit into memory"
        raise TableError(
            f"{path.name} cannot be read: {reason}. Split it into a folder of Parquet or CSV "
            "files, and give the folder."
        ) from error
    except (ValueError, OSError) as error:
        reason, remedy = one_line(error), "Save the table again."
        if cause := getattr(error, "strerror", None):
            reason, remedy = cause, "Check the path and its permissions."
        raise TableError(f"{shown(source)} cannot be read: {reason}. {remedy}") from error


def read_fields(path: Path) -> Any:
    """Return the fields of a text file as a DataFrame of text. None for files of other kinds."""
    kind = _TEXT.get(_plain_suffix(path))
    return None if kind is None else read_text(path, kind, as_fields=True)[0]


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
    if file.suffix.lower() not in EXCEL:
        raise TableError(
            f"{name} is not an Excel file and has no sheet {shown(sheet)}. Leave out the # and "
            "the name after it."
        )
    return file, sheet


def _read_file(path: Path, sheet: str | None = None) -> LoadedTable:
    suffix, name = _plain_suffix(path), printable(path.name)
    if suffix not in _PACKED and path.suffix.lower() == ".gz":
        raise TableError(
            f"{path.name} is compressed, and only text files are read compressed (.csv.gz, "
            ".tsv.gz, .jsonl.gz, .svm.gz). Decompress it with gunzip."
        )
    if not path.is_file():
        raise TableError(f"{path} is not a regular file. Save the table in a file.")
    if path.stat().st_size == 0:
        raise TableError(f"{path.name} is empty. Give a file with rows.")
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
        f"{path.name} has the suffix {shown(suffix)}, which is not supported. Save the table as "
        f"CSV. Supported formats are {_KINDS}."
    )


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
