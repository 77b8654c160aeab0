"""Random samples of rows of a dask collection, in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from volmar.rows.blocks.convert import as_dask_array, is_dask, with_sizes

# Default number of rows that are drawn from a dask collection.
COLLECTION_ROWS = 20_000


class DrawnRows(NamedTuple):
    """Rows in memory with their labels or names, their numbers, and the number of all rows."""

    rows: Any
    beside: tuple[Any, ...]
    numbers: np.ndarray
    n_rows: int


def draw_from_collection(X: Any, *beside: Any, seed: int, most: int | None = None) -> DrawnRows:
    """Draw random rows of a dask array or DataFrame, independently of its chunks.

    Parameters
    ----------
    X : dask array or DataFrame of shape (n, d)
        The rows. Columns of a DataFrame may have any type.
    *beside : dask array, dask Series, array of shape (n,) or None
        Labels or names of the rows, of which the drawn ones are returned.
    seed : int
        Random seed.
    most : int, optional
        Number of rows to draw. If None, 20,000. All rows are returned if there are no more.
    """
    is_frame = hasattr(X, "columns")
    lengths = _lengths(X) if is_frame else np.array(with_sizes(X).chunks[0])
    n = int(lengths.sum())
    count = COLLECTION_ROWS if most is None else most
    rng = np.random.default_rng(seed)
    numbers = np.sort(rng.choice(n, count, replace=False)) if n > count else np.arange(n)
    rows = _rows_of_frame(X, lengths, numbers) if is_frame else _picked(X, numbers, n)
    return DrawnRows(rows, tuple(_picked(one, numbers, n) for one in beside), numbers, n)


def count_labels(labels: Any) -> dict[Any, int]:
    """Return the number of rows with each label of a dask collection or an array."""
    labels = as_dask_array(labels)
    if not is_dask(labels):
        return _counted(np.asarray(labels))
    import dask

    found: dict[Any, int] = {}
    for part in dask.compute([dask.delayed(_counted)(one) for one in labels.to_delayed()])[0]:
        for label, count in part.items():
            found[label] = found.get(label, 0) + count
    return found


def _counted(labels: np.ndarray) -> dict[Any, int]:
    names, counts = np.unique(labels, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _lengths(frame: Any) -> np.ndarray:
    import dask

    parts = [dask.delayed(len)(part) for part in frame.to_delayed()]
    return np.array(dask.compute(parts)[0], dtype=np.int64)


def _rows_of_frame(frame: Any, lengths: np.ndarray, numbers: np.ndarray) -> Any:
    import dask
    import pandas as pd

    ends = np.cumsum(lengths)
    places = np.split(numbers, np.searchsorted(numbers, ends[:-1]))
    take = dask.delayed(_taken)
    parts = [
        take(part, some - (end - length))
        for part, some, end, length in zip(frame.to_delayed(), places, ends, lengths, strict=True)
        if some.size
    ]
    return pd.concat(dask.compute(parts)[0])


def _taken(part: Any, places: np.ndarray) -> Any:
    return part.iloc[places]


def _picked(array: Any, numbers: np.ndarray, n: int) -> Any:
    """Return the entries or rows with the given numbers, or None if `array` is None."""
    if array is None:
        return None
    array = as_dask_array(array)
    array = with_sizes(array) if is_dask(array) else np.asarray(array)
    if array.shape[:1] != (n,):
        raise ValueError(
            f"there must be one entry for each of the {n} rows, got shape {array.shape}."
        )
    found = array[numbers]
    return found.compute() if is_dask(found) else found
