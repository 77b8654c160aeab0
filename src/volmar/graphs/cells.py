"""Approximate nearest neighbours by cells of rows, with a recall that is calibrated on a sample.

This is an inverted file in numpy. Rows are assigned to cells around centres, found by a short
k-means. A query is compared with the rows of the cells whose centres are near. There is one
float32 matrix product for each cell and all queries that visit it. Most of a search is spent on
selection, not on multiplication. A bound on the distance of the k-th neighbour of each query
therefore rejects most rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["TARGET_RECALL", "CellIndex"]

# Share of the true neighbours to find, and the number of rows on which the search is calibrated.
TARGET_RECALL = 0.95
N_CALIBRATION = 400
# The number of cells for n rows is CELLS sqrt(n). With fewer cells, more rows are compared in
# vain. With more cells, comparing queries with the centres takes too long.
CELLS = 2.0
# Number of rows per cell, and of k-means steps, to find the centres.
TRAINING_ROWS = 20
TRAINING_STEPS = 6
# Number of rows near the cell of a query that bound the distance of its k-th neighbour.
N_BOUNDING = 600
# The bound is lowered so that it still holds for this share of the queries. The others are
# searched again, with the bound multiplied by these factors.
USUAL = 0.95
WIDER = (1.5, 100.0)
# Number of queries at a time, entries of a matrix product at a time (4 MB, to fit into a cache),
# and candidates per query that are stored before they are reduced to the nearest k.
CHUNK = 2**15
TILE = 2**20
MAX_HELD = 160
# Number of candidates beyond k, so that rounding to float32 does not decide which row is k-th.
SPARE = 2


@dataclass(frozen=True)
class _Cells:
    """Rows in the order of their cells; cell c has the rows start[c]:start[c + 1]."""

    centres: NDArray
    rows: NDArray
    start: NDArray
    order: NDArray  # original index of each row


class CellIndex:
    """Index of rows for nearest-neighbour search by cells; `seed` makes it reproducible.

    A query is compared with the rows of a cell if the squared distance to its centre, divided by
    the squared bound on the distance of the k-th neighbour, is at most `reach`. `reach` is the
    smallest ratio for which the recall on `N_CALIBRATION` rows, minus two standard errors, is at
    least `TARGET_RECALL`. In the worst case, many dimensions without structure, most cells are
    searched. `tightness` is a factor by which the bound is multiplied to limit the number of
    candidates.
    """

    def __init__(self, rows: NDArray, k: int, seed: int) -> None:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        rng = np.random.default_rng(seed)
        self.k = min(k + SPARE, rows.shape[0])
        self._cells = _cells(rows, rng)
        self.reach, self.tightness = self._calibrated(rng)

    def among(self) -> NDArray:
        """Return candidates for each fitted row; see `near`."""
        cells = self._cells
        own = np.repeat(np.arange(len(cells.centres)), np.diff(cells.start))
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[cells.order] = self._search(cells.rows, own)
        return found

    def near(self, queries: NDArray) -> NDArray:
        """Return unordered candidates (m, k + SPARE) for queries; -1 if there are too few."""
        queries = np.ascontiguousarray(queries, dtype=np.float32)
        own = _nearest_centre(queries, self._cells.centres)
        order = np.argsort(own, kind="stable")
        found = np.empty((len(own), self.k), dtype=np.int64)
        found[order] = self._search(queries[order], own[order])
        return found

    def _search(self, queries: NDArray, own: NDArray) -> NDArray:
        """Search for queries that are sorted by their cells."""
        found = np.full((own.size, self.k), -1, dtype=np.int64)
        # Queries with too few candidates are searched again with a wider bound and reach.
        tries = [(share, self.reach) for share in (self.tightness, *WIDER)] + [(1.0, np.inf)]
        for tightness, reach in tries:
            short = np.flatnonzero(found[:, -1] < 0)
            for start in range(0, short.size, CHUNK):
                part = short[start : start + CHUNK]
                scan = _Scan(self._cells, queries[part], own[part], self.k, tightness)
                found[part] = scan.run(reach).nearest()
        return np.where(found < 0, -1, self._cells.order[found])

    def _calibrated(self, rng: np.random.Generator) -> tuple[float, float]:
        """Return the reach that gives a sample the target recall, and the tightness."""
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
        # The recall varies between rows: allow for two standard errors.
        for reach in np.quantile(ratio, np.linspace(TARGET_RECALL, 1.0, 11)):
            recall = (ratio <= reach).mean(axis=1)
            error = recall.std() / np.sqrt(recall.size)
            if recall.mean() - 2 * error >= TARGET_RECALL:
                return float(reach), tightness
        return np.inf, tightness


class _Scan:
    """State of a search through the cells: queries, and the candidates found so far.

    `own` is the cell of each query, in ascending order. Distances are squared and computed
    relative to the centre of the searched cell. Relative to a common origin, far points would lose
    the significant digits.
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
        """Compare each query with the rows of the cells within its reach."""
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
        """Return positions of the nearest k rows found for each query, padded with -1."""
        graph = self.reduced()
        found = np.full((len(self._queries), self._k), -1, dtype=np.int64)
        counts = np.diff(graph.indptr)
        found[np.arange(self._k) < counts[:, None]] = graph.indices
        return found

    def distances_to_centres(self) -> NDArray:
        """Return squared distances (m, n_cells) of queries to the centres."""
        return self._squares_to(self._cells.centres).T

    def _squares_to(self, centres: NDArray) -> NDArray:
        squares = centres @ (-2.0 * self._queries.T)
        squares += _norms(centres)[:, None]
        squares += _norms(self._queries)
        return squares

    def _bounds(self, own: NDArray) -> NDArray:
        """Return squared distances to the k-th nearest of some rows near the cell of a query."""
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
        # Rounded up, so that the rows that define the bound are within it.
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
        """Keep the nearest k candidates, and lower the bounds accordingly."""
        graph = self.reduced()
        full = np.flatnonzero(np.diff(graph.indptr) == self._k)
        worst = graph.data[graph.indptr[full][:, None] + np.arange(self._k)].max(axis=1)
        self._bound[full] = np.nextafter(worst, np.float32(-1))
        rows = np.repeat(np.arange(len(self._queries)), np.diff(graph.indptr))
        self._found = [(rows, graph.indices, graph.data)]
        self._held = graph.nnz

    def reduced(self) -> Any:
        """Return the nearest k candidates of each query, as a graph of squared distances."""
        query, row, square = (np.concatenate(part) for part in zip(*self._found, strict=True))
        shape = len(self._queries), len(self._cells.rows)
        pairs = sp.coo_array((square, (query, row)), shape=shape)
        pairs.has_canonical_format = True  # each pair is found only once: nothing to sum
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
    """Find centres by a few k-means steps on a sample, and sort the rows by their cells."""
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
    """Return the index of the centre nearest to each row."""
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
    """Return rows (x, |x|², 1), whose products with columns of `_right` are squared distances."""
    m, d = rows.shape
    left = np.empty((m, d + 2), dtype=np.float32)
    left[:, :d], left[:, d], left[:, d + 1] = rows, _norms(rows), 1.0
    return left


def _right(rows: NDArray) -> NDArray:
    """Return columns (-2y, 1, |y|²); see `_left`."""
    m, d = rows.shape
    right = np.empty((d + 2, m), dtype=np.float32)
    right[:d], right[d], right[d + 1] = -2.0 * rows.T, 1.0, _norms(rows)
    return right


def _parts(queries: NDArray, width: int) -> list[NDArray]:
    """Divide queries into parts whose comparison with `width` rows fits into a cache."""
    step = max(1, TILE // int(width))
    return [queries[i : i + step] for i in range(0, queries.size, step)]
