"""Q held as a dense matrix: Cholesky for solves, LAPACK or Lanczos for eigenpairs."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse

from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.lanczos import lanczos_smallest, largest_eigenpairs
from volmar.operators.protocol import (
    EigenPairs,
    FloatArray,
    Found,
    Solution,
    SPDOperator,
    certified_pairs,
    check_block,
    check_matrix,
    check_n_pairs,
    check_solution,
    complete_pairs,
    exact_null_space,
    expected_iterations,
    relative_residual,
)

# Below this LAPACK's subset solver wins; above it a few dozen products with Q are cheaper.
LANCZOS_FROM = 1500
# Conjugate gradients that are sure to end within this are cheaper than factors, from there on.
SHORT_RUN = 30


class DenseOperator(SPDOperator):
    """Q = matrix + shift I with `matrix` dense and symmetric.

    Parameters
    ----------
    matrix : array of shape (n, n)
        Symmetric matrix; kept as it is, not copied.
    shift : float, default=0
        Multiple of the identity added to it.
    bounds : (float, float), optional
        Interval known to hold the eigenvalues of `matrix` (0 and 2 for a normalised Laplacian).
        Gershgorin's discs are used where it is not given.
    null_space : ndarray of shape (n, c), optional
        Eigenvectors at the lower bound, if they are known exactly: they need not be computed, and
        a repeated eigenvalue cannot be missed.
    random_state : int, default=0
        Seed of the start vectors of iterative eigensolvers.
    """

    def __init__(self, matrix, *, shift=0.0, bounds=None, null_space=None, random_state=0):
        check_matrix(matrix)
        self.matrix = matrix
        self.shift = float(shift)
        self.n = matrix.shape[0]
        self.random_state = random_state
        self._given_bounds = bounds
        self._known = exact_null_space(matrix, null_space, bounds)
        self._factor: tuple[float, str, tuple] | None = None

    def __getstate__(self) -> dict:
        """Leave out the factor: it is as large as the matrix, and made again."""
        return self.__dict__ | {"_factor": None}

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self.matrix @ x + self.shift * x

    @property
    def bounds(self) -> tuple[float, float]:
        """An interval that holds every eigenvalue of Q."""
        low, high = self._given_bounds or gershgorin(self.matrix)
        return low + self.shift, high + self.shift

    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block by Cholesky, or LU where that is not positive definite.

        For large n and a condition number near 1, a few conjugate gradient iterations to `rtol`
        do it instead.
        """
        B, is_vector = check_block(block, self.n)
        if self._factor is None or self._factor[0] != shift:
            if self.n >= LANCZOS_FROM:
                easy = self._iterate(shift, B, rtol)
                if easy is not None:
                    return easy if not is_vector else replace(easy, x=easy.x[:, 0])
            self._factor = (shift, *self._factorise(shift))
        _, method, factor = self._factor
        substitute = linalg.cho_solve if method == "cholesky" else linalg.lu_solve
        with np.errstate(all="ignore"):  # a singular matrix is refused just below
            X = substitute(factor, B, check_finite=False)
            residual = relative_residual(B - self.matvec(X) - shift * X, B)
        check_solution(X, residual, shift)
        return Solution(X[:, 0] if is_vector else X, residual, 0, method)

    def _iterate(self, shift: float, B: FloatArray, rtol: float) -> Solution | None:
        """Conjugate gradients where they are sure to be short, None elsewhere."""
        if expected_iterations(self.bounds, shift, rtol) > SHORT_RUN:
            return None
        X, n_iter, done = conjugate_gradients(
            lambda x: self.matvec(x) + shift * x,
            B,
            rtol=rtol,
            max_iter=2 * SHORT_RUN,
            precondition=lambda r: r,
        )
        residual = relative_residual(B - self.matvec(X) - shift * X, B)
        return Solution(X, residual, n_iter, "cg") if done else None

    def _factorise(self, shift: float) -> tuple[str, tuple]:
        A = np.array(self.matrix, dtype=np.float64)
        A[np.diag_indices(self.n)] += self.shift + shift
        try:
            return "cholesky", linalg.cho_factor(A, lower=True, check_finite=False)
        except linalg.LinAlgError:
            with warnings.catch_warnings():
                # An exactly singular matrix is refused below, with a remedy.
                warnings.simplefilter("ignore", linalg.LinAlgWarning)
                return "lu", linalg.lu_factor(A, check_finite=False)

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs, by Lanczos for large n and by LAPACK otherwise.

        Lanczos runs on the inverse where a solve at shift 0 has left its factor.
        """
        check_n_pairs(k, self.n)
        if self.n >= LANCZOS_FROM and k <= self.n // 20:
            known = self._known[:, :k]
            pairs = complete_pairs(self, known, k, lambda m: self._lanczos(known, m, tol))
            if pairs is not None:
                return pairs
        values, vectors = linalg.eigh(
            self.matrix, subset_by_index=(0, k - 1), check_finite=False, driver="evr"
        )
        return certified_pairs(self, values + self.shift, vectors, "dense")

    def _lanczos(self, known: FloatArray, m: int, tol: float) -> Found:
        if self._factor is not None and self._factor[:2] == (0.0, "cholesky"):
            factor = self._factor[2]
            inverse = largest_eigenpairs(
                lambda x: linalg.cho_solve(factor, x, check_finite=False),
                known,
                m,
                tol=1e-10,
                seed=self.random_state,
                max_iter=50,
                n_basis=max(2 * m + 4, 8),
                n_check=0 if m == 1 else 8,
            )
            if inverse is not None:
                return 1.0 / inverse[0], inverse[1], "shift-invert"
        found = lanczos_smallest(
            self.matvec, known, m, ceiling=self.bounds[1], tol=tol, seed=self.random_state
        )
        return None if found is None else (*found, "lanczos")


def gershgorin(matrix: FloatArray | sparse.csr_matrix) -> tuple[float, float]:
    """Interval of Gershgorin's discs of a symmetric matrix, dense or sparse."""
    diagonal = matrix.diagonal()
    radius = np.asarray(abs(matrix).sum(axis=1)).ravel() - np.abs(diagonal)
    return float((diagonal - radius).min()), float((diagonal + radius).max())
