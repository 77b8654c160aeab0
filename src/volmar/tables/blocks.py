"""`prepare_blocks`: numbers of a dask DataFrame, scaled block by block."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.tables.columns import Columns, refuse_duplicates
from volmar.tables.errors import TableError, listed, need, shown
from volmar.tables.fills import Fills
from volmar.tables.kinds import ColumnKind
from volmar.tables.prepare import Preparation
from volmar.tables.prepared import Prepared
from volmar.tables.scaling import Figures, add_figures, figures_of, offsets_and_scales, scaled_into
from volmar.tables.steps import note_scaling, say_missing

__all__ = ["prepare_blocks"]

_SOURCE = "the folder"


class _Blocks:
    """Blocks of the columns that matter, as delayed DataFrames.

    Taken once: dask may put small files together, by the size of the columns asked for, so
    that other columns of the same frame can come in other blocks.
    """

    def __init__(self, frame: Any, names: list[str], id_column: str | None):
        place = {str(name): name for name in frame.columns}
        self.names = names
        used = names if id_column is None or id_column in names else [*names, id_column]
        chosen = frame[[place[name] for name in used]]
        self.parts = chosen.to_delayed()
        self.lengths: list[int] | None = None
        self.id_place = None if id_column is None else used.index(id_column)
        self.id_dtype = None if self.id_place is None else chosen.dtypes.iloc[self.id_place]

    def ask(self, function: Any, *arguments: Any) -> list[Any]:
        """Return what a function finds in each block: a pass."""
        import dask

        task = dask.delayed(function, pure=True)
        try:
            return list(dask.compute(*(task(part, *arguments) for part in self.parts)))
        except (ValueError, OSError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(_why(error)) from error

    def array(self, function: Any, *arguments: Any, width: int | None, dtype: Any) -> Any:
        """Return what a function makes of each block as one dask array, lazily."""
        import dask
        import dask.array as da

        task = dask.delayed(function, pure=True)
        # One copy of the arguments in the graph, not one a block.
        shared = [dask.delayed(argument, pure=True) for argument in arguments]
        lengths = self.lengths if self.lengths is not None else [np.nan] * len(self.parts)
        tail = () if width is None else (width,)
        arrays = [
            da.from_delayed(task(part, *shared), shape=(length, *tail), dtype=dtype)
            for part, length in zip(self.parts, lengths, strict=True)
        ]
        return da.concatenate(arrays)


def prepare_blocks(frame: Any, preparation: Preparation) -> Prepared:
    """Prepare a dask DataFrame of numbers, lazily.

    A preparation that is not fitted yet is fitted by a pass over the blocks (three where rows
    with missing values are dropped). A median needs all rows at once, so "impute" puts the
    mean here.

    Parameters
    ----------
    frame : dask DataFrame
        The rows; columns in use must hold numbers.
    preparation : Preparation
        Its options, or its fitted state.

    Returns
    -------
    Prepared
        `X` is a dask array. `kept` is None where all rows are kept. `ids` is the id column as
        a dask array, the numbers of the kept rows where some are dropped, and otherwise None.

    Raises
    ------
    TableError
        For columns of text, missing values where they must not be, and the like.
    """
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise need("dask", "dask,io") from error
    names = [str(name) for name in frame.columns]
    refuse_duplicates(_SOURCE, names)
    table = Columns(_SOURCE, names, frame, True, [])
    id_column = preparation.id_column
    notes: list[str] = []
    if not hasattr(preparation, "feature_names_"):
        chosen = [names[j] for j in preparation.choose(table)]
        _refuse_text(table, chosen)
        blocks = _Blocks(frame, chosen, id_column)
        _fit(blocks, preparation, notes)
        preparation.names_in_ = names
    else:
        if preparation.texts_:
            raise TableError(
                f"the model was fitted on text ({listed(map(shown, preparation.texts_))}), which "
                "is not read from a folder; give one file"
            )
        chosen = [names[j] for j in preparation.places_of(table, preparation.numbers_)]
        if id_column is not None:
            table.find([id_column], "--id")
        _refuse_text(table, chosen)
        blocks = _Blocks(frame, chosen, id_column)
    places = [blocks.names.index(name) for name in preparation.numbers_]
    drops = preparation.missing == "drop"
    kept = _kept(blocks, places, notes) if drops else None
    X = blocks.array(
        _prepared_block,
        places,
        preparation.numbers_,
        preparation.missing,
        None if preparation.fills_ is None else preparation.fills_.medians,
        preparation.offsets_,
        preparation.scales_,
        width=len(places),
        dtype=np.float64,
    )
    ids = None if kept is None else np.flatnonzero(kept)
    if blocks.id_place is not None:
        dtype = blocks.id_dtype if isinstance(blocks.id_dtype, np.dtype) else np.dtype(object)
        ids = blocks.array(
            _id_block, blocks.id_place, places if drops else None, width=None, dtype=dtype
        )
    return Prepared(
        X,
        ids,
        "row" if id_column is None else id_column,
        list(preparation.feature_names_),
        kept,
        notes,
    )


def _scale(preparation: Preparation) -> str:
    return "standard" if preparation.scale == "auto" else preparation.scale


def _fit(blocks: _Blocks, preparation: Preparation, notes: list[str]) -> None:
    """Learn columns, fills, offsets and scales by passes."""
    names, places = blocks.names, list(range(len(blocks.names)))
    figures, missing = _pass(blocks, places, complete=False)
    n = sum(blocks.lengths or [])
    if n < 2:
        raise TableError(
            f"{_SOURCE} has {n} row{'s' if n != 1 else ''}, and at least 2 are needed; give more"
        )
    if missing.any() and preparation.missing == "error":
        raise TableError(say_missing(_SOURCE, names, missing, None))
    keep = _leave_out(notes, names, figures)
    figures, missing = _some(figures, keep), missing[keep]
    if preparation.missing == "drop" and missing.any():
        figures, _ = _pass(blocks, list(keep), complete=True)
        if not figures.count.any():
            raise TableError(_NONE_LEFT)
        again = _leave_out(notes, [names[k] for k in keep], figures)
        figures, keep = _some(figures, again), keep[again]
    if not keep.size:
        raise TableError(
            f"{_SOURCE}: no column has two different values, so all rows are alike; give tables "
            "whose rows differ, or other --columns"
        )
    used = [names[k] for k in keep]
    preparation.fills_ = None
    if preparation.missing == "impute":
        means = np.asarray(figures.mean)
        preparation.fills_ = Fills(np.empty((0, len(used))), means, np.ones(len(used)))
        if n_filled := int(missing.sum()):
            notes.append(f"{n_filled:,} missing values were filled in: the mean of the column")
        # Means that are put in add rows and nothing to the squares about the mean.
        figures = replace(figures, count=np.full(len(used), float(n)))
    offsets, scales = offsets_and_scales(_SOURCE, used, figures, _scale(preparation))
    preparation.numbers_, preparation.texts_, preparation.categories_ = used, [], {}
    preparation.number_kinds_ = [ColumnKind("numeric")] * len(used)
    preparation.kinds_ = dict.fromkeys(names, "numeric")
    gone = [name for name in names if name not in used]
    preparation.left_out_ = dict.fromkeys(gone, "one value only")
    preparation.tails_, preparation.scores_, preparation.warnings_ = None, None, []
    preparation.offsets_, preparation.scales_ = offsets, scales
    note_scaling(notes, preparation.scale)
    preparation.notes_ = list(notes)
    preparation.feature_names_ = list(used)


_NONE_LEFT = (
    f"{_SOURCE}: every row has a missing value, so --missing drop leaves none; give "
    "--missing impute, or --drop the columns with gaps"
)


def _why(error: Exception) -> str:
    text = str(error)
    if "Mismatched dtypes" in text:
        # dask's table of these columns: name, found, expected.
        rows = re.findall(r"^\| (.+?) +\| (.+?) +\| .+\|$", text, flags=re.MULTILINE)
        odd = [f"{shown(name)} ({kind})" for name, kind in rows if name != "Column"]
        return (
            f"{_SOURCE}: some files hold other values than numbers in the columns {listed(odd)}; "
            "mend these files, or leave the columns out with --drop"
        )
    return f"a block of {_SOURCE} cannot be read: {' '.join(text.split())[:300]}; mend that file"


def _pass(
    blocks: _Blocks, places: list[int], *, complete: bool
) -> tuple[Figures, NDArray[np.intp]]:
    """Figures of the known values, or of the complete rows, and counts of the missing."""
    found = blocks.ask(_figures, places, complete)
    blocks.lengths = [part[2] for part in found]
    return reduce(add_figures, (part[0] for part in found)), sum(part[1] for part in found)


def _kept(blocks: _Blocks, places: list[int], notes: list[str]) -> NDArray[np.bool_] | None:
    """Return which rows are complete, None for all; the blocks have these rows from now on."""
    found = blocks.ask(_complete, places)
    blocks.lengths = [int(part.sum()) for part in found]
    kept = np.concatenate(found)
    n_kept = int(kept.sum())
    if n_kept == len(kept):
        return None
    if n_kept == 0:
        raise TableError(_NONE_LEFT)
    notes.append(f"{len(kept) - n_kept:,} of {len(kept):,} rows were left out for missing values")
    return kept


def _some(figures: Figures, keep: NDArray[np.intp]) -> Figures:
    return Figures(*(getattr(figures, field.name)[keep] for field in fields(figures)))


def _leave_out(notes: list[str], names: list[str], figures: Figures) -> NDArray[np.intp]:
    empty = [shown(name) for name, c in zip(names, figures.count, strict=True) if c == 0]
    if empty:
        notes.append(f"columns without any value were left out: {listed(empty)}")
    constant = [shown(names[k]) for k in np.flatnonzero(figures.low == figures.high)]
    if constant:
        notes.append(f"columns with one value only were left out: {listed(constant)}")
    return np.flatnonzero(figures.low < figures.high)


def _refuse_text(table: Columns, chosen: list[str]) -> None:
    kinds = dict(zip(table.names, table.data.dtypes, strict=True))
    other = [shown(name) for name in chosen if getattr(kinds[name], "kind", "O") not in "iuf"]
    if other:
        raise TableError(
            f"{table.source}: columns of a folder must hold numbers, and {listed(other)} "
            f"{'does' if len(other) == 1 else 'do'} not; leave out with --drop, or give --id"
        )


def _values(block: Any, places: list[int]) -> NDArray[np.float64]:
    return block.iloc[:, places].to_numpy(dtype=np.float64, na_value=np.nan)


def _complete(block: Any, places: list[int]) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(_values(block, places)).all(axis=1))


def _figures(
    block: Any, places: list[int], complete: bool
) -> tuple[Figures, NDArray[np.intp], int]:
    X = _values(block, places)
    known = np.isfinite(X)
    missing = len(X) - known.sum(axis=0)
    if not missing.any():
        return figures_of(X), missing, len(X)
    if complete:
        return figures_of(X[known.all(axis=1)]), missing, len(X)
    each = [figures_of(X[known[:, j], j][:, None]) for j in range(X.shape[1])]
    joined = (np.concatenate([getattr(one, f.name) for one in each]) for f in fields(Figures))
    return Figures(*joined), missing, len(X)


def _prepared_block(
    block: Any,
    places: list[int],
    names: list[str],
    missing: str,
    fills: NDArray[np.float64] | None,
    offsets: NDArray[np.float64],
    scales: NDArray[np.float64],
) -> NDArray[np.float64]:
    X = _values(block, places)
    known = np.isfinite(X)
    if not known.all():
        if missing == "error":
            counts = len(X) - known.sum(axis=0)
            raise TableError(
                say_missing(f"a block of {_SOURCE}", names, counts, None, fitted=True)
            )
        X = X[known.all(axis=1)] if fills is None else np.where(known, X, fills)
    out = np.empty(X.shape)
    scaled_into(out, X, offsets, scales)
    return out


def _id_block(block: Any, place: int, complete: list[int] | None) -> NDArray[Any]:
    """Return the ids of a block; floats that are whole numbers, as CSV has them, become such."""
    ids = block.iloc[:, place].to_numpy()
    if complete is not None:
        ids = ids[_complete(block, complete)]
    if ids.dtype.kind == "f" and (ids == np.rint(ids)).all() and (np.abs(ids) < 2**53).all():
        return ids.astype(np.int64)
    return ids
