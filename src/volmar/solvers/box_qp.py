"""Concave quadratic maximisation over a box, optionally on the unit sphere.

This is the inner maximum of the saddle problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.linalg import eigh_tridiagonal, lapack
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

# ------------------------------------------------------------------ on the sphere

# Maximum number of Lanczos steps, and steps between checks of the residual.
MAX_STEPS, LOOK = 200, 4


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
    # Share of the largest eigenvalue beyond which a negative eigenvalue is not due to rounding.
    if values[0] < -1e-8 * np.abs(values).max():
        return None
    # Smaller eigenvalues are due to rounding.
    floor = float(np.finfo(np.float64).eps * values[-1])
    # Replaces zero eigenvalues; its square does not underflow.
    values = np.maximum(values, max(floor, 1e-100))
    first = size * vectors[0]
    # Newton steps from the left may overshoot, so they are bracketed; |x| <= size / -eta.
    low, high = -size / radius, 0.0
    if np.linalg.norm(first / values) <= radius:
        return None
    eta = low
    # Maximum number of Newton steps for the shift.
    for _ in range(100):
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


# ------------------------------------------------------------------ on the box

# Maximum number of active sets that are guessed, and of Newton steps for eta.
MAX_SETS = 12
MAX_NEWTON = 60
# Multiples of the largest diagonal entry that are added in turn to a nearly singular H.
PATH = (1e1, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-7, 1e-9, 1e-12)
# Maximum number of rows for factorising a block of a dense H, whose blocks are often nearly
# singular, and of a sparse H.
DIRECT_UP_TO, DIRECT_UP_TO_SPARSE = 3000, 300


@dataclass(frozen=True)
class BoxPoint:
    """A maximiser of ``2 1'a - a'(H - eta I)a`` over ``0 <= a <= C``.

    `eta` is the multiplier of |a| = 1; it is at most 0, and 0 if the norm is free. `value` is
    ``2 1'a - a'(H - eta I)a - eta``, and `slack` bounds its distance to the maximum over the box,
    by the Frank-Wolfe gap of the concave objective.
    """

    a: NDArray
    eta: float
    value: float
    slack: float


class BoxQP:
    """Solver of box programs for a sequence of similar matrices H, with warm starts.

    With `unit_norm`, eta is chosen such that |a| = 1; otherwise it is zero.
    """

    def __init__(self, n: int, C: float, *, unit_norm: bool):
        self.n = n
        self.C = C
        self.unit_norm = unit_norm
        self._a = np.full(n, min(C, 1 / np.sqrt(n)))
        self._eta = -np.sqrt(n) if unit_norm else 0.0

    def solve(self, H: Any, *, tol: float = 1e-12) -> BoxPoint:
        """Return the maximiser for a symmetric positive semi-definite H, dense or sparse.

        `tol` is the relative residual of the linear systems if eta is free.
        """
        if not self.unit_norm:
            self._a = self._maximise(H, 0.0)
        elif not self._on_sphere(H, tol):
            self._find_eta(H, tol)
        return self._certified(H)

    def maximiser(self, H: Any, eta: float) -> NDArray:
        """Return the maximiser over the box for an eta below all eigenvalues of H."""
        self._a = self._maximise(H, eta)
        return self._a

    def slope(self, H: Any, eta: float, a: NDArray) -> float:
        """Return half the derivative of |a|^2 with respect to eta at the maximiser a."""
        free = (a > 0) & (a < self.C)
        if not free.any():
            return 0.0
        inner = np.zeros(self.n)
        try:
            inner[free] = self._solve_free(H, eta, free, a[free], a[free])
        except linalg.LinAlgError:
            inner[free] = a[free]
        return float(a @ inner)

    # ------------------------------------------------------------------ the multiplier

    def _on_sphere(self, H: Any, tol: float) -> bool:
        """Guess the active bounds, solve for the other entries and eta, and repeat.

        Returns whether the maximiser was found. It is not found if eta would not be negative, or
        if the active bounds do not converge.
        """
        a, eta = self._a, min(self._eta, 0.0)
        shifted = a + 1 - _product(H, a) + eta * a
        lower, upper = shifted <= 0, shifted >= self.C
        for _ in range(MAX_SETS):
            free = ~(lower | upper)
            square = 1.0 - self.C**2 * np.count_nonzero(upper)
            if square <= 0.0 or not free.any():
                return False
            a = np.where(upper, self.C, 0.0)
            right = (1 - _product(H, a))[free]
            block = H if free.all() else _block(H, free)
            found = solve_on_sphere(block.__matmul__, right, float(np.sqrt(square)), tol=tol)
            if found is None:
                return False
            a[free], eta = found
            before = lower, upper
            lower, upper = a < 0, a > self.C
            if not free.all():
                gradient = 1 - _product(H, a) + eta * a
                lower |= before[0] & (gradient <= 0)
                upper |= before[1] & (gradient >= 0)
            if np.array_equal(before, (lower, upper)):
                self._a, self._eta = a, eta
                return True
        return False

    def _find_eta(self, H: Any, tol: float) -> None:
        """Solve 1/|a(eta)| = 1, which is nearly linear in eta, by a bracketed Newton method.

        H is positive semi-definite, so every eta below zero has a maximiser. If |a| is below 1
        even at eta = 0, eta is 0.
        """
        low, high = -np.inf, np.inf
        eta = min(self._eta, 0.0)
        for _ in range(MAX_NEWTON):
            a = self._maximise(H, eta)
            self._a, self._eta = a, eta
            norm = float(np.linalg.norm(a))
            if abs(norm - 1) <= tol or (norm < 1 and eta == 0.0):
                return
            if norm < 1:
                low = eta
            else:
                high = eta
            if np.isfinite(high - low) and high - low <= 1e-15 * max(abs(low), abs(high), 1e-300):
                return
            slope = self.slope(H, eta, a)
            step = (1 - norm) * norm**2 / slope if slope > 0 else np.nan
            eta = min(self._next(eta + step, low, high, eta), 0.0)

    def _next(self, newton: float, low: float, high: float, eta: float) -> float:
        if low < newton < high:
            return newton
        if np.isfinite(low) and np.isfinite(high):
            return (low + high) / 2
        width = max(1.0, abs(eta))
        return eta + width if np.isfinite(low) else eta - width

    # ------------------------------------------------------------------ the box

    def _maximise(self, H: Any, eta: float) -> NDArray:
        """Find the active bounds by guessing or, if that fails, by changing one at a time.

        Guesses may not converge if H is nearly singular, as for a wide kernel, and far from the
        solution too many single changes are needed. With a multiple of the identity added to H
        guesses converge, and the active bounds change little from one multiple to the next.
        """
        a = self._by_active_sets(H, eta, self._a)
        # Changes of one row at a time: their maximum number from a nearby solution, the maximum
        # share of free rows in that case, and the number of changes beyond which L-BFGS is
        # cheaper.
        if a is None and np.count_nonzero((self._a > 0) & (self._a < self.C)) <= 0.25 * self.n:
            a = self._by_single_changes(H, eta, 100)
        if a is None:
            largest = float(H.diagonal().max())
            for ridge in PATH:
                settled = self._by_active_sets(H, eta - ridge * largest, self._a)
                if settled is not None:
                    self._a = settled
            a = self._by_single_changes(H, eta, 300)
        return self._by_projection(H, eta) if a is None else a

    def _by_active_sets(self, H: Any, eta: float, start: NDArray) -> NDArray | None:
        """Primal-dual active set method: guess the active bounds, solve for the rest, repeat."""
        a, unit = start, float(H.diagonal().max()) - eta or 1.0
        n_seen: set[bytes] = set()
        gradient = 1 - _product(H, a) + eta * a
        for _ in range(MAX_SETS):
            guess = a + gradient / unit
            lower, upper = guess <= 0, guess >= self.C
            key = np.packbits([lower, upper]).tobytes()
            if key in n_seen:
                return None  # the method may cycle
            n_seen.add(key)
            free = ~(lower | upper)
            a = np.where(upper, self.C, 0.0)
            if free.any():
                right = (1 - _product(H, a))[free]
                try:
                    a[free] = self._solve_free(H, eta, free, right, start[free])
                except linalg.LinAlgError:  # H is singular there
                    return None
            gradient = 1 - _product(H, a) + eta * a
            gradient[free] = 0.0
            feasible = np.all(a[free] >= 0) and np.all(a[free] <= self.C)
            if feasible and np.all(gradient[lower] <= 0) and np.all(gradient[upper] >= 0):
                return a
        return None

    def _by_single_changes(self, H: Any, eta: float, n_changes: int) -> NDArray | None:
        """Primal active set method, one row at a time; None if `n_changes` are not enough.

        The value never decreases. Free rows move to their maximum, or until the first of them
        reaches a bound. At a maximum, the row that gains most from leaving its bound is freed.
        """
        a = np.clip(self._a, 0.0, self.C)
        free = (a > 0) & (a < self.C)
        largest = float(H.diagonal().max())
        gradient = 1 - _product(H, a) + eta * a
        for _ in range(n_changes):
            try:
                # Share of the largest diagonal entry that is added to make a singular block
                # definite.
                change, blocked = self._towards_maximum(
                    H, eta - 1e-13 * largest, a, gradient, free
                )
            except linalg.LinAlgError:
                break
            a = a + change
            if blocked is not None:
                a[blocked] = round(a[blocked] / self.C) * self.C
                free[blocked] = False
                gradient += eta * change - _product(H, change)
                continue
            gradient = 1 - _product(H, a) + eta * a
            gain = np.where(free, 0.0, np.where(a > 0, -gradient, gradient))
            best = int(gain.argmax())
            if gain[best] <= _rounding(largest, a):
                return a
            free[best] = True
        self._a = np.clip(a, 0.0, self.C)
        return None

    def _towards_maximum(
        self, H: Any, eta: float, a: NDArray, gradient: NDArray, free: NDArray
    ) -> tuple[NDArray, int | None]:
        """Return the step of the free rows to their maximum, or to the first bound on the way.

        Also returns the number of the row that reaches a bound, or None.
        """
        change = np.zeros(self.n)
        rows = np.flatnonzero(free)
        if not rows.size:
            return change, None
        step = self._solve_free(H, eta, free, gradient[rows])
        room = np.where(step > 0, self.C - a[rows], a[rows])
        size = np.abs(step)
        if np.all(size <= room):
            change[rows] = step
            return change, None
        ratios = np.divide(room, size, out=np.full(rows.size, np.inf), where=size > room)
        first = int(ratios.argmin())
        change[rows] = ratios[first] * step
        return change, int(rows[first])

    def _by_projection(self, H: Any, eta: float) -> NDArray:
        """Maximise by L-BFGS on the box, if no active set method converges."""

        def negative(a: NDArray) -> tuple[float, NDArray]:
            image = H @ a - eta * a
            return float(a @ image - 2 * a.sum()), 2 * (image - 1)

        start = np.clip(self._a, 0.0, self.C)
        found = minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, self.C)] * self.n,
            options={"ftol": 0.0, "gtol": 1e-12, "maxiter": 2000, "maxfun": 4000, "maxcor": 20},
        )
        return found.x

    def _solve_free(
        self, H: Any, eta: float, free: NDArray, right: NDArray, start: NDArray | None = None
    ) -> NDArray:
        A = H if free.all() else _block(H, free)
        if right.size <= (DIRECT_UP_TO_SPARSE if sparse.issparse(H) else DIRECT_UP_TO):
            if not isinstance(A, np.ndarray):
                A = A.toarray()
            elif A is H:
                A = A.copy()
            A.flat[:: right.size + 1] -= eta
            _, x, failed = lapack.dposv(A.T, right, lower=1, overwrite_a=1)
            if failed:
                raise linalg.LinAlgError("a block is not positive definite")
            return x
        shifted = LinearOperator(A.shape, matvec=lambda x: A @ x - eta * x, dtype=np.float64)
        diagonal = A.diagonal() - eta
        if diagonal.min() <= 0:
            raise linalg.LinAlgError("a diagonal entry is not positive")
        jacobi = LinearOperator(A.shape, matvec=lambda x: x / diagonal, dtype=np.float64)
        x, failed = cg(shifted, right, x0=start, rtol=1e-13, M=jacobi, maxiter=500)
        if failed and np.linalg.norm(shifted @ x - right) > 1e-6 * np.linalg.norm(right):
            raise linalg.LinAlgError("conjugate gradients did not converge")
        return x

    def _certified(self, H: Any) -> BoxPoint:
        a = np.clip(self._a, 0.0, self.C)
        image = _product(H, a) - self._eta * a
        gradient = 2 * (1 - image)
        slack = float(np.maximum(gradient * (self.C - a), -gradient * a).sum())
        return BoxPoint(a, self._eta, float(2 * a.sum() - a @ image - self._eta), max(slack, 0.0))


def _rounding(largest: float, a: NDArray) -> float:
    """Return the rounding error of a gradient; no entry of H exceeds its largest diagonal."""
    return max(1e-13, float(np.finfo(np.float64).eps * largest * a.sum()))


def _product(H: Any, x: NDArray) -> NDArray:
    """Return H x, using only the rows of H with nonzero x if these are few."""
    if not sparse.issparse(H):
        rows = np.flatnonzero(x)
        # Share of nonzero entries of a vector below which a product uses only these entries.
        if rows.size < 0.25 * x.size:
            return x[rows] @ H[rows]
    return H @ x


def _block(H: Any, free: NDArray) -> Any:
    rows = np.flatnonzero(free)
    if sparse.issparse(H):
        return H[rows][:, rows]
    return H[np.ix_(rows, rows)] if isinstance(H, np.ndarray) else H.block(rows)
