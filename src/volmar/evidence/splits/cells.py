"""Cells of linear discriminants: a split by a hyperplane, or by several pieces of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearCells"]


@dataclass(frozen=True, eq=False)
class LinearCells:
    r"""Cells where one of k linear functions is the largest, each cell on one of two sides.

    Attributes
    ----------
    coef : ndarray of shape (k, d)
        Gradients of the functions :math:`f_l(x) = a_l'x + b_l`.
    intercept : ndarray of shape (k,)
        :math:`b_l`.
    sides : bool ndarray of shape (k,)
        Side of each cell; both sides have one at least.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.evidence.splits.cells import LinearCells
    >>> cells = LinearCells.hyperplane(np.array([1.0, 0.0]), 2.0)
    >>> cells.decision_function(np.array([[5.0, 1.0], [0.0, 1.0]]))
    array([ 3., -2.])
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    sides: NDArray[np.bool_]

    @classmethod
    def hyperplane(cls, w: NDArray, cut: float) -> LinearCells:
        """Return the two cells where :math:`w'x` is at most the cut, and where it is above."""
        return cls(
            np.vstack([np.zeros_like(w), w]), np.array([0.0, -cut]), np.array([False, True])
        )

    def swapped(self) -> LinearCells:
        """Return the same cells with the first side as the second."""
        return LinearCells(self.coef, self.intercept, ~self.sides)

    def functions(self, X: Any) -> NDArray[np.float64]:
        """Return the values (n, k) of the functions at rows, dense or CSR."""
        return np.asarray(X @ self.coef.T) + self.intercept

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores of rows: the largest function of the second side less that of the first.

        It is positive on the second side, and linear in the rows where each side is one cell.
        """
        values = self.functions(X)
        return values[:, self.sides].max(axis=1) - values[:, ~self.sides].max(axis=1)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the sides of rows, 0 or 1."""
        return (self.decision_function(X) > 0).astype(np.int64)
