"""The default mode: the paper's first step, repeated from its own labels until they settle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.operators import SPDOperator
from volmar.volume.problem import SINGULAR, signs

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
