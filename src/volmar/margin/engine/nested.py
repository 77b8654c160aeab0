"""The papers' nested loops, for ``mode="paper"``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import CutPool, MarginResult
from volmar.margin.engine.problem import MarginProblem, Violated
from volmar.margin.feature_space.basis import PrintedBasisSpace, SparseVector
from volmar.solvers import Status, solve_cutting_plane_qp
from volmar.solvers.cutting_plane_qp import CuttingPlaneResult


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


# ------------------------------------------------------------------ Algorithm 4 of the SKMMC paper


class PrintedCuts:
    r"""The working set :math:`\Omega` of eq. 29, with an approximation of every cut.

    With :math:`P_{kj} = \langle \hat\Psi_k, \hat\Psi_j \rangle`,
    :math:`p_k = \langle \hat\Psi_k, \hat\Psi_0 \rangle` and :math:`\mu_1 - \mu_2 = s^\top \lambda`
    (eq. 19), H of eq. 30 is the Gram matrix of the cuts :math:`\hat\Psi_k - s_k \hat\Psi_0`:

    .. math:: G = P - s p^\top - p s^\top + s s^\top |\hat\Psi_0|^2.
    """

    def __init__(self, problem: MarginProblem, space: PrintedBasisSpace):
        self.problem, self.space = problem, space
        self.psi: list[SparseVector] = []
        self.coefficients: list[NDArray] = []
        self._chosen: set[bytes] = set()
        self.products = np.empty((0, 0))
        self.s, self.m, self.p = np.empty(0), np.empty(0), np.empty(0)
        self._square = float(space.inner(space.mean, [space.mean])[0])

    def __len__(self) -> int:
        return len(self.psi)

    def add(self, labels: NDArray, chosen: NDArray) -> None:
        """Add the cut of a set of rows for these labels."""
        v = np.where(chosen, labels, 0.0) * self._shares()
        self.coefficients.append(v)
        self._chosen.add(np.packbits(chosen).tobytes())
        self.psi.append(self.space.vector(v))
        row = self.space.inner(self.psi[-1], [*self.psi, self.space.mean])
        n = len(self.psi)
        products = np.empty((n, n))
        products[:-1, :-1] = self.products
        products[-1] = products[:, -1] = row[:-1]
        self.products = products
        self.p = np.append(self.p, row[-1])
        self.s = np.append(self.s, v.sum())
        self.m = np.append(self.m, float(self._shares() @ chosen))

    def has(self, chosen: NDArray) -> bool:
        """Return whether the cut of a set of rows is in the working set."""
        return np.packbits(chosen).tobytes() in self._chosen

    def _shares(self) -> NDArray:
        shares = self.space.shares
        return np.full(self.space.n_rows, 1.0 / self.space.n_rows) if shares is None else shares

    def gram(self) -> NDArray:
        """Return H of eq. 30 as a matrix in lambda only."""
        cross = np.outer(self.s, self.p)
        return self.products - cross - cross.T + np.outer(self.s, self.s) * self._square

    def solve(self, C: float) -> Solution | Status:
        """Solve eq. 30 and return its hyperplane (eq. 28) with the intercept of eq. 23."""
        problem, gram = self.problem, self.gram()
        found = solve_cutting_plane_qp(
            gram,
            self.s,
            self.m,
            C=C,
            tau=problem.tau,
            threshold=problem.threshold,
            balance="absolute",
        )
        if not found.status.ok:
            return found.status
        weights = found.weights
        square = float(weights @ gram @ weights)
        # A squared length of w below this share of the cuts' summed squared lengths is rounding.
        if square <= 1e-14 * float(np.trace(gram)) or found.rho <= 0.0:
            return Status.DEGENERATE
        w = self.space.combination(
            [*self.psi, self.space.mean], np.append(weights, -(self.s @ weights))
        )
        f = self.space.scores(w)
        # Eq. 34 uses the exact scores of the rows, not those of the approximated cuts.
        reached = np.array([v @ f for v in self.coefficients])
        xi = float(weights @ (found.rho * self.m - reached)) / float(weights.sum())
        return Solution(found, w, square, f, max(xi, 0.0))


def printed_sparse_loop(
    problem: MarginProblem,
    labels: NDArray,
    *,
    C: float,
    cut_tol: float = 0.01,
    cccp_tol: float = 0.1,
    max_iter: int = 100,
    max_cuts: int | None = None,
) -> MarginResult:
    r"""Run SKMMC's Algorithm 3, or that of its Appendix B for the fixed threshold.

    In every relabelling cuts are added, each with separate basis vectors (Algorithm 4), until the
    most violated one is violated by at most :math:`\rho \eta` (eq. 13; :math:`\eta` in eq. 41).
    The labels of the hyperplane are then adopted and all cuts are dropped. The loop ends once
    :math:`J_o` of eq. 14, or the value of eq. 37, changes by less than a share :math:`\epsilon`
    (eq. 15, 42). Scores have mean 0 (eq. 23), so both sides have rows.

    The first cut is drawn at random (line 4), each row with probability 1/2.

    Differences from the printed algorithm: :math:`\rho` of eq. 24 is 0/0 if rho and xi are
    positive; here it is the multiplier of the quadratic programme. Labels do not change in an
    inner loop, as in the text (line 11 changes them while the cuts belong to the old labels). A
    negative slack of eq. 34 counts as 0. A first cut with C m < 1, at which rho grows without
    limit, is replaced by that of all rows. A cut of the working set may remain the most violated
    one, because its approximation is not accurate enough; added again and again, it would keep the
    loop from ending. The inner loop then ends (`n_repeated`; the status is CYCLE if it is the last
    one). It also ends at `max_cuts` or `max_iter` cuts. If the cuts give w = 0, the labels of the
    previous hyperplane are kept (`n_degenerate`).

    Approximated cuts give no lower bound, so there is no gap. The history holds :math:`J_o`. The
    residual ``"violation"`` is that of the last inner loop, relative to rho.
    """
    space: Any = problem.space
    y = problem.start(labels)
    passes_before = space.n_passes
    max_cuts = max_iter if max_cuts is None else max_cuts
    history: list[float] = []
    n_degenerate, n_repeated, status = 0, 0, Status.MAX_ITER
    for _ in range(max_iter):
        cuts = PrintedCuts(problem, space)
        chosen = _first_cut(problem, space, C)
        while True:
            cuts.add(y, chosen)
            solved = cuts.solve(C)
            if isinstance(solved, Status):
                if len(cuts) == 1:
                    return MarginResult(objective=0.0, status=solved, n_iter=len(history))
                n_degenerate, ended = n_degenerate + 1, Status.DEGENERATE
                break
            solution = solved
            rho = solution.found.rho
            violated = problem.loss.violated(y, solution.f, rho)
            violation = (violated.xi - solution.xi) / rho
            ended = Status.CONVERGED if violation <= cut_tol else Status.MAX_ITER
            if ended.ok or len(cuts) >= max_cuts:
                break
            chosen = violated.chosen
            if cuts.has(chosen):
                n_repeated, ended = n_repeated + 1, Status.CYCLE
                break
        y = problem.labels(solution.f)
        history.append(printed_objective(problem, solution, C))
        if len(history) > 1 and abs(history[-1] / history[-2] - 1.0) < cccp_tol:
            status = ended
            break
    loss = problem.loss.violated(y, solution.f, solution.found.rho).xi
    return MarginResult(
        objective=problem.objective(solution.square, solution.found.rho, loss, C),
        residuals={"violation": max(violation, 0.0)},
        status=status,
        n_iter=len(history),
        history=tuple(history),
        labels=problem.clusters(y),
        scores=solution.f,
        normal=solution.normal,
        square=solution.square,
        rho=solution.found.rho,
        xi=solution.xi,
        t=0.0,
        n_passes=space.n_passes - passes_before,
        n_cuts=len(cuts),
        n_degenerate=n_degenerate,
        n_repeated=n_repeated,
    )


def _first_cut(problem: MarginProblem, space: PrintedBasisSpace, C: float) -> NDArray:
    chosen = space.random.random_sample(space.n_rows) < 0.5
    m = problem.loss.value(np.ones(space.n_rows), chosen)
    is_bounded = C * m >= 1.0 if problem.threshold == "adaptive" else m > 0.0
    return chosen if is_bounded else np.ones(space.n_rows, dtype=bool)
