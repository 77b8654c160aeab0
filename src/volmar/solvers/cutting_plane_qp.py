"""The quadratic programme over a working set of cuts in cutting-plane margin methods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

import daqp
import numpy as np
from scipy.linalg.lapack import dpstrf

from volmar.solvers.result import Certificate, Result, Status

# ------------------------------------------------------------------ the certificate

# Maximum relative distance of G to a Gram matrix, which allows for single precision.
_GRAM_TOLERANCE = 1e-4
_ROUNDING = 1e-15


class NotAGramMatrixError(ValueError):
    """G is not symmetric and positive semi-definite."""


class CertifiedPoint(NamedTuple):
    """A feasible primal and dual pair with its certificate, in the units of the problem."""

    weights: np.ndarray
    rho: float
    xi: float
    t: float
    scores: np.ndarray  # <w, a_k>
    objective: float
    lower_bound: float
    residuals: dict[str, float]
    worst: float


class WorkingSet:
    """The cuts with factorised G and the scales of the problem; certifies candidates."""

    def __init__(
        self,
        G: np.ndarray,
        s: np.ndarray,
        m: np.ndarray,
        C: float,
        tau: float,
        threshold: str,
        balance: str,
    ) -> None:
        G, s, m = (np.asarray(array, dtype=np.float64) for array in (G, s, m))
        _check(G, s, m, C, tau, threshold, balance)
        self.s, self.m, self.C = s, m, float(C)
        self.adaptive = threshold == "adaptive"
        self.relative = self.adaptive and balance == "relative"
        # t has no effect if the box has width zero or no cut depends on t. Then it is set to 0.
        self.s_max = float(np.abs(s).max())
        self.tau = float(tau) if self.s_max > 0 else 0.0
        self.g, self.F, self.defect = _factor(G)
        # The cut for which the constraint of the adaptive dual is easiest to satisfy.
        reach = m - self.tau * np.abs(s) if self.relative else m
        self.best_cut = int(reach.argmax())
        self.reach = float(reach[self.best_cut])
        # Scale of the weights: that of a single cut, at the constraint or the optimum of the dual.
        m_max = float(m.max())
        if self.adaptive:
            self.unit = 1.0 / m_max if m_max > 0 else 1.0
        else:
            self.unit = m_max / self.g if 0 < m_max < C * self.g else C
        # Contribution of a single cut to the objective: the scale if all other terms vanish.
        self.size = self.g * self.unit**2 or self.tau * self.s_max * self.unit or 1.0

    def smallest_bounded_penalty(self) -> float:
        """Return the smallest C for which the adaptive dual is feasible: 1 / the largest reach."""
        reach = self.reach
        if self.C * reach < 1.0 and self.relative:
            # m'l - tau |s'l| is linear on either side of s'l = 0, so its maximum over the simplex
            # is at a cut or where the edge between two cuts crosses s'l = 0.
            up, down = self.s > 0, self.s < 0
            if up.any() and down.any():
                s_up, s_down = self.s[up, None], -self.s[down]
                crossing = (self.m[up, None] * s_down + self.m[down] * s_up) / (s_up + s_down)
                reach = max(reach, float(crossing.max()))
        return 1.0 / reach if reach > 0 else math.inf

    def certify(self, weights: np.ndarray, rho: float, t: float) -> CertifiedPoint:
        """Convert a candidate to a feasible primal and dual pair, and compare their values."""
        s, m, C, tau = self.s, self.m, self.C, self.tau
        weights = self._dual_feasible(np.maximum(weights, 0.0))
        total, reach, pull = float(weights.sum()), float(m @ weights), float(s @ weights)
        if abs(pull) <= _ROUNDING * self.s_max * total:
            pull = 0.0  # rounding, which a very wide, inactive box would magnify
        coordinates = weights @ self.F
        scores = self.g * (self.F @ coordinates)
        energy = 0.5 * self.g * float(coordinates @ coordinates)

        rho = max(rho, 0.0) if self.adaptive else 1.0
        box = tau * rho if self.relative else tau
        t = min(max(t, -box), box)
        margins = rho * m - scores - t * s
        worst_margin = float(margins.max())
        xi = max(worst_margin, 0.0)

        objective = energy + C * xi - (rho if self.adaptive else 0.0)
        lower_bound = -energy + (0.0 if self.adaptive else reach)
        room = reach - 1.0 if self.adaptive else 0.0
        if self.relative:
            room -= tau * abs(pull)
        else:
            lower_bound -= tau * abs(pull)
        size = self.size + energy + C * xi + box * abs(pull)
        size += rho if self.adaptive else abs(reach)
        # The products sum to the duality gap. They are checked one by one, as signs may cancel.
        products = (
            float((weights * (xi - margins)).max()),
            xi * (C - total),
            rho * room,
            box * abs(pull) - t * pull,
        )
        residuals = {
            "primal_feasibility": max(worst_margin - xi, 0.0) * self.unit / size,
            "dual_feasibility": max(0.0, total / C - 1.0, -room),
            "complementarity": max(abs(product) for product in products) / size,
            "duality_gap": abs(objective - lower_bound) / size,
        }
        worst = max(residuals.values())
        return CertifiedPoint(
            weights, rho, xi, t, scores, objective, lower_bound, residuals, worst
        )

    def certificate(self, weights: np.ndarray, rho: float, t: float) -> Certificate:
        """Return objective, duality gap and residuals of a solution, computed from the cuts."""
        point = self.certify(weights, rho, t)
        gap = max(point.objective - point.lower_bound, 0.0)
        return Certificate(point.objective, {**point.residuals, "gram": self.defect}, gap)

    def _dual_feasible(self, weights: np.ndarray) -> np.ndarray:
        total = float(weights.sum())
        if total > self.C:
            weights *= self.C / total
        if self.adaptive:
            reach = float(self.m @ weights)
            if self.relative:
                reach -= self.tau * abs(float(self.s @ weights))
            largest = self.C * self.reach
            if reach < 1.0 - 10 * _ROUNDING and largest > 1.0 + 1e-6:
                # The reach is concave, so a step towards C times the best cut satisfies both.
                step = (1.0 - reach) / (largest - reach)
                weights *= 1.0 - step
                weights[self.best_cut] += step * self.C
            elif 0.0 < reach < 1.0:
                weights /= reach
        return weights

    def without_rounding_slack(self, point: CertifiedPoint) -> CertifiedPoint:
        """Remove a slack due to rounding by a small change of rho or of the weights.

        Scores with errors of 1e-16 give a slack xi of that size, which C = 1e8 makes visible. A
        slightly smaller rho (adaptive), or slightly longer w and t (fixed), removes it.
        """
        weights, t, rho = point.weights, point.t, point.rho
        if self.adaptive:
            ratio = t / rho if self.relative and rho > 0 else 0.0
            slope = self.m - ratio * self.s
            support = point.scores if self.relative else point.scores + t * self.s
            rising = slope > 0
            rho = float((support[rising] / slope[rising]).min()) * (1.0 - _ROUNDING)
            return self.certify(weights, rho, ratio * rho if self.relative else t)
        gain = point.scores if abs(t) >= self.tau else point.scores + t * self.s
        lack = self.m - point.scores - t * self.s
        short = (lack > 0) & (gain > 0)
        stretch = 1.0 + float((lack[short] / gain[short]).max(initial=0.0)) + _ROUNDING
        return self.certify(stretch * weights, rho, stretch * t)


def _check(
    G: np.ndarray, s: np.ndarray, m: np.ndarray, C: float, tau: float, threshold: str, balance: str
) -> None:
    n = m.size
    if m.ndim != 1 or n == 0 or s.shape != m.shape or G.shape != (n, n):
        raise ValueError(
            f"G, s and m must have the shapes (n_cuts, n_cuts), (n_cuts,) and (n_cuts,), got "
            f"{G.shape}, {s.shape} and {m.shape}. Pass one row per cut, and at least one cut."
        )
    if not math.isfinite(float(G.sum()) + float(s.sum()) + float(m.sum())):
        raise ValueError(
            "G, s and m must be finite, got NaN or infinity. Check the scores of the data."
        )
    if not 0.0 < C < math.inf:
        raise ValueError(f"C must be a positive finite number, got {C!r}.")
    if not 0.0 <= tau < math.inf:
        raise ValueError(f"tau must be a finite number of at least 0, got {tau!r}. 0 fixes t = 0.")
    if threshold not in ("adaptive", "fixed"):
        raise ValueError(f"threshold must be 'adaptive' or 'fixed', got {threshold!r}.")
    if balance not in ("absolute", "relative"):
        raise ValueError(f"balance must be 'absolute' or 'relative', got {balance!r}.")


def _factor(G: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Return g and F with G = g F F', and the relative error of this factorisation."""
    g = float(G.diagonal().max())
    n = G.shape[0]
    if g <= 0:
        F, defect = np.zeros((n, 0)), math.inf if G.any() else 0.0
    else:
        scaled = G / g
        packed, pivots, rank, _ = dpstrf(scaled, lower=1)
        F = np.empty((n, rank))
        F[pivots - 1] = (packed * _lower_triangle(n))[:, :rank]
        defect = float(np.abs(F @ F.T - scaled).max())
        if defect > 1e-12:
            # G was rounded and is indefinite. Eigenvectors add no further error.
            values, vectors = np.linalg.eigh(scaled)
            F = vectors * np.sqrt(np.maximum(values, 0.0))
            defect = float(np.abs(F @ F.T - scaled).max())
    if defect > _GRAM_TOLERANCE:
        raise NotAGramMatrixError(
            "G must be the Gram matrix of the cuts, symmetric and positive semi-definite. Its "
            f"relative distance to such a matrix is {defect:.1e}. Pass G = A @ A.T."
        )
    return g, F, defect


@lru_cache(maxsize=64)
def _lower_triangle(n: int) -> np.ndarray:
    return np.tri(n)


# ------------------------------------------------------------------ the solver

# Weights of the proximal term, in the order tried. The first suffices for nearly every working
# set. The others are needed if the active set of daqp cycles or the proximal steps are too short.
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-5, 1e-1)
_MAX_PROXIMAL_STEPS = 30
# A larger weight of the slack is first replaced by this: if xi = 0 here, it is 0 there too.
_HIGH_WEIGHT = 1e6
_INFINITE = 1e30  # in daqp


@dataclass(frozen=True, repr=False)
class CuttingPlaneResult(Result):
    """Solution of the margin problem on one working set of cuts.

    `weights` are the feasible dual variables lambda, with the normal vector w = A.T @ weights, and
    `lower_bound` is their dual value. `xi` is the smallest slack with which (w, rho, t) satisfies
    every cut, with t inside the balance box. `ridge` is the weight of the proximal term used; it
    does not bias the solution. `reason` has cause and remedy if the status is not CONVERGED.

    `residuals` contains ``primal_feasibility``, ``dual_feasibility``, ``complementarity`` and
    ``duality_gap``, each relative to the size of the terms compared. ``gram`` is the relative
    distance between G and the Gram matrix of the solution (rounding errors, if G is a Gram
    matrix). `objective`, `lower_bound` and `gap` are in the units of the problem.
    """

    _solution = ("weights", "rho", "t")

    weights: np.ndarray = field(default_factory=lambda: np.zeros(0), compare=False)
    rho: float = float("nan")
    xi: float = float("nan")
    t: float = float("nan")
    lower_bound: float = float("-inf")
    ridge: float = float("nan")
    reason: str = ""


def solve_cutting_plane_qp(
    G: np.ndarray,
    s: np.ndarray,
    m: np.ndarray,
    *,
    C: float,
    tau: float = 0.0,
    threshold: Literal["adaptive", "fixed"] = "adaptive",
    balance: Literal["absolute", "relative"] = "absolute",
) -> CuttingPlaneResult:
    r"""Solve the margin problem on a working set of cuts, with multipliers and a certificate.

    With cuts :math:`(a_k, s_k, m_k)` and :math:`G = A A^\top` the adaptive problem (SKMMC eq. 11,
    centred) is

    .. math::

        \min_{w,\,\rho \ge 0,\,\xi \ge 0,\,t} \tfrac12 \|w\|^2 - \rho + C \xi
        \quad\text{s.t.}\quad \rho m_k - \langle w, a_k \rangle - t s_k \le \xi,
        \quad |t| \le \tau \ \text{ or }\ |t| \le \tau \rho,

    and the fixed problem (SKMMC eq. 7 and 37) has :math:`\rho = 1` and no :math:`-\rho`. With
    :math:`w = A^\top \lambda` the duals over :math:`\lambda \ge 0`,
    :math:`1^\top \lambda \le C` maximise

    - adaptive, absolute balance: :math:`-\frac12 \lambda^\top G \lambda - \tau |s^\top \lambda|`
      subject to :math:`m^\top \lambda \ge 1`;
    - adaptive, relative balance: :math:`-\frac12 \lambda^\top G \lambda` subject to
      :math:`m^\top \lambda - \tau |s^\top \lambda| \ge 1`;
    - fixed: :math:`m^\top \lambda - \frac12 \lambda^\top G \lambda - \tau |s^\top \lambda|`.

    Parameters
    ----------
    G : ndarray of shape (n_cuts, n_cuts)
        Gram matrix of the cuts; may have any scale and be singular.
    s : ndarray of shape (n_cuts,)
        Coefficient of the mean score t in each cut.
    m : ndarray of shape (n_cuts,)
        Coefficient of the margin rho in each cut.
    C : float
        Weight of the slack, positive.
    tau : float, default=0.0
        Half-width of the balance box; 0 fixes t = 0.
    threshold : {"adaptive", "fixed"}, default="adaptive"
        Whether rho is a variable ("adaptive") or 1 ("fixed").
    balance : {"absolute", "relative"}, default="absolute"
        Whether tau bounds abs(t) or abs(t) / rho. The two are equal if rho is 1.

    Returns
    -------
    CuttingPlaneResult
        The status is UNBOUNDED if the adaptive dual has no feasible point: rho has no limit then.

    Notes
    -----
    daqp solves the primal in (rho, xi, t, v), where v are the coordinates of w in a pivoted
    Cholesky factor of G. Hence a singular G needs no regularisation, and the multipliers of the
    cuts are the weights. Only rho, xi and t lack curvature. They take proximal steps, whose
    fixed point is the exact solution. These start from zero, which selects small values if the
    solution is not unique (C = 1). There is no division by a multiplier; SKMMC's eq. 24 for rho is
    0/0 if rho and xi are positive.

    Examples
    --------
    One cut with ``a = (2, 0)``: w = a, and the margin is its squared length.

    >>> import numpy as np
    >>> G, s, m = np.array([[4.0]]), np.array([0.0]), np.array([1.0])
    >>> result = solve_cutting_plane_qp(G, s, m, C=2.0)
    >>> round(result.rho, 9), round(result.objective, 9), result.is_certified(1e-9)
    (4.0, -2.0, True)
    """
    cuts = WorkingSet(G, s, m, C, tau, threshold, balance)
    if cuts.adaptive:
        needed = cuts.smallest_bounded_penalty()
        if needed * (1.0 - 1e-12) > C:
            return _unbounded(cuts, needed)
    best, best_ridge, n_iter = None, float("nan"), 0
    for point, ridge, steps in _candidates(cuts):
        n_iter += steps
        if best is None or point.worst < best.worst:
            best, best_ridge = point, ridge
        # Relative residual at which the search ends, and the largest that still counts as solved.
        if best.worst <= 1e-10:
            break
    if best is None:
        return CuttingPlaneResult(
            objective=float("nan"),
            status=Status.FAILED,
            weights=np.zeros(cuts.m.size),
            reason="daqp could not solve any of the proximal problems; rescale the data",
        )
    solved = best.worst <= 1e-6
    return CuttingPlaneResult(
        objective=best.objective,
        gap=max(best.objective - best.lower_bound, 0.0),
        residuals={**best.residuals, "gram": cuts.defect},
        status=Status.CONVERGED if solved else Status.FAILED,
        n_iter=n_iter,
        weights=best.weights,
        rho=best.rho,
        xi=best.xi,
        t=best.t,
        lower_bound=best.lower_bound,
        ridge=best_ridge,
        reason=""
        if solved
        else f"the residual does not fall below {best.worst:.1e}; rescale the data",
    )


def _unbounded(cuts: WorkingSet, needed: float) -> CuttingPlaneResult:
    remedy = (
        f"raise C to at least {needed:.6g}" if math.isfinite(needed) else "add a cut with m > 0"
    )
    if cuts.relative and cuts.tau > 0:
        remedy += " or lower tau"
    return CuttingPlaneResult(
        objective=float("-inf"),
        status=Status.UNBOUNDED,
        weights=np.zeros(cuts.m.size),
        rho=float("inf"),
        reason=f"rho is unbounded at C = {cuts.C:.6g} on this working set: {remedy}",
    )


def _candidates(cuts: WorkingSet) -> Iterator[tuple[CertifiedPoint, float, int]]:
    """Yield certified candidates, each with its ridge and number of steps, most likely first."""
    scales = _score_scales(cuts)
    slack_weight = min(cuts.C / cuts.unit, _HIGH_WEIGHT)
    for ridge in _RIDGES:
        for scale in scales:
            found = _proximal_steps(cuts, scale, ridge, slack_weight)
            if found is None:
                continue
            weights, rho, t, steps = found
            point = cuts.certify(weights, rho, t)
            yield point, ridge, steps
            if point.xi > 0:
                yield cuts.without_rounding_slack(point), ridge, 0
                slack_weight = cuts.C / cuts.unit


def _score_scales(cuts: WorkingSet) -> tuple[float, ...]:
    """Return possible sizes of the scores <w, a_k> + t s_k at the solution."""
    if not cuts.adaptive:
        return (max(float(cuts.m.max()), 0.0) or 1.0,)
    by_cuts = cuts.g * cuts.unit
    if cuts.relative:
        return (by_cuts or 1.0,)
    # A wide box may be inactive, so that the cuts set the scale, or it may limit rho.
    by_box = cuts.tau * cuts.s_max
    if by_box <= by_cuts or by_cuts == 0.0:
        return (max(by_box, by_cuts) or 1.0,)
    return by_cuts, by_box


def _proximal_steps(
    cuts: WorkingSet, scale: float, ridge: float, slack_weight: float
) -> tuple[np.ndarray, float, float, int] | None:
    """Return weights, rho and t of the primal for a weight of the slack, and the number of steps.

    In units of `scale` for scores and `cuts.unit` for weights, the entries of every column of the
    programme are at most about 1.
    """
    s, m, F, unit = cuts.s, cuts.m, cuts.F, cuts.unit
    adaptive, with_t = cuts.adaptive, cuts.tau > 0
    n, rank = F.shape
    i_xi = int(adaptive)
    n_free = i_xi + 1 + int(with_t)
    n_rows = n + (2 if with_t and cuts.relative else 0)
    rho_unit = scale * unit if adaptive else 1.0

    rows = np.zeros((n_rows, n_free + rank))
    cost = np.zeros(n_free + rank)
    upper = np.zeros(n_free + n_rows)
    lower = np.full(n_free + n_rows, -_INFINITE)
    upper[:n_free] = _INFINITE
    lower[: i_xi + 1] = 0.0
    if adaptive:
        rows[:n, 0] = m * unit
        cost[0] = -1.0
    else:
        upper[n_free : n_free + n] = m / -scale
    rows[:n, i_xi] = -1.0
    cost[i_xi] = slack_weight
    t_unit = 0.0
    if with_t:
        t_unit = scale / cuts.s_max
        rows[:n, -1 - rank] = s / -cuts.s_max
        if cuts.relative:
            rows[n:, 0] = -cuts.tau * rho_unit / t_unit
            rows[n:, -1 - rank] = 1.0, -1.0
        else:
            upper[n_free - 1] = cuts.tau / t_unit
            lower[n_free - 1] = -cuts.tau / t_unit
    np.multiply(F, -math.sqrt(cuts.g * unit / scale), out=rows[:n, n_free:])

    curvature = np.ones(n_free + rank)
    curvature[:n_free] = ridge
    curvature[i_xi] *= slack_weight
    linear = cost[:n_free].copy()
    centre = np.zeros(n_free)
    sense = np.zeros(n_free + n_rows, dtype=np.int32)
    hessian = np.diag(curvature)
    steps = 0
    while steps < _MAX_PROXIMAL_STEPS:
        steps += 1
        if steps % 5 == 0:
            # If cuts have nearly equal m, rho and xi need many steps: lengthen the steps.
            curvature[:n_free] *= 0.1
            hessian = np.diag(curvature)
        proximal = curvature[:n_free]
        cost[:n_free] = linear - proximal * centre
        solution, _, flag, info = daqp.solve(
            hessian, cost, rows, upper, lower, sense, primal_tol=1e-12, eps_prox=0.0
        )
        if flag < 0:
            return None
        moved = float(np.abs(proximal * (solution[:n_free] - centre)).max())
        centre = solution[:n_free].copy()
        if moved <= 1e-14:
            break
    weights = info["lam"][n_free : n_free + n] * unit
    rho = float(centre[0]) * rho_unit if adaptive else 1.0
    return weights, rho, float(centre[-1]) * t_unit, steps
