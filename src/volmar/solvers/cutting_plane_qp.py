"""The quadratic programme over a working set of cuts in cutting-plane margin methods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import daqp
import numpy as np

from volmar.solvers.cutting_plane_certificate import CertifiedPoint, WorkingSet
from volmar.solvers.result import Result, Status

# Weights of the proximal term, in the order tried. The first suffices for nearly every working
# set. The others are needed if the active set of daqp cycles or the proximal steps are too short.
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-5, 1e-1)
_MAX_PROXIMAL_STEPS = 30
# Relative residual at which the search ends, and the largest that still counts as solved.
_TARGET, _ACCEPTED = 1e-10, 1e-6
# A larger weight of the slack is first replaced by this: if xi = 0 here, it is 0 there too.
_HIGH_WEIGHT = 1e6
_INFINITE = 1e30  # in daqp


@dataclass(frozen=True, repr=False)
class CuttingPlaneResult(Result):
    """Solution of the margin problem on one working set of cuts.

    Attributes
    ----------
    weights : ndarray of shape (n_cuts,)
        Dual variables lambda, feasible; the normal vector is ``w = A.T @ weights``.
    rho : float
        Margin; 1 for the fixed threshold.
    xi : float
        Smallest slack with which (w, rho, t) satisfies every cut of the working set.
    t : float
        Mean score, inside the balance box.
    lower_bound : float
        Dual value at `weights`. No feasible point has a smaller objective.
    ridge : float
        Weight of the proximal term that was used. It does not bias the solution.
    reason : str
        If `status` is not CONVERGED, the cause and a remedy.

    Notes
    -----
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
        if best.worst <= _TARGET:
            break
    if best is None:
        return CuttingPlaneResult(
            objective=float("nan"),
            status=Status.FAILED,
            weights=np.zeros(cuts.m.size),
            reason="daqp could not solve any of the proximal problems; rescale the data",
        )
    solved = best.worst <= _ACCEPTED
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
