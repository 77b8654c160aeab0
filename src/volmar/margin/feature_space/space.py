"""What a margin method asks of rows: vectors that combine them, inner products and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

Values = TypeVar("Values")


class VectorSpace(ABC):
    """Rows z_i = phi(x_i) - sum_j p_j phi(x_j), seen through combinations of all of them.

    With k clusters a vector is a block of k of them, one a cluster: coefficients v and scores have
    the shape (n, k), inner products are summed over the clusters. `LinearSpace` and `KernelSpace`
    take both. `dtype` is that of scores, labels and coefficients, `shares` are the p_i (None for
    1/n), and `version` changes when the inner products of vectors already handed out do.
    """

    n_rows: int
    dtype: np.dtype
    shares: NDArray | None
    n_passes: int
    version: int = 0
    #: Whether the z_i have the mean zero; otherwise they are the phi(x_i).
    is_centered: bool = True

    #: Whether `vector` takes sparse coefficients of rows in memory, and there is `vectors_of`.
    combines_sparse: bool = False

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
        """Return sum_i v_i z_i, in the form that the space keeps vectors: one pass."""

    @abstractmethod
    def inner(self, vector: Any, others: Sequence[Any]) -> NDArray:
        """Return the inner products of a vector with others."""

    @abstractmethod
    def combination(self, vectors: Sequence[Any], weights: NDArray) -> Any:
        """Return sum_k weights_k vectors_k."""

    @abstractmethod
    def scores(self, w: Any) -> NDArray:
        """Return <w, z_i> of every row: one pass, where they are not known."""

    def vectors_of(self, index: NDArray, v: Any, k: int) -> NDArray:
        """Return combinations of some rows: of coefficients (m, j k) those of each k columns."""
        raise NotImplementedError(f"{type(self).__name__} does not combine some of its rows.")

    def refreshed(self, w: Any) -> Any:
        """Return w without the rounding of the sums that led to it."""
        return w

    def graph_axes(self) -> NDArray:
        """Return columns that vary slowly along a kernel's graph; none without a kernel."""
        return np.empty((self.n_rows, 0))


class Hyperplane(ABC):
    """Scores of new rows in units of the margin; holds no more of the data than that needs."""

    @abstractmethod
    def __call__(self, X: Any) -> NDArray:
        """Return f(x) / rho of each row."""


class FeatureSpace(VectorSpace):
    """The rows of a fit, which can be weighted anew and sampled, and whose hyperplanes score any.

    `has_equal_lengths` is whether all rows have the same length before centring, so that none is
    far from the others.
    """

    weights: Any
    has_equal_lengths: bool = False
    #: Number of coordinates of a vector w, where they are the same for all samples of the rows.
    n_coordinates: int | None = None

    @abstractmethod
    def hyperplane(self, normal: Any, rho: float, t: Any) -> Hyperplane:
        """Return (<w, z> + t) / rho as a function of new rows."""

    @abstractmethod
    def reweighted(self, weights: NDArray) -> FeatureSpace:
        """Return the same rows with other weights, which are their centre's, too."""

    def start_rows(self) -> Any:
        """Return rows in which k-means can find a start, or None."""
        return None

    def sampled(self, chosen: NDArray) -> FeatureSpace | None:  # noqa: ARG002 -- for those that can
        """Return some rows, whose hyperplanes score `start_rows`; None if that is not possible.

        The space itself, where it has all rows in memory and keeps nothing of what it was asked.
        """
        return None

    def is_gram(self) -> bool:
        """Whether no vector is seen to have a negative square."""
        return True


def plain(intercept: Any) -> Any:
    """Return one number as a float, and several as they are."""
    return intercept if np.ndim(intercept) else float(intercept)


def solve_definite(A: NDArray, right: NDArray, dtype: Any) -> NDArray:
    """Return A^-1 right for a positive definite A, which `dtype` may have rounded out of that."""
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
