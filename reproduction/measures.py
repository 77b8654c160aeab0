"""Measures in a paper's figure: attributes of fitted estimators, and their summaries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from statistics import mean, median, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray


def take_measures(
    model: Any,
    measures: Mapping[str, str],
    y: NDArray,
    metric: Callable[[NDArray, NDArray], float],
) -> dict[str, float]:
    """Return the measures of a fitted estimator.

    Parameters
    ----------
    model : fitted estimator
        Estimator to measure.
    measures : mapping of str to str
        Names, and dotted attributes of `model`. A number is used as it is; n soft responses h are
        converted to the labels h >= 0 and scored by `metric`.
    y : ndarray of shape (n,)
        The classes.
    metric : callable
        Takes classes and labels.

    Returns
    -------
    dict of str to float
        Values by the names of `measures`.
    """
    taken = {}
    for name, attribute in measures.items():
        try:
            value = np.asarray(attrgetter(attribute)(model))
        except AttributeError as error:
            raise ValueError(
                f"measure {name!r}: a fitted {type(model).__name__} has no {attribute!r} "
                f"({error}); name an attribute that it has."
            ) from error
        if value.ndim and value.shape != y.shape:
            raise ValueError(
                f"measure {name!r}: {attribute!r} of {type(model).__name__} has shape "
                f"{value.shape}; name a number or soft responses of shape {y.shape}."
            )
        taken[name] = float(metric(y, (value >= 0).astype(int)) if value.ndim else value)
    return taken


@dataclass(frozen=True)
class Spread:
    """Mean and median of a measure over samplings, with their errors.

    Attributes
    ----------
    mean, median : float
        Mean and median of the values.
    standard_error : float or None
        Standard deviation divided by the square root of `n`; None for a single value.
    median_error : float or None
        Median absolute deviation from the median divided by the square root of `n`; None for a
        single value.
    n : int
        Number of values.
    """

    mean: float
    standard_error: float | None
    median: float
    median_error: float | None
    n: int

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the summary of one or more values."""
        middle, n = median(values), len(values)
        if n == 1:
            return cls(values[0], None, middle, None, n)
        deviation = median(abs(value - middle) for value in values)
        return cls(mean(values), stdev(values) / math.sqrt(n), middle, deviation / math.sqrt(n), n)
