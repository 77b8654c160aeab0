"""Predict the clusters of new rows of a table, and reject rows that belong to none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from volmar.base.clusterer import check_reject, rejected, warn_of_few_rows
from volmar.evidence import ClusterNovelty, calibrate_novelty
from volmar.tables import PreparedTable

__all__ = ["TableRejection", "check_rejection", "spread"]


class TableRejection:
    """Methods of `TableClusterer` that predict clusters, and reject rows by p-values."""

    novelty_: ClusterNovelty
    model_: Any
    n_clusters_: int
    _new_rows: Any

    def predict(self, data: Any, reject: float | None = None) -> NDArray[np.int64]:
        """Assign the rows of a table to the clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`, in any order.
        reject : float, default=None
            Rows whose `novelty_score` is at most this value, such as 0.01, get the label -1. This
            is about that share of the rows from the same source, and all rows that are as far from
            the clusters. If None, no rows are rejected.

        Returns
        -------
        ndarray of shape (n,)
            Cluster of each row. It is -1 for rejected rows, and for rows that are left out because
            of missing values.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        if reject is not None:
            check_rejection(self, reject)
            labels = rejected(labels, self.novelty_prepared(rows, labels), reject)
        return spread(labels, rows.kept, -1).astype(np.int64)

    def novelty_score(self, data: Any) -> NDArray[np.float64]:
        """Return the p-value of each row in its cluster. It is low for rows far from all clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in `preparation_.used_`.

        Returns
        -------
        ndarray of shape (n,)
            P-values. Among new rows from the source of the fitted table, at most about a share
            alpha has a p-value of at most alpha. NaN for rows that are left out because of missing
            values. The smallest possible value in each cluster is ``novelty_.min_p_values``.

        Notes
        -----
        P-values are computed from the prepared rows. A row without any values has the smallest
        p-value of all clusters. So has a row with an infinite value, or with ``scale="auto"`` an
        outlier in any column (more than ten times as far from the median as nearly all other
        values): the cluster is found from its other values, but the row is not an ordinary one.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        return spread(self.novelty_prepared(rows, labels), rows.kept, np.nan)

    def novelty_prepared(self, rows: PreparedTable, labels: NDArray) -> NDArray[np.float64]:
        """Return the p-values of prepared rows in given clusters.

        Parameters
        ----------
        rows : PreparedTable
            Rows prepared by `preparation_`, for example from a block of a table.
        labels : ndarray of int, shape (n,)
            Cluster of each row.

        Returns
        -------
        ndarray of shape (n,)
            P-values, as returned by `novelty_score`.
        """
        novelty = self._calibrated()
        return novelty.p_values(rows.X, labels, rows.outlying)

    def _calibrate(self, X: Any, labels: NDArray, seed: int) -> None:
        k = max(self.n_clusters_, int(labels.max(initial=0)) + 1)
        self.novelty_ = calibrate_novelty(X, labels, n_clusters=k, random_state=seed)

    def _calibrated(self) -> ClusterNovelty:
        check_is_fitted(self)
        if not hasattr(self, "novelty_"):
            raise ValueError(
                "This TableClusterer was saved by an older version of volmar, without the "
                "p-values that reject and novelty_score need. Fit and save it again."
            )
        return self.novelty_


def check_rejection(model: Any, reject: float) -> None:
    """Check the level and that the model has p-values, and warn if the level is too low."""
    check_reject(reject)
    novelty = getattr(model, "novelty_", None)
    if novelty is None:
        raise ValueError(
            f"reject={reject:g} needs p-values, and this {type(model).__name__} was saved without "
            "them. Save it again after TableClusterer.fit (volmar cluster --save), or after "
            "fit_novelty."
        )
    warn_of_few_rows(novelty, reject)


def spread(values: NDArray, kept: NDArray | None, missing: float) -> NDArray:
    """Return values of all rows from those of the kept rows, with `missing` for the others."""
    if kept is None or kept.all():
        return values
    out = np.full((len(kept), *values.shape[1:]), missing, dtype=values.dtype)
    out[kept] = values
    return out
