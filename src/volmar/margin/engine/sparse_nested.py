"""SKMMC's Algorithm 3 with separate basis vectors for every cut, for ``mode="paper"``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.descent import MarginResult
from volmar.margin.engine.nested import Solution, printed_objective
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.feature_space.printed_basis import PrintedBasisSpace, SparseVector
from volmar.solvers import Status, solve_cutting_plane_qp

# A squared length of w below this share of the cuts' summed squared lengths is rounding.
ROUNDING = 1e-14


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
        if square <= ROUNDING * float(np.trace(gram)) or found.rho <= 0.0:
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
