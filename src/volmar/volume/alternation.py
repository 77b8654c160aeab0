"""Exact alternation between labels and soft responses, for any strength of the regulariser."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from volmar.solvers import Status
from volmar.volume.problem import VolumeProblem, signs
from volmar.volume.refinement import Allowed
from volmar.volume.sqp import SoftResponses

MAX_NEWTON = 100
# If the bracket of eta is narrower than this (relative) and the norm of h is still too small, the
# rest of h lies along the eigenvector at the end of the bracket (More and Sorensen's hard case).
NARROW = 1e-10


@dataclass(frozen=True)
class Minimiser:
    """Soft responses that are optimal for given labels, with their multipliers."""

    h: NDArray
    eta: float
    kappa: float


@dataclass(frozen=True)
class _SecularPoint:
    """h(eta) with its derivative, on the plane 1'h = total (no plane if total is None)."""

    h: NDArray
    slope: NDArray
    kappa: float
    convex: bool
    length: float


class _Secular:
    r"""The secular equation of :math:`\min_h -2y'h + \gamma h'Qh`, |h| = 1, perhaps 1'h = total.

    With :math:`A = \gamma Q - \eta I` the optimality conditions are :math:`A h = y - \kappa 1`.
    On the plane, h = (total/n) 1 + g with g orthogonal to 1 and :math:`|g|^2 = r^2 = 1 -
    total^2/n`. Without the plane, g = h and r = 1. As a function of eta below the first pole,
    1/|g| is concave and decreasing (to zero at the pole, outside the hard case). Newton's method
    on 1/|g| = 1/r therefore converges monotonically from the side of the pole. From the other
    side, one step crosses the root, and bisection brings it back if it crosses the pole as well.
    The search starts at `highest` or below.
    """

    def __init__(
        self,
        problem: VolumeProblem,
        y: NDArray,
        total: float | None,
        eigenvalues: NDArray,
        highest: float = np.inf,
    ):
        self.highest = highest
        self.problem = problem
        self.y = y
        self.total = total
        self.eigenvalues = eigenvalues
        self.radius = 1.0 if total is None else float(np.sqrt(1 - total**2 / problem.n))

    def solve(self, tol: float) -> Minimiser:
        """Find eta by a safeguarded Newton method and return h(eta)."""
        low, high = self._below(), np.inf
        eta = min(self._guess(), self.highest)
        width = max(abs(low), self.problem.reg * self.problem.operator.bounds[1])
        first = low
        for _ in range(MAX_NEWTON):
            try:
                point = self._at(eta)
            except (np.linalg.LinAlgError, ZeroDivisionError):  # a pole, possibly removable
                eta -= NARROW * width
                if eta <= low:
                    break
                point = self._at(eta)
            if point.convex and abs(point.length - self.radius) <= tol * self.radius:
                return self._finished(point, eta)
            if point.convex and point.length < self.radius:
                low = eta
            else:
                high = eta
            if high - low <= NARROW * width:
                break
            newton = np.nan
            slope = float(point.h @ point.slope)
            if point.convex and slope > 0:
                newton = eta + point.length**2 * (1 - point.length / self.radius) / slope
            if not low < newton < high:
                newton = (low + high) / 2 if np.isfinite(high) else eta + abs(eta - first) + 1.0
            eta = newton
        return self._hard_case(low)

    def _below(self) -> float:
        """Return an eta at which h is too short: A >= |linear term| / r there."""
        n, reg = self.problem.n, self.problem.reg
        low, high = self.problem.operator.bounds
        size = np.sqrt(n) + reg * abs(self.total or 0.0) * high / np.sqrt(n)
        return float(reg * min(low, self.eigenvalues[0]) - size / self.radius)

    def _guess(self) -> float:
        """Return the closed-form multiplier of small reg: Rayleigh quotient of y less |y| / r."""
        y = self.y if self.total is None else self.y - self.y.mean()
        square = float(y @ y)
        if square == 0.0:
            return self._below()
        quotient = float(y @ self.problem.operator.matvec(y)) / square
        guess = self.problem.reg * quotient - np.sqrt(square) / self.radius
        # By Jensen's inequality h is too long here, from where Newton's method converges
        # monotonically, provided that the guess is below the pole.
        ceiling = self.problem.reg * float(self.eigenvalues[0])
        return guess if guess < ceiling else max(self._below(), ceiling - 1.0)

    def _at(self, eta: float) -> _SecularPoint:
        problem, shift = self.problem, -eta / self.problem.reg
        n_negative = int(np.sum(self.eigenvalues * problem.reg < eta))
        if self.total is None:
            h = problem.operator.solve(shift, self.y).x / problem.reg
            slope = problem.operator.solve(shift, h).x / problem.reg
            return _SecularPoint(h, slope, 0.0, n_negative == 0, float(np.linalg.norm(h)))
        right = np.column_stack([self.y, np.ones_like(self.y)])
        Zy, Z1 = problem.operator.solve(shift, right).x.T / problem.reg
        mass = float(Z1.sum())
        kappa = (float(Zy.sum()) - self.total) / mass
        h = Zy - kappa * Z1
        Zh = problem.operator.solve(shift, h).x / problem.reg
        slope = Zh - (Zh.sum() / mass) * Z1
        length = float(np.linalg.norm(h - self.total / problem.n))
        return _SecularPoint(h, slope, kappa, n_negative == int(mass < 0), length)

    def _finished(self, point: _SecularPoint, eta: float) -> Minimiser:
        """Rescale h to norm 1 without leaving the plane."""
        center = 0.0 if self.total is None else self.total / self.problem.n
        g = point.h if self.total is None else point.h - point.h.mean()
        h = center + g * (self.radius / np.linalg.norm(g))
        return Minimiser(h, eta, point.kappa)

    def _hard_case(self, eta: float) -> Minimiser:
        """Fill the norm up with the eigenvector at the pole (inverse iteration just below it)."""
        point = self._at(eta)
        reg, solve = self.problem.reg, self.problem.operator.solve
        shift = -eta / reg + 1e-7 * float(np.abs(self.eigenvalues).max())
        Z1 = solve(shift, np.ones(self.problem.n)).x
        vector = np.random.default_rng(0).standard_normal(self.problem.n)
        for _ in range(6):
            image = solve(shift, vector).x
            if self.total is not None:
                image = image - (image.sum() / Z1.sum()) * Z1
            vector = image / np.linalg.norm(image)
        center = 0.0 if self.total is None else self.total / self.problem.n
        g = point.h if self.total is None else point.h - point.h.mean()
        if self.total is not None:
            vector = vector - vector.mean()
            vector = vector / np.linalg.norm(vector)
        # |g + t v| = r has two roots. Their objectives agree in the exact hard case only: if
        # rounding has led here, the larger root would reflect g.
        inner = float(g @ vector)
        rest = max(inner**2 + self.radius**2 - float(g @ g), 0.0)
        t = -inner + np.copysign(np.sqrt(rest), inner)
        return Minimiser(center + g + t * vector, eta, point.kappa)


def minimise_given_labels(
    problem: VolumeProblem, y: NDArray, eigenvalues: NDArray, *, tol: float = 1e-10
) -> Minimiser:
    """Minimise ``-2 y'h + reg h'Qh`` over the unit sphere with ``|1'h| <= balance``.

    The side of the balance constraint with the sign of the labels' sum is tried first. If its eta
    is below the spectrum of reg Q and its kappa has the right sign, the Lagrangian is convex and
    this is the global minimum, which is always the case for a small reg. Otherwise the function
    returns the best of both sides and of the minimum on the whole sphere. (If the latter violates
    the balance constraint, a second, local minimum on the sphere may satisfy it and be lower
    still. This occurred in one of a thousand problems with three rows.)
    """
    leaning = float(y.sum()) or 1.0
    side = float(np.copysign(problem.balance, leaning))
    fits = problem.balance < np.sqrt(problem.n)  # else no point of the sphere lies on the plane
    found: list[Minimiser] = []
    for total in [side, None, -side] if fits else [None]:
        best = _Secular(problem, y, total, eigenvalues).solve(tol)
        if total is None and fits and abs(float(best.h.sum())) > problem.balance:
            continue
        found.append(best)
        convex = best.eta <= problem.reg * float(eigenvalues[0])
        if total is None or (convex and best.kappa * total >= 0):
            break
    if len(found) == 1:
        return found[0]
    matvec, reg = problem.operator.matvec, problem.reg
    return min(found, key=lambda one: reg * (one.h @ matvec(one.h)) - 2 * (y @ one.h))


def alternate(
    problem: VolumeProblem,
    y: NDArray,
    eigenvalues: NDArray,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    allowed: Allowed | None = None,
) -> SoftResponses:
    r"""Minimise in turn over h for given y and over y = sign(h) for given h.

    The objective decreases until the labels no longer change; h is then a stationary point. An
    increase ends the run. While :math:`\gamma \|Q\|_\infty < (1 - |\kappa|) |\eta| / 2`, no
    labelling changes: each is a strict local minimum, and a small reg has no influence on the
    labels. For large reg, h approaches the eigenvectors of Q (JMLR section 4). `eigenvalues`
    holds at least the three smallest eigenvalues of Q. The `field` of the result is h itself.

    If `allowed` restricts the labels, y is the allowed labelling with the largest y'h. The
    objective is then :math:`-2y'h + \gamma h'Qh`, which decreases for the same reason, and the
    residuals are those of h for the last y.
    """
    solved = problem
    history: list[float] = []
    status = Status.MAX_ITER
    for _ in range(max_iter):
        best = minimise_given_labels(problem, y, eigenvalues, tol=tol)
        if allowed is not None:
            solved = replace(problem, sides=y)
        history.append(solved.objective(best.h))
        labels = signs(best.h) if allowed is None else allowed.place(best.h)
        if np.array_equal(labels, y):
            status = Status.CONVERGED
            break
        if len(history) > 1 and history[-1] >= history[-2]:
            status = Status.CYCLE if history[-1] > history[-2] else Status.CONVERGED
            break
        y = labels
    return SoftResponses(
        objective=history[-1],
        residuals=solved.certificate(best.h).residuals,
        status=status,
        n_iter=len(history),
        history=tuple(history),
        h=best.h,
        field=best.h,
        multiplier=best.eta,
        balance_multiplier=best.kappa,
    )
