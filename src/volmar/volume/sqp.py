"""Algorithm 1 of the papers: sequential quadratic programming with steps in closed form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from volmar.solvers import Result, Status
from volmar.volume.problem import SINGULAR, VolumeProblem, signs


@dataclass(frozen=True, repr=False)
class SoftResponses(Result):
    """Soft responses h of the problem, with their multipliers and the underlying smooth field.

    Attributes
    ----------
    h : ndarray of shape (n,)
        Soft responses, of norm 1.
    field : ndarray of shape (n,)
        Smooth field of the linear solve that moved labels (x of `QPStep`), or h itself if the
        signs of that field are not the labels.
    field_residual : float
        Recomputed relative residual of the linear system of the field. NaN if the field does not
        come from `FirstStep`.
    multiplier : float
        Multiplier eta of the norm constraint.
    balance_multiplier : float
        Multiplier kappa of the balance constraint: positive if ``1'h = b``, negative if
        ``1'h = -b``.
    """

    _solution = ("h",)

    h: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    field: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    field_residual: float = np.nan
    multiplier: float = np.nan
    balance_multiplier: float = 0.0


@dataclass(frozen=True)
class QPStep:
    """Solution x = h + p of the quadratic program (JMLR eq. 5) with its multipliers.

    ``(reg Q - eta_t I) x = sign(h) + (eta - eta_t) h - kappa 1``. `value` is
    ``x'(reg Q - eta_t I)x - 2 sign(h)'x``, the objective of the program up to terms that are
    constant over all feasible x.
    """

    x: NDArray
    eta: float
    kappa: float
    value: float


def solve_qp(
    problem: VolumeProblem, h: NDArray, eta: float, eigenvalues: NDArray
) -> QPStep | None:
    r"""Solve the quadratic program of a step (JMLR eq. 5) by its optimality conditions.

    In the new iterate x = h + p and with :math:`A = \gamma Q - \eta I`, s = sign(h),

    .. math:: A x = s + a h - \kappa 1, \qquad h'x = (1 + h'h) / 2, \qquad |1'x| \le b,

    which takes three solves with A and a 2 x 2 system for (a, kappa), and no product with Q. The
    multiplier of the norm constraint is exactly :math:`\eta + a`. The papers' formula (eq. 7, see
    `sqp`) agrees with it only while the balance constraint is inactive. The part of s along h is
    absorbed in a, which avoids cancellation at the start, where s is parallel to h.

    The three smallest `eigenvalues` of Q (all for n < 3) determine the number of negative
    eigenvalues of A. Returns None if the program has no minimum, because A is not definite on the
    feasible directions.
    """
    s = signs(h)
    along = float(h @ s) / float(h @ h)
    rest = s - along * h
    ones = np.ones_like(h)
    images = problem.operator.solve(-eta / problem.reg, np.column_stack([h, ones, rest])).x
    Zh, Z1, Zs = images.T / problem.reg
    gram = np.array([[h @ Zh, h @ Z1], [ones @ Zh, ones @ Z1]])
    n_negative = int(np.sum(eigenvalues * problem.reg < eta))
    right = (1 + h @ h) / 2

    def step(a: float, kappa: float) -> QPStep:
        x = Zs + a * Zh - kappa * Z1
        change = a - along
        return QPStep(x, eta + change, kappa, float(change * right - kappa * x.sum() - s @ x))

    if n_negative == int(gram[0, 0] < 0):
        idle = step((right - h @ Zs) / gram[0, 0], 0.0)
        total = float(idle.x.sum())
        if abs(total) <= problem.balance:
            return idle
        sides = [np.copysign(problem.balance, total)]
    elif n_negative == int(np.sum(np.linalg.eigvalsh(gram) < 0)):
        sides = [-problem.balance, problem.balance]  # bounded only by the balance constraint
    else:
        return None
    system = gram * [1.0, -1.0]
    if abs(np.linalg.det(system)) <= SINGULAR * abs(gram[0, 0] * gram[1, 1]):
        raise ValueError(
            "the soft responses at the start are the same for all rows, and no step from there "
            f"satisfies balance={problem.balance:.3g}, because the matrix Q does not distinguish "
            "the rows. Check that the rows differ, or pass another Q."
        )
    steps = [
        step(*np.linalg.solve(system, [right - h @ Zs, side - ones @ Zs]).tolist())
        for side in sides
    ]
    return min(steps, key=lambda one: one.value)


def is_above(problem: VolumeProblem, eta: float, eigenvalues: NDArray) -> bool:
    r"""Return whether :math:`\eta \ge \gamma \lambda_1`, where a program may have no minimum.

    Always False with balance = 0, which the paper uses only for the limit of section 4. All soft
    responses are then on the plane 1'h = 0, and the Lagrangian need not be bounded elsewhere.
    """
    return problem.balance > 0 and eta >= problem.reg * float(eigenvalues[0])


def sqp(
    problem: VolumeProblem,
    h0: NDArray,
    eigenvalues: NDArray,
    *,
    eta0: float = 0.0,
    tol: float = 1e-6,
    algorithm: Literal["jmlr", "aistats"] = "jmlr",
    max_iter: int = 100,
) -> SoftResponses:
    r"""Run Algorithm 1 of both papers, as printed.

    A step solves the quadratic program (eq. 5) and updates the multiplier by eq. 7, the least
    squares fit

    .. math:: \eta_{t+1} = h_t'(\gamma Q h_{t+1} - \eta_t p_t - s_t) / h_t'h_t
              = \eta_t + a - \kappa \, 1'h_t / h_t'h_t

    by the optimality conditions of the program (`solve_qp`), whose exact multiplier is
    :math:`\eta_t + a`. (AISTATS eq. 6 is the same with :math:`\eta_t I` for :math:`\eta_t p_t`,
    which is a misprint, because it subtracts a matrix from a vector.)

    "jmlr" converges at :math:`\|h_t - h_{t-1}\| + |\eta_t - \eta_{t-1}| \le tol`. If
    :math:`\eta_{t+1} \ge \gamma \lambda_1` (see `is_above`), it returns the previous iterate
    :math:`h_t` with status STOPPED. "aistats" uses the sum of squares and has no such bound. Both
    are STOPPED if a program has no minimum. `eta0` is 0 in JMLR and -0.001 in AISTATS.

    h is scaled to norm 1 at the end, because an unfinished h is longer and would win every
    comparison of objectives. `field` is x of the first step if it has the same signs, otherwise h.
    """
    h, eta, kappa = h0, eta0, 0.0
    first = h0
    history: list[float] = []
    status = Status.MAX_ITER
    power = 1 if algorithm == "jmlr" else 2
    for _ in range(max_iter):
        step = solve_qp(problem, h, eta, eigenvalues)
        if step is None:
            status = Status.STOPPED
            break
        new_eta = step.eta - step.kappa * float(h.sum()) / float(h @ h)
        if algorithm == "jmlr" and is_above(problem, new_eta, eigenvalues):
            status = Status.STOPPED
            break
        moves = float(np.linalg.norm(step.x - h)), abs(new_eta - eta)
        h, eta, kappa = step.x, new_eta, step.kappa
        if not history:
            first = h
        history.append(problem.objective(h / np.linalg.norm(h)))
        if moves[0] ** power + moves[1] ** power <= tol:
            status = Status.CONVERGED
            break
    h = h / np.linalg.norm(h)
    return SoftResponses(
        objective=problem.objective(h),
        residuals=problem.certificate(h).residuals,
        status=status,
        n_iter=len(history),
        history=tuple(history),
        h=h,
        field=first if np.array_equal(signs(first), signs(h)) else h,
        multiplier=float(eta),
        balance_multiplier=float(kappa),
    )
