"""Q held as a sparse matrix: solves and eigenpairs chosen by the shape of its graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.sparse.linalg import SuperLU
from sklearn.exceptions import ConvergenceWarning

from volmar import _memory
from volmar.operators.amg import Multigrid, amg_available, amg_smallest
from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.dense import gershgorin
from volmar.operators.fill import factorise, predicted_fill
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
    relative_residual,
)

CG_BUDGET = 150
MAX_FILL = 15.0
DENSE_BELOW = 700
AMG_EIGEN_FROM = 30_000


class SparseOperator(SPDOperator):
    """Q = matrix + shift I with `matrix` sparse and symmetric.

    A solve tries conjugate gradients with a budget of 150 iterations, enough for k-NN graphs of
    high-dimensional data at any n. What is left over is a graph of low dimension, for which LU
    is cheap: it is taken where the fill predicted by `volmar.operators.fill` is at most 15, else
    algebraic multigrid where pyamg is installed, else conjugate gradients go on to the end with
    a warning. Eigenpairs follow the same split: Lanczos on the high-dimensional graphs,
    shift-invert (or multigrid from 30,000 nodes on) on the others, LAPACK for the small.

    Parameters
    ----------
    matrix : sparse matrix of shape (n, n)
        Symmetric; CSR is kept as it is.
    shift : float, default=0
        Multiple of the identity added to it.
    bounds : (float, float), optional
        Interval known to hold the eigenvalues of `matrix`; Gershgorin's discs if not given.
    null_space : ndarray of shape (n, c), optional
        Eigenvectors at the lower bound, if they are known exactly (for a normalised Laplacian
        the roots of the degrees, component by component): they need not be computed, a repeated
        eigenvalue cannot be missed, and multigrid's coarse spaces hold them.
    random_state : int, default=0
        Seed of the start vectors of iterative eigensolvers.
    """

    def __init__(self, matrix, *, shift=0.0, bounds=None, null_space=None, random_state=0):
        check_matrix(matrix)
        self.matrix = sparse.csr_matrix(matrix)
        self.shift = float(shift)
        self.n = matrix.shape[0]
        self.random_state = random_state
        self._given_bounds = bounds
        self._known = exact_null_space(self.matrix, null_space, bounds)
        self._factor: tuple[float, SuperLU] | None = None
        self._multigrid: tuple[float, Multigrid] | None = None

    def __getstate__(self) -> dict:
        """Leave out factors and hierarchies: they cannot be pickled and are made again."""
        return self.__dict__ | {"_factor": None, "_multigrid": None}

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self.matrix @ x + self.shift * x

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """An interval that holds every eigenvalue of Q."""
        low, high = self._given_bounds or gershgorin(self.matrix)
        return low + self.shift, high + self.shift

    @cached_property
    def fill(self) -> float:
        """Predicted nnz(L + U) / nnz(Q) of a factorisation, at least where it is above 15."""
        return predicted_fill(self.matrix, enough=MAX_FILL)

    @property
    def _lu_is_cheap(self) -> bool:
        # 12 bytes an entry for the factors, as much again while they are built.
        n_bytes = 24 * self.fill * self.matrix.nnz
        return self.fill <= MAX_FILL and n_bytes < _memory.available_memory()

    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block; see the class for how."""
        B, is_vector = check_block(block, self.n)
        X, n_iter, method = self._solve(shift, B, rtol)
        residual = relative_residual(B - self.matvec(X) - shift * X, B)
        if method == "lu":
            check_solution(X, residual, shift)
        elif not residual <= 10 * rtol:
            warnings.warn(
                f"Conjugate gradients stopped after {n_iter} iterations with a relative residual "
                f"of {residual:.1e} (wanted {rtol:.1e}). Install pyamg (pip install "
                "'volmar[large]') or ask for a larger shift.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Solution(X[:, 0] if is_vector else X, residual, n_iter, method)

    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        if self._factor is not None and self._factor[0] == shift:
            return self._factor[1].solve(B), 0, "lu"
        if self._is_definite(shift):
            diagonal = self.matrix.diagonal()[:, None] + self.shift + shift

            def product(x: FloatArray) -> FloatArray:
                return self.matvec(x) + shift * x

            def jacobi(r: FloatArray) -> FloatArray:
                return r / diagonal

            X, n_iter, done = conjugate_gradients(
                product, B, rtol=rtol, max_iter=CG_BUDGET, precondition=jacobi
            )
            if done:
                return X, n_iter, "cg"
            if not self._lu_is_cheap:
                amg = amg_available()
                precondition = self._multigrid_for(shift) if amg else jacobi
                X, more, _ = conjugate_gradients(
                    product,
                    B,
                    rtol=rtol,
                    max_iter=500 if amg else max(10_000, 10 * int(np.sqrt(self.n))),
                    precondition=precondition,
                    start=X,
                )
                return X, n_iter + more, "amg-cg" if amg else "cg"
        factor = self._factorise(shift)
        return factor.solve(B), 0, "lu"

    def _is_definite(self, shift: float) -> bool:
        # Gershgorin's lower bound is loose: a nonnegative shift keeps Q's own definiteness.
        return shift >= 0 or self.bounds[0] + shift > 0

    def _factorise(self, shift: float) -> SuperLU:
        _memory.require_memory(
            24 * self.fill * self.matrix.nnz,
            f"factorising the sparse {self.n} x {self.n} matrix (predicted fill {self.fill:.0f})",
            "Use a sparser graph (fewer neighbours) or a nonnegative shift.",
        )
        diagonal = sparse.identity(self.n, format="csr") * (self.shift + shift)
        try:
            factor = factorise(sparse.csc_matrix(self.matrix + diagonal))
        except RuntimeError as error:  # SuperLU's "exactly singular"
            raise np.linalg.LinAlgError(
                f"Q + shift I is singular at shift={shift:g}. Take another shift."
            ) from error
        self._factor = (shift, factor)
        return factor

    def _multigrid_for(self, shift: float) -> Callable[[FloatArray], FloatArray]:
        if self._multigrid is None or self._multigrid[0] != shift:
            diagonal = sparse.identity(self.n, format="csr") * (self.shift + shift)
            self._multigrid = (shift, Multigrid(self.matrix + diagonal, self._near_null()))
        apply = self._multigrid[1].preconditioner.matvec

        def precondition(r: FloatArray) -> FloatArray:
            return np.column_stack([apply(r[:, j]) for j in range(r.shape[1])])

        return precondition

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs; see the class for how."""
        check_n_pairs(k, self.n)
        if self.n < DENSE_BELOW or k > self.n // 20:
            return self._dense_eigenpairs(k)
        known = self._known[:, :k]
        scale = max(abs(bound) for bound in self.bounds)
        for attempt in self._eigensolvers():
            pairs = complete_pairs(
                self,
                known,
                k,
                lambda m, attempt=attempt: attempt(known, m, tol, scale),  # type: ignore[misc]
            )
            if pairs is not None and np.all(pairs.residuals <= tol * scale):
                return pairs
        return self._dense_eigenpairs(k)

    def _eigensolvers(self) -> list[Callable[[FloatArray, int, float, float], Found]]:
        """Return what to try, in turn: see the class for why."""
        if self.fill > MAX_FILL:
            return [self._lanczos, self._amg]
        if self.n >= AMG_EIGEN_FROM and amg_available():
            return [self._amg, self._shift_invert, self._lanczos]
        return [self._shift_invert, self._amg, self._lanczos]

    def _lanczos(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:  # noqa: ARG002 -- one signature for all
        found = lanczos_smallest(
            self.matvec, known, m, ceiling=self.bounds[1], tol=tol, seed=self.random_state
        )
        return None if found is None else (*found, "lanczos")

    def _shift_invert(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:
        if not self._lu_is_cheap:
            return None
        # A pole a little below the spectrum: Q itself may be singular, Q + pole I is not.
        pole = max(-self.bounds[0], 0.0) if self._given_bounds else 0.0
        pole += 1e-9 * scale
        factor = self._factorise(pole)
        found = largest_eigenpairs(
            factor.solve,
            known,
            m,
            tol=min(tol, 1e-6),
            seed=self.random_state,
            max_iter=50,
            n_basis=max(2 * m + 4, 8),
            n_check=8,
        )
        return None if found is None else (1.0 / found[0] - pole, found[1], "shift-invert")

    def _amg(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:
        if not amg_available():
            return None
        # The preconditioner must be nonsingular; how small its shift is hardly matters.
        multigrid = Multigrid(
            self.matrix + sparse.identity(self.n, format="csr") * (self.shift + 1e-7 * scale),
            self._near_null(),
        )
        found = amg_smallest(
            self.matrix, multigrid, known, m, tol=tol * scale, seed=self.random_state
        )
        return None if found is None else (found[0] + self.shift, found[1], "amg")

    def _near_null(self) -> FloatArray | None:
        """Return one vector that the matrix maps to zero, positive on every component."""
        if self._known.shape[1] == 0:
            return None
        return self._known @ self._known.sum(axis=0)

    def _dense_eigenpairs(self, k: int) -> EigenPairs:
        _memory.require_memory(
            2 * 8.0 * self.n**2,
            f"dense eigenpairs of the {self.n} x {self.n} matrix (iterative solvers failed or k "
            f"= {k} is a large part of n)",
            "Ask for fewer eigenpairs, or a larger tol.",
        )
        values, vectors = linalg.eigh(
            self.matrix.toarray(), subset_by_index=(0, k - 1), check_finite=False
        )
        return certified_pairs(self, values + self.shift, vectors, "dense")
