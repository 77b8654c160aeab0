"""Checks of arrays for row sources and feature maps."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse


def as_matrix(X: Any, name: str = "X") -> Any:
    """Return X as a float32 or float64 array in C or Fortran order, or as a CSR array.

    An array that is in this form already is not copied. NaN and infinity are not checked.
    """
    matrix: Any = X if sparse.issparse(X) else np.asarray(X)
    if matrix.ndim != 2:
        raise ValueError(
            f"{name} must have two dimensions (rows, features), got {matrix.ndim}. "
            f"Reshape it, e.g. by {name}.reshape(-1, 1) if it has a single feature."
        )
    if 0 in matrix.shape:
        raise ValueError(
            f"{name} must have at least one row and one column, got shape {matrix.shape}."
        )
    if sparse.issparse(matrix):
        matrix = sparse.csr_array(matrix)
    if matrix.dtype not in (np.float32, np.float64):
        matrix = _as_float64(matrix, name)
    if sparse.issparse(matrix):
        if not matrix.has_canonical_format:  # duplicate entries would be squared one by one
            matrix = matrix.copy()
            matrix.sum_duplicates()
    elif not (matrix.flags.c_contiguous or matrix.flags.f_contiguous):
        # BLAS does not support general strides: NumPy would copy the matrix in every pass.
        matrix = np.ascontiguousarray(matrix)
    return matrix


def _as_float64(matrix: Any, name: str) -> Any:
    if matrix.dtype.kind not in "biufO":
        raise TypeError(f"{name} must hold real numbers, got dtype {matrix.dtype}.")
    try:
        return matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must hold real numbers: {error}.") from error


def as_vector(
    v: Any, size: int, name: str, per: Literal["row", "feature"], dtype: Any = np.float64
) -> np.ndarray:
    """Return v as an array of shape (size,) and the given dtype."""
    vector = np.asarray(v)
    if vector.shape != (size,):
        raise ValueError(
            f"{name} must have the shape ({size},), got {vector.shape}. Pass one number per {per}."
        )
    if vector.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {vector.dtype}.")
    return vector.astype(dtype, copy=False)


def as_block(
    v: Any, size: int, name: str, per: Literal["row", "feature"], dtype: Any = np.float64
) -> np.ndarray:
    """Return v as an array of shape (size,), or (size, k) with k >= 2 columns.

    A sparse array of that shape is returned as CSR.
    """
    if sparse.issparse(v) and v.shape[0] == size and v.shape[1] >= 2:
        return v.tocsr().astype(dtype, copy=False)
    block = np.asarray(v)
    if block.ndim != 2 or block.shape[0] != size or block.shape[1] < 2:
        return as_vector(v, size, name, per, dtype)
    if block.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {block.dtype}.")
    return block.astype(dtype, copy=False)


def selected_rows(mask: Any, n_rows: int) -> np.ndarray:
    """Return the indices of the rows that a boolean mask selects."""
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != (n_rows,):
        raise ValueError(
            f"mask must be a boolean array of shape ({n_rows},), got dtype {mask.dtype} and "
            f"shape {mask.shape}. Create a mask by a comparison, e.g. labels == 1."
        )
    return np.flatnonzero(mask)
