"""Approximate volume regularisation: soft responses of all rows from a few labelled rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar.operators import EigenPairs, SPDOperator
from volmar.solvers import Result, Status
from volmar.solvers.result import Certificate
from volmar.volume.alternation import _Secular
from volmar.volume.problem import VolumeProblem

# Labels count as orthogonal to the lowest eigenvectors if their projection is below this fraction
# of their norm.
ORTHOGONAL = 1e-8
# Below this fraction of their norm, the sign of the projection is rounding error.
ROUNDING = 1e-13
# Eigenvalues within this fraction of the operator's norm of the lowest count as equal to it.
SAME = 1e-9
# Maximum number of lowest eigenvectors that are computed to detect the degenerate case.
MAX_PAIRS = 64
# The pseudo-inverse is applied by linear solves at a distance from the pole of this fraction of
# the spectral gap. Each correction reduces the error by that factor.
OFF_POLE = 1e-3
CORRECTIONS = 4

# Minimiser on the unit sphere, its multiplier there, and the status.
_Found = tuple[NDArray, float, Status]


# ---------------------------------------------------------------------------------- problem


@dataclass(frozen=True)
class AVRProblem:
    r"""Approximate volume regularisation (JMLR eq. 25; El-Yaniv, Pechyony and Vapnik 2008).

    .. math:: \min_h \; -\frac{1}{m} h'y + \gamma \, h'Qh \quad \text{s.t.} \quad \|h\|_2 = t

    y is +1 and -1 on the m labelled rows and 0 on the others. With :math:`h = t u` this is
    :math:`\min -2y'u + \rho \, u'Qu` over the unit sphere, :math:`\rho = 2 m t \gamma`. The
    direction of h, and therefore the classes, depend on scale and regulariser only through their
    product. Adding a multiple of the identity to Q changes the objective by a constant and leaves
    h unchanged.

    Attributes
    ----------
    operator : SPDOperator
        Q.
    y : ndarray of shape (n,)
        Labels, +1, -1 or 0, not all of them 0.
    reg : float
        :math:`\gamma`.
    scale : float
        t.
    """

    operator: SPDOperator
    y: NDArray
    reg: float
    scale: float

    @property
    def n_labelled(self) -> int:
        """Number m of labelled rows."""
        return int(np.count_nonzero(self.y))

    @property
    def strength(self) -> float:
        r""":math:`\rho = 2 m t \gamma`, the regulariser of the problem on the unit sphere."""
        return 2 * self.n_labelled * self.scale * self.reg

    def objective(self, h: NDArray) -> float:
        """Return the objective of the soft responses h, without rescaling them."""
        smoothness = self.reg * float(h @ self.operator.matvec(h))
        return smoothness - float(h @ self.y) / self.n_labelled

    def certificate(self, h: NDArray, lowest: float | None = None) -> Certificate:
        r"""Recompute the residuals of h from Q, and bound its distance to the minimum.

        "stationarity" is the norm of ``reg Q h - eta h - y / 2m``, half the gradient of the
        Lagrangian at the least-squares multiplier, divided by the larger norm of its first and
        third term. "norm" is the relative difference of the norm of h and the scale.

        On the sphere the Lagrangian has no duality gap. With the residual
        :math:`r = y / 2m - (\gamma Q - \eta I) h`, which is orthogonal to h for the least-squares
        multiplier, and :math:`g = \gamma \lambda_1 - \eta`, the dual value at
        :math:`\eta - \delta` shows that h is within
        :math:`(|r|^2 + \delta^2 t^2) / (g + \delta)` of the minimum; the best :math:`\delta`
        gives :math:`2 t^2 (\sqrt{g^2 + |r|^2 / t^2} - g)`. At a stationary point that is not the
        minimum, g is negative and the gap is large.

        Parameters
        ----------
        h : ndarray of shape (n,)
            Soft responses.
        lowest : float, optional
            A lower bound of the eigenvalues of Q. If None, it is computed.
        """
        if lowest is None:
            lowest = _lower_bound(self.operator, self.operator.smallest_eigenpairs(1))
        linear = self.y / (2 * self.n_labelled)
        image = self.reg * self.operator.matvec(h)
        square = float(h @ h)
        eta = float(h @ (image - linear)) / square
        residual = float(np.linalg.norm(linear - image + eta * h))
        size = max(float(np.linalg.norm(linear)), float(np.linalg.norm(image)))
        length = float(np.sqrt(square))
        margin = self.reg * lowest - eta
        root = float(np.hypot(margin, residual / length))
        # With a positive margin, root - margin would suffer from cancellation.
        slack = residual**2 / (square * (root + margin)) if margin > 0 else root - margin
        return Certificate(
            float(h @ image) - 2 * float(h @ linear),
            {"stationarity": residual / size, "norm": abs(length / self.scale - 1.0)},
            2 * square * slack,
        )

    def error(self, h: NDArray, eta: float, lowest: float) -> float:
        r"""Bound the error of the responses, up to a rounding difference of the scale.

        With :math:`A = \gamma Q - \eta I`, the vector :math:`A^{-1} y / 2m` is the minimum for the
        scale equal to its norm. For every c it differs from c h by at most
        :math:`|y / 2m - c A h| / (\gamma \lambda_1 - \eta)`, and a positive factor changes no
        sign. The bound is infinite if eta is not below the pole.

        Parameters
        ----------
        h : ndarray of shape (n,)
            Soft responses.
        eta : float
            Multiplier with which h was computed.
        lowest : float
            A lower bound of the eigenvalues of Q.
        """
        margin = self.reg * lowest - eta
        if not margin > 0:
            return np.inf
        linear = self.y / (2 * self.n_labelled)
        image = self.reg * self.operator.matvec(h) - eta * h
        factor = float(linear @ image) / float(image @ image)
        return float(np.linalg.norm(linear / factor - image)) / margin


# ----------------------------------------------------------------------------------- solver


@dataclass(frozen=True, repr=False)
class AVRResult(Result):
    """Soft responses with their multipliers; one column per class for more than two classes.

    Attributes
    ----------
    h : ndarray of shape (n,) or (n, k)
        Soft responses; every column has the norm `scale`.
    multipliers : ndarray of shape (1,) or (k,)
        eta of each column, the smallest root of JMLR eq. 26.
    errors : ndarray of shape (1,) or (k,)
        Bound on the error of the responses of each column (see `AVRProblem.error`). NaN if the
        status is not CONVERGED.
    """

    _solution = ("h",)

    h: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    multipliers: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    errors: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Mask of the rows whose class is not determined: they are within `errors` of a tie.

        Such rows lie half-way between labels, in a component of the graph without labels, or so
        far from all labels that their response is below the rounding error.
        """
        if self.h.ndim == 1:
            return ~(np.abs(self.h) > self.errors[0])
        rows, best = np.arange(self.h.shape[0]), self.h.argmax(axis=1)
        ahead = self.h[rows, best, None] - self.h
        ahead[rows, best] = np.inf
        return ~np.all(ahead > self.errors + self.errors[best, None], axis=1)


def solve_avr(problem: AVRProblem, *, tol: float = 1e-8) -> AVRResult:
    r"""Find the global minimum of approximate volume regularisation.

    The conditions for a stationary point are (JMLR, above eq. 26)

    .. math:: (\gamma Q - \eta I) h = \frac{y}{2m}, \qquad
              \frac{1}{4 m^2} \sum_i \frac{(v_i'y)^2}{(\gamma\lambda_i - \eta)^2} = t^2,

    and the global minimum is the one with :math:`\eta \le \gamma\lambda_1`, for which
    :math:`\gamma Q - \eta I` is positive semidefinite. As eta increases to that pole, the sum
    grows from 0 to infinity. The root below the pole is therefore unique and the smallest of all,
    unless y is orthogonal to every eigenvector of :math:`\lambda_1`. In that case the sum stays
    finite at the pole. If it is below :math:`t^2` there, all roots of eq. 26 lie beyond the pole
    and none is the minimum. The minimum then has :math:`\eta = \gamma\lambda_1`, with the rest of
    its norm along such an eigenvector in either direction, and the status is DEGENERATE.

    The status is MAX_ITER if the search for the multiplier ended too early and the residual is
    above the square root of `tol`.
    """
    pairs = _lowest_pairs(problem)
    lowest = _lower_bound(problem.operator, pairs)
    found = _at_the_pole(problem, pairs)
    if isinstance(found, float):
        found = _below_the_pole(problem, pairs, found, tol)
    u, eta, status = found
    h = u * (problem.scale / float(np.linalg.norm(u)))
    eta *= problem.reg / problem.strength
    certificate = problem.certificate(h, lowest)
    if certificate.residuals["stationarity"] > np.sqrt(tol):
        status = Status.MAX_ITER
    error = problem.error(h, eta, lowest) if status.ok else np.nan
    return AVRResult(
        **vars(certificate),
        status=status,
        n_iter=1,
        history=(certificate.objective,),
        h=h,
        multipliers=np.array([eta]),
        errors=np.array([error]),
    )


def _lower_bound(operator: SPDOperator, pairs: EigenPairs) -> float:
    """Return a lower bound of the eigenvalues: the first less its residual, or a known bound."""
    return max(float(pairs.values[0] - pairs.residuals[0]), operator.bounds[0])


def _lowest_pairs(problem: AVRProblem) -> EigenPairs:
    """Return the lowest eigenpair, or more of them if y is orthogonal to it.

    In that case all eigenvectors of the lowest eigenvalue and at least one more are returned, at
    most `MAX_PAIRS`. One pair is enough in the ordinary case, and for a Laplacian it is known.
    """
    operator, k = problem.operator, 1
    while True:
        pairs = operator.smallest_eigenpairs(k)
        tied = pairs.values[-1] - pairs.values[0] <= SAME * max(map(abs, operator.bounds))
        if not tied or not _is_orthogonal(problem.y, pairs.vectors):
            return pairs
        if k >= min(MAX_PAIRS, operator.n):
            return pairs
        k = min(2 * k, MAX_PAIRS, operator.n)


def _is_orthogonal(y: NDArray, vectors: NDArray) -> bool:
    return float(np.linalg.norm(vectors.T @ y)) <= ORTHOGONAL * float(np.linalg.norm(y))


def _at_the_pole(problem: AVRProblem, pairs: EigenPairs) -> _Found | float:
    r"""Return the minimiser on the unit sphere if its multiplier is at the pole.

    If y is numerically orthogonal to all lowest eigenvectors V and x is not longer than 1, the
    minimiser is :math:`x + \sqrt{1 - |x|^2} \, v` with
    :math:`x = (\rho Q - \rho\lambda_1 I)^+ y` and v along the projection of y on V. If that
    projection is zero up to rounding, both signs of v give a minimum.

    Otherwise the function returns a distance from the pole at which h is still too long. It is
    :math:`|V'y|`, because the part of h along V alone has norm 1 there, or
    :math:`(|x| - 1) \rho\Delta` with :math:`\Delta = \lambda_2 - \lambda_1`, because
    :math:`|h| \ge |x| \rho\Delta / (\rho\Delta + \mu)` at a distance :math:`\mu`.
    """
    low = pairs.values - pairs.values[0] <= SAME * max(map(abs, problem.operator.bounds))
    V, lowest, rho = pairs.vectors[:, low], float(pairs.values[0]), problem.strength
    along = V.T @ problem.y
    lean = float(np.linalg.norm(along))
    if low.all() or not _is_orthogonal(problem.y, V):
        return lean
    gap = float(pairs.values[~low][0]) - lowest
    x, rest = np.zeros_like(problem.y), problem.y - V @ along
    for _ in range(1 + CORRECTIONS):
        step = problem.operator.solve(OFF_POLE * gap - lowest, rest).x / rho
        x = x + step - V @ (V.T @ step)
        rest = problem.y - V @ along - rho * (problem.operator.matvec(x) - lowest * x)
    length = float(np.linalg.norm(x))
    if length > 1 + ORTHOGONAL:
        return max(lean, (length - 1) * rho * gap)
    leans = lean > ROUNDING * float(np.linalg.norm(problem.y))
    direction = V @ along / lean if leans else V[:, 0]
    fill = float(np.sqrt(max(1 - length**2, 0.0)))
    # Just below the pole, at the root of eq. 26 to first order.
    eta = rho * lowest - (lean / fill if leans and fill > 0 else 0.0)
    return x + fill * direction, eta, Status.CONVERGED if leans else Status.DEGENERATE


def _below_the_pole(problem: AVRProblem, pairs: EigenPairs, distance: float, tol: float) -> _Found:
    """Return the minimiser on the unit sphere, at least `distance` below the pole."""
    unit = VolumeProblem(problem.operator, problem.strength, balance=np.inf)
    # The closed-form start is at the pole itself if strength = |y| and no two labelled rows are
    # neighbours, because the diagonal of a normalised Laplacian is 1.
    highest = problem.strength * float(pairs.values[0]) - distance
    best = _Secular(unit, problem.y, None, pairs.values, highest).solve(tol)
    # Far from the labels, responses are small, and their signs could be those of the error of an
    # iterative solve. One step of iterative refinement corrects them.
    rho, u = problem.strength, best.h
    rest = problem.y - rho * problem.operator.matvec(u) + best.eta * u
    u = u + problem.operator.solve(-best.eta / rho, rest).x / rho
    return u, best.eta, Status.CONVERGED


def solve_one_against_rest(
    operator: SPDOperator, Y: NDArray, reg: float, scale: float, *, tol: float = 1e-8
) -> AVRResult:
    """Solve one problem per column of the labels Y (+1, -1 or 0) with the same Q.

    `objective` and `gap` are sums over the classes, `residuals` are maxima. The status is that of
    the first class that has not converged.
    """
    found = [solve_avr(AVRProblem(operator, y, reg, scale), tol=tol) for y in Y.T]
    objective = sum(one.objective for one in found)
    names = found[0].residuals
    return AVRResult(
        objective=objective,
        gap=sum(one.gap for one in found),
        residuals={name: max(one.residuals[name] for one in found) for name in names},
        status=next((one.status for one in found if not one.status.ok), Status.CONVERGED),
        n_iter=1,
        history=(objective,),
        h=np.column_stack([one.h for one in found]),
        multipliers=np.concatenate([one.multipliers for one in found]),
        errors=np.concatenate([one.errors for one in found]),
    )
