"""Interface of feature spaces: combinations of rows, inner products and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.solvers.cutting_plane_qp import NotAGramMatrixError

Values = TypeVar("Values")


class VectorSpace(ABC):
    """Rows z_i = phi(x_i) - sum_j p_j phi(x_j), accessed through combinations of all of them.

    With k clusters a vector is a block of k vectors, one per cluster: coefficients v and scores
    have the shape (n, k), and inner products are summed over the clusters. `LinearSpace` and
    `KernelSpace` support both. `dtype` is that of scores, labels and coefficients, `shares` are
    the p_i (None for 1/n), and `version` changes if the inner products of existing vectors change.
    """

    n_rows: int
    dtype: np.dtype
    shares: NDArray | None
    n_passes: int
    version: int = 0
    #: Whether the z_i have mean zero; otherwise they are the phi(x_i).
    is_centered: bool = True

    #: Whether `vector` accepts sparse coefficients for rows in memory, and `vectors_of` exists.
    combines_sparse: bool = False

    def full(self, value: float) -> Any:
        """Return a vector with the same value for every row."""
        return np.full(self.n_rows, value, dtype=self.dtype)

    def in_one_pass(self, f: Callable[[], Values]) -> Values:
        """Return the result of `f`, computed in one pass (see `RowSource.in_one_pass`)."""
        self.prefetch(f)
        return f()

    def prefetch(self, f: Callable[[], Any]) -> None:  # noqa: B027 -- cheap passes need none
        """If passes are expensive, compute all results that `f` requests in a single pass."""

    @abstractmethod
    def vector(self, v: NDArray) -> Any:
        """Return sum_i v_i z_i in the vector format of the space, in one pass."""

    @abstractmethod
    def inner(self, vector: Any, others: Sequence[Any]) -> NDArray:
        """Return the inner products of a vector with others."""

    @abstractmethod
    def combination(self, vectors: Sequence[Any], weights: NDArray) -> Any:
        """Return sum_k weights_k vectors_k."""

    @abstractmethod
    def scores(self, w: Any) -> NDArray:
        """Return <w, z_i> of every row, in one pass unless they are known."""

    def vectors_of(self, index: NDArray, v: Any, k: int) -> NDArray:
        """Return combinations of some rows, one for each k columns of coefficients (m, j k)."""
        raise NotImplementedError(f"{type(self).__name__} cannot combine a subset of its rows.")

    def refreshed(self, w: Any) -> Any:
        """Return w without the accumulated rounding of earlier sums."""
        return w

    @property
    def graph_axes(self) -> NDArray:
        """Columns that vary slowly along a kernel's graph; no columns without a kernel."""
        return np.empty((self.n_rows, 0))


class Hyperplane(ABC):
    """Scores of new rows in units of the margin; stores only the data needed for that."""

    @abstractmethod
    def __call__(self, X: Any) -> NDArray:
        """Return f(x) / rho of each row."""


class FeatureSpace(VectorSpace):
    """The rows of a fit, which can be reweighted and sampled; its hyperplanes score new rows.

    `has_equal_lengths` is True if all rows have the same length before centring, so that none is
    far from the others.
    """

    weights: Any
    has_equal_lengths: bool = False
    #: Number of coordinates of a vector w, if they are the same for all samples of the rows.
    n_coordinates: int | None = None

    @abstractmethod
    def hyperplane(self, normal: Any, rho: float, t: Any) -> Hyperplane:
        """Return (<w, z> + t) / rho as a function of new rows."""

    @abstractmethod
    def reweighted(self, weights: NDArray) -> FeatureSpace:
        """Return the same rows with other weights, which are also used for centring."""

    def start_rows(self) -> Any:
        """Return rows on which k-means can find a start, or None."""
        return None

    def sampled(self, chosen: NDArray) -> FeatureSpace | None:  # noqa: ARG002 -- for those that can
        """Return a space of some rows, whose hyperplanes score `start_rows`; None if impossible.

        If all rows are in memory and the space stores no results, the space itself is returned.
        """
        return None

    def is_gram(self) -> bool:
        """Return False if a vector with a negative squared norm is found."""
        return True


def plain(intercept: Any) -> Any:
    """Return a single number as a float, and an array unchanged."""
    return intercept if np.ndim(intercept) else float(intercept)


def solve_definite(A: NDArray, right: NDArray, dtype: Any) -> NDArray:
    """Return A^-1 right for an A that is positive definite up to rounding in `dtype`."""
    rounding = float(np.finfo(dtype).eps) * float(np.abs(A.diagonal()).max())
    for ridge in (0.0, 1e2, 1e4, 1e6, 1e8):
        raised = A.copy()
        raised.flat[:: A.shape[0] + 1] += ridge * rounding
        try:
            factor = linalg.cho_factor(raised, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        return linalg.cho_solve(factor, right, check_finite=False)
    raise NotAGramMatrixError(
        "the kernel matrix is not positive semi-definite on these rows. Use another kernel, or "
        "clip its negative eigenvalues."
    )
