"""Nearest neighbours, by an exact search or by cells, with exact distances."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.spatial import KDTree
from sklearn.neighbors import NearestNeighbors

from volmar._checks import check_random_state
from volmar._threads import user_openmp
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
from volmar.graphs.validation import MatrixLike, check_n_neighbors, check_new_points, check_points

# ---- cells


# Share of the true neighbours to find, and the number of rows on which the search is calibrated.
TARGET_RECALL = 0.95
N_CALIBRATION = 400
# The number of cells for n rows is CELLS sqrt(n). With fewer cells, more rows are compared in
# vain. With more cells, comparing queries with the centres takes too long.
CELLS = 2.0
# The bound is lowered so that it still holds for this share of the queries. The others are
# searched again, with the bound multiplied by these factors.
USUAL = 0.95
WIDER = (1.5, 100.0)
# Number of queries at a time, entries of a matrix product at a time (4 MB, to fit into a cache),
# and candidates per query that are stored before they are reduced to the nearest k.
CHUNK = 2**15
TILE = 2**20
MAX_HELD = 160
# Number of candidates beyond k, so that rounding to float32 does not decide which row is k-th.
SPARE = 2


@dataclass(frozen=True)
class _Cells:
    """Rows in the order of their cells; cell c has the rows start[c]:start[c + 1]."""

    centres: NDArray
    rows: NDArray
    start: NDArray
    order: NDArray  # original index of each row


class CellIndex:
    """Index of rows for nearest-neighbour search by cells; `seed` makes it reproducible.

    A query is compared with the rows of a cell if the squared distance to its centre, divided by
    the squared bound on the distance of the k-th neighbour, is at most `reach`. `reach` is the
    smallest ratio for which the recall on `N_CALIBRATION` rows, minus two standard errors, is at
    least `TARGET_RECALL`. In the worst case, many dimensions without structure, most cells are
    searched. `tightness` is a factor by which the bound is multiplied to limit the number of
    candidates.
    """

    def __init__(self, rows: NDArray, k: int, seed: int) -> None:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        rng = np.random.default_rng(seed)
        self.k = min(k + SPARE, rows.shape[0])
        self._cells = _cells(rows, rng)
        self.reach, self.tightness = self._calibrated(rng)

    def among(self) -> NDArray:
        """Return candidates for each fitted row; see `near`."""
        cells = self._cells
        own = np.repeat(np.arange(len(cells.centres)), np.diff(cells.start))
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[cells.order] = self._search(cells.rows, own)
        return found

    def near(self, queries: NDArray) -> NDArray:
        """Return unordered candidates (m, k + SPARE) for queries; -1 if there are too few."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        own = _nearest_centre(queries, self._cells.centres)
        order = np.argsort(own, kind="stable")
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[order] = self._search(queries[order], own[order])
        return found

    def _search(self, queries: NDArray, own: NDArray) -> NDArray:
        """Search for queries that are sorted by their cells."""
        found = np.full((own.size, self.k), -1, dtype=np.int64)
        # Queries with too few candidates are searched again with a wider bound and reach.
        tries = [(share, self.reach) for share in (self.tightness, *WIDER)] + [(1.0, np.inf)]
        for tightness, reach in tries:
            short = np.flatnonzero(found[:, -1] < 0)
            for start in range(0, short.size, CHUNK):
                part = short[start : start + CHUNK]
                scan = _Scan(self._cells, queries[part], own[part], self.k, tightness)
                found[part] = scan.run(reach).nearest()
        return np.where(found < 0, -1, self._cells.order[found])

    def _calibrated(self, rng: np.random.Generator) -> tuple[float, float]:
        """Return the reach that gives a sample the target recall, and the tightness."""
        n = len(self._cells.rows)
        chosen = np.sort(rng.choice(n, min(N_CALIBRATION, n), replace=False))
        queries = self._cells.rows[chosen]
        own = np.searchsorted(self._cells.start, chosen, side="right") - 1
        scan = _Scan(self._cells, queries, own, self.k).run()
        truth = scan.nearest()
        worst = np.maximum.reduceat(scan.reduced().data, np.arange(0, truth.size, self.k))
        tightness = float(np.quantile(worst / scan.first_bound, USUAL))
        cell = np.searchsorted(self._cells.start, truth, side="right") - 1
        ratio = np.take_along_axis(scan.distances_to_centres(), cell, axis=1)
        ratio /= scan.first_bound[:, None]
        # The recall varies between rows: allow for two standard errors.
        for reach in np.quantile(ratio, np.linspace(TARGET_RECALL, 1.0, 11)):
            recall = (ratio <= reach).mean(axis=1)
            error = recall.std() / np.sqrt(recall.size)
            if recall.mean() - 2 * error >= TARGET_RECALL:
                return float(reach), tightness
        return np.inf, tightness


class _Scan:
    """State of a search through the cells: queries, and the candidates found so far.

    `own` is the cell of each query, in ascending order. Distances are squared and computed
    relative to the centre of the searched cell. Relative to a common origin, far points would lose
    the significant digits.
    """

    def __init__(
        self, cells: _Cells, queries: NDArray, own: NDArray, k: int, tightness: float = 1.0
    ) -> None:
        self._cells, self._queries, self._k = cells, queries, k
        self.first_bound = self._bounds(own)
        self._bound = self.first_bound * np.float32(tightness)
        self._found: list[tuple[NDArray, NDArray, NDArray]] = []
        self._held = 0

    def run(self, reach: float = np.inf) -> _Scan:
        """Compare each query with the rows of the cells within its reach."""
        cells, n_cells = self._cells, len(self._cells.centres)
        limit = reach * self.first_bound if np.isfinite(reach) else None
        step = max(1, 16 * TILE // max(1, len(self._queries)))
        for first in range(0, n_cells, step):
            if limit is None:
                lists = [np.arange(len(self._queries))] * min(step, n_cells - first)
            else:
                near = self._squares_to(cells.centres[first : first + step]) <= limit
                lists = [np.flatnonzero(row) for row in near]
            for cell, queries in enumerate(lists, first):
                self._look_into(cell, queries)
        return self

    def nearest(self) -> NDArray:
        """Return positions of the nearest k rows found for each query, padded with -1."""
        graph = self.reduced()
        found = np.full((len(self._queries), self._k), -1, dtype=np.int64)
        counts = np.diff(graph.indptr)
        found[np.arange(self._k) < counts[:, None]] = graph.indices
        return found

    def distances_to_centres(self) -> NDArray:
        """Return squared distances (m, n_cells) of queries to the centres."""
        return self._squares_to(self._cells.centres).T

    def _squares_to(self, centres: NDArray) -> NDArray:
        squares = centres @ (-2.0 * self._queries.T)
        squares += _norms(centres)[:, None]
        squares += _norms(self._queries)
        return squares

    def _bounds(self, own: NDArray) -> NDArray:
        """Return squared distances to the k-th nearest of some rows near the cell of a query."""
        # Number of rows near the cell of a query that bound the distance of its k-th neighbour.
        cells, n_rows = self._cells, max(600, self._k)
        bound = np.empty(own.size, dtype=np.float32)
        sizes = np.diff(cells.start)
        filled, first = np.unique(own, return_index=True)
        for cell, members in zip(filled, np.split(np.arange(own.size), first[1:]), strict=True):
            centre = cells.centres[cell]
            near = np.argsort(_norms(cells.centres - centre), kind="stable")
            near = near[: int(np.searchsorted(np.cumsum(sizes[near]), n_rows)) + 1]
            rows = [cells.rows[cells.start[c] : cells.start[c + 1]] for c in near]
            right = _right(np.concatenate(rows)[:n_rows] - centre)
            for part in _parts(members, right.shape[1]):
                squares = _left(self._queries[part] - centre) @ right
                bound[part] = np.partition(squares, self._k - 1, axis=1)[:, self._k - 1]
        # Rounded up, so that the rows that define the bound are within it.
        return np.maximum(bound, np.finfo(np.float32).tiny) * np.float32(1 + 1e-5)

    def _look_into(self, cell: int, queries: NDArray) -> None:
        start, stop = self._cells.start[cell], self._cells.start[cell + 1]
        if start == stop or not queries.size:
            return
        centre = self._cells.centres[cell]
        right = _right(self._cells.rows[start:stop] - centre)
        for part in _parts(queries, stop - start):
            bound = self._bound[part]
            left = _left(self._queries[part] - centre)
            left[:, -2] -= bound
            excess = (left @ right).ravel()
            at = np.flatnonzero(excess <= 0)
            query, row = np.divmod(at, stop - start)
            self._found.append((part[query], row + start, excess[at] + bound[query]))
            self._held += at.size
            if self._held > MAX_HELD * len(self._queries) + TILE:
                self._reduce()

    def _reduce(self) -> None:
        """Keep the nearest k candidates, and lower the bounds accordingly."""
        graph = self.reduced()
        full = np.flatnonzero(np.diff(graph.indptr) == self._k)
        worst = graph.data[graph.indptr[full][:, None] + np.arange(self._k)].max(axis=1)
        self._bound[full] = np.nextafter(worst, np.float32(-1))
        rows = np.repeat(np.arange(len(self._queries)), np.diff(graph.indptr))
        self._found = [(rows, graph.indices, graph.data)]
        self._held = graph.nnz

    def reduced(self) -> Any:
        """Return the nearest k candidates of each query, as a graph of squared distances."""
        query, row, square = (np.concatenate(part) for part in zip(*self._found, strict=True))
        shape = len(self._queries), len(self._cells.rows)
        pairs = sp.coo_array((square, (query, row)), shape=shape)
        pairs.has_canonical_format = True  # each pair is found only once: nothing to sum
        graph = pairs.tocsr()
        counts = np.diff(graph.indptr)
        keep = np.ones(graph.nnz, dtype=bool)
        width = self._k
        while (many := np.flatnonzero((counts > width) & (counts <= 2 * width))).size or (
            counts.max(initial=0) > 2 * width
        ):
            width *= 2
            at = np.arange(width)
            inside = at < counts[many, None]
            places = np.minimum(graph.indptr[many, None] + at, graph.nnz - 1)
            squares = np.where(inside, graph.data[places], np.inf)
            far = np.argpartition(squares, self._k - 1, axis=1)[:, self._k :]
            dropped = np.take_along_axis(places, far, axis=1)
            keep[dropped[np.take_along_axis(inside, far, axis=1)]] = False
        indptr = np.concatenate([[0], np.cumsum(np.minimum(counts, self._k))])
        return sp.csr_array((graph.data[keep], graph.indices[keep], indptr), shape=shape)


def _cells(rows: NDArray, rng: np.random.Generator) -> _Cells:
    """Find centres by a few k-means steps on a sample, and sort the rows by their cells."""
    n = rows.shape[0]
    n_cells = min(max(1, int(CELLS * np.sqrt(n))), n)
    sample = rows[rng.choice(n, min(n, 20 * n_cells), replace=False)]
    centres = sample[:n_cells].copy()
    for _ in range(6):
        member = _nearest_centre(sample, centres)
        sums = sp.csr_array(
            (np.ones(len(sample), dtype=np.float32), member, np.arange(len(sample) + 1)),
            shape=(len(sample), n_cells),
        )
        counts = np.bincount(member, minlength=n_cells)
        filled = counts > 0
        centres[filled] = (sums.T @ sample)[filled] / counts[filled, None]
    member = _nearest_centre(rows, centres)
    order = np.argsort(member, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(member, minlength=n_cells))])
    return _Cells(centres, rows[order], start, order)


def _nearest_centre(rows: NDArray, centres: NDArray) -> NDArray:
    """Return the index of the centre nearest to each row."""
    right = np.ascontiguousarray(-2.0 * centres.T)
    norms = _norms(centres)
    nearest = np.empty(len(rows), dtype=np.intp)
    step = max(1, TILE // len(centres))
    for start in range(0, len(rows), step):
        squares = rows[start : start + step] @ right
        squares += norms
        nearest[start : start + step] = np.argmin(squares, axis=1)
    return nearest


def _norms(rows: NDArray) -> NDArray:
    return np.einsum("ij,ij->i", rows, rows)


def _left(rows: NDArray) -> NDArray:
    """Return rows (x, |x|², 1), whose products with columns of `_right` are squared distances."""
    m, d = rows.shape
    left = np.empty((m, d + 2), dtype=np.float32)
    left[:, :d], left[:, d], left[:, d + 1] = rows, _norms(rows), 1.0
    return left


def _right(rows: NDArray) -> NDArray:
    """Return columns (-2y, 1, |y|²); see `_left`."""
    m, d = rows.shape
    right = np.empty((d + 2, m), dtype=np.float32)
    right[:d], right[d], right[d + 1] = -2.0 * rows.T, 1.0, _norms(rows)
    return right


def _parts(queries: NDArray, width: int) -> list[NDArray]:
    """Divide queries into parts whose comparison with `width` rows fits into a cache."""
    step = max(1, TILE // int(width))
    return [queries[i : i + step] for i in range(0, queries.size, step)]


# ---- neighbor backends


# Maximum dimension in which a k-d tree skips most rows.
TREE_UP_TO = 8
# Number of queries of the tree at a time. Its results take three times as much memory as what is
# kept of them.
QUERIES = 2**16


class ExactSearch:
    """A k-d tree in low dimension, else scikit-learn's blocked comparison of all pairs.

    Rows are queried in the order of the tree's leaves, so that rows read by one query are still in
    the cache for the next.
    """

    is_exact = True

    def __init__(self, rows: Any, n_jobs: int | None) -> None:
        self._rows = rows
        self.n_jobs = n_jobs
        self._index: Any
        if not sp.issparse(rows) and rows.shape[1] <= TREE_UP_TO:
            self._index = _tree(rows)
        else:
            # The trees of NearestNeighbors change filters of warnings for all threads.
            self._index = NearestNeighbors(algorithm="brute", n_jobs=n_jobs).fit(rows)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the index, which is rebuilt from the rows."""
        return {"rows": self._rows, "n_jobs": self.n_jobs}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def among(self, k: int) -> NDArray:
        """Return candidates for each fitted row, which may include the row itself."""
        return self.near(self._rows, min(k + 1, self._rows.shape[0]))

    def near(self, rows: Any, k: int) -> NDArray:
        """Return candidates for each new row."""
        if not isinstance(self._index, KDTree):
            # Number of pairs of rows from which threads are worth their overhead.
            is_large = rows.shape[0] * self._rows.shape[0] >= 100_000_000
            with user_openmp() if is_large else nullcontext():
                return self._index.kneighbors(rows, n_neighbors=k, return_distance=False)
        workers = 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        near = np.empty((rows.shape[0], k), dtype=np.int64)
        order = self._index.indices if rows is self._rows else np.arange(rows.shape[0])
        for start in range(0, order.size, QUERIES):
            part = order[start : start + QUERIES]
            near[part] = self._index.query(rows[part], k=np.arange(1, k + 1), workers=workers)[1]
        return near


class CellSearch:
    """Cells of rows, searched to a recall of at least 0.95; rebuilt from the seed when loaded."""

    is_exact = False

    def __init__(self, rows: NDArray, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._index: CellIndex | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_index": None}

    def among(self, k: int) -> NDArray:
        """Return candidates for each fitted row."""
        return self._built(k + 1).among()

    def near(self, rows: NDArray, k: int) -> NDArray:
        """Return candidates for each new row."""
        return self._built(k).near(rows)

    def _built(self, k: int) -> CellIndex:
        if self._index is None or self._index.k < k:
            self._index = CellIndex(self._rows, k, self._seed)
        return self._index


def spatial_order(rows: Any) -> NDArray | None:
    """Return an order in which near rows are close to each other; None if it is expensive."""
    if sp.issparse(rows) or rows.shape[1] > TREE_UP_TO:
        return None
    return _tree(rows).indices


def _tree(rows: NDArray) -> KDTree:
    return KDTree(rows, balanced_tree=False, compact_nodes=False)


# ---- neighbors


# The search is approximate if n and d both exceed these limits. Comparing all
# pairs of 20,000 points takes a second and grows with n². Up to 8 dimensions a k-d tree is faster.
APPROXIMATE_ABOVE = (20_000, 8)
# Number of rows whose candidates are measured and sorted at a time.
MEASURED_ROWS = 2**14
# Relative tolerance of equal distances.
SAME = 1e-6

_METRICS = ("euclidean", "cosine")


class NeighborSearch:
    """Nearest-neighbour search among the rows of X, for these rows and for new points.

    Distances are always computed in float64 from the rows themselves: an approximate search may
    miss a neighbour, but returned distances are exact, and zero for duplicates.

    The search is exact (a k-d tree up to 8 dimensions, else all pairs of rows), or by cells of
    dense rows to a recall of 0.95 if n and d exceed `APPROXIMATE_ABOVE`; `exact` overrides this
    choice. The cosine distance, 1 - cos, is searched as the Euclidean distance between rows of
    unit length. `rows` are the points as searched: centred, or of unit length. `recall` is the
    share of the true neighbours in the last `graph`: 1 if the search is exact, else measured on
    300 rows, with a warning below 0.9.
    """

    recall: float | None = None

    def __init__(
        self,
        X: MatrixLike,
        *,
        exact: bool | None = None,
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
        n, d = self.rows.shape
        is_small = n <= APPROXIMATE_ABOVE[0] or d <= APPROXIMATE_ABOVE[1] or sp.issparse(X)
        self._search: ExactSearch | CellSearch
        if is_small if exact is None else exact:
            self._search = ExactSearch(self.rows, n_jobs)
        else:
            seed = int(check_random_state(random_state).randint(2**31 - 1))
            self._search = CellSearch(self.rows, seed)

    def graph(self, n_neighbors: int) -> Any:
        """Return distances (n, n) of rows to their nearest others.

        CSR with exactly `n_neighbors` per row, nearest first, ties in the order of their index.
        The row itself is left out by its index; the distance to a duplicate is a stored zero.
        """
        n = self.rows.shape[0]
        k = check_n_neighbors(n_neighbors, n)
        found = self._measure(self.rows, self._search.among(k), k, np.arange(n))
        self.recall = 1.0 if self._search.is_exact else self._measured_recall(found, k)
        return found

    def query(self, X_new: MatrixLike, n_neighbors: int) -> Any:
        """Return distances (m, n) of new points to their `n_neighbors` nearest training rows.

        The result is CSR with exactly `n_neighbors` (1 to n - 1) entries per row, nearest first.
        """
        rows = self.prepare(X_new)
        k = check_n_neighbors(n_neighbors, self.rows.shape[0])
        return self._measure(rows, self._search.near(rows, k), k, None)

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
        chosen = np.sort(np.random.default_rng(0).choice(n, min(300, n), replace=False))
        distances = found.data.reshape(n, k)[chosen].astype(np.float64)
        # The true k-th neighbour is no farther than the one found, up to rounding of products.
        radius = distances[:, -1] * (1 + SAME)
        squares = 2 * radius if self.metric == "cosine" else radius**2
        slack = 1e-12 * squared_norms(self.rows[chosen].astype(np.float64))
        n_found = 0
        step = max(1, 2**23 // n)
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
        # Recall below which a warning is issued.
        if recall < 0.9:
            warn_user(
                f"The search found {recall:.2f} of the {k} nearest neighbours of {chosen.size} "
                "rows that were compared with all others. Use fewer features, for example the "
                "leading principal components."
            )
        return recall

    def _measure(self, rows: Any, candidates: NDArray, k: int, own: NDArray | None) -> Any:
        """Keep the k nearest candidates of each row; search rows with fewer again, exactly."""
        indices, distances = _nearest(rows, self.rows, candidates, k, own, self.metric)
        short = np.flatnonzero(np.isinf(distances[:, -1]))
        if short.size:
            wanted = ExactSearch(self.rows, self._n_jobs).near(
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

    random_state: int | np.random.RandomState | None = None
    n_jobs: int | None = None

    def search(self, X: MatrixLike, metric: str = "euclidean") -> NeighborSearch:
        """Return the search among the points."""
        return NeighborSearch(X, metric=metric, random_state=self.random_state, n_jobs=self.n_jobs)


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


def symmetrize(G: Any, how: str = "union") -> Any:
    """Make a directed graph of similarities undirected.

    "union" keeps edges in either direction, max(G, G'), "mutual" those in both directions, min(G,
    G'), and "average" is (G + G') / 2. Stored zeros are not edges.
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
