"""`Preparation`: turn the columns of a table into numeric features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from volmar import _checks
from volmar._warn import warn_user
from volmar.tables.columns import (
    Columns,
    as_columns,
    check_table,
    chosen_places,
    fitted_places,
    names_given,
    table_tags,
)
from volmar.tables.errors import MAX_DENSE_BYTES, TableError, listed, quoted_names, shown
from volmar.tables.features import (
    CategoryScores,
    Filled,
    NumberFeatures,
    category_scores,
    learn_features,
)
from volmar.tables.kinds import MIN_ROWS, ColumnKind, as_dates, as_numbers, check_kinds, date_parts

# Values near the limits of float64 may overflow in between. `Preparation._finish` raises an error
# if the features are not finite.
_beyond_float64 = np.errstate(over="ignore", invalid="ignore")

Codes = list[NDArray[np.intp]]
#: Name, codes (-1 for missing) and values of a column of categories.
CodedColumn = tuple[str, NDArray[np.intp], list[str]]


@dataclass(frozen=True)
class PreparedTable:
    """Rows that are ready for clustering, with their ids, notes and warnings (one line each).

    `X` holds features in float64: sparse if the table is sparse and not scaled, a dask array if
    made by `prepare_blocks`. `kept` is the mask of the rows of the table that are in `X`, `ids`
    are theirs: the id column, the index of a DataFrame or row numbers from 0. None from
    `prepare_blocks` stands for all rows. `noise` takes X and a `Generator`, and returns
    `dithered` rows (a dask array with the same noise each time); None if these are X. `outlying`
    is the mask of the kept rows that belong to no cluster, because a value was too far out to be
    used, or there is no value at all. None if not known.
    """

    X: Any
    ids: Any
    id_name: str
    feature_names: list[str]
    kept: Any
    notes: list[str]
    warnings: list[str] = field(default_factory=list)
    noise: Callable[[Any, np.random.Generator], Any] | None = None
    outlying: NDArray[np.bool_] | None = None

    def dithered(self, seed: int = 0) -> Any:
        """Return the rows to which a clusterer should be fitted.

        The preparation creates some gaps between values: between the logs of small counts, and
        between the scores of categories, where two columns alone can create one. Uniform noise of
        the width of these gaps closes them. Filled-in values are drawn at random, to reflect their
        uncertainty. To get the clusters, predict the labels of `X` with the fitted clusterer.
        """
        return self.X if self.noise is None else self.noise(self.X, np.random.default_rng(seed))


@dataclass
class _KeptRows:
    """The kept rows before scaling: numbers, codes, filled-in values and the outlying rows."""

    numbers: Any
    codes: list[NDArray[np.intp]]
    kept: NDArray[np.bool_]
    filled: Filled | None = None
    outlying: NDArray[np.bool_] | None = None


_CHOICES = {
    "scale": ("auto", "standard", "minmax", "none"),
    "missing": ("impute", "drop", "indicator", "error"),
}
_AS_NUMBERS = ("numeric", "ordinal", "date")
_AS_CATEGORIES = ("categorical", "boolean")


class Preparation(TransformerMixin, BaseEstimator):
    """Detect the kind of each column, and turn the columns into numeric features.

    - Numeric columns are features. So are ordinal columns ("low", "medium", "high"), as the rank
      of their values, and dates, as decimal years.
    - Categorical and boolean columns are not features by themselves, because each of them splits
      the rows into groups even if nothing else differs between these. If several of them agree
      with each other more than by chance, the scores in which they agree (multiple
      correspondence analysis) are features. Other categorical columns only describe the clusters.
    - Ids, codes, row numbers, free text, constant columns, copies of other columns and columns
      whose values are mostly missing are left out.

    `notes_` describes the preparation, `kinds_` and `left_out_` describe each column.

    Parameters
    ----------
    columns : list of str, default=None
        Columns to use. If None, all columns are used.
    drop : list of str, default=None
        Columns to leave out.
    id_column : str, default=None
        Column that names the rows. It is not a feature. If None, rows are named by the index of a
        DataFrame if it holds names or dates, and numbered from 0 otherwise.
    kinds : dict of str to str, default=None
        Kinds of columns, in place of the detected ones: "numeric", "ordinal", "categorical",
        "boolean", "date", "text", "id" or "ignore". The last three are left out.
    scale : {"auto", "standard", "minmax", "none"}, default="auto"
        Scaling of the features:

        - "standard": mean 0 and standard deviation 1;
        - "minmax": range 0 to 1;
        - "none": no scaling;
        - "auto": like "standard", after the log of columns with a long right tail, and with
          limits for outliers.
    missing : {"impute", "drop", "indicator", "error"}, default="impute"
        How to handle missing and infinite values:

        - "impute": fill them in from similar rows;
        - "drop": leave out their rows;
        - "indicator": fill them in, and add a boolean column that marks them;
        - "error": raise an error.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of the fitted table.
    feature_names_in_ : ndarray of str
        Names of these columns. Only defined if the table has column names.
    names_in_ : list of str
        Names of these columns; x0, x1, ... for an array.
    kinds_ : dict of str to str
        Kind of each column of the table.
    left_out_ : dict of str to str
        Columns that are not used, and the reason for each.
    numbers_ : list of str
        Columns that are used as numbers, one feature each.
    texts_ : list of str
        Columns that are used as categories.
    used_ : list of str
        Columns of `numbers_` and `texts_`.
    category_features_ : dict of str to tuple of str
        Features that are scores of categories, and the columns with the largest weights in each.
    categories_ : dict of str to list of str
        Values of each column in `texts_`.
    offsets_, scales_ : ndarray of shape (d,)
        Features are (x - offset) / scale.
    feature_names_ : list of str
        Names of the features.
    notes_ : list of str
        Decisions of the fit, one line each.
    warnings_ : list of str
        Possible problems with the table, one line each.

    See Also
    --------
    volmar.TableClusterer : A preparation and a clusterer as one estimator.

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
    'a category that no other column agrees with'

    In a pipeline with any clusterer:

    >>> from sklearn.cluster import KMeans
    >>> from sklearn.pipeline import make_pipeline
    >>> model = make_pipeline(Preparation(), KMeans(2, random_state=0)).fit(table)
    >>> len(model.predict(table))
    12
    """

    n_features_in_: int
    feature_names_in_: NDArray[Any]

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
        self.columns = columns
        self.drop = drop
        self.id_column = id_column
        self.kinds = kinds
        self.scale = scale
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the kinds, categories, fill values, offsets and scales of the columns.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            The table. DataFrames of pandas and polars and pyarrow tables are accepted.
        y : None
            Ignored.

        Returns
        -------
        self : Preparation
            The fitted preparation.
        """
        self._fit(as_columns(check_table(self, X, reset=True)))
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of a table.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            The fitted table or a new one. It must have the columns in `used_`; other columns are
            ignored.

        Returns
        -------
        array of shape (n, d)
            Features of each row. With ``missing="drop"``, missing values raise an error, because
            every row must be returned. `prepare` returns only the kept rows.
        """
        check_is_fitted(self)
        rows = self.prepare(check_table(self, X, reset=False))
        for text in rows.warnings:
            warn_user(text)
        return self._all_rows(rows)

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # type: ignore[override]  # noqa: ARG002
        """Fit to a table, and return its features.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            The table.
        y : None
            Ignored.

        Returns
        -------
        array of shape (n, d)
            Features of each row, as returned by `transform`.
        """
        return self._all_rows(self.fit_prepare(X))

    def prepare(self, table: Any) -> PreparedTable:
        """Return the features of a table with the ids of its rows, and notes.

        Parameters
        ----------
        table : DataFrame, LoadedTable, array or sparse array
            The fitted table or a new one. It must have the columns in `used_`; other columns are
            ignored. The columns of an array without names are matched by position.

        Returns
        -------
        PreparedTable
            Categories that were not in the fitted table, words among numbers and dates in another
            layout are treated as missing, with a note that is among its warnings, too.
        """
        check_is_fitted(self)
        columns = as_columns(table)
        notes = list(columns.notes)
        warnings: list[str] = []
        return self._finish(columns, self._new_rows(columns, notes, warnings), notes, warnings)

    def fit_prepare(self, table: Any) -> PreparedTable:
        """Fit to a table, and return its features with the notes of the fit.

        Parameters
        ----------
        table : DataFrame, LoadedTable, array or sparse array
            The table.

        Returns
        -------
        PreparedTable
            The prepared rows, as returned by `prepare`.
        """
        columns = as_columns(check_table(self, table, reset=True))
        rows = self._fit(columns)
        return self._finish(columns, rows, list(self.notes_), list(self.warnings_))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : array of str, default=None
            Names of the columns of an array. If None, they are x0, x1, ...

        Returns
        -------
        ndarray of str
            Names of the columns of the array returned by `transform`.
        """
        check_is_fitted(self)
        if input_features is None:
            return np.array(self.feature_names_, dtype=object)
        given = [str(name) for name in input_features]
        if len(given) != self.n_features_in_:
            raise ValueError(
                "input_features should have length equal to number of features "
                f"({self.n_features_in_}), got {len(given)}."
            )
        if hasattr(self, "feature_names_in_") and given != list(self.feature_names_in_):
            raise ValueError("input_features is not equal to feature_names_in_. Omit it.")
        called = dict(zip(self.names_in_, given, strict=False))
        return np.array(self._names_of_features(called), dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: which input is accepted."""
        return table_tags(super().__sklearn_tags__(), self.missing)

    # ---------------------------------------------------------------------- columns

    def check_parameters(self) -> Self:
        """Raise `TableError` for invalid parameters, as `fit` does, before a table is read."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                choices = ", ".join(map(repr, allowed))
                raise TableError(f"{name} must be one of {choices}, got {_checks.shown(value)}.")
        for name in ("columns", "drop"):
            names_given(name, getattr(self, name))
        if self.id_column is not None and not isinstance(self.id_column, str):
            got = _checks.shown(self.id_column)
            raise TableError(f"id_column must be the name of a column, got {got}.")
        check_kinds(self.kinds)
        return self

    def choose(self, table: Columns) -> list[int]:
        """Check the parameters, and return the positions of the selected columns."""
        self.check_parameters()
        places = chosen_places(table, self.columns, self.drop, self.id_column)
        table.find(list(self.kinds or {}), "kinds=")
        return places

    def _find_kinds(self, table: Columns) -> dict[int, ColumnKind]:
        """Return the kinds of the selected columns, by position."""
        places = self.choose(table)
        found = dict(zip(places, table.kinds(places, self.kinds or {}), strict=True))
        self.kinds_ = {table.names[j]: kind.kind for j, kind in found.items()}
        self.left_out_: dict[str, str] = {
            table.names[j]: kind.reason
            for j, kind in found.items()
            if kind.kind not in (*_AS_NUMBERS, *_AS_CATEGORIES)
        }
        for name in table.names:
            if name not in self.kinds_:
                is_id = name == self.id_column
                self.kinds_[name] = "id" if is_id else "ignore"
                self.left_out_[name] = "names the rows" if is_id else "not chosen"
        return found

    # ---------------------------------------------------------------------- fitting

    @_beyond_float64
    def _fit(self, table: Columns) -> _KeptRows:
        if table.n_rows < 2:
            n_rows = f"{table.n_rows} row{'' if table.n_rows == 1 else 's'}"
            raise TableError(f"{table.source} has {n_rows}. Give a table of at least 2 rows.")
        notes = list(table.notes)
        self.warnings_: list[str] = []
        found = self._find_kinds(table)
        numbers = [j for j, kind in found.items() if kind.kind in _AS_NUMBERS]
        texts = [j for j, kind in found.items() if kind.kind in _AS_CATEGORIES]
        self.names_in_ = list(table.names)
        self.texts_: list[str] = []
        self.categories_: dict[str, list[str]] = {}
        self.scores_: CategoryScores | None = None
        self.number_features_: NumberFeatures | None = None
        if table.is_sparse and (self.scale == "none" or not fits_dense(table, self.scale, notes)):
            rows = self._fit_sparse(table, numbers, notes)
        else:
            kinds = [found[j] for j in numbers]
            rows = self._fit_dense(table, numbers, kinds, texts, notes)
            note_kinds(notes, self)
        self.feature_names_ = self._names_of_features({})
        self.notes_ = notes
        return rows

    def _fit_sparse(self, table: Columns, places: list[int], notes: list[str]) -> _KeptRows:
        X, names = table.csr(places), [table.names[j] for j in places]
        X, kept = without_missing_sparse(table, X, names, self.missing, notes, fitted=False)
        keep = X.min(axis=0).toarray().ravel() < X.max(axis=0).toarray().ravel()
        self.numbers_, self.number_kinds_ = names, [ColumnKind("numeric")] * len(names)
        self._keep_numbers(keep, notes)
        self._refuse_nothing(table)
        return _KeptRows(X if keep.all() else sp.csr_array(X[:, np.flatnonzero(keep)]), [], kept)

    def _fit_dense(
        self,
        table: Columns,
        places: list[int],
        kinds: list[ColumnKind],
        texts: list[int],
        notes: list[str],
    ) -> _KeptRows:
        # 1. Numeric columns, without constant columns, copies, and columns with few values.
        words: list[str] = []
        X = without_infinite(table.numbers(places, kinds, words))[0]
        if words and self.missing == "error":
            raise TableError(
                f"{table.source}: {words[0]}. missing='error' does not allow missing values. "
                "Give missing='impute' or missing='drop', or name this column in drop=."
            )
        notes += words
        fills = self.missing in ("impute", "indicator")
        names = [table.names[j] for j in places]
        keep, gone = informative_numbers(names, X, fills=fills, notes=notes)
        self.left_out_ |= gone
        self.numbers_, self.number_kinds_ = chosen(names, keep), chosen(kinds, keep)
        X = X if keep.all() else X[:, keep]
        note_huge(notes, table, chosen(places, keep), X)
        # 2. Scores in which the categorical columns agree.
        coded = [(table.names[j], *table.categories(j)) for j in texts]
        if self.missing == "indicator":
            unknown = np.isnan(X)
            coded += [
                (f"{name} is missing", unknown[:, k].astype(np.intp), ["no", "yes"])
                for k, name in enumerate(self.numbers_)
                if unknown[:, k].any()
            ]
        codes = self._find_scores(coded, notes)
        self._refuse_nothing(table)
        # 3. Missing values.
        X, codes, kept = without_missing(
            table, self.used_, X, codes, self.missing, notes, self.warnings_
        )
        if not kept.all():
            X = self._drop_constant(X, notes)
        # 4. Tails, fills and scales.
        self.number_features_, X, filled, outlying = learn_features(
            table.source, self.numbers_, X, scale=self.scale, fills=fills, notes=notes
        )
        return _KeptRows(X, codes, kept, filled, outlying)

    def _find_scores(self, coded: list[CodedColumn], notes: list[str]) -> list[NDArray[np.intp]]:
        """Find the scores in which categories agree, and return the codes of the used columns."""
        kept, gone = distinct_categories(coded, notes)
        self.left_out_ |= gone
        self.scores_ = category_scores(
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
                self.left_out_[name] = "a category that no other column agrees with"
        return [code for _, code, _ in used]

    def _drop_constant(self, X: NDArray[Any], notes: list[str]) -> NDArray[Any]:
        """Leave out columns that are constant on the rows without missing values."""
        low, high = range_of(X)
        keep = low < high
        self._keep_numbers(keep, notes)
        if not self.numbers_ and self.scores_ is None:
            where = "All columns are constant on the rows without missing values"
            raise TableError(f"{where}. Give missing='impute'.")
        return X if keep.all() else X[:, keep]

    def _keep_numbers(self, keep: NDArray[np.bool_], notes: list[str]) -> None:
        self.left_out_ |= note_left_out(notes, chosen(self.numbers_, ~keep))
        self.numbers_ = chosen(self.numbers_, keep)
        self.number_kinds_ = chosen(self.number_kinds_, keep)

    def _refuse_nothing(self, table: Columns) -> None:
        if self.numbers_ or self.scores_ is not None:
            return
        remedy = "Give a table whose rows differ, or other columns=."
        if gone := [f"{shown(name)} ({why})" for name, why in self.left_out_.items() if why]:
            remedy = f"Left out were {listed(gone)}. {USES_ONE}."
        what = "no usable column has two different values, so all rows are equal"
        raise TableError(f"{table.source}: {what}. {remedy}")

    # ---------------------------------------------------------------------- rows

    @property
    def used_(self) -> list[str]:
        """Columns that are used for features: numeric ones first, then categorical ones."""
        return [*self.numbers_, *self.texts_]

    @property
    def offsets_(self) -> NDArray[np.float64]:
        """Offsets subtracted from features; 0 for scores, which have mean 0 and variance 1."""
        known: Any = [] if self.number_features_ is None else self.number_features_.offsets
        return np.pad(known, (0, len(self.feature_names_) - len(known)))

    @property
    def scales_(self) -> NDArray[np.float64]:
        """Scales by which features are divided; 1 for scores of categories."""
        known: Any = [] if self.number_features_ is None else self.number_features_.scales
        return np.pad(known, (0, len(self.feature_names_) - len(known)), constant_values=1.0)

    @property
    def category_features_(self) -> dict[str, tuple[str, ...]]:
        """Features that are scores of categories, and the columns with the largest weights."""
        if self.scores_ is None:
            return {}
        names = self.feature_names_[len(self.numbers_) :]
        return {n: tuple(c) for n, c in zip(names, self.scores_.leading, strict=True)}

    def _names_of_features(self, called: dict[str, str]) -> list[str]:
        """Return the names of the features. `called` maps columns to other names."""
        names, features = [], self.number_features_
        for k, (name, kind) in enumerate(zip(self.numbers_, self.number_kinds_, strict=True)):
            own = called.get(name, name)
            if features is not None and features.is_log(k):
                own = f"log({own})"
            elif kind.kind == "date":
                own = f"{own} (year)"
            names.append(own)
        if self.scores_ is not None:
            for k, leading in enumerate(self.scores_.leading):
                number = f" {k + 1}" if self.scores_.n_scores > 1 else ""
                quoted = quoted_names([called.get(name, name) for name in leading], 3)
                names.append(f"categories{number} ({quoted})")
        return names

    @_beyond_float64
    def _new_rows(self, table: Columns, notes: list[str], warnings: list[str]) -> _KeptRows:
        """Return new rows before scaling; values that are not understood give `warnings`."""
        if table.is_sparse:
            table = table.padded(self.names_in_)
        places = fitted_places(table, self.numbers_, self.names_in_)
        features = self.number_features_
        if table.is_sparse and (features is None or self.scale == "none") and not self.texts_:
            X, kept = without_missing_sparse(
                table, table.csr(places), self.numbers_, self.missing, notes, fitted=True
            )
            return _KeptRows(X, [], kept)
        X, infinite = without_infinite(table.numbers(places, self.number_kinds_, warnings))
        codes = [self._new_codes(table, name, warnings) for name in self.texts_]
        notes += warnings
        place = set(self.names_in_)
        X, codes, kept = without_missing(table, self.used_, X, codes, self.missing, notes)
        # The indicators "x is missing" of missing="indicator" are no columns of the table.
        own = [code < 0 for name, code in zip(self.texts_, codes, strict=True) if name in place]
        empty = np.logical_and.reduce([np.isnan(X).all(axis=1), *own])
        if n_empty := int(np.count_nonzero(empty)):
            warnings.append(
                f"{n_empty:,} of {table.n_rows:,} rows have no value in any column of the model. "
                "They are in the cluster of the medians of the columns. Leave these rows out, or "
                "reject them with reject=0.01."
            )
        # A row without values, or with a value too far out to be used, is not an ordinary row.
        outlying, filled = empty | infinite[kept], None
        if features is not None:
            X, filled, far = features.complete(X, notes)
            outlying |= far
        return _KeptRows(X, codes, kept, filled, outlying)

    def _new_codes(self, table: Columns, name: str, notes: list[str]) -> NDArray[np.intp]:
        """Return the fitted codes: -1 for missing, the number of categories for a new value."""
        of = name.removesuffix(" is missing")
        if self.missing == "indicator" and name not in self.names_in_ and of != name:
            (j,) = fitted_places(table, [of], self.names_in_)
            kind = self.number_kinds_[self.numbers_.index(of)]
            # Words among numbers are missing, as in the fitted table. They were noted before.
            return np.isnan(table.numbers([j], [kind], [])[:, 0]).astype(np.intp)
        (j,) = fitted_places(table, [name], self.names_in_)
        codes, found = table.categories(j)
        known = self.categories_[name]
        place = {value: k for k, value in enumerate(known)}
        if new := [value for value in found if value not in place]:
            notes.append(
                f"column {shown(name)} has values that are not in the fitted table, treated as "
                f"missing: {quoted_names(new)}; write them as there, such as "
                f"{quoted_names(known, 3)}"
            )
        moved = np.array([*(place.get(value, len(known)) for value in found), -1], dtype=np.intp)
        return moved[codes]

    @_beyond_float64
    def _finish(
        self, table: Columns, rows: _KeptRows, notes: list[str], warnings: list[str]
    ) -> PreparedTable:
        if self.id_column is None:
            ids, id_name = table.row_names()
        else:
            ids, id_name = table.ids(self.id_column), self.id_column
            if len(set(ids.tolist())) < len(ids):
                notes.append(f"some values of the id column {shown(id_name)} are repeated")
        has_steps = self.number_features_ is not None and self.number_features_.has_steps
        has_noise = rows.filled is not None or self.scores_ is not None or has_steps
        X = self._scaled(rows)
        is_finite = sp.issparse(X) or np.isfinite(X.sum())
        if not is_finite and (wrong := np.flatnonzero(~np.isfinite(X).all(axis=0))).size:
            raise TableError(
                f"{table.source}: values of {shown(self.feature_names_[wrong[0]])} are too near "
                "the limits of float64. Change the unit of this column, or name it in drop=."
            )
        return PreparedTable(
            X,
            ids if rows.kept.all() else ids[rows.kept],
            id_name,
            list(self.feature_names_),
            rows.kept,
            notes,
            warnings,
            partial(self._dithered, filled=rows.filled) if has_noise else None,
            rows.outlying,
        )

    @property
    def is_noisy(self) -> bool:
        """Whether `PreparedTable.dithered` may differ from the features of the rows."""
        features = self.number_features_
        has_own = features is not None and (features.has_steps or features.fills is not None)
        return has_own or self.scores_ is not None

    def _scaled(self, rows: _KeptRows) -> Any:
        X, p, features = rows.numbers, len(self.numbers_), self.number_features_
        if sp.issparse(X):
            return X
        if features is None or (self.scale == "none" and self.scores_ is None):
            X = np.ascontiguousarray(X)
            return X if X.flags.writeable else X.copy()
        out = np.empty((int(rows.kept.sum()), len(self.feature_names_)))
        features.scale_into(out[:, :p], X)
        if self.scores_ is not None:
            out[:, p:] = self.scores_.transform(rows.codes)
        return out

    @_beyond_float64
    def _dithered(
        self, X: NDArray[Any], rng: np.random.Generator, *, filled: Filled | None
    ) -> NDArray[Any]:
        X, p = X.copy(), len(self.numbers_)
        if self.number_features_ is not None:
            self.number_features_.dither_into(X[:, :p], rng, filled)
        if self.scores_ is not None:
            widths = self.scores_.widths
            X[:, p:] += rng.uniform(-0.5, 0.5, (len(X), widths.size)) * widths
        return X

    def _all_rows(self, rows: PreparedTable) -> Any:
        if n_out := int(np.count_nonzero(~rows.kept)):
            raise TableError(
                f"{n_out:,} of {len(rows.kept):,} rows have missing values, and transform must "
                "return every row. Give missing='impute', or call prepare, which leaves them out."
            )
        return rows.X


# ---------------------------------------------------------------------- informative columns


def range_of(X: NDArray[Any]) -> tuple[Any, Any]:
    """Return the minimum and maximum of each column; inf and -inf without values."""
    return np.fmin.reduce(X, initial=np.inf), np.fmax.reduce(X, initial=-np.inf)


def chosen(items: list[Any], keep: NDArray[np.bool_]) -> list[Any]:
    """Return the items for which `keep` is True."""
    return [item for item, stays in zip(items, keep, strict=True) if stays]


def informative_numbers(
    names: list[str], X: NDArray[Any], *, fills: bool, notes: list[str]
) -> tuple[NDArray[np.bool_], dict[str, str]]:
    """Return the mask of the columns that vary and are no copies, and why the others are left out.

    With `fills`, at most two thirds of the values may be missing.
    """
    n = len(X)
    counts = np.isnan(X).sum(axis=0)
    low, high = range_of(X)
    varies = low < high
    left_out = note_left_out(notes, chosen(names, counts == n), *["without values"] * 2)
    left_out |= note_left_out(notes, chosen(names, ~varies & (counts < n)))
    keep = varies.copy()
    if fills:
        keep &= counts <= (1 - 1 / 3) * n
        words = ("with more than two thirds of their values missing", "most values are missing")
        left_out |= note_left_out(notes, chosen(names, varies & ~keep), *words)
    for copy, first in copies_of(X, np.flatnonzero(keep)):
        keep[copy] = False
        left_out[names[copy]] = f"a copy of {names[first]}"
        notes.append(_SAME.format(shown(names[copy]), shown(names[first])))
    return keep, left_out


def distinct_categories(
    coded: list[CodedColumn], notes: list[str]
) -> tuple[list[CodedColumn], dict[str, str]]:
    """Return the distinct columns of two categories or more, and the reasons for the others."""
    left_out = note_left_out(notes, [name for name, _, values in coded if len(values) < 2])
    kept: list[CodedColumn] = []
    names: dict[bytes, str] = {}
    for name, code, values in coded:
        if len(values) < 2:
            continue
        first = names.setdefault(_in_order_of_rows(code).tobytes(), name)
        if first == name:
            kept.append((name, code, values))
        else:
            left_out[name] = f"duplicates {first}"
            notes.append(_SAME.format(shown(name), shown(first)))
    return kept, left_out


def _in_order_of_rows(code: NDArray[np.intp]) -> NDArray[np.intp]:
    """Renumber codes by first occurrence, so that equal partitions have equal codes."""
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def copies_of(X: NDArray[Any], places: Any) -> list[tuple[int, int]]:
    """Return pairs (copy, original) of columns that differ at most by unit and sign.

    Columns are compared first on 64 rows. With two rows, all columns would be copies.
    """
    if len(X) < MIN_ROWS:
        return []
    few_rows = np.linspace(0, len(X) - 1, min(len(X), 64)).astype(int)
    keys = _in_own_units(X[np.ix_(few_rows, places)])
    first: dict[bytes, list[int]] = {}
    found = []
    for key, j in zip(keys.T, places, strict=True):
        same = first.setdefault(key.tobytes(), [])
        own = _in_own_units(X[:, [j]]) if same else X
        equal = (np.array_equal(_in_own_units(X[:, [i]]), own, equal_nan=True) for i in same)
        twins = [i for i, is_twin in zip(same, equal, strict=True) if is_twin]
        if twins:
            found.append((int(j), twins[0]))
        else:
            same.append(int(j))
    return found


@np.errstate(all="ignore")
def _in_own_units(X: NDArray[Any]) -> NDArray[Any]:
    """Return columns in the range 0 to 1, flipped if the first value is above 0.5.

    Copies in other units, or with the opposite sign, become equal up to rounding.
    """
    low, high = range_of(X)
    scaled = (X - low) / np.where(high > low, high - low, 1.0)
    known = ~np.isnan(scaled)
    start = scaled[known.argmax(axis=0), np.arange(X.shape[1])]
    scaled = np.where(start > 0.5, 1.0 - scaled, scaled)
    return np.asarray(np.round(scaled, 7) + 0.0)


# ---------------------------------------------------------------------- missing values


def without_infinite(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return X with NaN for infinite values, and the mask of the rows that had one."""
    if X.size == 0 or np.isfinite(X.sum()):
        return X, np.zeros(len(X), dtype=bool)
    infinite = np.isinf(X)
    return np.where(infinite, np.nan, X) if infinite.any() else X, infinite.any(axis=1)


def without_missing(
    table: Columns,
    names: list[str],
    X: NDArray[Any],
    codes: Codes,
    missing: str,
    notes: list[str],
    warnings: list[str] | None = None,
) -> tuple[NDArray[Any], Codes, NDArray[np.bool_]]:
    """Return the numbers and codes of the kept rows, and their mask.

    Missing values (NaN, the code -1) that will be filled in are only counted here. `warnings` is
    None for new rows of a fitted preparation.
    """
    unknown = np.isnan(X)
    kept = np.ones(table.n_rows, dtype=bool)
    counts = [*unknown.sum(axis=0), *(np.count_nonzero(code < 0) for code in codes)]
    if not any(counts):
        return X, codes, kept
    if missing == "error":
        # Rows are counted if only numbers are missing, and no column is entirely missing.
        countable = sum(counts) == int(unknown.sum()) and max(counts) < table.n_rows
        n_rows = int(unknown.any(axis=1).sum()) if countable else None
        fitted = warnings is None
        raise TableError(missing_refused(table.source, names, counts, n_rows, fitted=fitted))
    if missing != "drop":
        note_missing(notes, [] if warnings is None else warnings, names, counts, table.n_rows)
        return X, codes, kept
    kept = ~unknown.any(axis=1)
    for code in codes:
        kept &= code >= 0
    note_dropped(table.source, kept, notes)
    return (X, codes, kept) if kept.all() else (X[kept], [code[kept] for code in codes], kept)


def without_missing_sparse(
    table: Columns, X: Any, names: list[str], missing: str, notes: list[str], *, fitted: bool
) -> tuple[Any, NDArray[np.bool_]]:
    """Return the sparse rows without missing values, and their mask. Nothing is filled in."""
    kept = np.ones(table.n_rows, dtype=bool)
    wrong = ~np.isfinite(X.data)
    if not wrong.any():
        return X, kept
    if missing in ("impute", "indicator"):
        raise TableError(
            f"{table.source} is sparse and has {wrong.sum()} missing values, which cannot be "
            "filled in. Give missing='drop', or scale='standard' to make the table dense."
        )
    kept[np.repeat(np.arange(table.n_rows), np.diff(X.indptr))[wrong]] = False
    if missing == "error":
        counts = np.bincount(X.indices[wrong], minlength=len(names))
        n_rows = int((~kept).sum())
        raise TableError(missing_refused(table.source, names, counts, n_rows, fitted=fitted))
    note_dropped(table.source, kept, notes)
    return X[np.flatnonzero(kept)], kept


def fits_dense(table: Columns, scale: str, notes: list[str]) -> bool:
    """Return whether a sparse table fits into memory as a dense one; else "auto" is "none"."""
    size = 8 * table.n_rows * len(table.names)
    if size <= MAX_DENSE_BYTES:
        notes.append("the sparse table was made dense to be scaled; scale='none' keeps it sparse")
        return True
    needs = f"would take {size / 2**30:.1f} GiB"
    if scale != "auto":
        raise TableError(f"{table.source} is sparse. Scaling {needs}. Give scale='none'.")
    notes.append(f"the sparse table was not scaled, because this {needs}")
    return False


def note_dropped(source: str, kept: NDArray[np.bool_], notes: list[str]) -> None:
    """Note the number of rows left out. Raise `TableError` if no row is left."""
    n_out = int(np.count_nonzero(~kept))
    if n_out == len(kept):
        raise TableError(
            f"{source}: every row has a missing value, so missing='drop' leaves no rows. Give "
            "missing='impute', or name the columns with missing values in drop=."
        )
    if n_out:
        notes.append(f"{n_out:,} of {len(kept):,} rows were left out because of missing values")


# ---------------------------------------------------------------------- notes

ONE_VALUE = "one value only"
_SAME = "column {} duplicates {} and was left out"
USES_ONE = "kinds={'NAME': 'numeric'} or kinds={'NAME': 'categorical'} uses such a column"


def missing_refused(
    source: str, names: list[str], counts: Any, n_rows: int | None, *, fitted: bool
) -> str:
    """Return the message for missing values that are not allowed."""
    which = [f"{shown(name)} {count}" for name, count in zip(names, counts, strict=True) if count]
    rows = "their rows" if n_rows is None else "1 row" if n_rows == 1 else f"{n_rows} rows"
    total = sum(int(count) for count in counts)
    remedy = (
        f"Give missing='drop' to leave out {rows}, missing='impute' to fill them in, or name "
        "these columns in drop=."
    )
    if fitted:
        remedy = (
            "The model was fitted with missing='error'. Fill them in, or fit it again with "
            "missing='impute' or missing='drop'."
        )
    return (
        f"{source}: {total} {'value is' if total == 1 else 'values are'} missing (or infinite), "
        f"by column: {listed(which)}. {remedy}"
    )


def note_left_out(
    notes: list[str], names: list[str], which: str = "with one value only", why: str = ONE_VALUE
) -> dict[str, str]:
    """Note the columns that were left out, and return the reason for each."""
    if names:
        notes.append(f"columns {which} were left out: {quoted_names(names)}")
    return dict.fromkeys(names, why)


def note_missing(
    notes: list[str], warnings: list[str], names: list[str], counts: Any, n_rows: int
) -> None:
    """Note the number of filled-in values, and warn about columns with many of them."""
    gone = [(name, int(count)) for name, count in zip(names, counts, strict=True) if count]
    total = sum(count for _, count in gone)
    which = listed(f"{shown(name)} {count:,}" for name, count in gone)
    notes.append(
        f"{total:,} missing value{'s were' if total > 1 else ' was'} filled in from similar rows, "
        f"by column: {which}"
    )
    if many := [(name, count) for name, count in gone if count > 0.2 * n_rows]:
        worst = listed(f"{shown(name)} {100 * count / n_rows:.0f} %" for name, count in many)
        warnings.append(
            f"many values are missing ({worst}), and clusters may depend on the values filled in; "
            "name these columns in drop=, or compare with missing='drop'"
        )


def note_huge(notes: list[str], table: Columns, places: list[int], X: NDArray[Any]) -> None:
    """Note integer columns whose values are not exact in float64."""
    if not table.is_frame:
        return
    dtypes = list(table.data.dtypes)
    whole = [(k, j) for k, j in enumerate(places) if dtypes[j].kind in "iu"]
    if huge := [table.names[j] for k, j in whole if np.abs(X[:, k]).max() > 2.0**53]:
        notes.append(
            f"integers above 2^53 lose their last digits: {quoted_names(huge)}; "
            "if they are ids, name them in id_column= or drop="
        )


def note_kinds(notes: list[str], preparation: Preparation) -> None:
    """Note the scaling of features, and the use of ordinal columns, dates, ids and categories."""
    if preparation.scale == "minmax":
        notes.append("features were scaled to the range 0 to 1")
    elif preparation.scale != "none":
        notes.append("features were scaled to mean 0 and standard deviation 1")
    by_kind: dict[str, list[str]] = {}
    for name, kind in zip(preparation.numbers_, preparation.number_kinds_, strict=True):
        by_kind.setdefault(kind.kind, []).append(name)
        if kind.kind == "date" and kind.reason:
            notes.append(
                f"every date of column {shown(name)} may have the day or the month first; they "
                f"were read with the {kind.layout} ({kind.reason}); if this is wrong, write them "
                "as 2024-12-31"
            )
    done = {"ordinal": "ordinal columns were replaced by the rank of their values"}
    done["date"] = "dates were converted to decimal years"
    notes += [f"{done[k]}: {quoted_names(by_kind[k])}" for k in done if k in by_kind]
    left_out = preparation.left_out_
    asked = ("not chosen", "names the rows")
    guessed = [n for n in left_out if preparation.kinds_.get(n) in ("id", "text", "ignore")]
    guessed = [n for n in guessed if n not in (preparation.kinds or {})]
    if said := [f"{shown(n)} ({left_out[n]})" for n in guessed if left_out[n] not in asked]:
        notes.append(f"columns of ids or text were left out: {listed(said)} ({USES_ONE})")
    if described := [name for name, why in left_out.items() if why.startswith("a category that")]:
        notes.append(
            f"categories describe the clusters but are not features: {quoted_names(described)}"
        )
    scores = preparation.scores_
    if scores is not None and preparation.numbers_:
        leading = list(dict.fromkeys(name for names in scores.leading for name in names))
        notes.append(
            f"categories that agree with each other give {scores.n_scores} "
            f"feature{'s' if scores.n_scores > 1 else ''}: {quoted_names(leading)}"
        )


# ---------------------------------------------------------------------- source columns


def source_columns(
    data: Any, preparation: Preparation, kept: NDArray[np.bool_], *, every: bool = False
) -> tuple[Any, list[str]]:
    """Return the original columns that a fitted preparation uses, and their names.

    Of the `kept` rows, numeric columns come first, then categorical ones, in units of the table
    and with missing values. In a DataFrame, ordinal columns are ordered categoricals, dates are
    timestamps. With `every`, the other columns except ids and text, and the weekday and month of
    dates follow.
    """
    table = as_columns(data)
    names = [name for name in preparation.used_ if name in preparation.kinds_]
    places = fitted_places(table, names, preparation.names_in_)
    rows = np.flatnonzero(kept)
    if not table.is_frame:
        columns = table.data[rows][:, places]
        if table.is_sparse and not np.isfinite(columns.data).all():
            columns = columns.toarray()  # its missing values were filled in as a dense table
        return columns, names
    import pandas as pd

    found: dict[str, Any] = {}
    used = dict(zip(preparation.numbers_, preparation.number_kinds_, strict=True))
    for j, name in zip(places, names, strict=True):
        kind = used.get(name, ColumnKind("categorical"))
        found[name] = _shown_column(table.data.iloc[rows, j], kind)
    if every:
        place, gone = {name: j for j, name in enumerate(table.names)}, preparation.left_out_
        others = [name for name, kind in preparation.kinds_.items() if kind not in ("id", "text")]
        others = [name for name in others if gone.get(name) not in ("not chosen", ONE_VALUE)]
        more = [place[name] for name in others if name in place and name not in found]
        for j, kind in zip(more, table.kinds(more, preparation.kinds or {}), strict=True):
            if kind.kind != "ignore":
                found[table.names[j]] = _shown_column(table.data.iloc[rows, j], kind)
        for name, kind in used.items():
            if kind.kind == "date":
                dates = as_dates(table.data.iloc[rows, place[name]], kind.layout)
                found |= date_parts(dates, name)
    return pd.DataFrame(found, index=table.data.index[rows]), list(found)


def _shown_column(series: Any, kind: ColumnKind) -> Any:
    import pandas as pd

    if kind.kind == "date":
        return as_dates(series, kind.layout)
    if kind.order is not None:
        words = series.astype(object).where(series.notna(), None)
        texts = [None if word is None else str(word).strip() for word in words]
        # New rows may have values that were not in the fitted table. They have no rank.
        values = [text if text in kind.order else None for text in texts]
        return pd.Categorical(values, categories=kind.order, ordered=True)
    if kind.kind == "numeric" and not pd.api.types.is_numeric_dtype(series.dtype):
        return as_numbers(series)
    return series.to_numpy() if series.dtype != object else series
