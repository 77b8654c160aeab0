"""The best mixture of labellings for a squared-hinge support vector machine.

This is multiple kernel learning, where kernel t is K o y_t y_t'. `solve_label_kernel_svm` solves

    min_mu max_alpha  -1/2 (sum_t mu_t |F'(alpha o y_t)|^2 + |alpha|^2 / C),

with mu and alpha in the unit simplex. For fixed mu the inner maximum phi(mu) is a support vector
machine with adaptive margin, whose primal in V_t (of labelling y_t) is

    min_{V, rho}  1/2 sum_t |V_t|^2 / mu_t - rho + C/2 sum_i max(0, rho - f_i)^2,
    f_i = sum_t y_ti F_i V_t,  alpha_i = C max(0, rho - f_i),  V_t = mu_t F'(alpha o y_t).

The primal is piecewise quadratic, and Newton's method ends after a few changes of the rows inside
the margin. phi is convex and differentiable, with d phi / d mu_t = -|F'(alpha o y_t)|^2 / 2. The
factor of the last Newton step gives its second derivatives, and mu is found by sequential
quadratic programming.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import daqp
import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.solvers.result import Result, Status

# Maximum number of full Newton steps, of damped Newton steps, and of step reductions for mu.
MAX_FULL = 20
MAX_NEWTON = 50
MAX_HALVINGS = 12


@dataclass(frozen=True, repr=False)
class LabelKernelResult(Result):
    """A mixture of labellings with upper and lower bounds of its saddle value.

    `weights` are mu. The objective is the primal value at `normals` F'(alpha o y_t) and the margin
    `rho`, an upper bound on the saddle value. The objective minus the gap is the dual value at
    `alpha`, a lower bound.
    """

    weights: NDArray = field(default_factory=lambda: np.empty(0))
    alpha: NDArray = field(default_factory=lambda: np.empty(0))
    normals: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    rho: float = float("nan")


def solve_label_kernel_svm(
    F: NDArray,
    Y: NDArray,
    *,
    C: float,
    tol: float = 1e-8,
    max_iter: int = 100,
    weights: NDArray | None = None,
    alpha: NDArray | None = None,
) -> LabelKernelResult:
    """Find the weights of labellings Y (T, n), and those of the rows of features F (n, m).

    `tol` is the relative gap at which to stop. The start is mu = `weights` (if None, the last
    labelling alone) and `alpha` (if None, the same for all rows). The status is
    FAILED if rounding stopped the descent above `tol`, and MAX_ITER if the iteration limit was
    reached.
    """
    F, Y = np.ascontiguousarray(F, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    # Scale rows so that fourth powers do not overflow; a power of 2 causes no rounding.
    unit = 2.0 ** int(np.frexp(np.abs(F).max())[1])
    master = _Master(F / unit, Y, C * unit**2)
    mu = np.append(np.zeros(len(Y) - 1), 1.0) if weights is None else weights
    start = np.full(len(F), 1.0 / len(F)) if alpha is None else alpha
    point = master.machine(mu / mu.sum(), start, tol)
    bound, best_alpha = master.bound(point), point.alpha
    history = [point.value]
    status = Status.CONVERGED
    while not point.value - bound <= tol * abs(point.value):  # also continues if NaN
        following = master.step(point, tol) if len(history) <= max_iter else None
        if following is None:
            status = Status.FAILED if len(history) <= max_iter else Status.MAX_ITER
            break
        point = following
        history.append(point.value)
        if master.bound(point) > bound:
            bound, best_alpha = master.bound(point), point.alpha
    gap = max(point.value - bound, 0.0)
    return LabelKernelResult(
        objective=point.value * unit**2,
        gap=gap * unit**2,
        residuals={"relative gap": gap / abs(point.value)},
        status=status,
        n_iter=len(history) - 1,
        history=tuple(value * unit**2 for value in history),
        weights=point.mu,
        alpha=best_alpha,
        normals=master.normals(best_alpha) * unit,
        rho=point.rho * unit**2,
    )


class _System:
    """H = BB' + I/C of the rows inside the margin, with stacked features B = [sqrt(mu_t) y_t o F].

    The smaller of I + C B'B (features) and I + C BB' (rows) is factorised.
    """

    def __init__(self, F: NDArray, labels: NDArray, rows: NDArray, C: float):
        self.rows, self.C = rows, C
        F, labels = self._parts = F[rows], labels[:, rows]
        self._B = None
        if rows.size < labels.shape[0] * F.shape[1]:
            gram = C * (labels.T @ labels) * (F @ F.T)
        else:
            self._B = (labels.T[:, :, None] * F[:, None, :]).reshape(rows.size, -1)
            gram = C * (self._B.T @ self._B)
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = linalg.cho_factor(gram, lower=True, check_finite=False)

    def form(self, J: NDArray) -> NDArray:
        """Return J'H^-1 J, by Woodbury's identity if there are fewer features than rows."""
        right = J if self._B is None else self._B.T @ J
        form = right.T @ linalg.cho_solve(self._factor, right, check_finite=False)
        return self.C * (form if self._B is None else J.T @ J - self.C * form)

    def newton_point(self) -> tuple[NDArray, float]:
        """Return theta = B'alpha, shape (T, m), and rho of alpha = rho H^-1 1 with 1'alpha = 1."""
        F, labels = self._parts
        ones = np.ones((self.rows.size, 1))
        right = ones if self._B is None else self._B.T @ ones
        x = linalg.cho_solve(self._factor, right, check_finite=False)[:, 0]
        rho = 1.0 / float(self.form(ones)[0, 0])
        # B'H^-1 1 is C x, without the cancellation in H^-1 1 for a large C.
        theta = (labels * x) @ F if self._B is None else x.reshape(labels.shape[0], -1)
        return self.C * rho * theta, rho


@dataclass(frozen=True)
class _Iterate:
    theta: NDArray
    f: NDArray
    rho: float
    value: float


@dataclass(frozen=True)
class _SVMPoint:
    """The support vector machine for one mu."""

    mu: NDArray
    alpha: NDArray
    normals: NDArray
    rho: float
    value: float  # primal
    system: _System  # of the rows inside the margin


class _Master:
    def __init__(self, F: NDArray, Y: NDArray, C: float):
        self.F, self.Y, self.C = F, Y, C

    # ------------------------------------------------------------------ values

    def normals(self, alpha: NDArray) -> NDArray:
        """Return F'(alpha o y_t), shape (T, m)."""
        return (self.Y * alpha) @ self.F

    def bound(self, point: _SVMPoint) -> float:
        """Return the dual value at alpha: the minimum over all labellings."""
        largest = float(np.einsum("tm,tm->t", point.normals, point.normals).max())
        return -0.5 * (largest + float(point.alpha @ point.alpha) / self.C)

    def best_rho(self, f: NDArray) -> float:
        """Return the optimal rho for f, which solves C sum_i max(0, rho - f_i) = 1."""
        ordered = np.sort(f)
        candidates = (1.0 / self.C + np.cumsum(ordered)) / np.arange(1, f.size + 1)
        # The candidate with the k smallest inside is correct if the next one is outside.
        k = int(np.argmax(candidates <= np.append(ordered[1:], np.inf)))
        return float(candidates[k])

    # ------------------------------------------------------------------ mu fixed

    def machine(self, mu: NDArray, alpha: NDArray, tol: float) -> _SVMPoint:
        """Solve the primal for one mu by Newton's method, from the rows with positive `alpha`.

        Full steps solve for the rows inside the margin and update these rows. From a nearly
        correct set they end after a few steps for any C. The primal may increase on the way, so
        the best iterate is kept. Damped steps then decrease the primal; with a large C about one
        row changes per step.
        """
        # Weights below this count as zero; their labellings are dropped from the stacked features.
        kept = mu > 1e-9
        mu = np.where(kept, mu, 0.0) / mu[kept].sum()
        labels = np.sqrt(mu[kept])[:, None] * self.Y[kept]
        # In theta_t = V_t / sqrt(mu_t) the regulariser is |theta|^2 / 2.
        best, inside = self._iterate(labels, (labels * alpha) @ self.F), alpha > 0
        for i in range(MAX_FULL + MAX_NEWTON):
            is_damped = i >= MAX_FULL
            if i == MAX_FULL:
                best = self._iterate(labels, best.theta)
                inside = best.f < best.rho
            system = _System(self.F, labels, np.flatnonzero(inside), self.C)
            following = self._iterate(labels, *system.newton_point())
            if is_damped and following.value > best.value:
                following = self._line_search(labels, best, following)
            fall = best.value - following.value
            best = following if is_damped or fall > 0.0 else best
            still_inside = following.f < following.rho
            # The quadratic piece was correct, or damped steps gain too little for the requested
            # gap. A small decrease of full steps would not imply it: sets may recur.
            if np.array_equal(still_inside, inside) or (
                is_damped and fall <= 1e-4 * tol * abs(best.value)
            ):
                break
            inside = still_inside
        best = self._iterate(labels, best.theta)
        pull = np.maximum(best.rho - best.f, 0.0)
        alpha = pull / pull.sum()
        return _SVMPoint(mu, alpha, self.normals(alpha), best.rho, best.value, system)

    def _iterate(self, labels: NDArray, theta: NDArray, rho: float | None = None) -> _Iterate:
        f = np.einsum("tn,tn->n", labels, theta @ self.F.T)
        rho = self.best_rho(f) if rho is None else rho
        slack = np.maximum(rho - f, 0.0)
        value = 0.5 * np.vdot(theta, theta) - rho + 0.5 * self.C * (slack @ slack)
        return _Iterate(theta, f, rho, float(value))

    def _line_search(self, labels: NDArray, start: _Iterate, end: _Iterate) -> _Iterate:
        """Return the minimum of the convex primal between two iterates, by bisection."""
        dtheta, df, drho = end.theta - start.theta, end.f - start.f, end.rho - start.rho

        def slope(share: float) -> float:
            slack = np.maximum(start.rho + share * drho - start.f - share * df, 0.0)
            inner = float(np.vdot(start.theta + share * dtheta, dtheta))
            return inner - drho + self.C * float(slack @ (drho - df))

        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if slope(middle) <= 0.0 else (low, middle)
        return self._iterate(labels, start.theta + low * dtheta, start.rho + low * drho)

    # ------------------------------------------------------------------ mu

    def step(self, point: _SVMPoint, tol: float) -> _SVMPoint | None:
        """Return the machine of a better mu; None if rounding prevents an improvement."""
        squares = np.einsum("tm,tm->t", point.normals, point.normals)
        gradient = -0.5 * squares
        direction = self._direction(point, gradient)
        slope = float(gradient @ direction)
        share = 1.0
        for _ in range(MAX_HALVINGS):
            mu = np.maximum(point.mu + share * direction, 0.0)
            following = self.machine(mu / mu.sum(), point.alpha, tol)
            rise = following.value - point.value
            if slope < 0.0 and rise <= 1e-4 * share * slope:
                return following
            # The primal error is the square of the dual error, so rounding affects it first.
            # Share of the objective below which a change counts as rounding.
            if rise <= 1e-14 * abs(point.value) and self.bound(following) > self.bound(point):
                return following
            share *= 0.3
        return None

    def _direction(self, point: _SVMPoint, gradient: NDArray) -> NDArray:
        """Return the step to the minimum of the quadratic model of phi over the simplex."""
        size = max(float(np.abs(gradient).max()), np.finfo(np.float64).tiny)
        hessian = self._curvature(point) / size
        T = gradient.size
        # Share of the curvature that is added to make the programme for mu definite.
        hessian[np.diag_indices(T)] += 1e-9 * max(float(np.trace(hessian)) / T, 1.0)
        linear = gradient / size - hessian @ point.mu
        upper, lower = np.ones(T + 1), np.append(np.zeros(T), 1.0)
        sense = np.append(np.zeros(T), 5).astype(np.int32)  # equality
        mu, _, flag, _ = daqp.solve(
            hessian, linear, np.ones((1, T)), upper, lower, sense, primal_tol=1e-12
        )
        if flag < 0 or not np.all(np.isfinite(mu)):
            # Use the direction towards the most violated labelling.
            mu = np.zeros(T)
            mu[int(gradient.argmin())] = 1.0
        return mu - point.mu

    def _curvature(self, point: _SVMPoint) -> NDArray:
        """Return the second derivatives J'PJ of phi, with J_t = y_t o F F'(alpha o y_t).

        The rows are those inside the margin. P = H^-1 - H^-1 11' H^-1 / (1'H^-1 1), because alpha
        remains in the simplex.
        """
        rows = point.system.rows
        J = (self.Y[:, rows] * (point.normals @ self.F[rows].T)).T
        whole = point.system.form(np.column_stack([J, np.ones(rows.size)]))
        across = whole[:-1, -1:]
        hessian = whole[:-1, :-1] - across @ across.T / whole[-1, -1]
        return 0.5 * (hessian + hessian.T)
