"""Parts of the rows: split in two again and again, each with its size and a sample of its rows.

A part that has at most `most` rows is its own sample. Of a larger one the sample has the `most`
rows of positive weight that come first in an order which depends on a seed and on the rows'
numbers alone. So the same rows are drawn in memory and in blocks, however these are cut.
"""

# ruff: noqa: D102 -- described at Parts

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from volmar.rows.anywhere import has_sparse_rows, is_in_memory, scramble
from volmar.rows.blocks.recipes import Apply, Constant, OfRows, RowNumbers
from volmar.rows.blocks.samples import NO_LIMIT, CellSamples, Drawn
from volmar.rows.blocks.source import BlockRows
from volmar.rows.blocks.table import BlockTable
from volmar.rows.blocks.vector import RowVector
from volmar.rows.cells import Cells, Path, Side
from volmar.rows.tiled import TILE_ROWS

# Rows of weight 0 come after all others.
LAST = np.uint64(2**63)
# Standard deviations by which more rows are asked for than are needed, since the number of rows
# below a limit is random.
SPARE = 6.0


class Split(NamedTuple):
    """A split of a part: the sides of its sample, and a function that tells those of any rows."""

    sides: np.ndarray
    side: Side


@dataclass(eq=False)
class Part:
    """Some of the rows.

    Attributes
    ----------
    n_rows, weight : int, float
        Number and weight of its rows.
    first : int
        Number of its first row.
    numbers : ndarray of int or None
        Rows of its sample, ascending; None where it is not drawn yet.
    X, weights : matrix, ndarray or None
        The sample and its weights; None where it is not drawn yet, and without weights.
    is_whole : bool
        Whether the sample has all its rows.
    """

    n_rows: int
    weight: float
    first: int
    numbers: Any = None
    X: Any = None
    weights: np.ndarray | None = None
    is_whole: bool = False
    path: Path = ()
    #: In memory: all its rows.
    rows: Any = None
    #: In blocks: number of rows of positive weight.
    n_counted: int = 0

    @property
    def scale(self) -> float:
        """Weight of the part in units of the weight of its sample."""
        if self.is_whole or self.numbers is None or self.weight == 0:
            return 1.0
        drawn = self.numbers.size if self.weights is None else self.weights.sum()
        return self.weight / float(drawn)

    def forget_sample(self) -> None:
        """Let go of sampled rows that can be had again, or are not needed to split the part."""
        if self.rows is not None or not self.is_whole:
            self.X = None


class Parts(ABC):
    """All rows, which are split into parts."""

    #: Whether splitting several parts at once costs as much as splitting one.
    splits_together: bool
    root: Part

    @abstractmethod
    def draw(self, parts: Sequence[Part]) -> None:
        """Draw the samples of parts that have none."""

    @abstractmethod
    def split(self, parts: Sequence[tuple[Part, Split]], n_drawn: int) -> list[tuple[Part, Part]]:
        """Return the two sides of each split, of the first `n_drawn` ones with samples."""

    @abstractmethod
    def labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> Any:
        """Return a vector over all rows with a number for each of some disjoint parts."""

    @abstractmethod
    def sample_labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        """Return the same for the sample of all rows."""


def parts_of(
    X: Any, weights: Any, *, most: int | None, seed: int, pairwise: bool = False
) -> Parts:
    """Return the rows of X as one part.

    Parameters
    ----------
    X : array, CSR matrix or BlockTable of shape (n, d)
        The rows.
    weights : vector over the rows or None
        Their weights.
    most : int or None
        Maximum size of a sample; None for no limit.
    seed : int
        Decides which rows are drawn.
    pairwise : bool, default=False
        Whether X has a column for each row, so that columns are taken as well.
    """
    if is_in_memory(X):
        return PartsInMemory(X, weights, most=most, seed=seed, pairwise=pairwise)
    return PartsInBlocks(X, weights, most=X.shape[0] if most is None else most, seed=seed)


def row_ranks(numbers: np.ndarray, seed: int, weights: Any) -> np.ndarray:
    """Return well mixed bits for each row, by which samples are drawn, the smallest first."""
    start = scramble(np.array([seed], dtype=np.uint64))
    mixed = scramble(numbers ^ start) >> np.uint64(1)
    return mixed | (LAST * (np.asarray(weights) == 0).astype(np.uint64))


class PartsInMemory(Parts):
    """Parts of rows in memory: lists of their numbers."""

    splits_together = False

    def __init__(
        self, X: Any, weights: np.ndarray | None, *, most: int | None, seed: int, pairwise: bool
    ):
        self.X, self.weights, self.pairwise = X, weights, pairwise
        n = X.shape[0]
        self.most = n if most is None else most
        self._ranks = None
        if n > self.most:
            every = np.arange(n, dtype=np.uint64)
            self._ranks = row_ranks(every, seed, 1.0 if weights is None else weights)
        self.root = self._part(np.arange(n))
        self.draw([self.root])

    def draw(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if part.X is not None:
                continue
            numbers = part.rows
            if self._ranks is not None and part.n_rows > self.most:
                ranks = self._ranks[numbers]
                chosen = np.argpartition(ranks, self.most)[: self.most]
                chosen = np.sort(chosen[ranks[chosen] < LAST])
                numbers = numbers[chosen]
            part.numbers, part.is_whole = numbers, numbers.size == part.n_rows
            part.X = self._taken(numbers)
            part.weights = None if self.weights is None else self.weights[numbers]

    def split(
        self,
        parts: Sequence[tuple[Part, Split]],
        n_drawn: int,  # noqa: ARG002 -- cheap later
    ) -> list[tuple[Part, Part]]:
        found = []
        for part, split in parts:
            rows = part.rows
            second = split.sides if part.is_whole else self._sides(rows, split.side)
            found.append((self._part(rows[~second]), self._part(rows[second])))
        return found

    def labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        labels = np.empty(self.X.shape[0], dtype=np.int64)
        for part, number in zip(parts, numbers, strict=True):
            labels[part.rows] = number
        return labels

    def sample_labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        return self.labels(parts, numbers)[self.root.numbers]

    def _part(self, rows: np.ndarray) -> Part:
        weight = float(rows.size if self.weights is None else self.weights[rows].sum())
        return Part(rows.size, weight, int(rows[0]) if rows.size else 0, rows=rows)

    def _taken(self, rows: np.ndarray) -> Any:
        if rows.size == self.X.shape[0]:
            return self.X
        if not self.pairwise:
            return self.X[rows]
        if sparse.issparse(self.X):
            return self.X[rows][:, rows]
        return self.X[np.ix_(rows, rows)]

    def _sides(self, rows: np.ndarray, side: Side) -> np.ndarray:
        whole = rows.size == self.X.shape[0]
        second = np.empty(rows.size, dtype=bool)
        for start in range(0, rows.size, TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            second[tile] = side(self.X[tile] if whole else self.X[rows[tile]])
        return second


class PartsInBlocks(Parts):
    """Parts of rows in blocks: cells of space. All that are asked for together take one pass."""

    splits_together = True

    def __init__(self, table: BlockTable, weights: RowVector | None, *, most: int, seed: int):
        self.table, self.weights, self.most = table, weights, most
        given = Constant(1.0, np.float64) if weights is None else weights.recipe
        self._ranks = Apply(row_ranks, [RowNumbers(), seed, given])
        self._is_sparse = has_sparse_rows(BlockRows(table))
        n = table.n_rows
        counted = n if weights is None else int(np.count_nonzero(weights))
        (self.root,) = self._passed([((), counted)], 1)

    def draw(self, parts: Sequence[Part]) -> None:
        missing = [part for part in parts if part.numbers is None]
        if missing:
            cells = [(part.path, part.n_counted) for part in missing]
            for part, drawn in zip(missing, self._passed(cells, len(cells)), strict=True):
                vars(part).update(vars(drawn))

    def split(self, parts: Sequence[tuple[Part, Split]], n_drawn: int) -> list[tuple[Part, Part]]:
        found: dict[int, tuple[Part, Part]] = {}
        asked, cells = [], []
        for i, (part, split) in enumerate(parts):
            paths = [(*part.path, (split.side, second)) for second in (False, True)]
            if part.is_whole:
                both = [
                    _chosen(part, path, mask)
                    for path, mask in zip(paths, (~split.sides, split.sides), strict=True)
                ]
                found[i] = both[0], both[1]
                continue
            asked.append(i)
            for path, mask in zip(paths, (~split.sides, split.sides), strict=True):
                seen = np.count_nonzero(mask)
                least = max(seen - SPARE * np.sqrt(seen), 0.0) / split.sides.size
                cells.append((path, int(least * part.n_counted)))
        if asked:
            drawn = 2 * sum(i < n_drawn for i in asked)
            new = self._passed(cells, drawn)
            for place, i in enumerate(asked):
                found[i] = new[2 * place], new[2 * place + 1]
        return [found[i] for i in range(len(parts))]

    def labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> RowVector:
        cells = Cells([part.path for part in parts], numbers)
        return RowVector(self.table, OfRows(cells, np.int64))

    def sample_labels(self, parts: Sequence[Part], numbers: Sequence[int]) -> np.ndarray:
        root = self.root
        if not root.is_whole:
            return Cells([part.path for part in parts], numbers)(root.X)
        labels = np.empty(root.n_rows, dtype=np.int64)
        for part, number in zip(parts, numbers, strict=True):
            labels[part.numbers] = number
        return labels

    def _passed(self, cells: Sequence[tuple[Path, int]], n_drawn: int) -> list[Part]:
        """Return the parts of cells with about these many rows of positive weight, at least.

        The first `n_drawn` get samples. A second pass is needed only where a limit was too low,
        which has a probability of about 1e-9.
        """
        paths = [path for path, _ in cells]
        least = np.array([size for _, size in cells], dtype=float)
        enough = self.most + SPARE * np.sqrt(self.most)
        limits = np.full(least.size, NO_LIMIT)
        large = least > enough
        limits[large] = (enough / least[large] * float(LAST)).astype(np.uint64)
        limits[n_drawn:] = 0
        while True:
            found = self._asked(paths, limits)
            n_found = np.bincount(found.cells, minlength=least.size)
            needed = np.where(
                found.n_rows <= self.most, found.n_rows, np.minimum(self.most, found.n_counted)
            )
            short = (n_found < needed) & (np.arange(least.size) < n_drawn)
            if not short.any():
                break
            limits[short] = NO_LIMIT
        return [self._part(found, j, paths[j], j < n_drawn) for j in range(least.size)]

    def _asked(self, paths: Sequence[Path], limits: np.ndarray) -> CellSamples:
        cells = Constant(0, np.int64) if paths == [()] else OfRows(Cells(paths), np.int64)
        weights = None if self.weights is None else self.weights.recipe
        size, dtype = self.table.shape[1], self.table.dtype
        return self.table.ask(Drawn(cells, self._ranks, limits, size, dtype, weights))

    def _part(self, found: CellSamples, j: int, path: Path, is_drawn: bool) -> Part:
        n_rows, counted = int(found.n_rows[j]), int(found.n_counted[j])
        part = Part(n_rows, float(found.weight[j]), int(found.first[j]), path=path)
        part.n_counted = counted
        if not is_drawn:
            return part
        chosen = np.flatnonzero(found.cells == j)
        if n_rows > self.most:
            by_rank = np.argsort(found.ranks[chosen])[: self.most]
            chosen = np.sort(chosen[by_rank])
            chosen = chosen[found.ranks[chosen] < LAST]
        rows = found.X[chosen].astype(self.table.dtype, copy=False)
        part.X = sparse.csr_matrix(rows) if self._is_sparse else rows
        part.numbers, part.is_whole = found.numbers[chosen], chosen.size == n_rows
        part.weights = None if self.weights is None else found.weights[chosen]
        return part


def _chosen(part: Part, path: Path, mask: np.ndarray) -> Part:
    """Return some of the rows of a part that is its own sample."""
    numbers = part.numbers[mask]
    weights = None if part.weights is None else part.weights[mask]
    n, counted = numbers.size, numbers.size if weights is None else np.count_nonzero(weights)
    weight = float(n if weights is None else weights.sum())
    first = int(numbers[0]) if n else 0
    return Part(n, weight, first, numbers, part.X[mask], weights, True, path, None, int(counted))
