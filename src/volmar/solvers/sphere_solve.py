"""A linear system whose solution has a given length: its shift and its solution by one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

# Lanczos steps at most, and between looks at the residual.
MAX_STEPS, LOOK = 200, 4
# An eigenvalue of a matrix of zeros, whose square can be divided by.
TINY = 1e-100
# Share of the largest eigenvalue from which on a negative one is not rounding.
INDEFINITE = 1e-8
# Newton steps for the shift.
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
    eigenvalues of T: one Lanczos run takes the place of a linear solve for every trial of eta.

    Parameters
    ----------
    product : callable
        x -> H x for a symmetric positive semi-definite H.
    right : ndarray of shape (n,)
        r.
    radius : float
        Length of x, positive.
    tol : float, default=1e-13
        Residual at which to stop, relative to the length of r.

    Returns
    -------
    SphereSolution or None
        None where x is shorter than the radius even at eta = 0, `tol` was not reached, or H is
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
        v -= (basis[: k + 1] @ v) @ basis[: k + 1]  # of rounding: T then belongs to H
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

    Newton's method on 1 / |x|, which is concave and nearly linear in eta.
    """
    values, vectors = eigh_tridiagonal(alpha, beta, check_finite=False)
    if values[0] < -INDEFINITE * np.abs(values).max():
        return None
    # Below it an eigenvalue is rounding.
    floor = float(np.finfo(np.float64).eps * values[-1])
    values = np.maximum(values, max(floor, TINY))
    first = size * vectors[0]
    # From the left of the solution steps would overshoot; |x| <= size / -eta.
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
