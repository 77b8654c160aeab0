"""Rows that coincide are one point of a graph, and share the edges of that point.

Points may be in another order than the rows, even if no rows coincide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Copies:
    """The `point` (n,) of each row, and the number `counts` (p,) of rows at each point."""

    point: NDArray
    counts: NDArray

    @classmethod
    def none(cls, order: NDArray) -> Copies:
        """Return copies in which every row is a separate point; points are rows in this order."""
        return cls(np.argsort(order), np.ones(order.size, dtype=np.intp))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.point.size

    @property
    def exist(self) -> bool:
        """Whether any two rows coincide."""
        return self.counts.size < self.point.size

    @cached_property
    def first(self) -> NDArray:
        """The first row of each point."""
        return self._rows[self._starts]

    @cached_property
    def _rows(self) -> NDArray:
        """Rows in the order of their points."""
        return np.argsort(self.point, kind="stable")

    @cached_property
    def _starts(self) -> NDArray:
        return np.cumsum(self.counts) - self.counts

    @cached_property
    def _rank(self) -> NDArray:
        """Position of each row among the rows of its point."""
        rank = np.empty(self.n_rows, dtype=np.intp)
        rank[self._rows] = np.arange(self.n_rows) - np.repeat(self._starts, self.counts)
        return rank

    def spread(self, graph: Any) -> Any:
        """Return directed edges between rows, from edges between points.

        Row t of a point has all edges of the point, to row ``t mod m`` of a neighbour with m rows.
        A row has as many edges as its point, and edges to a point with many copies reach all of
        them.
        """
        if not self.exist:
            rows = graph[self.point]
            columns = self._rows[rows.indices].astype(rows.indices.dtype, copy=False)
            return sp.csr_array((rows.data, columns, rows.indptr), shape=rows.shape)
        lengths = np.diff(graph.indptr)[self.point]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        own = np.repeat(np.arange(self.n_rows), lengths)
        at = np.repeat(graph.indptr[self.point] - indptr[:-1], lengths) + np.arange(indptr[-1])
        there = graph.indices[at]
        columns = self._rows[self._starts[there] + self._rank[own] % self.counts[there]]
        return sp.csr_array((graph.data[at], columns, indptr), shape=(self.n_rows,) * 2)

    def ties(self, weights: NDArray) -> Any:
        """Return directed edges between the copies of each point, with the weight of the point.

        Row t is joined to rows t + 1, t + 2, t + 4 and so on (modulo the number of copies), so
        that m copies are closely connected by about m log2(m) edges.
        """
        rows, columns = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
        counts = self.counts[self.point]
        step = 1
        while (many := np.flatnonzero(counts > step)).size:
            rank = (self._rank[many] + step) % counts[many]
            rows.append(many)
            columns.append(self._rows[self._starts[self.point[many]] + rank])
            step *= 2
        row, column = np.concatenate(rows), np.concatenate(columns)
        data = weights[self.point[row]]
        return sp.coo_array((data, (row, column)), shape=(self.n_rows,) * 2).tocsr()


def distinct_rows(rows: Any) -> tuple[Any, NDArray]:
    """Return the distinct rows, and for each row the index of its distinct row."""
    if not sp.issparse(rows):
        distinct, group = np.unique(rows, axis=0, return_inverse=True)
        return distinct, group.ravel()
    rows = rows.copy()
    rows.eliminate_zeros()
    seen: dict[bytes, int] = {}
    first: list[int] = []
    group = np.empty(rows.shape[0], dtype=np.intp)
    for i, (start, stop) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
        key = rows.indices[start:stop].tobytes() + rows.data[start:stop].tobytes()
        if key not in seen:
            seen[key] = len(first)
            first.append(i)
        group[i] = seen[key]
    return rows[first], group
