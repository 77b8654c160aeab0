"""Support vector regression with the L1 loss, certified by a dual point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from volmar.solvers.result import Result, Status

# First width of the smoothed loss and the least one, in units of the range of the targets, and the
# factor by which it shrinks.
FIRST_WIDTH, MIN_WIDTH, NARROWER = 0.25, 1e-12, 0.2


@dataclass(frozen=True, repr=False)
class L1RegressionResult(Result):
    """A regression function and the dual point that certifies it.

    The scores are <w, z_i> + b, with the intercept b a median of y_i - <w, z_i>. `dual`
    is beta, with |beta_i| <= C and sum 0.
    """

    normal: NDArray = field(default_factory=lambda: np.empty(0))
    intercept: float = 0.0
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    dual: NDArray = field(default_factory=lambda: np.empty(0))


def solve_l1_regression(
    space: Any, targets: NDArray, C: float, *, tol: float = 1e-3, max_iter: int = 200
) -> L1RegressionResult:
    r"""Minimise :math:`\frac12 \|w\|^2 + C \sum_i |y_i - \langle w, z_i \rangle - b|`.

    Uses Newton's method on a smoothed loss that is quadratic within a width of zero. The width
    shrinks as fast as the certificate requires. The derivative of the smoothed loss is a point of
    the dual

    .. math:: \max_\beta \; y'\beta - \tfrac12 \Big\| \sum_i \beta_i z_i \Big\|^2
              \quad \text{subject to} \quad |\beta_i| \le C, \; 1'\beta = 0

    because b is found exactly for every w, which makes its sum zero. Only rows within the width
    contribute to the second derivative, and these are few near the end. The solution interpolates
    them: their residuals shrink with the width, while beta is constant. After the width has
    shrunk they therefore remain the active rows of the next step.

    Vectors of the `space` are arrays. Its `newton_direction` solves
    (I + stiffness sum_A (z_i - m)(z_i - m)') x = g approximately for x, with m the mean of the
    active rows A.

    `tol` is the relative duality gap at which to stop. The status is FAILED if rounding prevents
    progress before that, or if the recomputed scores of the result do not reach `tol` as the
    accumulated ones did.
    """
    search = _Search(space, np.asarray(targets, dtype=np.float64), C)
    status = Status.MAX_ITER
    best_gap, waited = np.inf, 0
    history: list[float] = []
    for _ in range(max_iter):
        smoothed_gap = search.certify()
        gap = search.upper - search.lower
        history.append(search.upper)
        if gap <= tol * search.upper < np.inf:
            status = Status.CONVERGED
            break
        # The width shrinks if the gap of the smoothed problem is a small share of the gap.
        narrows = smoothed_gap <= 0.3 * gap
        waited = 0 if narrows or gap < 0.99 * best_gap else waited + 1
        best_gap = min(best_gap, gap)
        active = np.abs(search.r) < search.width
        search.width *= NARROWER if narrows else 1.0
        # Maximum number of steps without progress, which rounding then prevents.
        if waited > 30 or search.width < MIN_WIDTH * (np.ptp(search.y) or 1.0):
            status = Status.FAILED
            break
        search.step(active)
    return search.result(status, tuple(history), tol)


class _Search:
    """The current point: w, its scores, the smoothed loss and its bounds."""

    def __init__(self, space: Any, y: NDArray, C: float):
        self.space, self.y, self.C = space, y, C
        self.width = FIRST_WIDTH * (float(np.ptp(y)) or 1.0)
        self.f, self.w = np.zeros(y.size), space.vector(np.zeros(y.size))
        # beta = 0 is a dual point of value 0.
        self.lower, self.upper = 0.0, np.inf
        self.dual, self.best = np.zeros(y.size), self.w

    def _inner(self, one: NDArray, other: NDArray) -> float:
        return float(self.space.inner(one, [other])[0])

    def _scores(self, w: NDArray) -> NDArray:
        return self.space.scores(w).astype(np.float64, copy=False)

    def certify(self) -> float:
        """Find b for w, update the bounds, and return the gap of the smoothed problem."""
        r = self.y - self.f
        self.r = r - self._best_intercept(r)
        scaled = np.clip(self.r / self.width, -1.0, 1.0)
        beta = balanced(self.C * scaled)
        u, square = self.space.vector(beta), self._inner(self.w, self.w)
        primal = 0.5 * square + self.C * float(np.abs(self.r).sum())
        value = float(beta @ self.y) - 0.5 * self._inner(u, u)
        if value > self.lower:
            self.lower, self.dual = value, beta
        if primal < self.upper:
            self.upper, self.best = primal, self.w
        # The term width c s^2 / 2 of the smoothed primal and dual cancels in their gap.
        return 0.5 * square + self.C * float(self.r @ scaled) - value

    def _best_intercept(self, r: NDArray) -> float:
        """Return a root b of sum_i clip((r_i - b) / width), which decreases in b."""

        def total(b: float) -> float:
            return float(np.clip((r - b) / self.width, -1.0, 1.0).sum())

        low, high = float(r.min()) - self.width, float(r.max()) + self.width
        b: float = brentq(total, low, high, xtol=1e-15 * (high - low))
        if np.any(np.abs(r - b) < self.width) or not r.min() < b < r.max():
            return b
        # All values between the nearest residuals are equally good, but the next step from an end
        # would be short.
        return 0.5 * float(r[r < b].max() + r[r > b].min())

    def step(self, active: NDArray) -> None:
        """Move to the best point on the way to the minimum of the quadratic model.

        The loss is quadratic for the active rows and linear for others; b changes by `shift`.
        """
        pull = np.where(active, self.r / self.width, np.sign(self.r))
        shift = 0.0
        if active.any():
            shift = self.width * float(pull.sum()) / np.count_nonzero(active)
            pull[active] -= shift / self.width
        g = self.space.vector(self.C * pull) - self.w
        x = self.space.newton_direction(g, active, self.C / self.width)
        d = self._scores(x)
        e = d + shift - (float(d[active].mean()) if active.any() else 0.0)
        linear, square = self._inner(self.w, x), self._inner(x, x)

        def slope(t: float) -> float:
            pull = np.clip((self.r - t * e) / self.width, -1.0, 1.0)
            return linear + t * square - self.C * float(e @ pull)

        if slope(0.0) < 0:
            # A long step has its minimum close to 0, so only the relative precision counts.
            t = 1.0 if slope(1.0) <= 0 else brentq(slope, 0.0, 1.0, xtol=1e-300, rtol=1e-3)
            self.w, self.f = self.w + t * x, self.f + t * d

    def result(self, status: Status, history: tuple[float, ...], tol: float) -> L1RegressionResult:
        """Return the best point, with the optimal intercept of the loss without smoothing."""
        w = self.space.refreshed(self.best)
        f = self._scores(w)
        # The lower median, which is one of the values.
        b = float(np.sort(self.y - f)[(f.size - 1) // 2])
        primal = 0.5 * self._inner(w, w) + self.C * float(np.abs(self.y - f - b).sum())
        gap = max(primal - self.lower, 0.0)
        if status is Status.CONVERGED and gap > tol * primal:
            status = Status.FAILED
        return L1RegressionResult(
            objective=primal,
            gap=gap,
            status=status,
            n_iter=len(history),
            history=history,
            normal=w,
            intercept=b,
            scores=f + b,
            dual=self.dual,
        )


def balanced(beta: NDArray) -> NDArray:
    """Scale the positive or the negative entries, whichever sum is larger, for a total of 0."""
    positive = beta > 0
    plus, minus = float(beta[positive].sum()), -float(beta[~positive].sum())
    if plus == minus:
        return beta
    beta = beta.copy()
    if plus > minus:
        beta[positive] *= minus / plus
    else:
        beta[~positive] *= plus / minus
    return beta
