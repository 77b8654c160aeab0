"""Sample weights: checked, and rescaled once where their squares would not fit."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar._input import refuse_masked

__all__ = [
    "WeightUnit",
    "as_weights",
    "check_sample_weight",
    "check_weight_range",
    "check_weight_size",
    "in_weight_unit",
    "positive_weights",
    "rescaled_sample_weight",
]

# Largest weights of this size and its reciprocal are left as they are: nobody writes a row more
# often than that, and squares of such weights times rows fit float32.
_ORDINARY = 2.0**32
# Weights below this share of the largest are 0: sums of squares of them do not fit float32.
_NEGLIGIBLE = 2.0**-100


class WeightUnit(NamedTuple):
    """What weights are multiplied by, 2**exponent, and the lowest of those that are not 0 then.

    Weights whose largest is between 2**-32 and 2**32 stay as they are, so that 2 is the same as
    writing the row twice in everything that counts rows. Others are brought to a largest between
    1 and 2 by a power of two, which keeps all digits. Weights below 2**-100 of the largest become
    0, which they are beside it in every sum.
    """

    exponent: int
    lowest: float

    @classmethod
    def of(cls, high: float) -> Self:
        """Return the unit, given the largest weight."""
        is_ordinary = 1.0 / _ORDINARY <= high <= _ORDINARY
        exponent = 0 if is_ordinary else 1 - math.frexp(high)[1]
        return cls(exponent, math.ldexp(high, exponent) * _NEGLIGIBLE)

    def keeps(self, low: float) -> bool:
        """Whether no weight changes, given the smallest of those that are positive."""
        return self.exponent == 0 and low >= self.lowest


def in_weight_unit(weights: NDArray, unit: WeightUnit) -> NDArray:
    """Return weights in a unit."""
    # Not by a factor: that may be below the smallest normal number where its product is not.
    weights = np.ldexp(weights, unit.exponent)
    return np.where(weights < unit.lowest, 0.0, weights)


def positive_weights(weights: NDArray) -> NDArray:
    """Return weights with infinity in place of 0, to find the smallest."""
    return np.where(weights > 0, weights, np.inf)


def rescaled_sample_weight(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return weights for a fit, float64 of shape (n_rows,), or None for equal weights.

    They are finite, not negative and not all zero, and in their `WeightUnit`.
    """
    weights = as_weights(sample_weight, n_rows)
    if weights is None:
        return None
    low, high = float(weights.min()), float(weights.max())
    check_weight_range(low, high)
    unit = WeightUnit.of(high)
    if unit.keeps(low if low > 0 else float(positive_weights(weights).min())):
        return weights
    return in_weight_unit(weights, unit)


def check_sample_weight(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return weights as float64 of shape (n_rows,), or None for equal weights.

    They are finite, not negative and not all zero, and not rescaled. One number is the weight of
    every row.
    """
    weights = as_weights(sample_weight, n_rows)
    if weights is not None:
        low, high = float(weights.min()), float(weights.max())
        check_weight_range(low, high)
        check_weight_size(high)
    return weights


def as_weights(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return what may be weights as float64 of shape (n_rows,); see `check_weight_range`."""
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, "sample_weight")
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, _as_float64(np.asarray(sample_weight)))
    try:
        given = np.asarray(sample_weight)
    except ValueError as error:  # sequences of different lengths
        raise TypeError(f"sample_weight must be an array of numbers: {error}.") from error
    weights = _as_float64(given)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have one weight for each row, shape ({n_rows},), got shape "
            f"{weights.shape}."
        )
    return weights


def _as_float64(weights: NDArray) -> NDArray:
    if weights.dtype.kind not in "biufO":
        raise TypeError(f"sample_weight must hold real numbers, got dtype {weights.dtype}.")
    try:
        with np.errstate(over="ignore"):  # infinity is refused
            return weights.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"sample_weight must hold real numbers that fit float64: {shown(str(error))}."
        ) from error


def check_weight_range(low: float, high: float) -> None:
    """Refuse the smallest and largest of sample weights that cannot be weights."""
    if not (np.isfinite(low) and np.isfinite(high)) or low < 0:
        worst = low if not low >= 0 else high
        raise ValueError(
            f"sample_weight must be finite and not negative, got {worst:g}. A row of weight 0 is "
            "a row left out."
        )
    if not high > 0:
        raise ValueError("sample_weight must have a positive entry, got only zeros.")


def check_weight_size(high: float) -> None:
    """Refuse a largest weight whose square does not fit."""
    if not 1e-100 < high < 1e100:
        raise ValueError(
            f"sample_weight has a largest entry of {high:.3g}, whose square does not fit "
            "float64. Divide the weights by their mean."
        )
