"""Conjugate gradients for several right-hand sides at once."""

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
    """Solve A X = B for all columns of B, with one product with A per iteration.

    Columns that have converged are removed from the iteration. Returns the last iterate, the
    number of iterations, and whether the residual of every column is at most rtol times the norm
    of its right-hand side.
    """
    X = np.zeros_like(B) if start is None else start.copy()
    R = B - product(X) if start is not None else B.copy()
    goal = rtol * np.linalg.norm(B, axis=0)
    active = np.flatnonzero(np.linalg.norm(R, axis=0) > goal)
    if active.size == 0:
        return X, 0, True
    # Active columns are copies, written back to X when they are removed.
    x, r = X[:, active], R[:, active]
    p = precondition(r).copy()  # precondition may return its argument
    rz = _dots(r, p)
    step = np.empty_like(r)
    for iteration in range(1, max_iter + 1):
        Ap = product(p)
        curvature = _dots(p, Ap)
        if not np.all(curvature > 0):  # not positive definite, or NaN
            X[:, active] = x
            return X, iteration, False
        alpha = rz / curvature
        x += np.multiply(p, alpha, out=step)
        r -= np.multiply(Ap, alpha, out=step)
        open_ = ~(np.sqrt(_dots(r, r)) <= goal[active])
        if not open_.all():
            X[:, active] = x
            if not open_.any():
                return X, iteration, True
            active, x, r, p, rz = active[open_], x[:, open_], r[:, open_], p[:, open_], rz[open_]
            step = np.empty_like(r)
        z = precondition(r)
        rz_next = _dots(r, z)
        p *= rz_next / rz
        p += z
        rz = rz_next
    X[:, active] = x
    return X, max_iter, False


def _dots(U: FloatArray, V: FloatArray) -> FloatArray:
    if U.shape[1] == 1:
        return np.array([U[:, 0] @ V[:, 0]])
    return np.einsum("ij,ij->j", U, V)
