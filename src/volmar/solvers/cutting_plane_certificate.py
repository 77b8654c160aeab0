"""The cuts of a margin problem, and the certificate of any candidate solution.

The problem and its duals are stated in `volmar.solvers.cutting_plane_qp`, which solves it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpstrf

from volmar.solvers.result import Certificate

# Maximum relative distance of G to a Gram matrix, which allows for single precision.
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
    """The cuts with factorised G and the scales of the problem; certifies candidates."""

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
        # t has no effect if the box has width zero or no cut depends on t. Then it is set to 0.
        self.s_max = float(np.abs(s).max())
        self.tau = float(tau) if self.s_max > 0 else 0.0
        self.g, self.F, self.defect = _factor(G)
        # The cut for which the constraint of the adaptive dual is easiest to satisfy.
        reach = m - self.tau * np.abs(s) if self.relative else m
        self.best_cut = int(reach.argmax())
        self.reach = float(reach[self.best_cut])
        # Scale of the weights: that of a single cut, at the constraint or the optimum of the dual.
        m_max = float(m.max())
        if self.adaptive:
            self.unit = 1.0 / m_max if m_max > 0 else 1.0
        else:
            self.unit = m_max / self.g if 0 < m_max < C * self.g else C
        # Contribution of a single cut to the objective: the scale if all other terms vanish.
        self.size = self.g * self.unit**2 or self.tau * self.s_max * self.unit or 1.0

    def smallest_bounded_penalty(self) -> float:
        """Return the smallest C for which the adaptive dual is feasible: 1 / the largest reach."""
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
        """Convert a candidate to a feasible primal and dual pair, and compare their values."""
        s, m, C, tau = self.s, self.m, self.C, self.tau
        weights = self._dual_feasible(np.maximum(weights, 0.0))
        total, reach, pull = float(weights.sum()), float(m @ weights), float(s @ weights)
        if abs(pull) <= _ROUNDING * self.s_max * total:
            pull = 0.0  # rounding, which a very wide, inactive box would magnify
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
        # The products sum to the duality gap. They are checked one by one, as signs may cancel.
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
        """Return objective, duality gap and residuals of a solution, computed from the cuts."""
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
            largest = self.C * self.reach
            if reach < 1.0 - 10 * _ROUNDING and largest > 1.0 + 1e-6:
                # The reach is concave, so a step towards C times the best cut satisfies both.
                step = (1.0 - reach) / (largest - reach)
                weights *= 1.0 - step
                weights[self.best_cut] += step * self.C
            elif 0.0 < reach < 1.0:
                weights /= reach
        return weights

    def without_rounding_slack(self, point: CertifiedPoint) -> CertifiedPoint:
        """Remove a slack due to rounding by a small change of rho or of the weights.

        Scores with errors of 1e-16 give a slack xi of that size, which C = 1e8 makes visible. A
        slightly smaller rho (adaptive), or slightly longer w and t (fixed), removes it.
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
            f"{G.shape}, {s.shape} and {m.shape}. Pass one row per cut, and at least one cut."
        )
    if not math.isfinite(float(G.sum()) + float(s.sum()) + float(m.sum())):
        raise ValueError(
            "G, s and m must be finite, got NaN or infinity. Check the scores of the data."
        )
    if not 0.0 < C < math.inf:
        raise ValueError(f"C must be a positive finite number, got {C!r}.")
    if not 0.0 <= tau < math.inf:
        raise ValueError(f"tau must be a finite number of at least 0, got {tau!r}. 0 fixes t = 0.")
    if threshold not in ("adaptive", "fixed"):
        raise ValueError(f"threshold must be 'adaptive' or 'fixed', got {threshold!r}.")
    if balance not in ("absolute", "relative"):
        raise ValueError(f"balance must be 'absolute' or 'relative', got {balance!r}.")


def _factor(G: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Return g and F with G = g F F', and the relative error of this factorisation."""
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
            # G was rounded and is indefinite. Eigenvectors add no further error.
            values, vectors = np.linalg.eigh(scaled)
            F = vectors * np.sqrt(np.maximum(values, 0.0))
            defect = float(np.abs(F @ F.T - scaled).max())
    if defect > _GRAM_TOLERANCE:
        raise NotAGramMatrixError(
            "G must be the Gram matrix of the cuts, symmetric and positive semi-definite. Its "
            f"relative distance to such a matrix is {defect:.1e}. Pass G = A @ A.T."
        )
    return g, F, defect


@lru_cache(maxsize=64)
def _lower_triangle(n: int) -> np.ndarray:
    return np.tri(n)
