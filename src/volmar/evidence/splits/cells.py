"""Cells of linear discriminants: a split by a hyperplane, or a piecewise linear one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinearCells"]


@dataclass(frozen=True, eq=False)
class LinearCells:
    r"""Cells in which one of k linear functions is the largest, each on one of two sides.

    Attributes
    ----------
    coef : ndarray of shape (k, d)
        Gradients of the functions :math:`f_l(x) = a_l'x + b_l`.
    intercept : ndarray of shape (k,)
        Offsets :math:`b_l`.
    sides : bool ndarray of shape (k,)
        Side of each cell. Each side has at least one cell.

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
        """Return the two half-spaces of a hyperplane; the second side is :math:`w'x >` cut."""
        return cls(
            np.vstack([np.zeros_like(w), w]), np.array([0.0, -cut]), np.array([False, True])
        )

    def swapped(self) -> LinearCells:
        """Return the same cells with the two sides exchanged."""
        return LinearCells(self.coef, self.intercept, ~self.sides)

    def functions(self, X: Any) -> NDArray[np.float64]:
        """Return the values (n, k) of the functions at rows, dense or CSR."""
        return np.asarray(X @ self.coef.T) + self.intercept

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the largest function of the second side minus the largest of the first.

        It is positive on the second side, and linear in the rows if each side is a single cell.
        """
        values = self.functions(X)
        return values[:, self.sides].max(axis=1) - values[:, ~self.sides].max(axis=1)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the sides of rows, 0 or 1."""
        return (self.decision_function(X) > 0).astype(np.int64)
