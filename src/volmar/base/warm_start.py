"""Fits that start from a fitted model (`init=model`) and keep its cluster numbers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from volmar._weights import as_weights
from volmar.base.blocks import refuse_blocks
from volmar.base.numbering import cluster_order
from volmar.base.recursion import GrownTree
from volmar.rows import is_dask

__all__ = [
    "WarmStart",
    "default_start",
    "is_model",
    "matched_order",
    "taken_numbers",
    "warm_start",
]


def is_model(value: Any) -> bool:
    """Return whether the value of `init` is an estimator, fitted or not."""
    return isinstance(value, BaseEstimator)


def taken_numbers(old: NDArray, labels: NDArray, weights: NDArray | None, k: int) -> NDArray:
    """Return, for each of k new clusters, the number of the matching old cluster, or -1.

    Clusters are matched to maximise the number (or weight) of rows that keep their cluster. Rows
    with a negative old label are ignored, and clusters without common rows are not matched.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.base.warm_start import taken_numbers
    >>> taken_numbers(np.array([0, 0, 3, 3, 3]), np.array([1, 1, 0, 0, 2]), None, 3)
    array([ 3,  0, -1])
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

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.base.warm_start import matched_order
    >>> matched_order(np.array([3, 0, -1]), np.array([0, 1, 2]))
    array([1, 0, 2])
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


class WarmStart:
    """Support for a fitted model as the value of `init`.

    `init` of the copy that is fitted holds the labels predicted by the model, or the default if
    these labels cannot be the start. `_previous` holds the model.
    """

    _previous: Previous | None = None
    previous_clusters_: NDArray[np.int64]

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
        copied: Any = super(WarmStart, light).__sklearn_clone__()  # type: ignore[misc]
        if is_model(model):
            copied.init = model
        return copied


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
    if not is_model(init) or not model._supports_auto:
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
