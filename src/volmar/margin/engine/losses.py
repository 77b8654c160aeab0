"""Losses of margin errors: their interface, and the hinge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Violated(NamedTuple):
    """A cut: a set of rows, its loss m, and the slack xi that it requires at given scores."""

    chosen: NDArray
    m: float
    xi: float


class Loss(Protocol):
    """A loss, defined by its cuts.

    With labels y and shares p of the rows (1/n, or their weights), a set c of rows gives the cut

        rho m(c) - sum_i v_i f_i <= xi,    v_i = scale p_i c_i y_i,

    and the loss at scores f is the largest slack xi that any cut requires.
    """

    @property
    def scale(self) -> float:
        """Weight of a row's score in a cut: 1, or 2 if a cut flips labels."""

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the cut that requires the largest slack at scores f."""

    def first(self, y: NDArray, f: NDArray) -> Violated:
        """Return the cut with the largest m; of several, the one with the largest slack at f."""

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return the loss m of a set of rows."""


@dataclass(frozen=True)
class HingeLoss:
    """The hinge sum_i p_i max(0, rho - y_i f_i) (SKMMC eq. 10 and 12); p_i is 1/n by default."""

    shares: NDArray | None = None
    scale: float = 1.0

    def violated(self, y: NDArray, f: NDArray, rho: float) -> Violated:
        """Return the rows inside the margin, their share and the hinge loss."""
        lack = rho - y * f
        chosen = lack > 0
        np.maximum(lack, 0.0, out=lack)
        if self.shares is None:
            n = chosen.size
            return Violated(
                chosen, np.count_nonzero(chosen) / n, float(lack.sum(dtype=np.float64)) / n
            )
        m = float(self.shares @ chosen)
        return Violated(chosen, m, float(self.shares @ lack))

    def first(self, y: NDArray, f: NDArray) -> Violated:  # noqa: ARG002 -- the same at all scores
        """Return the cut of all rows. Its slack, which depends on rho, is NaN."""
        return Violated(y != 0, 1.0, float("nan"))

    def value(self, y: NDArray, chosen: NDArray) -> float:
        """Return the share of the chosen rows."""
        if self.shares is None:
            return float(np.count_nonzero(chosen)) / y.size
        return float(self.shares @ chosen)
