"""The density on hyperplanes of standardised rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar._eigen import eigenvalues
from volmar.rows import Standardized
from volmar.solvers.hyperplane_density import HyperplaneDensity

__all__ = ["RowDensity", "row_density"]

# Silverman's factor of the bandwidth.
SILVERMAN = 0.9


class RowDensity(NamedTuple):
    """The density problem of rows divided by `unit`, the first component's standard deviation."""

    problem: HyperplaneDensity
    unit: float

    def of(self, Z: NDArray, shares: NDArray | None = None) -> HyperplaneDensity:
        """Return the problem of rows Z in memory: all rows with shares, or a sample without."""
        unit, count = self.unit, len(Z)
        is_sample = shares is None
        return HyperplaneDensity(
            lambda v: (Z @ v.astype(Z.dtype)) / unit,
            lambda c: np.asarray(c.astype(Z.dtype) @ Z, dtype=np.float64) / unit,
            np.full(count, 1.0 / count) if shares is None else shares,
            bandwidth(count) if is_sample else self.problem.bandwidth,
            self.problem.offset,
        )


def bandwidth(count: float) -> float:
    """Return 0.9 n^(-1/5), in units of the standard deviation of the first component."""
    return SILVERMAN * float(count) ** -0.2


def row_density(z: Standardized, offset: float) -> RowDensity:
    """Return the density on hyperplanes of standardised rows, and its unit.

    The bandwidth is 0.9 sigma n^(-1/5), with sigma the standard deviation along the first
    principal component and n the weight of the rows.
    """
    last = z.size - 1
    unit = float(np.sqrt(max(float(eigenvalues(z.correlation, (last, last))[0]), 0.0)))
    rows = z.rows
    shares = np.full(rows.n_rows, 1.0 / rows.n_rows)
    if rows.weights is not None:
        shares = rows.weights / rows.total_weight
    problem = HyperplaneDensity(
        lambda v: z.scores(v) / unit,
        lambda c: z.combine(c) / unit,
        shares,
        bandwidth(rows.total_weight),
        offset,
    )
    return RowDensity(problem, unit)
