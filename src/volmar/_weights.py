"""Checks of sample weights, and rescaling of weights whose squares would overflow."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from volmar._checks import shown
from volmar._input import refuse_masked


class WeightUnit(NamedTuple):
    """The factor 2**exponent of the weights, and the lowest scaled weight that is not set to 0.

    If the largest weight is between 2**-32 and 2**32, the weights are not scaled: a weight of 2
    is then equivalent to repeating the row in every count of rows, no row is repeated more often,
    and squares of such weights times rows fit float32. Otherwise a power of two, which preserves
    all digits, scales the largest weight to between 1 and 2. Weights below 2**-100 of the largest
    become 0: sums of their squares underflow in float32.
    """

    exponent: int
    lowest: float

    @classmethod
    def of(cls, high: float) -> Self:
        """Return the unit for weights with the maximum `high`."""
        is_ordinary = 2.0**-32 <= high <= 2.0**32
        exponent = 0 if is_ordinary else 1 - math.frexp(high)[1]
        return cls(exponent, math.ldexp(high, exponent) * 2.0**-100)

    def keeps(self, low: float) -> bool:
        """Return whether no weight changes, given the smallest positive weight."""
        return self.exponent == 0 and low >= self.lowest


def in_weight_unit(weights: NDArray, unit: WeightUnit) -> NDArray:
    """Return weights scaled to a unit, with negligible weights set to 0."""
    # ldexp rather than a factor, which can be subnormal although its product is not.
    weights = np.ldexp(weights, unit.exponent)
    return np.where(weights < unit.lowest, 0.0, weights)


def positive_weights(weights: NDArray) -> NDArray:
    """Return weights with infinity in place of 0, to find the smallest positive weight."""
    return np.where(weights > 0, weights, np.inf)


def rescaled_sample_weight(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return the weights of `check_sample_weight`, scaled to their `WeightUnit` for a fit."""
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

    The weights must be finite, non-negative and not all zero. They are not rescaled. A single
    number is the weight of every row.
    """
    weights = as_weights(sample_weight, n_rows)
    if weights is not None:
        high = float(weights.max())
        check_weight_range(float(weights.min()), high)
        if not 1e-100 < high < 1e100:
            raise ValueError(
                f"sample_weight has a largest entry of {high:.3g}, whose square does not fit "
                "float64. Divide the weights by their mean."
            )
    return weights


def as_weights(sample_weight: Any, n_rows: int) -> NDArray | None:
    """Return weights as float64 of shape (n_rows,), without checking their range."""
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, "sample_weight")
    if isinstance(sample_weight, Real):
        sample_weight = np.full(n_rows, _as_float64(np.asarray(sample_weight)))
    try:
        given = np.asarray(sample_weight)
    except ValueError as error:  # ragged sequences
        raise TypeError(f"sample_weight must be an array of numbers: {error}.") from error
    weights = _as_float64(given)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must have one weight per row, shape ({n_rows},), got shape "
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
    """Refuse negative, infinite or only zero weights, given the smallest and the largest."""
    if not (np.isfinite(low) and np.isfinite(high)) or low < 0:
        worst = low if not low >= 0 else high
        raise ValueError(
            f"sample_weight must be finite and not negative, got {worst:g}. Use a weight of 0 to "
            "leave out a row."
        )
    if not high > 0:
        raise ValueError("sample_weight must have a positive entry, got only zeros.")
