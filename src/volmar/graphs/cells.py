"""Approximate nearest neighbours by cells of rows, to a recall that is chosen on a sample.

An inverted file in numpy. Rows are put into cells around centres (a short k-means). A query is
compared with the rows of cells whose centre is near, one float32 matrix product for each cell and
all queries that look into it, and with a bound on the distance of its k-th neighbour in hand most
comparisons end there: selecting, not multiplying, is what a search spends its time on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["TARGET_RECALL", "CellIndex"]

# Share of the true neighbours to be found, and rows on which the way there is chosen.
TARGET_RECALL = 0.95
N_CALIBRATION = 400
# Cells for n rows: CELLS sqrt(n). Fewer are compared in vain more often, more cost as much again
# to be looked through.
CELLS = 2.0
TRAINING_ROWS = 20
TRAINING_STEPS = 6
# Rows near a query's cell that bound the distance of its k-th neighbour.
N_BOUNDING = 600
# The bound is lowered so that it still holds for this share of the queries; others search again.
USUAL = 0.95
WIDER = (1.5, 100.0)
# Queries at a time, entries of a matrix product at a time (4 MB, within a cache), and candidates a
# query that are held before they are reduced to the nearest k.
CHUNK = 2**15
TILE = 2**20
MAX_HELD = 160
# Candidates beyond k, so that rounding to float32 does not decide who is k-th.
SPARE = 2


@dataclass(frozen=True)
class _Cells:
    """Rows in the order of their cells, those of cell c at start[c]:start[c + 1]."""

    centres: NDArray
    rows: NDArray
    start: NDArray
    order: NDArray  # number of each row before


class CellIndex:
    """Neighbours among rows by cells; a `seed` makes it repeatable.

    A query is compared with the cells whose centre is near, relative to a bound on the distance of
    its k-th neighbour. `reach` is the largest ratio of the squares of the two: the smallest with
    which `TARGET_RECALL` of the neighbours of `N_CALIBRATION` rows are found, less two standard
    errors. In the worst case, many dimensions without structure, this takes in most cells.
    `tightness` is what the bound may be multiplied by: neighbours found beyond it are too many.
    """

    def __init__(self, rows: NDArray, k: int, seed: int) -> None:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        rng = np.random.default_rng(seed)
        self.k = min(k + SPARE, rows.shape[0])
        self._cells = _cells(rows, rng)
        self.reach, self.tightness = self._calibrated(rng)

    def among(self) -> NDArray:
        """Return candidates of each fitted row, as `near`."""
        cells = self._cells
        own = np.repeat(np.arange(len(cells.centres)), np.diff(cells.start))
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[cells.order] = self._search(cells.rows, own)
        return found

    def near(self, queries: NDArray) -> NDArray:
        """Return candidates (m, k + SPARE) of queries in no order, -1 where there are too few."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        own = _nearest_centre(queries, self._cells.centres)
        order = np.argsort(own, kind="stable")
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[order] = self._search(queries[order], own[order])
        return found

    def _search(self, queries: NDArray, own: NDArray) -> NDArray:
        """Search for queries in the order of their cells."""
        found = np.full((own.size, self.k), -1, dtype=np.int64)
        # Those that have too few within the usual bound, or within their reach, take a wider one.
        tries = [(share, self.reach) for share in (self.tightness, *WIDER)] + [(1.0, np.inf)]
        for tightness, reach in tries:
            short = np.flatnonzero(found[:, -1] < 0)
            for start in range(0, short.size, CHUNK):
                part = short[start : start + CHUNK]
                scan = _Scan(self._cells, queries[part], own[part], self.k, tightness)
                found[part] = scan.run(reach).nearest()
        return np.where(found < 0, -1, self._cells.order[found])

    def _calibrated(self, rng: np.random.Generator) -> tuple[float, float]:
        """Return the reach with which a sample has the wanted recall, and the tightness."""
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
        # Row means vary between rows: two standard errors are allowed for.
        for reach in np.quantile(ratio, np.linspace(TARGET_RECALL, 1.0, 11)):
            recall = (ratio <= reach).mean(axis=1)
            error = recall.std() / np.sqrt(recall.size)
            if recall.mean() - 2 * error >= TARGET_RECALL:
                return float(reach), tightness
        return np.inf, tightness


class _Scan:
    """Queries on their way through the cells, with the candidates found so far.

    `own` is the cell of each query, ascending. Distances are squared and taken about the centre of
    the cell that is searched: about a common origin far points would lose the digits that matter.
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
        """Compare every query with the rows of the cells within its reach."""
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
        """Positions of the nearest k rows found for each query, -1 at the end for missing ones."""
        graph = self.reduced()
        found = np.full((len(self._queries), self._k), -1, dtype=np.int64)
        counts = np.diff(graph.indptr)
        found[np.arange(self._k) < counts[:, None]] = graph.indices
        return found

    def distances_to_centres(self) -> NDArray:
        """Squared distances (m, n_cells)."""
        return self._squares_to(self._cells.centres).T

    def _squares_to(self, centres: NDArray) -> NDArray:
        squares = centres @ (-2.0 * self._queries.T)
        squares += _norms(centres)[:, None]
        squares += _norms(self._queries)
        return squares

    def _bounds(self, own: NDArray) -> NDArray:
        """Squared distance to the k-th of some rows near the query's cell."""
        cells, n_rows = self._cells, max(N_BOUNDING, self._k)
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
        # Rounded up: the rows that made the bound are among those within it.
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
        """Keep the nearest k of the candidates, and look for nearer ones from here on."""
        graph = self.reduced()
        full = np.flatnonzero(np.diff(graph.indptr) == self._k)
        worst = graph.data[graph.indptr[full][:, None] + np.arange(self._k)].max(axis=1)
        self._bound[full] = np.nextafter(worst, np.float32(-1))
        rows = np.repeat(np.arange(len(self._queries)), np.diff(graph.indptr))
        self._found = [(rows, graph.indices, graph.data)]
        self._held = graph.nnz

    def reduced(self) -> Any:
        """Nearest k candidates of each query, as a graph of squared distances."""
        query, row, square = (np.concatenate(part) for part in zip(*self._found, strict=True))
        shape = len(self._queries), len(self._cells.rows)
        pairs = sp.coo_array((square, (query, row)), shape=shape)
        pairs.has_canonical_format = True  # nobody is found twice: there is nothing to be summed
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
    """Centres by a few steps of k-means on a sample, and the rows in the order of their cells."""
    n = rows.shape[0]
    n_cells = min(max(1, int(CELLS * np.sqrt(n))), n)
    sample = rows[rng.choice(n, min(n, TRAINING_ROWS * n_cells), replace=False)]
    centres = sample[:n_cells].copy()
    for _ in range(TRAINING_STEPS):
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
    """Index of the centre nearest to each row."""
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
    """Rows (x, |x|², 1), whose products with the columns of `_right` are squared distances."""
    m, d = rows.shape
    left = np.empty((m, d + 2), dtype=np.float32)
    left[:, :d], left[:, d], left[:, d + 1] = rows, _norms(rows), 1.0
    return left


def _right(rows: NDArray) -> NDArray:
    """Columns (-2y, 1, |y|²): see `_left`."""
    m, d = rows.shape
    right = np.empty((d + 2, m), dtype=np.float32)
    right[:d], right[d], right[d + 1] = -2.0 * rows.T, 1.0, _norms(rows)
    return right


def _parts(queries: NDArray, width: int) -> list[NDArray]:
    """Cut queries into parts whose comparison with `width` rows fits a cache."""
    step = max(1, TILE // int(width))
    return [queries[i : i + step] for i in range(0, queries.size, step)]
