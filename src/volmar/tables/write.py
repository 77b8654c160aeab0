"""Labels of rows, written to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from volmar.tables.write_columns import open_columns

__all__ = ["id_heading", "open_labels", "write_labels"]

_OTHERS = ("label", "score", "confidence")


def write_labels(
    path: str | os.PathLike[str],
    ids: Any,
    id_name: str,
    labels: Any,
    scores: Any,
    *,
    confidence: Any = None,
    force: bool = False,
) -> None:
    """Write a table with the columns id (or row), label and score.

    Parameters
    ----------
    path : path
        The file: CSV or TSV, compressed if it ends with .gz, or Parquet, by its suffix.
    ids : array of shape (n,)
        Names or numbers of the rows.
    id_name : str
        Name of the first column; "id" is written where it is that of another column.
    labels : array of int, shape (n,)
        The labels.
    scores : array of shape (n,) or (n, k)
        The decision function. Of k columns the largest minus the second largest is written:
        how far the row is from another label.
    confidence : array of shape (n,), default=None
        A last column, where given.
    force : bool, default=False
        Whether a file that is there may be replaced.

    Raises
    ------
    TableError
        If the file is there and `force` is False, cannot be written, or has another suffix.
    """
    with open_labels(path, id_name, confidence=confidence is not None, force=force) as write:
        write(ids, labels, scores, confidence)


@contextmanager
def open_labels(
    path: str | os.PathLike[str],
    id_name: str,
    *,
    confidence: bool = False,
    force: bool = False,
) -> Iterator[Callable[..., None]]:
    """Open a file as `write_labels` makes it, for rows that come in blocks.

    Parameters
    ----------
    path, id_name, force
        As for `write_labels`.
    confidence : bool, default=False
        Whether there is a column of confidences.

    Yields
    ------
    callable
        Takes ids, labels, scores and, where there is such a column, confidences of further
        rows. The file is there when the context is left.

    Raises
    ------
    TableError
        As for `write_labels`.
    """
    names = [id_heading(id_name), *(_OTHERS if confidence else _OTHERS[:2])]
    with open_columns(path, names, force=force) as write_columns:

        def write(ids: Any, labels: Any, scores: Any, confidences: Any = None) -> None:
            if confidence != (confidences is not None):
                had = "with" if confidence else "without"
                raise ValueError(f"the file was opened {had} a column of confidences.")
            extra = (np.asarray(confidences, dtype=float),) if confidence else ()
            write_columns(*_checked(np.asarray(ids), np.asarray(labels), scores, *extra))

        yield write


def id_heading(id_name: str) -> str:
    """Return what the column of ids is called in a file of labels.

    Parameters
    ----------
    id_name : str
        Its own name.

    Returns
    -------
    str
        "id" if another column of the file has that name.
    """
    return "id" if id_name in _OTHERS else id_name


def _checked(ids: Any, labels: Any, scores: Any, *extra: Any) -> tuple[np.ndarray, ...]:
    scores = np.asarray(scores, dtype=float)
    if scores.ndim == 2:
        scores = _lead(scores)
    columns = (ids, labels, scores, *extra)
    shapes = [column.shape for column in columns]
    if len(set(shapes)) > 1 or labels.ndim != 1:
        what = "ids, labels and scores" if not extra else "ids, labels, scores and confidence"
        *first, last = map(str, shapes)
        raise ValueError(
            f"{what} must have one entry a row, got the shapes {', '.join(first)} and {last}."
        )
    return columns


def _lead(scores: np.ndarray) -> np.ndarray:
    if scores.shape[1] < 2:
        return scores[:, 0]
    top = np.partition(scores, -2, axis=1)
    return top[:, -1] - top[:, -2]
