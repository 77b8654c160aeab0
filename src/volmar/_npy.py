"""Reader of NPY files and zip members that checks the size in the header first."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def read_array(file: Any, size: int) -> NDArray:
    """Return the array of a file or zip member of `size` bytes.

    Nothing is allocated if the header does not match the size, and nothing is unpickled. Raises a
    ValueError, EOFError or OSError if the array cannot be read.
    """
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the npy format")
    try:
        n_bytes = file.read(2 * version[0])
        header = file.read(int.from_bytes(n_bytes, "little"))
        _refuse_odd_literals(header)
        shape, fortran_order, dtype = readers[version](io.BytesIO(n_bytes + header))
    except OSError:
        raise
    except Exception as error:  # from Python's tokenizer and compiler, which NumPy uses
        detail = " ".join(str(error).split())[:100]
        raise ValueError(f"a header that cannot be read ({detail})") from error
    # Booleans, numbers, dates and strings; no objects and no records.
    if dtype.kind not in "biufcSUmM" or dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"values of type {dtype!s:.40}")
    n_values = math.prod(shape)
    # Check before anything is allocated: the header may be wrong.
    if min(shape, default=0) < 0 or n_values * dtype.itemsize != size - file.tell():
        raise ValueError(f"shape {shape!s:.60} of {dtype!s:.40} does not fit {size} bytes")
    values = np.empty(n_values, dtype)
    buffer = values.view(np.uint8).data if n_values else memoryview(b"")
    filled = 0
    while filled < len(buffer):
        n_read = file.readinto(buffer[filled:])
        if not n_read:
            raise EOFError("ends too early")
        filled += n_read
    if file.read(1):
        raise ValueError("is longer than its header states")
    _check_values(values)
    # Compiled code accepts only the native byte order.
    values = values.astype(dtype.newbyteorder("="), copy=False)
    return values.reshape(shape, order="F" if fortran_order else "C")


def _refuse_odd_literals(header: bytes) -> None:
    """Refuse literals of which Python's parser would warn, except numbers such as 3L."""
    unquoted = re.sub(rb"'[^'\\]*'", b"", header)
    if odd := re.search(rb"\\|[0-9][A-KM-Za-z_]", unquoted):
        raise ValueError(f"{odd[0].decode()!r} in its text")


def _check_values(values: NDArray) -> None:
    """Refuse bytes that are not valid for their dtype, which compiled code does not check."""
    if not values.size:
        return
    if values.dtype.kind == "b" and values.view(np.uint8).max() > 1:
        raise ValueError("has boolean values that are neither true nor false")
    if values.dtype.kind == "U":
        points = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if points.max() > 0x10FFFF:
            raise ValueError("has characters outside of Unicode")


def check_indices(matrix: Any) -> None:
    """Raise a `ValueError` for a CSR, CSC or BSR matrix whose indices do not fit its shape.

    Compiled code uses them without a check. SciPy's own check ignores pointers that decrease to
    zero or below, and differences that overflow.
    """
    if (matrix.indptr[1:] < matrix.indptr[:-1]).any():
        raise ValueError("the row pointers decrease")
    matrix.check_format(full_check=True)
