"""Support vector regression with the L1 loss, certified by a dual point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from volmar.solvers.result import Result, Status

# First width of the smoothed loss, in units of the range of the targets.
FIRST_WIDTH = 0.25
# Factor by which the width shrinks, and its minimum.
NARROWER = 0.2
MIN_WIDTH = 1e-12


@dataclass(frozen=True, repr=False)
class L1RegressionResult(Result):
    """A regression function and the dual point that certifies it.

    The scores are <w, z_i> + b, with the intercept b a median of y_i - <w, z_i>. `dual`
    is beta, with |beta_i| <= C and sum 0. `width` is the last width of the smoothed
    loss, for a warm start of a similar problem.
    """

    normal: NDArray = field(default_factory=lambda: np.empty(0))
    intercept: float = 0.0
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    dual: NDArray = field(default_factory=lambda: np.empty(0))
    width: float = FIRST_WIDTH


def solve_l1_regression(
    space: Any,
    targets: NDArray,
    C: float,
    *,
    start: L1RegressionResult | None = None,
    tol: float = 1e-3,
    max_iter: int = 200,
) -> L1RegressionResult:
    r"""Minimise :math:`\frac12 \|w\|^2 + C \sum_i |y_i - \langle w, z_i \rangle - b|`.

    Uses Newton's method on a smoothed loss that is quadratic within `width` of zero. The width
    shrinks as fast as the certificate requires. The derivative of the smoothed loss is a point of
    the dual

    .. math:: \max_\beta \; y'\beta - \tfrac12 \Big\| \sum_i \beta_i z_i \Big\|^2
              \quad \text{subject to} \quad |\beta_i| \le C, \; 1'\beta = 0

    because b is found exactly for every w, which makes its sum zero. Only rows within the width
    contribute to the second derivative, and these are few near the end.

    Vectors of the `space` are arrays. Its `newton_direction` solves
    (I + stiffness sum_A (z_i - m)(z_i - m)') x = g approximately for x, with m the mean of the
    active rows A, and `fits` tells whether any scores of these rows can nearly be attained.

    `start` is the result for similar targets in the same space, and `tol` the relative duality gap
    at which to stop. The status is FAILED if rounding prevents progress before that, or if the
    recomputed scores of the result do not reach `tol` as the accumulated ones did.
    """
    search = _Search(space, np.asarray(targets, dtype=np.float64), C, start)
    status = Status.MAX_ITER
    best_gap = best_smoothed = np.inf
    waited, widened = 0, False
    history: list[float] = []
    for _ in range(max_iter):
        search.certify()
        history.append(search.upper)
        if search.gap <= tol * search.upper < np.inf:
            status = Status.CONVERGED
            break
        closer = search.gap < 0.99 * best_gap or search.smoothed_gap < 0.99 * best_smoothed
        waited = 0 if closer else waited + 1
        best_gap = min(best_gap, search.gap)
        best_smoothed = min(best_smoothed, search.smoothed_gap)
        # Maximum number of steps without a smaller gap, after which rounding prevents progress.
        if waited > 12 or search.width < MIN_WIDTH * search.range:
            if widened:
                status = Status.FAILED
                break
            # The rows within a narrow width may be the wrong ones: restart once with a wide one.
            search.width, widened, waited = FIRST_WIDTH * search.range, True, 0
            best_smoothed = np.inf
            continue
        # Share of the gap at which the gap of the smoothed problem is small enough to narrow the
        # width.
        if search.smoothed_gap <= 0.3 * search.gap:
            best_smoothed = np.inf
            if search.narrow():
                continue
        search.step()
    return search.result(status, tuple(history), tol)


class _Search:
    """The current point: w, its scores, the smoothed loss and its bounds."""

    def __init__(self, space: Any, y: NDArray, C: float, start: L1RegressionResult | None):
        self.space, self.y, self.C = space, y, C
        self.range = float(np.ptp(y)) or 1.0
        # beta = 0 is a dual point of value 0.
        self.lower, self.upper = 0.0, np.inf
        self.dual = np.zeros(space.n_rows)
        if start is None:
            self.width = FIRST_WIDTH * self.range
            self._first_point()
        else:
            # Minimum first width for a warm start: the rows within the width may be others now.
            self.width = max(start.width, 0.005 * self.range)
            self.w, self.b = start.normal, start.intercept
            self.f = start.scores - start.intercept
        self.best = self.w

    def _first_point(self) -> None:
        """Start along sum_i beta_i z_i with every beta_i at a bound, as for a small C."""
        self.f = np.zeros(self.space.n_rows)
        self.b = _median(self.y)
        beta = balanced(np.sign(self.y - self.y.mean()) * self.C)
        direction = self.space.vector(beta)
        self.w = np.zeros_like(direction)
        if self._inner(direction, direction) <= 0:
            return
        scores = self._scores(direction)
        # The step of the dual is 1; shorten it if the fitted range exceeds that of the targets.
        spread = np.sqrt(np.mean(scores**2))
        t = min(1.0, self.range / (2 * spread)) if spread > 0 else 1.0
        self.w, self.f = t * direction, t * scores

    def _inner(self, one: NDArray, other: NDArray) -> float:
        return float(self.space.inner(one, [other])[0])

    def _scores(self, w: NDArray) -> NDArray:
        return self.space.scores(w).astype(np.float64, copy=False)

    # ------------------------------------------------------------------ certificate

    def certify(self) -> None:
        """Find b for w, and update the bounds and gaps."""
        beta, scaled = self._certificate()
        square = self._inner(self.w, self.w)
        self.primal = 0.5 * square + self.C * float(np.abs(self.r).sum())
        value = float(beta @ self.y) - 0.5 * self._inner(self.u, self.u)
        if value > self.lower:
            self.lower, self.dual = value, beta
        if self.primal < self.upper:
            self.upper, self.best = self.primal, self.w
        self.gap = self.upper - self.lower
        # The term width c s^2 / 2 of the smoothed primal and dual cancels in their gap.
        self.smoothed_gap = 0.5 * square + self.C * float(self.r @ scaled) - value

    def _certificate(self) -> tuple[NDArray, NDArray]:
        """Set b, residuals and u = sum_i beta_i z_i; return beta and the clipped r / width."""
        r = self.y - self.f
        self.b = self._best_intercept(r)
        self.r = r - self.b
        scaled = np.clip(self.r / self.width, -1.0, 1.0)
        beta = balanced(self.C * scaled)
        self.u = self.space.vector(beta)
        return beta, scaled

    def _best_intercept(self, r: NDArray) -> float:
        """Return a root b of sum_i clip((r_i - b) / width), which decreases in b."""

        def total(b: float) -> float:
            return float(np.clip((r - b) / self.width, -1.0, 1.0).sum())

        low, high = float(r.min()) - self.width, float(r.max()) + self.width
        if not np.isfinite(high - low):
            return self.b
        b = brentq(total, low, high, xtol=1e-15 * (high - low))
        return b if np.any(np.abs(r - b) < self.width) else self._middle(r, b)

    def _middle(self, r: NDArray, b: float) -> float:
        """Return the midpoint of the residuals on either side of b, if none is within the width.

        All values in between are equally good, but the next step from an end would be short.
        """
        below, above = r[r < b], r[r > b]
        if below.size == 0 or above.size == 0:
            return b
        return 0.5 * float(below.max() + above.min())

    # ------------------------------------------------------------------ step

    def narrow(self) -> bool:
        """Shrink the width of the smoothed loss; return whether w was updated.

        If the rows within the width can all be fitted exactly, they are the rows that the solution
        interpolates: their residuals shrink with the width, while beta is constant. One Newton
        step that keeps these rows active is then nearly sufficient for the new width.
        """
        active = self._active()
        self.width *= NARROWER
        if active.any() and self.space.fits(active):
            pull = np.where(active, self.r / self.width, np.sign(self.r))
            shift = float(pull.sum()) * self.width / np.count_nonzero(active)
            pull[active] -= shift / self.width
            if self._move(self.space.vector(self.C * pull), active, shift):
                return True
        self._certificate()
        return False

    def step(self) -> None:
        """Take a Newton step of the smoothed problem, with a line search."""
        self._move(self.u, self._active(), 0.0)

    def _active(self) -> NDArray:
        return np.abs(self.r) < self.width

    def _move(self, u: NDArray, active: NDArray, shift: float) -> bool:
        """Move to the minimum of the quadratic model of the active rows; return whether it moved.

        `u` is sum_i beta_i z_i of the model, after b has changed by `shift`.
        """
        x = self.space.newton_direction(u - self.w, active, self.C / self.width)
        d = self._scores(x)
        if active.any():
            shift -= float(d[active].mean())
        t = self._line_search(x, d + shift)
        if t == 0.0:
            return False
        self.w = self.w + t * x
        self.f = self.f + t * d
        self.b += t * shift
        return True

    def _line_search(self, x: NDArray, e: NDArray) -> float:
        """Return the t in (0, 1] with the lowest smoothed objective, or 0 if it increases."""
        linear, square = self._inner(self.w, x), self._inner(x, x)

        def slope(t: float) -> float:
            pull = np.clip((self.r - t * e) / self.width, -1.0, 1.0)
            return linear + t * square - self.C * float(e @ pull)

        if not slope(0.0) < 0:
            return 0.0
        # A long step has its minimum close to 0, so only the relative precision counts.
        return 1.0 if slope(1.0) <= 0 else brentq(slope, 0.0, 1.0, xtol=1e-300, rtol=1e-3)

    # ------------------------------------------------------------------ answer

    def result(self, status: Status, history: tuple[float, ...], tol: float) -> L1RegressionResult:
        """Return the best point, with the optimal intercept of the loss without smoothing."""
        w = self.space.refreshed(self.best)
        f = self._scores(w)
        b = _median(self.y - f)
        square = self._inner(w, w)
        primal = 0.5 * square + self.C * float(np.abs(self.y - f - b).sum())
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
            width=self.width,
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


def _median(values: NDArray) -> float:
    """Return the lower median, which is one of the values."""
    return float(np.sort(values)[(values.size - 1) // 2])
