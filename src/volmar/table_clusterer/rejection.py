"""Clusters of new rows of a table, and rows that belong to none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from volmar.base.prediction import check_reject, rejected, warn_of_few_rows
from volmar.evidence import ClusterNovelty, calibrate_novelty

__all__ = ["TableRejection", "check_rejection", "spread"]


class TableRejection:
    """`predict` of `TableClusterer`, which may reject rows, and the calibration at its fit."""

    novelty_: ClusterNovelty
    model_: Any
    n_clusters_: int
    _new_rows: Any

    def predict(self, data: Any, reject: float | None = None) -> NDArray[np.int64]:
        """Assign the rows of a table to the clusters.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in use, in any order.
        reject : float, optional
            Label rows -1 whose `novelty_score` is at most this, 0.01 for example: about this share
            of the rows of the same source, and all strangers that are as far out.

        Returns
        -------
        ndarray of shape (n,)
            Cluster of each row; -1 for rows that are rejected, or left out for missing values.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        if reject is not None:
            check_rejection(self, reject)
            labels = rejected(labels, self.novelty_prepared(rows.X, labels), reject)
        return spread(labels, rows.kept, -1).astype(np.int64)

    def novelty_score(self, data: Any) -> NDArray[np.float64]:
        """Return p-values of the rows of a table in their clusters: low for strangers.

        Parameters
        ----------
        data : DataFrame, pyarrow Table, array, sparse array, str or path
            A table with the columns in use.

        Returns
        -------
        ndarray of shape (n,)
            Of new rows of the source of the fit, a share of about alpha, or less, has a p-value of
            at most alpha. NaN for rows that are left out for missing values. The smallest value of
            a cluster is ``novelty_.min_p_values``.

        Notes
        -----
        P-values are of the prepared rows. With ``scale="auto"`` a value more than ten times as far
        from the median as nearly all others counts as missing and is filled in, so that it does
        not make its row a stranger; ``scale="standard"`` keeps it.
        """
        rows = self._new_rows(data)
        labels = np.asarray(self.model_.predict(rows.X)).astype(np.int64)
        return spread(self.novelty_prepared(rows.X, labels), rows.kept, np.nan)

    def novelty_prepared(self, X: Any, labels: NDArray) -> NDArray[np.float64]:
        """Return p-values of rows that `preparation_` has made, in given clusters.

        Parameters
        ----------
        X : array of shape (n, d)
            Prepared rows, of a block of a table for example.
        labels : ndarray of int, shape (n,)
            Their clusters.

        Returns
        -------
        ndarray of shape (n,)
            As by `novelty_score`.
        """
        return self._calibrated().p_values(X, labels)

    def _calibrate(self, X: Any, labels: NDArray, seed: int) -> None:
        k = max(self.n_clusters_, int(labels.max(initial=0)) + 1)
        self.novelty_ = calibrate_novelty(X, labels, n_clusters=k, random_state=seed)

    def _calibrated(self) -> ClusterNovelty:
        check_is_fitted(self)
        if not hasattr(self, "novelty_"):
            raise ValueError(
                "this TableClusterer was saved by a version of volmar that did not calibrate "
                "p-values of rows, which reject and novelty_score need. Fit and save it again."
            )
        return self.novelty_


def check_rejection(model: Any, reject: float) -> None:
    """Refuse a level, or a fitted model without p-values; warn of levels that are out of reach."""
    check_reject(reject)
    novelty = getattr(model, "novelty_", None)
    if novelty is None:
        raise ValueError(
            f"reject={reject:g}: the model, {type(model).__name__}, was saved without the "
            "calibration of p-values. Save it again after TableClusterer.fit (volmar cluster "
            "--save), or after fit_novelty."
        )
    warn_of_few_rows(novelty, reject)


def spread(values: NDArray, kept: NDArray | None, missing: float) -> NDArray:
    """Return values of the kept rows as values of all rows."""
    if kept is None or kept.all():
        return values
    out = np.full((len(kept), *values.shape[1:]), missing, dtype=values.dtype)
    out[kept] = values
    return out
