"""The problem of soft-label maximum volume clustering, with certificates of its solutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volmar.operators.protocol import SPDOperator
from volmar.solvers.result import Certificate

# A 2 x 2 system counts as singular if its determinant is below this fraction of the product of its
# diagonal entries.
SINGULAR = 1e-13


def signs(h: NDArray) -> NDArray[np.float64]:
    """Return the signs of soft responses as -1 and 1; zeros count as +1."""
    return np.where(h >= 0, 1.0, -1.0)


@dataclass(frozen=True)
class VolumeProblem:
    r"""Soft-label maximum volume clustering with a balance constraint (JMLR eq. 4 and 5).

    .. math:: \min_h \; -2 \|h\|_1 + \gamma \, h'Qh \quad
              \text{s.t.} \quad \|h\|_2 = 1, \; |1'h| \le b

    If :math:`h'Qh` is small, h points along the long axes of the ellipsoid :math:`h'Qh \le 1`, and
    the orthant of sign(h) contains much of its volume.

    Q is `operator`, :math:`\gamma` is `reg`, b is `balance`. With `sides`, labels y of the rows,
    the objective has ``-2 y'h`` in place of ``-2 |h|_1``.
    """

    operator: SPDOperator
    reg: float
    balance: float
    sides: NDArray | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.operator.n

    def objective(self, h: NDArray) -> float:
        """Return the objective of the soft responses h, without rescaling them."""
        return float(-2 * self._volume(h) + self.reg * (h @ self.operator.matvec(h)))

    def _volume(self, h: NDArray) -> float:
        return np.abs(h).sum() if self.sides is None else self.sides @ h

    def _sides_of(self, h: NDArray) -> NDArray:
        return signs(h) if self.sides is None else self.sides

    def multipliers(self, h: NDArray) -> tuple[float, float]:
        """Return the least-squares multipliers (eta, kappa) of the norm and balance constraints.

        With mu, nu >= 0 for the two sides of the balance constraint, kappa = mu - nu. It is
        positive at ``1'h = b``, negative at ``1'h = -b`` and zero in between. (Both papers print
        mu and nu with the opposite signs.)
        """
        gradient = self.reg * self.operator.matvec(h) - self._sides_of(h)
        return self._multipliers(h, gradient)

    def _multipliers(self, h: NDArray, gradient: NDArray) -> tuple[float, float]:
        square, total = float(h @ h), float(h.sum())
        idle = float(h @ gradient) / square, 0.0
        # The balance constraint counts as active if |1'h| is within this fraction of sqrt(n) of
        # its bound.
        if abs(total) < self.balance - 1e-7 * np.sqrt(self.n):
            return idle
        # Normal equations of min |gradient - eta h + kappa 1|.
        system = np.array([[square, -total], [-total, self.n]])
        right = np.array([h @ gradient, -gradient.sum()])
        if np.linalg.det(system) <= 1e-12 * square * self.n:
            return idle
        eta, kappa = np.linalg.solve(system, right)
        wrong_side = self.balance > 0 and kappa * total < 0
        return idle if wrong_side else (float(eta), float(kappa))

    def certificate(self, h: NDArray) -> Certificate:
        """Recompute the objective and the residuals of h from Q.

        "stationarity" is the norm of ``reg Q h - eta h - sign(h) + kappa 1`` (with y for sign(h)
        if labels y are given), half the gradient of the Lagrangian, divided by the larger norm of
        its first and third term. "norm" is the distance of the norm of h from 1. "balance" is the
        excess of ``|1'h|`` over its bound.
        """
        image = self.reg * self.operator.matvec(h)
        gradient = image - self._sides_of(h)
        eta, kappa = self._multipliers(h, gradient)
        scale = max(np.sqrt(self.n), float(np.linalg.norm(image)))
        return Certificate(
            float(h @ image - 2 * self._volume(h)),
            {
                "stationarity": float(np.linalg.norm(gradient - eta * h + kappa) / scale),
                "norm": abs(float(np.linalg.norm(h)) - 1.0),
                "balance": max(abs(float(h.sum())) - self.balance, 0.0),
            },
        )
