"""Checks of arrays and sparse matrices from files, which NumPy and SciPy do not make."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def read_array(file: Any) -> NDArray:
    """Return the array of an NPY file or zip member. Nothing is unpickled.

    Errors may be of any type: NumPy parses the header as Python.
    """
    values: NDArray = npy.read_array(file, allow_pickle=False)
    # Booleans, numbers, dates and strings; no records.
    if values.dtype.kind not in "biufcSUmM" or values.dtype.itemsize == 0:
        raise ValueError(f"values of type {values.dtype!s:.40}")
    if file.read(1):
        raise ValueError("is longer than its header states")
    # Compiled code does not check these.
    if values.size and values.dtype.kind == "b" and values.view(np.uint8).max() > 1:
        raise ValueError("has boolean values that are neither true nor false")
    if values.size and values.dtype.kind == "U":
        points = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if points.max() > 0x10FFFF:
            raise ValueError("has characters outside of Unicode")
    # Compiled code accepts only the native byte order.
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def check_indices(matrix: Any) -> None:
    """Raise a `ValueError` for a CSR, CSC or BSR matrix whose indices do not fit its shape.

    Compiled code uses them without a check. SciPy's own check ignores pointers that decrease to
    zero or below, and differences that overflow.
    """
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():
        raise ValueError("the row pointers decrease")
    matrix.check_format(full_check=True)
