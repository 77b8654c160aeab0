"""`MSPC.partial_fit`: clusters of batches of rows, updated from accumulated moments."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from volmar._checks import shown
from volmar._memory import explain_memory, require_memory
from volmar._threads import one_thread
from volmar._warn import warn_user
from volmar._weights import check_sample_weight
from volmar.base.blocks import refuse_blocks
from volmar.base.outcome import check_fitted_values, forget, quiet
from volmar.guidance.knowledge import check_seeds
from volmar.rows import Moments, as_rows, is_dask, standardized
from volmar.separation.batch_moments import (
    BatchMoments,
    clusters_from_moments,
    hyperplane_from_moments,
)
from volmar.separation.problem import SeparationRows
from volmar.separation.tree import SeparationTree
from volmar.solvers import Status

# Required values of parameters: batches are clustered by linear discriminants of moments.
NEEDED = {
    "kernel": "linear",
    "multiway": "recursive",
    "solver": "gep",
    "mode": "default",
    "polish": None,
}


class BatchSeparation(SeparationTree):
    """Base class of `MSPC` that implements `partial_fit`."""

    n_features_in_: int
    n_samples_seen_: int
    batch_moments_: BatchMoments

    @abstractmethod
    def _publish_sides(
        self, rows: SeparationRows, result: Any, sides: tuple[Moments, Moments]
    ) -> None:
        """Set the fitted attributes of two clusters, from the moments of clusters 0 and 1."""

    @one_thread()
    @explain_memory
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Update the clusters with a batch of rows.

        The first batch is clustered by `fit`. A model that was fitted by `fit` starts again with a
        warning, because its rows were not kept. Each later batch is assigned to clusters by the
        current discriminants. Its moments are added to those of the earlier batches: weight, mean
        and second moments of all rows, and weight and mean of each cluster. The discriminants are
        then computed again from the sums. For two clusters they are the hyperplane of MSPC-GEP for
        these moments, cut midway between the means. Rows are not kept.

        A batch of n rows costs O(n d²) and an update of k clusters O(d³ + k d²), independent of
        the number of earlier rows. Earlier rows are not reassigned, so the result depends on the
        order of the batches. The first batch should have a few hundred rows from all clusters.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Batch of rows in memory, dense or CSR. Later batches may have a single row.
        y : array of shape (n_samples,), optional
            Ignored if all labels are known, as in `fit`. Labels of some rows are refused, because
            only `fit` can use them.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; weight 2 is the same as a duplicated row.

        Returns
        -------
        self
            `labels_` and `result_` refer to the last batch, `n_samples_seen_` to all batches.
            Cluster numbers do not change, even if the order of the sizes does. `tree_` describes
            the first batch and is removed with the second. `min_cluster_size` applies to the
            first batch only.

        Examples
        --------
        >>> from volmar import MSPC
        >>> from volmar.datasets import make_blobs
        >>> X, _ = make_blobs(900, centers=3, random_state=0)
        >>> model = MSPC(3, random_state=0)
        >>> for batch in (X[:300], X[300:600], X[600:]):
        ...     model = model.partial_fit(batch)
        >>> model.n_samples_seen_, model.labels_.shape, model.coef_.shape[0]
        (900, (300,), 3)
        """
        self._check_batches(X)
        if y is not None and np.ndim(X) == 2 and check_seeds(y, np.shape(X)[0]) is not None:
            raise ValueError(
                "y holds labels of some rows, which partial_fit cannot use. Use fit with y, or "
                "leave y out."
            )
        if hasattr(self, "batch_moments_"):
            self._add_batch(X, sample_weight)
            return self
        if hasattr(self, "result_"):
            warn_user(
                "this model was fitted by fit, which keeps no moments. partial_fit starts again "
                "with this batch. Use partial_fit from the first batch on, or "
                "MSPC(..., init=model).partial_fit(X) to start from the clusters of a model."
            )
        self.fit(X, sample_weight=sample_weight)
        try:
            self._begin(X, sample_weight)
        except BaseException:
            forget(self)
            raise
        return self

    def _check_batches(self, X: Any) -> None:
        if is_dask(X):
            refuse_blocks("MSPC.partial_fit", "a batch must be in memory; use fit for all blocks")
        if not isinstance(self.n_clusters, Integral) or int(self.n_clusters) < 2:
            raise ValueError(
                f"n_clusters={shown(self.n_clusters)} must be an integer of at least 2 for "
                "partial_fit. Find it with fit on a sample."
            )
        for name, needed in NEEDED.items():
            if getattr(self, name) != needed:
                raise ValueError(
                    f"partial_fit does not support {name}={shown(getattr(self, name))}, because "
                    f"it keeps only moments of rows. Use {name}={needed!r}, or fit."
                )

    def _begin(self, X: Any, sample_weight: Any) -> None:
        """Keep the moments of the first batch."""
        k, rows = int(self.n_clusters), self._validate(X, reset=False)
        d = rows.shape[1]
        require_memory(
            (4.0 if k > 2 else 6.0) * 8 * d**2,
            f"the second moments of {d} columns",
            "Reduce the columns first, e.g. with sklearn.decomposition.TruncatedSVD(100).",
        )
        weights = check_sample_weight(sample_weight, rows.shape[0])
        with quiet():
            source = as_rows(rows, sample_weight=weights)
            moments = BatchMoments.of_rows(source, self.labels_, k)
        if not moments.weight.min() > 0:
            found = int(np.count_nonzero(moments.weight))
            raise ValueError(
                f"the first batch of {rows.shape[0]} rows has only {found} of n_clusters={k} "
                "clusters. Start with a larger batch, or lower n_clusters."
            )
        if not hasattr(self, "reg_"):  # the result is the tree itself
            splits = [node.model for node in self.tree_.splits()]
            found_regs = [model.reg_ for model in splits if hasattr(model, "reg_")]
            self.reg_ = min(found_regs, default=self._solver().usual_reg)
        self.batch_moments_, self.n_samples_seen_ = moments, moments.n_rows

    def _add_batch(self, X: Any, sample_weight: Any) -> None:
        """Add a batch; the model is unchanged if that fails."""
        before = self.batch_moments_
        k = before.weight.size
        if int(self.n_clusters) != k:
            raise ValueError(
                f"n_clusters={self.n_clusters} differs from the {k} clusters of earlier batches. "
                f"Set n_clusters={k}, or start with a clone of the model."
            )
        rows = self._validate(X, reset=False)
        weights = check_sample_weight(sample_weight, rows.shape[0])
        with quiet():
            labels = self._predicted(X)
            source = as_rows(rows, sample_weight=weights)
            moments = before.joined(BatchMoments.of_rows(source, labels, k))
            new = object.__new__(type(self))
            vars(new).update(vars(self))
            vars(new).pop("tree_", None)
            new._set_moments(moments)
            # The clusters of the updated model are those that `predict` gives.
            after = new._predicted(X)
        moved = float(np.count_nonzero(after != labels)) / labels.size
        status = Status.CONVERGED if moved <= self._value_of("tol") else Status.MAX_ITER
        new._set_result(
            replace(new.result_, labels=after, residuals={"moves": moved}, status=status)
        )
        check_fitted_values(new, rows)
        vars(self).pop("tree_", None)
        vars(self).update(vars(new))

    def _set_moments(self, moments: BatchMoments) -> None:
        """Update the fitted attributes from moments."""
        z, reg = moments.standardized(), float(self.reg_)
        rows: Any = SeparationRows(None, z.rows, standardized, reg, None, self.min_cluster_weight_)
        rows.z = z
        if moments.weight.size == 2:
            result = hyperplane_from_moments(moments, z, reg)
            self.result_ = result
            self._publish_sides(rows, result, moments.sides(z))
        else:
            self.result_ = clusters_from_moments(moments, z, reg)
            self._publish_clusters(rows, self.result_, reg)
        self.batch_moments_, self.n_samples_seen_ = moments, moments.n_rows
