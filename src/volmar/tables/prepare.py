"""`Preparation`: from the columns of a table to the numbers that a method takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import shown
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
from volmar.tables.missing import fits_dense, without_missing, without_missing_sparse
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
    n_features_in_ : int
        Number of columns of the fitted table.
    feature_names_in_ : ndarray of str
        Their names, of a table that has names.
    names_in_ : list of str
        The same; x0, x1, ... for an array.
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
    'a category that no others agree with'

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
        """Learn kinds, categories, fills, offsets and scales.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            The table; a DataFrame of pandas or polars, or a pyarrow Table.
        y : ignored
            For pipelines.

        Returns
        -------
        Preparation
            Itself.
        """
        self._fit(as_columns(check_table(self, X, reset=True)))
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of a table, a new one perhaps.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            A table with the columns in use; others are ignored.

        Returns
        -------
        array of shape (n, d)
            One row for each of the table, so that rows to be left out (``missing="drop"``) are
            refused; `prepare` returns those that are kept.
        """
        check_is_fitted(self)
        return self._all_rows(self.prepare(check_table(self, X, reset=False)))

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # type: ignore[override]  # noqa: ARG002
        """Fit, and return the features of the same table.

        Parameters
        ----------
        X : DataFrame, LoadedTable, array or sparse array
            The table.
        y : ignored
            For pipelines.

        Returns
        -------
        array of shape (n, d)
            As by `transform`.
        """
        return self._all_rows(self.fit_prepare(X))

    def prepare(self, table: Any) -> PreparedTable:
        """Return the rows of a table, a new one perhaps, with their names and with notes.

        Parameters
        ----------
        table : DataFrame, LoadedTable, array or sparse array
            A table with the columns in use; others are ignored. The columns of an array
            without names are taken by their place.

        Returns
        -------
        PreparedTable
            A value of a category that was not there at the fit counts as a missing one, with a
            note.
        """
        check_is_fitted(self)
        columns = as_columns(table)
        notes = list(columns.notes)
        return self._finish(columns, self._new_rows(columns, notes), notes, [])

    def fit_prepare(self, table: Any) -> PreparedTable:
        """Fit, and return the rows of the same table, with the notes of the fit.

        Parameters
        ----------
        table : DataFrame, LoadedTable, array or sparse array
            The table.

        Returns
        -------
        PreparedTable
            As by `fit` and `prepare`.
        """
        columns = as_columns(check_table(self, table, reset=True))
        rows = self._fit(columns)
        return self._finish(columns, rows, list(self.notes_), list(self.warnings_))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : array of str, default=None
            Names of the columns of an array, in place of x0, x1, ...

        Returns
        -------
        ndarray of str
            One for each column of `transform`.
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
            raise ValueError("input_features is not equal to feature_names_in_. Leave it out.")
        called = dict(zip(self.names_in_, given, strict=False))
        return np.array(self._names_of_features(called), dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn which input is taken."""
        return table_tags(super().__sklearn_tags__(), self.missing)

    # ---------------------------------------------------------------------- columns

    def check_parameters(self) -> Self:
        """Refuse wrong parameters, as `fit` does, before a large table is read."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                raise TableError(f"{name}={shown(value)} must be one of {', '.join(allowed)}")
        for name in ("columns", "drop"):
            names_given(name, getattr(self, name))
        if self.id_column is not None and not isinstance(self.id_column, str):
            raise TableError(f"id_column={shown(self.id_column)} must be the name of a column")
        check_kinds(self.kinds)
        return self

    def choose(self, table: Columns) -> list[int]:
        """Check the parameters, and return the places of the columns that they leave."""
        self.check_parameters()
        places = chosen_places(table, self.columns, self.drop, self.id_column)
        table.find(list(self.kinds or {}), "kinds=")
        return places

    def _find_kinds(self, table: Columns) -> dict[int, ColumnKind]:
        """Return the kinds of the columns that the parameters leave, by their places."""
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
                "least 2 are needed to compare rows; give a table with more rows"
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
        # 1. Numbers: without columns that say nothing.
        words: list[str] = []
        X = table.numbers(places, kinds, words)
        if words and self.missing == "error":
            raise TableError(
                f"{table.source}: {words[0]}, which missing='error' refuses; give "
                "missing='impute' or missing='drop', or name this column in drop="
            )
        notes += words
        fills = self.missing in ("impute", "indicator")
        names = [table.names[j] for j in places]
        keep, gone = informative_numbers(names, X, fills=fills, notes=notes)
        self.left_out_ |= gone
        self.numbers_, self.number_kinds_ = chosen(names, keep), chosen(kinds, keep)
        X = X if keep.all() else X[:, keep]
        note_huge(notes, table, chosen(places, keep), X)
        # 2. Categories: the scores in which they agree.
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
        self.number_features_, X, filled = learn_features(
            table.source, self.numbers_, X, scale=self.scale, fills=fills, notes=notes
        )
        return KeptRows(X, codes, kept, filled)

    def _find_scores(self, coded: list[CodedColumn], notes: list[str]) -> list[NDArray[np.intp]]:
        """Find the scores in which categories agree, and return the codes that they take."""
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
                self.left_out_[name] = "a category that no others agree with"
        return [code for _, code, _ in used]

    def _drop_constant(self, X: NDArray[Any], notes: list[str]) -> NDArray[Any]:
        """Leave out columns that have one value in the rows without missing values."""
        low, high = range_of(X)
        keep = low < high
        self._keep_numbers(keep, notes)
        if not self.numbers_ and self.scores_ is None:
            raise TableError(
                "no column has two different values in the rows without missing values; give "
                "missing='impute'"
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
                f"{n_out:,} of {len(rows.kept):,} rows have missing values, and transform returns "
                "every row; give missing='impute', or use prepare, which leaves these rows out"
            )
        return rows.X
