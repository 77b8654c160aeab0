"""The estimator base: validation, restarts, callbacks, fitted attributes, prediction."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_number, check_random_state, shown
from volmar._clones import silent_clone
from volmar._input import check_rows
from volmar._memory import explain_memory
from volmar._threads import in_jobs, one_thread
from volmar._warn import warn_user
from volmar._weights import as_weights
from volmar.base.blocks import (
    check_blocks,
    check_weights,
    is_dask_frame,
    lazily,
    refuse_blocks,
    with_dask_vectors,
    without_vectors,
)
from volmar.base.numbering import cluster_order
from volmar.base.outcome import (
    CallbackSupportMixin,
    OneCluster,
    finite_scores,
    fit_steps,
    fresh_fit,
    quiet,
    with_callbacks,
)
from volmar.base.recursion import (
    GrownTree,
    PartRows,
    RecursiveResult,
    fit_in_two,
    grow_tree,
    side_of,
    tree_words,
    warn_of_tree,
)
from volmar.base.shared_texts import with_shared_texts
from volmar.base.tree import SplitTree, scores_in_graph
from volmar.base.validation import check_n_clusters, refuse_text
from volmar.evidence import ClusterNovelty, calibrate_novelty
from volmar.guidance.guide import Guide
from volmar.guidance.knowledge import Knowledge, Seeds
from volmar.metrics.separation_bound import separation_along
from volmar.rows.anywhere import as_rows, constant_vector, draw_from_collection, is_in_memory
from volmar.rows.blocks import is_dask
from volmar.rows.parts import Parts
from volmar.rows.protocol import RowSource
from volmar.solvers import Status

# Maximum number of rows used to split a part.
SAMPLED_ROWS = 20_000


class Clusterer(CallbackSupportMixin, ClusterMixin, BaseEstimator, ABC):
    """Base class of all clusterers.

    A subclass checks its parameters (`_check_parameters`), prepares the data once (`_problem`),
    runs one start on the prepared data (`_run`, which returns a certified `Result` with a `labels`
    field) and scores rows by the result (`_scores`). The start with the lowest objective is kept.
    A method that supports sample weights derives from `WeightedClusterer`.

    Clusters are numbered by size. The largest is cluster 0, and ties go to the cluster that
    contains the first row. `_finish` renumbers the result before it calls `_publish`. Sizes
    include `sample_weight`.

    Progress is reported to scikit-learn's callbacks (scikit-learn 1.9 and later). After
    ``model.set_callbacks(ProgressBar())``, `fit` reports every start, or every split if clusters
    are found by recursive splitting. There is no `verbose`.
    """

    #: Minimum number of clusters that `_run` can find. If 2, `fit` handles n_clusters=1 itself.
    _min_clusters: ClassVar[int] = 2
    #: How a method without a parameter `multiway` finds more than two clusters: "joint" (all at
    #: once) or "recursive" (by repeated splits in two).
    _multiway: ClassVar[str] = "joint"
    #: Parameters that may hold one entry per row, which do not work with recursive splitting.
    _row_parameters: ClassVar[tuple[str, ...]] = ("init", "Q")
    #: Whether `init` may be a fitted model.
    _takes_models: ClassVar[bool] = False
    #: Whether dask collections are supported: the method needs only sums over rows.
    _takes_blocks: ClassVar[bool] = False
    #: Whether the fit of a part may raise `PostponedSplitError` if its `_hurdle` is above 0.
    _postpones: ClassVar[bool] = False
    #: Fitted numbers that are documented to be NaN in some fits; all others are finite.
    _may_be_nan: ClassVar[tuple[str, ...]] = ()
    #: Values used for parameters that are None, by `mode` and name; see the page *Symbols*.
    _mode_defaults: ClassVar[dict[str, dict[str, Any]]] = {}
    #: Whether sparse X is supported.
    _accepts_sparse: ClassVar[bool] = True
    #: The known labels, links and size limits, during a guided fit.
    _guide: Guide | None = None
    #: Offsets added to the scores of the clusters so that their sizes respect the limits.
    _offsets: NDArray | None = None

    #: The model given as `init`, during a fit that starts from it; `init` of the working copy then
    #: holds the labels predicted by the model, or the default if these cannot be the start.
    _previous: Previous | None = None

    # Parameters that every clusterer declares in its own __init__.
    n_clusters: Any
    random_state: Any
    mode: str

    # The names are integers or strings, as in the labels given by the user.
    classes_: NDArray[np.int64] | NDArray[np.str_]
    tree_: SplitTree
    novelty_: ClusterNovelty
    previous_clusters_: NDArray[np.int64]
    labels_: NDArray[np.int64] | NDArray[np.str_]
    result_: Any

    # ------------------------------------------------------------------ for the subclass

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__doc__ = with_shared_texts(cls.__doc__)

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise a clear error for a parameter that is invalid for any data."""

    def _check_all_parameters(self) -> None:
        """Check all parameters, including those of mixins."""
        self._check_parameters()

    @abstractmethod
    def _problem(self, X: Any, weights: NDArray | None) -> Any:
        """Return the data shared by all starts, such as a kernel matrix or moments."""

    @abstractmethod
    def _run(self, problem: Any, seed: int, /) -> Any:
        """Run one start and return a `Result` that has `labels`."""

    @abstractmethod
    def _scores(self, X: Any) -> NDArray:
        """Return scores of validated rows: (n,) for two clusters, (n, k) otherwise."""

    def _value_of(self, name: str) -> Any:
        """Return a parameter, or its default in this mode if it is None."""
        value = getattr(self, name)
        return self._mode_defaults[self.mode].get(name) if value is None else value

    def _n_starts(self) -> int:
        return int(getattr(self, "n_init", 1))

    def _is_pairwise(self) -> bool:
        named = (getattr(self, "kernel", None), getattr(self, "affinity", None))
        return any(isinstance(value, str) and value == "precomputed" for value in named)

    def _is_recursive(self) -> bool:
        """Return whether more than two clusters are found by recursive splitting."""
        return bool(getattr(self, "multiway", self._multiway) == "recursive")

    def _split_probability(self, model: Any, X: Any, weights: NDArray | None, /) -> float:
        """Return the probability with which a split in two separates the rows."""
        scores = scores_in_graph(model, X)
        return separation_along(scores, model.labels_.astype(bool), weights)

    def _split_worth(self, model: Any, probability: float, /) -> float:  # noqa: ARG002
        """Return the value by which splits of different parts are ranked: excess over chance."""
        # A random split has 0.5. Splits below it are still ranked by their probability.
        return max(probability - 0.5, 0.0) + 1e-3 * probability

    def _ask_first(self, rows: RowSource) -> None:
        """Request the first statistics of a fit to a dask collection, for a single pass."""
        rows.mean()

    def _renumbered(self, problem: Any, result: Any, order: NDArray, /) -> Any:  # noqa: ARG002
        """Return a result with cluster ``order[j]`` as cluster j.

        A subclass also reorders here all other values per cluster that `_publish` uses.
        """
        return result.renumbered(order)

    def _publish(self, problem: Any, result: Any, /) -> None:
        """Set the fitted attributes that are specific to the method."""

    # ------------------------------------------------------------------ the template

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 -- scikit-learn's signature
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR. With affinity="precomputed" or kernel="precomputed", the
            similarities or kernel values of all pairs of rows.
        y : ignored
            For compatibility with scikit-learn.

        Returns
        -------
        self
        """
        return self._fit(X)

    @with_callbacks
    @one_thread()
    @explain_memory
    def _fit(
        self, X: Any, sample_weight: ArrayLike | None = None, known: Knowledge | None = None
    ) -> Self:
        with fresh_fit(self, X) as fitted:
            vars(fitted).pop("_offsets", None)  # left by the previous fit
            with warm_start(fitted, X, sample_weight):
                fitted._fit_rows(X, sample_weight, known)
        if is_dask_frame(X):
            # Labels for X.assign: the blocks of X as an array may differ from its partitions.
            self._set_lazy_labels(X, known)
        return self

    def _status_words(self, result: Any) -> str:
        """Explain a status other than CONVERGED, with a remedy; "" selects the general text."""
        return tree_words(result) if isinstance(result, RecursiveResult) else ""

    def _fit_rows(
        self, X: Any, sample_weight: ArrayLike | None, known: Knowledge | None = None
    ) -> None:
        refuse_text(self.n_clusters)
        self._check_all_parameters()
        check_random_state(self.random_state)
        X = self._validate(X, reset=True)
        n_samples = X.shape[0]
        if self._is_pairwise() and X.shape[1] != n_samples:
            raise ValueError(
                f"a precomputed matrix must be square for fit, got shape {X.shape}. Pass "
                "similarities between all pairs of training rows."
            )
        check_n_clusters(self.n_clusters, n_samples)
        self._fit_checked(X, sample_weight, known)

    def _fit_checked(self, X: Any, sample_weight: Any, known: Knowledge | None) -> None:
        """Find the clusters of validated rows."""
        weights = check_weights(X, sample_weight, self._ask_first)
        n_counted = X.shape[0] if weights is None else int(np.count_nonzero(weights))
        if n_counted < self.n_clusters:
            raise ValueError(
                f"n_clusters={self.n_clusters} is more than the number of rows with a positive "
                f"sample_weight, {n_counted}. Weights below 2**-100 of the largest count as 0. "
                "Lower n_clusters."
            )
        if known is not None and self._fit_known(X, weights, known):
            return
        if fit_distinct(self, X, weights):
            return
        if self.n_clusters < self._min_clusters:
            self._set_result(OneCluster(0.0, 0.0, labels=constant_vector(as_rows(X), 0, np.int64)))
        elif self.n_clusters > 2 and self._is_recursive():
            self._fit_tree(X, weights, fit_steps(self, X, self.n_clusters - 1, "split"))
        else:
            self._fit_once(X, weights)

    def _fit_once(self, X: Any, weights: Any) -> None:
        """Find all clusters of validated rows at once."""
        problem = self._problem(X, weights)
        n_starts = self._n_starts()
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=n_starts)
        jobs = None if is_in_memory(X) else 1
        results = in_jobs(partial(self._run, problem), seeds.tolist(), jobs, share_rows=True)
        best: Any = None
        for _, result in zip(fit_steps(self, X, n_starts), results, strict=False):
            if best is None or result.objective < best.objective:
                best = result
        self._finish(problem, best, weights)

    def _finish(self, problem: Any, result: Any, weights: Any) -> None:
        """Set the fitted attributes, with the clusters numbered by size."""
        order = self._order(result.labels, weights)
        result = self._renumbered(problem, result, order)
        self._set_result(result)
        self._publish(problem, result)

    def _order(self, labels: Any, weights: Any) -> NDArray:
        """Return the order of the clusters: by size, or unchanged if the user named them."""
        k = int(self.n_clusters)
        if self._guide is not None and self._guide.has_names:
            return np.arange(k)
        return self._cluster_order(labels, weights, k)

    def _guided_params(self, free: Any, /) -> dict[str, Any]:  # noqa: ARG002 -- see `GammaWidth`
        """Return parameters chosen by the unguided fit, for use in guided fits."""
        return {}

    def _fit_known(self, X: Any, weights: Any, known: Knowledge, /) -> bool:  # noqa: ARG002
        """Fit with known labels and links; return False if there are none."""
        return False

    def _fit_seeded_blocks(self, X: Any, weights: Any, seeds: Seeds, /) -> None:  # noqa: ARG002
        """Fit a dask collection with some labelled rows, if the method supports it."""
        refuse_blocks(f"{type(self).__name__} with y")

    def _fit_tree(self, X: Any, weights: Any, steps: Iterable[int]) -> GrownTree:
        """Find clusters by recursive splits of X in two."""
        for name in self._row_parameters:
            value: Any = getattr(self, name, None)
            if np.ndim(value) > 0 or sparse.issparse(value):
                raise ValueError(
                    f"{name} holds one entry per row, but more than two clusters are found by "
                    f"splitting the rows. Leave {name} out, or use n_clusters=2."
                )
        seeds = check_random_state(self.random_state)
        parts = Parts(
            X,
            weights,
            most=SAMPLED_ROWS if self._samples_parts() else None,
            seed=int(copy.deepcopy(seeds).randint(2**31 - 1)),
            pairwise=self._is_pairwise(),
        )
        grown, result = grow_tree(
            parts,
            fit=self._fit_part,
            probability=self._split_probability,
            worth=self._split_worth,
            side=side_of,
            steps=steps,
            seeds=seeds,
            pairwise=self._is_pairwise(),
            feature_names=getattr(self, "feature_names_in_", None),
            postpones=self._postpones,
        )
        self.tree_ = grown.tree
        self._number_tree(grown)
        self._set_result(replace(result, labels=grown.labels()))
        warn_of_tree(self.tree_, self.n_clusters)
        return grown

    def _samples_parts(self) -> bool:
        """Return whether large parts are split by a sample; other rows follow their scores."""
        return self._takes_blocks and not self._is_pairwise()

    def _fit_part(self, part: PartRows, **params: Any) -> Any:
        return fit_in_two(self, part, **params)

    def _of_part(self, part: PartRows) -> dict[str, Any]:
        """Return private attributes to set on the copy of this clusterer that splits a part."""
        return {"_hurdle": part.hurdle} if part.hurdle > 0.0 else {}

    def _take_over(self, model: Any) -> None:
        """Copy the fitted attributes of a copy with other parameters, for the same columns."""
        own = {
            *self.get_params(deep=False),
            "n_features_in_",
            "feature_names_in_",
            "_keeps_sizes",
            "_cut",
            "_guide",
            "_ends_first",
        }
        for name, value in vars(model).items():
            if name not in own:
                setattr(self, name, value)

    def _set_lazy_labels(self, X: Any, known: Knowledge | None = None) -> None:  # noqa: ARG002
        """Set the labels to the lazy predictions for a dask collection."""
        self.labels_ = lazily(self, "predict", X)
        self.result_ = replace(self.result_, labels=self.labels_)

    def _set_result(self, result: Any) -> None:
        result = with_dask_vectors(result)
        self.labels_ = result.labels.astype(np.int64)
        self.objective_: float = result.objective
        self.n_iter_: int = result.n_iter
        self.status_: Status = result.status
        self.result_ = result
        if hasattr(self, "tree_") and isinstance(self.labels_, np.ndarray):
            # A fit may move rows after the splits.
            self.tree_.sizes = tuple(np.bincount(self.labels_).tolist())

    def fit_predict(self, X: Any, y: Any = None, **kwargs: Any) -> NDArray[np.int64]:
        """Find the clusters of X and return the cluster of each row.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Rows, as in `fit`.
        y : ignored
            For compatibility with scikit-learn.
        **kwargs : dict
            Passed to `fit`, for example sample_weight if the method supports it.
        """
        return super().fit_predict(X, y, **kwargs)

    # ------------------------------------------------------------------ scores and predictions

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
            `volmar.evidence.ClusterNovelty`. The result is lazy if X is a dask collection.
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
            The estimator with the attribute `novelty_`, a `volmar.evidence.ClusterNovelty`. The
            next `fit` deletes it.
        """
        check_is_fitted(self, "result_")
        if self._is_pairwise():
            raise ValueError(
                f"fit_novelty needs rows, but {type(self).__name__} was given values for pairs of "
                "rows ('precomputed'). Use volmar.evidence.calibrate_novelty(rows, labels_), "
                "or give the kernel or affinity by name."
            )
        rng = copy.deepcopy(check_random_state(self.random_state))
        n_clusters = self._n_labels()
        if is_dask(X):
            most = min(4000 * n_clusters, 100_000)
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
        """Return the number of clusters that rows may be assigned to."""
        if hasattr(self, "classes_"):
            return len(self.classes_)
        return int(self.n_clusters)

    def _predicted(self, X: Any) -> NDArray[np.int64]:
        """Return the clusters with the highest scores, for rows in memory."""
        scores = self.decision_function(X)
        chosen = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
        return chosen.astype(np.int64)

    def _validate(self, X: ArrayLike, *, reset: bool) -> Any:
        """Return checked rows."""
        if not reset:
            check_is_fitted(self, "result_")
        if is_dask(X):
            if not self._takes_blocks or self._is_pairwise():
                refuse_blocks(type(self).__name__)
            return check_blocks(self, X, reset=reset)
        takes_sparse, minimum = self._accepts_sparse, 2 if reset else 1
        rows = check_rows(
            X, estimator=self, reset=reset, accept_sparse=takes_sparse, min_rows=minimum
        )
        if not self._takes_blocks and not sparse.issparse(rows):
            # The last digits of distances depend on the order of X in memory, and methods of all
            # pairs of rows amplify them. Methods for many rows would not gain by the copy.
            rows = np.ascontiguousarray(rows)
        return rows

    # ------------------------------------------------------------------ `init` as a fitted model

    def _of_previous(self, model: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return values for parameters that are not set, as found by the previous model."""
        return {}

    def _hand_on(self, copied: Any) -> Any:
        """Return the copy, prepared to number its clusters in the same way as this estimator."""
        if self._previous is not None:
            copied._previous = self._previous
        return copied

    def _cluster_order(self, labels: Any, weights: Any, k: int) -> NDArray[np.intp]:
        """Return the order of k clusters: by size, or matched to the previous model."""
        order = cluster_order(labels, weights, k)
        previous = self._previous
        if previous is None or labels.shape != previous.labels.shape:  # labels of a sample
            return order
        return matched_order(taken_numbers(previous.labels, labels, previous.weights, k), order)

    def _number_tree(self, grown: GrownTree) -> None:
        """Set the cluster numbers of a tree, using the rows of the first split."""
        grown.number_by_size()
        if self._previous is None:
            return
        tree, sample = grown.tree, grown.sample
        old, k = self._previous.labels[sample.numbers], tree.n_leaves
        taken = taken_numbers(old, grown.sample_labels(), sample.weights, k)
        order = matched_order(taken, np.arange(k))
        sizes = tree.sizes
        tree.relabel(np.argsort(order))
        tree.sizes = None if sizes is None else tuple(sizes[j] for j in order)

    def __sklearn_clone__(self) -> Self:
        """Return a clone whose `init` is the same fitted model, not an unfitted clone of it."""
        model = vars(self).get("init")
        light = self
        if is_model(model):
            light = object.__new__(type(self))
            vars(light).update(vars(self), init=default_start(self))
        copied: Any = super(Clusterer, light).__sklearn_clone__()
        if is_model(model):
            copied.init = model
        return copied

    def __getstate__(self):
        """Leave out labels that are dask arrays: a loaded model can predict them again."""
        light = without_vectors(self) if is_dask(getattr(self, "labels_", None)) else self
        return BaseEstimator.__getstate__(light)

    def __sklearn_tags__(self):
        """Return scikit-learn's tags, with sparse and pairwise input set for this estimator."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._accepts_sparse
        tags.input_tags.pairwise = self._is_pairwise()
        return tags


class WeightedClusterer(Clusterer):
    """A clusterer that supports `sample_weight`."""

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 -- scikit-learn's signature
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Find the clusters of X.

        Parameters
        ----------
        X : array of shape (n_samples, n_features) or (n_samples, n_samples)
            Rows, dense or CSR. With kernel="precomputed", the kernel values of all pairs of rows.
            `MSPC`, `CPMMC`, `SKMMC` and `KernelCPMMC` also accept dask arrays and DataFrames.
        y : ignored
            For compatibility with scikit-learn.
        sample_weight : array of shape (n_samples,), optional
            Weight of each row. A weight of 2 is the same as repeating the row. If the largest
            weight is above 2**32 or below 2**-32, all weights are divided by a power of two
            (`objective_` is then in that unit). Weights below 2**-100 of the largest count as 0.

        Returns
        -------
        self
        """
        return self._fit(X, sample_weight)


def two_column_scores(scores: NDArray) -> NDArray:
    """Return scores of at most two clusters as one signed column, positive for cluster 1."""
    return scores[:, -1] - scores[:, 0] if scores.shape[1] <= 2 else scores


# ------------------------------------ prediction, and rejection of rows that belong to no cluster


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


# ---------------- fits that start from a fitted model (`init=model`) and keep its cluster numbers


def is_model(value: Any) -> bool:
    """Return whether the value of `init` is an estimator, fitted or not."""
    return isinstance(value, BaseEstimator)


def taken_numbers(old: NDArray, labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Return, for each of k new clusters, the number of the matching old cluster, or -1.

    Clusters are matched to maximise the number (or weight) of rows that keep their cluster. Rows
    with a negative old label are ignored, and clusters without common rows are not matched.
    """
    counted = old >= 0
    names, codes = np.unique(old[counted], return_inverse=True)
    mass = None if weights is None else weights[counted]
    pairs = codes * k + labels[counted].astype(np.int64)
    shared = np.bincount(pairs, mass, minlength=names.size * k).reshape(names.size, k)
    first, second = linear_sum_assignment(shared, maximize=True)
    match = shared[first, second] > 0
    taken = np.full(k, -1)
    taken[second[match]] = names[first[match]]
    return taken


def matched_order(taken: NDArray, by_size: NDArray) -> NDArray[np.intp]:
    """Return an order of the clusters that keeps the numbers of matched old clusters.

    Cluster ``order[j]`` becomes cluster j. The remaining numbers go first to clusters whose old
    number is too large, in the order of the old numbers, then to unmatched clusters, by size.
    """
    k = taken.size
    order = np.full(k, -1)
    keeps = np.flatnonzero((taken >= 0) & (taken < k))
    order[taken[keeps]] = keeps
    beyond = np.flatnonzero(taken >= k)
    new = by_size[taken[by_size] < 0]
    order[order < 0] = np.concatenate([beyond[np.argsort(taken[beyond])], new])
    return order.astype(np.intp)


@dataclass(frozen=True, eq=False)
class Previous:
    """The model to start from, its labels of all rows, and the weights of the rows."""

    model: Any
    labels: NDArray
    weights: NDArray | None

    def start(self, n_clusters: Any) -> NDArray | None:
        """Return the start labels, or None if they do not have `n_clusters` clusters."""
        counted = self.labels if self.weights is None else self.labels[self.weights > 0]
        names = np.unique(counted)
        is_start = self.labels.min() >= 0 and names.size == n_clusters
        return self.labels if is_start and np.isin(self.labels, names).all() else None


def default_start(model: Any) -> Any:
    """Return the default value of the parameter `init`."""
    return inspect.signature(type(model)).parameters["init"].default


@contextmanager
def warm_start(model: Any, X: Any, sample_weight: Any) -> Iterator[None]:
    """Let the fit of a working copy inside the context start from a model, if `init` is one.

    The model's labels are the start if all clusters are found at once and the model has
    `n_clusters` clusters. Otherwise the fit uses the default `init`, and its clusters are numbered
    to match those of the model.
    """
    init = getattr(model, "init", None)
    if not is_model(init) or not model._takes_models:
        yield
        return
    previous = Previous(init, *_old_labels(model, init, X, sample_weight))
    settings = {"init": default_start(model)}
    at_once = model.n_clusters == 2 or not model._is_recursive()
    start = previous.start(model.n_clusters) if at_once else None
    if start is not None:
        settings = {"init": start, **model._of_previous(init)}
    vars(model).update(settings, _previous=previous)
    yield
    labels = model.result_.labels.astype(np.int64)
    model.previous_clusters_ = taken_numbers(
        previous.labels, labels, previous.weights, int(labels.max()) + 1
    )


def _old_labels(
    model: Any, init: Any, X: Any, sample_weight: Any
) -> tuple[NDArray, NDArray | None]:
    """Return the labels predicted by a fitted model, and the weights of the rows."""
    name, own = type(init).__name__, type(model).__name__
    if is_dask(X):
        refuse_blocks(f"{own}(init={name}(...))", "clusters are matched in memory")
    if not hasattr(init, "predict"):
        raise TypeError(f"init={name}(...) cannot predict clusters. Give labels, init=labels.")
    try:
        check_is_fitted(init)
    except NotFittedError as error:
        raise ValueError(
            f"init={name}(...) is not fitted. Fit it first, or give labels, init=labels."
        ) from error
    for one in (model, init):
        if getattr(one, "_is_pairwise", bool)():
            raise ValueError(
                f"init={name}(...) cannot start a fit of {own} if rows are given by pairs "
                "('precomputed'). Give labels, init=labels."
            )
    rows = model._validate(X, reset=True)
    try:
        labels = np.asarray(init.predict(X))
    except ValueError as error:
        raise ValueError(
            f"init={name}(...) was fitted to other columns: {error} Give a model fitted to the "
            "columns of X, or labels."
        ) from error
    if labels.shape != (rows.shape[0],) or labels.dtype.kind not in "iu":
        raise TypeError(
            f"init={name}(...) must predict one integer per row, got an array of dtype "
            f"{labels.dtype} and shape {labels.shape}. Give labels, init=labels."
        )
    return labels.astype(np.int64), as_weights(sample_weight, rows.shape[0])


# ------------ data with fewer distinct rows than n_clusters: every distinct row becomes a cluster


def fit_distinct(model: Any, X: Any, weights: Any) -> bool:
    """Fit one cluster per distinct row if X has fewer distinct rows than n_clusters.

    Return whether this was done. It is not done if `init` holds labels, nor if all rows are equal
    and the method cannot find a single cluster: the method itself then raises an error.
    """
    if not (is_in_memory(X) and isinstance(getattr(model, "init", ""), str)):
        return False
    if model._is_pairwise() and not hasattr(model, "kernel"):
        return False  # nodes of a graph with the same edges need not be copies
    n_distinct = count_distinct_rows(X, weights, model.n_clusters)
    if not model._min_clusters <= n_distinct < model.n_clusters:
        return False
    fewer = silent_clone(model).set_params(n_clusters=n_distinct)
    model._hand_on(fewer)._fit_rows(X, weights)  # the fit of `model` warns of its status
    model._take_over(fewer)
    warn_user(
        f"Found {n_distinct} clusters where n_clusters={model.n_clusters}: X has only "
        f"{n_distinct} different rows of positive weight. Lower n_clusters.",
        ConvergenceWarning,
    )
    return True


def count_distinct_rows(X: Any, weights: NDArray | None, most: int) -> int:
    """Return the number of distinct rows of positive weight, at most `most`.

    Rows are read only until `most` distinct rows are found, usually the first few.
    """
    counted = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
    step = max(1, 2**16 // max(X.shape[1], 1))
    seen: set[bytes] = set()
    start = 0
    while start < counted.size and len(seen) < most:
        # The first `most` rows are nearly always enough.
        stop = start + (min(most, step) if start == 0 else step)
        rows = X[counted[start:stop]]
        dense = rows.toarray() if sparse.issparse(rows) else rows
        seen.update(row.tobytes() for row in dense + 0.0)  # -0.0 is 0.0
        start = stop
    return min(len(seen), most)
