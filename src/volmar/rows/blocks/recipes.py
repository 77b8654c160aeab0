"""How an array with an entry for each row is computed from a tile, a few of the rows."""

# ruff: noqa: D102 -- `compute` is described at Recipe

from __future__ import annotations

import copy
import hashlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from volmar.rows._validation import as_matrix
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import TILE_ROWS, DenseRows

# A tile is read from memory once and then used several times: it should stay in the cache. What
# needs long arrays of its own takes larger ones, since workers of dask give such arrays back to
# the system at once, and every new page costs.
TILE_BYTES, LARGE_TILE_BYTES = 2 * 2**20, 16 * 2**20
LEAST_ROWS = 256


def digest(*parts: Any) -> bytes:
    """Return a key that is the same for the same parts (recipes and views too), in any process."""
    found = hashlib.blake2b(digest_size=16)
    for one in parts:
        part = one.key if isinstance(one, (Recipe, RowView)) else one
        if isinstance(part, (np.ndarray, np.generic)):
            found.update(f"array {part.dtype.str} {part.shape} ".encode())
            # Bytes of objects are addresses, which tell nothing.
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
    """A way to compute, from a tile of rows, an array with an entry for each of them.

    Recipes never change. They travel to the blocks in place of what they describe. Those that
    compute the same in the same way have the same `key`. `tail` is the shape of an entry: () for a
    vector, (k,) for k columns; `widening` is that of the widest view of the rows that it needs.
    """

    widening: float = 1.0
    key: bytes
    dtype: np.dtype
    tail: tuple[int, ...]

    @abstractmethod
    def compute(self, tile: Tile) -> np.ndarray:
        """Return the array of the tile's rows, shape (m, *tail)."""

    def sample(self, n_rows: int) -> np.ndarray:
        """Return some made-up rows of what `compute` returns."""
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
    """An array that lies in blocks beside the rows, by its place among those."""

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
    """The number of each row among all, from 0."""

    def __init__(self) -> None:
        self.dtype, self.tail = np.dtype(np.uint64), ()
        self.key = digest("row numbers")

    def compute(self, tile: Tile) -> np.ndarray:
        return np.arange(tile.start, tile.start + tile.n_rows, dtype=np.uint64)


class OfRows(Recipe):
    """What a function makes of the rows as they lie there, dense or CSR.

    The function travels to the blocks and must be picklable. `tail` and `dtype` are those of what
    it returns.
    """

    def __init__(self, function: Callable[[Any], np.ndarray], dtype: Any, tail: tuple = ()):
        self.function, self.dtype, self.tail = function, np.dtype(dtype), tail
        self.key = digest("of rows", _pickled(function), self.dtype.str, tail)

    def compute(self, tile: Tile) -> np.ndarray:
        return np.asarray(self.function(tile.X), dtype=self.dtype)


class Apply(Recipe):
    """A function of arrays, row by row: a ufunc, `numpy.where`, a function of this room.

    What it returns for a few made-up rows tells the shape and dtype of what it returns for many:
    more of them than anything else has entries, so that none of it is taken for rows. The
    arguments are recipes, whose arrays take their places, and constants. The function's name is
    part of the key, so that it must tell what it does.
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
                f"{_name(function)} does not work row by row here: of {n_rows} rows it makes an "
                f"array of shape {found.shape}."
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
    """How rows are seen: under a feature map (or not), less an offset (or not).

    `widening` is the size of the features in units of the size of the rows, 1 at least: tiles are
    cut to it. Views that are the same have the same `key`.
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
    """Neighbouring rows of a block, from row `start` on, with what was computed of them so far.

    `given` are the parts of the arrays that lie beside the rows.
    """

    def __init__(self, X: Any, given: Sequence[np.ndarray], start: int):
        self.X, self.given, self.start = X, given, start
        self.n_rows = X.shape[0]
        self._values: dict[bytes, np.ndarray] = {}
        self._features: dict[bytes, Any] = {}
        self._rows: dict[Any, Any] = {}

    def value(self, recipe: Recipe) -> np.ndarray:
        """Return the array of a recipe, computed once."""
        found = self._values.get(recipe.key)
        if found is None:
            found = self._values[recipe.key] = recipe.compute(self)
        return found

    def rows(self, view: RowView, weights: Recipe | None = None) -> Any:
        """Return the rows as seen: a row source of this tile."""
        key = view.key, weights and weights.key
        if key not in self._rows:
            X = self.features(view)
            given = None if weights is None else self.value(weights)
            kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
            self._rows[key] = kind(X, offset=view.offset, sample_weight=given)
        return self._rows[key]

    def features(self, view: RowView) -> Any:
        """Return the rows under the view's map, without its offset."""
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
    """Cut a block into tiles of about this size, features that are `widening` times as large."""
    if block.shape[0] == 0:
        return
    X = as_matrix(block)
    arrays = [np.asarray(one) for one in given]
    fitting = int(n_bytes / (X.shape[1] * X.dtype.itemsize * widening))
    step = max(LEAST_ROWS, fitting)
    step -= step % TILE_ROWS if step > TILE_ROWS else 0
    for first in range(0, X.shape[0], step):
        rows = slice(first, min(first + step, X.shape[0]))
        yield Tile(X[rows], [one[rows] for one in arrays], start + first)


def _pickled(feature_map: Any) -> bytes:
    try:
        return pickle.dumps(feature_map)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            "a feature map, a kernel or a fitted split must be picklable to travel to the blocks: "
            f"{error}. Define its functions at the top of a module, not as a lambda or inside a "
            "function."
        ) from error


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
