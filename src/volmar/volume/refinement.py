"""The default mode: the paper's first step, taken again from its own labels until they stay."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volmar.operators import SPDOperator
from volmar.volume.problem import signs

SINGULAR = 1e-13
# Labels have settled where a step moves no more than this share of them.
SETTLED = 2e-3
MAX_BETA = 8.0


@dataclass(frozen=True)
class SmoothField:
    """The smoothest field that agrees with labels, and what it cost.

    Attributes
    ----------
    x : ndarray of shape (n,)
        ``argmin x'Qx`` subject to ``y'x = sqrt(n)`` and ``|1'x| <= balance``, to the accuracy of
        the solves; the constraints hold exactly.
    roughness : float
        ``x'Qx``, to that accuracy.
    right : ndarray of shape (n,)
        ``Q x``, as the optimality conditions have it: a y - kappa 1.
    """

    x: NDArray
    roughness: float
    right: NDArray

    def residual(self, operator: SPDOperator) -> float:
        """Recompute ``|Q x - right| / |right|`` from Q itself."""
        return float(
            np.linalg.norm(operator.matvec(self.x) - self.right) / np.linalg.norm(self.right)
        )


@dataclass(frozen=True)
class Refined:
    """Labels that have settled (or the last ones), with the way there.

    Attributes
    ----------
    y : ndarray of shape (n,)
        Signs of the last field.
    field : SmoothField
        The last field.
    roughness : tuple of float
        ``x'Qx`` of every field on the way; it never rises.
    settled : bool
        Whether the last step moved at most two labels in a thousand.
    """

    y: NDArray
    field: SmoothField
    roughness: tuple[float, ...]
    settled: bool


class FirstStep:
    r"""First step of Algorithm 1 at eta = 0 from h = y / sqrt(n), for one set of labels or many.

    There :math:`\gamma` cancels and the quadratic program (JMLR eq. 5) is

    .. math:: \min_x x'Qx \quad \text{s.t.} \quad y'x = \sqrt n, \; |1'x| \le b,

    solved by :math:`x = a Q^{-1} y - \kappa Q^{-1} 1`. Later steps of the algorithm only rescale
    magnitudes. `Q^{-1} 1` is computed once, and new labels cost one solve for what has changed.

    Parameters
    ----------
    operator : SPDOperator
        Q.
    balance : float
        b.
    rtol : float, default=1e-8
        Relative residual of the solves.
    """

    def __init__(self, operator: SPDOperator, balance: float, *, rtol: float = 1e-8):
        self.operator = operator
        self.balance = balance
        self.rtol = rtol
        self._labels: NDArray | None = None
        self._image: NDArray | None = None

    @cached_property
    def ones_image(self) -> NDArray:
        """Q^-1 1."""
        return self._solve(np.ones(self.operator.n), self.rtol)

    def _solve(self, b: NDArray, rtol: float) -> NDArray:
        return self.operator.solve(0.0, b, rtol=rtol).x

    def __call__(self, y: NDArray) -> SmoothField:
        """Return the smoothest field that agrees with the labels y (-1 and 1)."""
        Z1, Zy = self.ones_image, self._image_of(y)
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

    def _image_of(self, y: NDArray) -> NDArray:
        """Q^-1 y; by linearity from the last labels, so that few changes cost few iterations."""
        if self._labels is None or self._image is None:
            self._image = self._solve(y, self.rtol)
        elif not np.array_equal(y, self._labels):
            change = y - self._labels
            share = float(np.linalg.norm(change)) / np.sqrt(y.size)
            self._image = self._image + self._solve(change, min(self.rtol / share, 0.1))
        self._labels = y.copy()
        return self._image


def refine(step: FirstStep, y: NDArray, *, max_iter: int = 20) -> Refined:
    r"""Repeat y <- sign(x(y)), with x(y) the field of `FirstStep`, until the labels settle.

    Roughness never rises: scaled to y'x, x(y) is feasible for the labels y+ = sign(x(y)) as well,
    since y+'x = |x|_1 >= y'x loosens both constraints, so that the best field of y+ is at least as
    smooth. At b = 0 this is the maximisation of :math:`y'\tilde K y` over the cube with the
    positive semi-definite :math:`\tilde K = Q^{-1} - Q^{-1}11'Q^{-1} / 1'Q^{-1}1`.

    The border between the clusters creeps: many steps move it by about as much each. From the
    third step on labels are therefore read off beyond the field, at :math:`x + \beta (x -
    x_{last})` with :math:`\beta = 1, 2, 4, \ldots`; where that does not lower the roughness the
    plain step is taken instead, so that nothing is lost but a solve.

    Parameters
    ----------
    step : FirstStep
        The step.
    y : ndarray of shape (n,)
        Labels at the start, -1 and 1.
    max_iter : int, default=20
        Most steps; 1 is the paper's.
    """
    best = step(y)
    roughness = [best.roughness]
    last: NDArray | None = None
    beta = 0.0
    settled = _is_settled(best, y)
    for _ in range(max_iter - 1):
        if settled:
            break
        y = signs(best.x if last is None or not beta else best.x + beta * (best.x - last))
        field = step(y)
        if field.roughness < best.roughness:
            last, best = best.x, field
            roughness.append(best.roughness)
            settled = _is_settled(best, y)
            beta = min(max(1.0, 2 * beta), MAX_BETA)
        elif beta:
            beta = 0.0
        else:
            settled = True  # not even the plain step gains, but for rounding
    return Refined(signs(best.x), best, tuple(roughness), settled)


def _is_settled(field: SmoothField, y: NDArray) -> bool:
    return bool(np.sum(signs(field.x) != y) <= SETTLED * y.size)
