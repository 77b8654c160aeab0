"""Prepare a dask DataFrame block by block, and draw random rows from it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns, fitted_places
from volmar.tables.errors import TableError, need, refuse_duplicates
from volmar.tables.features import ColumnMoments, column_moments
from volmar.tables.folder import computed
from volmar.tables.prepare import Preparation, PreparedTable, note_dropped
from volmar.tables.read import LoadedTable

_SOURCE, _BLOCK = "The folder", "A block of the folder"


@dataclass(frozen=True)
class RowSample:
    """Rows drawn at random without replacement, and their `places` among all `n_rows` rows."""

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
    """Draw `size` random rows of a dask DataFrame without replacement, or all if there are fewer.

    Every row gets a random key, and the rows with the smallest keys are drawn. This takes one
    pass, without knowing the lengths of blocks, and keeps little more than `size` rows in memory.
    The same seed draws the same rows of the same blocks. `progress` is called with the number of
    blocks that are done, and the number of all blocks.
    """
    import dask
    import pandas as pd

    parts = list(frame.to_delayed())
    draw = dask.delayed(_drawn, pure=True)
    keys, places = np.empty(0), np.empty(0, dtype=np.intp)
    kept = None
    before, threshold = 0, np.inf
    for first in range(0, len(parts), 8):  # the threshold is lowered after eight blocks
        numbers = range(first, min(first + 8, len(parts)))
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
        raise TableError("The folder has no rows. Give tables with rows.")
    return RowSample(kept.reset_index(drop=True), places, before)


def _drawn(
    block: Any, size: int, seed: tuple[int, int], threshold: float
) -> tuple[NDArray[np.float64], NDArray[np.intp], Any, int]:
    """Return the smallest keys of a block, their positions and rows, and its length."""
    keys = np.random.default_rng(seed).random(len(block))
    places = np.flatnonzero(keys < threshold)
    if len(places) > size:
        places = np.sort(places[np.argpartition(keys[places], size)[:size]])
    return keys[places], places, block.iloc[places], len(block)


class _Blocks:
    """Blocks of the used columns, as delayed DataFrames.

    The blocks are formed only once. dask may join small files, depending on the size of the
    selected columns, so another selection of columns could have other blocks.
    """

    def __init__(self, frame: Any, names: list[str], id_column: str | None):
        place = {str(name): name for name in frame.columns}
        used = names if id_column is None or id_column in names else [*names, id_column]
        chosen = frame[[place[name] for name in used]]
        self.parts = chosen.to_delayed()
        self.lengths: list[int] | None = None
        self.id_place = None if id_column is None else used.index(id_column)
        self.id_dtype = None if self.id_place is None else chosen.dtypes.iloc[self.id_place]

    def tasks(self, function: Any, *arguments: Any, seed: int | None = None) -> list[Any]:
        """Return one delayed call per block. With `seed`, the last argument is (seed, block)."""
        import dask

        task = dask.delayed(function, pure=True)
        # One copy of the arguments in the graph, not one per block.
        shared = [dask.delayed(argument, pure=True) for argument in arguments]
        if seed is None:
            return [task(part, *shared) for part in self.parts]
        return [task(part, *shared, (seed, i)) for i, part in enumerate(self.parts)]

    def array(
        self,
        function: Any,
        *arguments: Any,
        width: int | None,
        dtype: Any,
        seed: int | None = None,
    ) -> Any:
        """Return the results of a function on all blocks as one lazy dask array."""
        import dask.array as da

        lengths = self.lengths if self.lengths is not None else [np.nan] * len(self.parts)
        tail = () if width is None else (width,)
        arrays = [
            da.from_delayed(task, shape=(length, *tail), dtype=dtype)
            for task, length in zip(
                self.tasks(function, *arguments, seed=seed), lengths, strict=True
            )
        ]
        return da.concatenate(arrays)


def prepare_blocks(
    frame: Any, preparation: Preparation, *, sample: RowSample | None = None
) -> PreparedTable:
    """Prepare a dask DataFrame lazily, each block by `Preparation.prepare`.

    A preparation that is not yet fitted is fitted in place to random rows: `sample`, or those of
    `sample_rows`. A pass over all blocks then replaces the means, standard deviations and ranges
    of the sample by those of all rows.

    In the result, `X` is a dask array and `ids` is the id column as a dask array. Without an id
    column, `ids` holds the numbers of the kept rows if some are dropped, and is None otherwise.
    """
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise need("dask", "dask,io") from error
    names = [str(name) for name in frame.columns]
    refuse_duplicates(_SOURCE, names)
    table = Columns(_SOURCE, names, frame, True, [])
    id_column, drops = preparation.id_column, preparation.missing == "drop"
    is_new = not hasattr(preparation, "feature_names_")
    notes, n_left = [], 0
    if is_new:
        preparation.choose(table)  # find errors in the options before the first pass
        drawn = sample_rows(frame) if sample is None else sample
        preparation.fit(LoadedTable(_SOURCE, drawn.frame))
        notes, n_left = list(preparation.notes_), drawn.n_rows - len(drawn.places)
        if n_left:
            notes.append(
                f"the columns were analysed on a random sample of {len(drawn.places):,} of "
                f"{drawn.n_rows:,} rows"
            )
            preparation.notes_ = list(notes)
    else:
        known = [name for name in preparation.used_ if name in preparation.names_in_]
        fitted_places(table, known, preparation.names_in_)
        if id_column is not None:
            table.find([id_column], "id_column=")
    # An indicator such as "x is missing" is not a column of the table, but x is.
    used = [name for name in preparation.used_ if name in names]
    blocks = _Blocks(frame, used, id_column)
    nameless = copy.copy(preparation)
    nameless.id_column = None  # ids are read only once, not in every pass
    kept = None
    if is_new or drops:
        found = computed(blocks.tasks(_look_at, nameless, n_left > 0, drops))
        blocks.lengths = [one[0] for one in found]
        if drops:
            kept = np.concatenate([one[1] for one in found])
            note_dropped(_SOURCE, kept, notes)
            kept = None if kept.all() else kept
        if n_left:
            # Use the means and deviations, or ranges, of all rows in place of those of the sample.
            moments = reduce(ColumnMoments.merged, (one[2] for one in found))
            more = moments.offsets_and_scales(_SOURCE, preparation.numbers_, preparation.scale)
            features = preparation.number_features_
            if features is not None:
                preparation.number_features_ = features.rescaled(*more)
            nameless.number_features_ = preparation.number_features_
    X = blocks.array(
        _prepared_block, nameless, width=len(preparation.feature_names_), dtype=np.float64
    )
    ids = None if kept is None else np.flatnonzero(kept)
    if blocks.id_place is not None:
        dtype = blocks.id_dtype if isinstance(blocks.id_dtype, np.dtype) else np.dtype(object)
        ids = blocks.array(
            _id_block, blocks.id_place, nameless if drops else None, width=None, dtype=dtype
        )

    def noise(X: Any, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**31))
        return blocks.array(
            _dithered_block, nameless, width=X.shape[1], dtype=np.float64, seed=seed
        )

    return PreparedTable(
        X,
        ids,
        "row" if id_column is None else id_column,
        list(preparation.feature_names_),
        kept,
        notes,
        list(preparation.warnings_) if is_new else [],
        noise if preparation.is_noisy else None,
    )


def prepare_sample(
    sample: RowSample, preparation: Preparation, *, notes: Sequence[str] = ()
) -> PreparedTable:
    """Prepare rows drawn from a dask DataFrame, as `prepare_blocks` prepares all rows.

    `notes` on all rows replace those on the sample. Without an id column, `ids` are the row
    numbers in the whole table.
    """
    rows = preparation.prepare(LoadedTable(_SOURCE, sample.frame))
    ids = rows.ids if preparation.id_column is not None else sample.places[rows.kept]
    return replace(rows, ids=ids, notes=list(notes), warnings=list(preparation.warnings_))


def _look_at(
    block: Any, preparation: Preparation, scales: bool, drops: bool
) -> tuple[int, NDArray[np.bool_] | None, ColumnMoments | None]:
    """Return the number and the mask of the kept rows of a block, and the column moments."""
    X, kept = _prepared(block, preparation)
    moments = column_moments(X[:, : len(preparation.numbers_)]) if scales else None
    return len(X), kept if drops else None, moments


def _prepared(
    block: Any, preparation: Preparation
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if not len(block):
        return np.empty((0, len(preparation.feature_names_))), np.empty(0, dtype=bool)
    rows = preparation.prepare(LoadedTable(_BLOCK, block))
    return rows.X, rows.kept


def _prepared_block(block: Any, preparation: Preparation) -> NDArray[np.float64]:
    return _prepared(block, preparation)[0]


def _dithered_block(
    block: Any, preparation: Preparation, seed: tuple[int, int]
) -> NDArray[np.float64]:
    """Return the dithered rows of a block, the same ones in every pass."""
    if not len(block):
        return _prepared(block, preparation)[0]
    rows = preparation.prepare(LoadedTable(_BLOCK, block))
    return rows.X if rows.noise is None else rows.noise(rows.X, np.random.default_rng(seed))


def _id_block(block: Any, place: int, dropping: Preparation | None) -> NDArray[Any]:
    """Return the ids of a block. Floats with integer values, as from CSV, become integers."""
    ids = block.iloc[:, place].to_numpy()
    if dropping is not None:
        ids = ids[_prepared(block, dropping)[1]]
    if ids.dtype.kind == "f" and (ids == np.rint(ids)).all() and (np.abs(ids) < 2**53).all():
        return ids.astype(np.int64)
    return ids
