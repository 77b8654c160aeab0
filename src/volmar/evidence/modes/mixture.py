"""Two normal components on a grid: a projection index that sees a small group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import fill

__all__ = ["two_group_index"]

# Quantiles at which the components are separated at the start.
STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
N_STEPS = 25
# Least standard deviation of a component, in units of the grid's width.
NARROWEST = 0.03
# Added to the mass of the valley, so that a likelihood without one still ranks.
FLOOR = 1e-6


def two_group_index(shares: NDArray) -> NDArray:
    r"""Return how much samples look like two groups, from their shares (m, G) on a grid.

    :math:`\sqrt{v} \, (\ell_2 - \ell_1)`, at least 0: the gain in log-likelihood, a point, of two
    normal components over one, times the root of the mass of the valley between them. The
    likelihood finds small groups; the valley keeps it from skewed or heavy-tailed densities, which
    two components fit better than one as well, without a valley. A flat top is not kept out: its
    two components have a valley that the sample has not.
    """
    grid = np.linspace(0.0, 1.0, shares.shape[1])
    squares = grid**2
    mean, square = shares @ grid, shares @ squares
    variance = np.maximum(square - mean**2, NARROWEST**2)
    one = -0.5 * np.log(variance) - 0.5 * (square - mean**2) / variance
    below = np.cumsum(shares, axis=1)
    # All starts at once: a block of samples each.
    m, n_starts = len(shares), len(STARTS)
    second = np.concatenate([np.where(below > share, 0.98, 0.02) for share in STARTS])
    tiled = np.tile(shares, (n_starts, 1))
    moments = np.tile(mean, n_starts), np.tile(square, n_starts)
    for _ in range(N_STEPS):
        first_log, second_log = _components(tiled, second, grid, squares, *moments)
        second = 1.0 / (1.0 + np.exp(np.clip(first_log - second_log, -50.0, 50.0)))
    together = np.logaddexp(first_log, second_log)
    likelihood = np.einsum("ij,ij->i", tiled, together).reshape(n_starts, m)
    best = np.argmax(likelihood, axis=0) * m + np.arange(m)
    density = np.exp(together[best] - together[best].max(axis=1, keepdims=True))
    valley = fill(density / density.sum(axis=1, keepdims=True))
    gain = np.maximum(likelihood.max(axis=0) - one, 0.0) if m else one
    return np.sqrt(valley + FLOOR) * gain


def _components(
    shares: NDArray,
    second: NDArray,
    grid: NDArray,
    squares: NDArray,
    mean: NDArray,
    square: NDArray,
) -> tuple[NDArray, NDArray]:
    """Return the logarithms of both weighted densities (m, G), less a common constant."""
    part = shares * second
    weight2 = np.clip(part.sum(axis=1), 1e-12, 1.0 - 1e-12)
    logs = []
    sums, square_sums = part @ grid, part @ squares
    for weight, total, total_square in (
        (1.0 - weight2, mean - sums, square - square_sums),
        (weight2, sums, square_sums),
    ):
        center = total / weight
        variance = np.maximum(total_square / weight - center**2, NARROWEST**2)
        height = np.log(weight) - 0.5 * np.log(variance)
        logs.append(height[:, None] - (grid - center[:, None]) ** 2 / (2.0 * variance[:, None]))
    return logs[0], logs[1]
