"""Eigenpairs and singular values, reproducible and with a fallback if LAPACK fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg as sparse_linalg
from numpy.typing import NDArray
from scipy import linalg


def _seeded(routine: Callable[..., Any]) -> Callable[..., Any]:
    """Return a routine of ARPACK that gives bitwise equal results for the same problem.

    When a Krylov space is exhausted, ARPACK continues from a random vector, even if `v0` is given.
    Since SciPy 1.17 this vector is drawn from `rng`, and differs between calls without it.
    """
    if "rng" not in inspect.signature(routine).parameters:
        return routine

    def seeded(*arguments: Any, **options: Any) -> Any:
        return routine(*arguments, rng=np.random.default_rng(0), **options)

    return seeded


eigsh, svds = _seeded(sparse_linalg.eigsh), _seeded(sparse_linalg.svds)


def eigenpairs(
    matrix: NDArray, subset: tuple[int, int] | None = None, **options: Any
) -> tuple[NDArray, NDArray]:
    """Return eigenvalues of a symmetric matrix in ascending order, and their eigenvectors.

    `subset` holds the indices of the first and the last eigenvalue to return; `options` are those
    of `scipy.linalg.eigh`. Its default, relatively robust representations, fails for some clusters
    of eigenvalues (the identity with rounding errors). QR iterations are used then.
    """
    require_finite(matrix)
    try:
        return linalg.eigh(matrix, subset_by_index=subset, check_finite=False, **options)
    except linalg.LinAlgError:
        return _by_qr(matrix, subset)


def eigenvalues(matrix: NDArray, subset: tuple[int, int] | None = None) -> NDArray:
    """Return the eigenvalues of `eigenpairs` without the eigenvectors."""
    require_finite(matrix)
    try:
        return linalg.eigvalsh(matrix, subset_by_index=subset, check_finite=False)
    except linalg.LinAlgError:
        return _by_qr(matrix, subset)[0]


def thin_svd(matrix: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return the thin singular value decomposition.

    Infinite entries are refused, since LAPACK's divide and conquer hangs on them.
    """
    require_finite(matrix)
    try:
        return np.linalg.svd(matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        return linalg.svd(matrix, full_matrices=False, lapack_driver="gesvd", check_finite=False)


def singular_values(matrix: NDArray) -> NDArray:
    """Return the singular values, largest first."""
    require_finite(matrix)
    try:
        return np.linalg.svd(matrix, compute_uv=False)
    except np.linalg.LinAlgError:
        return thin_svd(matrix)[1]


def require_finite(matrix: NDArray) -> None:
    """Refuse a matrix that contains NaN or infinity."""
    if not np.isfinite(matrix).all():
        raise ValueError(
            "numbers computed from X left the range of floating point (NaN or infinity in an "
            "eigenvalue problem). Scale X to entries of about 1, use float64, or check the "
            "parameters."
        )


def _by_qr(matrix: NDArray, subset: tuple[int, int] | None) -> tuple[NDArray, NDArray]:
    """Return eigenpairs by QR iterations, after scaling to entries of at most 1."""
    unit = float(np.abs(matrix).max(initial=0.0)) or 1.0
    scaled = matrix / unit
    values, vectors = linalg.eigh(0.5 * (scaled + scaled.T), driver="ev", check_finite=False)
    wanted = slice(None) if subset is None else slice(subset[0], subset[1] + 1)
    return unit * values[wanted], vectors[:, wanted]
