"""Cells of space: where rows end that walk down a tree of two-way splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: Tells for each row, dense or CSR, whether it is on the second side of a split.
Side = Callable[[Any], np.ndarray]
#: The splits above a cell from the first one on, and on which side of each it is.
Path = tuple[tuple[Side, bool], ...]


class Cells:
    """The numbers of the cells that rows lie in, as a function of the rows.

    Parameters
    ----------
    paths : sequence of paths
        A path for each cell. Cells below one split share that split, the same object.
    numbers : sequence of int, optional
        Number of each cell, not negative; 0, 1 and so on if not given.

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
        # Children are places in `sides`, or -2 less the number of a cell, or -1 for no cell.
        self.sides: list[Side] = []
        self.children: list[list[int]] = []
        top = [-1]
        todo = [(list(zip(paths, map(int, given), strict=True)), 0, top, 0)]
        while todo:  # no function calls itself: a tree may be deeper than Python's stack
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

    def __call__(self, X: Any) -> np.ndarray:
        """Return the number of the cell of each row, -1 for rows in none of them."""
        n = X.shape[0]
        found = np.full(n, -1, dtype=np.int64)
        todo = [(self.top, np.arange(n))]
        while todo:
            place, rows = todo.pop()
            if place < 0:
                found[rows] = -2 - place
            elif rows.size:
                side = self.sides[place](X if rows.size == n else X[rows])
                first, second = self.children[place]
                todo += [(first, rows[~side]), (second, rows[side])]
        return found
