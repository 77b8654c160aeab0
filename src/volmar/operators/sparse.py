"""Operators with a sparse matrix, with methods chosen by the shape of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import SuperLU
from sklearn.exceptions import ConvergenceWarning

from volmar import _memory
from volmar._warn import warn_user
from volmar.operators.conjugate_gradients import conjugate_gradients
from volmar.operators.fill import factorise, is_expander, predicted_fill
from volmar.operators.lanczos import (
    exceeds,
    lanczos_smallest,
    largest_outside,
    smallest_by_inverse,
)
from volmar.operators.protocol import (
    EigenPairs,
    FloatArray,
    Found,
    MatrixOperator,
    certified_pairs,
    complete_pairs,
    expected_iterations,
)
from volmar.operators.two_level import TwoLevel, lobpcg_smallest

# Maximum predicted fill for which Q is factorised.
MAX_FILL = 15.0
# Size below which factors are always cheap, and eigenpairs are computed by LAPACK.
DENSE_BELOW = 700
# Maximum size for LAPACK if iterations fail. It takes minutes at this size.
DENSE_UP_TO = 5000
# Size from which a coarse copy of Q is faster than factors of Q itself.
TWO_LEVEL_FROM = 30_000
# Size from which vectors do not fit the cache, and products depend on the order of the rows.
REORDERED_FROM = 100_000
# Maximum expected number of iterations for which only the diagonal is used as preconditioner.
SHORT_RUN = 60
MAX_ITER = 1000
# Maximum tolerance for which eigenpairs are checked for missed values.
CHECKED_TOL = 1e-4
# Maximum number of columns for which single products are faster than a product with a block.
FEW_COLUMNS = 4


class SparseOperator(MatrixOperator):
    """Q = matrix + shift I with a sparse symmetric `matrix`; parameters of `as_operator`.

    Solves use conjugate gradients if the condition number implies few iterations, or if the graph
    is high-dimensional (`volmar.operators.fill.is_expander`). Otherwise, or if these do not
    converge soon, LU is used for n below 30,000 and a predicted fill of at most 15 (graphs of low
    dimension), and conjugate gradients with the two-level preconditioner of
    `volmar.operators.two_level` in all other cases.

    Eigenpairs of small matrices are computed by LAPACK. Lanczos is used for high-dimensional
    graphs, and below 30,000 rows if the fill is large. Otherwise shift-invert is used below 30,000
    rows, and two-level LOBPCG for more.

    From 100,000 rows on, computations use a copy with neighbours close to each other (reverse
    Cuthill-McKee), for which products are up to four times as fast. High-dimensional graphs have
    no such order.
    """

    _two_level: tuple[float, TwoLevel] | None = None
    _local: tuple[np.ndarray, SparseOperator] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Exclude factors and coarse copies, which cannot be pickled but can be recomputed."""
        return super().__getstate__() | {"_two_level": None, "_local": None}

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self._shifted_product(self.shift, x)

    def _shifted_product(self, shift: float, x: FloatArray) -> FloatArray:
        # SciPy's product with a block is slower than its products with a few vectors.
        if x.ndim == 2 and x.shape[1] <= FEW_COLUMNS:
            image = np.empty(x.shape, order="F")
            for j in range(x.shape[1]):
                image[:, j] = self.matrix @ x[:, j]
        else:
            image = self.matrix @ x
        image += shift * x
        return image

    @cached_property
    def fill(self) -> float:
        """Predicted nnz(L + U) / nnz(Q) of a factorisation; a lower bound if it is above 15."""
        return predicted_fill(self.matrix, enough=MAX_FILL)

    @cached_property
    def is_expander(self) -> bool:
        """Whether plain iterations converge quickly: see `volmar.operators.fill`."""
        return is_expander(self.matrix)

    @property
    def lu_is_cheap(self) -> bool:
        """Whether Q is small, or its factors are not much fuller than Q and fit in memory."""
        if self.n < DENSE_BELOW:
            return True
        # 12 bytes per entry of the factors, and as much again while they are computed.
        n_bytes = 24 * self.fill * self.matrix.nnz
        return self.fill <= MAX_FILL and n_bytes < _memory.available_memory()

    @property
    def local(self) -> tuple[np.ndarray, SparseOperator] | None:
        """An order of rows with neighbours close to each other, and Q in this order.

        It is None for small matrices and expanders, whose products would not become faster.
        """
        if self._local is None and self.n >= REORDERED_FROM and not self.is_expander:
            order = reverse_cuthill_mckee(self.matrix, symmetric_mode=True)
            rank = np.empty_like(order)
            rank[order] = np.arange(self.n, dtype=order.dtype)
            rows = self.matrix[order]
            rows.indices = rank[rows.indices].astype(rows.indices.dtype, copy=False)
            rows.has_sorted_indices = False
            rows.sort_indices()
            self._local = order, _LocalOperator(self, rows, order)
        return self._local

    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        if self.local is None:
            return self._solve_here(shift, B, rtol)
        order, there = self.local
        found, n_iter, method = there._solve_here(shift, B[order], rtol)
        X = np.empty_like(found)
        X[order] = found
        return X, n_iter, method

    def _solve_here(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        # Gershgorin's lower bound is loose; with a nonnegative shift, Q stays positive definite.
        if shift < 0 and self.bounds[0] + shift <= 0:
            return self.factorised(shift).solve(B), 0, "lu"
        short = expected_iterations(self.bounds, shift, rtol) <= SHORT_RUN
        if short or self.is_expander:
            diagonal = self.matrix.diagonal()[:, None] + self.shift + shift
            X, n_iter, done = self._iterate(shift, B, rtol, lambda r: r / diagonal, 2 * SHORT_RUN)
            if done:
                return X, n_iter, "cg"
        if self.n < TWO_LEVEL_FROM and self.lu_is_cheap:
            return self.factorised(shift).solve(B), 0, "lu"
        precondition = self.coarse_copy(shift).precondition
        X, n_iter, done = self._iterate(shift, B, rtol, precondition, MAX_ITER)
        if not done and self.lu_is_cheap:
            return self.factorised(shift).solve(B), 0, "lu"
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

    def factorised(self, shift: float) -> SuperLU:
        """Return the LU factors of Q + shift I."""
        if self._factor is not None and self._factor[0] == shift:
            return self._factor[1]
        if self.n >= DENSE_BELOW:
            _memory.require_memory(
                24 * self.fill * self.matrix.nnz,
                f"factorising the sparse {self.n} x {self.n} matrix (predicted fill "
                f"{self.fill:.0f})",
                "Use a sparser graph (fewer neighbours) or a nonnegative shift.",
            )
        with _refusing_singular(shift):
            self._factor = (shift, factorise(sparse.csc_matrix(self._shifted(shift))))
        return self._factor[1]

    def coarse_copy(self, shift: float) -> TwoLevel:
        """Return the coarse copy of Q + shift I, which contains the known null space."""
        if self._two_level is None or self._two_level[0] != shift:
            known = self._known
            near_null = known @ known.sum(axis=0) if known.size else None
            with _refusing_singular(shift):
                self._two_level = (shift, TwoLevel(self._shifted(shift), near_null))
        return self._two_level[1]

    def _shifted(self, shift: float) -> sparse.csr_matrix:
        diagonal = sparse.identity(self.n, format="csr") * (self.shift + shift)
        return sparse.csr_matrix(self.matrix + diagonal)

    def _smallest(self, k: int, tol: float) -> EigenPairs:
        if self.local is None:
            return self._smallest_here(k, tol)
        order, there = self.local
        pairs = there._smallest_here(k, tol)
        vectors = np.empty_like(pairs.vectors)
        vectors[order] = pairs.vectors
        return replace(pairs, vectors=vectors)

    def _smallest_here(self, k: int, tol: float) -> EigenPairs:
        if self.n < DENSE_BELOW or k > self.n // 20:
            return _by_lapack(self, k)
        known = self._known[:, :k]
        best: EigenPairs | None = None
        for find in _eigensolvers(self):
            found = complete_pairs(self, known, k, partial(find, self, known, tol))
            if found is None:
                continue
            pairs = found[0]
            if self._are_accurate(*found, tol):
                return pairs
            if best is None or pairs.residuals.max() < best.residuals.max():
                best = pairs
        if self.n <= DENSE_UP_TO or best is None:
            return _by_lapack(self, k)
        residual, spread = best.residuals.max(), best.values[-1] - best.values[0]
        if residual > min(tol * self.scale, spread):
            warn_user(
                f"Eigenvectors of the sparse {self.n} x {self.n} matrix have a residual of "
                f"{residual:.1e}, but their eigenvalues are within {spread:.1e} of each other. "
                "Clusters found from them may be wrong. Use a graph with more neighbours, or "
                "fewer rows.",
                ConvergenceWarning,
            )
        return best


class _LocalOperator(SparseOperator):
    """An operator with its rows and columns in another order."""

    def __init__(self, given: SparseOperator, matrix: sparse.csr_matrix, order: np.ndarray):
        self.matrix, self.shift, self.n = matrix, given.shift, given.n
        self.random_state, self._given_bounds = given.random_state, given._given_bounds
        self._known, self._factor = given._known[order], None
        self.is_expander = given.is_expander


@contextmanager
def _refusing_singular(shift: float) -> Iterator[None]:
    """Replace SuperLU's "exactly singular" by an error with a remedy."""
    try:
        yield
    except RuntimeError as error:
        raise np.linalg.LinAlgError(
            f"Q + shift I is singular at shift={shift:g}. Use another shift."
        ) from error


# -------------------------------------------------------------------------------- eigenpairs

# Function of Q, known eigenvectors, a tolerance and the number of further eigenpairs to find.
Eigensolver = Callable[[SparseOperator, FloatArray, float, int], Found]


def _eigensolvers(Q: SparseOperator) -> list[Eigensolver]:
    """Return the eigensolvers to try, in order; `SparseOperator` describes the choice."""
    if Q.n >= TWO_LEVEL_FROM and not Q.is_expander:
        return [_by_lobpcg, _by_shift_invert, _by_lanczos]
    if Q.is_expander or Q.fill > MAX_FILL:
        return [_by_lanczos, _by_lobpcg]
    return [_by_shift_invert, _by_lobpcg, _by_lanczos]


def _by_lanczos(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:
    found = lanczos_smallest(Q.matvec, known, m, ceiling=Q.bounds[1], tol=tol, seed=Q.random_state)
    return None if found is None else (*found, "lanczos")


def _by_shift_invert(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:  # noqa: ARG001 -- one signature for all
    if not Q.lu_is_cheap:
        return None
    # From TWO_LEVEL_FROM on, solves do not use the factors of the first pole.
    for pole in Q._poles if Q.n < TWO_LEVEL_FROM else Q._poles[-1:]:
        found = smallest_by_inverse(Q.factorised(pole).solve, known, m, seed=Q.random_state)
        if found is not None:
            return found[0] - pole, found[1], found[2] - pole, "shift-invert"
    return None


def _by_lobpcg(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:
    # The preconditioner must be nonsingular; the size of its shift hardly matters.
    first, last = Q._poles[0], Q._poles[-1]
    shift = first + 1e-7 * Q.scale if first else 0.0
    values, vectors, following = lobpcg_smallest(
        Q.matrix,
        Q.coarse_copy(shift),
        known,
        m,
        tol=tol * Q.scale,
        offset=last - shift,
        seed=Q.random_state,
    )
    values, ceiling = values + Q.shift, Q.bounds[1]
    if tol <= CHECKED_TOL:
        outside = largest_outside(
            lambda x: ceiling * x - Q.matvec(x),
            np.hstack([known, vectors]),
            np.random.default_rng(Q.random_state),
            24,
        )
        if exceeds(outside, ceiling - float(values.max()), tol):
            return None  # a value below these was missed
    return values, vectors, following + Q.shift, "lobpcg"


def _by_lapack(Q: SparseOperator, k: int) -> EigenPairs:
    _memory.require_memory(
        2 * 8.0 * Q.n**2,
        f"dense eigenpairs of the {Q.n} x {Q.n} matrix (iterative solvers failed or k = {k} is a "
        "large part of n)",
        "Request fewer eigenpairs, or use a larger tol.",
    )
    values, vectors = linalg.eigh(
        Q.matrix.toarray(), subset_by_index=(0, k - 1), check_finite=False
    )
    return certified_pairs(Q, values + Q.shift, vectors, "dense")
