"""Smallest eigenpairs of a large sparse matrix by LOBPCG, from a coarse copy of it."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lobpcg

from volmar.operators.protocol import FloatArray
from volmar.operators.two_level import TwoLevel


def lobpcg_smallest(
    Q: sparse.csr_matrix,
    two_level: TwoLevel,
    known: FloatArray,
    k: int,
    *,
    tol: float,
    seed: int,
) -> tuple[FloatArray, FloatArray]:
    """Smallest k eigenpairs orthogonal to `known`, by LOBPCG; the last ones without convergence.

    It starts from the coarse matrix's eigenvectors. A guard vector rides along: it speeds up the
    last wanted pair, and a value that the coarse matrix missed among the wanted ones comes in
    through it. `known` must be exact.
    """
    start = two_level.coarse_eigenvectors(known.shape[1] + k + 1, seed)
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
                M=two_level.preconditioner,
                tol=0.5 * tol,
                maxiter=40,
                largest=False,
            )
            order = np.argsort(values)[:k]
            found = start[:, order]
            if np.all(np.linalg.norm(Q @ found - found * values[order], axis=0) <= tol):
                break
    return values[order], found
