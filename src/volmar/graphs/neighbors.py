"""Nearest neighbours from any back end, with exact distances."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar.graphs.distances import (
    candidate_distances,
    centre,
    row_peaks,
    shift,
    squared_distances,
    squared_norms,
    unit_rows,
)
from volmar.graphs.neighbor_backends import (
    Backend,
    CellBackend,
    ExactBackend,
    FaissBackend,
    GraphBackend,
    PyNNDescentBackend,
    TransformerBackend,
    require,
)
from volmar.graphs.validation import MatrixLike, check_n_neighbors, check_new_points, check_points

__all__ = ["APPROXIMATE_ABOVE", "NeighborSearch", "neighbor_graph", "symmetrize"]

# neighbors="auto" leaves exact search where n and d both pass these: comparing all pairs of
# 20,000 points takes a second and grows with n², and up to 8 dimensions a k-d tree is faster.
APPROXIMATE_ABOVE = (20_000, 8)
# Rows on which the recall of an approximate search is measured, and the recall to warn below.
N_MEASURED = 300
MEASURED_ELEMENTS = 2**23
# Rows whose candidates are measured and sorted at a time.
MEASURED_ROWS = 2**14
SAME = 1e-6
LOW_RECALL = 0.9

_NAMES = ("auto", "exact", "cells", "faiss", "pynndescent")
_METRICS = ("euclidean", "cosine")


class NeighborSearch:
    """Neighbours among the rows of X, and of new points among them.

    Whatever names the neighbours, their distances are computed here from the rows themselves in
    float64, so an approximate or float32 index can miss a neighbour but never misstate a distance,
    and duplicates are at distance zero.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    neighbors : str, transformer or sparse matrix, default="auto"
        Who names the neighbours:

        - ``"exact"``: a k-d tree up to 8 dimensions, else scikit-learn's `NearestNeighbors`;
        - ``"cells"``: cells of rows searched to a recall of 0.95 (`volmar.graphs.cells`), dense
          points;
        - ``"faiss"``: exact in float32 up to 50,000 points, a seeded inverted file beyond;
        - ``"pynndescent"``: NN-descent, dense or sparse points;
        - ``"auto"``: exact; past `APPROXIMATE_ABOVE` of dense data (20,000 points and 8 features)
          cells, which are faster than the other two on data of 16 dimensions;
        - a transformer in the manner of `sklearn.neighbors.KNeighborsTransformer`: it is cloned,
          fitted on the points (of unit length for the cosine metric) and may name more neighbours
          than are asked for;
        - a sparse (n, n) graph whose stored entries are the neighbours; new points are then
          searched exactly.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance that is returned; cosine is 1 - cos, searched as the Euclidean distance between
        rows of unit length, which orders neighbours alike.
    random_state : int, RandomState or None, default=None
        Seed of the approximate back ends.
    n_jobs : int or None, default=None
        Threads of the named back ends; a transformer keeps its own.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
        The points as they are searched: centred (dense, Euclidean) or of unit length (cosine).
    recall : float or None
        Share of the true neighbours that the last `graph` has: 1 where the search is exact, else
        measured on 300 rows against a comparison with all others, with a warning below 0.9. None
        before, and where neighbours were named by a transformer or a given graph.
    """

    recall: float | None = None

    def __init__(
        self,
        X: MatrixLike,
        *,
        neighbors: Any = "auto",
        metric: str = "euclidean",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if metric not in _METRICS:
            raise ValueError(f"metric must be one of {', '.join(_METRICS)}; got {metric!r}.")
        X = check_points(X)
        self.metric = metric
        self._origin = centre(X) if metric == "euclidean" else None
        self.rows = self._prepare(X, "X")
        self._n_jobs = n_jobs
        self._backend, self._named = _backend(self.rows, neighbors, random_state, n_jobs)

    def graph(self, n_neighbors: int) -> Any:
        """Return distances (n, n) of rows to `n_neighbors` others each, as `neighbor_graph`."""
        n = self.rows.shape[0]
        k = check_n_neighbors(n_neighbors, n)
        found = self._measure(self.rows, self._backend.among(k), k, np.arange(n))
        if self._named:
            self.recall = 1.0 if self._backend.is_exact else self._measured_recall(found, k)
        return found

    def query(self, X_new: MatrixLike, n_neighbors: int) -> Any:
        """Return distances (m, n) of new points to their `n_neighbors` nearest training rows.

        CSR, exactly `n_neighbors` (1 to n - 1) to a row, nearest first.
        """
        rows = self.prepare(X_new)
        k = check_n_neighbors(n_neighbors, self.rows.shape[0])
        return self._measure(rows, self._backend.near(rows, k), k, None)

    def prepare(self, X_new: MatrixLike) -> Any:
        """Check new points and hold them as the training rows are: centred or of unit length."""
        return self._prepare(check_new_points(X_new, self.rows), "X_new")

    def _prepare(self, X: Any, name: str) -> Any:
        if self.metric == "euclidean":
            return shift(X, self._origin)
        peaks = row_peaks(X)
        zero = np.flatnonzero(peaks == 0)
        if zero.size:
            raise ValueError(
                f"{name} has {zero.size} all-zero rows (first: {zero[0]}), which have no cosine "
                "similarity. Drop them, or use a Euclidean similarity (local scaling)."
            )
        return unit_rows(X, peaks)

    def _measured_recall(self, found: Any, k: int) -> float:
        """Share of neighbours that are no farther than the true k-th, on a sample of rows."""
        n = self.rows.shape[0]
        chosen = np.sort(np.random.default_rng(0).choice(n, min(N_MEASURED, n), replace=False))
        distances = found.data.reshape(n, k)[chosen].astype(np.float64)
        # The true k-th is no farther than the one found, give or take what a product rounds.
        radius = distances[:, -1] * (1 + SAME)
        squares = 2 * radius if self.metric == "cosine" else radius**2
        slack = 1e-12 * squared_norms(self.rows[chosen].astype(np.float64))
        n_found = 0
        step = max(1, MEASURED_ELEMENTS // n)
        for start in range(0, chosen.size, step):
            part = slice(start, start + step)
            block = squared_distances(self.rows[chosen[part]], self.rows)
            for i, row in enumerate(chosen[part], start):
                near = np.flatnonzero(block[i - start] <= squares[i] + slack[i])
                near = near[near != row]
                true = candidate_distances(self.rows[[row]], self.rows, near[None], self.metric)
                limit = np.partition(true[0], k - 1)[k - 1] * (1 + SAME)
                n_found += int(np.sum(distances[i] <= limit))
        recall = n_found / (k * chosen.size)
        if recall < LOW_RECALL:
            warnings.warn(
                f"The search found {recall:.2f} of the {k} nearest neighbours of {chosen.size} "
                "rows that were compared with all others. Use neighbors='exact' in a recipe of "
                "volmar.graphs, or fewer features.",
                UserWarning,
                stacklevel=2,
            )
        return recall

    def _measure(self, rows: Any, candidates: NDArray, k: int, own: NDArray | None) -> Any:
        """Keep the k nearest candidates of each row; search again, exactly, where fewer came."""
        indices, distances = _nearest(rows, self.rows, candidates, k, own, self.metric)
        short = np.flatnonzero(np.isinf(distances[:, -1]))
        if short.size:
            if not self._named:
                found = int(np.isfinite(distances[short[0]]).sum())
                raise ValueError(
                    f"neighbors names {found} neighbours for row {short[0]} besides the row "
                    f"itself, and {k} are needed: raise the n_neighbors it was made with, or "
                    f"lower the n_neighbors asked for."
                )
            wanted = ExactBackend(self.rows, self._n_jobs).near(
                rows[short], min(k + 1, self.rows.shape[0])
            )
            indices[short], distances[short] = _nearest(
                rows[short], self.rows, wanted, k, None if own is None else short, self.metric
            )
        m, n = rows.shape[0], self.rows.shape[0]
        # 64-bit indices, where not needed, double the graph and many solvers refuse them.
        index = np.int32 if max(m * k, n) < 2**31 else np.int64
        indptr = np.arange(0, m * k + 1, k, dtype=index)
        data = distances.ravel().astype(self.rows.dtype, copy=False)
        return sp.csr_array((data, indices.ravel().astype(index), indptr), shape=(m, n))


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborRecipe:
    """Parameters of similarities on graphs of neighbours; as in `NeighborSearch`."""

    neighbors: Any = "auto"
    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    def __post_init__(self) -> None:
        check_neighbors(self.neighbors)

    def search(self, X: MatrixLike, metric: str = "euclidean") -> NeighborSearch:
        """Return the search among the points."""
        return NeighborSearch(
            X,
            neighbors=self.neighbors,
            metric=metric,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )


@dataclass(frozen=True, eq=False)
class NeighborExtension:
    """Similarities of new points to their nearest training points; subclasses compute them."""

    search: NeighborSearch
    n_neighbors: int

    def __call__(self, X_new: MatrixLike) -> Any:
        """Similarities, a CSR array of shape (m, n) with n_neighbors stored in a row."""
        raise NotImplementedError

    def weights(self, X_new: MatrixLike) -> Any:
        """Similarities divided by their row sums; equal weights where all are zero."""
        similarities = self(X_new)
        rows = similarities.data.reshape(-1, self.n_neighbors)
        rows[rows.sum(axis=1) == 0] = 1.0
        rows /= rows.sum(axis=1, keepdims=True)
        return similarities


def neighbor_graph(
    X: MatrixLike,
    *,
    n_neighbors: int,
    neighbors: Any = "auto",
    metric: str = "euclidean",
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    """Distances from every point to its nearest other points.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    n_neighbors : int
        Neighbours for each point, from 1 to n - 1.
    neighbors, metric, random_state, n_jobs
        As in `NeighborSearch`.

    Returns
    -------
    csr_array of shape (n, n)
        Exactly `n_neighbors` distances to a row, nearest first, equal ones by index; the point
        itself is left out by its index, and a duplicate is a stored zero.

    Examples
    --------
    >>> from volmar.graphs import neighbor_graph
    >>> neighbor_graph([[0.0], [0.0], [1.0], [1.5]], n_neighbors=1).indices.tolist()
    [1, 0, 3, 2]
    """
    recipe = NeighborRecipe(neighbors=neighbors, random_state=random_state, n_jobs=n_jobs)
    return recipe.search(X, metric).graph(n_neighbors)


def symmetrize(G: Any, how: str = "union") -> Any:
    """Make a directed graph of similarities undirected.

    Parameters
    ----------
    G : sparse matrix of shape (n, n)
        Nonnegative similarities. A stored zero is no edge: turn distances into similarities first.
    how : {"union", "mutual", "average"}, default="union"
        Keep an edge that either end names, max(G, G'); that both ends name, min(G, G'); or take
        (G + G') / 2.

    Returns
    -------
    csr_array of shape (n, n)
        Equal to its transpose to the last bit.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from volmar.graphs import symmetrize
    >>> G = sp.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> symmetrize(G, "mutual").nnz, symmetrize(G, "union").nnz
    (2, 4)
    """
    G = sp.csr_array(G)
    if G.shape[0] != G.shape[1]:
        raise ValueError(f"G must be square to be made symmetric; got shape {G.shape}.")
    if how == "union":
        result = G.maximum(G.T)
    elif how == "mutual":
        result = G.minimum(G.T)
    elif how == "average":
        result = (G + G.T) * G.dtype.type(0.5)
    else:
        raise ValueError(f"how must be one of union, mutual, average; got {how!r}.")
    result = sp.csr_array(result)
    result.eliminate_zeros()
    result.sort_indices()
    return result


def check_neighbors(neighbors: Any) -> None:
    """Refuse a `neighbors` argument that no back end answers to."""
    if isinstance(neighbors, str):
        if neighbors not in _NAMES:
            raise ValueError(
                f"neighbors must be one of {', '.join(_NAMES)}, a transformer such as "
                f"KNeighborsTransformer, or a sparse graph; got {neighbors!r}."
            )
    elif not sp.issparse(neighbors) and not (
        hasattr(neighbors, "fit_transform") and hasattr(neighbors, "transform")
    ):
        raise TypeError(
            f"neighbors must be one of {', '.join(_NAMES)}, a transformer with fit_transform and "
            f"transform, or a sparse graph; got {type(neighbors).__name__}."
        )


def _backend(
    rows: Any, neighbors: Any, random_state: Any, n_jobs: int | None
) -> tuple[Backend, bool]:
    """Choose the back end, and tell whether it is ours (named) rather than the caller's."""
    check_neighbors(neighbors)
    if sp.issparse(neighbors):
        return GraphBackend(rows, neighbors, n_jobs), False
    if not isinstance(neighbors, str):
        return TransformerBackend(rows, neighbors), False
    if neighbors == "auto":
        neighbors = _automatic(rows)
    if neighbors == "exact":
        return ExactBackend(rows, n_jobs), True
    if neighbors != "cells":
        require(neighbors)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    if neighbors == "pynndescent":
        return PyNNDescentBackend(rows, seed, n_jobs), True
    if sp.issparse(rows):
        raise ValueError(
            f"neighbors={neighbors!r} takes dense points and X is sparse: take 'exact' or "
            "'pynndescent', or reduce X to a dense array first (TruncatedSVD)."
        )
    if neighbors == "cells":
        return CellBackend(rows, seed), True
    return FaissBackend(rows, seed, n_jobs), True


def _automatic(rows: Any) -> str:
    n, d = rows.shape
    past = n > APPROXIMATE_ABOVE[0] and d > APPROXIMATE_ABOVE[1]
    return "cells" if past and not sp.issparse(rows) else "exact"


def _nearest(
    A: Any, B: Any, candidates: NDArray, k: int, own: NDArray | None, metric: str
) -> tuple[NDArray, NDArray]:
    """Keep each row's k nearest candidates, by distance, then index; inf where there are none."""
    m = candidates.shape[0]
    indices, distances = np.empty((m, k), dtype=np.int64), np.empty((m, k))
    for start in range(0, m, MEASURED_ROWS):
        rows = slice(start, min(start + MEASURED_ROWS, m))
        near = candidates[rows]
        if near.shape[1] < k:
            near = np.hstack([near, np.full((near.shape[0], k - near.shape[1]), -1)])
        near = np.sort(near, axis=1)
        apart = candidate_distances(A[rows], B, np.maximum(near, 0), metric)
        absent = near < 0
        absent[:, 1:] |= near[:, 1:] == near[:, :-1]
        if own is not None:
            absent |= near == own[rows, None]
        apart[absent] = np.inf
        order = np.argsort(apart, axis=1, kind="stable")[:, :k]
        indices[rows] = np.take_along_axis(near, order, axis=1)
        distances[rows] = np.take_along_axis(apart, order, axis=1)
    return indices, distances
