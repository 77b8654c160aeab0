"""Match the labels of a file to the rows of a table: by id, or else by position."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.tables.errors import TableError, refuse_duplicates
from volmar.tables.formulas import neutral, neutral_fields

__all__ = ["match_labels"]


def match_labels(
    given: Any, rows: Any, *, name: str = "the table of labels", notes: list[str] | None = None
) -> NDArray[np.str_]:
    """Return the label of each prepared row from a table of labels, as text.

    If both tables have ids, rows are matched by id, and otherwise by position. The labels are in a
    column ``label`` or ``cluster``, or in the only column besides the ids. An id matches with or
    without the apostrophe that `write_labels` puts before a formula.

    Parameters
    ----------
    given : DataFrame or ndarray
        The table of labels.
    rows : PreparedTable
        The prepared rows, with their ids.
    name : str, default="the table of labels"
        Name of the table of labels in messages.
    notes : list of str, default=None
        A line is appended to this list if some labels are not used.

    Returns
    -------
    ndarray of str, shape (n,)
        Label of each prepared row.
    """
    from volmar.tables.write import id_heading

    notes = [] if notes is None else notes
    frame = given if hasattr(given, "columns") else _as_frame(name, given)
    refuse_duplicates(name, [str(column) for column in frame.columns])
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
