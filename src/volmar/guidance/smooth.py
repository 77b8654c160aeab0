"""Offsets of clusters by a smoothed dual: the start of the exact search in `transport`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = ["Limits", "dual_value", "smooth_offsets"]

# Temperatures, those without progress after which the search ends, Newton steps at each, and
# halvings of a step.
LEVELS, PATIENCE, STEPS, HALVINGS = 15, 2, 6, 8
# A temperature spans this many times the rows that are too many or too few.
SPANNED = 6.0
# Rows of the sample with which a search without a start begins.
SAMPLED = 4000


class Limits(NamedTuple):
    """Limits of the weight of each cluster."""

    low: NDArray
    high: NDArray

    def flows(self, loads: NDArray, offsets: NDArray) -> NDArray:
        """Return the weights that offsets of these signs call for.

        A negative offset belongs to a cluster at its upper limit, a positive one to a cluster at
        its lower limit.
        """
        inside = np.clip(loads, self.low, self.high)
        return np.where(offsets < 0, self.high, np.where(offsets > 0, self.low, inside))

    def excess(self, loads: NDArray) -> float:
        """Return the sum of what clusters hold above their upper and below their lower limits."""
        over = np.maximum(loads - self.high, 0.0)
        return float((over + np.maximum(self.low - loads, 0.0)).sum())


def dual_value(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    r"""Return an upper bound on the gains of all labels within the limits.

    .. math:: \sum_i w_i \max_c (g_{ic} + \lambda_c) - \sum_c \min(l_c \lambda_c, h_c \lambda_c)

    It is the Lagrangian dual of the limits, for any offsets :math:`\lambda`.
    """
    best = float(weights @ (gains + offsets).max(axis=1))
    paid = np.where(offsets < 0, limits.high * offsets, limits.low * offsets)
    return best - float(paid.sum())


def smooth_offsets(
    gains: NDArray, weights: NDArray, limits: Limits, start: NDArray | None = None
) -> NDArray:
    r"""Return offsets whose largest scores bring nearly the asked-for weights.

    Newton's method on :func:`dual_value` with the maximum over clusters replaced by
    :math:`\tau \log \sum_c \exp(\cdot / \tau)`. Offsets of clusters between their limits are 0,
    and a step ends there for those whose sign it would change. The temperature falls until few
    rows are left to be moved. Of many rows a sample is solved first.
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
        elif SPANNED * imbalance < total:  # above it the temperature is that of all rows
            patience -= 1
        if patience == 0:
            break
    return best


def _imbalance(gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray) -> float:
    """Return the weight that is not where the offsets call for it."""
    loads = np.bincount(np.argmax(gains + offsets, axis=1), weights, gains.shape[1])
    flows = limits.flows(loads, offsets)
    return float(np.abs(loads - flows).sum() + abs(flows.sum() - loads.sum())) / 2.0


def _band(gains: NDArray, offsets: NDArray, share: float) -> float:
    """Return the difference of the two largest scores within which a share of the rows lies."""
    two = np.partition(gains + offsets, -2, axis=1)[:, -2:]
    return float(np.quantile(two[:, 1] - two[:, 0], min(share, 1.0)))


class _Smoothed(NamedTuple):
    """The dual at a temperature.

    Shares of clusters are in float32: their errors are small beside those of the temperature.
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
        # Of equalities the gradient is orthogonal to a change of all offsets alike.
        loads *= self.weights.sum() / loads.sum()
        return _Point(offsets, value, shares, loads)

    def gradient(self, point: _Point) -> NDArray:
        """Return the gradient; at an offset of 0 that of the side to which the dual falls."""
        low, high = self.limits
        over, under = point.loads - high, point.loads - low
        at_zero = np.where(over > 0, over, np.minimum(under, 0.0))
        gradient = np.where(point.offsets < 0, over, np.where(point.offsets > 0, under, at_zero))
        return np.where(low == high, over, gradient)

    def hessian(self, point: _Point) -> NDArray:
        """Return the Hessian, whose rows have the sum 0: a Laplacian, also after rounding."""
        shared = point.shares.T @ (self.weights.astype(np.float32)[:, None] * point.shares)
        shared = shared.astype(np.float64)
        np.fill_diagonal(shared, 0.0)
        return (np.diag(shared.sum(axis=1)) - shared) / self.tau


class _Point(NamedTuple):
    """The value of a smoothed dual, the shares of clusters in rows, and their weights."""

    offsets: NDArray
    value: float
    shares: NDArray
    loads: NDArray


def _newton(dual: _Smoothed, offsets: NDArray) -> NDArray:
    """Return offsets of a lower dual by projected Newton steps."""
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
        # Offsets that all change alike may change nothing.
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
    """Return the first of shorter and shorter steps at which the dual falls."""
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
