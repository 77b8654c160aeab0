"""Arrays of NPY files and of the members of a zip, as long as their headers say they are."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["ARRAY_KINDS", "read_array"]

# Booleans, numbers, dates and strings. Objects and records are not among them.
ARRAY_KINDS = frozenset("biufcSUmM")
_LAST_CODE_POINT = 0x10FFFF


def read_array(file: Any, size: int) -> NDArray:
    """Return the array of a file or zip member of `size` bytes.

    Nothing is allocated for a header that does not fit the size, and nothing is unpickled.
    Raises ValueError, EOFError or OSError.
    """
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the npy format")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the literals in a header that is none
        try:
            shape, fortran_order, dtype = readers[version](file)
        except OSError:
            raise
        except Exception as error:  # of Python's tokenizer and compiler, which NumPy asks
            detail = " ".join(str(error).split())[:100]
            raise ValueError(f"a header that cannot be read ({detail})") from error
    if dtype.kind not in ARRAY_KINDS or dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"values of type {dtype!s:.40}")
    n_values = math.prod(shape)
    # Before anything is allocated: the header may say what it likes.
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
        raise ValueError("is longer than it says")
    _check_values(values)
    # As this machine has them: compiled code takes no others.
    values = values.astype(dtype.newbyteorder("="), copy=False)
    return values.reshape(shape, order="F" if fortran_order else "C")


def _check_values(values: NDArray) -> None:
    """Refuse bytes that are no value of their type: compiled code trusts them."""
    if not values.size:
        return
    if values.dtype.kind == "b" and values.view(np.uint8).max() > 1:
        raise ValueError("has truth values that are neither true nor false")
    if values.dtype.kind == "U":
        points = values.view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
        if points.max() > _LAST_CODE_POINT:
            raise ValueError("has characters that do not exist")
