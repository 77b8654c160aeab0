"""Tables in the sheets of Excel files."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

from volmar._files import printable
from volmar._memory import require_memory
from volmar.tables.errors import (
    TableError,
    import_pandas,
    listed,
    nearest,
    need,
    one_line,
    quoted_names,
    refuse_bomb,
    refuse_duplicates,
    refuse_empty,
    shown,
)

__all__ = ["read_excel"]

# Maximum size of a sheet in Excel.
_MAX_ROWS, _MAX_COLUMNS = 1_048_576, 16_384
# Bytes of Python objects per byte of XML: an empty row takes 64 bytes for 6.
_GROWTH = 12
_ROW = re.compile(rb"<(?:\w+:)?row\b(?:[^>]*?\br=[\"']0*(\d+))?")
_CELL = re.compile(rb"<(?:\w+:)?c\b(?:[^>]*?\br=[\"']([A-Za-z]*))?")


def read_excel(path: Path, sheet: str | None) -> tuple[Any, list[str]]:
    """Return the DataFrame of a sheet, and notes. If `sheet` is None, the first one is read."""
    pd = import_pandas()
    _require_engine(path)
    try:
        if path.suffix.lower() != ".xls":
            _refuse_large(path)
        with pd.ExcelFile(path) as book:
            names = [str(name) for name in book.sheet_names]
            chosen = _chosen(path, sheet, names)
            cells = pd.read_excel(book, sheet_name=chosen, header=None)
        where = f"{path.name}#{chosen}" if len(names) > 1 else path.name
        return _table(path, where, chosen, names, cells, sheet is None)
    except (TableError, MemoryError):
        raise
    except Exception as error:  # a damaged zip or XML file may raise any exception
        reason = one_line(error, {str(path): path.name})
        raise TableError(
            f"{path.name} cannot be read as Excel: {reason}. Remove the password if it has one, "
            "or save the table as CSV."
        ) from error


def _refuse_large(path: Path) -> None:
    """Raise `TableError` for a workbook that is small as a file and large in memory."""
    with zipfile.ZipFile(path) as members:
        infos = members.infolist()
        n_bytes = sum(info.file_size for info in infos)
        refuse_bomb(path.name, path.stat().st_size, n_bytes)
        require_memory(_GROWTH * n_bytes, f"the content of {path.name}", "Save it as CSV.")
        for info in infos:
            if "worksheets/" in info.filename:
                _refuse_empty(path.name, members.read(info))


def _refuse_empty(name: str, sheet: bytes) -> None:
    """Raise `TableError` for a sheet that is too large, or has far more cells than values.

    Reading creates all cells up to the last row and column, including empty ones.
    """
    n_rows = last = width = n_cells = 0
    for row in _ROW.finditer(sheet):
        n_rows += 1
        last = max(last, int((row[1] or b"0")[:12]))
    for cell in _CELL.finditer(sheet):
        n_cells += 1
        width = max(width, _place(cell[1] or b""))
    n_rows = max(n_rows, last)
    refuse_empty(name, n_rows, width, n_cells)
    if n_rows > _MAX_ROWS or width > _MAX_COLUMNS:
        raise TableError(
            f"{name}: a sheet has {n_rows:,} rows and {width:,} columns, more than Excel allows. "
            "Delete the empty rows and columns, or save the table as CSV."
        )


def _place(letters: bytes) -> int:
    """Return the number of a column from its letters: A is 1, AA is 27."""
    place = 0
    for letter in letters[:8].upper():
        place = 26 * place + letter - 64
    return place


def _chosen(path: Path, sheet: str | None, names: list[str]) -> str:
    if sheet is not None and sheet not in names:
        raise TableError(f"{path.name} has no sheet {shown(sheet)}. {nearest(sheet, names)}")
    return names[0] if sheet is None else sheet


def _require_engine(path: Path) -> None:
    engine = "xlrd" if path.suffix.lower() == ".xls" else "openpyxl"
    try:
        __import__(engine)
    except ImportError as error:
        if engine == "openpyxl":
            raise need("openpyxl") from error
        # Not an `ImportError`: no extra of volmar installs xlrd.
        raise TableError(
            f"{path.name}: the old format .xls needs xlrd, which is not installed. Save the "
            "table as .xlsx or CSV, or run pip install xlrd."
        ) from error


def _table(
    path: Path, where: str, sheet: str, sheets: list[str], cells: Any, is_first: bool
) -> tuple[Any, list[str]]:
    """Return a sheet with its first row as the header, without empty rows and columns."""
    notes = []
    if is_first and len(sheets) > 1:
        others = quoted_names(sheets[1:])
        notes.append(
            f"the file has {len(sheets)} sheets, of which {shown(sheet)} was read; "
            f"'{printable(path.name)}#NAME' reads another one ({others})"
        )
    cells = cells.dropna(axis=1, how="all").dropna(axis=0, how="all")
    if not cells.size:
        remedy = "Give a file with a header and rows."
        if len(sheets) > 1:
            remedy = f"Give '{path.name}#NAME' for another sheet."
        raise TableError(f"{where} is empty. {remedy}")
    header, rows = cells.iloc[0], cells.iloc[1:]
    is_named = header.notna().to_numpy()
    places = [_letters(int(j)) for j in cells.columns]
    if not is_named.all():
        _refuse_merged(path, sheet, where)
        if 2 * is_named.sum() < len(header):
            raise TableError(
                f"{where}: the first row has {int(is_named.sum())} names for {len(header)} "
                "columns. Delete the rows above the header, and give every column a name."
            )
    if all(isinstance(value, int | float) for value in header[is_named]) and is_named.all():
        notes.append(
            "the first row holds only numbers and was read as a row; the columns are named "
            "x0, x1, ..."
        )
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


def _letters(place: int) -> str:
    """Return the letters of a column in a spreadsheet: A, B, ..., Z, AA."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
