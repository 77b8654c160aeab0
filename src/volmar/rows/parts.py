"""Parts of the rows for recursive splits, and the cells of their planes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from volmar.rows.anywhere import has_sparse_rows, is_in_memory, of_rows, scramble
from volmar.rows.blocks.ranks import NO_LIMIT, CellSamples, Drawn
from volmar.rows.blocks.recipes import Apply, Constant, OfRows, RowNumbers
from volmar.rows.blocks.table import BlockRows, BlockTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.tiled import TILE_ROWS

# -------------------------- cells of a tree of two-way splits, and the assignment of rows to them


#: Function that returns for each row, dense or CSR, whether it is on the second side of a split.
#: It may have an attribute `plane`: (w, b) with w'x + b > 0 on the second side, or None.
Side = Callable[[Any], np.ndarray]
#: The splits above a cell, from the root down, each with the side on which the cell lies.
Path = tuple[tuple[Side, bool], ...]


class Plane:
    """A function that returns whether rows satisfy w'x + b > 0. Its pickle is small."""

    def __init__(self, w: np.ndarray, b: float):
        self.plane = w, b

    def __call__(self, X: Any) -> np.ndarray:
        """Return whether rows, dense or CSR, are on the second side."""
        w, b = self.plane
        return np.asarray(X @ w.astype(X.dtype)) + X.dtype.type(b) > 0


class Cells:
    """A function that returns the number of the cell of each row.

    The paths of cells below a split share the same split object.
    """

    def __init__(self, paths: Sequence[Path], numbers: Sequence[int] | None = None):
        given = range(len(paths)) if numbers is None else numbers
        # A child is an index into `sides`, -2 minus the number of a cell, or -1 for no cell.
        self.sides: list[Side] = []
        self.children: list[list[int]] = []
        top = [-1]
        todo = [(list(zip(paths, map(int, given), strict=True)), 0, top, 0)]
        while todo:  # no recursion: a tree may be deeper than Python's stack
            cells, depth, above, place = todo.pop()
            if len(cells) == 1 and len(cells[0][0]) == depth:
                above[place] = -2 - cells[0][1]
            elif cells:
                above[place] = len(self.sides)
                self.sides.append(cells[0][0][depth][0])
                self.children.append([-1, -1])
                for second in (False, True):
                    beyond = [cell for cell in cells if cell[0][depth][1] == second]
                    todo.append((beyond, depth + 1, self.children[above[place]], int(second)))
        self.top = top[0]
        self.planes: tuple[np.ndarray, np.ndarray] | None = None
        planes: list[Any] = [getattr(side, "plane", None) for side in self.sides]
        if planes and all(plane is not None for plane in planes):
            self.planes = np.column_stack([w for w, _ in planes]), np.array([b for _, b in planes])

    def __call__(self, X: Any) -> np.ndarray:
        """Return the number of the cell of each row, or -1 for rows outside of all cells.

        If all splits are hyperplanes, float64 rows are scored by a single matrix product, without
        copies of rows. Otherwise the functions themselves are called; float32 products would
        differ from theirs by rounding.
        """
        n = X.shape[0]
        found = np.full(n, -1, dtype=np.int64)
        todo = [(self.top, np.arange(n))]
        scores = None
        if self.planes is not None and isinstance(X, np.ndarray) and X.dtype == np.float64:
            scores = X @ self.planes[0] + self.planes[1]
        while todo:
            place, rows = todo.pop()
            if place < 0:
                found[rows] = -2 - place
            elif rows.size:
                if scores is not None:
                    side = scores[rows, place] > 0
                else:
                    side = self.sides[place](X if rows.size == n else X[rows])
                first, second = self.children[place]
                todo += [(first, rows[~side]), (second, rows[side])]
        return found


# -------- parts of the rows, split in two repeatedly, each with its size and a sample of its rows


# Ranks from this one on belong to rows of weight 0, which are drawn last.
LAST = np.uint64(2**63)
# Number of standard deviations by which more rows are requested than needed, since the number of
# rows below a limit is random.
SPARE = 6.0
# Maximum size of the pool of all rows in memory, and minimum number of rows of a part in a pool;
# parts with fewer rows get a separate pool.
POOL_BYTES, MIN_POOL_ROWS = 64 * 2**20, 5000


class Split(NamedTuple):
    """A split of a part: the sides of its sample, and a function for the sides of any rows."""

    sides: np.ndarray
    side: Side


class Sizes(NamedTuple):
    """Number of rows, weight and first row of each part."""

    n_rows: np.ndarray
    weight: np.ndarray
    first: np.ndarray


@dataclass(frozen=True, eq=False)
class Pool:
    """The first rows of a cell in the order of drawing, sorted by their numbers.

    `X` holds all rows if they are in memory, or only the drawn rows if they are in blocks
    (`is_held`).
    """

    n_rows: int
    weight: float
    numbers: np.ndarray
    ranks: np.ndarray
    weights: np.ndarray | None
    X: Any
    is_held: bool

    @property
    def is_whole(self) -> bool:
        """Whether all rows of the cell were drawn."""
        return self.numbers.size == self.n_rows

    def rows(self, inside: np.ndarray, pairwise: bool = False) -> Any:
        """Return rows by their positions in the pool."""
        numbers = inside if self.is_held else self.numbers[inside]
        if numbers.size == self.X.shape[0]:
            return self.X
        if not pairwise:
            return self.X[numbers]
        if sparse.issparse(self.X):
            return self.X[numbers][:, numbers]
        return self.X[np.ix_(numbers, numbers)]


@dataclass(eq=False)
class Part:
    """A subset of the rows, defined by a path of splits.

    `inside` are the positions of its rows in the pool. `n_rows` and `weight` are estimated if the
    pool does not contain all rows. `numbers`, `X` and `weights` are the sample: None before it is
    drawn, and X is None again after `forget`. `is_whole` says whether it contains all rows of the
    part.
    """

    pool: Pool
    inside: np.ndarray
    path: Path
    n_rows: int
    weight: float
    numbers: Any = None
    X: Any = None
    weights: np.ndarray | None = None
    is_whole: bool = False

    @property
    def scale(self) -> float:
        """Ratio of the weight of the part to the weight of its sample."""
        if self.is_whole or self.weight == 0:
            return 1.0
        drawn = self.numbers.size if self.weights is None else self.weights.sum()
        return self.weight / float(drawn)

    @property
    def all_numbers(self) -> np.ndarray:
        """Numbers of the rows of the part that are in the pool."""
        return self.pool.numbers[self.inside]

    def forget(self) -> None:
        """Release the rows of the sample."""
        self.X = None


class Drawer(Protocol):
    """Rows, in memory or in blocks, from which pools are drawn."""

    def pools(self, paths: Sequence[Path], least: Sequence[int], most: int) -> list[Pool]:
        """Return pools of at most `most` rows, given a minimum size `least` of each cell."""

    def sizes(self, paths: Sequence[Path]) -> Sizes:
        """Return the exact sizes of cells."""


class Parts:
    """A data set that is split into parts.

    `most` limits the rows of a sample. If X is `pairwise`, columns are selected together with
    rows.
    """

    def __init__(
        self, X: Any, weights: Any, *, most: int | None, seed: int, pairwise: bool = False
    ):
        self._X, self._pairwise = X, pairwise
        n = X.shape[0]
        self._most = n if most is None else most
        size = min(n, max(self._most, pool_rows(X)))
        is_here = is_in_memory(X)
        self._drawer: Drawer = (_InMemory if is_here else _InBlocks)(X, weights, seed)
        counted = n if weights is None else int(np.count_nonzero(weights))
        (pool,) = self._drawer.pools([()], [counted], size)
        self.root = Part(pool, np.arange(pool.numbers.size), (), n, pool.weight)
        self.draw([self.root])

    def draw(self, parts: Sequence[Part]) -> None:
        """Draw samples of parts without one, by one pass for all that need a separate pool."""
        new = [part for part in parts if part.X is None]
        minimum = min(MIN_POOL_ROWS, self._most)
        few = [
            part
            for part in new
            if part.inside.size < min(minimum, part.pool.numbers.size) and not part.pool.is_whole
        ]
        if few:
            least = [_minimum_size(part.inside.size, part.n_rows) for part in few]
            found = self._drawer.pools([part.path for part in few], least, self._most)
            for part, pool in zip(few, found, strict=True):
                part.pool, part.inside = pool, np.arange(pool.numbers.size)
                part.n_rows, part.weight = pool.n_rows, pool.weight
        for part in new:
            inside = self._first(part)
            part.numbers = part.pool.numbers[inside]
            part.X = part.pool.rows(inside, self._pairwise)
            weights = part.pool.weights
            part.weights = None if weights is None else weights[inside]
            part.is_whole = part.pool.is_whole and inside.size == part.inside.size

    def split(self, part: Part, split: Split) -> tuple[Part, Part]:
        """Return the two parts on the sides of a split."""
        pool, inside = part.pool, part.inside
        second = split.sides
        if part.numbers.size < inside.size:
            second = np.concatenate(
                [
                    split.side(pool.rows(inside[start : start + TILE_ROWS]))
                    for start in range(0, inside.size, TILE_ROWS)
                ]
            )
        return (
            self._side(part, inside[~second], (split.side, False)),
            self._side(part, inside[second], (split.side, True)),
        )

    def labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> Any:
        """Return a vector over all rows with the number of the part of each row."""
        if self.root.pool.is_whole and is_in_memory(self._X):
            return self._labels_in_pool(parts, numbers)
        cells = Cells([part.path for part in parts], numbers)
        if is_in_memory(self._X):
            return _by_tiles(self._X, cells)
        return of_rows(self._X, cells, np.int64)

    def sample_labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        """Return the labels of the rows in the sample of all rows."""
        if self.root.pool.is_whole:
            return self._labels_in_pool(parts, numbers)[self.root.numbers]
        return Cells([part.path for part in parts], numbers)(self.root.X)

    def sizes(self, parts: Sequence[Part]) -> Sizes:
        """Return the exact sizes of parts that together contain all rows.

        This takes a pass if the pool does not contain all rows.
        """
        if not self.root.pool.is_whole:
            return self._drawer.sizes([part.path for part in parts])
        n = self.root.n_rows
        first = [int(part.all_numbers[0]) if part.inside.size else n for part in parts]
        n_rows, weight = [part.n_rows for part in parts], [part.weight for part in parts]
        return Sizes(np.array(n_rows), np.array(weight), np.array(first))

    def _labels_in_pool(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        labels = np.empty(self.root.n_rows, dtype=np.int64)
        for part, number in zip(parts, numbers, strict=True):
            labels[part.all_numbers] = number
        return labels

    def _first(self, part: Part) -> np.ndarray:
        """Return the positions in the pool of the sample of a part."""
        if part.inside.size <= self._most:
            return part.inside
        ranks = part.pool.ranks[part.inside]
        chosen = np.argpartition(ranks, self._most)[: self._most]
        return part.inside[np.sort(chosen[ranks[chosen] < LAST])]

    def _side(self, part: Part, inside: np.ndarray, last: tuple[Side, bool]) -> Part:
        pool = part.pool
        weights = pool.weights
        n, weight = inside.size, float(inside.size if weights is None else weights[inside].sum())
        if not pool.is_whole:
            drawn = pool.numbers.size if weights is None else weights.sum()
            weight *= pool.weight / float(drawn)
            n = round(n * pool.n_rows / pool.numbers.size)
        return Part(pool, inside, (*part.path, last), n, weight)


def pool_rows(X: Any) -> int:
    """Return the maximum number of rows in a pool, for the width and dtype of X."""
    return int(POOL_BYTES // (X.shape[1] * X.dtype.itemsize))


def row_ranks(numbers: np.ndarray, seed: int, weights: Any) -> np.ndarray:
    """Return a hash of each row number as its rank; rows are drawn in ascending order of ranks."""
    start = scramble(np.array([seed], dtype=np.uint64))
    mixed = scramble(numbers ^ start) >> np.uint64(1)
    return mixed | (LAST * (np.asarray(weights) == 0).astype(np.uint64))


def _minimum_size(seen: int, n_rows: int) -> int:
    """Return a lower bound on a size estimated as `n_rows`, of which `seen` rows were drawn."""
    return int(n_rows * max(seen - SPARE * np.sqrt(seen), 0.0) / max(seen, 1))


def _by_tiles(X: Any, cells: Cells) -> np.ndarray:
    tiles = range(0, X.shape[0], TILE_ROWS)
    return np.concatenate([cells(X[start : start + TILE_ROWS]) for start in tiles])


class _InMemory:
    """Pools of rows in memory, stored as row numbers."""

    def __init__(self, X: Any, weights: np.ndarray | None, seed: int):
        self.X, self.weights, self.seed = X, weights, seed

    def pools(self, paths: Sequence[Path], least: Sequence[int], most: int) -> list[Pool]:  # noqa: ARG002 -- sizes are known here
        n = self.X.shape[0]
        if list(paths) == [()]:
            return [self._pool(np.arange(n), most)]
        cells = _by_tiles(self.X, Cells(paths))
        return [self._pool(np.flatnonzero(cells == j), most) for j in range(len(paths))]

    def sizes(self, paths: Sequence[Path]) -> Sizes:
        cells, k = _by_tiles(self.X, Cells(paths)), len(paths)
        first = np.full(k, cells.size)
        first[cells[::-1]] = np.arange(cells.size)[::-1]
        n_rows = np.bincount(cells, minlength=k)
        weight = n_rows.astype(float) if self.weights is None else np.bincount(cells, self.weights)
        return Sizes(n_rows, weight, first)

    def _pool(self, numbers: np.ndarray, most: int) -> Pool:
        n, weights = numbers.size, self.weights
        weight = float(n if weights is None else weights[numbers].sum())
        given = 1.0 if weights is None else weights[numbers]
        ranks = row_ranks(numbers.astype(np.uint64), self.seed, given)
        if n > most:
            chosen = np.argpartition(ranks, most)[:most]
            chosen = np.sort(chosen[ranks[chosen] < LAST])
            numbers, ranks = numbers[chosen], ranks[chosen]
        drawn = None if weights is None else weights[numbers]
        return Pool(n, weight, numbers, ranks, drawn, self.X, False)


class _InBlocks:
    """Pools of rows in blocks, copied to memory by one pass for several pools."""

    def __init__(self, table: BlockTable, weights: RowVector | None, seed: int):
        self.table, self.weights = table, weights
        given = Constant(1.0, np.float64) if weights is None else weights.recipe
        self._ranks = Apply(row_ranks, [RowNumbers(), seed, given])
        self._is_sparse = has_sparse_rows(BlockRows(table))

    def pools(self, paths: Sequence[Path], least: Sequence[int], most: int) -> list[Pool]:
        """Return pools. A second pass is needed if a limit was too low, which is rare."""
        sizes = np.array(least, dtype=float)
        enough = most + SPARE * np.sqrt(most)
        limits = np.full(sizes.size, NO_LIMIT)
        large = sizes > enough
        limits[large] = (enough / sizes[large] * float(LAST)).astype(np.uint64)
        while True:
            found = self._asked(paths, limits)
            n_found = np.bincount(found.cells, minlength=sizes.size)
            needed = np.minimum(most, found.n_counted)
            short = n_found < np.where(found.n_rows <= most, found.n_rows, needed)
            if not short.any():
                return [self._pool(found, j, most) for j in range(sizes.size)]
            limits[short] = NO_LIMIT

    def sizes(self, paths: Sequence[Path]) -> Sizes:
        found = self._asked(paths, np.zeros(len(paths), dtype=np.uint64))
        return Sizes(found.n_rows, found.weight, found.first)

    def _asked(self, paths: Sequence[Path], limits: np.ndarray) -> CellSamples:
        everything = list(paths) == [()]
        cells = Constant(0, np.int64) if everything else OfRows(Cells(paths), np.int64)
        weights = None if self.weights is None else self.weights.recipe
        size, dtype = self.table.shape[1], self.table.dtype
        return self.table.ask(Drawn(cells, self._ranks, limits, size, dtype, weights))

    def _pool(self, found: CellSamples, j: int, most: int) -> Pool:
        n = int(found.n_rows[j])
        chosen = np.flatnonzero(found.cells == j)
        if n > most:
            chosen = np.sort(chosen[np.argsort(found.ranks[chosen])[:most]])
            chosen = chosen[found.ranks[chosen] < LAST]
        rows: Any = found.X if chosen.size == found.cells.size else found.X[chosen]
        rows = rows.astype(self.table.dtype, copy=False)
        rows = sparse.csr_matrix(rows) if self._is_sparse else rows
        weights = None if self.weights is None else found.weights[chosen]
        numbers, ranks = found.numbers[chosen], found.ranks[chosen]
        return Pool(n, float(found.weight[j]), numbers, ranks, weights, rows, True)
