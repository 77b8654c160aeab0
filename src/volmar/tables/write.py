"""Write tables: labels, columns, or rows with their labels; and match labels to rows."""

from __future__ import annotations

import gzip
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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

_OTHERS = ("label", "score", "confidence")
_SEPARATORS = {"csv": ",", "tsv": "\t"}
# A path without a suffix is usually a pipe or a device, to which text is written.
_SUFFIXES = {
    **dict.fromkeys(("", ".csv", ".csv.gz"), "csv"),
    **dict.fromkeys((".tsv", ".tsv.gz"), "tsv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_ROWS = 1 << 16  # rows that are formatted as text at once

AnyPath = str | os.PathLike[str]


def write_labels(
    path: AnyPath,
    ids: Any,
    id_name: str,
    labels: Any,
    scores: Any,
    *,
    confidence: Any = None,
    force: bool = False,
    raw_ids: bool = False,
) -> None:
    """Write a table with the columns id (or row), label and score.

    Parameters
    ----------
    path : str or path-like
        File to write. Its suffix gives the format: .csv, .csv.gz, .tsv, .tsv.gz or .parquet.
    ids : array of shape (n,)
        Names or numbers of the rows.
    id_name : str
        Name of the first column. If another column has this name, "id" is written instead.
    labels : array of int, shape (n,)
        Cluster of each row.
    scores : array of shape (n,) or (n, k)
        Values of the decision function. For k columns, the difference between the largest and
        the second largest is written: the margin of the label.
    confidence : array of shape (n,), default=None
        Values of a last column. If None, the column is not written.
    force : bool, default=False
        Whether an existing file may be replaced.
    raw_ids : bool, default=False
        Whether CSV and TSV files get text unchanged. By default, text that a spreadsheet would
        evaluate as a formula gets an apostrophe in front, which `match_labels` ignores.

    Raises
    ------
    TableError
        If the file exists and `force` is False, cannot be written, or has another suffix.
    """
    options = {"confidence": confidence is not None, "force": force, "raw_ids": raw_ids}
    with open_labels(path, id_name, **options) as write:
        write(ids, labels, scores, confidence)


@contextmanager
def open_labels(
    path: AnyPath,
    id_name: str,
    *,
    confidence: bool = False,
    p_value: bool = False,
    force: bool = False,
    raw_ids: bool = False,
) -> Iterator[Callable[..., None]]:
    """Open a file of labels, as written by `write_labels`, and write it block by block.

    `confidence` and `p_value` tell whether the file has a column of confidences, and one of
    p-values. Yields a function of ids, labels, scores, confidences and p-values. The file appears
    on exit.
    """
    more = [name for name, has in (("confidence", confidence), ("p_value", p_value)) if has]
    names = ["id" if id_name in more else id_heading(id_name), *_OTHERS[:2], *more]
    with open_columns(path, names, force=force, raw_ids=raw_ids) as write_columns:

        def write(ids: Any, labels: Any, scores: Any, *given: Any) -> None:
            extra = [np.asarray(one, dtype=float) for one in given if one is not None]
            if len(extra) != len(more):
                columns = f"with {' and '.join(more)}" if more else "without confidence"
                raise ValueError(f"The file was opened {columns}, got {len(extra)} such columns.")
            write_columns(*_checked(np.asarray(ids), np.asarray(labels), scores, *extra))

        yield write


def id_heading(id_name: str) -> str:
    """Return the name of the id column in a file of labels, unlike that of any other column."""
    return "id" if id_name in _OTHERS else id_name


def _checked(ids: Any, labels: Any, scores: Any, *extra: Any) -> tuple[np.ndarray, ...]:
    scores = np.asarray(scores, dtype=float)
    if scores.ndim == 2:
        top = np.sort(scores, axis=1)
        scores = top[:, -1] - top[:, -2] if scores.shape[1] > 1 else top[:, 0]
    columns = (ids, labels, scores, *extra)
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or labels.ndim != 1:
        what = "ids, labels and scores" if not extra else "ids, labels, scores and confidence"
        *first, last = map(str, shapes)
        raise ValueError(
            f"{what} must have one entry per row, got the shapes {', '.join(first)} and {last}."
        )
    return columns


# ---------------------------------------------------------------------- rows


def write_rows(
    path: AnyPath,
    data: Any,
    labels: Any,
    *,
    kept: Any = None,
    name: str = "cluster",
    force: bool = False,
    raw_ids: bool = False,
) -> str:
    """Write the rows of a table with their labels as an additional column, and return its name.

    If both files are text, the fields are copied unchanged: 007 stays 007. `labels` are those of
    the rows in the mask `kept` (None for all rows); other rows get an empty field. A number is
    appended to `name` if the table has a column of that name. Other parameters are those of
    `write_labels`.
    """
    kind = written_kind(path)
    frame = _frame(data, as_text=kind != "parquet")
    name = free_name(name, frame.columns)
    with open_rows(path, name=name, force=force, raw_ids=raw_ids) as write:
        write(frame, labels, kept)
    return name


def free_name(name: str, columns: Iterable[Any]) -> str:
    """Return the name, with a number appended if one of the columns has that name."""
    taken = set(map(str, columns))
    names = [name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))]
    return next(one for one in names if one not in taken)


@contextmanager
def open_rows(
    path: AnyPath, *, name: str = "cluster", force: bool = False, raw_ids: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a file of rows and labels, as written by `write_rows`, and write it block by block.

    No block may have a column called `name`. Yields a function of a DataFrame of rows, the labels
    of the kept rows, and the mask of the kept rows (None if all are kept). The file appears on
    exit.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with _open_parquet(path, force) as write_table:
            yield lambda frame, labels, kept=None: write_table(
                _arrow_rows(path, _labelled(frame, name, labels, kept))
            )
        return
    with _open_text(path, force) as write_text:
        has_header = False

        def write(frame: Any, labels: Any, kept: Any = None) -> None:
            nonlocal has_header
            labelled = _labelled(frame, name, labels, kept)
            labelled = labelled if raw_ids else neutral_frame(labelled)
            for start in range(0, max(len(labelled), 1), _ROWS):
                rows = labelled.iloc[start : start + _ROWS]
                options = {"sep": _SEPARATORS[kind], "lineterminator": "\n"}
                write_text(rows.to_csv(index=False, header=not has_header, **options))
                has_header = True

        yield write


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
    has_label: NDArray[np.bool_] = (
        np.ones(len(frame), dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    )
    if has_label.shape != (len(frame),) or labels.shape != (int(has_label.sum()),):
        raise ValueError(
            f"labels must have one entry for each kept row, got the shapes {labels.shape} for "
            f"labels and {has_label.shape} for kept, with {int(has_label.sum())} of "
            f"{len(frame)} rows kept."
        )
    dtype = "Int64" if labels.dtype.kind in "biu" else "object"
    column = pd.Series(pd.NA, index=frame.index, dtype=dtype)
    column[has_label] = labels
    named = frame.set_axis([str(one) for one in frame.columns], axis=1)
    return named.assign(**{name: column.array})


def _arrow_rows(path: AnyPath, frame: Any) -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    with _parquet_errors(path):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    # Columns without values in the first block may hold text in a later one.
    fields = [f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))


# ---------------------------------------------------------------------- columns


@contextmanager
def open_columns(
    path: AnyPath, names: Sequence[str], *, force: bool = False, raw_ids: bool = False
) -> Iterator[Callable[..., None]]:
    """Open a file of named columns, and write it block by block.

    Yields a function of one array per column, with the values of a block of rows. The file appears
    on exit.
    """
    kind = written_kind(path)
    if kind == "parquet":
        with _open_parquet(path, force) as write_table:
            yield lambda *columns: write_table(_arrow_columns(names, columns))
        return
    separator = _SEPARATORS[kind]
    with _open_text(path, force) as write_text:
        write_text(separator.join(_text_fields(list(names), separator, raw_ids)) + "\n")

        def write(*columns: Any) -> None:
            for start in range(0, len(columns[0]), _ROWS):
                rows = slice(start, start + _ROWS)
                fields = [_fields(np.asarray(one)[rows], separator, raw_ids) for one in columns]
                write_text("\n".join(map(separator.join, zip(*fields, strict=True))) + "\n")

        yield write


def _arrow_columns(names: Sequence[str], columns: Sequence[Any]) -> Any:
    import pyarrow as pa

    arrays = []
    for column in columns:
        values = np.asarray(column)
        if values.dtype.kind not in "biufM":
            texts = [None if _is_missing(value) else str(value) for value in values.tolist()]
            arrays.append(pa.array(texts, type=pa.string()))
        else:
            arrays.append(pa.array(values))
    return pa.table(arrays, names=list(names))


def _fields(values: np.ndarray, separator: str, raw_ids: bool) -> list[str]:
    if values.dtype.kind in "biu":
        return list(map(str, values.tolist()))
    if values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", values.astype(str))
    fields = ["" if _is_missing(value) else str(value) for value in values.tolist()]
    return fields if values.dtype.kind == "f" else _text_fields(fields, separator, raw_ids)


def _is_missing(value: Any) -> bool:
    # The missing values of pandas are unequal to themselves, or cannot be used in an `if`.
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    )


def _text_fields(fields: list[str], separator: str, raw_ids: bool) -> list[str]:
    fields = fields if raw_ids else neutral_fields(fields)
    special = (separator, '"', "\n", "\r")
    joined = "".join(fields)
    if not any(sign in joined for sign in special):
        return fields
    return [
        '"' + field.replace('"', '""') + '"' if any(sign in field for sign in special) else field
        for field in fields
    ]


# ---------------------------------------------------------------------- files


def written_kind(path: AnyPath) -> str:
    """Return the format of a file to write by its suffix: "csv", "tsv" or "parquet".

    Other suffixes raise `TableError`, Parquet without pyarrow `ImportError`.

    >>> written_kind("labels.tsv.gz")
    'tsv'
    """
    name = Path(path).name.lower()
    suffix = Path(name).suffix
    if suffix == ".gz":
        suffix = Path(name.removesuffix(".gz")).suffix + suffix
    kind = _SUFFIXES.get(suffix)
    if kind is None:
        raise TableError(
            f"{printable(path)} has the suffix {shown(suffix)}, which is not supported. Give a "
            "file that ends with .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq."
        )
    if kind == "parquet":
        _pyarrow()
    return kind


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]
    except ImportError as error:
        raise need("pyarrow") from error
    return pa, pq


@contextmanager
def _open_text(path: AnyPath, force: bool) -> Iterator[Callable[[str], Any]]:
    """Open a text file, compressed if its name ends with .gz. Yields a function of a text."""
    with open_atomically(path, force=force, error=TableError) as file:
        packed: Any = nullcontext(file)
        if str(path).lower().endswith(".gz"):
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        with packed as target:
            # Bytes that were not UTF-8 are written unchanged.
            yield lambda text: target.write(text.encode("utf-8", errors="surrogateescape"))


@contextmanager
def _open_parquet(path: AnyPath, force: bool) -> Iterator[Callable[[Any], None]]:
    """Open a Parquet file. Yields a function of a pyarrow table, cast to the first schema."""
    _, pq = _pyarrow()
    writer = None
    with open_atomically(path, force=force, error=TableError) as file:

        def write(table: Any) -> None:
            nonlocal writer
            with _parquet_errors(path):
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema)
                # For example, a later block may hold floats and the first one integers.
                writer.write_table(table.cast(writer.schema))

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _parquet_errors(path: AnyPath) -> Iterator[None]:
    """Turn errors of pyarrow about values that it cannot write into a `TableError`."""
    pa, _ = _pyarrow()
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"{printable(path)} cannot be written as Parquet: {one_line(error)}. Give a file that "
            "ends with .csv."
        ) from error


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
# Text that begins like this is never a formula.
_PLAIN = re.compile(r"[0-9A-Za-z]")


def neutral(text: str) -> str:
    """Return the text, with an apostrophe in front if it would be a formula."""
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


def neutral_fields(fields: list[str]) -> list[str]:
    """Return the texts with formulas escaped by `neutral`."""
    is_plain = _PLAIN.match
    return [field if is_plain(field) else neutral(field) for field in fields]


def neutral_frame(frame: Any) -> Any:
    """Return a DataFrame with formulas in column names and values escaped."""
    import pandas as pd

    names = neutral_fields([str(name) for name in frame.columns])
    columns = {}
    for place, name in enumerate(names):
        column = frame.iloc[:, place]
        if isinstance(column.dtype, pd.CategoricalDtype):
            columns[name] = column.cat.rename_categories(_neutral_value)
        elif pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column):
            columns[name] = column.map(_neutral_value, na_action="ignore")
        else:
            columns[name] = column
    return pd.DataFrame(columns, index=frame.index)


def _neutral_value(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    changed = text if _PLAIN.match(text) else neutral(text)
    return changed if changed != text else value


# ---------------------------------------------------------------------- matching


def match_labels(
    given: Any, rows: Any, *, name: str = "the table of labels", notes: list[str] | None = None
) -> NDArray[np.str_]:
    """Return the label of each prepared row from a table of labels, as text.

    If both tables have ids, rows are matched by id, and otherwise by position. The labels are in a
    column ``label`` or ``cluster``, or in the only column besides the ids. An id matches with or
    without the apostrophe that `write_labels` puts before a formula. `name` is that of the table
    in messages. A line is appended to `notes` if some labels are not used.
    """
    notes = [] if notes is None else notes
    frame = given if hasattr(given, "columns") else _as_frame(name, given)
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


def _as_frame(where: str, array: Any) -> Any:
    import pandas as pd

    if sparse.issparse(array):
        raise TableError(
            f"{where} is a libsvm file. Give the labels as CSV, in a column named label."
        )
    return pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])


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
    import pandas as pd

    known, wanted = ids.to_numpy(), np.asarray(rows.ids)
    if known.dtype.kind not in "iu" or wanted.dtype.kind not in "iu":
        known, wanted = _texts(known), _texts(wanted)
    index = pd.Index(known)
    if not index.is_unique:
        twice = known[index.duplicated()][0]
        raise TableError(
            f"{where} has {id_name} {_text(twice)!r} twice. Give every id exactly one label."
        )
    places = index.get_indexer(wanted)
    if (places < 0).any() and wanted.dtype.kind == "U":
        # `write_labels` may have put an apostrophe before them.
        others = index.get_indexer(np.array(neutral_fields(wanted.tolist())))
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
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
