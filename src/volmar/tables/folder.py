"""Folders of Parquet or CSV files as one dask DataFrame."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from volmar.tables.errors import TableError, listed, need, shown
from volmar.tables.text import find_layout

__all__ = ["computed", "is_folder_of_tables", "read_folder"]

_INDEX = "__index_level_"  # what pandas calls an index without a name
_BLOCK = 1 << 27  # bytes of a block before compression, if row groups are smaller
_HEADS, _HEAD_ROWS = 200, 1000  # files and rows of them that tell the types of CSV columns
_KINDS = {".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".tsv": "TSV"}


def is_folder_of_tables(source: str | Path) -> bool:
    """Tell whether a path is a folder with Parquet, CSV or TSV files in it.

    Parameters
    ----------
    source : str or Path
        The path.

    Returns
    -------
    bool
    """
    if not str(source).strip():
        return False  # which `Path` takes for the folder that one is in
    try:
        return bool(_tables(Path(source).expanduser()))
    except (OSError, ValueError):
        return False


def read_folder(source: str | Path) -> Any:
    """Return the files of a folder as one dask DataFrame, lazily.

    Columns of CSV files are floats where the beginnings of all files hold numbers there (a
    later row may have a missing value), and text where they do not.

    Parameters
    ----------
    source : str or Path
        A folder with Parquet, CSV or TSV files of the same columns; files whose name begins
        with a dot or an underscore are passed over.

    Returns
    -------
    dask DataFrame
        The rows, in the order of the file names.

    Raises
    ------
    TableError
        If the folder has no such files, files of several kinds or of different columns.
    ImportError
        Where dask, pandas or pyarrow is not installed.
    """
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise TableError(f"there is no folder {shown(source)}; check the path")
    files = _tables(folder)
    if not files:
        raise TableError(
            f"{folder} is a folder without .parquet or .csv files; give a file, or a folder "
            "that has some"
        )
    kinds = sorted({_kind(file) for file in files})
    if len(kinds) > 1:
        raise TableError(
            f"{folder} has {' and '.join(kinds)} files; keep the files of one kind in a folder"
        )
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise need("dask with pandas and pyarrow", "dask,io") from error
    return _read_parquet(dd, files) if kinds == ["Parquet"] else _read_text(dd, files)


def _kind(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes[-1:] == [".gz"]:
        kind = _KINDS.get(suffixes[-2], "") if len(suffixes) > 1 else ""
        return kind if kind != "Parquet" else ""
    return _KINDS.get(suffixes[-1], "") if suffixes else ""


def _tables(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(
        file
        for file in folder.iterdir()
        if not file.name.startswith((".", "_")) and _kind(file) and file.is_file()
    )


def _same_columns(files: list[Path], columns: list[list[str]]) -> None:
    for file, names in zip(files, columns, strict=True):
        if names != columns[0]:
            odd = sorted(set(names) ^ set(columns[0]))
            which = f" ({shown(odd[0])} is in one only)" if odd else " (their order differs)"
            raise TableError(
                f"{file.name} has other columns than {files[0].name}{which}; keep tables with "
                "the same columns in a folder"
            )


def _read_parquet(dd: Any, files: list[Path]) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    columns, pieces, meta = [], [], None
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                schema, about = opened.schema_arrow, opened.metadata
        except (OSError, ValueError, pa.ArrowException) as error:
            line = " ".join(str(error).split())[:200]
            raise TableError(
                f"{file.name} cannot be read as Parquet: {line}; save it again"
            ) from error
        columns.append([name for name in schema.names if not name.startswith(_INDEX)])
        if meta is None:
            meta = schema.empty_table().select(columns[0]).to_pandas(ignore_metadata=True)
        sizes = [about.row_group(group).total_byte_size for group in range(about.num_row_groups)]
        pieces += [(str(file), groups) for groups in _together(sizes)]
    _same_columns(files, columns)
    if not pieces:
        raise TableError(f"{files[0].parent} has files without rows; give tables with rows")
    return dd.from_map(_read_piece, pieces, meta=meta, enforce_metadata=False)


def _together(sizes: list[int]) -> list[list[int]]:
    """Put neighbouring row groups together, up to the size of a block."""
    found: list[list[int]] = []
    room = 0
    for group, size in enumerate(sizes):
        if not found or size > room:
            found.append([])
            room = _BLOCK
        found[-1].append(group)
        room -= size
    return found


def _read_piece(piece: tuple[str, list[int]], columns: list[str] | None = None) -> Any:
    """Read row groups of a file; dask names the columns that it needs."""
    import pyarrow.parquet as pq

    path, groups = piece
    with pq.ParquetFile(path) as file:
        names = columns or [n for n in file.schema_arrow.names if not n.startswith(_INDEX)]
        return file.read_row_groups(groups, columns=names).to_pandas(ignore_metadata=True)[names]


def _read_text(dd: Any, files: list[Path]) -> Any:
    layouts = [find_layout(file, _kind(file).lower()) for file in files]
    first = layouts[0]
    _same_columns(files, [layout.names or [""] * layout.width for layout in layouts])
    for file, layout in zip(files, layouts, strict=True):
        if (layout.separator, layout.decimal) != (first.separator, first.decimal):
            raise TableError(
                f"{file.name} has other separators than {files[0].name}; save them alike"
            )
    encodings = {layout.encoding for layout in layouts}
    encoding = encodings.pop() if len(encodings) == 1 else "utf-8-sig"
    packed = any(file.suffix.lower() == ".gz" for file in files)
    options = {**first.options(), "encoding": encoding}
    options["dtype"] = _dtypes(files, options)
    if packed:
        # A compressed file is one block.
        options |= {"blocksize": None, "compression": "gzip"}
    try:
        return dd.read_csv([str(file) for file in files], **options)
    except (ValueError, OSError) as error:
        line = " ".join(str(error).split())[:200]
        raise TableError(f"{files[0].parent}: {line}; save the tables again") from error


def _dtypes(files: list[Path], options: dict[str, Any]) -> dict[Any, str]:
    """Return the dtypes of columns by the first rows of the files: one for all blocks."""
    import pandas as pd

    step = -(-len(files) // _HEADS)
    heads = []
    for file in {*files[::step], files[-1]}:
        try:
            heads.append(pd.read_csv(file, nrows=_HEAD_ROWS, **options))
        except (ValueError, OSError) as error:
            line = " ".join(str(error).split())[:200]
            raise TableError(f"{file.name} cannot be read: {line}; save it again") from error
    kinds: dict[Any, str] = {}
    for name in heads[0].columns:
        known = [head[name].dtype.kind for head in heads if head[name].notna().any()]
        kinds[name] = "float64" if all(kind in "iuf" for kind in known) else "str"
    return kinds


def computed(tasks: Sequence[Any]) -> list[Any]:
    """Return what delayed tasks on blocks of a folder come to; errors name the remedy."""
    import dask

    try:
        return list(dask.compute(*tasks))
    except (ValueError, OSError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(_why(error)) from error


def _why(error: Exception) -> str:
    text = str(error)
    if "Mismatched dtypes" in text:
        # dask's table of these columns: name, found, expected.
        rows = re.findall(r"^\| (.+?) +\| (.+?) +\| .+\|$", text, flags=re.MULTILINE)
        odd = [f"{shown(name)} ({kind})" for name, kind in rows if name != "Column"]
        return (
            f"the folder: some files hold other values than numbers in the columns {listed(odd)}; "
            "mend these files, or leave the columns out with --drop"
        )
    if found := re.search(r"could not convert string to float: (.*)", text):
        return (
            f"the folder: a column without text at the beginning holds {found[1][:100]} in a "
            "later row; leave such fields empty, or leave the column out with --drop"
        )
    return f"a block of the folder cannot be read: {' '.join(text.split())[:300]}; mend that file"
