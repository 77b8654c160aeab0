"""What a linear-time method may ask of the data, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from volmar.rows.moments import Moments

Values = TypeVar("Values")


class RowSource(ABC):
    """The rows of a data matrix, seen only through sums over all of them.

    A row is seen as x_i - offset. Each method is one pass over the rows: it returns n numbers
    (one for each row) or a state that does not grow with n (d, or d × d, numbers), and no row
    can be picked out. A back end whose blocks lie on other machines therefore needs no other
    method than these, and an algorithm written against this class need not know which it has.

    Attributes
    ----------
    n_rows, n_features : int
        The shape (n, d) of the data.
    dtype : numpy.dtype
        float32 or float64. The data are never converted in a pass: vectors are cast to them.
    weights : ndarray of shape (n,) or None
        Sample weights, float64; None when every row weighs 1.
    total_weight : float
        The sum of the weights, n when there are none.
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

        A block of k >= 2 directions, shape (d, k), gives (n, k), by one product.

        Of float32 data with an offset, each score is the difference of two float32-rounded
        numbers of size ``|offset' w|``: with means of 1e4 and standard deviations of 1 it is right
        to about 1e-3 only. Subtract such a mean from the data themselves beforehand.
        """

    @abstractmethod
    def combine(self, v: np.ndarray) -> np.ndarray:
        """Return the combination (X - 1 offset')' v of the rows, shape (d,), in float64.

        A block of k >= 2 columns of coefficients, shape (n, k), gives (d, k), by one product.
        Rows in memory take a sparse one, too, which costs a pass whatever k is.

        float32 data are summed in float32 inside a tile of rows and in float64 across tiles;
        the offset's share, (sum of v) offset, is computed in float64. The loss of digits by an
        offset is that of `scores`: about 1e-2 of the norm of v for means of 1e4. `moments` has
        none.
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
            The rows to take; all when None. Only these rows are read.
        center : ndarray of shape (d,), optional
            The fixed centre, in the coordinates of the rows as seen. None takes the mean of
            *all* the rows, so that the moments of different masks can be added and subtracted.
        second : bool, default=True
            Whether to sum the d × d second moments too.
        """

    @abstractmethod
    def centered(self) -> Self:
        """Return the same source with its offset at its weighted mean. Nothing is copied."""

    @abstractmethod
    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``, whose root scales the data."""

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments of the rows about their mean."""
        centred = self.centered()
        return centred, centred.moments(center=np.zeros(self.n_features))

    def in_one_pass(self, f: Callable[[], Values]) -> Values:
        """Return what `f` returns; all that it asks of the rows is answered by one pass.

        Where a pass is expensive, `f` is called twice: with placeholders, to collect its requests,
        and with values. What it asks for must not depend on the values.
        """
        self.prefetch(f)
        return f()

    def prefetch(self, f: Callable[[], Any]) -> None:  # noqa: B027 -- cheap passes need none
        """Where a pass is expensive, let one bring all that `f` asks for, which is needed next.

        It changes no answer: `f` is called with placeholders, or not at all.
        """


class FeatureMap(Protocol):
    """A fitted map z with z(x)' z(y) ≈ k(x, y), applied to any number of rows at a time."""

    def transform(self, X: Any) -> np.ndarray:
        """Map rows of X, shape (m, d), to features, shape (m, D)."""


@runtime_checkable
class ScoringMap(FeatureMap, Protocol):
    """A feature map that has a way to scores of rows which is faster than by their features."""

    def scores(self, X: Any, w: np.ndarray) -> np.ndarray:
        """Return z(x)'w of every row x of X for w of shape (D,) or (D, k), in the dtype of X."""
