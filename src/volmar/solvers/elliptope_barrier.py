r"""The elliptope saddle problem for any sign of eta, by a barrier method over the full M.

With a large weight the multiplier eta of `volmar.solvers.elliptope` is not negative. It is then
bounded by the smallest eigenvalue of reg Q o M, and the maximiser a may be shorter than 1. Such an
M has full rank, and the value is not smooth if that eigenvalue is multiple. Therefore M itself is
the variable here, and logarithmic barriers keep M and reg Q o M - eta I positive definite.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar._eigen import eigenpairs
from volmar.solvers.box_qp import BoxQP
from volmar.solvers.elliptope import ElliptopeResult, largest_eigenvalue, unit_rows
from volmar.solvers.result import Status

# Maximum number of rows, because n x n matrices are multiplied thousands of times.
MAX_ROWS = 500
# First weight of the barriers, and its decay from one centre to the next.
FIRST, DECAY = 1.0, 0.2
# Relative residual of a Newton system, maximum products for it, and products per `max_iter`.
SYSTEM_TOL, MAX_PRODUCTS, PRODUCTS_PER_ITERATION = 0.03, 3000, 100
# Maximum number of rows for factorising Newton systems, of n (n - 1) / 2 unknowns: always, and if
# conjugate gradients needed more products than the cost of a factorisation, n^3 / 200.
ALWAYS_DIRECT, DIRECT_UP_TO, COST = 40, 100, 200
# Number of rows of such a matrix that are computed at a time.
BLOCK = 256
# Share of the merit below which a decrement counts as rounding.
ROUNDING = 1e-13


class _Centre(NamedTuple):
    """M with the solution of the inner barrier problem; `inverse` is that of S = H - eta I."""

    M: NDArray
    H: NDArray
    a: NDArray
    eta: float
    inverse: NDArray
    value: float  # without barriers, an upper bound on the optimum
    slack: float  # possible error of the inner maximum
    merit: float  # with barriers


def solve_elliptope_barrier(
    Q: Any, *, reg: float = 1.0, C: float = 1.0, tol: float = 1e-5, max_iter: int = 1000
) -> ElliptopeResult:
    r"""Minimise the inner maximum over correlation matrices M and eta, for any weight.

    .. math:: \min_{M \succeq 0,\, M_{ii} = 1} \; \min_{\eta \le \lambda_{min}(\gamma Q \circ M)}
              \; \max_{0 \le a \le C} \; 2 \cdot 1'a - a'(\gamma Q \circ M - \eta I)a - \eta

    This is JMLR eq. 13, whose semi-definite constraint bounds eta.

    **Dual.** The minimum over eta is :math:`\max_{a, Z} 2 \cdot 1'a - \gamma \langle Q \circ M,
    Z \rangle` over :math:`Z \succeq aa'`, tr Z = 1. Hence :math:`2 \cdot 1'a - 1'y` is a lower
    bound on the optimum for any such a and Z and any y with :math:`Diag(y) \succeq \gamma Q \circ
    Z`. If eta is below that eigenvalue, Z = aa' and this is the dual of `solve_elliptope_saddle`.

    **Centres.** With barriers :math:`-\epsilon \log\det(\gamma Q \circ M - \eta I) - \epsilon
    \log\det M` the conditions of a minimum are :math:`Z = aa' + \epsilon (\gamma Q \circ M - \eta
    I)^{-1}`, tr Z = 1, and :math:`Diag(y) - \gamma Q \circ Z = \epsilon M^{-1}`. These give a dual
    point with a gap of :math:`2 n \epsilon`. Eta follows from tr Z = 1, a from a box program, and
    M from Newton's method on its off-diagonal entries, with conjugate gradients or, up to 100
    rows, a Cholesky factorisation. The constant due to the diagonal of Q is removed first.
    """
    Q = np.asarray(Q.toarray() if sparse.issparse(Q) else Q, dtype=np.float64)
    n = len(Q)
    if n > MAX_ROWS:
        raise ValueError(
            f"the barrier method supports at most {MAX_ROWS} rows, got {n}. Lower reg, so that "
            "`solve_elliptope_saddle` can solve the problem."
        )
    run = _Barrier(Q, float(reg), min(float(C), 1.0), tol, PRODUCTS_PER_ITERATION * max_iter)
    return run.result(run.solve())


class _Barrier:
    """The central path, with the best value and the best bound so far."""

    def __init__(self, Q: NDArray, reg: float, C: float, tol: float, max_products: int):
        self.n, self.C, self.tol, self.max_products = len(Q), C, tol, max_products
        lowest = float(Q.diagonal().min())
        self.constant = -reg * lowest
        self.G = reg * (Q - lowest * np.eye(self.n))  # H = G o M
        self.inner, self.below = BoxQP(self.n, C, unit_norm=False), 1.0
        self.epsilon, self.n_steps, self.spent, self.used = FIRST, 0, 0, 0
        self.history: list[float] = []
        self.bound, self.a, self.y = -np.inf, np.zeros(self.n), np.zeros(self.n)
        self.rest = np.zeros((self.n, self.n))

    def solve(self) -> _Centre:
        now = best = self.centre(np.eye(self.n))
        while self.spent < self.max_products:
            now, decrement, moved = self.newton(now)
            if now.value < best.value:
                best = now
            # Share of the requested gap that the two barriers of n rows may leave at the last
            # centre.
            last = 0.9 * self.tol * self.reference(best) / (2 * self.n)
            is_last = self.epsilon <= last * (1 + 1e-9)
            # Newton decrements at which to stop, in units of the barrier weight: for intermediate
            # centres (times n), for trying the dual point of the last centre, and for treating
            # that centre as exact.
            near = 0.02 if is_last else 0.1 * self.n
            if moved and decrement > near * self.epsilon:
                continue
            self.take_bound(now)
            if self.is_close(best):
                break
            # Where the Hessian is large, a small decrement may leave residuals that are large
            # relative to the barrier, and these enter the bound.
            if is_last and moved and decrement > 1e-10 * self.epsilon:
                continue
            self.history.append(now.value + self.constant)
            if self.epsilon < 1e-2 * last:
                break
            self.epsilon = max(DECAY * self.epsilon, last) if not is_last else self.epsilon / 2
            now = self.centre(now.M)
        self.take_bound(now)
        return best

    # ------------------------------------------------------------------ a centre

    def centre(self, M: NDArray) -> _Centre:
        """Solve for a and eta; raise LinAlgError if M is not positive definite."""
        factor = linalg.cholesky(M, lower=True, check_finite=False)
        H = self.G * M
        values, vectors = eigenpairs(H)
        a, x = self._on_trace(H, values - values[0], float(values[0]))
        eta, gaps = float(values[0]) - x, values - values[0] + x
        image = H @ a - eta * a
        gradient = 2 * (1 - image)
        slack = float(np.maximum(gradient * (self.C - a), -gradient * a).sum())
        value = float(2 * a.sum() - a @ image - eta)
        barriers = np.log(gaps).sum() + 2 * np.log(factor.diagonal()).sum()
        merit = value - self.epsilon * float(barriers)
        return _Centre(M, H, a, eta, (vectors / gaps) @ vectors.T, value, max(slack, 0.0), merit)

    def _on_trace(self, H: NDArray, above: NDArray, lowest: float) -> tuple[NDArray, float]:
        """Return a and x > 0 with |a|^2 + epsilon tr(S^-1) = 1 at eta = lowest - x.

        Bracketed Newton method on the inverse root of the left side, which is nearly linear.
        """
        x, low, high = self.below, 0.0, np.inf
        # Tolerance of the trace, and maximum number of steps for the multiplier of this
        # constraint.
        for _ in range(100):
            a = self.inner.maximiser(H, lowest - x)
            inverse = 1 / (above + x)
            trace = float(a @ a) + self.epsilon * float(inverse.sum())
            if abs(trace - 1) <= 1e-9:
                break
            low, high = (x, high) if trace > 1 else (low, x)
            slope = 2 * self.inner.slope(H, lowest - x, a)
            slope += self.epsilon * float(inverse @ inverse)
            following = x - 2 * (trace**-0.5 - 1) * trace**1.5 / slope
            if not low < following < high:
                # The trace decreases from infinity to 0 as x increases.
                is_open = low == 0.0 or high == np.inf
                following = x * (4.0 if trace > 1 else 0.25) if is_open else np.sqrt(low * high)
            if abs(following - x) <= 1e-14 * x:
                break
            x = float(following)
        self.below = x
        return a, x

    # ------------------------------------------------------------------ Newton's method

    def newton(self, now: _Centre) -> tuple[_Centre, float, bool]:
        """Return the next centre, the decrement before it, and whether a step was taken."""
        self.n_steps += 1
        gradient, change = self._direction(now)
        decrement = -float(np.vdot(gradient, change))
        step = 1.0
        # Shortest step of the line search.
        while step > 1e-6:
            try:
                following = self.centre(now.M + step * change)
            except linalg.LinAlgError:
                step /= 2
                continue
            # For such a small decrement the change of the merit is lost to rounding.
            is_exact = decrement <= ROUNDING * abs(now.merit)
            if is_exact or following.merit <= now.merit - 1e-4 * step * decrement:
                return following, decrement, True
            step /= 2
        return now, decrement, False

    def _direction(self, now: _Centre) -> tuple[NDArray, NDArray]:
        """Return the gradient and an approximate Newton direction, both with a zero diagonal."""
        hessian = _Hessian(self.G, now, self.epsilon, self.C)
        cost = 1 + self.n**3 // COST
        is_cheaper = self.n <= DIRECT_UP_TO and self.used > cost
        if self.n <= ALWAYS_DIRECT or is_cheaper:
            solved = hessian.solve(-hessian.gradient)
            self.spent += cost
            if solved is not None:
                return hessian.gradient, solved
        limit = min(MAX_PRODUCTS, max(self.max_products - self.spent, 1))
        change, self.used = _conjugate_gradients(
            hessian.product, -hessian.gradient, hessian.diagonal(), limit
        )
        self.spent += self.used
        return hessian.gradient, (change + change.T) / 2

    # ------------------------------------------------------------------ the dual

    def take_bound(self, now: _Centre) -> None:
        """Keep the bound of a centre if it is the best so far, with a feasible Z and y."""
        P = self.epsilon * now.inverse
        P = (P + P.T) / 2
        trace = float(now.a @ now.a + np.trace(P))
        # Z >= aa' also holds for a shorter a.
        a = now.a * min(1.0, trace**-0.5)
        Z = (np.outer(now.a, now.a) + P) / trace
        weighted = self.G * Z
        y = np.einsum("ij,ij->i", weighted, now.M)
        y += largest_eigenvalue(weighted - np.diag(y))
        bound = float(2 * a.sum() - y.sum())
        if bound > self.bound:
            # Convert y to the given Q, whose diagonal includes the constant.
            self.bound, self.a = bound, a
            self.y = y - self.constant * Z.diagonal()
            self.rest = Z - np.outer(a, a)

    def reference(self, point: _Centre) -> float:
        return max(abs(point.value + self.constant), 1.0)

    def gap(self, point: _Centre) -> float:
        return max(point.value + point.slack - self.bound, 0.0)

    def is_close(self, point: _Centre) -> bool:
        return bool(self.gap(point) <= self.tol * self.reference(point))

    def result(self, best: _Centre) -> ElliptopeResult:
        reference = self.reference(best)
        bound = min(self.bound, best.value)
        return ElliptopeResult(
            objective=best.value + self.constant,
            gap=self.gap(best),
            residuals={
                "relative gap": self.gap(best) / reference,
                "inner": best.slack / reference,
                "balance": 0.0,
            },
            status=Status.CONVERGED if self.is_close(best) else Status.MAX_ITER,
            n_iter=self.n_steps,
            history=(*self.history, best.value + self.constant),
            factor=_factor(best.M),
            a=best.a,
            eta=best.eta - self.constant,
            lower_bound=bound + self.constant,
            bound_a=self.a,
            bound_y=self.y,
            bound_rest=self.rest,
            balance_multipliers=np.zeros(self.n),
        )


class _Hessian:
    """Derivatives of -G o Z - eps M^-1, Z = aa' + eps S^-1, by the off-diagonal entries of M.

    S changes with M and with eta, which keeps tr Z = 1. Entries of a inside the box change with S.
    """

    def __init__(self, G: NDArray, now: _Centre, eps: float, C: float):
        n, a = len(G), now.a
        self.G, self.a, self.eps, self.S_inv = G, a, eps, now.inverse
        inverse = linalg.inv(now.M, check_finite=False)
        self.M_inv = (inverse + inverse.T) / 2
        free = np.flatnonzero((a > 0) & (a < C))
        self.R = np.zeros((n, n))
        if free.size:
            both = np.ix_(free, free)
            block = now.H[both] - now.eta * np.eye(free.size)
            self.R[both] = linalg.inv(block, check_finite=False)
        self.squared, self.moved = self.S_inv @ self.S_inv, self.R @ a
        self.total = 2 * float(a @ self.moved) + eps * float(np.trace(self.squared))
        self.gradient = -G * (np.outer(a, a) + eps * self.S_inv) - eps * self.M_inv
        self.gradient.flat[:: n + 1] = 0.0

    def product(self, D: NDArray) -> NDArray:
        """Return the derivative along a D with zero diagonal."""
        G, a, eps, S_inv = self.G, self.a, self.eps, self.S_inv
        E = G * D
        image = E @ a
        of_eta = 2 * float(self.moved @ image) + eps * float(np.vdot(self.squared, E))
        of_eta /= self.total
        of_a = self.R @ (image - of_eta * a)
        out = S_inv @ E @ S_inv
        out -= of_eta * self.squared
        out *= eps
        out += np.outer(of_a, a)
        out += np.outer(a, of_a)
        out *= G
        out += eps * (self.M_inv @ D @ self.M_inv)
        out.flat[:: len(G) + 1] = 0.0
        return out

    def diagonal(self) -> NDArray:
        """Return the diagonal of the Hessian, without the part of eta, as an n x n matrix."""
        a, s, m, r = self.a, self.S_inv.diagonal(), self.M_inv.diagonal(), self.R.diagonal()
        diagonal = self.eps * (np.outer(s, s) + self.S_inv**2)
        diagonal += np.outer(r, a**2) + np.outer(a**2, r) + 2 * self.R * np.outer(a, a)
        return self.G**2 * diagonal + self.eps * (np.outer(m, m) + self.M_inv**2)

    def solve(self, right: NDArray) -> NDArray | None:
        """Return D with zero diagonal whose product is `right`; None if the Cholesky fails."""
        i, j = np.triu_indices(len(self.G), 1)
        g, a, eps = self.G[i, j], self.a, self.eps
        pull = np.outer(self.moved, a)
        w = g * ((pull + pull.T)[i, j] + eps * self.squared[i, j])
        w *= np.sqrt(2 / self.total)
        aa = np.outer(a, a)
        matrix = np.empty((i.size, i.size))
        for begin in range(0, i.size, BLOCK):
            part = slice(begin, begin + BLOCK)
            k, m = i[part], j[part]

            def both(A: NDArray, B: NDArray, k: NDArray = k, m: NDArray = m) -> NDArray:
                """Return A_ik B_jm + A_jk B_im for all pairs (i, j) and some (k, m)."""
                return A[k][:, i] * B[m][:, j] + A[k][:, j] * B[m][:, i]

            block = eps * both(self.S_inv, self.S_inv)
            block += both(self.R, aa)
            block += both(aa, self.R)
            block *= g[part, None]
            block *= g
            block += eps * both(self.M_inv, self.M_inv)
            block -= w[part, None] * w
            matrix[part] = block
        try:
            factor = linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None
        D = np.zeros_like(self.G)
        D[i, j] = linalg.cho_solve(factor, right[i, j], check_finite=False)
        return D + D.T


def _conjugate_gradients(
    product: Any, right: NDArray, diagonal: NDArray, limit: int
) -> tuple[NDArray, int]:
    """Solve product(X) = right to `SYSTEM_TOL`, with a diagonal preconditioner."""
    X = np.zeros_like(right)
    residual = right
    along = ahead = residual / diagonal
    size = first = float(np.vdot(residual, ahead))
    used = 0
    while used < limit and size > SYSTEM_TOL**2 * first:
        image = product(along)
        used += 1
        curvature = float(np.vdot(along, image))
        if curvature <= 0:  # due to rounding: the Hessian is positive definite
            break
        X += size / curvature * along
        residual = residual - size / curvature * image
        ahead = residual / diagonal
        before, size = size, float(np.vdot(residual, ahead))
        along = ahead + size / before * along
    return (X if X.any() else right / diagonal), max(used, 1)


def _factor(M: NDArray) -> NDArray:
    values, vectors = eigenpairs(M)
    kept = values > 1e-12 * values[-1]
    return unit_rows(vectors[:, kept] * np.sqrt(values[kept]))
