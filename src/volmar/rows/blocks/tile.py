"""A few rows at a time: where recipes are carried out."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from volmar.rows._validation import as_matrix
from volmar.rows.dense import DenseRows
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import TILE_ROWS

if TYPE_CHECKING:
    from volmar.rows.blocks.recipes import Recipe

__all__ = ["LARGE_TILE_BYTES", "TILE_BYTES", "RowView", "Tile", "tiles"]

# A tile is read from memory once and then used several times: it should stay in the cache. What
# needs long arrays of its own takes larger ones, since workers of dask give such arrays back to
# the system at once, and every new page costs.
TILE_BYTES, LARGE_TILE_BYTES = 2 * 2**20, 16 * 2**20
LEAST_ROWS = 256


class RowView:
    """How rows are seen: under a feature map (or not), less an offset (or not).

    Attributes
    ----------
    feature_map : FeatureMap or None
        Applied to a tile of rows as they lie in the block.
    offset : ndarray of shape (d,) or None
        Taken off the (mapped) rows.
    widening : float
        Size of the features in units of the size of the rows, 1 at least: tiles are cut to it.
    key : bytes
        The same for views that are the same.
    """

    def __init__(
        self, feature_map: Any = None, offset: np.ndarray | None = None, widening: float = 1.0
    ):
        self.feature_map, self.offset, self.widening = feature_map, offset, widening
        self._map_key = b"" if feature_map is None else _digest(_pickled(feature_map))
        self.key = self._map_key + (b"" if offset is None else _digest(offset.tobytes()))

    def moved(self, offset: np.ndarray | None) -> RowView:
        """Return the same view with another offset."""
        other = RowView.__new__(RowView)
        other.feature_map, other.offset, other._map_key = self.feature_map, offset, self._map_key
        other.widening = self.widening
        other.key = self._map_key + (b"" if offset is None else _digest(offset.tobytes()))
        return other


class Tile:
    """Some neighbouring rows of a block, with what was computed of them so far.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (m, d)
        The rows.
    given : list of ndarray
        Parts of the arrays that lie beside the rows.
    start : int
        Number of the first row among all rows.
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
        key = view.key, None if weights is None else weights.key
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
            f"a feature map (or kernel) must be picklable to travel to the blocks: {error}. "
            "Define its functions at the top of a module, not as a lambda or inside a function."
        ) from error


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
