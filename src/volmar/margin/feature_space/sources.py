"""What the margin engine asks of the data: cuts, their inner products, and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from volmar.rows import RowSource, constant_vector

# Share of the largest kernel value below which an inner product is rounding.
ROUNDING = 1e-14

__all__ = ["CutSource", "KernelSource", "LinearSource"]

Values = TypeVar("Values")


class CutSource(ABC):
    """Rows z_i = phi(x_i) - sum_j p_j phi(x_j), seen through combinations of all of them.

    With k clusters a vector is a block of k of them, one a cluster: coefficients v and scores have
    the shape (n, k), inner products are summed over the clusters. `LinearSource` and
    `KernelSource` take both.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    dtype : dtype
        Of scores, labels and coefficients.
    shares : ndarray of shape (n,) or None
        p_i, of sum 1; None for 1/n.
    n_passes : int
        Products with the data so far.
    version : int
        Changes when the inner products of vectors already handed out do.
    """

    n_rows: int
    dtype: np.dtype
    shares: NDArray | None
    n_passes: int
    version: int = 0

    def full(self, value: float) -> Any:
        """Return a vector with the same value for every row."""
        return np.full(self.n_rows, value, dtype=self.dtype)

    def in_one_pass(self, f: Callable[[], Values]) -> Values:
        """Return what `f` returns, by one pass (see `RowSource.in_one_pass`)."""
        self.prefetch(f)
        return f()

    def prefetch(self, f: Callable[[], Any]) -> None:  # noqa: B027 -- cheap passes need none
        """Where a pass is expensive, let one bring all that `f` asks for, which is needed next."""

    @abstractmethod
    def vector(self, v: NDArray) -> Any:
        """Return sum_i v_i z_i, in whatever form the source keeps vectors: one pass."""

    @abstractmethod
    def inner(self, vector: Any, others: Sequence[Any]) -> NDArray:
        """Return the inner products of a vector with others."""

    @abstractmethod
    def combination(self, vectors: Sequence[Any], weights: NDArray) -> Any:
        """Return sum_k weights_k vectors_k."""

    @abstractmethod
    def scores(self, w: Any) -> NDArray:
        """Return <w, z_i> of every row: one pass, where they are not known."""


class LinearSource(CutSource):
    """Rows of a data matrix, dense or sparse, or of their features under a map.

    Parameters
    ----------
    rows : RowSource
        The rows; they are centred at their (weighted) mean. Their offset keeps it.
    """

    def __init__(self, rows: RowSource):
        self.rows = rows.centered()
        self.n_rows, self.dtype = rows.n_rows, rows.dtype
        self.shares = None if rows.weights is None else rows.weights / rows.total_weight
        self.n_passes = 0
        # What centring leaves of rows at the mean.
        self._rounding = 8.0 * float(np.finfo(rows.dtype).eps * np.linalg.norm(rows.mean()))

    def full(self, value: float) -> Any:
        """Return a vector with the same value for every row."""
        return constant_vector(self.rows, value, self.dtype)

    def prefetch(self, f: Callable[[], Any]) -> None:
        """Where a pass is expensive, let one bring all that `f` asks for, which is needed next."""
        n_passes = self.n_passes
        self.rows.prefetch(f)
        self.n_passes = n_passes

    def vector(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i, shape (d,) or (d, k)."""
        self.n_passes += 1
        a = self.rows.combine(v)
        if np.linalg.norm(a) <= self._rounding * float(np.abs(v).sum()):
            a[:] = 0.0
        return a

    def inner(self, vector: NDArray, others: Sequence[NDArray]) -> NDArray:
        """Return the inner products of a vector with others."""
        return np.array([vector.ravel() @ other.ravel() for other in others])

    def combination(self, vectors: Sequence[NDArray], weights: NDArray) -> NDArray:
        """Return the combination, shape (d,) or (d, k)."""
        w = weights[0] * vectors[0]
        for weight, vector in zip(weights[1:], vectors[1:], strict=True):
            if weight:
                w += weight * vector
        return w

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row."""
        self.n_passes += 1
        return self.rows.scores(w)


class KernelSource(CutSource):
    """Rows in the feature space of a kernel matrix.

    A vector sum_i v_i z_i is kept as its coefficients and its products with all z_i, stacked in
    one array of shape (2, n) or (2, n, k): inner products and scores then need no further pass.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Kernel matrix, symmetric. It is not copied; centring is implicit.
    shares : ndarray of shape (n,), optional
        p_i, of sum 1; 1/n if not given.
    """

    def __init__(self, K: NDArray, shares: NDArray | None = None):
        self.K = K
        self.n_rows, self.dtype = K.shape[0], K.dtype
        self.shares = shares
        self.n_passes = 0
        self._size = float(np.abs(K.diagonal()).max())
        self.p = np.full(self.n_rows, 1.0 / self.n_rows) if shares is None else shares

    def vector(self, v: NDArray) -> NDArray:
        """Return centred coefficients and the products K_c v, shape (2, n) or (2, n, k)."""
        self.n_passes += 1
        v = v.astype(np.float64)
        v -= np.multiply.outer(self.p, v.sum(axis=0))
        image = (self.K @ v.astype(self.dtype, copy=False)).astype(np.float64, copy=False)
        image = image - self.p @ image
        return np.stack([v, image])

    def inner(self, vector: NDArray, others: Sequence[NDArray]) -> NDArray:
        """Return the inner products of a vector with others; 0 where they are rounding."""
        products = np.array([other[0].ravel() @ vector[1].ravel() for other in others])
        sizes = np.array([np.abs(other[0]).sum() for other in others])
        floor = ROUNDING * self._size * np.abs(vector[0]).sum() * sizes
        return np.where(np.abs(products) <= floor, 0.0, products)

    def combination(self, vectors: Sequence[NDArray], weights: NDArray) -> NDArray:
        """Return the combination, shape (2, n) or (2, n, k)."""
        return np.tensordot(weights, np.stack(vectors), axes=1)

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row, which is part of w."""
        return w[1].astype(self.dtype)
