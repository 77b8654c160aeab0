"""Conjugate gradients for several right sides at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from volmar.operators.protocol import FloatArray


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    B: FloatArray,
    *,
    rtol: float,
    max_iter: int,
    precondition: Callable[[FloatArray], FloatArray],
    start: FloatArray | None = None,
) -> tuple[FloatArray, int, bool]:
    """Solve A X = B column by column, with one product with A an iteration for all of them.

    Columns that have converged leave the block, so that the last one does not pay for the rest.

    Returns
    -------
    X : ndarray of shape (n, m)
        The best point reached.
    n_iter : int
        Iterations done.
    converged : bool
        Whether every column's residual is at most rtol times the norm of its right side.
    """
    X = np.zeros_like(B) if start is None else start.copy()
    R = B - product(X) if start is not None else B.copy()
    goal = rtol * np.linalg.norm(B, axis=0)
    active = np.flatnonzero(np.linalg.norm(R, axis=0) > goal)
    if active.size == 0:
        return X, 0, True
    r = R[:, active]
    z = precondition(r)
    p = z.copy()
    rz = np.einsum("ij,ij->j", r, z)
    for iteration in range(1, max_iter + 1):
        Ap = product(p)
        curvature = np.einsum("ij,ij->j", p, Ap)
        if not np.all(curvature > 0):  # not positive definite, or NaN
            return X, iteration, False
        alpha = rz / curvature
        X[:, active] += alpha * p
        r -= alpha * Ap
        open_ = ~(np.linalg.norm(r, axis=0) <= goal[active])
        if not open_.any():
            return X, iteration, True
        if not open_.all():
            active, r, p, rz = active[open_], r[:, open_], p[:, open_], rz[open_]
        z = precondition(r)
        rz_next = np.einsum("ij,ij->j", r, z)
        p = z + (rz_next / rz) * p
        rz = rz_next
    return X, max_iter, False
