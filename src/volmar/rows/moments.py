"""Additive moments of a set of rows about a fixed centre."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Relative rounding error allowed in the weight after a subtraction.
_WEIGHT_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, sum and second moments of rows about a fixed centre c.

    weight = Σ w_i,  sum = Σ w_i (x_i - c),  second = Σ w_i (x_i - c)(x_i - c)'.

    Moments of disjoint sets of rows can be added, and moments of a subset subtracted. This
    suffices to update two clusters whose rows change sides (the "formula (2) of Appendix B" that
    the MSPC paper refers to but does not print). A centre near the data keeps the digits that Σ x
    x' about zero loses. All arrays are float64 and read-only.

    Parameters
    ----------
    center : ndarray of shape (d,)
        The fixed centre c. Only moments about the same centre add; see `shifted`.
    weight : float
        The sum of the weights, or the number of rows without weights.
    sum : ndarray of shape (d,)
        The weighted sum of the centred rows.
    second : ndarray of shape (d, d), optional
        The weighted sum of their outer products. None if second moments were not computed.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import as_rows
    >>> rows = as_rows(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 6.0]]))
    >>> everything = rows.moments()
    >>> one = rows.moments(np.array([True, True, False]))
    >>> (everything - one).mean
    array([4., 6.])
    >>> one.covariance()
    array([[1., 0.],
           [0., 0.]])
    """

    center: np.ndarray
    weight: float
    sum: np.ndarray
    second: np.ndarray | None = None

    def __post_init__(self) -> None:
        center = _read_only(self.center, "center").copy()  # often the caller's own array
        center.flags.writeable = False
        if center.ndim != 1:
            raise ValueError(f"center must have one dimension, got shape {center.shape}.")
        d = center.size
        total = _read_only(self.sum, "sum")
        if total.shape != (d,):
            raise ValueError(f"sum must have the shape ({d},) of center, got {total.shape}.")
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "weight", float(self.weight))
        object.__setattr__(self, "sum", total)
        if self.second is not None:
            second = _read_only(self.second, "second")
            if second.shape != (d, d):
                raise ValueError(f"second must have the shape ({d}, {d}), got {second.shape}.")
            object.__setattr__(self, "second", second)

    def __add__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        self._check_compatible(other)
        second = None if self.second is None else self.second + other.second
        return Moments(self.center, self.weight + other.weight, self.sum + other.sum, second)

    def __sub__(self, other: Moments) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        self._check_compatible(other)
        weight = self.weight - other.weight
        if weight < -_WEIGHT_ROUNDING * self.weight:
            raise ValueError(
                f"cannot subtract rows of weight {other.weight:g} from rows of weight "
                f"{self.weight:g}. Subtract only the moments of a subset of the rows."
            )
        second = None if self.second is None else self.second - other.second
        return Moments(self.center, max(weight, 0.0), self.sum - other.sum, second)

    @property
    def mean(self) -> np.ndarray:
        """The weighted mean of the rows: center + sum / weight."""
        return self.center + self._mean_from_center()

    def covariance(self) -> np.ndarray:
        """Return the weighted covariance, second / weight - m m' with m = mean - center.

        The divisor is the weight, as in the MSPC paper, not the weight minus one.
        """
        if self.second is None:
            raise ValueError(
                "these moments have no second moments. Compute them with second=True."
            )
        m = self._mean_from_center()
        covariance = self.second / self.weight
        covariance -= np.outer(m, m)
        return covariance

    def shifted(self, center: np.ndarray) -> Moments:
        """Return the moments of the same rows about another centre.

        With δ = new centre - c: sum' = sum - weight δ and
        second' = second - sum δ' - δ sum' + weight δδ'.
        """
        center = np.asarray(center, dtype=np.float64)
        if center.shape != self.center.shape:
            raise ValueError(
                f"center must have the shape {self.center.shape} of the current centre, "
                f"got {center.shape}."
            )
        delta = center - self.center
        second = None
        if self.second is not None:
            # The correction is a δ' + δ a' with a = weight δ / 2 - sum: one outer product.
            cross = np.outer(0.5 * self.weight * delta - self.sum, delta)
            second = self.second + cross
            second += cross.T
        return Moments(center, self.weight, self.sum - self.weight * delta, second)

    def _mean_from_center(self) -> np.ndarray:
        if self.weight <= 0:
            raise ValueError(
                "rows of weight 0 have no mean and no covariance. Check that the mask selects "
                "a row with a positive sample weight."
            )
        return self.sum / self.weight

    def _check_compatible(self, other: Moments) -> None:
        if not np.array_equal(self.center, other.center):
            raise ValueError(
                "moments about different centres cannot be added or subtracted. Bring the second "
                "to the centre of the first with second.shifted(first.center)."
            )
        if (self.second is None) != (other.second is None):
            raise ValueError(
                "moments with and without second moments cannot be added or subtracted. Compute "
                "both with the same value of second."
            )


def _read_only(array: np.ndarray, name: str) -> np.ndarray:
    """Return a read-only float64 view of `array`."""
    try:
        view = np.asarray(array, dtype=np.float64).view()
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {array!r}.") from error
    view.flags.writeable = False
    return view
