"""Cells of a tree of two-way splits, and the assignment of rows to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Function that returns for each row, dense or CSR, whether it is on the second side of a split.
#: It may have an attribute `plane`: (w, b) with w'x + b > 0 on the second side, or None.
Side = Callable[[Any], np.ndarray]
#: The splits above a cell, from the root down, each with the side on which the cell lies.
Path = tuple[tuple[Side, bool], ...]


class Plane:
    """A function that returns whether rows satisfy w'x + b > 0. Its pickle is small.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Normal vector.
    b : float
        Constant.
    """

    def __init__(self, w: np.ndarray, b: float):
        self.plane = w, b

    def __call__(self, X: Any) -> np.ndarray:
        """Return whether rows, dense or CSR, are on the second side."""
        w, b = self.plane
        return np.asarray(X @ w.astype(X.dtype)) + X.dtype.type(b) > 0


class Cells:
    """A function that returns the number of the cell of each row.

    Parameters
    ----------
    paths : sequence of paths
        The path to each cell. The paths of cells below a split share the same split object.
    numbers : sequence of int, optional
        Non-negative number of each cell. If None, cells are numbered from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows.cells import Cells
    >>> def right(X):
    ...     return X[:, 0] > 0
    >>> def upper(X):
    ...     return X[:, 1] > 0
    >>> cells = Cells([((right, False),), ((right, True), (upper, True))])
    >>> cells(np.array([[-1.0, 0.0], [1.0, 1.0], [1.0, -1.0]]))
    array([ 0,  1, -1])
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
