"""Samples on the line, their densities on a grid, and what these lack to have one mode."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

__all__ = ["GRID", "fill", "grid_shares", "missing_mass", "smoothed"]

# Points of the grid, in which samples of any size are binned.
GRID = 256


def grid_shares(u: NDArray, counted: NDArray, size: int) -> NDArray:
    """Return the shares (m, size) of the `counted` points of samples (m, n) on a grid.

    Points are in steps of the grid; a point is shared by the two places around it.
    """
    m = len(u)
    below = np.minimum(u.astype(np.int64), size - 2)
    above_share = (u - below) * counted
    place = (below + size * np.arange(m)[:, None]).ravel()
    counts = np.bincount(place, (counted - above_share).ravel(), m * size)
    counts += np.bincount(place + 1, above_share.ravel(), m * size)[: m * size]
    return counts.reshape(m, size) / np.maximum(counted.sum(axis=1, keepdims=True), 1)


def smoothed(shares: NDArray, bandwidth: NDArray | float) -> NDArray:
    """Return shares (m, G) smoothed by a Gaussian; bandwidths are in steps of the grid."""
    size = shares.shape[1]
    frequencies = np.pi * np.arange(size + 1) / size
    damping = np.exp(-0.5 * (bandwidth * frequencies) ** 2)
    smooth = fft.irfft(fft.rfft(shares, 2 * size, axis=1) * damping, 2 * size, axis=1)
    return np.maximum(smooth[:, :size], 0.0)


def fill(density: NDArray) -> NDArray:
    r"""Return the mass by which densities (m, G) must be filled so that each has one mode.

    The smallest function above f with one mode is :math:`\min(\max_{u \le x} f(u), \max_{u \ge x}
    f(u))`: every valley is filled up to the lower of the two peaks beside it.
    """
    return missing_mass(density).sum(axis=1)


def missing_mass(density: NDArray) -> NDArray:
    """Return what is missing at each place of densities (m, G) to have one mode."""
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(left, right) - density
