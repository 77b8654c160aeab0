"""Write tables: labels, columns, or rows with their labels; and match labels to rows."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._files import open_atomically, printable
from volmar.tables import errors
from volmar.tables.columns import as_columns
from volmar.tables.errors import TableError, import_pandas, need, one_line, shown
from volmar.tables.read import LoadedTable, read_fields

_SEPARATORS = {"csv": ",", "tsv": "\t"}
# A path without a suffix is usually a pipe or a device, to which text is written.
_SUFFIXES = {"": "csv", ".csv": "csv", ".csv.gz": "csv", ".tsv": "tsv", ".tsv.gz": "tsv"}
_SUFFIXES |= {".parquet": "parquet", ".pq": "parquet"}
_ROWS = 1 << 16  # rows that are formatted as text at once

AnyPath = str | os.PathLike[str]
Write = Callable[..., None]


def write_labels(
    path: AnyPath,
    ids: Any,
    id_name: str,
    labels: Any,
    scores: Any,
    *,
    confidence: Any = None,
    **options: bool,
) -> None:
    """Write a table with the columns id (or row), label and score, as `open_labels` does."""
    with open_labels(path, id_name, confidence=confidence is not None, **options) as write:
        write(ids, labels, scores, confidence)


@contextmanager
def open_labels(
    path: AnyPath,
    id_name: str,
    *,
    confidence: bool = False,
    p_value: bool = False,
    **options: bool,
) -> Iterator[Write]:
    """Open a file of labels, and write it block by block.

    Yields a function of ids, labels, scores (of several columns, the difference between the
    largest and the second largest is written: the margin of the label), and the confidences and
    p-values that were announced. If a column other than the first is called `id_name`, the first
    one is called "id". `options` are those of `open_columns`.
    """
    more = [name for name, has in (("confidence", confidence), ("p_value", p_value)) if has]
    names = ["id" if id_name in more else id_heading(id_name), "label", "score", *more]
    with open_columns(path, names, **options) as write_columns:

        def write(ids: Any, labels: Any, scores: Any, *given: Any) -> None:
            extra = [np.asarray(one, dtype=float) for one in given if one is not None]
            if len(extra) != len(more):
                columns = f"with {' and '.join(more)}" if more else "without confidence"
                raise ValueError(f"The file was opened {columns}, got {len(extra)} such columns.")
            scores = np.asarray(scores, dtype=float)
            if scores.ndim == 2:
                top = np.sort(scores, axis=1)
                scores = top[:, -1] - top[:, -2] if top.shape[1] > 1 else top[:, 0]
            found = [np.asarray(ids), np.asarray(labels), scores, *extra]
            shapes = [str(column.shape) for column in found]
            if len(set(shapes)) > 1 or found[1].ndim != 1:
                raise ValueError(
                    f"ids, {', '.join(names[1:-1])} and {names[-1]} must have one entry per row, "
                    f"got the shapes {', '.join(shapes[:-1])} and {shapes[-1]}."
                )
            write_columns(*found)

        yield write


def id_heading(id_name: str) -> str:
    """Return the name of the id column in a file of labels, unlike that of any other column."""
    return "id" if id_name in ("label", "score", "confidence") else id_name


# ---------------------------------------------------------------------- rows


def write_rows(
    path: AnyPath,
    data: Any,
    labels: Any,
    *,
    kept: Any = None,
    name: str = "cluster",
    **options: bool,
) -> str:
    """Write the rows of a table with their labels as an additional column, and return its name.

    If both files are text, the fields are copied unchanged: 007 stays 007. `labels` are those of
    the rows in the mask `kept` (None for all rows); other rows get an empty field. A number is
    appended to `name` if the table has a column of that name. `options` are those of
    `open_columns`.
    """
    frame = _frame(data, as_text=written_kind(path) != "parquet")
    name = free_name(name, frame.columns)
    with open_rows(path, name=name, **options) as write:
        write(frame, labels, kept)
    return name


def free_name(name: str, columns: Iterable[Any]) -> str:
    """Return the name, with a number appended if one of the columns has that name."""
    taken = set(map(str, columns))
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


@contextmanager
def open_rows(path: AnyPath, *, name: str = "cluster", **options: bool) -> Iterator[Write]:
    """Open a file of rows with a column `name` of labels, and write it block by block.

    Yields a function of a DataFrame of rows, the labels of the kept rows, and the mask of the kept
    rows (None if all are kept). `options` are those of `open_columns`.
    """
    with _open_blocks(path, **options) as write:
        yield lambda frame, labels, kept=None: write(_labelled(frame, name, labels, kept))


def _frame(data: Any, *, as_text: bool) -> Any:
    """Return the table as a DataFrame; with `as_text`, the unchanged fields of a text file."""
    pd = import_pandas()
    table = as_columns(data)
    if as_text and isinstance(data, LoadedTable) and data.path is not None:
        fields = read_fields(data.path)
        if fields is not None:
            if len(fields) != table.n_rows:
                raise TableError(
                    f"{printable(data.path)} has changed since it was read. Read it again."
                )
            return fields
    if table.is_frame:
        frame = table.data
        return frame.reset_index() if any(n is not None for n in frame.index.names) else frame
    values = table.data
    if table.is_sparse:
        size = 8 * values.shape[0] * values.shape[1]
        if size > errors.MAX_DENSE_BYTES:
            raise TableError(
                f"{table.source} is sparse. Its rows would take {size / 2**30:.1f} GiB as a dense "
                "table. Write only the labels."
            )
        values = values.toarray()
    return pd.DataFrame(values, columns=table.names)


def _labelled(frame: Any, name: str, labels: Any, kept: Any) -> Any:
    import pandas as pd

    labels = np.asarray(labels)
    kept = np.ones(len(frame), dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    if kept.shape != (len(frame),) or labels.shape != (int(kept.sum()),):
        raise ValueError(
            f"labels must have one entry for each kept row, got the shapes {labels.shape} for "
            f"labels and {kept.shape} for kept, with {int(kept.sum())} of {len(frame)} rows kept."
        )
    column = pd.Series(pd.NA, index=range(len(frame)), dtype="object")
    column[kept] = labels
    values = column.astype("Int64") if labels.dtype.kind in "biu" else column
    return frame.set_axis(map(str, frame.columns), axis=1).assign(**{name: values.array})


# ---------------------------------------------------------------------- blocks


@contextmanager
def open_columns(path: AnyPath, names: Sequence[str], **options: bool) -> Iterator[Write]:
    """Open a file of named columns, and write it block by block.

    Yields a function of one array per column, with the values of a block of rows. The file appears
    on exit. With `force`, it may replace another. Text that a spreadsheet would evaluate as a
    formula gets an apostrophe in front in CSV and TSV files, which `match_labels` ignores; with
    `raw_ids`, it is written unchanged.
    """
    with _open_blocks(path, **options) as write:
        yield lambda *columns: write((list(names), [np.asarray(one) for one in columns]))


def written_kind(path: AnyPath) -> str:
    """Return the format of a file to write by its suffix: "csv", "tsv" or "parquet".

    Other suffixes raise `TableError`, Parquet without pyarrow `ImportError`.
    """
    stem, suffix = os.path.splitext(Path(path).name.lower())
    if suffix == ".gz":
        suffix = os.path.splitext(stem)[1] + suffix
    kind = _SUFFIXES.get(suffix)
    if kind is None:
        raise TableError(
            f"{printable(path)} has the suffix {shown(suffix)}, which is not supported. Give a "
            "file that ends with .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq."
        )
    if kind == "parquet":
        try:
            import pyarrow.parquet  # type: ignore[import-untyped] # noqa: F401
        except ImportError as error:
            raise need("pyarrow") from error
    return kind


@contextmanager
def _open_blocks(path: AnyPath, *, force: bool = False, raw_ids: bool = False) -> Iterator[Write]:
    """Open a file. Yields a function of a block: a DataFrame, or names and arrays."""
    kind = written_kind(path)
    with ExitStack() as files:
        file: Any = files.enter_context(open_atomically(path, force=force, error=TableError))
        if kind == "parquet":
            yield _parquet_writer(path, file, files)
            return
        if str(path).lower().endswith(".gz"):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            file = files.enter_context(packed)
        has_header = False

        def write(block: Any) -> None:
            nonlocal has_header
            for text in _csv_texts(block, _SEPARATORS[kind], raw_ids, has_header):
                # Bytes that were not UTF-8 are written unchanged.
                file.write(text.encode("utf-8", errors="surrogateescape"))
            has_header = True

        yield write


def _parquet_writer(path: AnyPath, file: Any, files: ExitStack) -> Write:
    """Return a function that writes a block, cast to the types of the first one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def write(block: Any) -> None:
        nonlocal writer
        try:
            table = _arrow_table(block)
            if writer is None:
                writer = files.enter_context(pq.ParquetWriter(file, table.schema))
            # For example, a later block may hold floats and the first one integers.
            writer.write_table(table.cast(writer.schema))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise TableError(
                f"{printable(path)} cannot be written as Parquet: {one_line(error)}. Give a file "
                "that ends with .csv."
            ) from error

    return write


def _arrow_table(block: Any) -> Any:
    import pyarrow as pa

    if isinstance(block, tuple):
        names, columns = block
        arrays = [
            pa.array(one) if one.dtype.kind in "biufM" else pa.array(_cells(one), type=pa.string())
            for one in columns
        ]
        return pa.table(arrays, names=names)
    table = pa.Table.from_pandas(block, preserve_index=False)
    # Columns without values in the first block may hold text in a later one.
    fields = [f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


def _csv_texts(block: Any, separator: str, raw_ids: bool, has_header: bool) -> Iterator[str]:
    """Yield a block as CSV, by pieces."""
    escaped = str if raw_ids else neutral
    options: dict[str, Any] = {"lineterminator": "\n"}
    if isinstance(block, tuple):
        names, columns = block
        n_rows = len(columns[0])

        def text(rows: slice, header: bool) -> str:
            file = io.StringIO()
            writer = csv.writer(file, delimiter=separator, **options)
            writer.writerows([map(escaped, names)] if header else [])
            writer.writerows(zip(*(_cells(one[rows], escaped) for one in columns), strict=True))
            return file.getvalue()
    else:
        n_rows, frame = len(block), block if raw_ids else _neutral_frame(block)

        def text(rows: slice, header: bool) -> str:
            piece = frame.iloc[rows]
            return str(piece.to_csv(index=False, sep=separator, header=header, **options))

    for start in range(0, max(n_rows, 1), _ROWS):
        piece, header = slice(start, start + _ROWS), not start and not has_header
        if "\r" in (made := text(piece, header)):  # which is not quoted before Python 3.13
            options["quoting"] = csv.QUOTE_ALL
            made = text(piece, header)
        yield made


def _cells(values: NDArray[Any], escaped: Callable[[str], str] = str) -> list[Any]:
    """Return numbers as they are, other values as escaped text, and None for missing values."""
    if values.dtype.kind in "biuU":
        return values.tolist() if values.dtype.kind != "U" else list(map(escaped, values.tolist()))
    if values.dtype.kind == "f":
        return [None if math.isnan(value) else value for value in values.tolist()]
    if values.dtype.kind == "M":
        texts = values.astype(str).astype(object)
        texts[np.isnat(values)] = None
        values = texts
    return [None if _is_missing(value) else escaped(str(value)) for value in values.tolist()]


def _is_missing(value: Any) -> bool:
    # The missing values of pandas are unequal to themselves, or cannot be used in an `if`.
    kind = type(value).__name__
    return kind in ("NoneType", "NAType", "NaTType") or (kind == "float" and math.isnan(value))


def _neutral_frame(frame: Any) -> Any:
    """Return a DataFrame with formulas in column names and values escaped."""

    def escaped(value: Any) -> Any:
        return value if isinstance(value, (int, float)) else neutral(str(value))

    columns = {
        neutral(name): column.map(escaped, na_action="ignore")
        if column.dtype.kind == "O"
        else column
        for name, column in frame.items()
    }
    return import_pandas().DataFrame(columns, index=frame.index)


# ---------------------------------------------------------------------- formulas

# A character that begins a formula, also in full width, at the start or after invisible
# characters. It counts after apostrophes as well, so that different texts stay different after
# escaping. A reader may drop a leading tab, line end or NUL, so these always count.
_FORMULA = re.compile(
    r"'*(?:[\t\r\n\0]|[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2060\ufeff]*[=+\-@＝＋－＠])"
)
# Numbers with a sign are not formulas: with a decimal point or comma, grouped digits, or a per
# cent sign. Dashes alone stand for a missing value.
_NUMBER = re.compile(
    r"'*[ ]*(?:[+\-]?"
    r"(?:\d+(?:[.,]\d*)?|[.,]\d+|\d{1,3}(?:[.,' \xa0\u202f]\d{3})+(?:[.,]\d*)?|inf(?:inity)?|nan)"
    r"(?:e[+\-]?\d+)?[ ]*%?|-+)[ ]*",
    re.ASCII | re.IGNORECASE,
)


def neutral(text: str) -> str:
    """Return the text, with an apostrophe in front if it would be a formula."""
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


# ---------------------------------------------------------------------- matching


def match_labels(
    given: Any, rows: Any, *, name: str = "the table of labels", notes: list[str] | None = None
) -> NDArray[np.str_]:
    """Return the label of each prepared row from a table of labels, as text.

    If both tables have ids, rows are matched by id, and otherwise by position. The labels are in a
    column ``label`` or ``cluster``, or in the only column besides the ids. An id matches with or
    without the apostrophe before a formula. `name` is that of the table in messages. A line is
    appended to `notes` if some labels are not used.
    """
    notes = [] if notes is None else notes
    if sparse.issparse(given):
        raise TableError(
            f"{name} is a libsvm file. Give the labels as CSV, in a column named label."
        )
    frame = given
    if not hasattr(given, "columns"):
        names = [f"x{j}" for j in range(given.shape[1])]
        frame = import_pandas().DataFrame(given, columns=names)
    errors.refuse_duplicates(name, [str(column) for column in frame.columns])
    id_name = id_heading(rows.id_name)
    if id_name not in frame.columns:
        id_name = neutral(id_name)
    by_id = id_name in frame.columns and len(frame.columns) > 1
    column = frame[_label_column(name, frame, id_name if by_id else None)]
    if column.isna().any():
        raise TableError(
            f"{name} has {int(column.isna().sum())} rows without a label. Fill in the labels, or "
            "remove these rows from both tables."
        )
    try:
        codes, values = column.factorize()
    except TypeError as error:
        raise TableError(
            f"{name} has lists or other nested values as labels. Give every row a text or a "
            "number as its label."
        ) from error
    labels = _texts(np.asarray(values))[codes]
    if by_id:
        found = labels[_places(name, frame[id_name], rows, id_name, notes)]
    elif len(labels) == len(rows.kept):
        found = labels[rows.kept]
    elif len(labels) == len(rows.ids):
        found = labels
    else:
        raise TableError(
            f"{name} has {len(labels)} labels for {len(rows.kept)} rows. Give one label per row "
            "in the same order, or name a column of ids of both tables in id_column=."
        )
    n_unseen = len(values) - len(np.unique(found))
    if n_unseen and len(labels) == len(rows.kept):  # of a sample
        notes.append(
            f"{n_unseen} of the {len(values)} labels of {name} occur on none of the scored rows"
        )
    return found


def _label_column(where: str, frame: Any, id_name: str | None) -> Any:
    # `volmar cluster --append` writes the labels to a column "cluster".
    if named := [name for name in ("label", "cluster") if name in frame.columns]:
        return named[0]
    others = [name for name in frame.columns if name != id_name]
    if len(others) == 1:
        return others[0]
    known = ", ".join(map(str, others[:8])) + (", ..." if len(others) > 8 else "")
    raise TableError(
        f"{where} has no column named label, only {len(others)} others ({known}). Rename the "
        "column with the labels to label."
    )


def _places(where: str, ids: Any, rows: Any, id_name: str, notes: list[str]) -> NDArray[np.intp]:
    known, wanted = ids.to_numpy(), np.asarray(rows.ids)
    if known.dtype.kind not in "iu" or wanted.dtype.kind not in "iu":
        known, wanted = _texts(known), _texts(wanted)
    index = import_pandas().Index(known)
    if not index.is_unique:
        twice = known[index.duplicated()][0]
        raise TableError(
            f"{where} has {id_name} {_text(twice)!r} twice. Give every id exactly one label."
        )
    places = index.get_indexer(wanted)
    if (places < 0).any() and wanted.dtype.kind == "U":
        # `write_labels` may have put an apostrophe before them.
        others = index.get_indexer(np.array(list(map(neutral, wanted.tolist()))))
        if np.count_nonzero(others < 0) < np.count_nonzero(places < 0):
            places = others
    lost = wanted[places < 0]
    if len(lost):
        raise TableError(
            f"{where} has no label for {len(lost)} of {len(wanted)} rows, such as {id_name} "
            f"{_text(lost[0])!r}. Give every row a label."
        )
    # The labels of a folder include rows that were not sampled.
    n_spare = len(index) - len(set(wanted.tolist()))
    if n_spare and len(index) != len(rows.kept):
        notes.append(f"{where} has labels for {n_spare} rows that are not scored")
    return places


def _texts(values: NDArray) -> NDArray[np.str_]:
    return np.array([_text(value) for value in values.tolist()])


def _text(value: Any) -> str:
    """Return an id or a label as text, the same for 7 and 7.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
