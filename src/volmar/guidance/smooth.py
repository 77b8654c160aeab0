"""Offsets of clusters by a smoothed dual: the start of the exact search in `transport`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = ["Limits", "dual_value", "smooth_offsets"]

# Temperatures, those without progress after which the search ends, Newton steps at each, and
# halvings of a step.
LEVELS, PATIENCE, STEPS, HALVINGS = 30, 2, 6, 12
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
    :math:`\tau \log \sum_c \exp(\cdot / \tau)` and the kink at 0 by a parabola of that width. The
    temperature falls until few rows are left to be moved. Of many rows a sample is solved first.
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
        if imbalance <= row * gains.shape[1] / 4:
            break
        tau = min(tau / 3.0, _band(gains, offsets, SPANNED * imbalance / total))
        if not tau > 0:
            break
        offsets = _newton(gains, weights, limits, offsets, tau)
        # An offset within the parabola is that of a cluster between its limits.
        found = np.where(np.abs(offsets) < tau, 0.0, offsets)
        now = _imbalance(gains, weights, limits, found)
        patience = PATIENCE if now < imbalance else patience - 1
        if now < imbalance:
            best, imbalance = found, now
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


def _newton(
    gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray, tau: float
) -> NDArray:
    k = gains.shape[1]
    value, P, load = _smoothed(gains, weights, limits, offsets, tau)
    first = None
    for _ in range(STEPS):
        gradient = load - _called_for(limits, offsets, tau)
        size = float(np.abs(gradient).sum())
        first = size if first is None else first
        if size <= 0.02 * first or size <= 1e-12 * weights.sum():
            break
        inside = (np.abs(offsets) < tau) * (limits.high - limits.low) / (2 * tau)
        H = (np.diag(load) - P.T @ (weights[:, None] * P)) / tau + np.diag(inside)
        # Offsets that all change alike change nothing where all limits are equalities.
        ridge = 1e-9 * max(float(np.trace(H)) / k, weights.sum() / tau * 1e-12)
        try:
            step = cho_solve(cho_factor(H + ridge * (np.eye(k) + 1.0)), -gradient)
        except LinAlgError:
            break
        step *= min(1.0, 30.0 * tau / max(float(np.abs(step).max()), 1e-300))
        slope = float(gradient @ step)
        length = 1.0
        for _ in range(HALVINGS):
            trial = offsets + length * step
            new = _smoothed(gains, weights, limits, trial, tau)
            if new[0] <= value + 1e-4 * length * slope:
                break
            length /= 2.0
        else:
            break
        offsets, (value, P, load) = trial, new
    return offsets


def _smoothed(
    gains: NDArray, weights: NDArray, limits: Limits, offsets: NDArray, tau: float
) -> tuple[float, NDArray, NDArray]:
    """Return the smoothed dual, the shares of the clusters in each row, and their weights."""
    scores = gains + offsets
    top = scores.max(axis=1)
    P = np.exp((scores - top[:, None]) / tau)
    sums = P.sum(axis=1)
    P /= sums[:, None]
    value = float(weights @ (top + tau * np.log(sums)))
    # The integral of what is called for, from 0.
    low, high = limits
    near = np.clip(offsets, -tau, tau)
    inside = (low + high) / 2 * near - (high - low) * near**2 / (4 * tau)
    beyond = np.where(offsets < 0, high, low) * (offsets - near)
    return value - float((inside + beyond).sum()), P, weights @ P


def _called_for(limits: Limits, offsets: NDArray, tau: float) -> NDArray:
    """Return the weights that offsets call for, linear between the limits within tau of 0."""
    low, high = limits
    return (low + high) / 2 - (high - low) / 2 * np.clip(offsets / tau, -1.0, 1.0)
