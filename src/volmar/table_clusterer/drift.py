"""Compare new tables with the table to which a `TableClusterer` was fitted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from volmar.diagnostics.drift_summary import CategoryCounts, DriftSummary
from volmar.tables import Preparation, PreparedTable
from volmar.tables.columns import as_columns, as_pandas, check_table

if TYPE_CHECKING:
    from volmar.diagnostics import DriftReport

__all__ = ["TableDrift"]

# Kinds of columns for which the counts of values are compared.
CATEGORIES = ("categorical", "boolean")


class TableDrift(BaseEstimator):
    """Methods of `TableClusterer` that compare tables."""

    n_clusters_: int
    preparation_: Preparation
    model_: Any
    drift_summary_: DriftSummary

    def drift(self, data: Any, *, alpha: float = 0.05) -> DriftReport:
        """Test whether a new table differs from the fitted one.

        The shares of clusters, distances of rows from cluster centres, and columns are compared.
        Numeric columns are compared as prepared for the clusterer (after logs, filling in and
        scaling), categorical columns by the counts of their values. The fitted table itself is not
        needed, because the fit stores a summary, `drift_summary_`.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`, in any order.
        alpha : float, default=0.05
            Level of the tests: a table from the same source is reported as changed with at most
            about this probability.

        Returns
        -------
        volmar.diagnostics.DriftReport
            The differences and their p-values.
        """
        from volmar.diagnostics import drift  # a fit needs no tests

        return drift(self, data, alpha=alpha)

    def summarize_drift(self, data: Any, reference: DriftSummary | None = None) -> DriftSummary:
        """Summarise a table for a comparison. Summaries of blocks of a table can be joined.

        Parameters
        ----------
        data : DataFrame, LoadedTable, array, sparse array, str or path
            A table with the columns in `preparation_.used_`.
        reference : DriftSummary, default=None
            Summary with which the new one will be compared, such as `drift_summary_`. If None, the
            new summary is the reference of a comparison.

        Returns
        -------
        DriftSummary
            The summary of the table.
        """
        check_is_fitted(self)
        table = check_table(self, as_pandas(data), reset=False)
        rows = self.preparation_.prepare(table)
        labels = np.asarray(self.model_.predict(rows.X))
        return self._summary(rows, labels, table, reference)

    def _summary(
        self,
        rows: PreparedTable,
        labels: NDArray,
        table: Any,
        reference: DriftSummary | None = None,
    ) -> DriftSummary:
        """Return the summary of prepared rows in clusters, and of their table."""
        names = self.preparation_.feature_names_
        k = self.n_clusters_ if reference is None else reference.counts.size
        k = max(k, int(labels.max(initial=0)) + 1) if reference is None else k
        found = DriftSummary.of_rows(rows.X, labels, k, names, reference=reference)
        kept = rows.kept
        n_left_out = 0 if kept is None else int(np.count_nonzero(~np.asarray(kept)))
        categories: dict[str, CategoryCounts] = {}
        missing: dict[str, int] = {}
        if table is not None:
            known = {} if reference is None else reference.categories
            categories, missing = _values_of(self.preparation_, table, known)
        return replace(found, n_left_out=n_left_out, categories=categories, missing=missing)


def _values_of(
    preparation: Preparation, table: Any, known: dict[str, CategoryCounts]
) -> tuple[dict[str, CategoryCounts], dict[str, int]]:
    """Return the counts of categories, and of missing values in numeric columns."""
    columns = as_columns(table)
    missing: dict[str, int] = {}
    place = {name: j for j, name in enumerate(columns.names)}
    if not columns.is_sparse:
        names = [name for name in preparation.numbers_ if name in place]
        counts = columns.n_missing([place[name] for name in names])
        missing = {name: n for name, n in zip(names, counts, strict=True) if n}
    categories = {}
    if columns.is_frame:
        wanted = [name for name, kind in preparation.kinds_.items() if kind in CATEGORIES]
        for name in dict.fromkeys([*preparation.texts_, *wanted]):
            if name in place:
                before = known[name].counts if name in known else None
                counted = columns.categories(place[name])
                categories[name] = CategoryCounts.of_codes(*counted, before)
    return categories, missing
