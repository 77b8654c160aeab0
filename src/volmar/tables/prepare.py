"""`Preparation`: from the columns of a table to the numbers that a method takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar.tables.agreement import CategoryScores, category_scores
from volmar.tables.columns import Columns, as_columns
from volmar.tables.errors import TableError, listed, shown
from volmar.tables.fills import Filled, Fills, learn_fills
from volmar.tables.kind_notes import note_kinds, quoted_names
from volmar.tables.kinds import ColumnKind, check_kinds
from volmar.tables.prepared import Prepared
from volmar.tables.scaling import figures_of, offsets_and_scales, scaled_into
from volmar.tables.sparse_tables import fits_dense, padded, without_missing
from volmar.tables.steps import (
    code_again,
    drop_rows,
    few,
    float_csr,
    missing_notes,
    note_huge,
    note_left_out,
    note_scaling,
    range_of,
    say_missing,
)
from volmar.tables.tails import Tails, find_tails
from volmar.tables.telling import CodedColumn, different_categories, telling_numbers

__all__ = ["Preparation"]

_SCALES = ("auto", "standard", "minmax", "none")
_MISSING = ("impute", "drop", "indicator", "error")
_AS_NUMBERS = ("numeric", "ordinal", "date")
_AS_CATEGORIES = ("categorical", "boolean")


@dataclass
class _Parts:
    """Columns of the kept rows, before scaling."""

    numbers: Any
    codes: list[NDArray[np.intp]]
    kept: NDArray[np.bool_]
    filled: Filled | None = None


class Preparation:
    """Recognise the kinds of columns, and turn them into features for a method.

    - Numbers are features. So are ordinal values ("low", "medium", "high"), by their places, and
      dates, as years with a fraction.
    - Columns of categories and booleans are no features by themselves: two values are two groups
      of any rows, and say nothing about the others. Where several of them agree with each other
      more than by chance, the scores in which they agree (multiple correspondence analysis) are
      features. Otherwise categories describe the clusters of the other columns.
    - Ids, codes, row numbers, free text, constant columns, copies of other columns and columns
      with hardly any value are left out.

    `notes_` says what was done, `kinds_` and `left_out_` say it for each column.

    Parameters
    ----------
    columns : list of str, default=None
        The columns to use; None is all.
    drop : list of str, default=None
        Columns to leave out.
    id_column : str, default=None
        The column that names the rows; not a feature. None takes the index of a DataFrame where
        it has names or dates, and otherwise numbers the rows from 0.
    kinds : dict of str to str, default=None
        The kind of a column where the guess is wrong: "numeric", "ordinal", "categorical",
        "boolean", "date", "text", "id" or "ignore" (the last three are left out).
    scale : {"auto", "standard", "minmax", "none"}, default="auto"
        Mean 0 and standard deviation 1, range 0 to 1, or as it is. "auto" is "standard" after
        a log of columns with a long right tail, and with limits for values far outside.
    missing : {"impute", "drop", "indicator", "error"}, default="impute"
        Missing values, infinities among them: fill in from similar rows, leave out their rows,
        fill in and add whether a value is missing as a boolean column, or refuse.

    Attributes
    ----------
    names_in_ : list of str
        Columns of the fitted table.
    kinds_ : dict of str to str
        Kind of each column of the table.
    left_out_ : dict of str to str
        Columns that are no features, and why.
    numbers_ : list of str
        Columns in use as numbers, one feature each.
    texts_ : list of str
        Columns in use as categories.
    used_ : list of str
        Both.
    category_features_ : dict of str to tuple of str
        Features that are scores of categories, and the columns that lead each of them.
    categories_ : dict of str to list of str
        Values of the columns of categories in use.
    offsets_, scales_ : ndarray of shape (d,)
        Features are moved and divided by these.
    feature_names_ : list of str
        Names of the features.
    notes_, warnings_ : list of str
        What fitting decided, and what may mislead.

    Examples
    --------
    >>> import pandas as pd
    >>> from volmar.tables import Preparation
    >>> table = pd.DataFrame({
    ...     "customer_id": range(100, 112),
    ...     "income": [20, 25, 22, 30, 21, 28, 90, 85, 95, 88, 91, 93],
    ...     "answer": ["agree", "neutral", "disagree"] * 4,
    ...     "city": ["Rome", "Oslo", "Bern", "Oslo"] * 3,
    ... })
    >>> preparation = Preparation().fit(table)
    >>> preparation.feature_names_
    ['income', 'answer']
    >>> preparation.left_out_["city"]
    'a category that no others agree with'
    """

    def __init__(
        self,
        *,
        columns: Iterable[str] | None = None,
        drop: Iterable[str] | None = None,
        id_column: str | None = None,
        kinds: dict[str, str] | None = None,
        scale: str = "auto",
        missing: str = "impute",
    ):
        self.columns = _names(columns)
        self.drop = _names(drop)
        self.id_column = id_column
        self.kinds = check_kinds(kinds)
        self.scale = scale
        self.missing = missing
        for option, value, allowed in (
            ("--scale", scale, _SCALES),
            ("--missing", missing, _MISSING),
        ):
            if value not in allowed:
                raise TableError(f"{option} must be one of {', '.join(allowed)}, got {value!r}")

    def fit(self, data: Any) -> Self:
        """Learn kinds, categories, fills, offsets and scales.

        Parameters
        ----------
        data : LoadedTable, DataFrame, ndarray or sparse array
            The table; a DataFrame of pandas or polars, or a pyarrow Table.

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
            A value of a category that was not there at the fit counts as a missing one, with a
            note.
        """
        if not hasattr(self, "feature_names_"):
            raise TableError("the preparation is not fitted; call fit first")
        if not hasattr(self, "number_kinds_"):
            raise TableError(
                "the preparation was saved by an earlier version, which did not know kinds of "
                "columns; fit the model again and save it"
            )
        table = as_columns(data)
        notes = list(table.notes)
        return self._finish(table, self._new_parts(table, notes), notes, [])

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
        parts = self._fit(table)
        return self._finish(table, parts, list(self.notes_), list(self.warnings_))

    @property
    def used_(self) -> list[str]:
        """Columns that make features."""
        return [*self.numbers_, *self.texts_]

    @property
    def category_features_(self) -> dict[str, tuple[str, ...]]:
        """Features that are scores of categories, and the columns that lead each of them."""
        if self.scores_ is None:
            return {}
        names = self.feature_names_[len(self.numbers_) :]
        return {n: tuple(c) for n, c in zip(names, self.scores_.leading, strict=True)}

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
                f"{table.source} has {table.n_rows} row{'' if table.n_rows == 1 else 's'}, and at "
                "least 2 are needed to compare rows; give a table with more rows"
            )
        notes = list(table.notes)
        self.warnings_: list[str] = []
        found = self._find_kinds(table)
        numbers = [j for j, kind in found.items() if kind.kind in _AS_NUMBERS]
        texts = [j for j, kind in found.items() if kind.kind in _AS_CATEGORIES]
        if table.is_sparse and (self.scale == "none" or not fits_dense(table, self.scale, notes)):
            return self._fit_sparse(table, numbers, notes)

        # 1. Numbers: without columns that say nothing, and with short tails.
        kinds = [found[j] for j in numbers]
        words: list[str] = []
        X = table.numbers(numbers, kinds, words)
        if words and self.missing == "error":
            raise TableError(
                f"{table.source}: {words[0]}, which --missing error refuses; give "
                "--missing impute or drop, or --drop this column"
            )
        notes += words
        X = _with_nan(X)
        fills = self.missing in ("impute", "indicator")
        names = [table.names[j] for j in numbers]
        keep, gone = telling_numbers(names, X, fills=fills, notes=notes)
        self.left_out_ |= gone
        numbers, kinds, X = few(numbers, keep), few(kinds, keep), _columns(X, keep)
        note_huge(notes, table, [table.names[j] for j in numbers], X)
        self.numbers_ = [table.names[j] for j in numbers]
        self.number_kinds_ = kinds
        unknown = np.isnan(X)
        # 2. Categories: the scores in which they agree.
        coded = [(table.names[j], *table.categories(j)) for j in texts]
        if self.missing == "indicator":
            coded += [
                (f"{name} is missing", unknown[:, k].astype(np.intp), ["no", "yes"])
                for k, name in enumerate(self.numbers_)
                if unknown[:, k].any()
            ]
        codes = self._find_scores(coded, notes)
        if not self.numbers_ and self.scores_ is None:
            raise TableError(
                f"{table.source}: no column that can be compared has two different values, so all "
                f"rows are alike; {self._say_left_out()}"
            )
        # 3. Missing values.
        kept = np.ones(table.n_rows, dtype=bool)
        counts, text_counts = unknown.sum(axis=0), [np.count_nonzero(c < 0) for c in codes]
        if counts.any() or any(text_counts):
            if self.missing == "error":
                self._refuse_missing(table, self.used_, [*counts, *text_counts], unknown)
            if self.missing == "drop":
                kept = np.asarray(~unknown.any(axis=1))
                for code in codes:
                    kept &= code >= 0
                X, codes = drop_rows(table, X, codes, kept, notes)
                X = self._drop_constant(X, notes)
            else:
                missing_notes(
                    notes, self.warnings_, self.used_, [*counts, *text_counts], table.n_rows
                )
        # 4. Tails, fills and scales.
        self.tails_: Tails | None = find_tails(X) if self.scale == "auto" else None
        X = self._shortened(X, notes, told=True)
        self.fills_: Fills | None = None
        filled = None
        if self.missing in ("impute", "indicator"):
            self.fills_ = learn_fills(X)
            X, filled = self.fills_.fill(X)
        self.names_in_ = list(table.names)
        self._learn_scales(table.source, X)
        note_scaling(notes, self.scale)
        note_kinds(notes, self)
        self.notes_ = notes
        return _Parts(X, codes, kept, filled)

    def _find_kinds(self, table: Columns) -> dict[int, ColumnKind]:
        """Return the kinds of the columns that the options leave, by their places."""
        chosen = self.choose(table)
        table.find(list(self.kinds), "--kind")
        found = {j: table.kind(j, self.kinds.get(table.names[j])) for j in chosen}
        self.kinds_ = {table.names[j]: kind.kind for j, kind in found.items()}
        self.left_out_: dict[str, str] = {}
        for j, kind in found.items():
            if kind.kind in ("text", "id", "ignore"):
                self.left_out_[table.names[j]] = kind.reason
        for name in table.names:
            if name not in self.kinds_:
                is_id = name == self.id_column
                self.kinds_[name] = "id" if is_id else "ignore"
                self.left_out_[name] = "names the rows" if is_id else "not chosen"
        return found

    def _find_scores(self, coded: list[CodedColumn], notes: list[str]) -> list[NDArray[np.intp]]:
        """Find the scores in which categories agree, and return the codes that they take."""
        kept, gone = different_categories(coded, notes)
        self.left_out_ |= gone
        self.scores_: CategoryScores | None = category_scores(
            [name for name, _, _ in kept],
            [code for _, code, _ in kept],
            [len(values) for _, _, values in kept],
            at_least=0 if self.numbers_ else 1,
        )
        self.texts_ = [] if self.scores_ is None else list(self.scores_.columns)
        used = [one for one in kept if one[0] in self.texts_]
        self.categories_ = {name: values for name, _, values in used}
        for name, _, _ in kept:
            if name not in self.categories_:
                self.left_out_[name] = "a category that no others agree with"
        return [code for _, code, _ in used]

    def _drop_constant(self, X: NDArray[Any], notes: list[str]) -> NDArray[Any]:
        """Leave out columns that have one value in the rows without missing values."""
        low, high = range_of(X, None)
        keep = low < high
        names = self.numbers_
        note_left_out(notes, names, keep, np.zeros(len(names), int), 1)
        self.left_out_ |= dict.fromkeys(few(names, ~keep), "one value only")
        self.numbers_, self.number_kinds_ = few(names, keep), few(self.number_kinds_, keep)
        if not self.numbers_ and self.scores_ is None:
            raise TableError(
                "no column has two different values in the rows without missing values; give "
                "--missing impute"
            )
        return _columns(X, keep)

    def _say_left_out(self) -> str:
        gone = [f"{shown(name)} ({why})" for name, why in self.left_out_.items() if why]
        if not gone:
            return "give a table whose rows differ, or other --columns"
        return f"left out: {listed(gone)}; --kind NAME=numeric or categorical uses one of them"

    def _fit_sparse(self, table: Columns, places: list[int], notes: list[str]) -> _Parts:
        X = float_csr(table.data if len(places) == len(table.names) else table.data[:, places])
        names = [table.names[j] for j in places]
        X, kept = without_missing(table, X, names, self.missing, notes)
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
        self.left_out_ |= dict.fromkeys(few(names, ~keep), "one value only")
        self.number_kinds_ = [ColumnKind("numeric")] * len(self.numbers_)
        self.categories_, self.fills_, self.tails_, self.scores_ = {}, None, None, None
        self.offsets_, self.scales_ = np.zeros(len(self.numbers_)), np.ones(len(self.numbers_))
        self.feature_names_ = list(self.numbers_)
        self.notes_ = notes
        return _Parts(X if keep.all() else sp.csr_array(X[:, np.flatnonzero(keep)]), [], kept)

    def _learn_scales(self, source: str, X: NDArray[Any]) -> None:
        scale = "standard" if self.scale == "auto" else self.scale
        figures = figures_of(X, spread=scale == "standard")
        offsets, scales = offsets_and_scales(source, self.numbers_, figures, scale)
        self.feature_names_ = [
            _feature_name(name, kind, self._is_log(k))
            for k, (name, kind) in enumerate(
                zip(self.numbers_, self.number_kinds_, strict=True)
            )
        ]  # fmt: skip
        if self.scores_ is not None:
            n_scores = self.scores_.n_scores
            for k, leading in enumerate(self.scores_.leading):
                number = f" {k + 1}" if n_scores > 1 else ""
                self.feature_names_.append(f"categories{number} ({quoted_names(leading, 3)})")
            # Scores have mean 0 and variance 1 already.
            offsets = np.append(offsets, np.zeros(n_scores))
            scales = np.append(scales, np.ones(n_scores))
        self.offsets_, self.scales_ = offsets, scales

    def _is_log(self, k: int) -> bool:
        return self.tails_ is not None and bool(np.isfinite(self.tails_.shifts[k]))

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
            table = padded(table, self.names_in_)
        numbers = self.places_of(table, self.numbers_)
        if table.is_sparse and self.tails_ is None and self.scale == "none" and not self.texts_:
            X = float_csr(table.data[:, numbers])
            X, kept = without_missing(table, X, self.numbers_, self.missing, notes, fitted=True)
            return _Parts(X, [], kept)
        X = _with_nan(table.numbers(numbers, self.number_kinds_, notes))
        unknown = np.isnan(X)
        codes = [self._new_codes(table, name, notes) for name in self.texts_]
        kept = np.ones(table.n_rows, dtype=bool)
        counts = [*unknown.sum(axis=0), *(np.count_nonzero(code < 0) for code in codes)]
        if any(counts):
            if self.missing == "error":
                self._refuse_missing(table, self.used_, counts, unknown, fitted=True)
            elif self.missing == "drop":
                kept = np.asarray(~unknown.any(axis=1))
                for code in codes:
                    kept &= code != -1
                X, codes = drop_rows(table, X, codes, kept, notes)
            else:
                missing_notes(notes, [], self.used_, counts, table.n_rows)
        X = self._shortened(X, notes)
        filled = None
        if self.fills_ is not None:
            X, filled = self.fills_.fill(X)
        return _Parts(X, codes, kept, filled)

    def _new_codes(self, table: Columns, name: str, notes: list[str]) -> NDArray[np.intp]:
        known = self.categories_[name]
        of = name.removesuffix(" is missing")
        if self.missing == "indicator" and name not in self.names_in_ and of != name:
            (j,) = self.places_of(table, [of])
            return np.asarray(table.is_missing(j)).astype(np.intp)
        (j,) = self.places_of(table, [name])
        code, values = table.categories(j)
        return code_again(code, values, name, known, notes)

    def _shortened(self, X: NDArray[Any], notes: list[str], *, told: bool = False) -> NDArray[Any]:
        if self.tails_ is None:
            return X
        fills = self.missing in ("impute", "indicator")
        X, n_far = self.tails_.shorten(X, fills=fills)
        if told and (logs := [n for k, n in enumerate(self.numbers_) if self._is_log(k)]):
            notes.append(
                f"columns with a long tail were put on a log scale: {quoted_names(logs)} (--scale "
                "standard leaves them as they are)"
            )
        if n_far:
            notes.append(
                f"{n_far:,} value{'s' if n_far > 1 else ''} far outside, ten times as far from "
                "the median as 95 % of the rows on that side, "
                + ("counted as missing" if fills else "set to that limit")
            )
        return X

    def _finish(
        self, table: Columns, parts: _Parts, notes: list[str], warnings: list[str]
    ) -> Prepared:
        if self.id_column is None:
            ids, id_name = table.row_names()
        else:
            ids, id_name = table.ids(self.id_column), self.id_column
        if self.id_column is not None and len(set(ids.tolist())) < len(ids):
            notes.append(f"some values of the id column {shown(self.id_column)} come repeatedly")
        has_noise = parts.filled is not None or self.scores_ is not None
        if self.tails_ is not None and self.tails_.steps.any():
            has_noise = True
        return Prepared(
            self._scaled(parts),
            ids if parts.kept.all() else ids[parts.kept],
            id_name,
            list(self.feature_names_),
            parts.kept,
            notes,
            warnings,
            partial(self._dithered, filled=parts.filled) if has_noise else None,
        )

    def _dithered(
        self, X: NDArray[Any], rng: np.random.Generator, *, filled: Filled | None
    ) -> NDArray[Any]:
        """Return prepared rows with noise where the preparation makes gaps or fills."""
        X, p = X.copy(), len(self.numbers_)
        own = X[:, :p] * self.scales_[:p] + self.offsets_[:p]
        if filled is not None:
            own[filled.rows, filled.columns] = filled.draw(rng)
        if self.tails_ is not None:
            own = self.tails_.dithered(own, rng)
        if p:
            scaled_into(X[:, :p], own, self.offsets_[:p], self.scales_[:p])
        if self.scores_ is not None:
            widths = self.scores_.widths
            X[:, p:] += rng.uniform(-0.5, 0.5, (len(X), widths.size)) * widths
        return X

    def _scaled(self, parts: _Parts) -> Any:
        X, p = parts.numbers, len(self.numbers_)
        if sp.issparse(X):
            return X
        if self.scale == "none" and self.scores_ is None:
            X = np.ascontiguousarray(X)
            return X if X.flags.writeable else X.copy()
        out = np.empty((int(parts.kept.sum()), len(self.feature_names_)))
        if p:
            scaled_into(out[:, :p], X, self.offsets_[:p], self.scales_[:p])
        if self.scores_ is not None:
            out[:, p:] = self.scores_.transform(parts.codes)
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


def _names(names: Iterable[str] | None) -> list[str] | None:
    if names is None:
        return None
    # A single name is meant as one, not as its letters.
    return [names] if isinstance(names, str) else list(names)


def _feature_name(name: str, kind: ColumnKind, is_log: bool) -> str:
    if is_log:
        return f"log({name})"
    return f"{name} (year)" if kind.kind == "date" else name


def _with_nan(X: NDArray[Any]) -> NDArray[Any]:
    """Return numbers with NaN for infinities."""
    with np.errstate(over="ignore", invalid="ignore"):
        if X.size == 0 or np.isfinite(X.sum()):
            return X
    infinite = np.isinf(X)
    return np.where(infinite, np.nan, X) if infinite.any() else X


def _columns(X: NDArray[Any], keep: NDArray[np.bool_]) -> NDArray[Any]:
    return X if keep.all() else X[:, keep]
