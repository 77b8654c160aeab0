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
from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.dense import gershgorin
from volmar.operators.fill import factorise, predicted_fill
from volmar.operators.lanczos import is_skipped, lanczos_smallest, largest_eigenpairs
from volmar.operators.lobpcg import lobpcg_smallest
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
from volmar.operators.two_level import TwoLevel

MAX_FILL = 15.0
DENSE_BELOW = 700
# The last resort where iterations fail: minutes at this size.
DENSE_UP_TO = 5000
# From here on a coarse copy of Q is cheaper than factors of Q itself.
TWO_LEVEL_FROM = 30_000
# Conjugate gradients that are sure to end within this need no preconditioner but the diagonal.
SHORT_RUN = 60
MAX_ITER = 1000
# Eigenpairs asked for this accurately are checked against values that were missed.
CHECKED_TOL = 1e-4
FEW_COLUMNS = 4


class SparseOperator(SPDOperator):
    """Q = matrix + shift I with `matrix` sparse and symmetric.

    A solve whose condition number promises a few iterations is done by conjugate gradients. Others
    are done by LU where n is below 30,000 and the fill predicted by `volmar.operators.fill` is at
    most 15 (graphs of low dimension), and by conjugate gradients with the two-level preconditioner
    of `volmar.operators.two_level` otherwise. Eigenpairs follow the same split: LAPACK for the
    small; below 30,000 shift-invert where the fill is small and Lanczos where it is large (graphs
    of high dimension); two-level LOBPCG beyond.

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
        eigenvalue cannot be missed, and the coarse copy of Q holds them.
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
        self._two_level: tuple[float, TwoLevel] | None = None

    def __getstate__(self) -> dict:
        """Leave out factors and coarse copies: they cannot be pickled and are made again."""
        return self.__dict__ | {"_factor": None, "_two_level": None}

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self._shifted_product(self.shift, x)

    def _shifted_product(self, shift: float, x: FloatArray) -> FloatArray:
        # Scipy's product with a block is slower than its products with a few vectors.
        if x.ndim == 2 and x.shape[1] <= FEW_COLUMNS:
            image = np.empty(x.shape, order="F")
            for j in range(x.shape[1]):
                image[:, j] = self.matrix @ x[:, j]
        else:
            image = self.matrix @ x
        image += shift * x
        return image

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
                f"of {residual:.1e} (wanted {rtol:.1e}). Ask for a larger shift.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return Solution(X[:, 0] if is_vector else X, residual, n_iter, method)

    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        if self._factor is not None and self._factor[0] == shift:
            return self._factor[1].solve(B), 0, "lu"
        if not self._is_definite(shift):
            return self._factorise(shift).solve(B), 0, "lu"
        if expected_iterations(self.bounds, shift, rtol) <= SHORT_RUN:
            diagonal = self.matrix.diagonal()[:, None] + self.shift + shift
            X, n_iter, done = self._iterate(shift, B, rtol, lambda r: r / diagonal, 2 * SHORT_RUN)
            if done:
                return X, n_iter, "cg"
        if self._factors_pay:
            return self._factorise(shift).solve(B), 0, "lu"
        precondition = self._coarse_copy(shift).precondition
        X, n_iter, done = self._iterate(shift, B, rtol, precondition, MAX_ITER)
        if not done and self._lu_is_cheap:
            return self._factorise(shift).solve(B), 0, "lu"
        return X, n_iter, "two-level"

    def _iterate(
        self,
        shift: float,
        B: FloatArray,
        rtol: float,
        precondition: Callable[[FloatArray], FloatArray],
        max_iter: int,
    ) -> tuple[FloatArray, int, bool]:
        known, lowest = self._known, self.bounds[0] + shift
        start = known @ (known.T @ B) / lowest if known.size and lowest > 0 else None
        return conjugate_gradients(
            lambda x: self._shifted_product(self.shift + shift, x),
            B,
            rtol=rtol,
            max_iter=max_iter,
            precondition=precondition,
            start=start,
        )

    @property
    def _factors_pay(self) -> bool:
        return self.n < TWO_LEVEL_FROM and self._lu_is_cheap

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
            raise _singular(shift) from error
        self._factor = (shift, factor)
        return factor

    def _coarse_copy(self, shift: float) -> TwoLevel:
        if self._two_level is None or self._two_level[0] != shift:
            diagonal = sparse.identity(self.n, format="csr") * (self.shift + shift)
            A = sparse.csr_matrix(self.matrix + diagonal)
            try:
                self._two_level = (shift, TwoLevel(A, self._near_null()))
            except RuntimeError as error:  # SuperLU's "exactly singular"
                raise _singular(shift) from error
        return self._two_level[1]

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs; see the class for how."""
        check_n_pairs(k, self.n)
        if self.n < DENSE_BELOW or k > self.n // 20:
            return self._dense_eigenpairs(k)
        known = self._known[:, :k]
        scale = max(abs(bound) for bound in self.bounds)
        best: EigenPairs | None = None
        for attempt in self._eigensolvers():
            pairs = complete_pairs(
                self,
                known,
                k,
                lambda m, attempt=attempt: attempt(known, m, tol, scale),  # type: ignore[misc]
            )
            if pairs is None:
                continue
            if np.all(pairs.residuals <= tol * scale):
                return pairs
            if best is None or pairs.residuals.max() < best.residuals.max():
                best = pairs
        if self.n <= DENSE_UP_TO or best is None:
            return self._dense_eigenpairs(k)
        warnings.warn(
            f"Eigenvectors of the sparse {self.n} x {self.n} matrix were found to a residual of "
            f"{best.residuals.max():.1e} only (wanted {tol * scale:.1e}): its smallest "
            "eigenvalues hardly differ. Use a graph with more neighbours.",
            ConvergenceWarning,
            stacklevel=2,
        )
        return best

    def _eigensolvers(self) -> list[Callable[[FloatArray, int, float, float], Found]]:
        """Return what to try, in turn: see the class for why."""
        if self.n >= TWO_LEVEL_FROM and self._factor is None:
            return [self._lobpcg, self._shift_invert, self._lanczos]
        if self._factor is None and self.fill > MAX_FILL:
            return [self._lanczos, self._lobpcg]
        return [self._shift_invert, self._lobpcg, self._lanczos]

    def _lanczos(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:  # noqa: ARG002 -- one signature for all
        found = lanczos_smallest(
            self.matvec, known, m, ceiling=self.bounds[1], tol=tol, seed=self.random_state
        )
        return None if found is None else (*found, "lanczos")

    def _shift_invert(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:  # noqa: ARG002 -- one signature for all
        if not self._lu_is_cheap:
            return None
        pole = self._pole(scale)
        have = self._factor is not None and self._factor[0] == pole
        factor = self._factor[1] if have else self._factorise(pole)  # type: ignore[index]
        found = largest_eigenpairs(
            factor.solve,
            known,
            m,
            # Relative to the inverse, whose largest values may be close where Q has a shift of its
            # own, as L + I/n does.
            tol=1e-10,
            seed=self.random_state,
            max_iter=50,
            n_basis=max(2 * m + 4, 8),
            # The largest of all cannot be one of several that were skipped.
            n_check=0 if m == 1 else 8,
        )
        return None if found is None else (1.0 / found[0] - pole, found[1], "shift-invert")

    def _pole(self, scale: float) -> float:
        """Return a shift that makes Q safely definite, zero where Q is so by itself."""
        low = self.bounds[0] if self._given_bounds else -1e-9 * scale
        return 0.0 if low > 1e-9 * scale else 1e-9 * scale + max(-low, 0.0)

    def _lobpcg(self, known: FloatArray, m: int, tol: float, scale: float) -> Found:
        # The preconditioner must be nonsingular; how small its shift is hardly matters.
        pole = 0.0 if self._pole(scale) == 0.0 else 1e-7 * scale + self._pole(scale)
        found = lobpcg_smallest(
            self.matrix,
            self._coarse_copy(pole),
            known,
            m,
            tol=tol * scale,
            seed=self.random_state,
        )
        values, vectors = found[0] + self.shift, found[1]
        ceiling = self.bounds[1]
        if tol <= CHECKED_TOL and is_skipped(
            lambda x: ceiling * x - self.matvec(x),
            ceiling - float(values.max()),
            np.hstack([known, vectors]),
            np.random.default_rng(self.random_state),
            tol,
            24,
        ):
            return None  # a value below these was missed
        return values, vectors, "lobpcg"

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


def _singular(shift: float) -> np.linalg.LinAlgError:
    return np.linalg.LinAlgError(
        f"Q + shift I is singular at shift={shift:g}. Take another shift."
    )
