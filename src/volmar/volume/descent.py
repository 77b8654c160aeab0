"""Algorithm 1 of the papers: sequential quadratic programming with steps in closed form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from volmar.operators.protocol import SPDOperator
from volmar.solvers import Result, Status
from volmar.volume.problem import SINGULAR, VolumeProblem, signs

# ---- sqp


@dataclass(frozen=True, repr=False)
class SoftResponses(Result):
    """Soft responses h of the problem, with their multipliers and the underlying smooth field.

    h has norm 1. `field` is the smooth field of the linear solve that moved labels (x of
    `QPStep`), or h itself if the signs of that field are not the labels, and `field_residual` the
    recomputed relative residual of its linear system (NaN if it does not come from `FirstStep`).
    `multiplier` is eta of the norm constraint, `balance_multiplier` kappa: positive if ``1'h =
    b``, negative if ``1'h = -b``.
    """

    _solution = ("h",)

    h: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    field: NDArray = dataclasses.field(default_factory=lambda: np.empty(0))
    field_residual: float = np.nan
    multiplier: float = np.nan
    balance_multiplier: float = 0.0


@dataclass(frozen=True)
class QPStep:
    """Solution x = h + p of the quadratic program (JMLR eq. 5) with its multipliers.

    ``(reg Q - eta_t I) x = sign(h) + (eta - eta_t) h - kappa 1``. `value` is
    ``x'(reg Q - eta_t I)x - 2 sign(h)'x``, the objective of the program up to terms that are
    constant over all feasible x.
    """

    x: NDArray
    eta: float
    kappa: float
    value: float


def solve_qp(
    problem: VolumeProblem, h: NDArray, eta: float, eigenvalues: NDArray
) -> QPStep | None:
    r"""Solve the quadratic program of a step (JMLR eq. 5) by its optimality conditions.

    In the new iterate x = h + p and with :math:`A = \gamma Q - \eta I`, s = sign(h),

    .. math:: A x = s + a h - \kappa 1, \qquad h'x = (1 + h'h) / 2, \qquad |1'x| \le b,

    which takes three solves with A and a 2 x 2 system for (a, kappa), and no product with Q. The
    multiplier of the norm constraint is exactly :math:`\eta + a`. The papers' formula (eq. 7, see
    `sqp`) agrees with it only while the balance constraint is inactive. The part of s along h is
    absorbed in a, which avoids cancellation at the start, where s is parallel to h.

    The three smallest `eigenvalues` of Q (all for n < 3) determine the number of negative
    eigenvalues of A. Returns None if the program has no minimum, because A is not definite on the
    feasible directions.
    """
    s = signs(h)
    along = float(h @ s) / float(h @ h)
    rest = s - along * h
    ones = np.ones_like(h)
    images = problem.operator.solve(-eta / problem.reg, np.column_stack([h, ones, rest])).x
    Zh, Z1, Zs = images.T / problem.reg
    gram = np.array([[h @ Zh, h @ Z1], [ones @ Zh, ones @ Z1]])
    n_negative = int(np.sum(eigenvalues * problem.reg < eta))
    right = (1 + h @ h) / 2

    def step(a: float, kappa: float) -> QPStep:
        x = Zs + a * Zh - kappa * Z1
        change = a - along
        return QPStep(x, eta + change, kappa, float(change * right - kappa * x.sum() - s @ x))

    if n_negative == int(gram[0, 0] < 0):
        idle = step((right - h @ Zs) / gram[0, 0], 0.0)
        total = float(idle.x.sum())
        if abs(total) <= problem.balance:
            return idle
        sides = [np.copysign(problem.balance, total)]
    elif n_negative == int(np.sum(np.linalg.eigvalsh(gram) < 0)):
        sides = [-problem.balance, problem.balance]  # bounded only by the balance constraint
    else:
        return None
    system = gram * [1.0, -1.0]
    if abs(np.linalg.det(system)) <= SINGULAR * abs(gram[0, 0] * gram[1, 1]):
        raise ValueError(
            "the soft responses at the start are the same for all rows, and no step from there "
            f"satisfies balance={problem.balance:.3g}, because the matrix Q does not distinguish "
            "the rows. Check that the rows differ, or pass another Q."
        )
    steps = [
        step(*np.linalg.solve(system, [right - h @ Zs, side - ones @ Zs]).tolist())
        for side in sides
    ]
    return min(steps, key=lambda one: one.value)


def is_above(problem: VolumeProblem, eta: float, eigenvalues: NDArray) -> bool:
    r"""Return whether :math:`\eta \ge \gamma \lambda_1`, where a program may have no minimum.

    Always False with balance = 0, which the paper uses only for the limit of section 4. All soft
    responses are then on the plane 1'h = 0, and the Lagrangian need not be bounded elsewhere.
    """
    return problem.balance > 0 and eta >= problem.reg * float(eigenvalues[0])


def sqp(
    problem: VolumeProblem,
    h0: NDArray,
    eigenvalues: NDArray,
    *,
    eta0: float = 0.0,
    tol: float = 1e-6,
    algorithm: Literal["jmlr", "aistats"] = "jmlr",
    max_iter: int = 100,
) -> SoftResponses:
    r"""Run Algorithm 1 of both papers, as printed.

    A step solves the quadratic program (eq. 5) and updates the multiplier by eq. 7, the least
    squares fit

    .. math:: \eta_{t+1} = h_t'(\gamma Q h_{t+1} - \eta_t p_t - s_t) / h_t'h_t
              = \eta_t + a - \kappa \, 1'h_t / h_t'h_t

    by the optimality conditions of the program (`solve_qp`), whose exact multiplier is
    :math:`\eta_t + a`. (AISTATS eq. 6 is the same with :math:`\eta_t I` for :math:`\eta_t p_t`,
    which is a misprint, because it subtracts a matrix from a vector.)

    "jmlr" converges at :math:`\|h_t - h_{t-1}\| + |\eta_t - \eta_{t-1}| \le tol`. If
    :math:`\eta_{t+1} \ge \gamma \lambda_1` (see `is_above`), it returns the previous iterate
    :math:`h_t` with status STOPPED. "aistats" uses the sum of squares and has no such bound. Both
    are STOPPED if a program has no minimum. `eta0` is 0 in JMLR and -0.001 in AISTATS.

    h is scaled to norm 1 at the end, because an unfinished h is longer and would win every
    comparison of objectives. `field` is x of the first step if it has the same signs, otherwise h.
    """
    h, eta, kappa = h0, eta0, 0.0
    first = h0
    history: list[float] = []
    status = Status.MAX_ITER
    power = 1 if algorithm == "jmlr" else 2
    for _ in range(max_iter):
        step = solve_qp(problem, h, eta, eigenvalues)
        if step is None:
            status = Status.STOPPED
            break
        new_eta = step.eta - step.kappa * float(h.sum()) / float(h @ h)
        if algorithm == "jmlr" and is_above(problem, new_eta, eigenvalues):
            status = Status.STOPPED
            break
        moves = float(np.linalg.norm(step.x - h)), abs(new_eta - eta)
        h, eta, kappa = step.x, new_eta, step.kappa
        if not history:
            first = h
        history.append(problem.objective(h / np.linalg.norm(h)))
        if moves[0] ** power + moves[1] ** power <= tol:
            status = Status.CONVERGED
            break
    h = h / np.linalg.norm(h)
    return SoftResponses(
        objective=problem.objective(h),
        residuals=problem.certificate(h).residuals,
        status=status,
        n_iter=len(history),
        history=tuple(history),
        h=h,
        field=first if np.array_equal(signs(first), signs(h)) else h,
        multiplier=float(eta),
        balance_multiplier=float(kappa),
    )


# ---- refinement


# Labels have settled if a step moves at most this fraction of them.
SETTLED = 2e-3
MAX_BETA = 8.0


@dataclass(frozen=True)
class SmoothField:
    """The smoothest field that agrees with labels: min x'Qx s.t. y'x = sqrt(n), |1'x| <= b."""

    x: NDArray  # up to the accuracy of the solves; the constraints hold exactly
    roughness: float  # x'Qx
    right: NDArray  # Q x by the optimality conditions: a y - kappa 1

    @property
    def merit(self) -> float:
        """The negative roughness, which the steps maximise."""
        return -self.roughness

    def residual(self, operator: SPDOperator) -> float:
        """Recompute ``|Q x - right| / |right|`` from Q."""
        return float(
            np.linalg.norm(operator.matvec(self.x) - self.right) / np.linalg.norm(self.right)
        )


@dataclass(frozen=True)
class Allowed:
    """A restriction of the labels, by known labels, links and size limits.

    `place` maps fields to the allowed labels that agree best with them. For one field x of shape
    (n,) these are the signs y with the largest y'x, for k fields the clusters with the largest sum
    of entries. `weights` are the weights of the labels in the fields. Only rows with a single
    allowed label may have a weight other than 1, so that `place` needs no weights. `has_limits` is
    whether sizes are limited.

    `anchors` are rows whose label the fields must not ignore. A field agrees with labels in their
    sum only: it may differ from most known labels, if they are not those of the smoothest field.
    The diagonal of Q is doubled at the anchors. For a Laplacian this is an edge from an anchor to
    a node of its class, as heavy as its other edges together.
    """

    place: Callable[[NDArray], NDArray]
    weights: NDArray | None = None
    anchors: NDArray | None = None
    has_limits: bool = False

    @property
    def only_cuts(self) -> bool:
        """Whether the cut alone decides between allowed labels."""
        return self.weights is None and not self.has_limits

    def operator(self, Q: SPDOperator) -> SPDOperator:
        """Return the matrix of the fields."""
        return Q if self.anchors is None else Q.anchored(self.anchors)


class InverseImages:
    """Images Q^-1 B of label columns B that change little from one call to the next.

    By linearity, the images are those of the last labels plus those of the change. A small change
    takes few iterations. `ones` may hold weights instead of ones.
    """

    def __init__(self, operator: SPDOperator, rtol: float, ones: NDArray | None = None):
        self.operator, self.rtol = operator, rtol
        self._ones = np.ones(operator.n) if ones is None else ones
        self._last: tuple[NDArray, NDArray] | None = None

    @cached_property
    def of_ones(self) -> NDArray:
        """Q^-1 1."""
        return self._solve(self._ones, self.rtol)

    def _solve(self, B: NDArray, rtol: float) -> NDArray:
        return self.operator.solve(0.0, B, rtol=rtol).x

    def __call__(self, B: NDArray) -> NDArray:
        """Return Q^-1 B."""
        if self._last is None:
            images = self._solve(B, self.rtol)
        else:
            change, images = B - self._last[0], self._last[1]
            norms = np.linalg.norm(change, axis=0)
            moved = norms > 0
            if moved.any():
                # The tolerance is relative to the labels, not to their change.
                share = float(np.max((norms / np.linalg.norm(B, axis=0))[moved]))
                images = images.copy()
                images[:, moved] += self._solve(change[:, moved], min(self.rtol / share, 0.1))
        self._last = B.copy(), images
        return images


class FirstStep:
    r"""First step of Algorithm 1 at eta = 0 from h = y / sqrt(n), for successive labels y.

    There :math:`\gamma` cancels and the quadratic program (JMLR eq. 5) is

    .. math:: \min_x x'Qx \quad \text{s.t.} \quad y'x = \sqrt n, \; |1'x| \le b,

    solved by :math:`x = a Q^{-1} y - \kappa Q^{-1} 1`. Later steps of the algorithm only rescale
    magnitudes. New labels take one linear solve, for the changed entries only. With `weights` w of
    the labels, the first constraint is :math:`\sum_i w_i y_i x_i = \sqrt n`.
    """

    def __init__(
        self,
        operator: SPDOperator,
        balance: float,
        *,
        rtol: float = 1e-8,
        weights: NDArray | None = None,
    ):
        self.operator = operator
        self.balance = balance
        self.weights = weights
        self._images = InverseImages(operator, rtol)

    def __call__(self, y: NDArray) -> SmoothField:
        """Return the smoothest field that agrees with the labels y (-1 and 1)."""
        if self.weights is not None:
            y = self.weights * y
        Z1, Zy = self._images.of_ones, self._images(y[:, None])[:, 0]
        root = np.sqrt(y.size)
        # Q^-1 is symmetric, so y'Z1 = 1'Zy up to the accuracy of the solves. Using both values
        # makes the constraints hold exactly.
        yy, y1, total, sy = float(y @ Zy), float(y @ Z1), float(Z1.sum()), float(Zy.sum())
        a, kappa = root / yy, 0.0
        if abs(a * sy) > self.balance:
            determinant = yy * total - y1 * sy
            if determinant <= SINGULAR * yy * total:
                raise ValueError(
                    "all rows are on one side at the start, and no field satisfies "
                    f"balance={self.balance:.3g} there, because the matrix Q does not distinguish "
                    "the rows. Check that the rows differ, or pass another Q."
                )
            side = np.copysign(self.balance, a * sy)
            a, kappa = (
                (root * total - side * y1) / determinant,
                (root * sy - side * yy) / determinant,
            )
        x = a * Zy - kappa * Z1
        return SmoothField(x, float(a * root - kappa * x.sum()), a * y - kappa)


@dataclass(frozen=True)
class Refined:
    """Labels after refinement, with its history."""

    labels: NDArray
    fields: Any  # a `SmoothField` or `Fields`
    merits: tuple[float, ...]  # of the accepted fields, in order; never decreasing
    visited: tuple[NDArray, ...]  # labels at the start and after each step
    costs: tuple[float, ...]  # of the labels visited
    settled: bool  # whether the last step moved at most two labels in a thousand
    n_held: int  # number of clusters that the last step would have emptied


def repeat_step(
    step: Callable[[NDArray], Any],
    labels: NDArray,
    read: Callable[[NDArray, NDArray], tuple[NDArray, int]],
    max_iter: int,
    cost: Callable[[NDArray], float] | None = None,
) -> Refined:
    r"""Repeat labels -> fields -> labels until the labels settle; the merit never decreases.

    The border between the clusters moves slowly: many steps move it by about the same amount. From
    the third step on, the fields are therefore extrapolated to :math:`x + \beta (x - x_{last})`
    with :math:`\beta = 1, 2, 4, \ldots` before labels are derived from them. If that does not
    increase the merit, the plain step is taken instead, at the cost of one more solve. `read` maps
    x and the last labels to new labels and the number of clusters that were held.

    The last labels are returned. With a `cost` of labels, it is those of lowest cost, the last of
    equally good ones. The start is among them, so that the steps cannot make it worse. Its fields
    are those of the first step. With `max_iter` = 1 it is always the labels of the one step.
    """
    fields = step(labels)
    new, n_held = read(fields.x, labels)
    merits, visited = [fields.merit], [labels, new]
    costs = [cost(one) for one in visited] if cost else []
    kept = new, fields
    if max_iter > 1 and costs and costs[0] < costs[1]:
        kept = labels, fields
    settled = _is_settled(new, labels)
    last: NDArray | None = None
    beta = 0.0
    for _ in range(max_iter - 1):
        if settled:
            break
        beyond = new
        if last is not None and beta:
            beyond = read(fields.x + beta * (fields.x - last), new)[0]
        found = step(beyond)
        if found.merit > fields.merit:
            last, fields = fields.x, found
            new, n_held = read(fields.x, beyond)
            merits.append(fields.merit)
            visited.append(new)
            if cost:
                costs.append(cost(new))
            if not cost or costs[-1] <= min(costs):
                kept = new, fields
            settled = _is_settled(new, beyond)
            beta = min(max(1.0, 2 * beta), MAX_BETA)
        elif beta:
            beta = 0.0
        else:
            settled = True  # the plain step does not increase the merit, up to rounding
    return Refined(*kept, tuple(merits), tuple(visited), tuple(costs), settled, n_held)


def _is_settled(new: NDArray, labels: NDArray) -> bool:
    return bool(np.sum(new != labels) <= SETTLED * labels.size)


def refine(
    step: FirstStep,
    y: NDArray,
    *,
    max_iter: int = 20,
    allowed: Allowed | None = None,
) -> Refined:
    r"""Repeat y <- sign(x(y)), with x(y) the field of `FirstStep`, until the labels settle.

    The roughness never increases. Because y+'x = |x|_1 >= y'x for the labels y+ = sign(x(y)), x(y)
    scaled down to y+'x = sqrt(n) is feasible for y+ as well, and the best field of y+ is at least
    as smooth. At b = 0 this is the maximisation of :math:`y'\tilde K y` over the cube with the
    positive semi-definite :math:`\tilde K = Q^{-1} - Q^{-1}11'Q^{-1} / 1'Q^{-1}1`.

    If `allowed` restricts the labels, y+ is the allowed labelling with the largest y+'x, and
    y+'x >= y'x still holds if y is allowed.
    """
    read = signs if allowed is None else allowed.place
    return repeat_step(step, y, lambda x, _: (read(x), 0), max_iter)


# ---- alternation


MAX_NEWTON = 100
# If the bracket of eta is narrower than this (relative) and the norm of h is still too small, the
# rest of h lies along the eigenvector at the end of the bracket (More and Sorensen's hard case).
NARROW = 1e-10


@dataclass(frozen=True)
class Minimiser:
    """Soft responses that are optimal for given labels, with their multipliers."""

    h: NDArray
    eta: float
    kappa: float


@dataclass(frozen=True)
class _SecularPoint:
    """h(eta) with its derivative, on the plane 1'h = total (no plane if total is None)."""

    h: NDArray
    slope: NDArray
    kappa: float
    convex: bool
    length: float


class _Secular:
    r"""The secular equation of :math:`\min_h -2y'h + \gamma h'Qh`, |h| = 1, perhaps 1'h = total.

    With :math:`A = \gamma Q - \eta I` the optimality conditions are :math:`A h = y - \kappa 1`.
    On the plane, h = (total/n) 1 + g with g orthogonal to 1 and :math:`|g|^2 = r^2 = 1 -
    total^2/n`. Without the plane, g = h and r = 1. As a function of eta below the first pole,
    1/|g| is concave and decreasing (to zero at the pole, outside the hard case). Newton's method
    on 1/|g| = 1/r therefore converges monotonically from the side of the pole. From the other
    side, one step crosses the root, and bisection brings it back if it crosses the pole as well.
    The search starts at `highest` or below.
    """

    def __init__(
        self,
        problem: VolumeProblem,
        y: NDArray,
        total: float | None,
        eigenvalues: NDArray,
        highest: float = np.inf,
    ):
        self.highest = highest
        self.problem = problem
        self.y = y
        self.total = total
        self.eigenvalues = eigenvalues
        self.radius = 1.0 if total is None else float(np.sqrt(1 - total**2 / problem.n))

    def solve(self, tol: float) -> Minimiser:
        """Find eta by a safeguarded Newton method and return h(eta)."""
        low, high = self._below(), np.inf
        eta = min(self._guess(), self.highest)
        width = max(abs(low), self.problem.reg * self.problem.operator.bounds[1])
        first = low
        for _ in range(MAX_NEWTON):
            try:
                point = self._at(eta)
            except (np.linalg.LinAlgError, ZeroDivisionError):  # a pole, possibly removable
                eta -= NARROW * width
                if eta <= low:
                    break
                point = self._at(eta)
            if point.convex and abs(point.length - self.radius) <= tol * self.radius:
                return self._finished(point, eta)
            if point.convex and point.length < self.radius:
                low = eta
            else:
                high = eta
            if high - low <= NARROW * width:
                break
            newton = np.nan
            slope = float(point.h @ point.slope)
            if point.convex and slope > 0:
                newton = eta + point.length**2 * (1 - point.length / self.radius) / slope
            if not low < newton < high:
                newton = (low + high) / 2 if np.isfinite(high) else eta + abs(eta - first) + 1.0
            eta = newton
        return self._hard_case(low)

    def _below(self) -> float:
        """Return an eta at which h is too short: A >= |linear term| / r there."""
        n, reg = self.problem.n, self.problem.reg
        low, high = self.problem.operator.bounds
        size = np.sqrt(n) + reg * abs(self.total or 0.0) * high / np.sqrt(n)
        return float(reg * min(low, self.eigenvalues[0]) - size / self.radius)

    def _guess(self) -> float:
        """Return the closed-form multiplier of small reg: Rayleigh quotient of y less |y| / r."""
        y = self.y if self.total is None else self.y - self.y.mean()
        square = float(y @ y)
        if square == 0.0:
            return self._below()
        quotient = float(y @ self.problem.operator.matvec(y)) / square
        guess = self.problem.reg * quotient - np.sqrt(square) / self.radius
        # By Jensen's inequality h is too long here, from where Newton's method converges
        # monotonically, provided that the guess is below the pole.
        ceiling = self.problem.reg * float(self.eigenvalues[0])
        return guess if guess < ceiling else max(self._below(), ceiling - 1.0)

    def _at(self, eta: float) -> _SecularPoint:
        problem, shift = self.problem, -eta / self.problem.reg
        n_negative = int(np.sum(self.eigenvalues * problem.reg < eta))
        if self.total is None:
            h = problem.operator.solve(shift, self.y).x / problem.reg
            slope = problem.operator.solve(shift, h).x / problem.reg
            return _SecularPoint(h, slope, 0.0, n_negative == 0, float(np.linalg.norm(h)))
        right = np.column_stack([self.y, np.ones_like(self.y)])
        Zy, Z1 = problem.operator.solve(shift, right).x.T / problem.reg
        mass = float(Z1.sum())
        kappa = (float(Zy.sum()) - self.total) / mass
        h = Zy - kappa * Z1
        Zh = problem.operator.solve(shift, h).x / problem.reg
        slope = Zh - (Zh.sum() / mass) * Z1
        length = float(np.linalg.norm(h - self.total / problem.n))
        return _SecularPoint(h, slope, kappa, n_negative == int(mass < 0), length)

    def _finished(self, point: _SecularPoint, eta: float) -> Minimiser:
        """Rescale h to norm 1 without leaving the plane."""
        center = 0.0 if self.total is None else self.total / self.problem.n
        g = point.h if self.total is None else point.h - point.h.mean()
        h = center + g * (self.radius / np.linalg.norm(g))
        return Minimiser(h, eta, point.kappa)

    def _hard_case(self, eta: float) -> Minimiser:
        """Fill the norm up with the eigenvector at the pole (inverse iteration just below it)."""
        point = self._at(eta)
        reg, solve = self.problem.reg, self.problem.operator.solve
        shift = -eta / reg + 1e-7 * float(np.abs(self.eigenvalues).max())
        Z1 = solve(shift, np.ones(self.problem.n)).x
        vector = np.random.default_rng(0).standard_normal(self.problem.n)
        for _ in range(6):
            image = solve(shift, vector).x
            if self.total is not None:
                image = image - (image.sum() / Z1.sum()) * Z1
            vector = image / np.linalg.norm(image)
        center = 0.0 if self.total is None else self.total / self.problem.n
        g = point.h if self.total is None else point.h - point.h.mean()
        if self.total is not None:
            vector = vector - vector.mean()
            vector = vector / np.linalg.norm(vector)
        # |g + t v| = r has two roots. Their objectives agree in the exact hard case only: if
        # rounding has led here, the larger root would reflect g.
        inner = float(g @ vector)
        rest = max(inner**2 + self.radius**2 - float(g @ g), 0.0)
        t = -inner + np.copysign(np.sqrt(rest), inner)
        return Minimiser(center + g + t * vector, eta, point.kappa)


def minimise_given_labels(
    problem: VolumeProblem, y: NDArray, eigenvalues: NDArray, *, tol: float = 1e-10
) -> Minimiser:
    """Minimise ``-2 y'h + reg h'Qh`` over the unit sphere with ``|1'h| <= balance``.

    The side of the balance constraint with the sign of the labels' sum is tried first. If its eta
    is below the spectrum of reg Q and its kappa has the right sign, the Lagrangian is convex and
    this is the global minimum, which is always the case for a small reg. Otherwise the function
    returns the best of both sides and of the minimum on the whole sphere. (If the latter violates
    the balance constraint, a second, local minimum on the sphere may satisfy it and be lower
    still. This occurred in one of a thousand problems with three rows.)
    """
    leaning = float(y.sum()) or 1.0
    side = float(np.copysign(problem.balance, leaning))
    fits = problem.balance < np.sqrt(problem.n)  # else no point of the sphere lies on the plane
    found: list[Minimiser] = []
    for total in [side, None, -side] if fits else [None]:
        best = _Secular(problem, y, total, eigenvalues).solve(tol)
        if total is None and fits and abs(float(best.h.sum())) > problem.balance:
            continue
        found.append(best)
        convex = best.eta <= problem.reg * float(eigenvalues[0])
        if total is None or (convex and best.kappa * total >= 0):
            break
    if len(found) == 1:
        return found[0]
    matvec, reg = problem.operator.matvec, problem.reg
    return min(found, key=lambda one: reg * (one.h @ matvec(one.h)) - 2 * (y @ one.h))


def alternate(
    problem: VolumeProblem,
    y: NDArray,
    eigenvalues: NDArray,
    *,
    tol: float = 1e-10,
    max_iter: int = 100,
    allowed: Allowed | None = None,
) -> SoftResponses:
    r"""Minimise in turn over h for given y and over y = sign(h) for given h.

    The objective decreases until the labels no longer change; h is then a stationary point. An
    increase ends the run. While :math:`\gamma \|Q\|_\infty < (1 - |\kappa|) |\eta| / 2`, no
    labelling changes: each is a strict local minimum, and a small reg has no influence on the
    labels. For large reg, h approaches the eigenvectors of Q (JMLR section 4). `eigenvalues`
    holds at least the three smallest eigenvalues of Q. The `field` of the result is h itself.

    If `allowed` restricts the labels, y is the allowed labelling with the largest y'h. The
    objective is then :math:`-2y'h + \gamma h'Qh`, which decreases for the same reason, and the
    residuals are those of h for the last y.
    """
    solved = problem
    history: list[float] = []
    status = Status.MAX_ITER
    for _ in range(max_iter):
        best = minimise_given_labels(problem, y, eigenvalues, tol=tol)
        if allowed is not None:
            solved = replace(problem, sides=y)
        history.append(solved.objective(best.h))
        labels = signs(best.h) if allowed is None else allowed.place(best.h)
        if np.array_equal(labels, y):
            status = Status.CONVERGED
            break
        if len(history) > 1 and history[-1] >= history[-2]:
            status = Status.CYCLE if history[-1] > history[-2] else Status.CONVERGED
            break
        y = labels
    return SoftResponses(
        objective=history[-1],
        residuals=solved.certificate(best.h).residuals,
        status=status,
        n_iter=len(history),
        history=tuple(history),
        h=best.h,
        field=best.h,
        multiplier=best.eta,
        balance_multiplier=best.kappa,
    )
