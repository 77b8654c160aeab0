"""Folders of Parquet or CSV files as one dask DataFrame."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from volmar._files import expanded_path, printable
from volmar.tables.errors import (
    TableError,
    need,
    one_line,
    open_bytes,
    reading,
    refuse_duplicates,
    shown,
)
from volmar.tables.read import TEXT, arrow_frame, find_layout, plain_suffix, require_groups

_INDEX = "__index_level_"  # the name that pandas gives to an index without one
_BLOCK = 1 << 27  # uncompressed bytes of a block, to which smaller row groups are joined
_TEXT_BLOCK = 1 << 26  # bytes of a block of a text file
_KINDS = {".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".tsv": "TSV"}


def is_folder_of_tables(source: str | Path) -> bool:
    """Return whether a path is a readable folder that holds Parquet, CSV or TSV files."""
    if not str(source).strip():
        return False  # `Path("")` would be the current folder
    try:
        return bool(_tables(expanded_path(source)))
    except (OSError, ValueError):
        return False


def read_folder(source: str | Path) -> Any:
    """Return the rows of a folder as a lazy dask DataFrame, in the order of the file names.

    The files are Parquet, CSV or TSV files with the same columns; those whose name begins with a
    dot or an underscore are ignored. A column of CSV files is numeric if it holds only numbers at
    the beginning of every file, and text otherwise. A word further down in a numeric column is
    kept as text.
    """
    folder = expanded_path(source)
    if not folder.is_dir():
        raise TableError(f"There is no folder {shown(source)}. Check the path.")
    files = _tables(folder)
    if not files:
        raise TableError(
            f"{folder} is a folder without .parquet or .csv files. Give a file, or a folder "
            "with such files."
        )
    kinds = sorted({_kind(file) for file in files})
    if len(kinds) > 1:
        raise TableError(
            f"{folder} has {' and '.join(kinds)} files. Keep only files of one format in the "
            "folder."
        )
    try:
        import dask.dataframe as dd
    except ImportError as error:
        raise need("dask with pandas and pyarrow", "dask,io") from error
    return _read_parquet(dd, files) if kinds == ["Parquet"] else _read_text(dd, files)


def _kind(file: Path) -> str:
    kind = _KINDS.get(plain_suffix(file), "")
    return kind if kind != "Parquet" or file.suffix.lower() != ".gz" else ""


def _tables(folder: Path) -> list[Path]:
    files = folder.iterdir() if folder.is_dir() else []
    named = [file for file in files if not file.name.startswith((".", "_"))]
    return sorted(file for file in named if _kind(file) and file.is_file())


def _same_columns(files: list[Path], columns: list[list[str]]) -> None:
    for file, names in zip(files, columns, strict=True):
        if names != columns[0]:
            odd = sorted(set(names) ^ set(columns[0]))
            which = f"{shown(odd[0])} is in only one of them" if odd else "their order differs"
            raise TableError(
                f"{file.name} and {files[0].name} have different columns ({which}). Give all "
                "files of the folder the same columns in the same order."
            )


# ---------------------------------------------------------------------- Parquet


def _read_parquet(dd: Any, files: list[Path]) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    columns, pieces, meta = [], [], None
    for file in files:
        with reading(file, " as Parquet"), file.open("rb") as stored:
            opened = pq.ParquetFile(stored)
            schema, about = opened.schema_arrow, opened.metadata
        columns.append([name for name in schema.names if not name.startswith(_INDEX)])
        if meta is None:
            refuse_duplicates(file.name, columns[0])
            empty = schema.empty_table().select(columns[0]).replace_schema_metadata()
            meta = arrow_frame(printable(file.name), empty)
        sizes = [about.row_group(group).total_byte_size for group in range(about.num_row_groups)]
        pieces += [(str(file), groups) for groups in _together(sizes)]
    _same_columns(files, columns)
    if not pieces:
        raise TableError(f"The files in {files[0].parent} have no rows. Give tables with rows.")
    return dd.from_map(_read_piece, pieces, meta=meta, enforce_metadata=False)


def _together(sizes: list[int]) -> list[list[int]]:
    """Group consecutive row groups into blocks of up to `_BLOCK` bytes, or one row group."""
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
    """Read row groups of a file. dask passes the `columns` that it needs."""
    import pyarrow.parquet as pq

    path, groups = piece
    name = printable(Path(path).name)
    with Path(path).open("rb") as content, pq.ParquetFile(content) as file:
        names = columns or [n for n in file.schema_arrow.names if not n.startswith(_INDEX)]
        require_groups(file, groups, name)
        table = file.read_row_groups(groups, columns=names)
    table.validate(full=True)
    return arrow_frame(name, table.replace_schema_metadata())[names]


# ---------------------------------------------------------------------- text


def _read_text(dd: Any, files: list[Path]) -> Any:
    layouts = [find_layout(file, TEXT[plain_suffix(file)]) for file in files]
    _same_columns(files, [layout.names for layout in layouts])
    options = [layout.options for layout in layouts]
    for file, one in zip(files, options, strict=True):
        if (one["sep"], one["decimal"]) != (options[0]["sep"], options[0]["decimal"]):
            both = f"{file.name} and {files[0].name} have different separators or decimal signs"
            raise TableError(f"{both}. Save all files with the same ones.")
    meta = _types(files, options)
    pieces = [
        (str(file), start, one)
        for file, one in zip(files, options, strict=True)
        for start in _starts(file, one["encoding"])
    ]
    kinds = {str(name): dtype.kind for name, dtype in meta.dtypes.items()}
    return dd.from_map(_read_lines, pieces, kinds=kinds, meta=meta, enforce_metadata=False)


def _types(files: list[Path], options: list[dict[str, Any]]) -> Any:
    """Return an empty DataFrame with dtypes that hold the first 1000 rows of about 200 files."""
    import pandas as pd

    heads = []
    for k in {*range(0, len(files), -(-len(files) // 200)), len(files) - 1}:
        with reading(files[k]), open_bytes(files[k], growth=0) as content:
            heads.append(pd.read_csv(content, nrows=1000, **options[k]))
    meta = {}
    for name in heads[0].columns:
        kinds = {head[name].dtype.kind for head in heads if head[name].notna().any()}
        is_whole = bool(kinds) and kinds <= set("iu")
        dtype = "int64" if is_whole else "float64" if kinds <= set("iuf") else "str"
        meta[name] = pd.Series([], dtype=dtype)
    return pd.DataFrame(meta)


def _starts(file: Path, encoding: str) -> range:
    """Return where the blocks of a text file begin: one, if it cannot be split at a line."""
    is_whole = file.suffix.lower() == ".gz" or encoding in ("utf-16", "utf-32")
    return range(1) if is_whole else range(0, max(file.stat().st_size, 1), _TEXT_BLOCK)


def _read_lines(
    piece: tuple[str, int, dict[str, Any]],
    *,
    kinds: dict[str, str],
    columns: list[str] | None = None,
) -> Any:
    """Read the lines that begin in a block of a text file. dask passes the needed `columns`."""
    import pandas as pd

    path, start, options = Path(piece[0]), piece[1], dict(piece[2])
    wanted = list(kinds) if columns is None else list(columns)
    if start:
        options |= {"header": None, "names": list(kinds)}
    if wanted != list(kinds):
        options["usecols"] = wanted
    options["low_memory"] = False  # a column has one type in all rows
    options["dtype"] = {name: "str" for name in wanted if kinds[name] not in "iuf"}
    with reading(path, remedy="Correct this file."):
        content = _lines_from(path, start, options["encoding"])
        if not content:
            return pd.DataFrame({name: [] for name in wanted})
        try:
            frame = pd.read_csv(io.BytesIO(content), **options)
        except UnicodeDecodeError:
            frame = pd.read_csv(io.BytesIO(content), **(options | {"encoding": "latin-1"}))
        if type(frame.index) is not pd.RangeIndex:  # made of the first field of long rows
            raise ValueError("a row has more fields than the first line of the file")
        return frame[wanted]


def _lines_from(path: Path, start: int, encoding: str) -> bytes:
    with open_bytes(path, growth=0) as file:
        if len(_starts(path, encoding)) == 1:
            return bytes(file.read())
        ends = []
        for place in (start, start + _TEXT_BLOCK):
            file.seek(max(place - 1, 0))
            if place:
                file.readline()
            ends.append(file.tell())
        file.seek(ends[0])
        return bytes(file.read(ends[1] - ends[0]))


def computed(tasks: Sequence[Any]) -> list[Any]:
    """Compute delayed tasks on the blocks of a folder. Errors become a `TableError`."""
    import dask

    try:
        return list(dask.compute(*tasks))
    except TableError:
        raise
    except (ValueError, OSError, KeyError) as error:
        raise TableError(
            f"A block of the folder cannot be read: {one_line(error)}. Check its files."
        ) from error
