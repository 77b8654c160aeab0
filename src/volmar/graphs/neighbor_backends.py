"""Back ends of the nearest-neighbour search, which return candidates without distances.

A back end returns an integer array of candidate rows with at least `k` columns, padded with -1 if
it has found fewer. `neighbors.py` computes the distances. `is_exact` is True if the candidates are
sure to contain the nearest rows. For other back ends, the recall is measured.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.spatial import KDTree
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from volmar._threads import user_openmp
from volmar.graphs.cells import CellIndex

# Maximum dimension in which a k-d tree skips most rows.
TREE_UP_TO = 8
# Number of queries of the tree at a time. Its results take three times as much memory as what is
# kept of them.
QUERIES = 2**16
# Number of pairs of rows from which threads are worth their overhead.
THREADED_FROM = 100_000_000
# Up to this number of rows, faiss compares all pairs. This is exact, and about as fast as training
# and searching an index.
FAISS_FLAT_LIMIT = 50_000
# Number of cells visited for each query. The recall at n = 200,000 is 0.97-1.00 on clustered 16-
# to 100-dimensional data, and 0.94 on 16-dimensional noise.
FAISS_PROBES = 64
# The default of NN-descent. With lists of k + 1 = 12, its recall on 16-dimensional noise is 0.94.
PYNNDESCENT_LIST = 30


class Backend:
    """Search for candidate neighbours among fitted rows."""

    _rows: Any
    is_exact = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without an index, which is rebuilt from the same seed when needed."""
        state = {name: value for name, value in vars(self).items() if name != "_quantizer"}
        return state | {"_index": None}

    def among(self, k: int) -> NDArray:
        """Return candidates for each fitted row, which may include the row itself."""
        return self.near(self._rows, min(k + 1, self._rows.shape[0]))

    def near(self, rows: Any, k: int) -> NDArray:
        """Return candidates for each new row."""
        raise NotImplementedError


class ExactBackend(Backend):
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

    def near(self, rows: Any, k: int) -> NDArray:
        """Return candidates for each new row."""
        if not isinstance(self._index, KDTree):
            is_large = rows.shape[0] * self._rows.shape[0] >= THREADED_FROM
            with user_openmp() if is_large else nullcontext():
                return self._index.kneighbors(rows, n_neighbors=k, return_distance=False)
        workers = 1 if self.n_jobs is None else effective_n_jobs(self.n_jobs)
        near = np.empty((rows.shape[0], k), dtype=np.int64)
        order = self._index.indices if rows is self._rows else np.arange(rows.shape[0])
        for start in range(0, order.size, QUERIES):
            part = order[start : start + QUERIES]
            near[part] = self._index.query(rows[part], k=np.arange(1, k + 1), workers=workers)[1]
        return near


class CellBackend(Backend):
    """Cells of rows, searched to a recall of at least 0.95; see `volmar.graphs.cells`."""

    def __init__(self, rows: NDArray, seed: int) -> None:
        self._rows = rows
        self._seed = seed
        self._index: CellIndex | None = None

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


class FaissBackend(Backend):
    """faiss: all pairs in float32 up to `FAISS_FLAT_LIMIT` rows, an inverted file beyond.

    The inverted file is trained from a seed and searched deterministically, so that results are
    reproducible with any number of threads. HNSW graphs of faiss depend on the order of threads.
    """

    def __init__(self, rows: NDArray, seed: int, n_jobs: int | None) -> None:
        self._rows = rows
        self._seed = seed
        self._n_jobs = n_jobs
        self._index: Any = None

    def near(self, rows: NDArray, k: int) -> NDArray:
        """Return candidates for each new row."""
        with self._threads():
            if self._index is None:
                self._index = self._build()
            return self._index.search(_float32(rows), k)[1]

    def _build(self) -> Any:
        faiss = require("faiss")
        n, d = self._rows.shape
        rows = _float32(self._rows)
        index = faiss.IndexFlatL2(d)
        if n > FAISS_FLAT_LIMIT:
            self._quantizer = index  # faiss does not keep it alive
            index = faiss.IndexIVFFlat(index, d, int(4 * np.sqrt(n)))
            index.nprobe = FAISS_PROBES
            index.cp.seed = self._seed
            index.cp.min_points_per_centroid = 1  # silences a message meant for a larger nlist
            index.train(rows)
        index.add(rows)
        return index

    def _threads(self) -> AbstractContextManager:
        if self._n_jobs is None:
            return user_openmp()
        return threadpool_limits(effective_n_jobs(self._n_jobs), user_api="openmp")


class PyNNDescentBackend(Backend):
    """pynndescent: NN-descent initialised by random projection trees."""

    def __init__(self, rows: Any, seed: int, n_jobs: int | None) -> None:
        self._rows = sp.csr_matrix(rows) if sp.issparse(rows) else rows
        self._seed = seed
        self._n_jobs = n_jobs
        self._index: Any = None

    def among(self, k: int) -> NDArray:
        """Return candidates for each fitted row."""
        return self._built(k).neighbor_graph[0]

    def near(self, rows: Any, k: int) -> NDArray:
        """Return candidates for each new row."""
        rows = sp.csr_matrix(rows) if sp.issparse(rows) else _float32(rows)
        return self._built(k).query(rows, k=k)[0]

    def _built(self, k: int) -> Any:
        if self._index is None:
            width = min(max(k + 1, PYNNDESCENT_LIST), self._rows.shape[0])
            self._index = require("pynndescent").NNDescent(
                self._rows, n_neighbors=width, random_state=self._seed, n_jobs=self._n_jobs
            )
        return self._index


class TransformerBackend(Backend):
    """Any transformer of rows to a sparse graph of neighbours, like `KNeighborsTransformer`."""

    def __init__(self, rows: Any, transformer: Any) -> None:
        self._transformer = clone(transformer)
        self._graph = self._transformer.fit_transform(rows)

    def among(self, k: int) -> NDArray:  # noqa: ARG002 - the transformer has its own count
        """Return candidates for each fitted row."""
        return pad_rows(self._graph)

    def near(self, rows: Any, k: int) -> NDArray:  # noqa: ARG002 - as above
        """Return candidates for each new row."""
        return pad_rows(self._transformer.transform(rows))


class GraphBackend(Backend):
    """A precomputed sparse graph between the fitted rows; new rows are searched exactly."""

    def __init__(self, rows: Any, graph: Any, n_jobs: int | None) -> None:
        if graph.shape != (rows.shape[0], rows.shape[0]):
            raise ValueError(
                f"neighbors is a sparse graph of shape {graph.shape}, but X has {rows.shape[0]} "
                "points. Pass the graph of these points, with one row and one column per point."
            )
        self._rows = rows
        self._graph = graph
        self._n_jobs = n_jobs

    def among(self, k: int) -> NDArray:  # noqa: ARG002 - the graph has its own count
        """Return candidates for each fitted row."""
        return pad_rows(self._graph)

    def near(self, rows: Any, k: int) -> NDArray:
        """Return candidates for each new row."""
        return ExactBackend(self._rows, self._n_jobs).near(rows, k)


def spatial_order(rows: Any) -> NDArray | None:
    """Return an order in which near rows are close to each other; None if it is expensive."""
    if sp.issparse(rows) or rows.shape[1] > TREE_UP_TO:
        return None
    return _tree(rows).indices


def _tree(rows: NDArray) -> KDTree:
    return KDTree(rows, balanced_tree=False, compact_nodes=False)


def pad_rows(graph: Any) -> NDArray:
    """Return the column indices of a sparse graph as a rectangular array, padded with -1.

    Stored zeros count as edges, because a graph of distances has them for duplicates.
    """
    graph = sp.csr_array(graph)
    counts = np.diff(graph.indptr)
    padded = np.full((graph.shape[0], int(counts.max(initial=0))), -1, dtype=np.int64)
    padded[np.arange(padded.shape[1]) < counts[:, None]] = graph.indices
    return padded


def require(name: str) -> Any:
    """Import an optional library, or raise ImportError with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = {"faiss": "faiss-cpu"}.get(name, name)
        raise ImportError(
            f"neighbors={name!r} needs the package {package}. Install it with "
            f"`pip install 'volmar[large]'` or `pip install {package}`, or use neighbors='exact'."
        ) from error


def _float32(rows: NDArray) -> NDArray:
    return np.ascontiguousarray(rows, dtype=np.float32)
