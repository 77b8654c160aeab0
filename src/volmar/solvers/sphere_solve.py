"""Solve a shifted linear system whose solution has a given length, by one Lanczos run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

# Maximum number of Lanczos steps, and steps between checks of the residual.
MAX_STEPS, LOOK = 200, 4
# Replaces zero eigenvalues; its square does not underflow.
TINY = 1e-100
# Share of the largest eigenvalue beyond which a negative eigenvalue is not due to rounding.
INDEFINITE = 1e-8
# Maximum number of Newton steps for the shift.
MAX_NEWTON = 100


class SphereSolution(NamedTuple):
    """The solution x and the shift eta."""

    x: NDArray
    eta: float


def solve_on_sphere(
    product: Callable[[NDArray], NDArray], right: NDArray, radius: float, *, tol: float = 1e-13
) -> SphereSolution | None:
    r"""Return x and eta < 0 with :math:`(H - \eta I) x = r` and :math:`|x| =` `radius`.

    The Krylov space of H and r does not depend on eta. With an orthonormal basis Q of it, in which
    H is the tridiagonal T, :math:`x = |r| Q (T - \eta I)^{-1} e_1`, and eta follows from the
    eigenvalues of T. A single Lanczos run replaces a linear solve for every trial value of eta.

    Parameters
    ----------
    product : callable
        Function x -> H x of a symmetric positive semi-definite H.
    right : ndarray of shape (n,)
        Right-hand side r.
    radius : float
        Length of x, positive.
    tol : float, default=1e-13
        Residual at which to stop, relative to the length of r.

    Returns
    -------
    SphereSolution or None
        None if x is shorter than the radius even at eta = 0, if `tol` was not reached, or if H is
        not positive semi-definite.
    """
    size = float(np.linalg.norm(right))
    if size == 0.0:
        return None
    n_steps = min(MAX_STEPS, right.size)
    basis = np.empty((n_steps + 1, right.size))
    basis[0] = right / size
    alpha, beta = np.empty(n_steps), np.empty(n_steps)
    for k in range(n_steps):
        v = product(basis[k])
        alpha[k] = basis[k] @ v
        v -= alpha[k] * basis[k]
        if k:
            v -= beta[k - 1] * basis[k - 1]
        v -= (basis[: k + 1] @ v) @ basis[: k + 1]  # reorthogonalise: rounding
        beta[k] = np.linalg.norm(v)
        is_whole = beta[k] <= np.finfo(np.float64).eps * np.abs(alpha[: k + 1]).max()
        if is_whole or (k + 1) % LOOK == 0 or k + 1 == n_steps:
            found = _in_basis(alpha[: k + 1], beta[:k], size, radius)
            if found is None:
                return None
            y, eta = found
            if is_whole or beta[k] * abs(y[-1]) <= tol * size:
                return SphereSolution(y @ basis[: k + 1], eta)
        basis[k + 1] = v / beta[k]
    return None


def _in_basis(
    alpha: NDArray, beta: NDArray, size: float, radius: float
) -> tuple[NDArray, float] | None:
    """Return the coordinates of x and eta, for a tridiagonal matrix and size times e_1.

    Uses Newton's method on 1 / |x|, which is concave and nearly linear in eta.
    """
    values, vectors = eigh_tridiagonal(alpha, beta, check_finite=False)
    if values[0] < -INDEFINITE * np.abs(values).max():
        return None
    # Smaller eigenvalues are due to rounding.
    floor = float(np.finfo(np.float64).eps * values[-1])
    values = np.maximum(values, max(floor, TINY))
    first = size * vectors[0]
    # Newton steps from the left may overshoot, so they are bracketed; |x| <= size / -eta.
    low, high = -size / radius, 0.0
    if np.linalg.norm(first / values) <= radius:
        return None
    eta = low
    for _ in range(MAX_NEWTON):
        coordinates = first / (values - eta)
        squared = float(coordinates @ coordinates)
        norm = float(np.sqrt(squared))
        if norm < radius:
            low = eta
        else:
            high = eta
        slope = float(coordinates @ (coordinates / (values - eta)))
        step = (radius - norm) * squared / (radius * slope)
        following = eta + step
        if not low <= following <= high:
            following = 0.5 * (low + high)
        if abs(following - eta) <= 2.0 * np.finfo(np.float64).eps * abs(eta):
            break
        eta = following
    x = first / (values - eta)
    return vectors @ (x * (radius / np.linalg.norm(x))), eta
