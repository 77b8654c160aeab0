"""The elliptope saddle problem of margin clustering with triangle constraints, for small n.

Xu et al. also require that M is transitive: of any three rows, an even number of pairs is in
different clusters,

    M_ij + M_jk + M_ik >= -1,   M_ij - M_jk - M_ik >= -1   for all i, j, k

(JMLR remark 21). The number of these constraints, 4 n (n - 1) (n - 2) / 6, limits n.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar._eigen import eigenpairs
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import ElliptopeResult, solve_elliptope_saddle
from volmar.solvers.elliptope_problem import (
    gap_reference,
    largest_eigenvalue,
    minimise_over_unit_rows,
    unit_rows,
)
from volmar.solvers.result import Status

#: Maximum number of rows, with 4 x 34,220 constraints.
MAX_ROWS = 60
# Iterations between updates of the multipliers.
ROUND = 200
# Standard deviation of the first values in the additional columns of V.
NOISE = 0.03
# Signs of M_ij, M_jk and M_ik in the four constraints of three rows.
SIGNS = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]])


@dataclass(frozen=True, repr=False)
class TriangleResult(ElliptopeResult):
    """Solution of the saddle problem with triangle constraints; `gap` is certified.

    `residuals` also contains "triangle", the largest violation of a triangle constraint.

    Attributes
    ----------
    triangle_multipliers : ndarray of shape (4, n (n - 1) (n - 2) / 6)
        Nonnegative multipliers of the four constraints of each i < j < k.
    """

    _solution: ClassVar[tuple[str, ...]] = ()

    triangle_multipliers: NDArray = field(default_factory=lambda: np.empty((4, 0)))


def solve_elliptope_triangles(
    Q: NDArray,
    *,
    C: float = 1.0,
    balance: float | None = None,
    row_balance: bool = False,
    tol: float = 1e-6,
    max_iter: int = 3000,
    random_state: int = 0,
) -> TriangleResult:
    r"""Minimise the inner maximum over correlation matrices M with triangle constraints.

    .. math:: \min_M \; \max_{0 \le a \le C} \; 2 \cdot 1'a - a'(Q \circ M)a

    over :math:`M \succeq 0`, :math:`M_{ii} = 1`, :math:`1'M1 \le n b` and
    :math:`\langle A_t, M \rangle \ge -1` for every triangle t.

    **Primal.** M = VV' with n columns, started from `solve_elliptope_saddle`; L-BFGS on V with the
    constraints in an augmented Lagrangian. Remaining violations are removed by a step towards
    :math:`(nI - 11') / (n - 1)`, which is in the interior of all constraints except a balance of
    zero. The returned M satisfies them.

    **Dual.** For any a in the box, any s, any :math:`\lambda \ge 0` and any y with
    :math:`Diag(y) \succeq G = Q \circ aa' - (s1' + 1s')/2 + \sum_t \lambda_t A_t`,

    .. math:: 2 \cdot 1'a - 1'y - b \|s\|_1 - 1'\lambda

    is a lower bound on the optimum, as in `solve_elliptope_saddle`.

    Parameters
    ----------
    Q : ndarray of shape (n, n)
        Symmetric, positive semi-definite matrix of at most 60 rows.
    C : float, default=1
        Upper limit of the box.
    balance : float, optional
        Bound b on the row sums of M. If None, there is no such constraint.
    row_balance : bool, default=False
        If True, b bounds each row sum of M; if False, their mean.
    tol : float, default=1e-6
        Relative gap at which to stop, as in `solve_elliptope_saddle`.
    max_iter : int, default=3000
        Maximum number of iterations of L-BFGS in all rounds together.
    random_state : int, default=0
        Random seed of the start.

    Returns
    -------
    TriangleResult
        `status` is MAX_ITER if `tol` was not reached; the gap is still certified.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.solvers import solve_elliptope_triangles
    >>> result = solve_elliptope_triangles(np.eye(3) + 0.1)
    >>> result.is_certified(1e-5)
    True
    """
    n = len(Q)
    if n > MAX_ROWS:
        raise ValueError(
            f"triangle constraints support at most {MAX_ROWS} rows, got {n}. Their number grows "
            "with the cube of the rows. Leave them out, or cluster a sample."
        )
    if n == 3 and balance is not None and balance < 1 / 3:
        raise ValueError(
            f"balance={balance:g} contradicts the triangle constraints of three rows. "
            "Use at least 1/3."
        )
    free = solve_elliptope_saddle(
        Q,
        C=C,
        unit_norm=False,
        balance=balance,
        row_balance=row_balance,
        tol=tol,
        max_iter=max(max_iter // 3, 1),
        random_state=random_state,
    )
    saddle = _Saddle(np.asarray(Q, dtype=np.float64), C, balance, row_balance)
    saddle.take_balance(free.balance_multipliers)
    spent = free.n_iter
    best = saddle.certified(free.factor, spent, tol)
    V = saddle.wider(free.factor, random_state)
    while not best.status.ok and spent < max_iter:
        V, used = saddle.descend(V, min(ROUND, max_iter - spent))
        spent += max(used, 1)
        saddle.update_multipliers(V @ V.T)
        best = saddle.certified(V, spent, tol)
    return best


class _Saddle:
    """The problem with the multipliers of its linear constraints v(M) <= 0.

    The constraints are in one vector: 4m triangles, then the upper bound on the mean of the row
    sums, or the upper and lower bounds on each row sum.
    """

    def __init__(self, Q: NDArray, C: float, balance: float | None, row_balance: bool):
        self.Q, self.C, self.balance, self.n = Q, C, balance, len(Q)
        self.by_rows = row_balance or balance == 0
        self.inner = BoxQP(self.n, C, unit_norm=False)
        triples = list(combinations(range(self.n), 3))
        i, j, k = np.array(triples, dtype=np.intp).reshape(-1, 3).T
        # Flat positions of (i, j), (j, k) and (i, k) in M.
        self.pairs = np.stack([i * self.n + j, j * self.n + k, i * self.n + k])
        self.n_triangles = 4 * i.size
        n_sums = 0 if balance is None else 2 * self.n if self.by_rows else 1
        # v(0), the constant part of the constraints.
        self.constants = np.append(
            np.full(self.n_triangles, -1.0), np.full(n_sums, -(balance or 0.0))
        )
        self.multipliers = np.zeros(self.constants.size)
        a = np.full(self.n, min(C, 1.0))
        # Scale of the part of the value that depends on M, as in `solve_elliptope_saddle`.
        self.scale = float(a @ np.abs(Q) @ a) or 1.0
        self.penalty = 1.0 / self.n
        self.violation = np.inf
        # The best primal point, and the best bound with its multipliers.
        self.M, self.merit = np.eye(self.n), (np.inf, np.inf)
        self.bound, self.bound_multipliers = -np.inf, self.multipliers

    def violations(self, M: NDArray) -> NDArray:
        """Return v(M); positive entries are violations."""
        triangles = -(SIGNS @ M.ravel()[self.pairs])
        if self.balance is None:
            return self.constants + triangles.ravel()
        sums = M.sum(axis=1)
        bounded = np.concatenate([sums, -sums]) if self.by_rows else [sums.mean()]
        return self.constants + np.concatenate([triangles.ravel(), bounded])

    def _worst(self, M: NDArray) -> float:
        return float(self.violations(M).max(initial=0.0))

    def adjoint(self, multipliers: NDArray) -> NDArray:
        """Return the symmetric N with <N, M> = multipliers'(v(M) - v(0))."""
        triangles = multipliers[: self.n_triangles].reshape(4, -1)
        weights = -(SIGNS.T @ triangles)
        # Without triangles, bincount returns integers.
        N = np.bincount(self.pairs.ravel(), weights.ravel(), self.n**2).astype(np.float64)
        N = N.reshape(self.n, self.n)
        if self.balance is not None:
            N += self.sums_multipliers(multipliers)[:, None]
        return (N + N.T) / 2

    def sums_multipliers(self, multipliers: NDArray) -> NDArray:
        """Return s, the multipliers of the row sums; all equal if their mean is bounded."""
        of_sums = multipliers[self.n_triangles :]
        if not self.by_rows:
            return np.full(self.n, of_sums[0] / self.n)
        above, below = np.split(of_sums, 2)
        return above - below

    def take_balance(self, s: NDArray) -> None:
        """Start from the multipliers of the problem without triangles."""
        if self.balance is not None:
            both = np.concatenate([np.maximum(s, 0), np.maximum(-s, 0)])
            of_sums = both if self.by_rows else s.sum()
            self.multipliers[self.n_triangles :] = of_sums / self.scale

    # ------------------------------------------------------------------ the primal

    def wider(self, V: NDArray, seed: int) -> NDArray:
        """Return V with n columns; then every local minimum is global."""
        extra = max(self.n - V.shape[1], 0)
        noise = NOISE * np.random.default_rng(seed).standard_normal((self.n, extra))
        return unit_rows(np.hstack([V, noise]))

    def descend(self, V: NDArray, max_iter: int) -> tuple[NDArray, int]:

        def value_and_gradient(W: NDArray) -> tuple[float, NDArray]:
            M = W @ W.T
            point = self.inner.solve(self.Q * M)
            pull = self._pull(self.violations(M))
            value = point.value / self.scale + float(pull @ pull) / (2 * self.penalty)
            weighted = self.Q * np.outer(point.a, point.a) / self.scale
            return value, 2 * ((self.adjoint(pull) - weighted) @ W)  # by Danskin

        return minimise_over_unit_rows(value_and_gradient, V, max_iter)

    def _pull(self, violations: NDArray) -> NDArray:
        return np.maximum(self.multipliers + self.penalty * violations, 0.0)

    def update_multipliers(self, M: NDArray) -> None:
        """Update the multipliers, and increase the penalty if violations decrease slowly."""
        self.multipliers = self._pull(self.violations(M))
        worst = self._worst(M)
        if worst > max(0.8 * self.violation, 1e-9):
            self.penalty *= 2.0
        self.violation = worst

    # ------------------------------------------------------------------ the dual

    def certified(self, V: NDArray, n_iter: int, tol: float) -> TriangleResult:
        """Return the best feasible point and the best lower bound of all rounds so far."""
        M = V @ V.T
        bound = self._lower_bound(M)
        if bound > self.bound:
            self.bound, self.bound_multipliers = bound, self.scale * self.multipliers
        M = self._feasible(M)
        point = self.inner.solve(self.Q * M)
        merit = (max(self._worst(M) - tol, 0.0), point.value + point.slack)
        if merit < self.merit:
            self.M, self.merit = M, merit
        return self._result(n_iter, tol)

    def _result(self, n_iter: int, tol: float) -> TriangleResult:
        point = self.inner.solve(self.Q * self.M)
        violations = np.maximum(self.violations(self.M), 0.0)
        triangle = float(violations[: self.n_triangles].max(initial=0.0))
        balance = float(violations[self.n_triangles :].max(initial=0.0)) / self.n
        # A point that violates a constraint may be below the bound, by at most its multiplier.
        missed = float(self.bound_multipliers @ violations)
        bound = min(self.bound - missed, point.value)
        gap = point.value + point.slack - bound
        change = float(point.a @ np.abs(self.Q) @ point.a)
        reference = gap_reference(point.value, change)
        is_close = gap <= tol * reference and max(triangle, balance) <= tol
        multipliers = self.bound_multipliers
        s = np.zeros(self.n) if self.balance is None else self.sums_multipliers(multipliers)
        return TriangleResult(
            objective=point.value,
            gap=gap,
            residuals={
                "relative gap": gap / reference,
                "inner": point.slack / reference,
                "balance": balance,
                "triangle": triangle,
            },
            status=Status.CONVERGED if is_close else Status.MAX_ITER,
            n_iter=n_iter,
            factor=_factor(self.M),
            a=point.a,
            lower_bound=bound,
            balance_multipliers=s,
            triangle_multipliers=multipliers[: self.n_triangles].reshape(4, -1),
        )

    def _feasible(self, M: NDArray) -> NDArray:
        """Move M towards the matrix of equal entries with row sums zero until it is feasible."""
        inside = (self.n * np.eye(self.n) - 1.0) / (self.n - 1)
        there, here = self.violations(inside), self.violations(M)
        broken = (here > 0) & (there < 0)
        step = float((here[broken] / (here[broken] - there[broken])).max(initial=0.0))
        return (1 - step) * M + step * inside

    def _lower_bound(self, M: NDArray) -> float:
        point = self.inner.solve(self.Q * M)
        multipliers = self.scale * self.multipliers
        G = self.Q * np.outer(point.a, point.a) - self.adjoint(multipliers)
        y = np.einsum("ij,ij->i", G, M)
        largest = largest_eigenvalue(G - np.diag(y))
        total = 2 * point.a.sum() + multipliers @ self.constants
        return float(total - y.sum() - self.n * max(largest, 0.0))


def _factor(M: NDArray) -> NDArray:
    values, vectors = eigenpairs(M)
    kept = values > 1e-12 * values[-1]
    return unit_rows(vectors[:, kept] * np.sqrt(values[kept]))
