"""Convert the values of a column to float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_numbers", "is_real"]


def is_real(dtype: Any) -> bool:
    """Return whether a pandas dtype holds real numbers or booleans."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(dtype) and not is_complex_dtype(dtype))


def as_numbers(series: Any) -> NDArray[np.float64]:
    """Return a pandas column as float64: NaN for other values, infinity for too large numbers."""
    import pandas as pd

    with np.errstate(over="ignore"):
        if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
            return series.to_numpy(dtype=np.float64)  # ten times as fast as with na_value
        if is_real(series.dtype):
            return series.to_numpy(dtype=np.float64, na_value=np.nan)
        values = series.astype(object)
        try:
            parsed = pd.to_numeric(values, errors="coerce")
        except (OverflowError, TypeError, ValueError):
            parsed = None
        if parsed is None or parsed.dtype.kind not in "biuf":
            # Integers of 400 digits, complex numbers or objects of other libraries.
            parsed = pd.to_numeric(values.map(_plain_number), errors="coerce")
        return parsed.to_numpy(dtype=np.float64, na_value=np.nan)


def _plain_number(value: Any) -> Any:
    """Return text unchanged, and other values as float, NaN if that is not possible."""
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
    except (TypeError, ValueError):
        return np.nan
