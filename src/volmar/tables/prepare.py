"""`Preparation`: turn the columns of a table into numeric features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import shown
from volmar._warn import warn_user
from volmar.tables.agreement import CategoryScores, category_scores
from volmar.tables.columns import (
    Columns,
    as_columns,
    check_table,
    chosen_places,
    names_given,
    table_tags,
)
from volmar.tables.errors import TableError
from volmar.tables.fitted_columns import FittedColumns, KeptRows, beyond_float64
from volmar.tables.informative import (
    CodedColumn,
    chosen,
    distinct_categories,
    informative_numbers,
    range_of,
)
from volmar.tables.kinds import ColumnKind, check_kinds
from volmar.tables.missing import (
    fits_dense,
    without_infinite,
    without_missing,
    without_missing_sparse,
)
from volmar.tables.notes import all_alike, note_huge, note_kinds, note_left_out
from volmar.tables.number_features import NumberFeatures, learn_features
from volmar.tables.prepared_table import PreparedTable

__all__ = ["Preparation"]

_CHOICES = {
    "scale": ("auto", "standard", "minmax", "none"),
    "missing": ("impute", "drop", "indicator", "error"),
}
_AS_NUMBERS = ("numeric", "ordinal", "date")
_AS_CATEGORIES = ("categorical", "boolean")


class Preparation(FittedColumns, TransformerMixin, BaseEstimator):
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
        """Raise `TableError` for invalid parameters, as `fit` does.

        Call it before a large table is read.
        """
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                choices = ", ".join(map(repr, allowed))
                raise TableError(f"{name} must be one of {choices}, got {shown(value)}.")
        for name in ("columns", "drop"):
            names_given(name, getattr(self, name))
        if self.id_column is not None and not isinstance(self.id_column, str):
            raise TableError(
                f"id_column must be the name of a column, got {shown(self.id_column)}."
            )
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

    @beyond_float64
    def _fit(self, table: Columns) -> KeptRows:
        if table.n_rows < 2:
            raise TableError(
                f"{table.source} has {table.n_rows} row{'' if table.n_rows == 1 else 's'}, and at "
                "least 2 are needed. Give a table with more rows."
            )
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
        stays_sparse = table.is_sparse and (
            self.scale == "none" or not fits_dense(table, self.scale, notes)
        )
        if stays_sparse:
            rows = self._fit_sparse(table, numbers, notes)
        else:
            kinds = [found[j] for j in numbers]
            rows = self._fit_dense(table, numbers, kinds, texts, notes)
            note_kinds(notes, self)
        self.feature_names_ = self._names_of_features({})
        self.notes_ = notes
        return rows

    def _fit_sparse(self, table: Columns, places: list[int], notes: list[str]) -> KeptRows:
        X, names = table.csr(places), [table.names[j] for j in places]
        X, kept = without_missing_sparse(table, X, names, self.missing, notes, fitted=False)
        keep = X.min(axis=0).toarray().ravel() < X.max(axis=0).toarray().ravel()
        self.numbers_, self.number_kinds_ = names, [ColumnKind("numeric")] * len(names)
        self._keep_numbers(keep, notes)
        self._refuse_nothing(table)
        return KeptRows(X if keep.all() else sp.csr_array(X[:, np.flatnonzero(keep)]), [], kept)

    def _fit_dense(
        self,
        table: Columns,
        places: list[int],
        kinds: list[ColumnKind],
        texts: list[int],
        notes: list[str],
    ) -> KeptRows:
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
        return KeptRows(X, codes, kept, filled, outlying)

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
            raise TableError(
                "All columns are constant on the rows without missing values. Give "
                "missing='impute'."
            )
        return X if keep.all() else X[:, keep]

    def _keep_numbers(self, keep: NDArray[np.bool_], notes: list[str]) -> None:
        self.left_out_ |= note_left_out(notes, chosen(self.numbers_, ~keep))
        self.numbers_ = chosen(self.numbers_, keep)
        self.number_kinds_ = chosen(self.number_kinds_, keep)

    def _refuse_nothing(self, table: Columns) -> None:
        if not self.numbers_ and self.scores_ is None:
            raise TableError(all_alike(table.source, self.left_out_))

    def _all_rows(self, rows: PreparedTable) -> Any:
        n_out = int(np.count_nonzero(~rows.kept))
        if n_out:
            raise TableError(
                f"{n_out:,} of {len(rows.kept):,} rows have missing values, and transform must "
                "return every row. Give missing='impute', or call prepare, which leaves these "
                "rows out."
            )
        return rows.X
