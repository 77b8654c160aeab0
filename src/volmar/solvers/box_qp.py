"""Concave quadratic maximisation over a box, perhaps on the unit sphere: a saddle's inner half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

MAX_SETS = 12
MAX_NEWTON = 60
# Changes of one row at a time, after which L-BFGS is cheaper.
MAX_CHANGES = 300
# Of the largest diagonal entry, what makes a singular block definite.
RIDGE = 1e-13
# Below this size a Cholesky factorisation is cheaper than conjugate gradients.
DIRECT_BELOW = 300


@dataclass(frozen=True)
class BoxPoint:
    """A maximiser of ``2 1'a - a'(H - eta I)a`` over ``0 <= a <= C``.

    `eta`, the multiplier of |a| = 1, is never positive, and 0 where the norm is free; `value` is
    ``2 1'a - a'(H - eta I)a - eta``, and `slack` the maximum by which it can be below that over
    the box (by the Frank-Wolfe gap: the objective is concave).
    """

    a: NDArray
    eta: float
    value: float
    slack: float


class BoxQP:
    """Solves box programs for a sequence of similar matrices H, each started from the last.

    With `unit_norm`, eta is found such that |a| = 1; otherwise it is zero.
    """

    def __init__(self, n: int, C: float, *, unit_norm: bool):
        self.n = n
        self.C = C
        self.unit_norm = unit_norm
        self._a = np.full(n, min(C, 1 / np.sqrt(n)))
        self._eta = -np.sqrt(n) if unit_norm else 0.0

    def solve(self, H: Any, *, tol: float = 1e-12) -> BoxPoint:
        """Maximise for the symmetric positive semi-definite H, dense or sparse."""
        if not self.unit_norm:
            self._a = self._maximise(H, 0.0)
        else:
            self._find_eta(H, tol)
        return self._certified(H)

    # ------------------------------------------------------------------ the multiplier

    def _find_eta(self, H: Any, tol: float) -> None:
        """Newton's method on 1/|a(eta)| = 1, which is nearly linear in eta, with a bracket.

        H is positive semi-definite, so that every eta below zero has a maximiser; where |a| is
        below 1 even at zero, eta stays there.
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
            free = (a > 0) & (a < self.C)
            slope = 0.0
            if free.any():
                inner = np.zeros(self.n)
                try:
                    inner[free] = self._solve_free(H, eta, free, a[free], a[free])
                except linalg.LinAlgError:
                    inner[free] = a[free]
                slope = float(a @ inner)
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
        """Primal-dual active set: guess which ends hold, solve for the rest, guess again."""
        a = self._a
        n_seen: set[bytes] = set()
        gradient = 1 - H @ a + eta * a
        for _ in range(MAX_SETS):
            lower, upper = a + gradient <= 0, a + gradient >= self.C
            key = np.packbits([lower, upper]).tobytes()
            if key in n_seen:
                break  # a cycle: nothing forbids it
            n_seen.add(key)
            free = ~(lower | upper)
            a = np.where(upper, self.C, 0.0)
            if free.any():
                right = (1 - H @ a + eta * a)[free]
                try:
                    a[free] = self._solve_free(H, eta, free, right, self._a[free])
                except linalg.LinAlgError:  # H is singular there
                    break
            gradient = 1 - H @ a + eta * a
            gradient[free] = 0.0
            feasible = np.all(a[free] >= 0) and np.all(a[free] <= self.C)
            if feasible and np.all(gradient[lower] <= 0) and np.all(gradient[upper] >= 0):
                return a
        return self._by_single_changes(H, eta)

    def _by_single_changes(self, H: Any, eta: float) -> NDArray:
        """Primal active set, one row at a time, where the guesses above do not settle.

        They wander where H is nearly singular, as that of a wide kernel is. Here the value never
        falls: free rows go to their maximum, or as far as the box lets the first of them; there,
        the row that would gain most by leaving its end is let go.
        """
        a = np.clip(self._a, 0.0, self.C)
        free = (a > 0) & (a < self.C)
        largest = float(H.diagonal().max())
        gradient = 1 - H @ a + eta * a
        for _ in range(MAX_CHANGES):
            try:
                a, blocked = self._towards_maximum(H, eta - RIDGE * largest, a, gradient, free)
            except linalg.LinAlgError:
                break
            gradient = 1 - H @ a + eta * a
            if blocked is not None:
                free[blocked] = False
                continue
            gain = np.where(free, 0.0, np.where(a > 0, -gradient, gradient))
            best = int(gain.argmax())
            # No entry of H is beyond the largest of its diagonal: what is below is rounding.
            if gain[best] <= max(1e-13, np.finfo(np.float64).eps * largest * a.sum()):
                return a
            free[best] = True
        self._a = np.clip(a, 0.0, self.C)
        return self._by_projection(H, eta)

    def _towards_maximum(
        self, H: Any, eta: float, a: NDArray, gradient: NDArray, free: NDArray
    ) -> tuple[NDArray, int | None]:
        """Move the free rows to their maximum or to the end of the first that meets one."""
        if not free.any():
            return a, None
        rows = np.flatnonzero(free)
        step = self._solve_free(H, eta, free, gradient[free])
        room = np.where(step > 0, self.C - a[rows], a[rows])
        size = np.abs(step)
        a = a.copy()
        if np.all(size <= room):
            a[rows] += step
            return a, None
        ratios = np.divide(room, size, out=np.full(rows.size, np.inf), where=size > room)
        first = int(ratios.argmin())
        a[rows] += ratios[first] * step
        a[rows[first]] = self.C if step[first] > 0 else 0.0
        return a, int(rows[first])

    def _by_projection(self, H: Any, eta: float) -> NDArray:
        """L-BFGS on the box, where no active set settles."""

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
        A = H if free.all() else H[np.ix_(free, free)]
        if right.size < DIRECT_BELOW:
            A = A.toarray() if sparse.issparse(A) else A.copy()
            A[np.diag_indices(right.size)] -= eta
            return linalg.cho_solve(
                linalg.cho_factor(A, lower=True, check_finite=False), right, check_finite=False
            )
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
        image = H @ a - self._eta * a
        gradient = 2 * (1 - image)
        slack = float(np.maximum(gradient * (self.C - a), -gradient * a).sum())
        return BoxPoint(a, self._eta, float(2 * a.sum() - a @ image - self._eta), max(slack, 0.0))
