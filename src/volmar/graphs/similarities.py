"""The Gaussian similarity exp(-|x_i - x_j|² / 2σ²)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar import _memory
from volmar._input import check_matrix
from volmar.graphs.copies import distinct_rows
from volmar.graphs.distances import (
    BLOCK_ELEMENTS,
    centre,
    parse_sigma,
    resolve_sigma,
    scale_exponents,
    shift,
    squared_distances,
    symmetric_exponentials,
)
from volmar.graphs.neighbors import NeighborExtension, NeighborRecipe, NeighborSearch, symmetrize
from volmar.graphs.validation import (
    MatrixLike,
    check_n_neighbors,
    check_new_points,
    check_nonnegative,
    check_points,
    check_similarity,
    refuse_constant,
    rows_over_sums,
)

# ---- gaussian


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianSimilarity:
    """Recipe for the dense Gaussian similarity; see `gaussian_similarity` for the parameters."""

    sigma: float | str = "mean"
    self_loops: bool = True

    def __post_init__(self) -> None:
        parse_sigma(self.sigma)

    def build(self, X: MatrixLike) -> tuple[NDArray, GaussianExtension]:
        """Compute the similarities of all pairs, and the extension to new points."""
        X = check_points(X)
        require_dense(X.shape[0], X.dtype, "Gaussian")
        sigma = resolve_sigma(X, self.sigma)
        origin = centre(X)
        rows = shift(X, origin)
        W = symmetric_exponentials(rows, lambda D, *_: scale_exponents(D, sigma, sigma), X.dtype)
        if not self.self_loops:
            np.fill_diagonal(W, 0.0)
        return W, GaussianExtension(rows, origin, sigma)


class ExponentialExtension:
    """Similarities exp(E) of new points to the training points; subclasses compute E."""

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), dense or CSR like the graph."""
        return self._rows(X_new, lambda exponents: np.exp(exponents, out=exponents))

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities divided by their row sums, without underflow for far points."""
        return self._rows(X_new, _softmax)

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> Any:
        """Return `function` of the exponents, which it may overwrite."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class GaussianExtension(ExponentialExtension):
    """Gaussian similarities of new points to the training points, with the fitted width."""

    rows: Any
    origin: NDArray | None
    sigma: float

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> NDArray:
        X_new = check_new_points(X_new, self.rows)
        require_extension(X_new.shape[0], self.rows)
        D = squared_distances(shift(X_new, self.origin), self.rows)
        exponents = scale_exponents(D, self.sigma, self.sigma)
        return function(exponents).astype(self.rows.dtype, copy=False)


def gaussian_similarity(
    X: MatrixLike, *, sigma: float | str = "mean", self_loops: bool = True
) -> NDArray:
    """Compute the dense Gaussian similarity ``W_ij = exp(-|x_i - x_j|² / 2σ²)``.

    This is the similarity of JMLR 2013, section 8.1.

    W_ii is 1 with `self_loops`, as in the JMLR paper, else 0 (Ng, Jordan and Weiss).
    """
    return GaussianSimilarity(sigma=sigma, self_loops=self_loops).build(X)[0]


def _softmax(exponents: NDArray) -> NDArray:
    """Return exp(E_ij) / Σ_j exp(E_ij), in place; subtract the largest exponent of a row first."""
    largest = exponents.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        row = int(np.argmin(np.isfinite(largest)))
        raise ValueError(
            f"row {row} of X is too far from every training row: all its similarities are 0. Use "
            "a larger sigma, or leave the row out."
        )
    exponents -= largest
    np.exp(exponents, out=exponents)
    exponents /= exponents.sum(axis=1, keepdims=True)
    return exponents


def require_dense(n: int, dtype: np.dtype, name: str) -> None:
    """Raise an error before allocating a dense similarity that does not fit into memory."""
    _memory.require_memory(
        n * n * dtype.itemsize + 4 * 8 * BLOCK_ELEMENTS,
        f"A dense {name} similarity of {n} points",
        "Use a sparse graph (local_scaling_similarity with graph='knn', or "
        "cosine_knn_similarity), or fewer points.",
    )


def require_extension(n_new: int, rows: Any) -> None:
    """Raise an error if the similarities of the new points do not fit into memory."""
    itemsize = rows.dtype.itemsize
    _memory.require_memory(
        n_new * rows.shape[0] * (8 if itemsize == 8 else 8 + itemsize),
        f"The dense similarity of {n_new} new points to {rows.shape[0]} training points",
        "Pass the new points in smaller batches.",
    )


# ---- local scaling


# graph="auto" is dense up to this number of points, which takes 128 MB in float64.
DENSE_LIMIT = 4000

_GRAPHS = ("auto", "dense", "knn")


@dataclass(frozen=True, kw_only=True, eq=False)
class LocalScalingSimilarity(NeighborRecipe):
    """Recipe for the locally scaled similarity; parameters as in `local_scaling_similarity`."""

    n_neighbors: int = 7
    graph: str = "auto"
    self_loops: bool = False

    def __post_init__(self) -> None:
        if self.graph not in _GRAPHS:
            raise ValueError(f"graph must be one of {', '.join(_GRAPHS)}; got {self.graph!r}.")

    def build(self, X: MatrixLike) -> tuple[Any, LocalScalingExtension]:
        """Build the similarity, and its extension to new points."""
        X = check_points(X)
        n = X.shape[0]
        k = check_n_neighbors(self.n_neighbors, n)
        dense = self.graph == "dense" or (self.graph == "auto" and n <= DENSE_LIMIT)
        if dense:
            require_dense(n, X.dtype, "locally scaled")
        refuse_constant(X)
        search = self.search(X)
        # Minimum number of edges per point. With 5, 7 and 10 edges, 31, 19 and 9 % of 88 graphs of
        # small data sets were disconnected.
        n_edges = k if dense else min(max(k, 10), n - 1)
        distances = search.graph(n_edges)
        scales = _positive_scales(distances.data.reshape(n, n_edges)[:, k - 1], search)
        W = _all_pairs(search.rows, scales) if dense else _neighbor_pairs(distances, scales)
        if dense:
            np.fill_diagonal(W, 1.0 if self.self_loops else 0.0)
        elif self.self_loops:
            W = sp.csr_array(W + sp.eye_array(n, dtype=W.dtype, format="csr"))
        return W, LocalScalingExtension(search, scales, k, n_edges, dense)


@dataclass(frozen=True, eq=False)
class LocalScalingExtension(ExponentialExtension):
    """Locally scaled similarities of new points to the training points.

    The scale of a new point is the distance to its k-th nearest training point. If k training
    points coincide with it, it has their scale. (A training point passed as new counts as its own
    first neighbour.)
    """

    search: NeighborSearch
    scales: NDArray
    n_neighbors: int
    n_edges: int
    dense: bool

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> Any:
        near = self.search.query(X_new, self.n_edges)
        m = near.shape[0]
        columns = near.indices.reshape(m, self.n_edges)
        distances = near.data.reshape(m, self.n_edges).astype(np.float64)
        own = distances[:, self.n_neighbors - 1].copy()
        own[own == 0] = self.scales[columns[own == 0, 0]]
        if self.dense:
            require_extension(m, self.search.rows)
            D = squared_distances(self.search.prepare(X_new), self.search.rows)
            return function(scale_exponents(D, own[:, None], self.scales)).astype(near.dtype)
        exponents = scale_exponents(distances**2, own[:, None], self.scales[columns])
        near.data = function(exponents).ravel().astype(near.dtype)
        return near


def local_scaling_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int = 7,
    graph: str = "auto",
    self_loops: bool = False,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Compute the locally scaled similarity ``W_ij = exp(-|x_i - x_j|² / 2σ_iσ_j)``.

    σ_i is the distance from x_i to its k-th nearest neighbour (JMLR section 8.1). The factor 2 is
    as printed in JMLR; Zelnik-Manor and Perona (2005) do not have it. If the k-th neighbour
    coincides with x_i, σ_i is the distance to the nearest other point that does not.

    `graph` is "dense" (all pairs), "knn" (pairs in which one point is among the max(k, 10) nearest
    neighbours of the other) or "auto" (dense up to `DENSE_LIMIT` points). W_ii is 1 with
    `self_loops`, which is JMLR's formula for i = j, else 0 as in Zelnik-Manor and Perona.
    """
    spec = LocalScalingSimilarity(
        n_neighbors=n_neighbors,
        graph=graph,
        self_loops=self_loops,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]


def _all_pairs(rows: Any, scales: NDArray) -> NDArray:
    def exponents(D: NDArray, start: int, stop: int) -> NDArray:
        return scale_exponents(D, scales[start:stop, None], scales[start:])

    return symmetric_exponentials(rows, exponents, rows.dtype)


def _neighbor_pairs(distances: Any, scales: NDArray) -> Any:
    n = distances.shape[0]
    D = distances.data.astype(np.float64).reshape(n, -1) ** 2
    columns = distances.indices.reshape(D.shape)
    exponents = scale_exponents(D, scales[:, None], scales[columns])
    directed = distances.copy()
    directed.data = np.exp(exponents).ravel().astype(distances.dtype)
    return symmetrize(directed, "union")


def _positive_scales(scales: NDArray, search: NeighborSearch) -> NDArray:
    """Replace zero scales by the distance to the nearest different point."""
    scales = scales.astype(np.float64)
    zero = scales == 0
    if not zero.any():
        return scales
    distinct, group = distinct_rows(search.rows)
    apart = NeighborSearch(distinct).graph(1).data.astype(np.float64)
    scales[zero] = apart[group[zero]]
    # Squared distances of points that differ by less than 1e-160 underflow to zero.
    if not (scales > 0).all():
        positive = scales[scales > 0]
        scales[scales == 0] = positive.min() if positive.size else 1.0
    return scales


# ---- nearest neighbors


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestNeighborsSimilarity(NeighborRecipe):
    """Recipe for the binary similarity; parameters as in `nearest_neighbors_similarity`."""

    n_neighbors: int = 7
    mutual: bool = False

    def build(self, X: MatrixLike) -> tuple[Any, NearestNeighborsExtension]:
        """Build the similarity graph, and its extension to new points."""
        search = self.search(X)
        directed = search.graph(self.n_neighbors)
        # The distance to a duplicate is a stored zero, which is an edge like any other.
        directed.data[:] = 1.0
        W = symmetrize(directed, "mutual" if self.mutual else "union")
        return W, NearestNeighborsExtension(search, self.n_neighbors)


@dataclass(frozen=True, eq=False)
class NearestNeighborsExtension(NeighborExtension):
    """Binary similarities of new points to their nearest training points.

    Only the neighbours of new points count. Neighbours of training points are not searched again,
    not even for the mutual graph.
    """

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), CSR."""
        near = self.search.query(X_new, self.n_neighbors)
        near.data[:] = 1.0
        return near


def nearest_neighbors_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int = 7,
    mutual: bool = False,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Compute the binary similarity of nearest neighbours.

    ``W_ij = 1`` if one of the two points is among the k nearest neighbours of the other, and 0
    otherwise. The diagonal is zero, because a point is not its own neighbour.

    `mutual` keeps only edges between points that are neighbours of each other: such a graph has
    far fewer edges, and is more often disconnected.
    """
    spec = NearestNeighborsSimilarity(
        n_neighbors=n_neighbors,
        mutual=mutual,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]


# ---- cosine knn


@dataclass(frozen=True, kw_only=True, eq=False)
class CosineKNNSimilarity(NeighborRecipe):
    """Recipe for the sparse cosine similarity; see `cosine_knn_similarity` for the parameters."""

    n_neighbors: int = 7
    mutual: bool = False

    def build(self, X: MatrixLike) -> tuple[Any, CosineKNNExtension]:
        """Build the similarity graph, and its extension to new points."""
        search = self.search(X, metric="cosine")
        directed = _cosines(search.graph(self.n_neighbors), "X")
        W = symmetrize(directed, "mutual" if self.mutual else "union")
        return W, CosineKNNExtension(search, self.n_neighbors)


@dataclass(frozen=True, eq=False)
class CosineKNNExtension(NeighborExtension):
    """Cosine similarities of new points to their nearest training points."""

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), CSR."""
        return _cosines(self.search.query(X_new, self.n_neighbors), "X_new")


def cosine_knn_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int = 7,
    mutual: bool = False,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Compute the similarity ``⟨x_i, x_j⟩ / |x_i||x_j|`` of nearest neighbours (JMLR section 8.1).

    The paper states "among the k-nearest neighbours of each other", which is the mutual graph. Its
    tables are reproduced with the union, which is therefore the default. A point is not its own
    neighbour, so that W_ii = 0.

    With nonnegative features, all cosines are nonnegative. `mutual` keeps only edges between
    points that are neighbours of each other.
    """
    spec = CosineKNNSimilarity(
        n_neighbors=n_neighbors,
        mutual=mutual,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]


def _cosines(distances: Any, name: str) -> Any:
    """Return cosines from cosine distances; raise ValueError if one is negative."""
    data = 1 - distances.data
    worst = int(np.argmin(data))
    if data[worst] < 0:
        row = int(np.searchsorted(distances.indptr, worst, side="right")) - 1
        raise ValueError(
            f"The cosine of row {row} of {name} and its neighbour {distances.indices[worst]} is "
            f"{data[worst]:.3g}, but similarities must be nonnegative. Make the features "
            "nonnegative (MinMaxScaler), lower n_neighbors, or use local_scaling_similarity."
        )
    return sp.csr_array((data, distances.indices, distances.indptr), shape=distances.shape)


# ---- callable similarity


@dataclass(frozen=True, eq=False)
class CallableSimilarity:
    """Recipe for the similarity ``W = function(X, X)``, used as given, diagonal included.

    ``function(X, Y)`` takes two sets of rows, dense or CSR as the training points are, and returns
    their nonnegative similarities, dense or sparse; ``function(X, X)`` must be symmetric.
    """

    function: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        if isinstance(self.function, type) or not callable(self.function):
            what = self.function if isinstance(self.function, type) else type(self.function)
            raise TypeError(
                "function must be a callable that takes two sets of rows and returns their "
                f"similarities, such as sklearn.metrics.pairwise.rbf_kernel; got {what.__name__}."
            )

    def build(self, X: MatrixLike) -> tuple[Any, CallableExtension]:
        """Build the similarity, and its extension to new points."""
        X = check_points(X)
        W = check_similarity(_matrix(self.function, X, X, "affinity(X, X)"), name="affinity(X, X)")
        # A copy, because the caller may change X before new points are compared with it.
        return W, CallableExtension(self.function, X.copy())


@dataclass(frozen=True, eq=False)
class CallableExtension:
    """Similarities of new points to the training points, by the function itself."""

    function: Callable[[Any, Any], Any]
    rows: Any

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), dense or CSR like the output of the function."""
        X_new = check_new_points(X_new, self.rows)
        name = "affinity(X_new, X)"
        S = _matrix(self.function, X_new, self.rows, name)
        S = check_matrix(S, name=name, is_scaled=False)
        check_nonnegative(S, name)
        return S

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities divided by their row sums; raise ValueError if a row has none."""
        return rows_over_sums(self(X_new), points="X_new")


def _matrix(function: Callable[[Any, Any], Any], A: Any, B: Any, name: str) -> Any:
    """Call the function, and check that it returns one entry for each pair of rows."""
    S = function(A, B)
    S = S if sp.issparse(S) else np.asarray(S)
    if S.shape != (A.shape[0], B.shape[0]):
        raise ValueError(
            f"{name} has shape {S.shape} and must have {(A.shape[0], B.shape[0])}. An affinity "
            "takes two sets of rows and returns a similarity for each pair, like "
            "sklearn.metrics.pairwise.rbf_kernel."
        )
    return S
