"""The default mode: the paper's first step, taken again from its own labels until they stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.operators import SPDOperator
from volmar.volume.problem import SINGULAR, signs

# Labels have settled where a step moves no more than this share of them.
SETTLED = 2e-3
MAX_BETA = 8.0


@dataclass(frozen=True)
class SmoothField:
    """The smoothest field that agrees with labels: min x'Qx s.t. y'x = sqrt(n), |1'x| <= b."""

    x: NDArray  # to the accuracy of the solves; the constraints hold exactly
    roughness: float  # x'Qx
    right: NDArray  # Q x by the optimality conditions: a y - kappa 1

    @property
    def merit(self) -> float:
        """What steps raise: minus the roughness."""
        return -self.roughness

    def residual(self, operator: SPDOperator) -> float:
        """Recompute ``|Q x - right| / |right|`` from Q itself."""
        return float(
            np.linalg.norm(operator.matvec(self.x) - self.right) / np.linalg.norm(self.right)
        )


@dataclass(frozen=True)
class Allowed:
    """Which labels are allowed, where not all are.

    `place` takes fields to the allowed labels that agree most with them: of one field x, shape
    (n,), the signs y with the largest y'x, of k fields the clusters with the largest sum of
    entries. `weights`: how much the label of a row counts in the fields. Only rows of which one
    label is allowed may have another weight than 1, so that `place` needs no weights.
    """

    place: Callable[[NDArray], NDArray]
    weights: NDArray | None = None


class InverseImages:
    """Images Q^-1 B of labels B, a column or several, that change little from one to the next.

    By linearity they are those of the last labels and of what has changed, so that few changes
    cost few iterations. `ones` may hold weights instead.
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
                # Residuals are asked for relative to the labels, not to what has changed.
                share = float(np.max((norms / np.linalg.norm(B, axis=0))[moved]))
                images = images.copy()
                images[:, moved] += self._solve(change[:, moved], min(self.rtol / share, 0.1))
        self._last = B.copy(), images
        return images


class FirstStep:
    r"""First step of Algorithm 1 at eta = 0 from h = y / sqrt(n), for one set of labels or many.

    There :math:`\gamma` cancels and the quadratic program (JMLR eq. 5) is

    .. math:: \min_x x'Qx \quad \text{s.t.} \quad y'x = \sqrt n, \; |1'x| \le b,

    solved by :math:`x = a Q^{-1} y - \kappa Q^{-1} 1`. Later steps of the algorithm only rescale
    magnitudes. New labels cost one solve for what has changed. With `weights` w of the labels the
    first constraint is :math:`\sum_i w_i y_i x_i = \sqrt n`.
    """

    def __init__(
        self,
        operator: SPDOperator,
        balance: float,
        *,
        rtol: float = 1e-8,
        weights: NDArray | None = None,
    ):
        self.balance = balance
        self.weights = weights
        self._images = InverseImages(operator, rtol)

    def __call__(self, y: NDArray) -> SmoothField:
        """Return the smoothest field that agrees with the labels y (-1 and 1)."""
        if self.weights is not None:
            y = self.weights * y
        Z1, Zy = self._images.of_ones, self._images(y[:, None])[:, 0]
        root = np.sqrt(y.size)
        # Q^-1 is symmetric and y'Z1 = 1'Zy, but for the accuracy of the solves: with both of them
        # the constraints hold exactly all the same.
        yy, y1, total, sy = float(y @ Zy), float(y @ Z1), float(Z1.sum()), float(Zy.sum())
        a, kappa = root / yy, 0.0
        if abs(a * sy) > self.balance:
            determinant = yy * total - y1 * sy
            if determinant <= SINGULAR * yy * total:
                raise ValueError(
                    "all rows are on one side at the start, and no field holds "
                    f"balance={self.balance:.3g} there: the matrix Q does not tell the rows "
                    "apart. Check that the rows differ, or give another Q."
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
    """Labels that have settled (or the last ones), with the way there."""

    labels: NDArray
    fields: Any  # a `SmoothField` or `Fields`
    merits: tuple[float, ...]  # of all fields on the way; never falling
    visited: tuple[NDArray, ...]  # labels at the start and after each step
    settled: bool  # whether the last step moved at most two labels in a thousand
    n_held: int  # clusters that the last step would have left without rows


def repeat_step(
    step: Callable[[NDArray], Any],
    labels: NDArray,
    read: Callable[[NDArray, NDArray], tuple[NDArray, int]],
    max_iter: int,
) -> Refined:
    r"""Repeat labels -> fields -> labels until the labels settle, with a merit that never falls.

    The border between the clusters creeps: many steps move it by about as much each. From the
    third step on labels are therefore read off beyond the fields, at :math:`x + \beta (x -
    x_{last})` with :math:`\beta = 1, 2, 4, \ldots`; where that does not raise the merit the plain
    step is taken instead, so that nothing is lost but a solve. `read` takes x and the last labels
    to new labels, and the number of clusters that had to be held.
    """
    fields = step(labels)
    new, n_held = read(fields.x, labels)
    merits, visited = [fields.merit], [labels, new]
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
            settled = _is_settled(new, beyond)
            beta = min(max(1.0, 2 * beta), MAX_BETA)
        elif beta:
            beta = 0.0
        else:
            settled = True  # not even the plain step gains, but for rounding
    return Refined(new, fields, tuple(merits), tuple(visited), settled, n_held)


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

    Roughness never rises: scaled to y'x, x(y) is feasible for the labels y+ = sign(x(y)) as well,
    since y+'x = |x|_1 >= y'x loosens both constraints, so that the best field of y+ is at least as
    smooth. At b = 0 this is the maximisation of :math:`y'\tilde K y` over the cube with the
    positive semi-definite :math:`\tilde K = Q^{-1} - Q^{-1}11'Q^{-1} / 1'Q^{-1}1`.

    Where not all labels are `allowed`, y+ is the allowed one with the largest y+'x, so that
    y+'x >= y'x still holds if y is allowed.
    """
    read = signs if allowed is None else allowed.place
    return repeat_step(step, y, lambda x, _: (read(x), 0), max_iter)
