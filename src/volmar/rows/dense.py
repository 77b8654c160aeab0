"""Rows of a dense array."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from volmar.rows._validation import as_matrix
from volmar.rows.tiled import TiledRows

__all__ = ["DenseRows"]


class DenseRows(TiledRows):
    """The rows of a dense float32 or float64 array, in C or Fortran order, without a copy.

    Parameters
    ----------
    X : array of shape (n, d)
        The data; integers become float64.
    sample_weight : array of shape (n,), optional
        Sample weights, not negative.
    offset : array of shape (d,), optional
        The rows are seen as x_i - offset.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import DenseRows
    >>> rows = DenseRows(np.array([[1.0, 2.0], [3.0, 6.0]])).centered()
    >>> rows.offset
    array([2., 4.])
    >>> rows.scores(np.array([1.0, 1.0]))
    array([-3.,  3.])
    >>> rows.combine(np.array([0.0, 1.0]))
    array([1., 2.])
    """

    def __init__(self, X: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        if sparse.issparse(X):
            raise TypeError(
                f"X must be dense, got a sparse {X.format!r} matrix. Use SparseRows or as_rows."
            )
        self.X = as_matrix(X)
        super().__init__(self.X.shape, self.X.dtype, sample_weight, offset)
        self._order = "C" if self.X.flags.c_contiguous else "F"

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            return self.X[rows]
        # Gathering along the memory is four times faster than X[rows] in Fortran order.
        if self._order == "F":
            return self.X.T.take(rows, axis=1).T
        return self.X.take(rows, axis=0)
