"""Operators with a dense matrix: Cholesky for solves, LAPACK or Lanczos for eigenpairs."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from volmar.operators.protocol import (
    EigenPairs,
    FloatArray,
    Found,
    MatrixOperator,
    certified_pairs,
    complete_pairs,
    conjugate_gradients,
    expected_iterations,
    lanczos_smallest,
    smallest_by_inverse,
)

# Size from which a few dozen products with Q are faster than LAPACK's subset solver.
LANCZOS_FROM = 1500
# Maximum expected number of conjugate gradient iterations for which they replace a factorisation,
# for sizes from LANCZOS_FROM on.
SHORT_RUN = 30


class DenseOperator(MatrixOperator):
    """Q = matrix + shift I with a dense symmetric `matrix`. Parameters are those of `as_operator`.

    Solves use Cholesky, or LU if Q + shift I is not positive definite. For large n and a condition
    number near 1, a few conjugate gradient iterations are used instead. Eigenpairs are computed by
    LAPACK, and for large n by Lanczos: on the inverse of Q if solves with Q need a factorisation
    anyway, on Q otherwise, and on the inverse of a nearly singular Q + shift I if these do not
    separate the eigenvalues.
    """

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self.matrix @ x + self.shift * x

    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        if self._is_short(shift, rtol):
            X, n_iter, done = conjugate_gradients(
                lambda x: self.matvec(x) + shift * x,
                B,
                rtol=rtol,
                max_iter=2 * SHORT_RUN,
                precondition=lambda r: r,
            )
            if done:
                return X, n_iter, "cg"
        method, factor = self._factorised(shift)
        substitute = linalg.cho_solve if method == "cholesky" else linalg.lu_solve
        with np.errstate(all="ignore"):
            return substitute(factor, B, check_finite=False), 0, method

    def _is_short(self, shift: float, rtol: float) -> bool:
        if self.n < LANCZOS_FROM:
            return False
        return expected_iterations(self.bounds, shift, rtol) <= SHORT_RUN

    def _factorised(self, shift: float) -> tuple[str, tuple]:
        if self._factor is None or self._factor[0] != shift:
            A = np.array(self.matrix, dtype=np.float64)
            A[np.diag_indices(self.n)] += self.shift + shift
            self._factor = (shift, _factorise(A))
        return self._factor[1]

    def _smallest(self, k: int, tol: float) -> EigenPairs:
        if self.n >= LANCZOS_FROM and k <= self.n // 20:
            known, poles = self._known[:, :k], self._poles
            finders = [lambda m: self._lanczos(known, m, tol)]
            if poles[0] == 0.0 and not self._is_short(0.0, tol):
                finders.insert(0, lambda m: self._by_inverse(known, m, 0.0))
            finders.append(lambda m: self._by_inverse(known, m, poles[-1]))
            for find in finders:
                found = complete_pairs(self, known, k, find)
                if found is not None and self._are_accurate(*found, tol):
                    return found[0]
        values, vectors = linalg.eigh(
            self.matrix, subset_by_index=(0, k - 1), check_finite=False, driver="evr"
        )
        return certified_pairs(self, values + self.shift, vectors, "dense")

    def _by_inverse(self, known: FloatArray, m: int, pole: float) -> Found:
        method, factor = self._factorised(pole)
        if method != "cholesky":
            return None
        found = smallest_by_inverse(
            lambda x: linalg.cho_solve(factor, x, check_finite=False),
            known,
            m,
            seed=self.random_state,
        )
        if found is None:
            return None
        return found[0] - pole, found[1], found[2] - pole, "shift-invert"

    def _lanczos(self, known: FloatArray, m: int, tol: float) -> Found:
        found = lanczos_smallest(
            self.matvec, known, m, ceiling=self.bounds[1], tol=tol, seed=self.random_state
        )
        return None if found is None else (*found, "lanczos")


def _factorise(A: FloatArray) -> tuple[str, tuple]:
    try:
        return "cholesky", linalg.cho_factor(A, lower=True, check_finite=False)
    except linalg.LinAlgError:
        # linalg.lu_factor would warn of an exactly singular matrix, which is refused later because
        # of its residual, with a remedy.
        (getrf,) = linalg.get_lapack_funcs(("getrf",), (A,))
        return "lu", getrf(A)[:2]
