"""Tables with rows in dask blocks, whose requests are answered by passes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from volmar.rows.blocks.recipes import Constant, Given, Recipe, RowNumbers, RowView
from volmar.rows.blocks.sums import Picked, Wanted
from volmar.rows.blocks.vector import RowVector, row_numbers

# Maximum size of the cached results of earlier passes, some of which are requested again.
KEPT_BYTES = 64 * 2**20
_LISTENERS: ContextVar[tuple[Callable[[PassReport], None], ...]] = ContextVar(
    "volmar_listeners", default=()
)


class PassReport(NamedTuple):
    """Report on a completed pass: its number from 1, and the kinds of results it computed."""

    number: int
    figures: tuple[str, ...]
    n_blocks: int
    n_rows: int
    seconds: float


@contextmanager
def report_passes(listener: Callable[[PassReport], None]) -> Iterator[None]:
    """Call a function after each pass over rows in blocks inside this context.

    Parameters
    ----------
    listener : callable
        Function that is called with a `PassReport`.

    Examples
    --------
    >>> import dask.array as da
    >>> from volmar.distributed import report_passes
    >>> from volmar.rows import as_rows
    >>> passes = []
    >>> with report_passes(passes.append):
    ...     mean = as_rows(da.ones((100, 2), chunks=(50, 2))).mean()
    >>> [report.figures for report in passes]
    [('Picked',), ('MomentSum',)]
    """
    token = _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


@contextmanager
def reported(n_before: int, wanted: Sequence[Wanted], X: Any) -> Iterator[None]:
    """Report the pass inside this context to the listeners when it is complete."""
    before = perf_counter()
    yield
    for listener in _LISTENERS.get():
        kinds = tuple(type(one).__name__ for one in wanted)
        seconds = perf_counter() - before
        listener(PassReport(n_before + 1, kinds, X.numblocks[0], X.shape[0], seconds))


class Blocks:
    """The blocks of X, other arrays in the same blocks, and a cache of results.

    The chunk sizes of X must be known, and its columns must be in a single chunk.
    """

    def __init__(self, X: Any):
        from volmar.rows.blocks.passes import Passes

        self.X = X
        self.given: list[Any] = []
        self.bounds = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64)
        self.n_passes = 0
        #: Equally spaced rows in memory, by their step.
        self.held: dict[int, Any] = {}
        self._passes = Passes(X)
        self._known: OrderedDict[bytes, Any] = OrderedDict()
        self._kept_bytes = 0
        self._asked: list[Wanted] | None = None

    def add(self, array: Any) -> Given:
        """Add a dask array with one entry per row, in the same blocks."""
        for place, other in enumerate(self.given):
            if other is array or (other.name == array.name and other.chunks == array.chunks):
                return Given(place, array.dtype, array.name)
        self.given.append(array)
        self._passes.add(array)
        return Given(len(self.given) - 1, array.dtype, array.name)

    def ask(self, wanted: Wanted) -> Any:
        """Return the result of a request, from the cache or by a pass."""
        if wanted.key not in self._known:
            if self._asked is not None:
                self._asked.append(wanted)
                return wanted.stand_in()
            self._answer([wanted])
        self._known.move_to_end(wanted.key)
        whole = self._known[wanted.key]
        return wanted.finished(None if whole is None else [part.copy() for part in whole])

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Call `f` with placeholders, and answer all its requests by one pass."""
        if self._asked is not None:  # nested: the outer call answers
            f()
            return
        self._asked = []
        try:
            f()
            asked = {wanted.key: wanted for wanted in self._asked}
        finally:
            self._asked = None
        if asked:
            self._answer(list(asked.values()))

    @property
    def is_collecting(self) -> bool:
        """Whether requests are being collected by `prefetch`, and results are placeholders."""
        return self._asked is not None

    def _answer(self, asked: Sequence[Wanted]) -> None:
        with reported(self.n_passes, asked, self.X):
            parts = self.run(asked)
            self.n_passes += 1
            for wanted, part in zip(asked, parts, strict=True):
                self._keep(wanted, part)

    def run(self, wanted: Sequence[Wanted]) -> list[Any]:
        """Return the merged partial results of each request, by a pass over the needed blocks."""
        ends = zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True)
        needed = [i for i, end in enumerate(ends) if any(one.needs(*end) for one in wanted)]
        return self._passes.run(wanted, needed, self.bounds)

    def _keep(self, wanted: Wanted, whole: Any) -> None:
        self._kept_bytes += _size(whole) - _size(self._known.get(wanted.key))
        self._known[wanted.key] = whole
        self._known.move_to_end(wanted.key)
        while self._kept_bytes > KEPT_BYTES and len(self._known) > 16:
            self._kept_bytes -= _size(self._known.popitem(last=False)[1])

    def as_dask(self, recipe: Recipe) -> Any:
        """Return the array of a recipe as a dask array in the same blocks."""
        import dask.array as da
        from dask import delayed
        from dask.highlevelgraph import HighLevelGraph

        from volmar.rows.blocks.passes import block_values

        blocks, beside = self._passes.delayed()
        compute = delayed(block_values, pure=True)
        values = [
            compute(recipe, block, int(self.bounds[i]), *(one[i] for one in beside))
            for i, block in enumerate(blocks)
        ]
        # The graph is built here, since da.concatenate would drop empty blocks.
        name = f"volmar-{recipe.key.hex()}-{self.X.name}"
        places = [(name, i, *(0 for _ in recipe.tail)) for i in range(len(values))]
        layer = {place: value.key for place, value in zip(places, values, strict=True)}
        graph = HighLevelGraph.from_collections(name, layer, dependencies=values)
        chunks = (self.X.chunks[0], *((size,) for size in recipe.tail))
        meta = np.empty((0,) * (1 + len(recipe.tail)), dtype=recipe.dtype)
        return da.Array(graph, name, chunks, meta=meta)


def _size(whole: Any) -> int:
    return 0 if whole is None else sum(part.nbytes for part in whole)


class BlockTable:
    """Rows in blocks, as a matrix for sums over all rows and selections of a few rows.

    Algorithms use it in place of X: it has a shape and a dtype, ``X[numbers]`` selects rows by
    number, and `volmar.rows.as_rows` converts it to a row source.

    Parameters
    ----------
    blocks : Blocks
        The blocks.
    feature_map : FeatureMap, optional
        Map whose features replace the rows. If None, the rows themselves are used.
    """

    ndim = 2

    def __init__(self, blocks: Blocks, feature_map: Any = None):
        self.rows_of = blocks
        self.n_rows = int(blocks.bounds[-1])
        n_features, dtype = blocks.X.shape[1], blocks.X.dtype
        widening = 1.0
        self.dtype = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)
        if feature_map is not None:
            first = feature_map.transform(np.ones((1, n_features), dtype=self.dtype))
            widening = max(1.0, first.nbytes / (n_features * self.dtype.itemsize))
            n_features, self.dtype = first.shape[1], first.dtype
        self.view = RowView(feature_map, widening=widening)
        self.shape = (self.n_rows, int(n_features))
        self._first_mean: np.ndarray | None = None

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, numbers: Any) -> np.ndarray:
        """Return the rows with the given numbers, or of a slice, in memory."""
        index = row_numbers(numbers, self.n_rows)
        if index.ndim != 1:
            raise TypeError("rows are selected by a list of row numbers, or by a slice.")
        if index.size == 0:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        order = np.argsort(index, kind="stable")
        found = self.ask(Picked(index[order], view=self.view))
        rows = np.empty_like(found)
        rows[order] = found
        return rows.astype(self.dtype, copy=False)

    def mapped(self, feature_map: Any) -> BlockTable:
        """Return the same rows under a feature map."""
        if self.view.feature_map is not None:
            feature_map = Chain(self.view.feature_map, feature_map)
        return BlockTable(self.rows_of, feature_map)

    @property
    def is_collecting(self) -> bool:
        """Whether requests are being collected by `prefetch`, and results are placeholders."""
        return self.rows_of.is_collecting

    def first_mean(self, n_rows: int) -> np.ndarray:
        """Return the mean of the first `n_rows` rows."""
        if self._first_mean is None:
            first = self[: min(n_rows, self.n_rows)]
            with np.errstate(all="ignore"):  # NaN and infinity are detected by `Squares`
                self._first_mean = first.mean(axis=0, dtype=np.float64)
        return self._first_mean

    def ask(self, wanted: Wanted) -> Any:
        """Return the result of a request over all rows."""
        return self.rows_of.ask(wanted)

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Compute all that `f` requests in one pass (see `RowSource.prefetch`)."""
        self.rows_of.prefetch(f)

    def beside(self, array: Any) -> RowVector:
        """Return a dask array in the same blocks as a vector over the rows."""
        return RowVector(self, self.rows_of.add(array))

    def full(self, value: Any, dtype: Any) -> RowVector:
        """Return a vector with the same value for every row."""
        return RowVector(self, Constant(value, dtype))

    def row_numbers(self) -> RowVector:
        """Return the vector of the numbers of the rows."""
        return RowVector(self, RowNumbers())


class CountedTable(BlockTable):
    """The rows of positive weight of a table, numbered without the others.

    It is used to select rows, such as landmarks. Sums are requested from the table itself.
    """

    def __init__(self, table: BlockTable, weights: RowVector):
        super().__init__(table.rows_of, table.view.feature_map)
        self._table, self._counted = table, weights > 0
        self.n_rows = int(np.count_nonzero(weights))
        self.shape = (self.n_rows, table.shape[1])

    def __getitem__(self, numbers: Any) -> np.ndarray:
        """Return rows by their numbers among the rows of positive weight, or by a slice."""
        if isinstance(numbers, slice):
            numbers = np.arange(*numbers.indices(self.n_rows))
        if self.n_rows < self._table.n_rows:
            numbers = self._counted.first_beyond(np.asarray(numbers))
        return self._table[numbers]


class Chain:
    """The composition of two feature maps."""

    def __init__(self, first: Any, second: Any):
        self.first, self.second = first, second

    def transform(self, X: Any) -> Any:
        """Map rows by the first map, and the result by the second."""
        return self.second.transform(self.first.transform(X))
