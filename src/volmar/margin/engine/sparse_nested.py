"""SKMMC's Algorithm 3 with basis vectors of its own for every cut, for ``mode="paper"``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.nested import Solution, printed_objective
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.feature_space.printed_basis import PrintedBasisSpace, SparseVector
from volmar.solvers import Status, solve_cutting_plane_qp

# Share of the cuts' mean squared length below which that of w is rounding.
ROUNDING = 1e-14


class PrintedCuts:
    r"""The working set :math:`\Omega` of (eq. 29): an approximation for every cut.

    With :math:`P_{kj} = \langle \hat\Psi_k, \hat\Psi_j \rangle`,
    :math:`p_k = \langle \hat\Psi_k, \hat\Psi_0 \rangle` and
    :math:`\mu_1 - \mu_2 = s^\top \lambda` (eq. 19), H of (eq. 30) is that of the cuts
    :math:`\hat\Psi_k - s_k \hat\Psi_0`:

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
        """Take the cut of a set of rows in, with labels that it keeps."""
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
        """Return H of eq. 30, in lambda alone."""
        cross = np.outer(self.s, self.p)
        return self.products - cross - cross.T + np.outer(self.s, self.s) * self._square

    def solve(self, C: float) -> Solution | Status:
        """Solve (eq. 30), and return its hyperplane (eq. 28) with the b of (eq. 23)."""
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
        if square <= ROUNDING * float(np.trace(gram)) or found.rho <= 0.0:
            return Status.DEGENERATE
        w = self.space.combination(
            [*self.psi, self.space.mean], np.append(weights, -(self.s @ weights))
        )
        f = self.space.scores(w)
        # Eq. 34: the rows' own scores, which the approximated cuts do not have.
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

    In every relabelling cuts are added, each with basis vectors of its own (Algorithm 4), until
    the most violated one is violated by at most :math:`\rho \eta` (eq. 13; :math:`\eta` in
    eq. 41). Then labels are taken over and all cuts are dropped, until :math:`J_o` of (eq. 14), or
    the value of (eq. 37), changes by less than a share :math:`\epsilon` (eq. 15, 42). Scores have
    mean 0 (eq. 23), so that both sides have rows.

    The first cut is drawn at random (line 4), each row with probability 1/2.

    What is not as printed. :math:`\rho` of (eq. 24) is 0/0 wherever rho and xi are positive: it is
    the multiplier of the quadratic programme. Labels stay the same in an inner loop, as the text
    has it (line 11 changes them under cuts that hold for the old ones). The slack of (eq. 34)
    counts as 0 below 0. A first cut with C m < 1, at which rho grows without limit, is that of all
    rows. A cut of the working set may stay the most violated one, because its approximation misses
    it; added again and again it would keep the loop from ending. The inner loop then ends
    (`n_repeated`; the status is CYCLE where it is the last one), and at `max_cuts` or `max_iter`
    cuts. Where they leave w = 0, labels are those of the hyperplane before (`n_degenerate`).

    An approximated cut bounds nothing, so that there is no gap. The history is that of
    :math:`J_o`; the residual ``"violation"`` is that of the last inner loop, relative to rho.
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
