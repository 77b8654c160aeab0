"""Offsets of clusters by a smoothed dual: the start of the exact search in `transport`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = ["Limits", "dual_value", "smooth_offsets"]

# Maximum numbers of temperatures, of temperatures without progress, of Newton steps at each
# temperature, and of halvings of a step.
LEVELS, PATIENCE, STEPS, HALVINGS = 15, 2, 6, 8
# A temperature spans this many times the weight that is in the wrong cluster.
SPANNED = 6.0
# Approximate size of the sample that is solved first, if no start is given.
SAMPLED = 4000


class Limits(NamedTuple):
    """Lower and upper limits of the weight of each cluster."""

    low: NDArray
    high: NDArray

    def flows(self, loads: NDArray, offsets: NDArray) -> NDArray:
        """Return the cluster weights that the signs of the offsets require.

        A negative offset requires the upper limit, and a positive offset the lower limit.
        """
        inside = np.clip(loads, self.low, self.high)
        return np.where(offsets < 0, self.high, np.where(offsets > 0, self.low, inside))

    def excess(self, loads: NDArray) -> float:
        """Return the total weight above the upper limits and below the lower limits."""
        over = np.maximum(loads - self.high, 0.0)
        return float((over + np.maximum(self.low - loads, 0.0)).sum())


def dual_value(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    r"""Return an upper bound on the gains of all labels within the limits.

    .. math:: \sum_i w_i \max_c (g_{ic} + \lambda_c) - \sum_c \min(l_c \lambda_c, h_c \lambda_c)

    This is the Lagrangian dual function; the bound holds for any offsets :math:`\lambda`.
    """
    best = float(weights @ (gains + offsets).max(axis=1))
    paid = np.where(offsets < 0, limits.high * offsets, limits.low * offsets)
    return best - float(paid.sum())


def smooth_offsets(
    gains: NDArray, weights: NDArray, limits: Limits, start: NDArray | None = None
) -> NDArray:
    r"""Return offsets for which the largest scores give nearly the required cluster weights.

    Newton's method is applied to :func:`dual_value`, with the maximum over clusters replaced by
    :math:`\tau \log \sum_c \exp(\cdot / \tau)`. Offsets of clusters between their limits are 0. A
    step that would change the sign of an offset ends at 0. The temperature :math:`\tau` falls
    until few rows have to be moved. For large data, a sample is solved first.
    """
    stride = gains.shape[0] // SAMPLED
    if start is None and stride > 1:
        part = slice(None, None, stride)
        scale = float(weights[part].sum() / weights.sum())
        few = Limits(limits.low * scale, limits.high * scale)
        start = smooth_offsets(np.ascontiguousarray(gains[part]), weights[part], few)
    offsets = np.zeros(gains.shape[1]) if start is None else start.astype(np.float64)
    best, imbalance = offsets, _imbalance(gains, weights, limits, offsets)
    total, row = float(weights.sum()), float(weights.max())
    tau, patience = np.inf, PATIENCE
    for _ in range(LEVELS):
        if imbalance <= row * gains.shape[1] / 2:
            break
        tau = min(tau / 3.0, _band(gains, offsets, SPANNED * imbalance / total))
        if not tau > 0:
            break
        offsets = _newton(_Smoothed(gains, weights, limits, tau), offsets)
        now = _imbalance(gains, weights, limits, offsets)
        if now < imbalance:
            best, imbalance, patience = offsets, now, PATIENCE
        elif SPANNED * imbalance < total:  # otherwise the temperature spans all rows
            patience -= 1
        if patience == 0:
            break
    return best


def _imbalance(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    """Return the weight that is not in the cluster required by the offsets."""
    loads = np.bincount(np.argmax(gains + offsets, axis=1), weights, gains.shape[1])
    flows = limits.flows(loads, offsets)
    return float(np.abs(loads - flows).sum() + abs(flows.sum() - loads.sum())) / 2.0


def _band(gains: NDArray, offsets: NDArray, share: float) -> float:
    """Return the quantile, at `share`, of the difference of the two largest scores of a row."""
    two = np.partition(gains + offsets, -2, axis=1)[:, -2:]
    return float(np.quantile(two[:, 1] - two[:, 0], min(share, 1.0)))


class _Smoothed(NamedTuple):
    """The smoothed dual at a temperature.

    Shares of clusters are float32, because rounding errors are small compared with the smoothing.
    """

    gains: NDArray
    weights: NDArray
    limits: Limits
    tau: float

    def at(self, offsets: NDArray) -> _Point:
        scores = self.gains + offsets
        top = scores.max(axis=1)
        scores -= top[:, None]
        scores /= self.tau
        shares = np.exp(scores.astype(np.float32))
        sums = shares.sum(axis=1)
        shares /= sums[:, None]
        value = float(self.weights @ (top + self.tau * np.log(sums.astype(np.float64))))
        low, high = self.limits
        value -= float(np.where(offsets < 0, high * offsets, low * offsets).sum())
        loads = (self.weights.astype(np.float32) @ shares).astype(np.float64)
        # With equalities, the gradient must be orthogonal to a common shift of all offsets.
        loads *= self.weights.sum() / loads.sum()
        return _Point(offsets, value, shares, loads)

    def gradient(self, point: _Point) -> NDArray:
        """Return the gradient; at an offset of 0, the one-sided gradient of descent."""
        low, high = self.limits
        over, under = point.loads - high, point.loads - low
        at_zero = np.where(over > 0, over, np.minimum(under, 0.0))
        gradient = np.where(point.offsets < 0, over, np.where(point.offsets > 0, under, at_zero))
        return np.where(low == high, over, gradient)

    def hessian(self, point: _Point) -> NDArray:
        """Return the Hessian as a Laplacian, whose rows sum to 0 in spite of rounding."""
        shared = point.shares.T @ (self.weights.astype(np.float32)[:, None] * point.shares)
        shared = shared.astype(np.float64)
        np.fill_diagonal(shared, 0.0)
        return (np.diag(shared.sum(axis=1)) - shared) / self.tau


class _Point(NamedTuple):
    """Offsets, the value of the smoothed dual, the shares of clusters in rows, their weights."""

    offsets: NDArray
    value: float
    shares: NDArray
    loads: NDArray


def _newton(dual: _Smoothed, offsets: NDArray) -> NDArray:
    """Decrease the smoothed dual by projected Newton steps; return the offsets."""
    total = float(dual.weights.sum())
    point, first = dual.at(offsets), None
    for _ in range(STEPS):
        gradient = dual.gradient(point)
        size = float(np.abs(gradient).sum())
        first = size if first is None else first
        if size <= 1e-6 * total or size < 0.02 * first:
            break
        free = np.flatnonzero((point.offsets != 0) | (gradient != 0))
        H = dual.hessian(point)[np.ix_(free, free)]
        # The Hessian may be singular, because a common shift of all offsets may have no effect.
        ridge = 1e-9 * max(float(np.trace(H)) / free.size, 1e-9 * total / dual.tau)
        try:
            step = cho_solve(cho_factor(H + ridge * np.eye(free.size)), -gradient[free])
        except LinAlgError:
            break
        step *= min(1.0, 30.0 * dual.tau / max(float(np.abs(step).max()), 1e-300))
        new = _searched(dual, point, gradient, free, step)
        if new is None:
            break
        point = new
    return point.offsets


def _searched(
    dual: _Smoothed, point: _Point, gradient: NDArray, free: NDArray, step: NDArray
) -> _Point | None:
    """Backtrack until the dual decreases; return None if it does not."""
    low, high = dual.limits
    length = 1.0
    for _ in range(HALVINGS):
        trial = point.offsets.copy()
        trial[free] += length * step
        side = np.where(point.offsets != 0, np.sign(point.offsets), -np.sign(gradient))
        trial[(np.sign(trial) != side) & (low < high)] = 0.0
        new = dual.at(trial)
        if new.value <= point.value + 1e-4 * float(gradient @ (trial - point.offsets)):
            return new
        length /= 2.0
    return None
