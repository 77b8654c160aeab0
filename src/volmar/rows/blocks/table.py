"""Tables with rows in dask blocks, whose requests are answered by passes."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from volmar.rows.blocks.recipes import Constant, Given, Recipe, RowNumbers, RowView, Scores, Tile
from volmar.rows.blocks.sums import Combination, MomentSum, Picked, SquaredNorm, Wanted
from volmar.rows.blocks.vector import RowVector, row_numbers
from volmar.rows.protocol import Moments, RowSource, as_block, as_vector

if TYPE_CHECKING:
    from volmar.rows.blocks.vector import RowVector


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
    >>> from volmar.rows.anywhere import as_rows
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
    number, and `volmar.rows.anywhere.as_rows` converts it to a row source.
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


# ------------------------------------------------------------ the row source of a table in blocks


# ruff: noqa: D102 -- described at RowSource


class BlockRows(RowSource):
    """The rows of a table in blocks. Vectors over the rows are lazy."""

    weights: Any

    def __init__(self, table: BlockTable, sample_weight: RowVector | None = None):
        self.table, self.view = table, table.view
        self.n_rows, self.n_features = table.shape
        self.dtype = table.dtype
        self.weights = sample_weight
        self.offset = None
        self._mean: np.ndarray | None = None

    @property
    def total_weight(self) -> float:  # type: ignore[override]
        return float(self.n_rows if self.weights is None else self.weights.sum())

    def scores(self, w: np.ndarray) -> Any:
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        return RowVector(self.table, Scores(self.view, w, self.dtype))

    def combine(self, v: Any) -> np.ndarray:
        coefficients = self.over_rows(v, "v").astype(self.dtype).recipe
        return self.table.ask(Combination(self.view, self.n_features, coefficients))

    def mean(self) -> np.ndarray:
        if self._mean is not None:
            return self._mean.copy()
        mean = self.moments(center=self.first_guess(), second=False).mean
        if not self.table.is_collecting:
            self._mean = mean
        return mean.copy()

    def first_guess(self) -> np.ndarray:
        """Return the mean of the first rows. Sums about it lose few digits."""
        fitting = 32 * 2**20 // (self.n_features * self.dtype.itemsize)
        first = self.table.first_mean(min(4096, max(256, fitting)))
        return first if self.offset is None else first - self.offset

    def moments(
        self, mask: Any = None, *, center: np.ndarray | None = None, second: bool = True
    ) -> Moments:
        if center is None:
            center = self.mean()
        center = as_vector(center, self.n_features, "center", "feature")
        if mask is not None and self.over_rows(mask, "mask").dtype != bool:
            raise ValueError(
                f"mask must be boolean, got dtype {mask.dtype}. Create a mask by a comparison, "
                "e.g. labels == 1."
            )
        wanted = MomentSum(
            self.view,
            center,
            mask=None if mask is None else mask.recipe,
            weights=None if self.weights is None else self.weights.recipe,
            second=second,
        )
        return self.table.ask(wanted)

    def centered(self) -> Self:
        mean = self.mean()
        other = copy.copy(self)
        other.offset = mean if self.offset is None else self.offset + mean
        other.view = self.view.moved(other.offset)
        other._mean = np.zeros(self.n_features)
        return other

    def mean_squared_norm(self) -> float:
        weights = None if self.weights is None else self.weights.recipe
        return self.table.ask(SquaredNorm(self.view, weights)) / self.total_weight

    def over_rows(self, vector: Any, name: str) -> RowVector:
        """Return `vector` if it is a vector over these rows; raise a TypeError otherwise."""
        if not isinstance(vector, RowVector) or vector.table.rows_of is not self.table.rows_of:
            raise TypeError(
                f"{name} must be a vector over these rows, which are in blocks, got "
                f"{type(vector).__name__}. Use volmar.rows.blocks.as_beside to convert an array."
            )
        return vector

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean.

        This takes one pass: moments about a first guess are shifted to the mean. Moments of
        float32 rows are summed about the mean itself in a second pass, since their products are
        float32.
        """
        guess = self.first_guess()
        about = self.moments(center=guess, second=self.dtype == np.float64)
        if self.table.is_collecting:
            return self, about
        self._mean = about.mean
        centred = self.centered()
        zero = np.zeros(self.n_features)
        if about.second is None:
            return centred, centred.moments(center=zero)
        moved = about.shifted(about.mean)
        return centred, Moments(zero, moved.weight, moved.sum, moved.second)

    def prefetch(self, f: Callable[[], Any]) -> None:
        self.table.prefetch(f)


# --------------------------------------------- conversion of dask collections to tables in blocks


def is_dask(X: Any) -> bool:
    """Return whether X is a dask array or DataFrame, without importing dask."""
    package = type(X).__module__.partition(".")[0]
    # A dask.delayed object has every attribute, also ndim, but as another delayed object.
    return package in ("dask", "dask_expr") and isinstance(getattr(X, "ndim", None), int)


def as_table(X: Any) -> BlockTable:
    """Return the table of a dask array or DataFrame of shape (n, d).

    Unknown chunk sizes, which DataFrames and filtered arrays have, are computed first by a pass
    over the data. Several chunks of columns are merged.
    """
    if isinstance(X, BlockTable):
        return X
    X = as_dask_array(X)
    if X.ndim != 2:
        raise ValueError(
            f"X must have two dimensions (rows, features), got a dask array with {X.ndim}. "
            "Reshape it, e.g. by X.reshape(-1, 1) if it has a single feature."
        )
    if X.dtype.kind not in "biuf":
        raise TypeError(
            f"X must hold real numbers, got a dask array of dtype {X.dtype}. Convert its columns, "
            "e.g. with X.astype(float)."
        )
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    X = with_sizes(X)
    if 0 in X.shape:
        raise ValueError(f"X must have at least one row and one column, got shape {X.shape}.")
    return BlockTable(Blocks(X))


def as_beside(table: BlockTable | RowVector, array: Any, name: str) -> RowVector:
    """Return an array with one entry per row as a vector over the rows of a table."""
    import dask.array as da

    table = table.table if isinstance(table, RowVector) else table
    if isinstance(array, RowVector):
        if array.table.rows_of is not table.rows_of:
            raise ValueError(f"{name} is a vector over other rows than X.")
        return array
    array = as_dask_array(array)
    chunks = table.rows_of.X.chunks[:1]
    if not is_dask(array):
        array = np.asarray(array)
        if array.shape == (table.n_rows,):
            array = da.from_array(array, chunks=chunks)
    else:
        array = with_sizes(array)
    if array.shape != (table.n_rows,):
        raise ValueError(
            f"{name} must have one entry for each row, shape ({table.n_rows},), got {array.shape}."
        )
    if array.chunks != chunks:
        array = array.rechunk(chunks)
    return table.beside(array)


def as_dask_array(collection: Any) -> Any:
    """Return a dask DataFrame or Series as a dask array, anything else unchanged.

    ``lengths=True`` cannot be used: dask merges small Parquet files depending on the columns that
    are read, so the lengths may be those of other blocks than the blocks of the array.
    """
    return collection.to_dask_array() if hasattr(collection, "to_dask_array") else collection


def with_sizes(array: Any) -> Any:
    """Return a dask array with known chunk sizes, computed by a pass if they are unknown."""
    if any(np.isnan(size) for sizes in array.chunks for size in sizes):
        array = array.copy()
        array.compute_chunk_sizes()
    return array


# --------------- selected rows of a table in memory, on which vectors are computed without a pass


class HeldRows:
    """Rows of a table with the given ascending numbers, held in memory.

    Vectors over all rows are recipes, which can be evaluated on these rows without a pass.
    """

    def __init__(self, table: BlockTable, index: np.ndarray):
        self.table, self.index = table, index
        self._rows = table.ask(Picked(index))
        self._given: list[np.ndarray] = []

    def entries(self, v: RowVector) -> np.ndarray:
        """Return the entries of a vector at these rows."""
        for array in self.table.rows_of.given[len(self._given) :]:
            self._given.append(self.table.beside(array)[self.index])
        return Tile(self._rows, self._given, 0).value(v.recipe)
