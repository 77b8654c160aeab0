"""`Preparation`: from the columns of a table to the numbers that a method takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.columns import Columns, as_columns
from volmar.tables.errors import TableError, listed, shown
from volmar.tables.scaling import figures_of, offsets_and_scales, scaled_into
from volmar.tables.steps import (
    all_finite,
    code_again,
    complete,
    drop_rows,
    few,
    float_csr,
    note_huge,
    note_left_out,
    note_scaling,
    range_of,
    say_missing,
    take,
    without_unseen,
)

__all__ = ["Preparation", "Prepared", "source_columns"]

_SCALES = ("standard", "minmax", "none")
_MISSING = ("error", "drop", "impute")
_LARGEST_DENSE = 1 << 30  # bytes a sparse table may take when it is made dense


@dataclass(frozen=True)
class Prepared:
    """Rows ready for a method.

    Attributes
    ----------
    X : ndarray, csr_array or dask array of shape (n, d)
        Float64; sparse if the table was and nothing is scaled, a dask array by `prepare_blocks`.
    ids : ndarray or None
        The id column, or row numbers from 0, of the kept rows. For blocks None, which stands
        for all row numbers, or a dask array.
    id_name : str
        "row" or the name of the id column.
    feature_names : list of str
        Names of the columns of X; "colour=red" for a category.
    kept : ndarray of bool or None
        Which rows of the table are in X; None for blocks stands for all.
    notes : list of str
        What was done, in plain words, one line each.
    """

    X: Any
    ids: Any
    id_name: str
    feature_names: list[str]
    kept: Any
    notes: list[str]


@dataclass
class _Parts:
    """Columns of the kept rows, before scaling."""

    numbers: Any
    codes: list[NDArray[np.intp]]
    kept: NDArray[np.bool_]


class Preparation:
    """Choose columns, treat missing values, code categories and scale.

    Numbers come first among the features, then a feature of 0 and 1 for each value of each
    column of text, bool or category; all are scaled alike.

    Parameters
    ----------
    columns : list of str, default=None
        The columns to use; None is all.
    drop : list of str, default=None
        Columns to leave out.
    id_column : str, default=None
        The column that names the rows; not a feature. None numbers the rows from 0.
    scale : {"standard", "minmax", "none"}, default="standard"
        Mean 0 and standard deviation 1, range 0 to 1, or as it is.
    missing : {"error", "drop", "impute"}, default="error"
        Missing values, infinities among them: refuse, leave out their rows, or put the median
        of the column (of text, its most frequent value).

    Attributes
    ----------
    names_in_ : list of str
        Columns of the fitted table.
    numbers_, texts_ : list of str
        Columns in use, as numbers and as categories.
    categories_ : dict of str to list of str
        Values of the columns of text.
    fills_ : dict of str to float or str
        What stands for missing values; empty unless `missing` is "impute".
    offsets_, scales_ : ndarray of shape (d,)
        Features are moved and divided by these.
    feature_names_ : list of str
        Names of the features.
    notes_ : list of str
        What fitting decided.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.tables import Preparation
    >>> Preparation(scale="minmax").fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).X
    array([[0.],
           [1.]])
    """

    def __init__(
        self,
        *,
        columns: Iterable[str] | None = None,
        drop: Iterable[str] | None = None,
        id_column: str | None = None,
        scale: str = "standard",
        missing: str = "error",
    ):
        self.columns = _names(columns)
        self.drop = _names(drop)
        self.id_column = id_column
        self.scale = scale
        self.missing = missing
        for option, value, allowed in (
            ("--scale", scale, _SCALES),
            ("--missing", missing, _MISSING),
        ):
            if value not in allowed:
                raise TableError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")

    def fit(self, data: Any) -> Self:
        """Learn columns, categories, fills, offsets and scales.

        Parameters
        ----------
        data : LoadedTable, DataFrame, ndarray or sparse array
            The table.

        Returns
        -------
        Preparation
            Itself.
        """
        self._fit(as_columns(data))
        return self

    def transform(self, data: Any) -> Prepared:
        """Treat a table, a new one perhaps, as the fitted one was.

        Parameters
        ----------
        data : LoadedTable, DataFrame, ndarray or sparse array
            A table with the columns in use; others are ignored. The columns of an array
            without names are taken by their place.

        Returns
        -------
        Prepared
            Values of a text column that were not there at the fit are 0 in all its features,
            with a note.
        """
        if not hasattr(self, "feature_names_"):
            raise TableError("the preparation is not fitted; call fit first")
        table = as_columns(data)
        notes = list(table.notes)
        return self._finish(table, self._new_parts(table, notes), notes)

    def fit_transform(self, data: Any) -> Prepared:
        """Fit, and treat the same table.

        Parameters
        ----------
        data : LoadedTable, DataFrame, ndarray or sparse array
            The table.

        Returns
        -------
        Prepared
            As by `fit` and `transform`, with the notes of both.
        """
        table = as_columns(data)
        return self._finish(table, self._fit(table), list(self.notes_))

    # fitting

    def choose(self, table: Columns) -> list[int]:
        """Return the places of the columns that the options leave."""
        places = list(range(len(table.names)))
        if self.columns is not None:
            places = list(dict.fromkeys(table.find(self.columns, "--columns")))
        out = set(table.find(self.drop or [], "--drop"))
        if self.id_column is not None:
            (j,) = table.find([self.id_column], "--id")
            if self.columns is not None and j in places:
                raise TableError(
                    f"column {shown(self.id_column)} is in --columns and in --id; an id is not "
                    "compared, so take it out of one of them"
                )
            out.add(j)
        places = [j for j in places if j not in out]
        if not places:
            raise TableError(
                f"{table.source} has no column left to compare after --columns, --drop and --id; "
                f"it has {listed(map(shown, table.names), 8)}"
            )
        return places

    def _fit(self, table: Columns) -> _Parts:
        if table.n_rows < 2:
            raise TableError(
                f"{table.source} has {table.n_rows} row, and at least 2 are needed to compare "
                "rows; give a table with more rows"
            )
        notes = list(table.notes)
        places = self.choose(table)
        texts = [j for j in places if table.is_text(j)]
        numbers = [j for j in places if j not in set(texts)]
        coded = [table.categories(j, groups=True) for j in texts]
        if table.is_sparse and self.scale == "none":
            return self._fit_sparse(table, numbers, notes)
        _refuse_dense(table, numbers, notes)

        X = table.numbers(numbers)
        codes = [pair[0] for pair in coded]
        found = [pair[1] for pair in coded]
        names = [table.names[j] for j in numbers]
        text_names = [table.names[j] for j in texts]
        unknown = None if all_finite(X) else ~np.isfinite(X)
        counts = np.zeros(len(numbers), int) if unknown is None else unknown.sum(axis=0)
        text_counts = np.array([np.count_nonzero(code < 0) for code in codes], dtype=int)
        has_missing = bool(counts.any() or text_counts.any())
        if has_missing and self.missing == "error":
            self._refuse_missing(table, [*names, *text_names], [*counts, *text_counts], unknown)

        # Columns that say nothing are left out before rows are dropped for their sake.
        low, high = range_of(X, unknown)
        keep = low < high
        note_left_out(notes, names, keep, counts, table.n_rows)
        keep_text = np.array([len(values) > 1 for values in found], dtype=bool)
        note_left_out(notes, text_names, keep_text, text_counts, table.n_rows)
        X, names, unknown = take(X, names, unknown, keep)
        codes, text_names = few(codes, keep_text), few(text_names, keep_text)
        found = few(found, keep_text)

        kept = np.ones(table.n_rows, dtype=bool)
        self.fills_: dict[str, Any] = {}
        if self.missing == "drop" and has_missing:
            kept = complete(unknown, codes, table.n_rows)
            X, codes = drop_rows(table, X, codes, kept, notes)
            low, high = range_of(X, None)
            keep = low < high
            note_left_out(notes, names, keep, np.zeros(len(names), int), int(kept.sum()))
            X, names, _ = take(X, names, None, keep)
            codes, found, text_names = without_unseen(codes, found, text_names, notes)
        elif self.missing == "impute":
            self._learn_fills(X, names, unknown, codes, text_names, found)
            X, codes = self._fill(X, names, unknown, codes, text_names, found, notes)
        if not names and not text_names:
            raise TableError(
                f"{table.source}: no column has two different values, so all rows are alike; give "
                "a table whose rows differ, or other --columns"
            )
        note_huge(notes, table, names, X)
        self.names_in_ = list(table.names)
        self.numbers_, self.texts_ = names, text_names
        self.categories_ = dict(zip(text_names, found, strict=True))
        self._learn_scales(table.source, X, codes)
        note_scaling(notes, self.scale)
        for name in text_names:
            values = self.categories_[name]
            notes.append(
                f"column {shown(name)} is text: a feature of 0 and 1 for each of its "
                f"{len(values)} values, which clusters often follow (--drop leaves it out)"
            )
        self.notes_ = notes
        return _Parts(X, codes, kept)

    def _fit_sparse(self, table: Columns, places: list[int], notes: list[str]) -> _Parts:
        X = float_csr(table.data if len(places) == len(table.names) else table.data[:, places])
        names = [table.names[j] for j in places]
        X, kept = self._sparse_missing(table, X, names, notes)
        low = X.min(axis=0).toarray().ravel()
        keep = low < X.max(axis=0).toarray().ravel()
        note_left_out(notes, names, keep, np.zeros(len(names), int), table.n_rows)
        self.names_in_ = list(table.names)
        self.numbers_, self.texts_ = few(names, keep), []
        if not self.numbers_:
            raise TableError(
                f"{table.source}: no column has two different values, so all rows are alike; give "
                "a table whose rows differ"
            )
        self.categories_, self.fills_ = {}, {}
        self.offsets_, self.scales_ = np.zeros(len(self.numbers_)), np.ones(len(self.numbers_))
        self.feature_names_ = list(self.numbers_)
        self.notes_ = notes
        return _Parts(X if keep.all() else sp.csr_array(X[:, np.flatnonzero(keep)]), [], kept)

    def _sparse_missing(
        self,
        table: Columns,
        X: Any,
        names: list[str],
        notes: list[str],
        *,
        fitted: bool = False,
    ) -> tuple[Any, NDArray[np.bool_]]:
        kept = np.ones(table.n_rows, dtype=bool)
        wrong = ~np.isfinite(X.data)
        if not wrong.any():
            return X, kept
        if self.missing == "impute":
            raise TableError(
                f"{table.source} is sparse and has {wrong.sum()} missing values, which are not "
                "filled in a sparse table; give --missing drop, or --scale standard"
            )
        rows = np.repeat(np.arange(table.n_rows), np.diff(X.indptr))[wrong]
        kept[rows] = False
        if self.missing == "error":
            counts = np.bincount(X.indices[wrong], minlength=len(names))
            n_rows = int((~kept).sum())
            raise TableError(say_missing(table.source, names, counts, n_rows, fitted=fitted))
        X, _ = drop_rows(table, X, [], kept, notes)
        return X, kept

    def _learn_fills(
        self,
        X: NDArray[Any],
        names: list[str],
        unknown: NDArray[np.bool_] | None,
        codes: list[NDArray[np.intp]],
        text_names: list[str],
        found: list[list[str]],
    ) -> None:
        for k, name in enumerate(names):
            known = X[:, k] if unknown is None else X[~unknown[:, k], k]
            self.fills_[name] = float(np.median(known))
        for name, code, values in zip(text_names, codes, found, strict=True):
            self.fills_[name] = values[int(np.bincount(code[code >= 0]).argmax())]

    def _learn_scales(self, source: str, X: NDArray[Any], codes: list[NDArray[np.intp]]) -> None:
        figures = figures_of(X, spread=self.scale == "standard")
        offsets, scales = offsets_and_scales(source, self.numbers_, figures, self.scale)
        self.feature_names_ = list(self.numbers_)
        for name, code in zip(self.texts_, codes, strict=True):
            values = self.categories_[name]
            share = np.bincount(code[code >= 0], minlength=len(values)) / len(code)
            self.feature_names_ += [f"{name}={value}" for value in values]
            if self.scale == "standard":
                offsets = np.append(offsets, share)
                scales = np.append(scales, np.sqrt(share * (1 - share)))
            else:
                offsets = np.append(offsets, np.zeros(len(values)))
                scales = np.append(scales, np.ones(len(values)))
        self.offsets_, self.scales_ = offsets, scales

    # treating

    def places_of(self, table: Columns, wanted: list[str]) -> list[int]:
        """Return where the columns in use are in a new table."""
        if not table.named and len(table.names) == len(self.names_in_):
            place = {name: j for j, name in enumerate(self.names_in_)}
        else:
            place = {name: j for j, name in enumerate(table.names)}
        if absent := [name for name in wanted if name not in place]:
            raise TableError(
                f"{table.source} lacks {len(absent)} of the {len(wanted)} columns that the model "
                f"was fitted on: {listed(map(shown, absent))}; give a table with these columns"
            )
        return [place[name] for name in wanted]

    def _new_parts(self, table: Columns, notes: list[str]) -> _Parts:
        if table.is_sparse:
            table = self._padded(table)
        places = self.places_of(table, [*self.numbers_, *self.texts_])
        numbers, texts = places[: len(self.numbers_)], places[len(self.numbers_) :]
        if table.is_sparse and self.scale == "none" and not texts:
            X = float_csr(table.data[:, numbers])
            X, kept = self._sparse_missing(table, X, self.numbers_, notes, fitted=True)
            return _Parts(X, [], kept)
        X = table.numbers(numbers)
        codes = []
        for j, name in zip(texts, self.texts_, strict=True):
            code, values = table.categories(j)
            codes.append(code_again(code, values, name, self.categories_[name], notes))
        unknown = None if all_finite(X) else ~np.isfinite(X)
        kept = np.ones(table.n_rows, dtype=bool)
        if unknown is not None or any((code == -1).any() for code in codes):
            if self.missing == "error":
                counts = [0] * len(numbers) if unknown is None else unknown.sum(axis=0)
                text_counts = [np.count_nonzero(code == -1) for code in codes]
                names = [*self.numbers_, *self.texts_]
                self._refuse_missing(table, names, [*counts, *text_counts], unknown, fitted=True)
            elif self.missing == "drop":
                kept = complete(unknown, codes, table.n_rows)
                X, codes = drop_rows(table, X, codes, kept, notes)
            else:
                found = [self.categories_[name] for name in self.texts_]
                X, codes = self._fill(X, self.numbers_, unknown, codes, self.texts_, found, notes)
        return _Parts(X, codes, kept)

    def _padded(self, table: Columns) -> Columns:
        """Add the last columns that a sparse file need not mention: they are zero."""
        n, d = table.data.shape
        wide = len(self.names_in_)
        if table.named or d >= wide:
            return table
        data = table.data.copy()
        data.resize((n, wide))
        return Columns(table.source, list(self.names_in_), data, True, table.notes)

    def _fill(
        self,
        X: NDArray[Any],
        names: list[str],
        unknown: NDArray[np.bool_] | None,
        codes: list[NDArray[np.intp]],
        text_names: list[str],
        found: list[list[str]],
        notes: list[str],
    ) -> tuple[NDArray[Any], list[NDArray[np.intp]]]:
        """Put fills in the place of missing values, in copies."""
        total = 0
        if unknown is not None and unknown.any():
            total += int(np.count_nonzero(unknown))
            X = np.where(unknown, [self.fills_[name] for name in names], X)
        filled = []
        for name, code, values in zip(text_names, codes, found, strict=True):
            absent = code == -1
            total += int(np.count_nonzero(absent))
            filled.append(np.where(absent, values.index(self.fills_[name]), code))
        if total:
            notes.append(
                f"{total:,} missing values were filled in: the median of the column, or the "
                "most frequent value of text"
            )
        return X, filled

    def _finish(self, table: Columns, parts: _Parts, notes: list[str]) -> Prepared:
        ids = np.arange(table.n_rows) if self.id_column is None else table.ids(self.id_column)
        if self.id_column is not None and len(set(ids.tolist())) < len(ids):
            notes.append(f"some values of the id column {shown(self.id_column)} come repeatedly")
        return Prepared(
            self._scaled(parts),
            ids if parts.kept.all() else ids[parts.kept],
            "row" if self.id_column is None else self.id_column,
            list(self.feature_names_),
            parts.kept,
            notes,
        )

    def _scaled(self, parts: _Parts) -> Any:
        X, p = parts.numbers, len(self.numbers_)
        if sp.issparse(X):
            return X
        if self.scale == "none" and not self.texts_:
            X = np.ascontiguousarray(X)
            return X if X.flags.writeable else X.copy()
        out = np.empty((len(parts.kept) if not len(X) else len(X), len(self.feature_names_)))
        if p:
            scaled_into(out[:, :p], X, self.offsets_[:p], self.scales_[:p])
        start = p
        for name, code in zip(self.texts_, parts.codes, strict=True):
            stop = start + len(self.categories_[name])
            # A row for each value; the last one, all zero, is for values never seen.
            rows = np.vstack([np.eye(stop - start), np.zeros(stop - start)])
            rows = (rows - self.offsets_[start:stop]) / self.scales_[start:stop]
            out[:, start:stop] = rows[code]
            start = stop
        return out

    def _refuse_missing(
        self,
        table: Columns,
        names: list[str],
        counts: Any,
        unknown: NDArray[np.bool_] | None,
        *,
        fitted: bool = False,
    ) -> None:
        n_rows = None if unknown is None else int(unknown.any(axis=1).sum())
        # Rows are counted where all gaps are among the numbers, and no column is all gaps.
        only_numbers = (
            unknown is not None
            and sum(counts) == int(unknown.sum())
            and max(counts) < table.n_rows
        )
        raise TableError(
            say_missing(
                table.source, names, counts, n_rows if only_numbers else None, fitted=fitted
            )
        )


def source_columns(
    data: Any, preparation: Preparation, kept: NDArray[np.bool_]
) -> tuple[Any, list[str]]:
    """Return the columns that a fitted preparation uses, as they were before it, and their names.

    Parameters
    ----------
    data : LoadedTable, DataFrame, ndarray or sparse array
        The table that was prepared.
    preparation : Preparation
        Fitted to the table.
    kept : ndarray of bool
        The rows to return.

    Returns
    -------
    columns : DataFrame, ndarray or csr_array
        The numbers, then the text; with missing values, and in the units of the table.
    names : list of str
        Names of these columns.
    """
    table = as_columns(data)
    names = [*preparation.numbers_, *preparation.texts_]
    places = preparation.places_of(table, names)
    rows = np.flatnonzero(kept)
    if table.is_frame:
        return table.data.iloc[rows, places], names
    columns = table.data[rows][:, places]
    if table.is_sparse and not np.isfinite(columns.data).all():
        columns = columns.toarray()  # missing values were filled in, in a dense table
    return columns, names


def _names(names: Iterable[str] | None) -> list[str] | None:
    if names is None:
        return None
    # A single name is meant as one, not as its letters.
    return [names] if isinstance(names, str) else list(names)


def _refuse_dense(table: Columns, places: list[int], notes: list[str]) -> None:
    if not table.is_sparse:
        return
    size = 8 * table.n_rows * len(places)
    if size > _LARGEST_DENSE:
        raise TableError(
            f"{table.source} is sparse, and scaling it would take {size / 2**30:.1f} GiB; give "
            "--scale none"
        )
    notes.append("the table is sparse and was made dense for scaling; --scale none keeps it so")
