"""Symmetric positive definite operators, dense or sparse: products, solves and eigenpairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, issparse

from volmar.operators.dense import DenseOperator
from volmar.operators.protocol import SPDOperator
from volmar.operators.sparse import SparseOperator

__all__ = ["as_operator"]


def as_operator(
    matrix: NDArray[np.floating] | csr_matrix,
    *,
    shift: float = 0.0,
    bounds: tuple[float, float] | None = None,
    null_space: NDArray[np.floating] | None = None,
    random_state: int = 0,
) -> SPDOperator:
    """Return Q = matrix + shift I as an operator, dense or sparse like `matrix`.

    float32 is converted to float64, since small eigenvalues need the digits; other matrices are
    not copied. `bounds` contain the eigenvalues of `matrix`, such as 0 and 2 for a normalised
    Laplacian; if None, Gershgorin's discs are used. `null_space` (n, c) are eigenvectors at the
    lower bound that are known exactly, such as the square roots of the degrees for each component
    of a graph. They are not computed then, and a repeated eigenvalue cannot be missed.
    """
    matrix = matrix if issparse(matrix) else np.asarray(matrix)
    matrix = matrix.astype(np.float64, copy=False)
    backend = SparseOperator if issparse(matrix) else DenseOperator
    return backend(
        matrix, shift=shift, bounds=bounds, null_space=null_space, random_state=random_state
    )
