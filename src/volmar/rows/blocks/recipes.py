"""How an array with an entry for each row is computed from a tile of the rows."""

from __future__ import annotations

import hashlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from volmar.rows.blocks.tile import RowView, Tile

__all__ = ["Apply", "Constant", "Given", "Recipe", "RowNumbers", "Scores", "digest"]


def digest(*parts: Any) -> bytes:
    """Return a key that is the same for the same parts, in any process."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
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

    Recipes never change. They travel to the blocks in place of what they describe.

    Attributes
    ----------
    key : bytes
        The same for recipes that compute the same in the same way.
    dtype : numpy.dtype
        Of the entries.
    tail : tuple of int
        Shape of an entry: () for a vector, (k,) for k columns.
    widening : float
        That of the widest view of the rows that it needs.
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
        self.key = digest("scores", view.key, w)

    def compute(self, tile: Tile) -> np.ndarray:
        """Multiply the tile."""
        return tile.rows(self.view).scores(self.w)


class Given(Recipe):
    """An array that lies in blocks beside the rows, by its place among those."""

    def __init__(self, place: int, dtype: np.dtype, name: str):
        self.place, self.dtype, self.tail = place, np.dtype(dtype), ()
        self.key = digest("given", name)

    def compute(self, tile: Tile) -> np.ndarray:
        """Return the tile's part."""
        return tile.given[self.place]


class Constant(Recipe):
    """The same value for every row."""

    def __init__(self, value: Any, dtype: Any):
        self.value, self.dtype, self.tail = value, np.dtype(dtype), ()
        self.key = digest("constant", value, self.dtype.str)

    def compute(self, tile: Tile) -> np.ndarray:
        """Return it for each row of the tile."""
        return np.full(tile.n_rows, self.value, dtype=self.dtype)


class RowNumbers(Recipe):
    """The number of each row among all, from 0."""

    def __init__(self) -> None:
        self.dtype, self.tail = np.dtype(np.uint64), ()
        self.key = digest("row numbers")

    def compute(self, tile: Tile) -> np.ndarray:
        """Count on from the tile's first row."""
        return np.arange(tile.start, tile.start + tile.n_rows, dtype=np.uint64)


class Apply(Recipe):
    """A function of arrays, row by row: a ufunc, `numpy.where`, a function of this room.

    What it returns for a few made-up rows tells the shape and dtype of what it returns for many:
    more of them than anything else has entries, so that none of it is taken for rows.

    Parameters
    ----------
    function : callable
        Its name is part of the key, so that it must tell what it does.
    arguments : sequence
        Recipes, whose arrays take their places, and constants.
    options : mapping, optional
        Keyword arguments.
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
        parts = [a.key if isinstance(a, Recipe) else a for a in self.arguments]
        named = sorted((name, repr(value)) for name, value in self.options.items())
        self.key = digest("apply", _name(function), *parts, named)

    def compute(self, tile: Tile) -> np.ndarray:
        """Compute the arguments, each once a tile, and apply the function."""
        values = [tile.value(a) if isinstance(a, Recipe) else a for a in self.arguments]
        return np.asarray(self.function(*values, **self.options))


def _name(function: Any) -> str:
    return (
        getattr(function, "__name__", None) or hashlib.blake2b(pickle.dumps(function)).hexdigest()
    )
