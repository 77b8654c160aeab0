"""Checks of vectors of real numbers given by a user."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_vector(
    name: str, values: Any, size: int | None = None, *, may_be_empty: bool = False
) -> NDArray[np.float64]:
    """Return values as a finite one-dimensional float64 array with at least one entry.

    `size` is the required number of entries, one per row of X; None accepts any size.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries. Drop or impute such values.")
    try:
        vector = _as_floats(values)
    except (TypeError, ValueError, OverflowError) as error:  # also ragged sequences
        raise TypeError(
            f"{name} must hold real numbers: {error}. Convert it to a float array first."
        ) from error
    if vector.ndim != 1 or not (vector.size or may_be_empty):
        raise ValueError(
            f"{name} must be a one-dimensional array with at least one value, got shape "
            f"{vector.shape}. Pass one feature or one column at a time."
        )
    if size is not None and vector.size != size:
        raise ValueError(
            f"{name} has shape {vector.shape} for {size} rows. Pass one number per row."
        )
    finite = np.isfinite(vector)
    if not finite.all():
        raise ValueError(
            f"{name} must be finite, got {vector[~finite][0]} at position {np.argmin(finite)}. "
            "Drop or impute such values."
        )
    return vector


def _as_floats(values: Any) -> NDArray[np.float64]:
    given = np.asarray(values)
    if given.dtype.kind not in "biufO":
        raise TypeError(f"got dtype {given.dtype}")
    with np.errstate(over="ignore"):  # long doubles beyond float64 become infinite
        return given.astype(np.float64, copy=False)
