"""The best mixture of labellings for a squared-hinge support vector machine, with its gap.

Multiple kernel learning in which kernel t is K o y_t y_t'. `solve_label_kernel_svm` solves

    min_mu max_alpha  -1/2 (sum_t mu_t |F'(alpha o y_t)|^2 + |alpha|^2 / C),

both over the unit simplex. For fixed mu the inner maximum phi(mu) is a support vector machine with
adaptive margin, whose primal in V_t (of label y_t) is

    min_{V, rho}  1/2 sum_t |V_t|^2 / mu_t - rho + C/2 sum_i max(0, rho - f_i)^2,
    f_i = sum_t y_ti F_i V_t,  alpha_i = C max(0, rho - f_i),  V_t = mu_t F'(alpha o y_t).

It is piecewise quadratic: Newton's method ends after a few changes of the rows inside the margin.
phi is convex and differentiable, d phi / d mu_t = -|F'(alpha o y_t)|^2 / 2, and the factor of the
last Newton step gives its second derivatives: mu is found by sequential quadratic programming.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import daqp
import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.solvers.result import Result, Status

__all__ = ["LabelKernelResult", "solve_label_kernel_svm"]

# Entries of the stacked features held at a time.
BLOCK = 2**20
MAX_NEWTON = 50
MAX_HALVINGS = 12
# Weights below are no weights: their labellings leave the stacked features.
IDLE = 1e-9
# Share of the objective below which a change is rounding.
ROUNDING = 1e-14
# Share of the curvature that makes the small programme for mu definite.
RIDGE = 1e-9
# Share of the gap asked for, below which another step of the machine is worth nothing.
INNER = 1e-4


@dataclass(frozen=True, repr=False)
class LabelKernelResult(Result):
    """A mixture of labellings with both sides of its saddle.

    Attributes
    ----------
    objective : float
        Primal value at `normals` and `rho`: an upper bound of the saddle's value.
    gap : float
        `objective` less the dual value at `alpha`, which is a lower bound of it.
    weights : ndarray of shape (T,)
        mu.
    alpha : ndarray of shape (n,)
        Weights of the rows, of sum 1.
    normals : ndarray of shape (T, m)
        F'(alpha o y_t).
    rho : float
        Margin of the mixture.
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
    """Find the weights of labellings and of rows.

    Parameters
    ----------
    F : ndarray of shape (n, m)
        Features of the rows, float64.
    Y : ndarray of shape (T, n)
        Labellings, -1 or 1.
    C : float
        Price of squared margin errors.
    tol : float, default=1e-8
        Gap, relative to the objective, at which to stop.
    max_iter : int, default=100
        Most steps in mu.
    weights, alpha : ndarray, optional
        Where to start: mu (the last labelling alone if not given) and alpha (uniform).

    Returns
    -------
    LabelKernelResult
        Its status is FAILED where rounding stopped the descent above `tol`, MAX_ITER at the limit.
    """
    master = _Master(np.ascontiguousarray(F, dtype=np.float64), np.asarray(Y, np.float64), C)
    n, n_labellings = F.shape[0], Y.shape[0]
    mu = np.zeros(n_labellings) if weights is None else np.maximum(weights, 0.0)
    if not mu.any():
        mu[-1] = 1.0
    mu /= mu.sum()
    point = master.machine(mu, np.full(n, 1.0 / n) if alpha is None else alpha, tol)
    bound, best_alpha = master.bound(point), point.alpha
    history = [point.value]
    status = Status.CONVERGED
    while point.value - bound > tol * abs(point.value):
        if len(history) > max_iter:
            status = Status.MAX_ITER
            break
        following = master.step(point, tol)
        if following is None:
            status = Status.FAILED
            break
        point = following
        history.append(point.value)
        if master.bound(point) > bound:
            bound, best_alpha = master.bound(point), point.alpha
    gap = max(point.value - bound, 0.0)
    return LabelKernelResult(
        objective=point.value,
        gap=gap,
        residuals={"relative gap": gap / abs(point.value)},
        status=status,
        n_iter=len(history) - 1,
        history=tuple(history),
        weights=point.mu,
        alpha=best_alpha,
        normals=master.normals(best_alpha),
        rho=point.rho,
    )


class _System:
    """The rows inside the margin: H = BB' + I/C, B their stacked features [sqrt(mu_t) y_t o F].

    Factorised on the shorter side: I + C B'B over the features, or I + C BB' over the rows.
    """

    def __init__(self, F: NDArray, labels: NDArray, rows: NDArray, C: float):
        self.rows, self.C = rows, C
        self._F, self._labels = F[rows], labels[:, rows]
        self._width = labels.shape[0] * F.shape[1]
        self._by_rows = rows.size < self._width
        if self._by_rows:
            gram = C * (self._labels.T @ self._labels) * (self._F @ self._F.T)
        else:
            gram = np.zeros((self._width, self._width))
            for _, B in self._blocks():
                gram += C * (B.T @ B)
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = linalg.cho_factor(gram, lower=True, check_finite=False)

    def _blocks(self) -> Iterator[tuple[slice, NDArray]]:
        """Yield B, some rows at a time."""
        step = max(BLOCK // self._width, 256)
        for i in range(0, self.rows.size, step):
            part = slice(i, i + step)
            stacked = self._labels[:, part].T[:, :, None] * self._F[part][:, None, :]
            yield part, stacked.reshape(-1, self._width)

    def _combine(self, J: NDArray) -> NDArray:
        """Return B'J."""
        total = np.zeros((self._width, J.shape[1]))
        for part, B in self._blocks():
            total += B.T @ J[part]
        return total

    def newton_point(self) -> tuple[NDArray, float]:
        """Return theta, shape (T, m), and rho of alpha = rho H^-1 1 with 1'alpha = 1."""
        ones = np.ones(self.rows.size)
        shape = (self._labels.shape[0], self._F.shape[1])
        if self._by_rows:
            h = linalg.cho_solve(self._factor, ones, check_finite=False)
            return (self._labels * (h / h.sum())) @ self._F, 1.0 / (self.C * float(h.sum()))
        sums = self._combine(ones[:, None])[:, 0]
        x = linalg.cho_solve(self._factor, sums, check_finite=False)
        # By Woodbury's identity: theta = B'alpha = C rho (I + C B'B)^-1 B'1.
        rho = 1.0 / (self.C * (ones.size - self.C * float(sums @ x)))
        return (self.C * rho * x).reshape(shape), rho

    def form(self, J: NDArray) -> NDArray:
        """Return J'H^-1 J."""
        if self._by_rows:
            return self.C * (J.T @ linalg.cho_solve(self._factor, J, check_finite=False))
        right = self._combine(J)
        inner = linalg.cho_solve(self._factor, right, check_finite=False)
        return self.C * (J.T @ J - self.C * (right.T @ inner))


@dataclass(frozen=True)
class _Point:
    """The support vector machine of one mu."""

    mu: NDArray
    alpha: NDArray
    normals: NDArray
    rho: float
    value: float  # primal
    system: _System  # of the rows inside the margin


class _Master:
    """Data of the saddle, and the steps of its two halves."""

    def __init__(self, F: NDArray, Y: NDArray, C: float):
        self.F, self.Y, self.C = F, Y, C
        self.n, self.m = F.shape

    # ------------------------------------------------------------------ values

    def normals(self, alpha: NDArray) -> NDArray:
        """Return F'(alpha o y_t), shape (T, m)."""
        return (self.Y * alpha) @ self.F

    def bound(self, point: _Point) -> float:
        """Return the dual value: the least over all labellings at alpha."""
        largest = float(np.einsum("tm,tm->t", point.normals, point.normals).max())
        return -0.5 * (largest + float(point.alpha @ point.alpha) / self.C)

    def scores(self, V: NDArray, kept: NDArray) -> NDArray:
        """Return f of the kept labellings' normals, shape (n,)."""
        return np.einsum("tn,tn->n", self.Y[kept], V @ self.F.T)

    def best_rho(self, f: NDArray) -> float:
        """Return the rho with C sum max(0, rho - f_i) = 1, the best for f."""
        ordered = np.sort(f)
        sums = np.cumsum(ordered)
        counts = np.arange(1, f.size + 1)
        candidates = (1.0 / self.C + sums) / counts
        # With the k smallest inside: right where the next one is outside.
        k = int(np.argmax(candidates <= np.append(ordered[1:], np.inf)))
        return float(candidates[k])

    # ------------------------------------------------------------------ mu fixed

    def machine(self, mu: NDArray, alpha: NDArray, tol: float) -> _Point:
        """Newton's method on the primal of one mu, from the primal point of `alpha`."""
        kept = mu > IDLE
        mu = np.where(kept, mu, 0.0) / mu[kept].sum()
        root = np.sqrt(mu[kept])[:, None]
        # In theta_t = V_t / sqrt(mu_t) the regulariser is |theta|^2 / 2.
        theta = root * ((self.Y[kept] * alpha) @ self.F)
        f = self.scores(root * theta, kept)
        rho = self.best_rho(f)
        value = self._primal(theta, f, rho)
        inside = f < rho
        for _ in range(MAX_NEWTON):
            system = _System(self.F, root * self.Y[kept], np.flatnonzero(inside), self.C)
            theta_new, rho_new = system.newton_point()
            f_new = self.scores(root * theta_new, kept)
            if self._primal(theta_new, f_new, rho_new) > value:
                share = self._line_search(theta, f, rho, theta_new, f_new, rho_new)
                theta_new = theta + share * (theta_new - theta)
                f_new, rho_new = f + share * (f_new - f), rho + share * (rho_new - rho)
            theta, f, rho = theta_new, f_new, rho_new
            before, value = value, self._primal(theta, f, rho)
            still_inside = f < rho
            # The quadratic piece was the right one, or another is worth nothing.
            if np.array_equal(still_inside, inside) or before - value <= INNER * tol * abs(value):
                break
            inside = still_inside
        rho = self.best_rho(f)
        slack = np.maximum(rho - f, 0.0)
        alpha = slack / slack.sum()
        value = self._primal(theta, f, rho)
        return _Point(mu, alpha, self.normals(alpha), rho, value, system)

    def _primal(self, theta: NDArray, f: NDArray, rho: float) -> float:
        slack = np.maximum(rho - f, 0.0)
        return float(0.5 * np.vdot(theta, theta) - rho + 0.5 * self.C * (slack @ slack))

    def _line_search(
        self,
        theta: NDArray,
        f: NDArray,
        rho: float,
        theta_new: NDArray,
        f_new: NDArray,
        rho_new: float,
    ) -> float:
        """Return the share of a step at which the convex primal stops falling, by bisection."""
        dtheta, df, drho = theta_new - theta, f_new - f, rho_new - rho

        def slope(share: float) -> float:
            slack = np.maximum(rho + share * drho - f - share * df, 0.0)
            inner = float(np.vdot(theta + share * dtheta, dtheta))
            return inner - drho + self.C * float(slack @ (drho - df))

        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if slope(middle) <= 0.0 else (low, middle)
        return low

    # ------------------------------------------------------------------ mu

    def step(self, point: _Point, tol: float) -> _Point | None:
        """Return the machine of a better mu; None where rounding leaves none."""
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
            # The primal's error is the square of the dual's, and drowns in rounding before it.
            if rise <= ROUNDING * abs(point.value) and self.bound(following) > self.bound(point):
                return following
            share *= 0.3
        return None

    def _direction(self, point: _Point, gradient: NDArray) -> NDArray:
        """Return the way to the minimum over the simplex of phi's quadratic model."""
        size = max(float(np.abs(gradient).max()), np.finfo(np.float64).tiny)
        hessian = self._curvature(point) / size
        T = gradient.size
        hessian[np.diag_indices(T)] += RIDGE * max(float(np.trace(hessian)) / T, 1.0)
        linear = gradient / size - hessian @ point.mu
        rows = np.ones((1, T))
        upper, lower = np.append(np.ones(T), 1.0), np.append(np.zeros(T), 1.0)
        sense = np.zeros(T + 1, dtype=np.int32)
        sense[T] = 5  # equality
        mu, _, flag, _ = daqp.solve(hessian, linear, rows, upper, lower, sense, primal_tol=1e-12)
        if flag < 0 or not np.all(np.isfinite(mu)):
            # Towards the labelling violated most.
            mu = np.zeros(T)
            mu[int(gradient.argmin())] = 1.0
        return mu - point.mu

    def _curvature(self, point: _Point) -> NDArray:
        """Return phi's second derivatives J'PJ, J_t = y_t o F F'(alpha o y_t) inside the margin.

        P = H^-1 - H^-1 11' H^-1 / (1'H^-1 1) with H = BB' + I/C: alpha moves inside the simplex.
        """
        rows = point.system.rows
        J = (self.Y[:, rows] * (point.normals @ self.F[rows].T)).T
        whole = point.system.form(np.column_stack([J, np.ones(rows.size)]))
        across = whole[:-1, -1:]
        hessian = whole[:-1, :-1] - across @ across.T / whole[-1, -1]
        return 0.5 * (hessian + hessian.T)
