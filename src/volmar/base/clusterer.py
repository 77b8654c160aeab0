"""The estimator base: validation, restarts, callbacks, fitted attributes, prediction."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from volmar._checks import check_random_state
from volmar._input import check_rows
from volmar._memory import explain_memory
from volmar._threads import in_jobs, one_thread
from volmar.base.blocks import (
    check_blocks,
    check_weights,
    is_dask_frame,
    lazily,
    refuse_blocks,
    with_dask_vectors,
    without_vectors,
)
from volmar.base.callbacks import CallbackSupportMixin, fit_steps, with_callbacks
from volmar.base.distinct import fit_distinct
from volmar.base.knowledge import Knowledge
from volmar.base.one_cluster import OneCluster
from volmar.base.outcome import fresh_fit
from volmar.base.prediction import NoveltyMixin
from volmar.base.recursion import GrownTree, PartRows, RecursiveResult, grow_tree
from volmar.base.splitting import (
    confirmed_split,
    fit_in_two,
    groups_test,
    merge_leaves,
    side_of,
    tree_words,
    warn_of_tree,
)
from volmar.base.tree import SplitTree, scores_in_graph
from volmar.base.validation import check_auto, check_count, check_n_clusters, check_number
from volmar.base.warm_start import WarmStart, warm_start
from volmar.evidence import HeldOutTest
from volmar.guidance.guide import Guide
from volmar.guidance.seeds import Seeds
from volmar.metrics import separation_along
from volmar.rows import Parts, RowSource, as_rows, constant_vector, is_dask, is_in_memory
from volmar.rows.parts import pool_rows
from volmar.solvers import Status

# Separation probability of a random split; splits below it are still ranked by theirs.
CHANCE, RANKS = 0.5, 1e-3
# Range of `alpha`: the number of draws of a test is proportional to 1 / alpha.
LOWEST_ALPHA, HIGHEST_ALPHA = 1e-3, 0.5
# Maximum number of rows used to split a part. Tests use at least as many as one draw returns.
SAMPLED_ROWS = 20_000


class Clusterer(WarmStart, NoveltyMixin, CallbackSupportMixin, ClusterMixin, BaseEstimator, ABC):
    """Base class of all clusterers.

    A subclass checks its parameters (`_check_parameters`), prepares the data once (`_problem`),
    runs one start on the prepared data (`_run`, which returns a certified `Result` with a `labels`
    field) and scores rows by the result (`_scores`). The start with the lowest objective is kept.
    A method that supports sample weights derives from `WeightedClusterer`.

    Clusters are numbered by size. The largest is cluster 0, and ties go to the cluster that
    contains the first row. `_finish` renumbers the result before it calls `_publish`. Sizes
    include `sample_weight`.

    Progress is reported to scikit-learn's callbacks (scikit-learn 1.9 and later). After
    ``model.set_callbacks(ProgressBar())``, `fit` reports every start, or every split if a given
    number of clusters is found by recursive splitting. There is no `verbose`. With
    n_clusters="auto" nothing is reported because the number of splits is not known in advance.
    """

    #: Minimum number of clusters that `_run` can find. If 2, `fit` handles n_clusters=1 itself.
    _min_clusters: ClassVar[int] = 2
    #: How a method without a parameter `multiway` finds more than two clusters: "joint" (all at
    #: once) or "recursive" (by repeated splits in two).
    _multiway: ClassVar[str] = "joint"
    #: Parameters that may hold one entry per row, which do not work with recursive splitting.
    _row_parameters: ClassVar[tuple[str, ...]] = ("init", "Q")
    #: Whether n_clusters="auto" is supported.
    _supports_auto: ClassVar[bool] = True
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
    #: With n_clusters="auto", called with the number of rows in finished clusters and of all rows.
    _tell: Callable[[int, int], None] | None = None

    # Parameters that every clusterer declares in its own __init__; alpha and max_clusters only if
    # it supports "auto".
    n_clusters: Any
    alpha: float = 0.05
    max_clusters: int | None = None
    random_state: Any
    mode: str

    # The names are integers or strings, as in the labels given by the user.
    classes_: NDArray[np.int64] | NDArray[np.str_]
    tree_: SplitTree
    labels_: NDArray[np.int64] | NDArray[np.str_]
    result_: Any

    # ------------------------------------------------------------------ for the subclass

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
        return max(probability - CHANCE, 0.0) + RANKS * probability

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
        auto = isinstance(self.n_clusters, str)
        if auto:
            check_auto(self)
        self._check_all_parameters()
        check_random_state(self.random_state)
        check_number("alpha", self.alpha, low=LOWEST_ALPHA, high=HIGHEST_ALPHA)
        if self.max_clusters is not None:
            check_count("max_clusters", self.max_clusters)
        X = self._validate(X, reset=True)
        n_samples = X.shape[0]
        if self._is_pairwise() and X.shape[1] != n_samples:
            raise ValueError(
                f"a precomputed matrix must be square for fit, got shape {X.shape}. Pass "
                "similarities between all pairs of training rows."
            )
        if not auto:
            check_n_clusters(self.n_clusters, n_samples)
        self._fit_checked(X, sample_weight, known)

    def _fit_checked(self, X: Any, sample_weight: Any, known: Knowledge | None) -> None:
        """Find the clusters of validated rows."""
        auto, n_samples = isinstance(self.n_clusters, str), X.shape[0]
        weights = check_weights(X, sample_weight, self._ask_first)
        n_counted = n_samples if weights is None else int(np.count_nonzero(weights))
        if not auto and n_counted < self.n_clusters:
            raise ValueError(
                f"n_clusters={self.n_clusters} is more than the number of rows with a positive "
                f"sample_weight, {n_counted}. Weights below 2**-100 of the largest count as 0. "
                "Lower n_clusters."
            )
        if known is not None and self._fit_known(X, weights, known):
            return
        if auto:
            self._fit_tree(X, weights, range(n_samples - 1))
        elif fit_distinct(self, X, weights):
            return
        elif self.n_clusters < self._min_clusters:
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
        is_tested = self.n_clusters == "auto"
        seeds = check_random_state(self.random_state)
        most = max(SAMPLED_ROWS, pool_rows(X)) if is_tested else SAMPLED_ROWS
        parts = Parts(
            X,
            weights,
            most=most if self._samples_parts() else None,
            seed=int(copy.deepcopy(seeds).randint(2**31 - 1)),
            pairwise=self._is_pairwise(),
        )
        grown, result = grow_tree(
            parts,
            fit=self._fit_part,
            probability=self._split_probability,
            worth=self._split_worth,
            test=partial(groups_test, self) if is_tested else None,
            make=self._make_split,
            side=side_of,
            alpha=float(self.alpha),
            max_leaves=self.max_clusters if is_tested else None,
            steps=steps,
            seeds=seeds,
            pairwise=self._is_pairwise(),
            feature_names=getattr(self, "feature_names_in_", None),
            tell=self._tell if is_tested else None,
            postpones=self._postpones and not is_tested,
        )
        self.tree_ = grown.tree
        if is_tested and self._splits_by_hyperplanes():
            rows = grown.sample
            merge_leaves(self.tree_, rows.X, rows.weights, grown.sample_labels())
        self._number_tree(grown)
        self._set_result(replace(result, labels=grown.labels()))
        warn_of_tree(self.tree_, result, self.n_clusters, self.max_clusters)
        return grown

    def _samples_parts(self) -> bool:
        """Return whether large parts are split by a sample; other rows follow their scores."""
        return self._takes_blocks and not self._is_pairwise()

    def _splits_by_hyperplanes(self) -> bool:
        """Return whether a split in two is a hyperplane in the coordinates of X."""
        kernel = getattr(self, "kernel", None)
        return isinstance(kernel, str) and kernel == "linear"

    def _fit_part(self, part: PartRows, **params: Any) -> Any:
        return fit_in_two(self, part, **params)

    def _of_part(self, part: PartRows) -> dict[str, Any]:
        """Return private attributes to set on the copy of this clusterer that splits a part."""
        return {"_hurdle": part.hurdle} if part.hurdle > 0.0 else {}

    def _fit_from(self, part: PartRows, sides: NDArray) -> Any:
        """Fit a two-way clusterer from given sides; return None if that is not possible."""
        if "init" not in self.get_params(deep=False) or np.ptp(sides) == 0:
            return None
        try:
            return self._fit_part(part, init=sides)
        except ValueError:
            return None

    def _make_split(self, part: PartRows, outcome: HeldOutTest) -> Any:
        """Fit the split that held-out rows have confirmed; return None if there is none."""
        return confirmed_split(self, part, outcome)

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

    def _n_labels(self) -> int:
        """Return the number of clusters that rows may be assigned to."""
        if hasattr(self, "classes_"):
            return len(self.classes_)
        return self.tree_.n_leaves if isinstance(self.n_clusters, str) else int(self.n_clusters)

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
