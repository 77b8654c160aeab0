r"""The elliptope saddle problem over mixtures of labellings, by cutting planes.

The convex hull of all yy' with a bound on |1'y| replaces the correlation matrices of
`volmar.solvers.elliptope`. This is the relaxation that JMLR section 9 leaves open.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product as tuples
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from volmar.solvers.box_qp import BoxPoint, BoxQP
from volmar.solvers.elliptope import (
    ElliptopeProblem,
    ElliptopeResult,
    gap_reference,
    solve_elliptope_saddle,
)
from volmar.solvers.result import Status

# Maximum number of labellings, and of steps in the search for a labelling.
MAX_LABELLINGS, MAX_STEPS = 200, 100
# Number of random starts of a search for a labelling, and of failed searches before the end.
N_STARTS, SEARCHES = 20, 3
# Maximum number of rows for enumerating all labellings.
ENUMERATED = 16
# Share of the tolerance at which the programme over the current labellings ends.
MASTER = 0.3
# Weights below this count as zero.
IDLE = 1e-10


def solve_label_mixture(
    Q: Any,
    *,
    reg: float = 1.0,
    C: float = 1.0,
    limit: float | None = None,
    tol: float = 1e-5,
    max_iter: int = 1000,
    random_state: int = 0,
) -> ElliptopeResult:
    r"""Minimise the inner maximum of the saddle problem over mixtures of labellings.

    .. math:: \min_{\mu \ge 0, 1'\mu = 1} \; \min_{\eta \le 0} \; \max_{0 \le a \le C} \;
              2 \cdot 1'a - a'\Bigl(\gamma Q \circ \sum_t \mu_t y_t y_t' - \eta I\Bigr)a - \eta

    over all :math:`y_t \in \{-1, 1\}^n` with :math:`|1'y_t| \le` `limit`. Eta fixes the norm of a
    at 1, as in `solve_elliptope_saddle`. The value F is therefore convex in the mixture, and its
    derivative by :math:`\mu_t` is :math:`-\gamma (a \circ y_t)'Q(a \circ y_t)`.

    **Cutting planes.** The mixture of the current labellings is found by sequential quadratic
    programming. Then a labelling with a larger :math:`(a \circ y)'Q(a \circ y)` is added. This
    function is convex in y, and its linearisation is maximised by sorting. The search starts from
    the labellings in use, from signs of projections of the correlation matrix of
    `solve_elliptope_saddle`, and from random signs. For up to 16 rows, all labellings are
    compared.

    **Bounds.** Every yy' is a correlation matrix with :math:`1'M1 \le` `limit` squared, so the
    bound of `solve_elliptope_saddle` also holds here. It uses the a of that problem. For up to 16
    rows, the bound with the a of the mixture, :math:`2 \cdot 1'a - \gamma \max_y (a \circ y)'Q(a
    \circ y)`, closes the gap. With more rows the gap is certified, but it does not close if the
    hull is smaller than the set of correlation matrices: proving that no labelling is violated is
    NP-hard.
    """
    n = Q.shape[0]
    allowed = _allowed_sum(n, limit)
    free = solve_elliptope_saddle(
        Q,
        reg=reg,
        C=C,
        balance=None if limit is None else allowed**2 / n,
        tol=tol,
        max_iter=max_iter,
        random_state=random_state,
    )
    if free.status is Status.DEGENERATE:
        return free
    problem = ElliptopeProblem(Q, reg=reg, C=C)
    rng = np.random.default_rng(random_state)
    return _Mixture(problem, allowed, free, tol, rng).solve()


def _allowed_sum(n: int, limit: float | None) -> int:
    """Return the largest allowed |1'y|, which is odd if and only if n is."""
    largest = n if limit is None else min(int(limit + 1e-9), n)
    return max(largest - (largest - n) % 2, n % 2)


def balanced_signs(f: NDArray, allowed: int) -> NDArray:
    """Return the y in {-1, 1}^n that maximises y'f subject to |1'y| <= allowed."""
    n = f.size
    n_positive = int(np.count_nonzero(f > 0))
    taken = min(max(n_positive, (n - allowed + 1) // 2), (n + allowed) // 2)
    y = np.full(n, -1.0)
    y[np.argsort(-f, kind="stable")[:taken]] = 1.0
    return y


class _Mixture:
    """The labellings in use, their weights, and the value of the mixture."""

    def __init__(
        self,
        problem: ElliptopeProblem,
        allowed: int,
        free: ElliptopeResult,
        tol: float,
        rng: np.random.Generator,
    ):
        self.problem, self.allowed, self.free = problem, allowed, free
        self.tol, self.rng = tol, rng
        self.n = problem.n
        self.inner = BoxQP(self.n, problem.C, unit_norm=True)
        self.bound = free.lower_bound
        self.all = _all_labellings(self.n, allowed) if self.n <= ENUMERATED else None
        self.history: list[float] = []

    def solve(self) -> ElliptopeResult:
        left = self.free.factor - self.free.factor.mean(axis=0)
        first = np.linalg.svd(left, full_matrices=False)[0][:, 0]
        self.Y = balanced_signs(first, self.allowed)[:, None]
        self.mu = np.ones(1)
        status = Status.MAX_ITER
        while self.Y.shape[1] < MAX_LABELLINGS:
            self._solve_master()
            self.history.append(self.point.value)
            found = self._violated()
            if found is None:
                is_solved = self.master_gap <= self.tol * self.reference
                status = Status.CONVERGED if is_solved else Status.FAILED
                break
            self._drop_idle()
            self.Y = np.column_stack([self.Y, found])
            self.mu = np.append(self.mu, 0.0)
        else:
            self._solve_master()
        return self._result(status)

    # ------------------------------------------------------------------ the mixture

    def _factor(self, mu: NDArray) -> NDArray:
        return self.Y * np.sqrt(np.maximum(mu, 0.0))

    def _value(self, mu: NDArray) -> tuple[float, NDArray]:
        mu = np.maximum(mu, 0.0)
        self.point = self.inner.solve(self.problem.weighted(self._factor(mu / mu.sum())))
        return self.point.value, -self._squares(self.Y, self.point)

    def _squares(self, Y: NDArray, point: BoxPoint) -> NDArray:
        image = self.problem.product(Y, point.a, np.zeros(self.n))
        return np.einsum("ij,ij->j", Y, image)

    def _solve_master(self) -> None:
        T = self.Y.shape[1]
        value, gradient = self._value(self.mu)
        self.reference = gap_reference(value, self.problem.change(self.point.a))
        offset, scale = value, self.reference
        for _ in range(5):
            self.master_gap = float(self.mu @ gradient - gradient.min())
            if T == 1 or self.master_gap <= MASTER * self.tol * self.reference:
                break

            def scaled(mu: NDArray) -> tuple[float, NDArray]:
                value, gradient = self._value(mu)
                return (value - offset) / scale, gradient / scale

            found = minimize(
                scaled,
                self.mu,
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * T,
                constraints={
                    "type": "eq",
                    "fun": lambda mu: mu.sum() - 1.0,
                    "jac": np.ones_like,
                },
                options={"ftol": 1e-14, "maxiter": 100},
            )
            mu = np.maximum(found.x, 0.0)
            before, self.mu = self.mu, mu / mu.sum()
            value, gradient = self._value(self.mu)
            if np.abs(self.mu - before).max() < IDLE:
                break
        self.gradient = gradient
        self.master_gap = max(float(self.mu @ gradient - gradient.min()), 0.0)

    def _drop_idle(self) -> None:
        stays = self.mu > IDLE
        self.Y, self.mu = self.Y[:, stays], self.mu[stays] / self.mu[stays].sum()

    # ------------------------------------------------------------------ new labellings

    def _violated(self) -> NDArray | None:
        """Return a labelling that violates optimality by more than tol; None if not found."""
        point, lowest = self.point, float(self.mu @ self.gradient)
        self.violation = 0.0
        if self.all is not None:
            squares = self._squares(self.all, point)
            best = int(squares.argmax())
            if abs(float(np.linalg.norm(point.a)) - 1) <= 1e-9:
                bound = 2 * float(point.a.sum()) - float(squares[best])
                self.bound = max(self.bound, bound)
            return self._taken(self.all[:, best], float(squares[best]), lowest)
        for _ in range(SEARCHES):
            candidates = [self._climb(y, point) for y in self._starts()]
            best_y, square = max(candidates, key=lambda one: one[1])
            found = self._taken(best_y, square, lowest)
            if found is not None:
                return found
        return None

    def _taken(self, y: NDArray, square: float, lowest: float) -> NDArray | None:
        violation = max(lowest + square, 0.0)
        self.violation = max(self.violation, violation)
        is_known = bool((np.abs(self.Y.T @ y) == self.n).any())
        return None if is_known or violation <= self.tol * self.reference else y

    def _starts(self) -> list[NDArray]:
        order = np.argsort(-self.mu)[: N_STARTS // 2]
        V = self.free.factor
        random = V @ self.rng.standard_normal((V.shape[1], N_STARTS))
        signs = [balanced_signs(f, self.allowed) for f in (random - random.mean(axis=0)).T]
        noise = self.rng.standard_normal((N_STARTS, self.n))
        return [*self.Y[:, order].T, *signs, *(balanced_signs(f, self.allowed) for f in noise)]

    def _climb(self, y: NDArray, point: BoxPoint) -> tuple[NDArray, float]:
        none = np.zeros(self.n)
        image = self.problem.product(y[:, None], point.a, none)[:, 0]
        square = float(y @ image)
        for _ in range(MAX_STEPS):
            following = balanced_signs(image, self.allowed)
            image = self.problem.product(following[:, None], point.a, none)[:, 0]
            risen = float(following @ image)
            if risen <= square * (1 + 1e-12):
                break
            y, square = following, risen
        return y, square

    def _result(self, status: Status) -> ElliptopeResult:
        self._drop_idle()
        self._value(self.mu)
        bound = min(self.bound, self.point.value)
        gap = self.point.value + self.point.slack - bound
        return replace(
            self.free,
            objective=self.point.value,
            gap=gap,
            residuals={
                "relative gap": gap / self.reference,
                "inner": self.point.slack / self.reference,
                "balance": 0.0,
                "master gap": self.master_gap / self.reference,
                "violation": self.violation / self.reference,
            },
            status=status,
            n_iter=self.free.n_iter + len(self.history),
            history=tuple(self.history),
            factor=self._factor(self.mu),
            a=self.point.a,
            eta=self.point.eta,
            lower_bound=bound,
        )


def _all_labellings(n: int, allowed: int) -> NDArray:
    """Return all labellings within the limit as columns, one of each pair y, -y."""
    Y = np.array([(1.0, *rest) for rest in tuples((-1.0, 1.0), repeat=n - 1)]).T
    return Y[:, np.abs(Y.sum(axis=0)) <= allowed]
