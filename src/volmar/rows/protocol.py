"""Interfaces of row sources, through which linear-time methods read X, and of feature maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from volmar.rows.moments import Moments

Values = TypeVar("Values")


class RowSource(ABC):
    """The rows of a data matrix, accessed only by passes over all of them.

    The rows *as seen* are x_i - offset. Each method is one pass over the rows. It returns n
    numbers (one per row) or a result whose size does not depend on n (d, or d × d, numbers).
    Single rows cannot be selected. Back ends with blocks on other machines therefore need only
    these methods, and algorithms written against this class work with every back end.

    Attributes
    ----------
    n_rows, n_features : int
        The shape (n, d) of the data.
    dtype : numpy.dtype
        float32 or float64. The data are never converted in a pass; vectors are cast to this type.
    weights : ndarray of shape (n,) or None
        Sample weights, float64. If None, every row has weight 1.
    total_weight : float
        The sum of the weights, or n without weights.
    offset : ndarray of shape (d,) or None
        The implicit centre, float64. The data themselves are not changed.

    Notes
    -----
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

        Parameters
        ----------
        mask : bool ndarray of shape (n,), optional
            The rows to include. Only these rows are read. If None, all rows are included.
        center : ndarray of shape (d,), optional
            The fixed centre, in the coordinates of the rows as seen. If None, it is the mean of
            *all* rows, so that the moments of different masks can be added and subtracted.
        second : bool, default=True
            Whether to compute the d × d second moments, too.
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
