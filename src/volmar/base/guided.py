"""Fits with what the user knows: labels of some rows, links between rows, sizes of clusters."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import check_random_state
from volmar._clones import silent_clone
from volmar.base.blocks import refuse_blocks
from volmar.base.knowledge import Knowledge
from volmar.guidance.guide import Guide
from volmar.guidance.links import check_cannot_link, check_contradictions, check_must_link
from volmar.guidance.seeds import Seeds, check_seeds, names_of_clusters
from volmar.guidance.starts import leaf_labels, seeded_starts
from volmar.rows import is_dask

__all__ = ["GuidedMixin"]


class GuidedMixin:
    """A clusterer that takes labels of some rows and links between rows.

    It stands before `Clusterer`. A fit without any of them is that of the clusterer, bit by bit.
    With them the clusterer is fitted without first, and then once from each of a few starts, with
    `_guide` set: its `_fit_once` begins at the labels in `init` and, wherever it labels rows by
    scores, takes the labels of `_guide.place`. It leaves the numbers of clusters as they are.
    """

    classes_: NDArray[np.int64] | NDArray[np.str_]
    init: Any
    n_clusters: Any
    random_state: Any

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
    ) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR; with kernel="precomputed" kernel values of all pairs of rows. A
            dask array or DataFrame where the method needs sums over rows only (`MSPC`, `CPMMC`,
            `SKMMC`, and `KernelCPMMC` with method="nystroem").
        y : array of shape (n_samples,), optional
            Labels of some rows, integers or strings, with -1 (or None) for all others. These rows
            keep their labels, and clusters have their names (`classes_`). A `y` without any -1 is
            ignored, as by all clusterers of scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row; 2 is the same as writing the row twice. If the largest is above
            2**32 or below 2**-32, all are first divided by a power of two (`objective_` is then in
            that unit), and those below 2**-100 of the largest count as 0.
        must_link : array of shape (n_samples,), optional
            Group ids; rows with the same id are put in one cluster. -1 for rows in no group.
        cannot_link : array of shape (n_pairs, 2), optional
            Pairs of row numbers that are put in different clusters, where that is possible;
            `broken_links_` are those that are not.

        Returns
        -------
        self
        """
        known = Knowledge(y, must_link, cannot_link)
        return self._fit(X, sample_weight, known)  # type: ignore[attr-defined]

    def _fit_known(self, X: Any, weights: Any, known: Knowledge) -> bool:
        """Fit with what is known; False where nothing is."""
        n = X.shape[0]
        if is_dask(X):
            if any(value is not None for value in known):
                refuse_blocks(f"{type(self).__name__} with y or links")
            return False
        seeds = check_seeds(known.y, n)
        units = check_must_link(known.must_link, n)
        apart = check_cannot_link(known.cannot_link, n)
        if seeds is None and units is None and not apart.size:
            return False
        no_names = Seeds(np.empty(0, dtype=np.int64), np.full(n, -1, dtype=np.int64))
        names, numbers = seeds or no_names
        check_contradictions(numbers, names, units, apart)
        if weights is not None:
            # A row without weight has the label it was given, and no influence.
            weights = np.asarray(weights)
        self._fit_guided(X, weights, names, Guide(0, numbers, units, apart, weights=weights))
        return True

    def _fit_guided(self, X: Any, weights: Any, names: NDArray, known: Guide) -> None:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        k = None if isinstance(self.n_clusters, str) else int(self.n_clusters)
        if k is not None:
            names_of_clusters(names, k)  # refuses more classes than clusters
        free = silent_clone(self)
        free.n_features_in_ = X.shape[1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            free._fit_rows(X, weights)
        if k is None:
            starts, k = [free.labels_], int(free.labels_.max()) + 1
            if names.size:
                own, k = leaf_labels(free.labels_, known.seeds, names.size)
                starts = [own]
        elif names.size:
            starts = seeded_starts(X, free.labels_, known.seeds, k, seed)
        else:
            starts = [free.labels_]
        guide = replace(known, k=k)
        best = self._best_guided(X, weights, free, starts, guide)
        self._take_over(best)  # type: ignore[attr-defined]
        placed = guide.place(_columns(best._finite_scores(X), k))
        self._offsets = placed.offsets if placed.offsets.any() else None
        self._set_result(replace(best.result_, labels=placed.labels))  # type: ignore[attr-defined]
        if known.apart.size:
            self.broken_links_ = placed.broken
        if names.size:
            self.classes_ = names_of_clusters(names, k)
            self.labels_ = self.classes_[placed.labels]

    def _best_guided(
        self, X: Any, weights: Any, free: Any, starts: list[NDArray], guide: Guide
    ) -> Any:
        """Return the best of the fits from each start under a guide."""
        if guide.k < 2:
            return free
        fitted = [
            model
            for start in starts
            if (model := self._guided_fit(X, weights, free, start, guide)) is not None
        ]
        if not fitted:
            raise ValueError(
                f"{type(self).__name__} found no {guide.k} clusters that agree with y, the links "
                "and the sizes. Check them, or use another number of clusters."
            )
        return min(fitted, key=lambda model: model.objective_)

    def _guided_fit(self, X: Any, weights: Any, free: Any, start: NDArray, guide: Guide) -> Any:
        """Return a copy fitted from labels under a guide; None where it finds no k clusters."""
        labels = guide.place(np.eye(guide.k)[start]).labels
        if np.unique(labels).size < guide.k:
            return None
        params = self._guided_params(free)  # type: ignore[attr-defined]
        model = silent_clone(self).set_params(n_clusters=guide.k, init=labels, **params)
        model._guide = guide
        model.n_features_in_ = X.shape[1]
        model._fit_once(X, weights)
        return model


def _columns(scores: NDArray, k: int) -> NDArray:
    """Return scores as a column for each of k clusters."""
    if scores.ndim == 2:
        return scores
    return np.column_stack([np.zeros_like(scores), scores])[:, :k]
