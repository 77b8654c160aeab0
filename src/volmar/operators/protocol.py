"""The interface of a symmetric positive definite matrix Q, and its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from volmar._checks import fix_signs
from volmar._warn import warn_user

FloatArray = NDArray[np.floating]
# Eigenvalues, eigenvectors, an estimate of the next eigenvalue (NaN if unknown) and the method;
# None if it did not converge.
Found = tuple[FloatArray, FloatArray, float, str] | None
# Eigenvalues that differ by less than this fraction of the norm of Q need not be separated.
SAME = 1e-9
# Maximum residual as a fraction of the distance of the next eigenvalue from the smallest, which
# bounds the angle between the computed eigenvectors and the exact ones.
MAX_ANGLE = 0.1


@dataclass(frozen=True)
class Solution:
    """Solution of (Q + shift I) X = B with its residual.

    Attributes
    ----------
    x : ndarray
        The solution, with the shape of B.
    residual : float
        Largest relative residual ``|B_j - (Q + shift I) x_j| / |B_j|`` over the columns.
    n_iter : int
        Number of conjugate gradient iterations, 0 for a direct solve.
    method : str
        The method used: "cholesky", "lu", "cg" or "two-level".
    """

    x: FloatArray
    residual: float
    n_iter: int
    method: str


@dataclass(frozen=True)
class EigenPairs:
    """The smallest eigenvalues of Q, ascending, with unit eigenvectors of fixed signs.

    Attributes
    ----------
    values : ndarray of shape (k,)
        Eigenvalues in ascending order.
    vectors : ndarray of shape (n, k)
        Unit eigenvectors as columns. The entry of largest magnitude of each is positive.
    residuals : ndarray of shape (k,)
        Residuals ``|Q v_j - values_j v_j|``, recomputed from Q.
    method : str
        The method used: "dense", "lanczos", "shift-invert" or "lobpcg", or "known" if the
        eigenvectors were given.
    """

    values: FloatArray
    vectors: FloatArray
    residuals: FloatArray
    method: str


class SPDOperator(ABC):
    """Abstract base class of a symmetric positive definite matrix Q.

    Back ends store Q in different ways and differ only in cost. Algorithms written against this
    class run on dense and sparse Q.
    """

    n: int

    @abstractmethod
    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""

    @abstractmethod
    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block, for a vector or several columns at once.

        `shift` may be negative as long as the matrix is not singular. Iterative back ends then
        factorise the matrix, because conjugate gradients need a positive definite one.
        """

    @abstractmethod
    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs with residuals of at most tol times the norm of Q.

        Residuals are also small compared with the distance of eigenvalue k + 1 from the first:
        eigenvectors of 1e-12 are not confused with those of 1e-7, for any tol.
        """

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """An interval that contains all eigenvalues of Q."""

    def anchored(self, rows: NDArray[np.bool_]) -> SPDOperator:  # noqa: ARG002 -- needs the matrix
        """Return Q with its diagonal doubled at the given rows; Q itself if that is unknown."""
        return self


class MatrixOperator(SPDOperator):
    """Q = matrix + shift I with a symmetric matrix.

    Parameters are those of `as_operator`. Factors are kept for the next solve with the same shift.
    The choice of methods depends only on the matrix, not on earlier calls.
    """

    def __init__(
        self,
        matrix: Any,
        *,
        shift: float = 0.0,
        bounds: tuple[float, float] | None = None,
        null_space: FloatArray | None = None,
        random_state: int = 0,
    ):
        check_matrix(matrix)
        self.matrix = sparse.csr_matrix(matrix) if sparse.issparse(matrix) else matrix
        self.shift = float(shift)
        self.n = matrix.shape[0]
        self.random_state = random_state
        self._given_bounds = bounds
        self._known = exact_null_space(self.matrix, null_space, bounds)
        self._factor: tuple[float, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Exclude factors from the pickle: they are large and can be recomputed."""
        return self.__dict__ | {"_factor": None}

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """An interval that contains all eigenvalues of Q."""
        low, high = self._given_bounds or gershgorin(self.matrix)
        return low + self.shift, high + self.shift

    @property
    def scale(self) -> float:
        """An upper bound on the norm of Q."""
        return max(map(abs, self.bounds))

    @property
    def _poles(self) -> list[float]:
        """Shifts that make Q positive definite, to try in turn for eigenpairs by the inverse.

        Zero if possible, because solves need the same factors. The inverse of L + I/n does not
        separate eigenvalues of L far below 1/n. The last shift therefore makes Q nearly singular.
        """
        if not self._given_bounds:  # Gershgorin's bound is loose; Q is positive definite
            return [2 * SAME * self.scale]
        last = SAME * self.scale - self.bounds[0]
        return [0.0, last] if last < 0 else [last]

    def _are_accurate(self, pairs: EigenPairs, following: float, tol: float) -> bool:
        """Return whether the residuals are small, given an estimate of the next eigenvalue."""
        spread = np.fmax(following, pairs.values[-1]) - pairs.values[0]
        goal = MAX_ANGLE * max(float(spread), SAME * self.scale / MAX_ANGLE)
        return bool(np.all(pairs.residuals <= min(tol * self.scale, goal)))

    def anchored(self, rows: NDArray[np.bool_]) -> SPDOperator:
        """Return Q with its diagonal doubled at the given rows."""
        own = np.where(rows, self.matrix.diagonal() + self.shift, 0.0)
        more = sparse.diags_array(own) if sparse.issparse(self.matrix) else np.diag(own)
        low, high = self._given_bounds or gershgorin(self.matrix)
        bounds = low + min(own.min(), 0.0), high + max(own.max(), 0.0)
        return type(self)(self.matrix + more, shift=self.shift, bounds=bounds)

    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block; the methods are described at the class."""
        B = np.asarray(block, dtype=np.float64)
        if B.ndim not in (1, 2) or B.shape[0] != self.n:
            raise ValueError(
                f"block must have {self.n} rows (the size of Q), got shape {B.shape}."
            )
        if B.size == 0 or not np.isfinite(B).all():
            raise ValueError("block must have at least one column and only finite entries.")
        columns = B[:, None] if B.ndim == 1 else B
        X, n_iter, method = self._solve(shift, columns, rtol)
        with np.errstate(all="ignore"):  # a singular matrix is refused just below
            sizes = np.linalg.norm(columns, axis=0)
            rest = np.linalg.norm(columns - self.matvec(X) - shift * X, axis=0)
            residual = float(np.max(rest / np.where(sizes > 0, sizes, 1.0)))
        if method in ("cholesky", "lu"):
            if not np.isfinite(X).all() or not residual < 1e-3:
                raise np.linalg.LinAlgError(
                    f"Q + shift I is singular or nearly so at shift={shift:g} (relative residual "
                    f"{residual:.1e}). Use another shift."
                )
        elif not residual <= 10 * rtol:
            warn_user(
                f"Conjugate gradients stopped after {n_iter} iterations with a relative residual "
                f"of {residual:.1e} (requested {rtol:.1e}). Use a larger shift.",
                ConvergenceWarning,
            )
        return Solution(X.reshape(B.shape), residual, n_iter, method)

    @abstractmethod
    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        """Return the solution for columns B, the number of iterations and the method."""

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs; the methods are described at the class."""
        if not isinstance(k, Integral) or not 1 <= k <= self.n:
            raise ValueError(f"k must be between 1 and {self.n} (the size of Q), got {k!r}.")
        return self._smallest(k, tol)

    @abstractmethod
    def _smallest(self, k: int, tol: float) -> EigenPairs: ...


def gershgorin(matrix: Any) -> tuple[float, float]:
    """Return the interval of Gershgorin's discs of a symmetric matrix, dense or sparse."""
    diagonal = matrix.diagonal()
    radius = np.asarray(abs(matrix).sum(axis=1)).ravel() - np.abs(diagonal)
    return float((diagonal - radius).min()), float((diagonal + radius).max())


def check_matrix(matrix: Any) -> None:
    """Raise a ValueError unless the matrix is square, finite and symmetric.

    Symmetry is tested by x'Ay = y'Ax for two random vectors, which takes two products.
    """
    if (
        getattr(matrix, "ndim", 0) != 2
        or matrix.shape[0] != matrix.shape[1]
        or not matrix.shape[0]
    ):
        raise ValueError(
            "matrix must be a square array or sparse matrix, got "
            f"{getattr(matrix, 'shape', type(matrix).__name__)}."
        )
    x, y = np.random.default_rng(0).standard_normal((2, matrix.shape[0]))
    images = matrix @ x, matrix @ y
    if not all(np.isfinite(image).all() for image in images):
        raise ValueError("matrix must be finite, but it has NaN or infinite entries.")
    size = float(np.linalg.norm(images[0]) * np.linalg.norm(y)) or 1.0
    difference = abs(float(y @ images[0] - x @ images[1]))
    if difference > 1e-6 * size:
        raise ValueError("matrix must be symmetric. Use (matrix + matrix.T) / 2.")


def expected_iterations(bounds: tuple[float, float], shift: float, rtol: float) -> float:
    """Estimate the number of conjugate gradient iterations, sqrt(condition) log(2 / rtol) / 2.

    It is infinite if the bounds do not imply that the matrix is positive definite.
    """
    low, high = (bound + shift for bound in bounds)
    return float(np.sqrt(high / low) * np.log(2 / rtol) / 2) if low > 0 else np.inf


def exact_null_space(
    matrix: Any, null_space: FloatArray | None, bounds: tuple[float, float] | None
) -> FloatArray:
    """Return the given vectors, orthonormalised, if they are eigenvectors at the lower bound.

    Errors in them would affect the eigenpairs computed in their complement. Vectors that are not
    exact up to rounding are therefore ignored.
    """
    if null_space is None or bounds is None:
        return np.empty((matrix.shape[0], 0))
    block = np.asarray(null_space, dtype=np.float64).reshape(matrix.shape[0], -1)
    basis = np.linalg.qr(block)[0]
    residual = np.linalg.norm(matrix @ basis - bounds[0] * basis, axis=0)
    exact = residual <= 1e-12 * max(map(abs, bounds))
    return basis if exact.all() else np.empty((matrix.shape[0], 0))


def certified_pairs(
    operator: SPDOperator, values: FloatArray, vectors: FloatArray, method: str
) -> EigenPairs:
    """Return sorted eigenpairs with fixed signs, and residuals recomputed from Q."""
    order = np.argsort(values, kind="stable")
    values, vectors = values[order], fix_signs(vectors[:, order])
    residuals = np.linalg.norm(operator.matvec(vectors) - vectors * values, axis=0)
    return EigenPairs(values, vectors, residuals, method)


def complete_pairs(
    operator: SPDOperator, known: FloatArray, k: int, find: Callable[[int], Found]
) -> tuple[EigenPairs, float] | None:
    """Return k eigenpairs, and an estimate of the next eigenvalue (NaN if unknown).

    The pairs are the known ones of the lowest eigenvalue, and the rest from `find`.
    """
    n_known = known.shape[1]
    values = np.full(n_known, operator.bounds[0])
    if n_known == k:
        return certified_pairs(operator, values, known, "known"), np.nan
    found = find(k - n_known)
    if found is None:
        return None
    values, vectors = np.concatenate([values, found[0]]), np.hstack([known, found[1]])
    return certified_pairs(operator, values, vectors, found[3]), found[2]
