"""The packing problem: maximise weights of rows with weighted moments below the identity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from volmar._eigen import eigenvalues
from volmar.solvers.result import Certificate, Result, Status

# Step length below which rounding prevents progress.
SMALLEST_STEP = 1e-6


@dataclass(frozen=True, repr=False)
class PackingResult(Result):
    """The optimal weights, with a dual matrix that certifies them.

    The objective is -1'g. No feasible g has a larger sum than `bound`, the value of the dual point
    `dual` (Xi). Residuals: "semidefinite" is the absolute value of a negative smallest eigenvalue
    of I - F' Diag(g) F, "bounds" the violation of 0 <= g <= upper relative to the largest entry of
    g, and "relative gap" the gap divided by 1'g.
    """

    _solution: ClassVar[tuple[str, ...]] = ("g", "dual")

    g: NDArray = field(default_factory=lambda: np.empty(0))
    smallest_eigenvalue: float = float("nan")
    dual: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    bound: float = float("inf")


def solve_packing_sdp(
    F: NDArray, *, upper: float | None = None, tol: float = 1e-8, max_iter: int = 100
) -> PackingResult:
    r"""Maximise the sum of the weights of rows with bounded weighted second moments.

    .. math:: \max_g \; 1'g \quad \text{s.t.} \quad \sum_i g_i f_i f_i' \preceq I, \quad
              0 \le g \le u

    with :math:`f_i` the rows of F. Its dual is

    .. math:: \min_{\Xi \succeq 0} \; tr \, \Xi + u \sum_i \max(0, 1 - f_i' \Xi f_i),

    and without an upper bound :math:`\min tr \, \Xi` subject to :math:`f_i' \Xi f_i \ge 1`.

    For an invertible F with :math:`F F' = B^{-1}` the first constraint is :math:`B - Diag(g)
    \succeq 0`, because :math:`F'(B - Diag(g))F = I - F' Diag(g) F`. This problem subtracts the
    largest possible diagonal from a positive definite matrix, given its *inverse*. Directions in
    which B is huge or infinite are small or missing features, and cause no problems.

    Parameters
    ----------
    F : ndarray of shape (n, r)
        Rows; may have any scale and rank.
    upper : float, optional
        Upper bound u on the weight of a row. If None, there is no bound.
    tol : float, default=1e-8
        Certified gap, relative to 1'g, at which to stop.
    max_iter : int, default=100
        Maximum number of iterations; 10 to 35 are typical.

    Returns
    -------
    PackingResult
        The status is UNBOUNDED if `upper` is None and a row of F is zero, and FAILED if rounding
        prevents a gap of `tol`.

    Notes
    -----
    *Method.* Log barriers :math:`\mu \log\det A + \mu \sum \log g_i + \mu \sum \log(u - g_i)`
    with :math:`A = I - F' Diag(g) F` define the central path. With
    :math:`X = F A^{-1} F'` and :math:`p, s > 0` it satisfies

    .. math:: diag(F \Xi F') + s - p = 1, \quad \Xi A = \mu I, \quad p_i g_i = \mu, \quad
              s_i (u - g_i) = \mu.

    Newton's method on these equations (Helmberg, Rendl, Vanderbei and Wolkowicz 1996; with
    Mehrotra's predictor and corrector) leads to a system in the n weights,

    .. math:: \bigl(F \Xi F' \circ X + Diag(p / g + s / (u - g))\bigr) \, \delta
              = 1 - \mu \, (diag(X) - 1 / g + 1 / (u - g)).

    At :math:`\Xi = \mu A^{-1}` its matrix is :math:`\mu` times the Hessian
    :math:`X \circ X + \dots` of the barriers, and the method is Newton's method on the barriers
    alone. With :math:`\Xi, p, s` as further variables, :math:`\mu` can decrease by a factor of ten
    or more per step. A step costs about 20 matrix products.

    *Certificate.* The start is dual feasible, and all steps preserve this. At the end, these
    quantities are recomputed from F, g and :math:`\Xi`: the eigenvalues of A and of :math:`\Xi`,
    to which a multiple of the identity is added if rounding made one negative, the best multiple
    of :math:`\Xi`, and its dual value.

    Examples
    --------
    Each of two orthogonal rows has weight 1 / \|f\|^2, or the upper bound if that is smaller.

    >>> import numpy as np
    >>> from volmar.solvers import solve_packing_sdp
    >>> result = solve_packing_sdp(np.diag([1.0, 2.0]))
    >>> result.g.round(6), result.is_certified(1e-6)
    (array([1.  , 0.25]), True)
    >>> solve_packing_sdp(np.diag([1.0, 2.0]), upper=0.5).g.round(6)
    array([0.5 , 0.25])
    """
    F = _checked(F, upper)
    squares = np.einsum("ij,ij->i", F, F)
    seen = squares > 0
    if upper is None and not seen.all():
        return PackingResult(
            objective=-np.inf,
            status=Status.UNBOUNDED,
            g=np.where(seen, 0.0, np.inf),
            dual=np.zeros((F.shape[1],) * 2),
        )
    g = np.full(len(F), 0.0 if upper is None else upper, dtype=np.float64)
    dual = np.zeros((F.shape[1],) * 2)
    reached, n_iter = True, 0
    history: tuple[float, ...] = (-float(g.sum()),)
    if upper is None or not _is_definite(_identity_less(F, g)):
        unit = float(squares.max())  # scales features to a norm of at most 1
        rows = np.asfortranarray(F[seen] / np.sqrt(unit))
        scaled = None if upper is None else upper * unit
        best, reached, values = _follow(rows, scaled, tol, max_iter)
        g[seen], dual = best.g / unit, best.Xi / unit
        beyond = float(g[~seen].sum())
        history = tuple(-beyond - value / unit for value in values)
        n_iter = len(values)
    problem = PackingProblem(F, upper)
    return _certified(problem, g, dual, tol, n_iter=n_iter, reached=reached, history=history)


@dataclass(frozen=True)
class PackingProblem:
    """The problem of `solve_packing_sdp`: rows F and the upper bound on weights."""

    F: NDArray
    upper: float | None = None

    def smallest_eigenvalue(self, g: NDArray) -> float:
        """Return the smallest eigenvalue of I - F' Diag(g) F."""
        return _smallest(_identity_less(self.F, g))

    def bound(self, dual: NDArray) -> tuple[float, float]:
        """Return the smallest dual value over all multiples of a matrix, and this multiple."""
        z = np.einsum("ij,ij->i", self.F @ dual, self.F)
        return best_multiple(float(np.trace(dual)), z, self.upper)

    def certificate(self, g: NDArray, dual: NDArray) -> Certificate:
        """Return objective, gap and residuals of g and Xi, computed from F and the upper bound."""
        total = float(g.sum())
        # Maximum negative eigenvalue of Xi due to rounding, as a share of its trace.
        bound = self.bound(dual)[0] if _smallest(dual) >= -1e-12 * np.trace(dual) else np.inf
        gap = max(bound - total, 0.0)
        beyond = max(-g.min(), 0.0 if self.upper is None else g.max() - self.upper, 0.0)
        residuals = {
            "semidefinite": max(-self.smallest_eigenvalue(g), 0.0),
            "bounds": float(beyond / g.max()) if beyond else 0.0,
            "relative gap": float(gap / total) if gap else 0.0,
        }
        return Certificate(-total, residuals, gap)


def _certified(
    problem: PackingProblem,
    g: NDArray,
    dual: NDArray,
    tol: float,
    *,
    n_iter: int,
    reached: bool,
    history: tuple[float, ...],
) -> PackingResult:
    """Make g and Xi feasible if rounding errors made them infeasible, and certify them."""
    smallest = problem.smallest_eigenvalue(g)
    if smallest < 0:  # scale the largest eigenvalue of F'Diag(g)F to 1
        g = g / (1 - smallest)
        smallest = problem.smallest_eigenvalue(g)
    dual = dual + max(-_smallest(dual), 0.0) * np.eye(len(dual))
    bound, multiple = problem.bound(dual)
    dual = multiple * dual
    certificate = problem.certificate(g, dual)
    status = Status.CONVERGED if certificate.gap <= tol * g.sum() else Status.FAILED
    return PackingResult(
        **vars(certificate),
        status=status if status.ok or reached else Status.MAX_ITER,
        n_iter=n_iter,
        history=history,
        g=g,
        smallest_eigenvalue=smallest,
        dual=dual,
        bound=bound,
    )


def best_multiple(trace: float, z: NDArray, upper: float | None) -> tuple[float, float]:
    """Return the smallest dual value over the multiples t of a matrix Xi, and t.

    With z_i = f_i' Xi f_i, the value t trace + u sum max(0, 1 - t z_i) is convex and piecewise
    linear in t, with kinks at 1 / z_i. Without an upper bound, t is the smallest with t z >= 1.
    """
    if upper is None:
        smallest = float(z.min())
        return (trace / smallest, 1.0 / smallest) if smallest > 0 else (np.inf, 1.0)
    falling = np.sort(z)[::-1]
    # Slope beyond the k-th kink: trace minus u times the sum of the z_i with later kinks.
    ahead = upper * np.cumsum(falling[::-1])[::-1]
    n_passed = int(np.sum(ahead > trace))
    t = 1.0 / falling[n_passed - 1] if n_passed else 0.0
    return t * trace + upper * float(np.maximum(1.0 - t * z, 0.0).sum()), float(t)


class _PackingPoint(NamedTuple):
    """Weights, dual matrix, and the multipliers of g >= 0 and g <= u."""

    g: NDArray
    Xi: NDArray
    p: NDArray
    s: NDArray


class _Step(NamedTuple):
    """A change of a point; `drop` is F' Diag(g) F, the decrease of A."""

    g: NDArray
    drop: NDArray
    Xi: NDArray
    p: NDArray
    s: NDArray


def _follow(
    F: NDArray, upper: float | None, tol: float, max_iter: int
) -> tuple[_PackingPoint, bool, list[float]]:
    """Follow the central path until the gap is below `tol` or rounding prevents progress.

    Returns the best point, whether it ended before `max_iter`, and 1'g along the path.
    """
    point = _start(F, upper)
    best, smallest_gap, values = point, np.inf, []
    for _ in range(max_iter):
        try:
            system = _System(F, upper, point)
            total = float(point.g.sum())
            values.append(total)
            gap = best_multiple(float(np.trace(point.Xi)), system.z, upper)[0] - total
            if gap < smallest_gap:
                best, smallest_gap = point, gap
            if gap <= tol * total:
                break
            system.factorise()
        except linalg.LinAlgError:
            break
        predictor = system.predictor()
        lengths = system.lengths(predictor)
        left = system.complementarity(predictor, *lengths) / system.gap
        # The longer the steps of the predictor, the more mu can decrease. The target is limited,
        # because far below the requested gap the next point would be on the boundary.
        centring = max(left, 0.0) ** max(1.0, 3.0 * min(lengths) ** 2)
        # Minimum target of a step, as a share of the requested gap.
        target = max(centring * system.gap, 0.1 * tol * total)
        step = system.corrector(predictor, target / system.n_pairs)
        primal, dual = system.lengths(step)
        if max(primal, dual) < SMALLEST_STEP:
            break
        point = _PackingPoint(
            point.g + primal * step.g,
            point.Xi + dual * step.Xi,
            point.p + dual * step.p,
            point.s + dual * step.s,
        )
    else:
        return best, False, values
    return best, True, values


def _start(F: NDArray, upper: float | None) -> _PackingPoint:
    """Return weights halfway to the boundary, and a dual feasible multiple of the identity."""
    squares = np.einsum("ij,ij->i", F, F)
    g = 1.0 / squares
    if upper is not None:
        g = np.minimum(g, upper)
    g *= 0.5 / max(-_smallest(-_moments(F, g)), 1.0)
    # With an upper bound rows may violate z_i >= 1, so the median row can set the scale.
    xi = 1.5 / (squares.min() if upper is None else np.median(squares))
    z = xi * squares
    s = np.zeros_like(g) if upper is None else np.maximum(1.0 - z, 0.0) + 0.5
    return _PackingPoint(g, xi * np.eye(F.shape[1]), z + s - 1.0, s)


class _System:
    """The Newton equations at a point."""

    def __init__(self, F: NDArray, upper: float | None, point: _PackingPoint) -> None:
        self.F, self.point, self.bounded = F, point, upper is not None
        g, Xi = point.g, point.Xi
        self.room = np.full_like(g, np.inf) if upper is None else upper - g
        self.A = _identity_less(F, g)
        self.factor_A = _cholesky(self.A)
        half = blas.dtrmm(1.0, _cholesky(Xi), F, side=1, lower=1)
        self.Z = half @ half.T
        self.z = self.Z.diagonal().copy()
        self.gap = self._product(self.A, Xi, point.p, g, point.s, self.room)
        self.n_pairs = len(Xi) + (2 if self.bounded else 1) * g.size

    def _product(
        self, A: NDArray, Xi: NDArray, p: NDArray, g: NDArray, s: NDArray, room: NDArray
    ) -> float:
        """Return the complementarity gap <A, Xi> + p'g + s'(u - g)."""
        return float(np.vdot(A, Xi) + p @ g + (s @ room if self.bounded else 0.0))

    def factorise(self) -> None:
        g, _, p, s = self.point
        half = blas.dtrsm(1.0, self.factor_A, self.F, side=1, lower=1, trans_a=1)
        self.X = half @ half.T
        self.x = self.X.diagonal().copy()
        lower = np.tril(lapack.dpotri(self.factor_A, lower=1)[0])
        self.inverse_A = lower + np.tril(lower, -1).T
        H = self.Z * self.X
        H.flat[:: len(H) + 1] += p / g + s / self.room
        self.factor_H = _cholesky(H)

    def _step(
        self, mu: float, right: NDArray, Xi2: NDArray | float, p2: NDArray, s2: NDArray
    ) -> _Step:
        """Solve for the weights, then compute the rest; `Xi2`, `p2`, `s2` are second order."""
        g, Xi, p, s = self.point
        d = lapack.dpotrs(self.factor_H, right[:, None], lower=1)[0][:, 0]
        drop = _moments(self.F, d)
        dXi = _symmetrised(Xi @ drop @ self.inverse_A) + Xi2 + mu * self.inverse_A - Xi
        return _Step(
            d,
            drop,
            dXi,
            (mu - p2 - p * d) / g - p,
            (mu + s2 + s * d) / self.room - s,
        )

    def predictor(self) -> _Step:
        """Return the Newton step for mu = 0."""
        none = np.zeros_like(self.point.g)
        return self._step(0.0, np.ones_like(none), 0.0, none, none)

    def corrector(self, predictor: _Step, mu: float) -> _Step:
        """Return the step to the central path at `mu`, with the predictor's curvature."""
        g = self.point.g
        p2, s2 = predictor.p * predictor.g, predictor.s * predictor.g
        Xi2 = _symmetrised(predictor.Xi @ predictor.drop @ self.inverse_A)
        right = 1.0 - mu * (self.x - 1.0 / g + 1.0 / self.room)
        right -= np.einsum("ij,ij->i", self.F @ Xi2, self.F) + p2 / g + s2 / self.room
        return self._step(mu, right, Xi2, p2, s2)

    def lengths(self, step: _Step) -> tuple[float, float]:
        """Return primal and dual step lengths, at most 1, that preserve feasibility."""
        g, Xi, p, s = self.point
        primal, dual = _ratio(g, step.g), _ratio(p, step.p)
        if self.bounded:
            primal = min(primal, _ratio(self.room, -step.g))
            dual = min(dual, _ratio(s, step.s))
        return _definite_length(self.A, -step.drop, primal), _definite_length(Xi, step.Xi, dual)

    def complementarity(self, step: _Step, primal: float, dual: float) -> float:
        g, Xi, p, s = self.point
        return self._product(
            self.A - primal * step.drop,
            Xi + dual * step.Xi,
            p + dual * step.p,
            g + primal * step.g,
            s + dual * step.s,
            self.room - primal * step.g,
        )


def _ratio(values: NDArray, change: NDArray) -> float:
    """Return the step length, at most 1, that keeps positive values positive."""
    steepest = float(np.max(-change / values))
    # Maximum share of the distance to the boundary per step.
    return min(1.0, 0.97 / steepest) if steepest > 0 else 1.0


def _definite_length(matrix: NDArray, change: NDArray, length: float) -> float:
    """Return a step length up to `length` that keeps a matrix definite; 0 if there is none."""
    shortened = False
    while not _is_definite(matrix + length * change):
        # Factor of the backtracking, and of the step back from a boundary found by it.
        length *= 0.8
        shortened = True
        if length < SMALLEST_STEP:
            return 0.0
    return 0.95 * length if shortened else length


def _checked(F: NDArray, upper: float | None) -> NDArray:
    F = np.asarray(F, dtype=np.float64)
    if F.ndim != 2 or 0 in F.shape:
        raise ValueError(f"F must be a matrix with rows and columns, got shape {F.shape}.")
    if not np.isfinite(F).all():
        raise ValueError("F contains NaN or infinite values. Remove those rows.")
    if upper is not None and not (np.isfinite(upper) and upper >= 0):
        raise ValueError(f"upper must be finite and not negative, or None, got {upper}.")
    return F


def _moments(F: NDArray, weights: NDArray) -> NDArray:
    """Return F' Diag(weights) F, as symmetric products of positive and negative weights."""
    total = np.zeros((F.shape[1],) * 2)
    for sign in (1.0, -1.0):
        part = sign * weights > 0
        if part.any():
            scaled = F[part] * np.sqrt(np.abs(weights[part]))[:, None]
            total += sign * (scaled.T @ scaled)
    return total


def _identity_less(F: NDArray, g: NDArray) -> NDArray:
    """Return A = I - F' Diag(g) F."""
    A = -_moments(F, g)
    A.flat[:: len(A) + 1] += 1.0
    return A


def _symmetrised(matrix: NDArray) -> NDArray:
    return 0.5 * (matrix + matrix.T)


def _cholesky(matrix: NDArray) -> NDArray:
    """Return the lower factor; entries above the diagonal are undefined."""
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=0)
    if failed:
        raise linalg.LinAlgError("not positive definite")
    return factor


def _is_definite(matrix: NDArray) -> bool:
    return lapack.dpotrf(matrix, lower=1, clean=0)[1] == 0


def _smallest(matrix: NDArray) -> float:
    return float(eigenvalues(matrix, (0, 0))[0])
