"""The protocol of row sources, moments of rows, and checks of arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from scipy import sparse

Values = TypeVar("Values")


class RowSource(ABC):
    """The rows of a data matrix, accessed only by passes over all of them.

    The rows *as seen* are x_i - offset. Each method is one pass over the rows. It returns n
    numbers (one per row) or a result whose size does not depend on n (d, or d × d, numbers).
    Single rows cannot be selected. Back ends with blocks on other machines therefore need only
    these methods, and algorithms written against this class work with every back end.

    `scores` and `combine` are plain products and do not apply the weights: a weighted sum is
    ``combine(weights * v)``. `mean`, `moments` and `mean_squared_norm` do apply them.
    """

    n_rows: int
    n_features: int
    dtype: np.dtype[Any]
    weights: np.ndarray | None
    total_weight: float
    offset: np.ndarray | None

    @abstractmethod
    def scores(self, w: np.ndarray) -> np.ndarray:
        """Return the projections (X - 1 offset') w, shape (n,), in the dtype of the data.

        For k >= 2 directions, `w` of shape (d, k), the result has shape (n, k) and takes one
        matrix product.

        With float32 data and an offset, each score is the difference of two float32-rounded
        numbers of size ``|offset' w|``. With means of 1e4 and standard deviations of 1, its
        error is about 1e-3. Subtract such a mean from the data beforehand.
        """

    @abstractmethod
    def combine(self, v: np.ndarray) -> np.ndarray:
        """Return the combination (X - 1 offset')' v of the rows, shape (d,), in float64.

        For k >= 2 columns of coefficients, `v` of shape (n, k), the result has shape (d, k) and
        takes one matrix product. Rows in memory also accept a sparse `v`, for which the cost of a
        pass does not depend on k.

        float32 data are summed in float32 within a tile of rows and in float64 across tiles. The
        term (sum of v) offset is computed in float64. An offset loses digits as in `scores`: the
        error is about 1e-2 of the norm of v for means of 1e4. `moments` has no such loss.
        """

    @abstractmethod
    def mean(self) -> np.ndarray:
        """Return the weighted mean of the rows as seen, shape (d,), in float64."""

    @abstractmethod
    def moments(
        self,
        mask: np.ndarray | None = None,
        *,
        center: np.ndarray | None = None,
        second: bool = True,
    ) -> Moments:
        """Return the weighted moments of the rows as seen, about `center`.

        Only the rows of the mask are read. The default centre is the mean of *all* rows, so that
        the moments of different masks can be added and subtracted.
        """

    @abstractmethod
    def centered(self) -> Self:
        """Return the same rows with the weighted mean as the offset. The data are not copied."""

    @abstractmethod
    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``, whose root scales the data."""

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean."""
        centred = self.centered()
        return centred, centred.moments(center=np.zeros(self.n_features))

    def in_one_pass(self, f: Callable[[], Values]) -> Values:
        """Return ``f()``, with all its requests to the rows answered by one pass.

        If a pass is expensive, `f` is called twice: first with placeholders, to collect its
        requests, and then with values. The requests must not depend on the values.
        """
        self.prefetch(f)
        return f()

    def prefetch(self, f: Callable[[], Any]) -> None:  # noqa: B027 -- cheap passes need none
        """If passes are expensive, compute all that `f` requests in one pass.

        It does not change any result: `f` is called with placeholders, or not at all. It is meant
        to be called just before the results are needed.
        """


class FeatureMap(Protocol):
    """A fitted map z with z(x)' z(y) ≈ k(x, y), applied to any number of rows at a time."""

    def transform(self, X: Any) -> np.ndarray:
        """Map rows of X, shape (m, d), to features, shape (m, D)."""


@runtime_checkable
class ScoringMap(FeatureMap, Protocol):
    """A feature map that computes scores of rows faster than through their features."""

    def scores(self, X: Any, w: np.ndarray) -> np.ndarray:
        """Return z(x)'w for every row x of X and w of shape (D,) or (D, k), in the dtype of X."""


# ----------------------------------------- additive moments of a set of rows about a fixed centre


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, sum and second moments of rows about a fixed centre c.

    weight = Σ w_i,  sum = Σ w_i (x_i - c),  second = Σ w_i (x_i - c)(x_i - c)'.

    Moments of disjoint sets of rows can be added, and moments of a subset subtracted. This
    suffices to update two clusters whose rows change sides (the "formula (2) of Appendix B" that
    the MSPC paper refers to but does not print). A centre near the data keeps the digits that Σ x
    x' about zero loses. All arrays are float64 and read-only.
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
        if weight < -1e-9 * self.weight:  # more than rounding
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


# ---------------------------------------------- checks of arrays for row sources and feature maps


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
