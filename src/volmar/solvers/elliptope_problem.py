"""The elliptope saddle problem: values of correlation matrices, and their lower bounds.

The problem and its dual are stated in `volmar.solvers.elliptope`, which solves it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator

from volmar._eigen import eigenvalues, eigsh
from volmar.solvers.box_qp import BoxPoint, BoxQP
from volmar.solvers.result import Certificate

# Maximum number of rows for a dense largest eigenvalue; Lanczos is used beyond.
DENSE_UP_TO = 2000
# Maximum share of the rows of a weighted matrix that are computed separately.
FEW_ROWS = 0.4
# Number of entries of a sparse Q that are processed at a time.
CHUNK = 50_000
# Share of the largest entry of a below which an entry counts as zero, and share of the largest
# eigenvalue of a Laplacian below which an eigenvalue counts as zero.
SUPPORT, ROUNDING = 1e-9, 1e-12
# Relative precision of a value; smaller changes cannot be distinguished from rounding.
KNOWN_TO = 1e-6


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
        if "whole" in vars(self) or rows.size > FEW_ROWS * len(self.V):
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

    def _dual_matrix(self, a: NDArray, s: NDArray) -> NDArray:
        Q = self._dense()
        G = Q * (self.reg * a)
        G *= a[:, None]
        if self.balance is not None:
            G -= s / 2
            G -= s[:, None] / 2
        return G

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
            G = self._dual_matrix(a, s)
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


def gap_of(point: BoxPoint, bound: float) -> float:
    """Return the distance of a value to a bound, with the possible error of the inner maximum.

    An M that slightly violates the balance may have a value below the bound.
    """
    return max(point.value + point.slack - bound, bound - point.value, 0.0)


def gap_reference(value: float, change: float) -> float:
    """Return the scale of the relative gap.

    This is the value or, if smaller, the part of it that depends on M (with a small weight or box,
    the value has a large constant), but at least the precision of the value.
    """
    return max(min(abs(value), change), KNOWN_TO * abs(value), np.finfo(np.float64).tiny)


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
