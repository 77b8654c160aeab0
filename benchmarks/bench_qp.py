"""The cutting-plane QP against cvxpy with Clarabel on the same working sets."""

import cvxpy as cp
import numpy as np

from benchmarks.table import Table
from benchmarks.timing import in_turns
from volmar.solvers import solve_cutting_plane_qp


def run(*, full: bool) -> Table:
    rng = np.random.default_rng(0)
    table = Table(("cuts", "volmar s", "cvxpy s", "cvxpy / volmar", "objectives differ by"))
    for n_cuts in (5, 20, 60):
        A = rng.standard_normal((n_cuts, 200)) / 10
        s, m = rng.uniform(-0.5, 0.5, n_cuts), rng.uniform(0.3, 1.0, n_cuts)
        m[0] = 1.0
        G = A @ A.T
        timings = in_turns(
            {
                "volmar": lambda: solve_cutting_plane_qp(G, s, m, C=5.0, tau=0.1).objective,
                "cvxpy": lambda: _primal(A, s, m, 5.0, 0.1),
            },
            repeats=21 if full else 7,
        )
        one, two = timings["volmar"], timings["cvxpy"]
        table.add(
            n_cuts, one.median, two.median, two.median / one.median, abs(one.value - two.value)
        )
    return table


def _primal(A, s, m, C, tau):
    w, rho, xi, t = cp.Variable(A.shape[1]), cp.Variable(), cp.Variable(), cp.Variable()
    objective = cp.Minimize(0.5 * cp.sum_squares(w) - rho + C * xi)
    constraints = [rho * m - A @ w - t * s <= xi, xi >= 0, rho >= 0, cp.abs(t) <= tau]
    problem = cp.Problem(objective, constraints)
    problem.solve(solver=cp.CLARABEL)
    return problem.value
