"""The cuts of a margin problem, and the certificate of any point on them.

The problem and its duals are stated in `volmar.solvers.cutting_plane_qp`, which solves it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpstrf

from volmar.solvers.result import Certificate

# Relative distance to a Gram matrix up to which G may be one in single precision.
_GRAM_TOLERANCE = 1e-4
_ROUNDING = 1e-15


class NotAGramMatrixError(ValueError):
    """G is not symmetric and positive semi-definite."""


class CertifiedPoint(NamedTuple):
    """A feasible primal and dual pair with its certificate, in the units of the problem."""

    weights: np.ndarray
    rho: float
    xi: float
    t: float
    scores: np.ndarray  # <w, a_k>
    objective: float
    lower_bound: float
    residuals: dict[str, float]
    worst: float


class WorkingSet:
    """The cuts with G factored, the scales of the problem and the certificate of any candidate."""

    def __init__(
        self,
        G: np.ndarray,
        s: np.ndarray,
        m: np.ndarray,
        C: float,
        tau: float,
        threshold: str,
        balance: str,
    ) -> None:
        G, s, m = (np.asarray(array, dtype=np.float64) for array in (G, s, m))
        _check(G, s, m, C, tau, threshold, balance)
        self.s, self.m, self.C = s, m, float(C)
        self.adaptive = threshold == "adaptive"
        self.relative = self.adaptive and balance == "relative"
        # A box of width zero and cuts blind to t alike leave t without effect: it is set to 0.
        self.s_max = float(np.abs(s).max())
        self.tau = float(tau) if self.s_max > 0 else 0.0
        self.g, self.F, self.defect = _factor(G)
        # The cut on which the adaptive dual's constraint is easiest to meet.
        reach = m - self.tau * np.abs(s) if self.relative else m
        self.best_cut = int(reach.argmax())
        self.reach = float(reach[self.best_cut])
        # Size of the weights: one cut alone, at the constraint or at the minimum of the dual.
        m_max = float(m.max())
        if self.adaptive:
            self.unit = 1.0 / m_max if m_max > 0 else 1.0
        else:
            self.unit = m_max / self.g if 0 < m_max < C * self.g else C
        # What one cut alone contributes to the objective: the measure where all else vanishes.
        self.size = self.g * self.unit**2 or self.tau * self.s_max * self.unit or 1.0

    def smallest_bounded_penalty(self) -> float:
        """Smallest C at which the adaptive dual is feasible: 1 over the largest mean reach."""
        reach = self.reach
        if self.C * reach < 1.0 and self.relative:
            # m'l - tau |s'l| is linear on either side of s'l = 0, so its maximum over the simplex
            # is at a cut or where the edge between two cuts crosses s'l = 0.
            up, down = self.s > 0, self.s < 0
            if up.any() and down.any():
                s_up, s_down = self.s[up, None], -self.s[down]
                crossing = (self.m[up, None] * s_down + self.m[down] * s_up) / (s_up + s_down)
                reach = max(reach, float(crossing.max()))
        return 1.0 / reach if reach > 0 else math.inf

    def certify(self, weights: np.ndarray, rho: float, t: float) -> CertifiedPoint:
        """Move a candidate to a feasible pair and compare its primal and dual values."""
        s, m, C, tau = self.s, self.m, self.C, self.tau
        weights = self._dual_feasible(np.maximum(weights, 0.0))
        total, reach, pull = float(weights.sum()), float(m @ weights), float(s @ weights)
        if abs(pull) <= _ROUNDING * self.s_max * total:
            pull = 0.0  # what is left is rounding, which an idle, very wide box would magnify
        coordinates = weights @ self.F
        scores = self.g * (self.F @ coordinates)
        energy = 0.5 * self.g * float(coordinates @ coordinates)

        rho = max(rho, 0.0) if self.adaptive else 1.0
        box = tau * rho if self.relative else tau
        t = min(max(t, -box), box)
        margins = rho * m - scores - t * s
        worst_margin = float(margins.max())
        xi = max(worst_margin, 0.0)

        objective = energy + C * xi - (rho if self.adaptive else 0.0)
        lower_bound = -energy + (0.0 if self.adaptive else reach)
        room = reach - 1.0 if self.adaptive else 0.0
        if self.relative:
            room -= tau * abs(pull)
        else:
            lower_bound -= tau * abs(pull)
        size = self.size + energy + C * xi + box * abs(pull)
        size += rho if self.adaptive else abs(reach)
        # The products add up to the duality gap, so none of them may hide in the sum.
        products = (
            float((weights * (xi - margins)).max()),
            xi * (C - total),
            rho * room,
            box * abs(pull) - t * pull,
        )
        residuals = {
            "primal_feasibility": max(worst_margin - xi, 0.0) * self.unit / size,
            "dual_feasibility": max(0.0, total / C - 1.0, -room),
            "complementarity": max(abs(product) for product in products) / size,
            "duality_gap": abs(objective - lower_bound) / size,
        }
        worst = max(residuals.values())
        return CertifiedPoint(
            weights, rho, xi, t, scores, objective, lower_bound, residuals, worst
        )

    def certificate(self, weights: np.ndarray, rho: float, t: float) -> Certificate:
        """Compute objective, duality gap and residuals of a solution from the cuts."""
        point = self.certify(weights, rho, t)
        gap = max(point.objective - point.lower_bound, 0.0)
        return Certificate(point.objective, {**point.residuals, "gram": self.defect}, gap)

    def _dual_feasible(self, weights: np.ndarray) -> np.ndarray:
        total = float(weights.sum())
        if total > self.C:
            weights *= self.C / total
        if self.adaptive:
            reach = float(self.m @ weights)
            if self.relative:
                reach -= self.tau * abs(float(self.s @ weights))
            most = self.C * self.reach
            if reach < 1.0 - 10 * _ROUNDING and most > 1.0 + 1e-6:
                # The reach is concave: a step towards C times the best cut satisfies both.
                step = (1.0 - reach) / (most - reach)
                weights *= 1.0 - step
                weights[self.best_cut] += step * self.C
            elif 0.0 < reach < 1.0:
                weights /= reach
        return weights

    def without_rounding_slack(self, point: CertifiedPoint) -> CertifiedPoint:
        """Trade a slack that is rounding, times C, for a change in rho or the weights.

        Scores known to 1e-16 leave xi of that size, which C = 1e8 makes visible. Lowering
        rho (adaptive) or stretching w and t (fixed) by as little removes it.
        """
        weights, t, rho = point.weights, point.t, point.rho
        if self.adaptive:
            ratio = t / rho if self.relative and rho > 0 else 0.0
            slope = self.m - ratio * self.s
            support = point.scores if self.relative else point.scores + t * self.s
            rising = slope > 0
            rho = float((support[rising] / slope[rising]).min()) * (1.0 - _ROUNDING)
            return self.certify(weights, rho, ratio * rho if self.relative else t)
        gain = point.scores if abs(t) >= self.tau else point.scores + t * self.s
        lack = self.m - point.scores - t * self.s
        short = (lack > 0) & (gain > 0)
        stretch = 1.0 + float((lack[short] / gain[short]).max(initial=0.0)) + _ROUNDING
        return self.certify(stretch * weights, rho, stretch * t)


def _check(
    G: np.ndarray, s: np.ndarray, m: np.ndarray, C: float, tau: float, threshold: str, balance: str
) -> None:
    n = m.size
    if m.ndim != 1 or n == 0 or s.shape != m.shape or G.shape != (n, n):
        raise ValueError(
            f"G, s and m must have the shapes (n_cuts, n_cuts), (n_cuts,) and (n_cuts,), got "
            f"{G.shape}, {s.shape} and {m.shape}; pass one row for each cut, and at least one."
        )
    if not math.isfinite(float(G.sum()) + float(s.sum()) + float(m.sum())):
        raise ValueError(
            "G, s and m must be finite, got NaN or infinity; check the data's scores."
        )
    if not 0.0 < C < math.inf:
        raise ValueError(f"C must be a positive finite number, got {C!r}.")
    if not 0.0 <= tau < math.inf:
        raise ValueError(f"tau must be a finite number of at least 0, got {tau!r}; 0 fixes t = 0.")
    if threshold not in ("adaptive", "fixed"):
        raise ValueError(f"threshold must be 'adaptive' or 'fixed', got {threshold!r}.")
    if balance not in ("absolute", "relative"):
        raise ValueError(f"balance must be 'absolute' or 'relative', got {balance!r}.")


def _factor(G: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Scale g and factor F with G = g F F', and the relative error of that."""
    g = float(G.diagonal().max())
    n = G.shape[0]
    if g <= 0:
        F, defect = np.zeros((n, 0)), math.inf if G.any() else 0.0
    else:
        scaled = G / g
        packed, pivots, rank, _ = dpstrf(scaled, lower=1)
        F = np.empty((n, rank))
        F[pivots - 1] = (packed * _lower_triangle(n))[:, :rank]
        defect = float(np.abs(F @ F.T - scaled).max())
        if defect > 1e-12:
            # Rounded before it came here, and indefinite: eigenvectors lose no more than that.
            values, vectors = np.linalg.eigh(scaled)
            F = vectors * np.sqrt(np.maximum(values, 0.0))
            defect = float(np.abs(F @ F.T - scaled).max())
    if defect > _GRAM_TOLERANCE:
        raise NotAGramMatrixError(
            "G must be the Gram matrix of the cuts, symmetric and positive semi-definite; got one "
            f"that is {defect:.1e} of its largest diagonal entry away. Pass G = A @ A.T."
        )
    return g, F, defect


@lru_cache(maxsize=64)
def _lower_triangle(n: int) -> np.ndarray:
    return np.tri(n)
