"""Densities of one-dimensional samples on a grid, and their distance from unimodality."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import fft

__all__ = ["GRID", "fill", "grid_shares", "missing_mass", "smoothed"]

# Number of grid points, for samples of any size.
GRID = 256


def grid_shares(u: NDArray, counted: NDArray, size: int) -> NDArray:
    """Return the shares (m, size) of the `counted` values of samples (m, n) on a grid.

    Values `u` are in steps of the grid. A value is divided between the two grid points around it.
    """
    m = len(u)
    below = np.minimum(u.astype(np.int64), size - 2)
    above_share = (u - below) * counted
    place = (below + size * np.arange(m)[:, None]).ravel()
    counts = np.bincount(place, (counted - above_share).ravel(), m * size)
    counts += np.bincount(place + 1, above_share.ravel(), m * size)[: m * size]
    return counts.reshape(m, size) / np.maximum(counted.sum(axis=1, keepdims=True), 1)


def smoothed(shares: NDArray, bandwidth: NDArray | float) -> NDArray:
    """Smooth shares (m, G) by a Gaussian, with bandwidths in steps of the grid."""
    size = shares.shape[1]
    frequencies = np.pi * np.arange(size + 1) / size
    damping = np.exp(-0.5 * (bandwidth * frequencies) ** 2)
    smooth = fft.irfft(fft.rfft(shares, 2 * size, axis=1) * damping, 2 * size, axis=1)
    return np.maximum(smooth[:, :size], 0.0)


def fill(density: NDArray) -> NDArray:
    r"""Return the mass that must be added to densities (m, G) to make each of them unimodal.

    The smallest unimodal function above f is :math:`\min(\max_{u \le x} f(u), \max_{u \ge x}
    f(u))`. It fills every valley up to the lower of the two peaks beside it.
    """
    return missing_mass(density).sum(axis=1)


def missing_mass(density: NDArray) -> NDArray:
    """Return the mass to add at each grid point of densities (m, G) to make them unimodal."""
    left = np.maximum.accumulate(density, axis=1)
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(left, right) - density
