"""Recipes: descriptions of how arrays with one entry per row are computed from tiles of rows."""

# ruff: noqa: D102 -- `compute` is described at Recipe

from __future__ import annotations

import copy
import hashlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from volmar.rows.protocol import as_matrix
from volmar.rows.tiled import TILE_ROWS, DenseRows, SparseRows

# A tile is read from memory once and used several times, so it should stay in the cache. Results
# that allocate long temporary arrays use larger tiles: dask workers return such arrays to the
# system at once, and every new page takes time.
TILE_BYTES, LARGE_TILE_BYTES = 2 * 2**20, 16 * 2**20
MIN_ROWS = 256


def digest(*parts: Any) -> bytes:
    """Return a hash of values, arrays, recipes and views that is the same in every process."""
    found = hashlib.blake2b(digest_size=16)
    for one in parts:
        part = one.key if isinstance(one, (Recipe, RowView)) else one
        if isinstance(part, (np.ndarray, np.generic)):
            found.update(f"array {part.dtype.str} {part.shape} ".encode())
            # The bytes of objects are addresses, which differ between processes.
            objects = part.dtype.hasobject
            found.update(
                repr(part.tolist()).encode() if objects else np.ascontiguousarray(part).tobytes()
            )
        elif isinstance(part, bytes):
            found.update(b"bytes " + part)
        else:
            found.update(repr(part).encode())
        found.update(b"\0")
    return found.digest()


class Recipe(ABC):
    """Description of how to compute an array with one entry per row from a tile of rows.

    Recipes are immutable. They are sent to the blocks in place of the arrays that they describe.
    Recipes of the same computation have the same `key`. `tail` is the shape of an entry: () for a
    vector, (k,) for k columns. `widening` is the largest `RowView.widening` among the views that
    the recipe uses.
    """

    widening: float = 1.0
    key: bytes
    dtype: np.dtype
    tail: tuple[int, ...]

    @abstractmethod
    def compute(self, tile: Tile) -> np.ndarray:
        """Return the array for the rows of the tile, shape (m, *tail)."""

    def sample(self, n_rows: int) -> np.ndarray:
        """Return an array of ones with the dtype and entry shape of the result of `compute`."""
        return np.ones((n_rows, *self.tail), dtype=self.dtype)


class Scores(Recipe):
    """Products of the rows as seen with w, shape (d,) or (d, k)."""

    def __init__(self, view: RowView, w: np.ndarray, dtype: np.dtype):
        self.view, self.w = view, w
        self.dtype, self.tail, self.widening = dtype, w.shape[1:], view.widening
        self.key = digest("scores", view, w)

    def compute(self, tile: Tile) -> np.ndarray:
        return tile.rows(self.view).scores(self.w)


class Given(Recipe):
    """An array in the blocks of the rows, by its position among such arrays."""

    def __init__(self, place: int, dtype: np.dtype, name: str):
        self.place, self.dtype, self.tail = place, np.dtype(dtype), ()
        self.key = digest("given", name)

    def compute(self, tile: Tile) -> np.ndarray:
        return tile.given[self.place]


class Constant(Recipe):
    """The same value for every row."""

    def __init__(self, value: Any, dtype: Any):
        self.value, self.dtype, self.tail = value, np.dtype(dtype), ()
        self.key = digest("constant", value, self.dtype.str)

    def compute(self, tile: Tile) -> np.ndarray:
        return np.full(tile.n_rows, self.value, dtype=self.dtype)


class RowNumbers(Recipe):
    """The number of each row in the table, from 0."""

    def __init__(self) -> None:
        self.dtype, self.tail = np.dtype(np.uint64), ()
        self.key = digest("row numbers")

    def compute(self, tile: Tile) -> np.ndarray:
        return np.arange(tile.start, tile.start + tile.n_rows, dtype=np.uint64)


class OfRows(Recipe):
    """The result of a function of the original rows, dense or CSR.

    The function is sent to the blocks and must be picklable. `tail` and `dtype` are the entry
    shape and type of its result.
    """

    def __init__(self, function: Callable[[Any], np.ndarray], dtype: Any, tail: tuple = ()):
        self.function, self.dtype, self.tail = function, np.dtype(dtype), tail
        self.key = digest("of rows", _pickled(function), self.dtype.str, tail)

    def compute(self, tile: Tile) -> np.ndarray:
        return np.asarray(self.function(tile.X), dtype=self.dtype)


class Apply(Recipe):
    """A row-wise function of arrays: a ufunc, `numpy.where` or a function of this package.

    The arguments are recipes, which are replaced by their arrays, and constants. The shape and
    dtype of the result are found by a call with sample rows, more of them than any constant has
    entries, so that no constant is mistaken for rows. The name of the function is part of the key:
    functions that differ must have different names.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Any,
        options: Mapping[str, Any] | None = None,
    ):
        self.function, self.arguments = function, tuple(arguments)
        self.options = dict(options or {})
        sizes = [a.tail if isinstance(a, Recipe) else np.shape(a) for a in self.arguments]
        n_rows = 3 + max((size for shape in sizes for size in shape), default=0)
        samples = [a.sample(n_rows) if isinstance(a, Recipe) else a for a in self.arguments]
        with np.errstate(all="ignore"):
            try:
                found = np.asarray(function(*samples, **self.options))
            except ValueError as error:
                raise ValueError(
                    f"{_name(function)} does not work row by row on entries of the shapes "
                    f"{', '.join(map(str, sizes))}: {error}."
                ) from error
        if found.shape[:1] != (n_rows,):
            raise TypeError(
                f"{_name(function)} does not work row by row here: for {n_rows} rows it returns "
                f"an array of shape {found.shape}."
            )
        self.dtype, self.tail = found.dtype, found.shape[1:]
        self.widening = max(
            (a.widening for a in self.arguments if isinstance(a, Recipe)), default=1.0
        )
        named = sorted((name, repr(value)) for name, value in self.options.items())
        self.key = digest("apply", _name(function), *self.arguments, named)

    def compute(self, tile: Tile) -> np.ndarray:
        values = [tile.value(a) if isinstance(a, Recipe) else a for a in self.arguments]
        return np.asarray(self.function(*values, **self.options))


def _name(function: Any) -> str:
    return (
        getattr(function, "__name__", None) or hashlib.blake2b(pickle.dumps(function)).hexdigest()
    )


class RowView:
    """A view of the rows: an optional feature map, and an optional offset to subtract.

    `widening` is the size of the features relative to the size of the rows, at least 1. Tiles are
    shorter accordingly. Equal views have the same `key`.
    """

    def __init__(
        self, feature_map: Any = None, offset: np.ndarray | None = None, widening: float = 1.0
    ):
        self.feature_map, self.offset, self.widening = feature_map, offset, widening
        self._map_key = b"" if feature_map is None else _digest(_pickled(feature_map))
        self.key = self._map_key + (b"" if offset is None else _digest(offset.tobytes()))

    def moved(self, offset: np.ndarray | None) -> RowView:
        """Return the same view with another offset."""
        other = copy.copy(self)
        other.offset = offset
        other.key = self._map_key + (b"" if offset is None else _digest(offset.tobytes()))
        return other


class Tile:
    """Consecutive rows of a block, starting at row `start`, with a cache of computed arrays.

    `given` contains the corresponding entries of the other arrays in blocks.
    """

    def __init__(self, X: Any, given: Sequence[np.ndarray], start: int):
        self.X, self.given, self.start = X, given, start
        self.n_rows = X.shape[0]
        self._values: dict[bytes, np.ndarray] = {}
        self._features: dict[bytes, Any] = {}
        self._rows: dict[Any, Any] = {}

    def value(self, recipe: Recipe) -> np.ndarray:
        """Return the array of a recipe, which is computed only once."""
        found = self._values.get(recipe.key)
        if found is None:
            found = self._values[recipe.key] = recipe.compute(self)
        return found

    def rows(self, view: RowView, weights: Recipe | None = None) -> Any:
        """Return a row source of the rows of this tile as seen in a view."""
        key = view.key, weights and weights.key
        if key not in self._rows:
            X = self.features(view)
            given = None if weights is None else self.value(weights)
            kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
            self._rows[key] = kind(X, offset=view.offset, sample_weight=given)
        return self._rows[key]

    def features(self, view: RowView) -> Any:
        """Return the rows under the feature map of a view, without subtracting its offset."""
        if view.feature_map is None:
            return self.X
        key = view._map_key
        if key not in self._features:
            self._features[key] = view.feature_map.transform(self.X)
        return self._features[key]


def tiles(
    block: Any,
    given: Sequence[Any],
    start: int,
    n_bytes: int = TILE_BYTES,
    widening: float = 1.0,
) -> Iterator[Tile]:
    """Divide a block into tiles of about `n_bytes`, counting features of `widening` the size."""
    if block.shape[0] == 0:
        return
    X = as_matrix(block)
    arrays = [np.asarray(one) for one in given]
    fitting = int(n_bytes / (X.shape[1] * X.dtype.itemsize * widening))
    step = max(MIN_ROWS, fitting)
    step -= step % TILE_ROWS if step > TILE_ROWS else 0
    for first in range(0, X.shape[0], step):
        rows = slice(first, min(first + step, X.shape[0]))
        yield Tile(X[rows], [one[rows] for one in arrays], start + first)


def _pickled(feature_map: Any) -> bytes:
    try:
        return pickle.dumps(feature_map)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            "a feature map, a kernel or a fitted split must be picklable to be sent to the "
            f"blocks: {error}. Define its functions at the top level of a module, not as a lambda "
            "or inside a function."
        ) from error


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
