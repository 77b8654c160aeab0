"""Prediction, and rejection of rows that belong to no cluster."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_number, check_random_state, shown
from volmar._memory import explain_memory
from volmar._threads import one_thread
from volmar._warn import warn_user
from volmar.base.blocks import lazily
from volmar.base.outcome import OneCluster, finite_scores, quiet
from volmar.base.recursion import RecursiveResult
from volmar.evidence import ClusterNovelty, calibrate_novelty
from volmar.rows import draw_from_collection, is_dask

__all__ = ["NoveltyMixin", "check_reject", "rejected", "warn_of_few_rows"]

# Maximum number of rows drawn from a dask collection: per cluster, and in total.
ROWS_PER_CLUSTER, DRAWN_ROWS = 4000, 100_000


class NoveltyMixin:
    """Scores and predictions of a clusterer, and the calibration for rejecting rows."""

    classes_: Any
    novelty_: ClusterNovelty
    tree_: Any
    _offsets: Any
    random_state: Any
    result_: Any

    @one_thread()
    @explain_memory
    def decision_function(self, X: Any) -> NDArray:
        """Score rows by the clusters found by `fit`.

        The documentation of each class defines its scores.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or their similarities to the training rows if `fit` was given similarities.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_clusters)
            With two clusters, scores are positive for cluster 1, and with one they are 0. With
            more clusters, a row belongs to the cluster with its largest score. For a dask array,
            the result is a lazy dask array in the same blocks. For a dask DataFrame, it is a
            Series or DataFrame with the same index.
        """
        if is_dask(X):
            check_is_fitted(self, "result_")
            return lazily(self, "decision_function", X)
        return self._finite_scores(self._validate(X, reset=False))

    def _finite_scores(self, rows: Any) -> NDArray:
        """Return the scores of validated rows."""
        if isinstance(self.result_, OneCluster):
            return np.zeros(rows.shape[0])
        with quiet():
            is_tree = isinstance(self.result_, RecursiveResult)
            scores = self.tree_.scores(rows) if is_tree else self._scores(rows)
        return self._with_offsets(finite_scores(scores, rows, self))

    def _with_offsets(self, scores: NDArray) -> NDArray:
        """Add the offsets that enforce the limits on cluster sizes."""
        if self._offsets is None:
            return scores
        if scores.ndim == 1:
            return scores + scores.dtype.type(self._offsets[1] - self._offsets[0])
        return scores + self._offsets.astype(scores.dtype)

    def predict(self, X: Any, reject: float | None = None) -> NDArray:
        """Assign rows to the clusters found by `fit`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows, or their similarities to the training rows if `fit` was given similarities.
        reject : float, optional
            Rows whose `novelty_score` is at most this value are labelled -1. With 0.01, about 1 %
            of the rows of the same source are rejected, and all other rows that are equally far
            out. Call `fit_novelty` first. If None, no row is rejected.

        Returns
        -------
        ndarray of shape (n_samples,)
            Cluster of each row, or its name in `classes_` if `fit` was given labels. If the names
            are strings, rejected rows are "-1". For a dask array, the result is a lazy dask array
            in the same blocks. For a dask DataFrame, it is a Series with the same index.
        """
        if reject is not None:
            check_reject(reject)
            warn_of_few_rows(self._novelty(), reject)
        if is_dask(X):
            check_is_fitted(self, "result_")
            if reject is None:
                return lazily(self, "predict", X)
            return lazily(self, "_predicted_or_rejected", X, reject=reject)
        if reject is None:
            return self._named(self._predicted(X))
        return self._predicted_or_rejected(X, reject=reject)

    def _named(self, labels: NDArray) -> NDArray:
        """Replace labels by the names of the clusters, if they have names; -1 stays -1."""
        if not hasattr(self, "classes_"):
            return labels
        return np.array([*self.classes_.tolist(), type(self.classes_.tolist()[0])(-1)])[labels]

    def novelty_score(self, X: Any) -> NDArray[np.float64]:
        """Return the p-value of each row in its cluster; it is low for rows of no cluster.

        For new rows from the same source as the rows given to `fit_novelty`, the share of p-values
        of at most alpha is at most about alpha.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            New rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            p-values between 1 / (1 + number of rows of the cluster) and 1, see
            `volmar.diagnostics.ClusterNovelty`. The result is lazy if X is a dask collection.
        """
        novelty = self._novelty()
        if is_dask(X):
            return lazily(self, "novelty_score", X)
        rows = self._validate(X, reset=False)
        return novelty.p_values(rows, self._predicted(X))

    @one_thread()
    @explain_memory
    def fit_novelty(self, X: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Calibrate `novelty_score`, after `fit`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            The training rows, or other rows from the same source. From a dask collection, a sample
            is drawn.
        sample_weight : array of shape (n_samples,), optional
            Weights of the rows. Only their ratios matter.

        Returns
        -------
        self
            The estimator with the attribute `novelty_`, a `volmar.diagnostics.ClusterNovelty`. The
            next `fit` deletes it.
        """
        check_is_fitted(self, "result_")
        if self._is_pairwise():
            raise ValueError(
                f"fit_novelty needs rows, but {type(self).__name__} was given values for pairs of "
                "rows ('precomputed'). Use volmar.diagnostics.calibrate_novelty(rows, labels_), "
                "or give the kernel or affinity by name."
            )
        rng = copy.deepcopy(check_random_state(self.random_state))
        n_clusters = self._n_labels()
        if is_dask(X):
            most = min(ROWS_PER_CLUSTER * n_clusters, DRAWN_ROWS)
            seed = int(rng.randint(2**31 - 1))
            drawn = draw_from_collection(X, sample_weight, seed=seed, most=most)
            X, sample_weight = drawn.rows, drawn.beside[0]
        rows = self._validate(X, reset=False)
        self.novelty_ = calibrate_novelty(
            rows,
            self._predicted(X),
            n_clusters=n_clusters,
            sample_weight=sample_weight,
            random_state=rng,
        )
        return self

    def _predicted_or_rejected(self, X: Any, *, reject: float) -> NDArray:
        labels = self._predicted(X)
        rows = self._validate(X, reset=False)
        return self._named(rejected(labels, self._novelty().p_values(rows, labels), reject))

    def _novelty(self) -> ClusterNovelty:
        check_is_fitted(self, "result_")
        if not hasattr(self, "novelty_"):
            raise NotFittedError(
                f"{type(self).__name__} is not calibrated for p-values of rows. Call "
                "fit_novelty(X) after fit, with the training rows or others from the same source."
            )
        return self.novelty_

    def _n_labels(self) -> int:
        raise NotImplementedError

    def _scores(self, X: Any) -> NDArray:
        raise NotImplementedError

    def _is_pairwise(self) -> bool:
        raise NotImplementedError

    def _predicted(self, X: Any) -> NDArray[np.int64]:
        raise NotImplementedError

    def _validate(self, X: Any, *, reset: bool) -> Any:
        raise NotImplementedError


def check_reject(reject: Any) -> float:
    """Return `reject` as a float; raise an error unless it is between 0 and 1."""
    number = check_number("reject", reject, low=0.0, high=1.0, open_low=True)
    if number == 1.0:
        raise ValueError(
            f"reject must be less than 1, got {shown(reject)}, which rejects all rows. It is the "
            "share of ordinary rows to reject. Use 0.01 for example."
        )
    return number


def rejected(labels: NDArray, p_values: NDArray, reject: float) -> NDArray[np.int64]:
    """Return labels with -1 where the p-value is at most `reject`."""
    return np.where(p_values <= reject, -1, labels).astype(np.int64)


def warn_of_few_rows(novelty: ClusterNovelty, reject: float) -> None:
    """Warn about clusters with too few calibration rows to reject any row at this level."""
    few = np.flatnonzero(novelty.min_p_values > reject)
    if few.size == 0:
        return
    listed = ", ".join(
        f"{j} (p-values of at least {novelty.min_p_values[j]:.3g})" for j in few[:5].tolist()
    )
    more = ", ..." if few.size > 5 else ""
    warn_user(
        f"reject={reject:g} rejects no row of cluster {listed}{more}, because the calibration had "
        f"too few rows. Use a larger reject, or call fit_novelty with at least "
        f"{int(np.ceil(1 / reject)) - 1} rows per cluster."
    )
