"""The elliptope saddle problem of hard-label maximum volume and of margin clustering.

The semi-definite programs of both papers (JMLR eq. 13 and 22) are the same convex problem over
correlation matrices M (positive semi-definite, with ones on the diagonal):

    min_{M, eta} max_{0 <= a <= C}  2 1'a - a'(reg Q o M - eta I)a - eta

with eta free (then a has norm 1; volume) or zero (margin). Here M = VV', where V has unit rows and
few columns. The inner maximum is a box program, and a dual point bounds the distance of the value
to the optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator

from volmar._checks import fix_signs
from volmar._eigen import eigenvalues, eigsh, singular_values, thin_svd
from volmar.solvers.box_qp import BoxPoint, BoxQP
from volmar.solvers.result import Certificate, Result, Status

# ------------------------------------------------------------------ the problem

# Maximum number of rows for a dense largest eigenvalue; Lanczos is used beyond.
DENSE_UP_TO = 2000
# Number of entries of a sparse Q that are processed at a time.
CHUNK = 50_000
# Share of the largest entry of a below which an entry counts as zero, and share of the largest
# eigenvalue of a Laplacian below which an eigenvalue counts as zero.
SUPPORT, ROUNDING = 1e-9, 1e-12


class DualPoint(NamedTuple):
    """A dual point: a in the box, multipliers s of the row sums, and y with Diag(y) above G."""

    a: NDArray
    s: NDArray
    y: NDArray


class WeightedMatrix:
    """Q o VV' for a dense Q, plus a multiple of the identity; rows are computed on demand."""

    def __init__(self, Q: NDArray, V: NDArray):
        self.Q, self.V, self.shape = Q, V, Q.shape
        self.ridge = 0.0

    def diagonal(self) -> NDArray:
        """Return the diagonal, without computing the other entries."""
        return self.Q.diagonal() * np.einsum("ij,ij->i", self.V, self.V) + self.ridge

    def __getitem__(self, rows: NDArray) -> NDArray:
        """Return the rows with these numbers."""
        # Maximum share of the rows of a weighted matrix that are computed separately.
        if "whole" in vars(self) or rows.size > 0.4 * len(self.V):
            return self.whole[rows]
        some = self.V[rows] @ self.V.T
        some *= self.Q[rows]
        some[np.arange(rows.size), rows] += self.ridge
        return some

    def block(self, rows: NDArray) -> NDArray:
        """Return the block of these rows and the same columns."""
        both = np.ix_(rows, rows)
        if "whole" in vars(self):
            return self.whole[both]
        some = self.V[rows] @ self.V[rows].T
        some *= self.Q[both]
        some.flat[:: rows.size + 1] += self.ridge
        return some

    def __matmul__(self, x: NDArray) -> NDArray:
        """Return the product with a vector."""
        return self.whole @ x

    def toarray(self) -> NDArray:
        """Return a copy of the whole matrix."""
        return self.whole.copy()

    @cached_property
    def whole(self) -> NDArray:
        """The matrix as an array, computed once."""
        # The copy avoids numpy's symmetric product, which is slower for so few columns.
        H = self.V @ np.ascontiguousarray(self.V.T)
        H *= self.Q
        H.flat[:: len(H) + 1] += self.ridge
        return H


class ElliptopeProblem:
    """The saddle problem of `solve_elliptope_saddle`, with the same parameters."""

    def __init__(
        self,
        Q: Any,
        *,
        reg: float = 1.0,
        C: float = 1.0,
        unit_norm: bool = True,
        balance: float | None = None,
        row_balance: bool = False,
    ):
        self.n = Q.shape[0]
        if unit_norm and C * np.sqrt(self.n) < 1 - 1e-12:
            raise ValueError(
                f"C={C:.3g} is too small: the box of {self.n} dimensions has no point of norm 1. "
                f"Use C of at least 1/sqrt(n) = {1 / np.sqrt(self.n):.3g}."
            )
        self.is_sparse = sparse.issparse(Q)
        self.Q: Any = np.asarray(Q, dtype=np.float64) if not self.is_sparse else None
        if self.is_sparse:
            matrix = sparse.csr_matrix(Q)
            matrix.sum_duplicates()
            self.Q = matrix
            self._rows = np.repeat(np.arange(self.n), np.diff(matrix.indptr))
        # On the unit sphere no entry exceeds 1.
        self.reg, self.C, self.unit_norm = reg, min(C, 1.0) if unit_norm else C, unit_norm
        self.balance = balance
        # 1'M1 <= 0 is equivalent to M1 = 0, but it has no interior and an unbounded multiplier.
        self.by_rows = row_balance or balance == 0

    def change(self, a: NDArray) -> float:
        """Return an estimate of the part of the value that depends on M."""
        return self.reg * float(a @ (abs(self.Q) @ a))

    def weighted(self, V: NDArray) -> Any:
        """Return reg Q o VV' on the sparsity pattern of Q, sparse or as a `WeightedMatrix`."""
        if not self.is_sparse:
            return WeightedMatrix(self.Q, np.sqrt(self.reg) * V)
        data = np.empty(self.Q.nnz)
        for begin in range(0, data.size, CHUNK):
            part = slice(begin, begin + CHUNK)
            left, right = V[self._rows[part]], V[self.Q.indices[part]]
            data[part] = np.einsum("ij,ij->i", left, right)
        data *= self.reg * self.Q.data
        return sparse.csr_matrix((data, self.Q.indices, self.Q.indptr), shape=self.Q.shape)

    def violation(self, V: NDArray) -> float:
        """Return the violation of the bound on the row sums of M."""
        if self.balance is None:
            return 0.0
        sums = V @ V.sum(axis=0)
        worst = np.abs(sums).max() if self.by_rows else sums.mean()
        return max(float(worst) - self.balance, 0.0)

    def product(self, x: NDArray, a: NDArray, s: NDArray) -> NDArray:
        """Return G x for columns x."""
        image = self.reg * (a[:, None] * (self.Q @ (a[:, None] * x)))
        if self.balance is not None:
            image -= (np.outer(s, x.sum(axis=0)) + (s @ x)[None, :]) / 2
        return image

    def dual_point(self, V: NDArray, a: NDArray, s: NDArray) -> DualPoint:
        """Return y = diag(G VV'), raised by the largest eigenvalue of G - Diag(y), with a and s.

        If a must have norm 1, it is scaled to it.
        """
        if self.unit_norm:
            a = a / (float(np.linalg.norm(a)) or 1.0)
        y = np.einsum("ij,ij->i", self.product(V, a, s), V)
        return DualPoint(a, s, y + max(self._excess(a, s, y), 0.0))

    def bound(self, point: DualPoint) -> float:
        """Return the dual value; minus infinity for an a outside the box."""
        a, s, y = point
        if a.max() > self.C * (1 + 1e-9) or (self.unit_norm and not a.any()):
            return -np.inf
        return float(2 * a.sum() - y.sum() - (self.balance or 0.0) * np.abs(s).sum())

    def room_beside_one(self, tol: float) -> float:
        r"""Return the maximum distance tr(HMH) / n from M = 11' for a relative gap of `tol`.

        Let a be the maximiser of M = 11', :math:`G = \gamma Q \circ aa'` and
        :math:`L = Diag(G1) - G` its Laplacian. For any M, :math:`F(M) \ge F(11') + \langle G,
        11' - M \rangle = F(11') + \langle L, M \rangle`, and :math:`\langle L, M \rangle \ge
        \lambda_2(L) \, tr(HMH)` with the centring H, if the smallest eigenvalue of L is that of 1.
        Then M = 11' is optimal, as for every Q without negative entries, and every M with a gap of
        :math:`\epsilon` has :math:`tr(HMH) \le \epsilon / \lambda_2`. H centres the rows with
        positive :math:`a_i`, the only ones that affect the value. Returns the trivial bound 1 if
        M = 11' is not known to be optimal, and for more than 2,000 rows.
        """
        if self.balance is not None or self.n > DENSE_UP_TO:
            return 1.0
        Q = self._dense()
        point = BoxQP(self.n, self.C, unit_norm=self.unit_norm).solve(self.reg * Q)
        a = point.a
        if self.unit_norm and abs(float(np.linalg.norm(a)) - 1) > 1e-6:
            return 1.0
        rows = np.flatnonzero(a > SUPPORT * a.max())
        if rows.size < 2:
            return 1.0
        G = self.reg * Q[np.ix_(rows, rows)] * np.outer(a[rows], a[rows])
        values = eigenvalues(np.diag(G.sum(axis=1)) - G)
        if values[0] < -ROUNDING * values[-1] or values[1] <= ROUNDING * values[-1]:
            return 1.0
        reference = gap_reference(point.value, self.change(a))
        return min(tol * reference / (rows.size * float(values[1])), 1.0)

    def bound_beside(self, V: NDArray, value: float, bound: float, s: NDArray) -> float:
        """Return a lower bound that also holds for M = VV', which may violate the balance.

        If M violates the balance b by v, it is feasible for b + v, for which the value of the same
        dual point is smaller by v |s|_1. The `value` of M is below that at most by rounding.
        """
        if self.balance is None:
            return min(bound, value)
        return min(bound - self.violation(V) * float(np.abs(s).sum()), value)

    def certificate(
        self, V: NDArray, a: NDArray, y: NDArray, s: NDArray, rest: NDArray | None = None
    ) -> Certificate:
        """Return value, gap and residuals of M = VV' and a dual point, computed from Q.

        `rest` is Z - aa' if eta may be positive.
        """
        if rest is not None:
            return self._certificate_above_zero(V, a, y, rest)
        point = BoxQP(self.n, self.C, unit_norm=self.unit_norm).solve(self.weighted(V))
        excess = max(self._excess(a, s, y), 0.0)
        bound = self.bound(DualPoint(a, s, y + excess))
        gap = point.value + point.slack - self.bound_beside(V, point.value, bound, s)
        reference = gap_reference(point.value, self.change(point.a))
        residuals = {
            "relative gap": gap / reference,
            "inner": point.slack / reference,
            "balance": self.violation(V) / self.n,
        }
        return Certificate(point.value, residuals, gap)

    def _certificate_above_zero(
        self, V: NDArray, a: NDArray, y: NDArray, rest: NDArray
    ) -> Certificate:
        """Return the certificate with eta bounded by the smallest eigenvalue of H = reg Q o M.

        In the box program of H minus that eigenvalue, eta is at most zero.
        """
        H = self._dense() * (self.reg * (V @ V.T))
        low = float(eigenvalues(H, (0, 0))[0])
        point = BoxQP(self.n, self.C, unit_norm=True).solve(H - low * np.eye(self.n))
        value = point.value - low
        Z = np.outer(a, a) + rest
        weighted = self.reg * self._dense() * Z
        raised = y + max(largest_eigenvalue(weighted - np.diag(y)), 0.0)
        bound = self.bound(DualPoint(a, np.zeros(self.n), raised))
        is_feasible = abs(np.trace(Z) - 1) <= 1e-9 and eigenvalues(rest, (0, 0))[0] >= -1e-9
        gap = max(value + point.slack - bound, 0.0) if is_feasible else np.inf
        reference = max(abs(value), 1.0)
        residuals = {"relative gap": gap / reference, "inner": point.slack / reference}
        return Certificate(value, {**residuals, "balance": 0.0}, gap)

    def _dense(self) -> NDArray:
        return self.Q.toarray() if self.is_sparse else self.Q

    def _excess(self, a: NDArray, s: NDArray, y: NDArray) -> float:
        """Return the largest eigenvalue of G - Diag(y)."""
        n = self.n
        if n <= DENSE_UP_TO:
            G = self._dense() * (self.reg * a)
            G *= a[:, None]
            if self.balance is not None:
                G -= s / 2
                G -= s[:, None] / 2
            G.flat[:: n + 1] -= y
            return largest_eigenvalue(G)

        def product(x: NDArray) -> NDArray:
            return self.product(x.reshape(n, 1), a, s).ravel() - y * x.ravel()

        slack = LinearOperator((n, n), matvec=product, dtype=np.float64)
        v0 = np.random.default_rng(0).standard_normal(n)
        value, vector = eigsh(slack, k=1, which="LA", tol=1e-6, v0=v0, ncv=40, maxiter=500)
        # There is an eigenvalue within the residual of this value. With a random start it is
        # almost surely the largest; a proof would need a factorisation.
        residual = np.linalg.norm(slack @ vector[:, 0] - value[0] * vector[:, 0])
        return float(value[0] + residual)


def gap_reference(value: float, change: float) -> float:
    """Return the scale of the relative gap.

    This is the value or, if smaller, the part of it that depends on M (with a small weight or box,
    the value has a large constant), but at least the precision of the value.
    """
    # Relative precision of a value; smaller changes cannot be distinguished from rounding.
    return max(min(abs(value), change), 1e-6 * abs(value), np.finfo(np.float64).tiny)


def largest_eigenvalue(G: NDArray) -> float:
    """Return the largest eigenvalue of a dense symmetric matrix."""
    last = len(G) - 1
    return float(eigenvalues(G, (last, last))[0])


def unit_rows(U: NDArray) -> NDArray:
    """Scale rows to unit length; a zero row becomes constant."""
    norms = np.linalg.norm(U, axis=1, keepdims=True)
    return np.divide(U, norms, out=np.full_like(U, 1 / np.sqrt(U.shape[1])), where=norms > 0)


def minimise_over_unit_rows(
    value_and_gradient: Callable[[NDArray], tuple[float, NDArray]], V: NDArray, max_iter: int
) -> tuple[NDArray, int]:
    """Minimise over V with unit rows by L-BFGS; return V and the number of iterations."""
    shape = V.shape

    def of_unit_rows(flat: NDArray) -> tuple[float, NDArray]:
        U = flat.reshape(shape)
        norms = np.linalg.norm(U, axis=1, keepdims=True)
        W = U / norms
        value, gradient = value_and_gradient(W)
        gradient -= W * np.einsum("ij,ij->i", W, gradient)[:, None]
        return value, (gradient / norms).ravel()

    options = {
        "maxiter": max_iter,
        "maxfun": 2 * max_iter + 20,
        "maxcor": 20,
        # An augmented Lagrangian is flat and then steep: 20 line search steps may all fail.
        "maxls": 60,
        "ftol": 1e-16,
        "gtol": 1e-10,
    }
    found = minimize(of_unit_rows, V.ravel(), jac=True, method="L-BFGS-B", options=options)
    return unit_rows(found.x.reshape(shape)), int(found.nit)


# ------------------------------------------------------------------ the solver

# Iterations between certificates, and in the first round.
ROUND = 50
FIRST_ROUND = 20
# Mean violation of the balance, relative to n, below which M counts as balanced.
BALANCED = 1e-3
# Smoothing of the inner maximum: at first, relative to the mean diagonal of Q, and its decay.
SMOOTH_FIRST = 0.2
SMOOTH_DECAY = 0.2
# Iterations charged for a round that makes none.
IDLE = 10
# Maximum number of rounds with the same smoothing.
PATIENCE = 5
# Relative residual of the inner maximum during a descent, and for certificates. The error of the
# value is its square.
DESCENT_TOL, EXACT_TOL = 1e-10, 1e-12


@dataclass(frozen=True, repr=False)
class ElliptopeResult(Result):
    """Solution of the elliptope saddle problem; `gap` is certified.

    M = VV' with `factor` V; `a` is the maximiser of the inner problem and `eta` the multiplier of
    ``|a| = 1`` (zero without it). `lower_bound`, the dual value, is below that of every feasible
    M, and of VV' itself, which may violate the balance by ``residuals["balance"]``. Its dual point
    consists of `balance_multipliers`, the multipliers s of ``|M1| <= balance`` (all equal if the
    mean is bounded), of `bound_a` in the box, of `bound_y` with Diag(y) above G, and of
    `bound_rest`, Z - aa' if eta may be positive (see `solve_elliptope_barrier`).

    `residuals` contains "relative gap", the gap divided by the smaller of ``|objective|`` and
    ``a'|Q|a`` (the part of it that depends on M); "inner", the possible error of the inner
    maximum, divided by the same; and "balance", the mean violation of the balance divided by n.
    """

    _solution: ClassVar[tuple[str, ...]] = (
        "factor",
        "bound_a",
        "bound_y",
        "balance_multipliers",
        "bound_rest",
    )

    factor: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    a: NDArray = field(default_factory=lambda: np.empty(0))
    eta: float = 0.0
    lower_bound: float = -np.inf
    balance_multipliers: NDArray = field(default_factory=lambda: np.empty(0))
    bound_a: NDArray = field(default_factory=lambda: np.empty(0))
    bound_y: NDArray = field(default_factory=lambda: np.empty(0))
    bound_rest: NDArray | None = None


def solve_elliptope_saddle(
    Q: Any,
    *,
    reg: float = 1.0,
    C: float = 1.0,
    unit_norm: bool = True,
    balance: float | None = None,
    row_balance: bool = False,
    tol: float = 1e-6,
    max_iter: int = 1000,
    random_state: int = 0,
) -> ElliptopeResult:
    r"""Minimise the inner maximum of the saddle problem over correlation matrices M.

    .. math:: \min_{M \succeq 0,\, M_{ii} = 1,\, 1'M1 \le n b} \; \min_\eta \;
              \max_{0 \le a \le C} \; 2 \cdot 1'a - a'(\gamma Q \circ M - \eta I)a - \eta

    **Primal.** M = VV' with unit rows; L-BFGS on V, with the gradient
    :math:`-2 \gamma (Q \circ aa') V` of the value at the inner maximiser a (Danskin). With
    :math:`\sqrt{2m}` columns for m constraints, a point that satisfies the second-order conditions
    is a global minimum (Burer and Monteiro). At most 12 columns are used, and the gap shows
    whether they were sufficient. The balance is enforced by an augmented Lagrangian.
    With eta zero and a nearly singular Q the inner maximum is nearly nonsmooth. Then the problem
    is solved first without its balance: its M may be balanced, and its bound holds in any case.
    After that, :math:`\epsilon |a|^2` is subtracted from the inner maximum, for decreasing
    :math:`\epsilon`.

    **Dual.** For any a in the box (of norm 1 if eta is free), any s and any y with
    :math:`Diag(y) \succeq G = \gamma Q \circ aa' - (s1' + 1s')/2`,

    .. math:: 2 \cdot 1'a - 1'y - b \|s\|_1

    is a lower bound on the optimum. It follows from swapping minimum and maximum, and from the
    dual of the maximum of :math:`\langle G, M \rangle` over correlation matrices. With
    :math:`y = diag(G M)`, raised by the largest eigenvalue of G - Diag(y), the bound is tight at
    the optimum. Before that, L-BFGS on :math:`\langle G, M \rangle` alone finds a better y. If the
    mean of the row sums is bounded, s is the multiplier of the augmented Lagrangian or that with
    the smallest gradient, whichever gives the better bound. The best bound of all rounds is kept.
    The gap includes the possible error of the inner maximum.

    Parameters
    ----------
    Q : ndarray or sparse matrix of shape (n, n)
        Symmetric, positive semi-definite *similarity* matrix. (With a Laplacian the relaxation
        returns a maximum cut.) For a sparse Q, M is computed only on its sparsity pattern.
    reg : float, default=1
        Weight :math:`\gamma`. Eta is limited to values of at most zero. If a large reg would make
        it positive, the problem reduces to making Q o M as definite as possible: M then has full
        rank and contains little information about clusters. In that case the status is DEGENERATE
        and a is shorter than 1. `solve_elliptope_barrier` solves such problems.
    C : float, default=1
        Upper limit of the box. With eta free, at least 1/sqrt(n); values above 1 have no effect.
    unit_norm : bool, default=True
        Whether eta is free (JMLR eq. 13) or zero (eq. 22).
    balance : float, optional
        Bound b on the row sums of M. If None, there is no such constraint.
    row_balance : bool, default=False
        Whether b bounds the absolute value of each row sum of M, ``|M1| <= b``, which has n
        multipliers and converges slowly, or only their mean, which has one multiplier. For b = 0
        the two are equivalent, and each row sum is bounded.
    tol : float, default=1e-6
        Relative gap at which to stop (see "relative gap" in `ElliptopeResult`).
    max_iter : int, default=1000
        Maximum number of iterations of L-BFGS in all rounds together.
    random_state : int, default=0
        Random seed of the start.

    Returns
    -------
    ElliptopeResult
        `status` is MAX_ITER if `tol` was not reached; the gap is still certified. (With more than
        2,000 rows, this assumes that Lanczos finds the largest eigenvalue of G - Diag(y) from a
        random start.)

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.solvers import solve_elliptope_saddle
    >>> Q = np.kron(np.eye(2), np.full((3, 3), 0.5)) + 0.5 * np.eye(6)
    >>> result = solve_elliptope_saddle(Q, balance=0.0)
    >>> result.is_certified(1e-5)
    True
    """
    saddle = _Saddle(
        Q, reg=reg, C=C, unit_norm=unit_norm, balance=balance, row_balance=row_balance
    )
    n_constraints = saddle.n * (2 if balance is not None and saddle.by_rows else 1)
    # Maximum number of columns of V: solutions have few, and more slow the descent.
    rank = min(int(np.ceil(np.sqrt(2 * n_constraints))) + 1, 12)
    V = saddle.start(rank, random_state)
    run = _Run(saddle, tol, max_iter)
    if not unit_norm:
        # Without its balance the problem is easy, and its bound holds for every balanced M.
        saddle.holds_balance = False
        # Maximum share of the iterations for the problem without its balance.
        run.rounds(V, max(int(0.2 * max_iter), min(FIRST_ROUND, max_iter)))
        saddle.holds_balance = balance is not None
        # With one multiplier per row, long rounds would update the multipliers too rarely.
        if balance is None or not saddle.by_rows:
            saddle.smoothing = SMOOTH_FIRST * float(saddle.Q.diagonal().mean())
    run.rounds(V, max_iter)
    return run.result()


@dataclass(frozen=True)
class _Primal:
    """An M with its inner maximum, its violation and the scale of its gap."""

    V: NDArray
    point: BoxPoint
    violation: float
    reference: float

    @property
    def value(self) -> float:
        return self.point.value

    def gap(self, bound: float) -> float:
        # An M that slightly violates the balance may have a value below the bound.
        return max(self.value + self.point.slack - bound, bound - self.value, 0.0)


class _Run:
    """Rounds of descent. The best M and the best bound may come from different rounds."""

    def __init__(self, saddle: _Saddle, tol: float, max_iter: int):
        self.saddle, self.tol, self.max_iter = saddle, tol, max_iter
        self.spent, self.is_over, self.patience = 0, False, PATIENCE
        self.history: list[float] = []
        self.best: _Primal | None = None
        self.bound, self.dual = -np.inf, DualPoint(*np.zeros((3, saddle.n)))

    def rounds(self, V: NDArray, up_to: int) -> NDArray:
        """Descend until the gap is closed, nothing changes, or `up_to` iterations are used."""
        saddle = self.saddle
        while not self.is_over and self.spent < up_to:
            # The first round is short: if eta is not negative, the run ends there.
            is_first = self.spent == 0
            # Iterations between certificates with smoothing; shorter rounds would discard L-BFGS's
            # memory.
            length = 250 if saddle.smoothing else FIRST_ROUND if is_first else ROUND
            V, used = minimise_over_unit_rows(
                saddle.value_and_gradient, V, min(length, up_to - self.spent)
            )
            # A round without iterations still has the cost of its certificate.
            self.spent += max(used, min(IDLE, up_to - self.spent) if saddle.smoothing else 1)
            if not is_first:
                saddle.update_multipliers(V)
            now = saddle.measured(V)
            latest = self._take(now)
            is_exact = not (saddle.holds_balance or saddle.smoothing)
            if is_exact and (used == 0 or now.gap(self.bound) <= self.tol * now.reference):
                break
            self._smooth_less(now, latest)
        return V

    def _take(self, now: _Primal) -> float:
        bound, dual = self.saddle.lower_bound(now, self.bound, self.tol)
        if bound > self.bound:
            self.bound, self.dual = bound, dual
        self.history.append(now.value)
        # Before M is balanced, eta may be nonnegative although it is not for a balanced M.
        hopeless = self._is_degenerate(now) and now.violation <= BALANCED
        if self.best is None or hopeless or self._merit(now) <= self._merit(self.best):
            self.best = now
        self.is_over = hopeless or self._is_close(self.best) or self.spent >= self.max_iter
        return bound

    def _smooth_less(self, now: _Primal, bound: float) -> None:
        """Reduce the smoothing once the gap is mostly due to it, or does not decrease."""
        self.patience -= 1
        of_smoothing = self.saddle.smoothing * float(now.point.a @ now.point.a)
        if now.gap(bound) <= 3 * of_smoothing or self.patience <= 0:
            self.saddle.smoothing *= SMOOTH_DECAY
            self.patience = PATIENCE

    def _merit(self, primal: _Primal) -> tuple[float, float]:
        gap = primal.gap(self.bound) / primal.reference
        return max(primal.violation - BALANCED, 0.0), gap + primal.violation

    def _is_close(self, primal: _Primal) -> bool:
        gap = primal.gap(self.bound)
        return bool(gap <= self.tol * primal.reference and primal.violation <= self.tol)

    def _is_degenerate(self, primal: _Primal) -> bool:
        """Return whether eta would not be negative."""
        return self.saddle.unit_norm and bool(abs(np.linalg.norm(primal.point.a) - 1) > 1e-6)

    def result(self) -> ElliptopeResult:
        best = self.best
        if best is None:  # max_iter is positive
            raise AssertionError
        status = Status.CONVERGED if self._is_close(best) else Status.MAX_ITER
        bound = self.saddle.bound_beside(best.V, best.value, self.bound, self.dual.s)
        gap = best.value + best.point.slack - bound
        return ElliptopeResult(
            objective=best.value,
            gap=gap,
            residuals={
                "relative gap": gap / best.reference,
                "inner": best.point.slack / best.reference,
                "balance": best.violation,
            },
            status=Status.DEGENERATE if self._is_degenerate(best) else status,
            n_iter=self.spent,
            history=tuple(self.history),
            factor=best.V,
            a=best.point.a,
            eta=best.point.eta,
            lower_bound=bound,
            bound_a=self.dual.a,
            bound_y=self.dual.y,
            balance_multipliers=self.dual.s,
        )


class _Saddle(ElliptopeProblem):
    """The problem with the state of its augmented Lagrangian and of its inner solver."""

    def __init__(self, Q: Any, **parameters: Any):
        super().__init__(Q, **parameters)
        self.inner = BoxQP(self.n, self.C, unit_norm=self.unit_norm)
        self.s_plus, self.s_minus = np.zeros(self.n), np.zeros(self.n)
        self.penalty = 1.0 / self.n if self.by_rows else 1.0 / self.n**2
        self.last_violation = np.inf
        self.holds_balance, self.smoothing = self.balance is not None, 0.0
        # Solver of the inner maximum without smoothing, for the value.
        self.exact = self.inner if self.unit_norm else BoxQP(self.n, self.C, unit_norm=False)
        # Scale of the part of the value that depends on M. L-BFGS minimises (value - offset) /
        # scale; otherwise it would stop early because of rounding of a large constant (small reg,
        # small C). Both are set at the start.
        self.scale, self.offset = 1.0, 0.0

    def start(self, rank: int, seed: int) -> NDArray:
        """Return random rows, smoothed and centred, so that similar rows have similar starts."""
        noise = np.random.default_rng(seed).standard_normal((self.n, rank))
        noise /= np.linalg.norm(noise)
        smooth = noise
        # Number of products with Q that smooth the start.
        for _ in range(10):
            smooth = self.Q @ smooth
            smooth = smooth - smooth.mean(axis=0)
            smooth = smooth / (np.linalg.norm(smooth) or 1.0)
        V = unit_rows(smooth + 0.1 * noise)
        point = self.inner.solve(self.weighted(V))
        self.scale = self.change(point.a) or 1.0
        self.offset = point.value
        return V

    # ------------------------------------------------------------------ the primal

    def _inner(self, V: NDArray, tol: float = EXACT_TOL) -> BoxPoint:
        """Solve for the inner maximum minus smoothing times |a|^2."""
        H = self.weighted(V)
        if self.smoothing and self.is_sparse:
            H = H + self.smoothing * sparse.identity(self.n, format="csr")
        elif self.smoothing:
            H.ridge = self.smoothing
        return self.inner.solve(H, tol=tol)

    def value_and_gradient(self, V: NDArray) -> tuple[float, NDArray]:
        point = self._inner(V, DESCENT_TOL)
        gradient = self._gradient(V, point.a)
        value = (point.value - self.offset) / self.scale
        gradient /= self.scale
        if self.holds_balance:
            sums = V @ V.sum(axis=0)
            plus, minus = self._pull(sums)
            # A single multiplier for all rows counts once.
            size = float(plus @ plus + minus @ minus) / (1 if self.by_rows else self.n)
            value += size / (2 * self.penalty)
            t = plus - minus
            gradient += t[:, None] * V.sum(axis=0) + (V.T @ t)[None, :]
        return value, gradient

    def _gradient(self, V: NDArray, a: NDArray) -> NDArray:
        """Return -2 reg (Q o aa') V, computed from the rows with nonzero a."""
        rows = np.flatnonzero(a)
        if self.is_sparse:
            return -2 * self.reg * a[:, None] * (self.Q @ (a[:, None] * V))
        if 2 * rows.size > self.n:
            # Q is symmetric, and a wide product is faster than a tall one.
            image = np.ascontiguousarray((a[:, None] * V).T) @ self.Q
            image *= -2 * self.reg * a
            return image.T
        gradient, some = np.zeros_like(V), a[rows, None]
        block = self.Q.take(rows, axis=0).take(rows, axis=1)
        gradient[rows] = -2 * self.reg * some * (block @ (some * V[rows]))
        return gradient

    def _pull(self, sums: NDArray) -> tuple[NDArray, NDArray]:
        """Return the multipliers of the augmented Lagrangian for these row sums of M."""
        if not self.by_rows:
            above = sums.sum() - self.n * self.balance
            return np.maximum(self.s_plus + self.penalty * above, 0.0), self.s_minus
        plus = np.maximum(self.s_plus + self.penalty * (sums - self.balance), 0.0)
        minus = np.maximum(self.s_minus + self.penalty * (-sums - self.balance), 0.0)
        return plus, minus

    def update_multipliers(self, V: NDArray) -> None:
        """Update the multipliers, and increase the penalty if the violation decreases slowly."""
        if not self.holds_balance:
            return
        self.s_plus, self.s_minus = self._pull(V @ V.sum(axis=0))
        violation = self.violation(V)
        share, factor = (0.5, 3.0) if self.by_rows else (0.25, 5.0)
        if violation > max(share * self.last_violation, 1e-5 * self.n):
            self.penalty *= factor
        self.last_violation = violation

    # ------------------------------------------------------------------ the dual

    def measured(self, V: NDArray) -> _Primal:
        """Return M with its value, violation and reference, all recomputed."""
        point = self.exact.solve(self.weighted(V))
        reference = gap_reference(point.value, self.change(point.a))
        return _Primal(V, point, self.violation(V) / self.n, reference)

    def lower_bound(self, primal: _Primal, so_far: float, tol: float) -> tuple[float, DualPoint]:
        """Return a bound and its dual point, tightened if it does not close the gap."""
        s = self.scale * (self.s_plus - self.s_minus)
        V, a = primal.V, primal.point.a
        if self.smoothing:
            a = self._inner(V).a
        points = [self.dual_point(V, a, s)]
        if self.holds_balance and not self.by_rows:
            points.append(self.dual_point(V, a, np.full(self.n, self._nearest_multiplier(V, a))))
        bound, point = max(((self.bound(p), p) for p in points), key=itemgetter(0))
        if self.smoothing and primal.gap(max(bound, so_far)) > tol * primal.reference:
            tighter = self.dual_point(self._tightened(V, a, point.s), a, point.s)
            bound, point = max((bound, point), (self.bound(tighter), tighter), key=itemgetter(0))
        return bound, point

    def _nearest_multiplier(self, V: NDArray, a: NDArray) -> float:
        """Return the multiplier of 1'M1 with which V is nearest to stationary.

        The multiplier of the augmented Lagrangian has an error of the penalty times the remaining
        change of 1'M1, and the error of the eigenvalues of G is up to n times as large.
        """
        sums = V.sum(axis=0)
        pull = sums - V * (V @ sums)[:, None]
        size = float(np.sum(pull**2))
        return max(-0.5 * float(np.sum(pull * self._gradient(V, a))) / size, 0.0) if size else 0.0

    def _tightened(self, V: NDArray, a: NDArray, s: NDArray) -> NDArray:
        """Maximise <G, M> for a fixed a, which gives the best y for this a."""
        scale = self.scale

        def linear(W: NDArray) -> tuple[float, NDArray]:
            image = self.product(W, a, s)
            return -float(np.sum(image * W)) / scale, -2 * image / scale

        # Iterations on a linear objective to tighten a bound.
        return minimise_over_unit_rows(linear, V, 200)[0]


# ------------------------------------------------------------------ labels

# Maximum ratio of the second to the first eigenvalue of the centred M for two clear clusters.
SPREAD = 0.5


@dataclass(frozen=True)
class Rounded:
    """Signs y in {-1, 1} rounded from M, and the scores of which they are the signs.

    `spread` is the ratio of the second to the first eigenvalue of the centred M. It is 0 if M has
    exactly two clusters, and 1 if two directions are equally good or M is constant. `rank` is the
    numerical rank of M.
    """

    y: NDArray
    scores: NDArray
    spread: float
    rank: int

    @property
    def determined(self) -> bool:
        """Whether M is close to two clusters."""
        return self.spread <= SPREAD


@dataclass(frozen=True, repr=False)
class RoundedResult(ElliptopeResult):
    """Solution of the relaxation with labels rounded from it.

    The labels are the signs of `scores`. `spread` is the ratio of the second to the first
    eigenvalue of the centred M. Above 1/2, M is far from two clusters and the labels may be one
    choice of several, even if the gap is small: the gap bounds the value of the relaxation, not
    the labels. `room_beside_one` is, without a bound on row sums, the maximum distance
    tr(HMH) / n from a single cluster, M = 11', that a gap of `tol` allows, over the rows with
    positive a. Up to 1/2, M = 11' is the solution, and the labels are due to the tolerance. It is
    1 if M = 11' is not known to be the unique solution.
    """

    _optimum: ClassVar[str] = "the optimum of the relaxation"
    _signed = ("scores",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    scores: NDArray = field(default_factory=lambda: np.empty(0))
    rank: int = 0
    spread: float = 1.0
    room_beside_one: float = 1.0

    @property
    def one_cluster(self) -> bool:
        """Whether the relaxation is solved by one cluster, M = 11', up to the tolerance."""
        # Maximum tr(HMH) / n up to which M counts as 11'; clusters of one and six rows have as
        # much.
        return self.room_beside_one <= 0.5

    @classmethod
    def of(cls, found: ElliptopeResult, rounded: Rounded, **more: Any) -> Self:
        """Return the result of the relaxation with the rounded labels added."""
        return cls(
            **{one.name: getattr(found, one.name) for one in fields(ElliptopeResult)},
            labels=(rounded.y > 0).astype(np.int64),
            scores=rounded.scores,
            rank=rounded.rank,
            spread=rounded.spread,
            **more,
        )


def round_centred(V: NDArray) -> Rounded:
    """Round to the signs of the leading eigenvector of HMH, with H the centring matrix."""
    centred = V - V.mean(axis=0)
    left, values, _ = thin_svd(centred)
    return _rounded(V, left[:, 0], values**2)


def round_as_printed(V: NDArray) -> Rounded:
    """Round to the signs of the leading eigenvector of M minus its mean (JMLR section 3.3)."""
    left = thin_svd(V)[0][:, 0]
    centred = singular_values(V - V.mean(axis=0)) ** 2
    return _rounded(V, left - left.mean(), centred)


def round_randomly(
    V: NDArray, value: Callable[[NDArray], float], n_rounds: int, seed: int
) -> Rounded:
    """Round to signs of random projections of V; the y with the lowest ``value(y)`` is kept.

    Projections are cut at their mean, as in `round_centred`. Labels are skipped if their clusters
    differ more in size than those of `round_centred`: the balance is a constraint on M, which the
    value alone does not enforce.
    """
    rng = np.random.default_rng(seed)
    best = round_centred(V)
    lowest = value(best.y)
    uneven = abs(best.y.sum())
    for _ in range(n_rounds):
        scores = V @ rng.standard_normal(V.shape[1])
        scores = scores - scores.mean()
        y = np.where(scores >= 0, 1.0, -1.0)
        if abs(y.sum()) > uneven:
            continue
        found = value(y)
        if found < lowest:
            lowest = found
            best = Rounded(y, scores, best.spread, best.rank)
    return best


def _rounded(V: NDArray, scores: NDArray, centred_values: NDArray) -> Rounded:
    n = V.shape[0]
    scores = fix_signs(scores)
    top = float(centred_values[0])
    second = float(centred_values[1]) if centred_values.size > 1 else 0.0
    # If the leading eigenvalue of the centred M is below this share of n, M counts as 11'.
    spread = 1.0 if top <= 1e-3 * n else second / top
    values = singular_values(V)
    rank = int(np.sum(values > 1e-3 * values[0]))
    return Rounded(np.where(scores >= 0, 1.0, -1.0), scores, spread, rank)
