"""From validated rows to a graph that a method can use and extend to new rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.graphs import (
    check_similarity,
    component_message,
    connected_components,
    degrees,
    laplacian,
    make_similarity,
)
from volmar.operators import SPDOperator, as_operator

# A component with a smaller share of the rows is taken for a stray one, not for structure.
STRAY_SHARE = 0.05
DEFAULT_NEIGHBORS = 7


@dataclass(frozen=True)
class Graph:
    """A similarity matrix with its extension to new rows.

    Attributes
    ----------
    W : ndarray or sparse matrix of shape (n, n)
        Similarities.
    row_weights : callable
        Takes new rows, returns their similarities to the training rows, divided by their sum.
    """

    W: Any
    row_weights: Callable[[Any], Any]

    @cached_property
    def degrees(self) -> NDArray:
        """Row sums of W."""
        return degrees(self.W)

    @cached_property
    def inverse_roots(self) -> NDArray:
        """1 / sqrt(degree), zero for isolated nodes."""
        positive = self.degrees > 0
        return np.divide(1.0, np.sqrt(self.degrees), out=np.zeros(len(positive)), where=positive)

    @cached_property
    def components(self) -> tuple[int, NDArray]:
        """Number of connected components, and the component of each node."""
        return connected_components(self.W)

    def normalized_operator(self, shift: float = 0.0) -> SPDOperator:
        """L_sym + shift I, with L_sym = I - D^-1/2 W D^-1/2."""
        return as_operator(
            laplacian(self.W, kind="symmetric"),
            shift=shift,
            bounds=(0.0, 2.0),
            near_null=np.sqrt(self.degrees),
        )

    def warn_of_components(self, n_clusters: int) -> None:
        """Warn where components are more than the clusters, or where one is a few stray rows."""
        count, labels = self.components
        smallest = np.bincount(labels).min() / labels.size
        if count > n_clusters or (count > 1 and smallest < STRAY_SHARE):
            warnings.warn(component_message(labels), UserWarning, stacklevel=2)


def build_graph(X: Any, affinity: Any, *, sigma: Any = None, n_neighbors: Any = None) -> Graph:
    """Build the graph of an estimator's `affinity`, `sigma` and `n_neighbors`.

    None leaves a parameter to the affinity; n_neighbors is then 7, or all others of fewer rows.
    Named affinities come without self-loops, and "local_scaling" on the graph of nearest
    neighbours at every size: dense below some n and sparse above would be two methods under one
    name. A recipe of `volmar.graphs` or a precomputed matrix is used as given.
    """
    given = {"sigma": sigma, "n_neighbors": n_neighbors}
    params = {name: value for name, value in given.items() if value is not None}
    if isinstance(affinity, str) and affinity == "precomputed":
        if params:
            raise ValueError(
                f"{', '.join(params)} cannot be given with affinity='precomputed': the matrix "
                "already says how similar rows are. Leave it out."
            )
        return Graph(check_similarity(X), _given_row_weights)
    if isinstance(affinity, str) and affinity != "cosine_knn":
        params["self_loops"] = False
    if isinstance(affinity, str) and affinity != "gaussian":
        params.setdefault("n_neighbors", min(DEFAULT_NEIGHBORS, X.shape[0] - 1))
    if isinstance(affinity, str) and affinity == "local_scaling":
        params["graph"] = "knn"
    W, extension = make_similarity(affinity, **params).build(X)
    return Graph(W, extension.weights)


def _given_row_weights(S: Any) -> Any:
    """Rows of given similarities, divided by their sum."""
    negative = S.data.min(initial=0.0) if sparse.issparse(S) else S.min(initial=0.0)
    if negative < 0:
        raise ValueError(
            f"precomputed similarities must not be negative, the smallest is {negative:.3g}."
        )
    total = np.asarray(S.sum(axis=1), dtype=np.float64).ravel()
    if np.any(total <= 0):
        row = int(np.argmin(total))
        raise ValueError(
            f"row {row} of X has no positive similarity to any training row and cannot be "
            "placed. Leave it out or give it a similarity."
        )
    if sparse.issparse(S):
        return sparse.diags_array(1.0 / total) @ S
    return S / total[:, None]
