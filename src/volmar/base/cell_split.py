"""A split by cells in the place of a fitted clusterer for two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence import LinearCells
from volmar.solvers import Result

__all__ = ["CellSplit"]


class CellSplit:
    """A node of a tree that was split by `volmar.evidence.LinearCells`.

    Attributes
    ----------
    cells : LinearCells
        The cells.
    labels_ : ndarray of shape (n,)
        Sides of the rows of the node, 0 or 1.
    result_ : Result
        That of a split without an objective.
    coef_ : ndarray of shape (1, d)
        Normal of the hyperplane; only where there are two cells.
    """

    def __init__(self, cells: LinearCells, labels: NDArray[np.int64]):
        self.cells, self.labels_ = cells, labels
        self.result_ = Result(objective=0.0)
        if cells.sides.size == 2:
            second = int(cells.sides[1])
            self.coef_ = (cells.coef[second] - cells.coef[1 - second])[None, :]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores of rows, positive on the second side."""
        return self.cells.decision_function(X)
