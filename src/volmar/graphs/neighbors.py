"""Nearest neighbours from any back end, with exact distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar._warn import warn_user
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

# neighbors="auto" uses an approximate search if n and d both exceed these limits. Comparing all
# pairs of 20,000 points takes a second and grows with n². Up to 8 dimensions a k-d tree is faster.
APPROXIMATE_ABOVE = (20_000, 8)
# Number of rows on which the recall of an approximate search is measured, and the number of
# distances computed at a time for it.
N_MEASURED = 300
MEASURED_ELEMENTS = 2**23
# Number of rows whose candidates are measured and sorted at a time.
MEASURED_ROWS = 2**14
# Relative tolerance of equal distances.
SAME = 1e-6
# Recall below which a warning is issued.
LOW_RECALL = 0.9

_NAMES = ("auto", "exact", "cells", "faiss", "pynndescent")
_METRICS = ("euclidean", "cosine")


class NeighborSearch:
    """Nearest-neighbour search among the rows of X, for these rows and for new points.

    Distances are always computed in float64 from the rows themselves. An approximate or float32
    back end can therefore miss a neighbour, but returned distances are exact, and zero for
    duplicates.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    neighbors : str, transformer or sparse matrix, default="auto"
        Back end that finds the neighbours:

        - ``"exact"``: a k-d tree up to 8 dimensions, else all pairs of rows;
        - ``"cells"``: cells of rows searched to a recall of 0.95 (`volmar.graphs.cells`), for
          dense points;
        - ``"faiss"``: exact in float32 up to 50,000 points, a seeded inverted file beyond;
        - ``"pynndescent"``: NN-descent, for dense or sparse points;
        - ``"auto"``: "cells" for dense data above `APPROXIMATE_ABOVE` (20,000 points and 8
          features), else "exact". On data of 16 dimensions, "cells" is faster than "faiss" and
          "pynndescent";
        - a transformer like `sklearn.neighbors.KNeighborsTransformer`: it is cloned and fitted to
          the points (scaled to unit length for the cosine metric), and may return more neighbours
          than requested;
        - a sparse (n, n) graph whose stored entries are the neighbours; new points are then
          searched exactly.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance to return. The cosine distance is 1 - cos. It is searched as the Euclidean
        distance between rows of unit length, which gives the same order of neighbours.
    random_state : int, RandomState or None, default=None
        Random seed of the approximate back ends.
    n_jobs : int or None, default=None
        Number of threads of the named back ends. Transformers use their own setting.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (n, d)
        The points in the form that is searched: centred (dense, Euclidean) or scaled to unit
        length (cosine).
    recall : float or None
        Share of the true neighbours in the last `graph`: 1 if the search is exact, else measured
        on 300 rows by comparison with all others, with a warning below 0.9. None before the first
        search, and if neighbours come from a transformer or a given graph.
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
        """Return distances (n, n) of rows to their nearest others; see `neighbor_graph`."""
        n = self.rows.shape[0]
        k = check_n_neighbors(n_neighbors, n)
        found = self._measure(self.rows, self._backend.among(k), k, np.arange(n))
        if self._named:
            self.recall = 1.0 if self._backend.is_exact else self._measured_recall(found, k)
        return found

    def query(self, X_new: MatrixLike, n_neighbors: int) -> Any:
        """Return distances (m, n) of new points to their `n_neighbors` nearest training rows.

        The result is CSR with exactly `n_neighbors` (1 to n - 1) entries per row, nearest first.
        """
        rows = self.prepare(X_new)
        k = check_n_neighbors(n_neighbors, self.rows.shape[0])
        return self._measure(rows, self._backend.near(rows, k), k, None)

    def prepare(self, X_new: MatrixLike) -> Any:
        """Check new points, and centre or normalise them like the training rows."""
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
        """Return the share of neighbours no farther than the true k-th, on a sample of rows."""
        n = self.rows.shape[0]
        chosen = np.sort(np.random.default_rng(0).choice(n, min(N_MEASURED, n), replace=False))
        distances = found.data.reshape(n, k)[chosen].astype(np.float64)
        # The true k-th neighbour is no farther than the one found, up to rounding of products.
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
            warn_user(
                f"The search found {recall:.2f} of the {k} nearest neighbours of {chosen.size} "
                "rows that were compared with all others. Use neighbors='exact' in a recipe of "
                "volmar.graphs, or fewer features."
            )
        return recall

    def _measure(self, rows: Any, candidates: NDArray, k: int, own: NDArray | None) -> Any:
        """Keep the k nearest candidates of each row; search rows with fewer again, exactly."""
        indices, distances = _nearest(rows, self.rows, candidates, k, own, self.metric)
        short = np.flatnonzero(np.isinf(distances[:, -1]))
        if short.size:
            if not self._named:
                found = int(np.isfinite(distances[short[0]]).sum())
                raise ValueError(
                    f"neighbors has {found} neighbours for row {short[0]}, without the row "
                    f"itself, but {k} are needed. Build it with a larger n_neighbors, or lower "
                    f"n_neighbors here."
                )
            wanted = ExactBackend(self.rows, self._n_jobs).near(
                rows[short], min(k + 1, self.rows.shape[0])
            )
            indices[short], distances[short] = _nearest(
                rows[short], self.rows, wanted, k, None if own is None else short, self.metric
            )
        m, n = rows.shape[0], self.rows.shape[0]
        # 64-bit indices double the size of the graph, and many solvers refuse them.
        index = np.int32 if max(m * k, n) < 2**31 else np.int64
        indptr = np.arange(0, m * k + 1, k, dtype=index)
        data = distances.ravel().astype(self.rows.dtype, copy=False)
        return sp.csr_array((data, indices.ravel().astype(index), indptr), shape=(m, n))


@dataclass(frozen=True, kw_only=True, eq=False)
class NeighborRecipe:
    """Common parameters of similarities on graphs of neighbours; see `NeighborSearch`."""

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
        """Return similarities, a CSR array of shape (m, n) with n_neighbors entries per row."""
        raise NotImplementedError

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities divided by their row sums; equal weights if all are zero."""
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
    """Compute the distances from every point to its nearest other points.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    n_neighbors : int
        Number of neighbours of each point, from 1 to n - 1.
    neighbors, metric, random_state, n_jobs
        As in `NeighborSearch`.

    Returns
    -------
    csr_array of shape (n, n)
        Exactly `n_neighbors` distances per row, nearest first, ties in the order of their index.
        The point itself is left out by its index. The distance to a duplicate is a stored zero.

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
        Nonnegative similarities. Stored zeros are not edges. Convert distances to similarities
        first.
    how : {"union", "mutual", "average"}, default="union"
        "union" keeps edges in either direction, max(G, G'). "mutual" keeps edges in both
        directions, min(G, G'). "average" is (G + G') / 2.

    Returns
    -------
    csr_array of shape (n, n)
        Exactly symmetric similarities.

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
    """Raise an error if `neighbors` is not a back end, a transformer or a sparse graph."""
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
    """Return the back end, and whether it is chosen by name rather than given by the caller."""
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
            f"neighbors={neighbors!r} takes dense points, but X is sparse. Use 'exact' or "
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
    """Return each row's k nearest candidates, by distance, then index; inf if there are fewer."""
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
