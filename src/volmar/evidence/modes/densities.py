"""Densities on a grid, and what they lack to have one mode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["GRID", "fill", "missing_mass"]

# Points of the grid, in which samples of any size are binned.
GRID = 256


def fill(density: NDArray) -> NDArray:
    r"""Return the mass by which densities (m, GRID) must be filled so that each has one hump.

    The smallest function above f with one hump is :math:`\min(\max_{u \le x} f(u), \max_{u \ge x}
    f(u))`: every valley is filled up to the lower of the two peaks beside it.
    """
    return missing_mass(density).sum(axis=1)


def missing_mass(density: NDArray) -> NDArray:
    """Return what is missing at each place of densities (m, GRID) to have one hump."""
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(left, right) - density
