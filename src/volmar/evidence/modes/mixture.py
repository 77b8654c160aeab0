"""Two normal components on a grid: a projection index that is sensitive to small groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import fill

__all__ = ["two_group_index"]

# Quantiles at which the components are separated at the start.
STARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
# Number of EM steps from each start, and of further steps from the best of them.
N_STEPS, N_MORE = 6, 19
# Minimum standard deviation of a component, in units of the grid's width.
NARROWEST = 0.03
# Added to the mass of the valley, so that samples without a valley are ranked by likelihood.
FLOOR = 1e-6


def two_group_index(shares: NDArray) -> NDArray:
    r"""Return an index of how much samples look like two groups, from shares (m, G) on a grid.

    The index is :math:`\sqrt{v} \, (\ell_2 - \ell_1)`, at least 0: the gain in log-likelihood per
    value of two normal components over one, times the square root of the mass of the valley
    between them. The likelihood detects small groups. The valley excludes skewed or heavy-tailed
    densities, which two components without a valley also fit better than one. Flat tops are not
    excluded: their two components have a valley that the sample does not have.

    The components result from 25 steps of the EM algorithm, in single precision: 6 steps from each
    of five starts, and 19 more from the best.
    """
    m = len(shares)
    if m == 0:
        return np.zeros(0)
    _, mean, square = _powers(shares.shape[1]) @ shares.T
    square = square - mean**2
    variance = np.maximum(square, NARROWEST**2)
    one = -0.5 * np.log(variance) - 0.5 * square / variance
    # All starts are computed at once, as blocks of samples.
    below = np.cumsum(shares, axis=1)
    second = np.concatenate([np.where(below > share, 0.98, 0.02) for share in STARTS])
    tiled = np.tile(shares, (len(STARTS), 1))
    second = _after_steps(tiled, second, N_STEPS)
    likelihood, _ = _likelihoods(tiled, second)
    best = np.argmax(likelihood.reshape(len(STARTS), m), axis=0) * m + np.arange(m)
    second = _after_steps(shares, second[best], N_MORE)
    likelihood, together = _likelihoods(shares, second)
    density = np.exp(together - together.max(axis=1, keepdims=True))
    valley = fill(density / density.sum(axis=1, keepdims=True))
    return np.sqrt(valley + FLOOR) * np.maximum(likelihood - one, 0.0)


def _after_steps(shares: NDArray, second: NDArray, n_steps: int) -> NDArray:
    """Return the probability (m, G) of the second component at each grid point, after EM steps."""
    shares, second = shares.astype(np.float32), second.astype(np.float32)
    powers = _powers(shares.shape[1]).astype(np.float32)
    totals = powers @ shares.T
    with np.errstate(over="ignore"):  # exp is inf there, and its reciprocal 0
        for _ in range(n_steps):
            second *= shares
            first, other = _logarithms(totals, powers @ second.T)
            np.matmul((first - other).T, powers, out=second)
            np.exp(second, out=second)
            second += 1.0
            np.reciprocal(second, out=second)
    return second


def _likelihoods(shares: NDArray, second: NDArray) -> tuple[NDArray, NDArray]:
    """Return log-likelihoods (m,) per value of both components, and log-densities (m, G).

    A common constant is left out.
    """
    powers = _powers(shares.shape[1])
    first, other = _logarithms(powers @ shares.T, powers @ (shares * second).T)
    together = np.logaddexp(first.T @ powers, other.T @ powers)
    return np.einsum("ij,ij->i", shares, together), together


def _powers(size: int) -> NDArray[np.float64]:
    """Return the powers 0 to 2, of shape (3, G), of the points of a grid from 0 to 1."""
    return np.linspace(0.0, 1.0, size) ** np.arange(3)[:, None]


def _logarithms(totals: NDArray, moments: NDArray) -> NDArray:
    r"""Return the coefficients (2, 3, m) of both weighted log-densities, as polynomials.

    With weight w, mean :math:`\mu` and variance v, :math:`\log w - \frac12 \log v -
    (g - \mu)^2 / 2v` is a polynomial in the grid point g. A common constant is left out.

    Parameters
    ----------
    totals, moments : ndarray of shape (3, m)
        Moments of order 0 to 2 of the samples, and of their second components.
    """
    both = np.empty((2, *totals.shape), totals.dtype)
    np.subtract(totals, moments, out=both[0])
    both[1] = moments
    weight = np.maximum(both[:, 0], 1e-12)
    center, square = both[:, 1] / weight, both[:, 2] / weight
    variance = np.maximum(square - center * center, NARROWEST**2)
    linear = center / variance
    both[:, 0] = np.log(weight * weight / variance)
    both[:, 0] -= center * linear
    both[:, 0] *= 0.5
    both[:, 1] = linear
    np.divide(-0.5, variance, out=both[:, 2])
    return both
