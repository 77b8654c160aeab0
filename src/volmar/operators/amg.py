"""Algebraic multigrid (pyamg, an optional dependency) as preconditioner and as eigensolver."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, lobpcg

from volmar.operators.protocol import FloatArray

# Coarse eigenproblems up to this size are solved by LAPACK.
COARSE_SIZE = 1500


def amg_available() -> bool:
    """Whether pyamg is installed (``pip install volmar[large]``)."""
    return find_spec("pyamg") is not None


class Multigrid:
    """Smoothed-aggregation hierarchy of a symmetric positive definite sparse matrix.

    Parameters
    ----------
    A : csr_matrix
        The matrix, nonsingular.
    near_null : ndarray of shape (n,), optional
        A vector that A maps close to zero (sqrt of the degrees for a normalised Laplacian);
        the coarse spaces then hold it exactly.
    """

    def __init__(self, A: sparse.csr_matrix, near_null: FloatArray | None = None):
        from pyamg import smoothed_aggregation_solver

        options = {} if near_null is None else {"B": near_null[:, None].copy()}
        # theta = 0.08 costs a fuller hierarchy and halves the iterations on k-NN graphs.
        self._hierarchy = smoothed_aggregation_solver(
            sparse.csr_matrix(A),
            strength=("symmetric", {"theta": 0.08}),
            improve_candidates=None,
            max_coarse=500,
            **options,
        )
        self.preconditioner: LinearOperator = self._hierarchy.aspreconditioner()

    def coarse_eigenvectors(self, k: int) -> FloatArray | None:
        """Approximate smallest eigenvectors: the coarse Galerkin problem's, carried back up.

        Solves A_c v = lambda P'P v on the first level of at most `COARSE_SIZE` unknowns; None
        where no level is that small and still larger than k.
        """
        prolongations: list[sparse.csr_matrix] = []
        mass = sparse.identity(self._hierarchy.levels[0].A.shape[0], format="csr")
        for level, coarser in pairwise(self._hierarchy.levels):
            P = sparse.csr_matrix(level.P)
            prolongations.append(P)
            mass = P.T @ (mass @ P)
            if k < coarser.A.shape[0] <= COARSE_SIZE:
                try:
                    vectors = linalg.eigh(
                        coarser.A.toarray(), mass.toarray(), subset_by_index=(0, k - 1)
                    )[1]
                except linalg.LinAlgError:  # aggregates that coincide: the mass is singular
                    return None
                for P in reversed(prolongations):
                    vectors = P @ vectors
                return vectors
        return None


def amg_smallest(
    Q: sparse.csr_matrix,
    multigrid: Multigrid,
    known: FloatArray,
    k: int,
    *,
    tol: float,
    seed: int,
) -> tuple[FloatArray, FloatArray] | None:
    """Smallest k eigenpairs orthogonal to `known`, by LOBPCG; None without convergence.

    It starts from the coarse grid's eigenvectors. A guard vector rides along: it speeds up the
    last wanted pair, and a value that the coarse grid missed among the wanted ones comes in
    through it. `known` must be exact.
    """
    start = multigrid.coarse_eigenvectors(known.shape[1] + k + 1)
    if start is None:
        start = np.random.default_rng(seed).standard_normal((Q.shape[0], k + 1))
    start = start[:, -(k + 1) :]
    with warnings.catch_warnings():
        # LOBPCG warns when the guard has not converged; the wanted ones are checked below.
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(3):
            values, start = lobpcg(
                Q,
                start,
                Y=known if known.size else None,
                M=multigrid.preconditioner,
                tol=0.5 * tol,
                maxiter=30,
                largest=False,
            )
            order = np.argsort(values)[:k]
            found = start[:, order]
            if np.all(np.linalg.norm(Q @ found - found * values[order], axis=0) <= tol):
                return values[order], found
    return None
