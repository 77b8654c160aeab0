"""The papers' nested loops, for ``mode="paper"``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.cut_pool import CutPool
from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.losses import Violated
from volmar.margin.engine.problem import MarginProblem
from volmar.solvers import CuttingPlaneResult, Status


class Solution(NamedTuple):
    """The hyperplane of a quadratic programme, the scores of the rows, and the slack."""

    found: CuttingPlaneResult
    normal: Any
    square: float
    f: NDArray
    xi: float


def relabelling_outside(
    problem: MarginProblem,
    labels: NDArray,
    *,
    C: float,
    cut_tol: float = 0.01,
    cccp_tol: float = 0.1,
    max_iter: int = 100,
) -> MarginResult:
    r"""Run SKMMC's Algorithms 1 and 2: relabelling in the outer loop, cutting planes inside.

    Cuts are added for fixed labels until the most violated one is violated by at most
    :math:`\rho \eta` (eq. 13; :math:`\eta` for the fixed threshold, eq. 41). The labels of the
    hyperplane are then adopted, and the loop repeats until the objective (eq. 14; eq. 37 for the
    fixed threshold)

    .. math:: J_o = \tfrac12 \|w / \rho\|^2 + C \xi / \rho

    changes by less than a share :math:`\epsilon` (eq. 15). The objective need not fall. The
    papers' Algorithms 2 and 3 relabel inside the inner loop, while its cuts belong to the old
    labels. Here labels change outside of it, as in the text.

    If the labels are unrelated to the rows, as random labels are, the cuts end at w = 0, where eq.
    14 is 0/0. The labels of the previous hyperplane, with one cut fewer, are then used, and
    `n_degenerate` counts such loops.

    `cut_tol` is :math:`\eta`; with 1, and labels that a hyperplane can reproduce, the only cut is
    that of all rows. `cccp_tol` is :math:`\epsilon`. `max_iter` is the maximum number of
    relabellings and of cuts per relabelling. The history holds :math:`J_o`. The residual
    ``"violation"`` is the violation of the most violated cut of the last inner loop, relative to
    rho. A gap is only available if the labels no longer changed.
    """
    y = problem.start(labels)
    passes_before = problem.space.n_passes
    history: list[float] = []
    n_cuts, n_degenerate, status = 0, 0, Status.MAX_ITER
    for _ in range(max_iter):
        cuts = CutPool(problem)
        cuts.add(problem.cut(y, problem.loss.first(y, problem.zero_scores())))
        for _ in range(max_iter):
            solved = _solve(problem, cuts, C)
            if solved is Status.DEGENERATE and len(cuts) > 1:
                n_degenerate += 1
                break
            if isinstance(solved, Status):
                return MarginResult(objective=0.0, status=solved, n_iter=len(history))
            solution = solved
            violated = problem.loss.violated(y, solution.f, solution.found.rho)
            violation = (violated.xi - solution.found.xi) / solution.found.rho
            if violation <= cut_tol:
                break
            cuts.add(problem.cut(y, violated))
        n_cuts, used, y = len(cuts), y, problem.labels(solution.f)
        history.append(printed_objective(problem, solution, C))
        if len(history) > 1 and abs(history[-1] / history[-2] - 1.0) < cccp_tol:
            status = Status.CONVERGED if violation <= cut_tol else Status.MAX_ITER
            if solved is Status.DEGENERATE:
                status = solved
            break
    result = _result(problem, solution, C, used, history, status, violation, n_cuts, passes_before)
    return replace(result, n_degenerate=n_degenerate)


def cutting_planes_outside(
    problem: MarginProblem,
    labels: NDArray,
    *,
    C: float,
    cut_tol: float = 0.01,
    cccp_tol: float = 0.01,
    max_iter: int = 100,
) -> MarginResult:
    """Run Algorithms 1 and 2 of the multivariate paper: CCCP inside a cutting-plane loop.

    The working set holds *labellings* y'. For each working set, labels and the quadratic programme
    (eq. 17) alternate until its value changes by less than a share `cccp_tol` (the paper's 1 %);
    all cuts are recomputed for new labels. Then the most violated labelling at the solution (eq.
    18) is added, until the violation is at most `cut_tol`. The point is then feasible in eq. 12
    with a slack larger by `cut_tol` (Theorem 1).

    The result is as for `relabelling_outside`; its history is the objective after each cut.
    """
    y = problem.start(labels)
    passes_before = problem.space.n_passes
    kept = [_kept(problem, y, problem.loss.first(y, problem.zero_scores()))]
    history: list[float] = []
    status, violation = Status.MAX_ITER, np.inf
    for _ in range(max_iter):
        value = np.inf
        for _ in range(max_iter):
            used, cuts = y, CutPool(problem)
            for one in kept:
                cuts.add(problem.cut(y, _of_kept(problem, y, one)))
            solved = _solve(problem, cuts, C)
            if isinstance(solved, Status):
                return MarginResult(objective=0.0, status=solved, n_iter=len(history))
            solution = solved
            y = problem.labels(solution.f)
            before, value = value, solution.found.objective
            if abs(value - before) <= cccp_tol * abs(before) or np.array_equal(y, used):
                break
        history.append(value)
        violated = problem.loss.violated(y, solution.f, solution.found.rho)
        violation = (violated.xi - solution.found.xi) / solution.found.rho
        if violation <= cut_tol:
            status = Status.CONVERGED
            break
        kept.append(_kept(problem, y, violated))
    return _result(
        problem, solution, C, used, history, status, violation, len(kept), passes_before
    )


def _solve(problem: MarginProblem, cuts: CutPool, C: float) -> Solution | Status:
    found = cuts.solve(C)
    if not found.status.ok:
        return found.status
    w, square = cuts.normal(found)
    if square <= 0.0 or found.rho <= 0.0:
        return Status.DEGENERATE
    f = problem.space.scores(w)
    f += f.dtype.type(found.t)
    return Solution(found, w, square, f, found.xi)


def _kept(problem: MarginProblem, y: NDArray, violated: Violated) -> NDArray:
    """Return the part of a cut that does not depend on y: the labelling y', or the rows."""
    return violated.chosen if problem.loss.scale == 1.0 else np.where(violated.chosen, -y, y)


def _of_kept(problem: MarginProblem, y: NDArray, kept: NDArray) -> Violated:
    chosen = kept if problem.loss.scale == 1.0 else kept != y
    return Violated(chosen, problem.loss.value(y, chosen), float("nan"))


def printed_objective(problem: MarginProblem, solution: Solution, C: float) -> float:
    """Return J_o (eq. 14), or the value of eq. 37 for the fixed threshold."""
    found = solution.found
    if problem.threshold == "fixed":
        return found.objective
    # The square of rho overflows for rows of order 1e80.
    return 0.5 * solution.square / found.rho / found.rho + C * solution.xi / found.rho


def _result(
    problem: MarginProblem,
    solution: Solution,
    C: float,
    used: NDArray,
    history: list[float],
    status: Status,
    violation: float,
    n_cuts: int,
    passes_before: int,
) -> MarginResult:
    found, f = solution.found, solution.f
    y = problem.labels(f)
    violated = problem.loss.violated(y, f, found.rho)
    J = problem.objective(solution.square, found.rho, violated.xi, C)
    same = np.array_equal(y, used)
    gap = max(J - found.lower_bound, 0.0) if same else float("nan")
    residuals = {"violation": max(violation, 0.0)}
    if same and J:
        residuals["relative gap"] = gap / abs(J)
    return MarginResult(
        objective=J,
        gap=gap,
        residuals=residuals,
        status=status,
        n_iter=len(history),
        history=tuple(history),
        labels=(f > 0).astype(np.int64),
        scores=f,
        normal=solution.normal,
        square=solution.square,
        rho=found.rho,
        xi=found.xi,
        t=found.t,
        lower_bound=found.lower_bound if same else -np.inf,
        n_passes=problem.space.n_passes - passes_before,
        n_cuts=n_cuts,
    )
