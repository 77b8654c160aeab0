"""Symmetric positive definite operators, dense or sparse: products, solves and eigenpairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from volmar.operators.dense import DenseOperator
from volmar.operators.protocol import EigenPairs, Solution, SPDOperator
from volmar.operators.sparse import SparseOperator

__all__ = [
    "DenseOperator",
    "EigenPairs",
    "SPDOperator",
    "Solution",
    "SparseOperator",
    "as_operator",
]


def as_operator(
    matrix: NDArray[np.floating] | csr_matrix,
    *,
    shift: float = 0.0,
    bounds: tuple[float, float] | None = None,
    null_space: NDArray[np.floating] | None = None,
    random_state: int = 0,
) -> SPDOperator:
    """Return Q = matrix + shift I as an operator, dense or sparse like `matrix`.

    Parameters
    ----------
    matrix : ndarray or sparse matrix of shape (n, n)
        Symmetric matrix. float32 is converted to float64, since small eigenvalues need the digits.
        A float64 array or CSR matrix is not copied.
    shift : float, default=0
        Multiple of the identity that is added to `matrix`.
    bounds : (float, float), optional
        Interval that contains the eigenvalues of `matrix`, such as 0 and 2 for a normalised
        Laplacian. If None, Gershgorin's discs are used.
    null_space : ndarray of shape (n, c), optional
        Eigenvectors at the lower bound, if they are known exactly. For a normalised Laplacian
        these are the square roots of the degrees, for each component. They are not computed then,
        and a repeated eigenvalue cannot be missed.
    random_state : int, default=0
        Random seed of the iterative eigensolvers.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.operators import as_operator
    >>> Q = as_operator(np.array([[1.0, -1.0], [-1.0, 1.0]]), shift=0.5)
    >>> Q.smallest_eigenpairs(1).values.round(6)
    array([0.5])
    >>> Q.solve(0.0, np.array([1.0, 1.0])).x.round(6)
    array([2., 2.])
    """
    matrix = matrix if issparse(matrix) else np.asarray(matrix)
    matrix = matrix.astype(np.float64, copy=False)
    backend = SparseOperator if issparse(matrix) else DenseOperator
    return backend(
        matrix, shift=shift, bounds=bounds, null_space=null_space, random_state=random_state
    )
