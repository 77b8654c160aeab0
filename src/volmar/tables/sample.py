"""Rows drawn at random from a dask DataFrame by one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.errors import TableError
from volmar.tables.folder import computed

__all__ = ["RowSample", "sample_rows"]

_TOGETHER = 8  # blocks looked at before the threshold is lowered


@dataclass(frozen=True)
class RowSample:
    """Rows drawn at random without replacement.

    Attributes
    ----------
    frame : DataFrame
        The rows, in their order.
    places : ndarray of int, shape (n_drawn,)
        Their numbers among all rows.
    n_rows : int
        Number of all rows.
    """

    frame: Any
    places: NDArray[np.intp]
    n_rows: int


def sample_rows(
    frame: Any,
    size: int = 20_000,
    *,
    random_state: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> RowSample:
    """Draw rows of a dask DataFrame: every row gets a random key, and the smallest are kept.

    One pass, which needs no knowledge of the lengths of blocks and keeps little more than
    `size` rows at a time.

    Parameters
    ----------
    frame : dask DataFrame
        The rows, as `read_folder` returns them.
    size : int, default=20_000
        Number of rows to draw; all where there are fewer.
    random_state : int, default=0
        Random seed. The same seed draws the same rows of the same blocks.
    progress : callable, default=None
        Called with the number of blocks that are done and of all.

    Returns
    -------
    RowSample

    Raises
    ------
    TableError
        If there are no rows, or a block cannot be read.
    """
    import dask
    import pandas as pd

    parts = list(frame.to_delayed())
    draw = dask.delayed(_drawn, pure=True)
    keys, places = np.empty(0), np.empty(0, dtype=np.intp)
    kept = None
    before, threshold = 0, np.inf
    for first in range(0, len(parts), _TOGETHER):
        numbers = range(first, min(first + _TOGETHER, len(parts)))
        found = computed([draw(parts[i], size, (random_state, i), threshold) for i in numbers])
        starts = before + np.cumsum([0, *(one[3] for one in found)])
        before = int(starts[-1])
        keys = np.concatenate([keys, *(one[0] for one in found)])
        places = np.concatenate(
            [places, *(one[1] + start for one, start in zip(found, starts, strict=False))]
        )
        frames = [one[2] for one in found if len(one[2])] or [found[0][2]]
        kept = pd.concat(frames if kept is None else [kept, *frames], ignore_index=True)
        if len(keys) > size:
            order = np.sort(np.argpartition(keys, size)[:size])
            keys, places, kept = keys[order], places[order], kept.iloc[order]
        if len(keys) == size:
            threshold = float(keys.max())
        if progress is not None:
            progress(numbers[-1] + 1, len(parts))
    if not before or kept is None:
        raise TableError("the folder has no rows; give tables with rows")
    return RowSample(kept.reset_index(drop=True), places, before)


def _drawn(
    block: Any, size: int, seed: tuple[int, int], threshold: float
) -> tuple[NDArray[np.float64], NDArray[np.intp], Any, int]:
    """Return the smallest keys of a block, where they are, their rows, and the length."""
    keys = np.random.default_rng(seed).random(len(block))
    places = np.flatnonzero(keys < threshold)
    if len(places) > size:
        places = np.sort(places[np.argpartition(keys[places], size)[:size]])
    return keys[places], places, block.iloc[places], len(block)
