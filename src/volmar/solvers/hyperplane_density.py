"""The density on a hyperplane, and its minimum along a direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.solvers.result import Certificate

# Number of grid steps per bandwidth.
RESOLUTION = 8
# Number of bandwidths beyond which the kernel, 1e-14 of its height, counts as 0.
REACH = 8.0
# Width of the penalty in bandwidths: a cut is at most half of this beyond the slab.
ETA = 0.1
# Maximum number of Newton steps from the best grid point to the nearby minimum, and the slope at
# which they end, relative to that of the penalty.
N_NEWTON, FLAT = 20, 1e-9
# Maximum number of grid points.
MAX_STEPS = 1 << 16
# Height of a Gaussian kernel of bandwidth 1.
HEIGHT = 1.0 / np.sqrt(2.0 * np.pi)


class Cut(NamedTuple):
    """A hyperplane across a direction, with its `threshold` b and the `density` on it.

    `value` is the penalised density, and `slope` its derivative in b, which is 0 at a minimum.
    """

    threshold: float
    density: float
    value: float
    slope: float


@dataclass(frozen=True, eq=False)
class HyperplaneDensity:
    r"""Kernel density estimate on hyperplanes v'x = b of centred rows, v a unit vector.

    With the projections :math:`p_i = v'x_i`, the shares :math:`q_i` of the rows and the standard
    deviation :math:`\sigma_v` of the projections, it is

    .. math::
        I(v, b) = \sum_i q_i \frac{1}{\sqrt{2\pi}\,h} e^{-(b - p_i)^2 / 2h^2}, \qquad
        \varphi(v) = \min_b I(v, b) + \frac{L}{\eta} \max(0, |b| - \alpha\sigma_v)^2 ,

    where :math:`L = (e^{1/2} h^2 \sqrt{2\pi})^{-1}` is the largest slope of I in b. At a distance
    of more than :math:`\eta / 2` from the slab :math:`|b| \le \alpha\sigma_v`, the penalty is
    steeper than I. Hence no minimum is farther away from the slab.

    Attributes
    ----------
    scores : callable
        Function of a vector (d,) that returns the projections (n,) of the rows on it. Their
        weighted mean must be 0.
    combine : callable
        Function of coefficients (n,) that returns this combination (d,) of the rows.
    shares : ndarray of shape (n,)
        Shares of the rows in the total weight, which sum to 1.
    bandwidth : float
        Bandwidth h of the kernel.
    offset : float
        Half-width :math:`\alpha` of the slab in standard deviations.
    """

    scores: Callable[[NDArray], NDArray]
    combine: Callable[[NDArray], NDArray]
    shares: NDArray
    bandwidth: float
    offset: float

    def projections(self, v: NDArray) -> NDArray:
        """Return the projections (n,) on the unit vector along v, in float64."""
        return self.scores(v / np.linalg.norm(v)).astype(np.float64, copy=False)

    def deviation(self, p: NDArray) -> float:
        """Return the standard deviation of projections."""
        return float(np.sqrt(np.einsum("i,i,i->", self.shares, p, p)))

    def densities(self, p: NDArray, low: float, high: float) -> tuple[NDArray, NDArray]:
        r"""Return a grid from `low` to `high` and the density on it, from binned projections.

        Each projection is split between the two adjacent grid points. The kernel is thus
        interpolated linearly between points at a distance of :math:`\delta = h / 8`, and the error
        of the density is at most :math:`\delta^2 / 8h^2 = 1 / 512` of the kernel's height.
        """
        step = self.bandwidth / RESOLUTION
        size = min(int(np.ceil((high - low) / step)) + 1, MAX_STEPS)
        margin = int(REACH * RESOLUTION)
        place = (p - (low - margin * step)) / step
        n_bins = size + 2 * margin
        inside = (place >= 0.0) & (place < n_bins - 1)
        place, shares = place[inside], self.shares[inside]
        below = place.astype(np.intp)
        above = (place - below) * shares
        counts = np.bincount(below, shares - above, n_bins)
        counts[1:] += np.bincount(below, above, n_bins)[:-1]
        kernel = self._kernel(np.arange(-margin, margin + 1) * step)
        return low + step * np.arange(size), np.convolve(counts, kernel, "valid")

    def density(self, p: NDArray, b: float) -> tuple[float, float, float]:
        """Return the density at b and its first two derivatives, by the exact sum."""
        away = b - p
        near = np.abs(away) < REACH * self.bandwidth
        away = away[near] / self.bandwidth
        mass = self.shares[near] * (HEIGHT / self.bandwidth) * np.exp(-0.5 * away**2)
        slope = -float(mass @ away) / self.bandwidth
        return float(mass.sum()), slope, float(mass @ (away**2 - 1.0)) / self.bandwidth**2

    def at(self, p: NDArray, b: float) -> Cut:
        """Return the cut of projections at b."""
        return self._cut(p, b, self.deviation(p))[0]

    def lowest(self, p: NDArray) -> Cut:
        """Return the cut of projections with the lowest penalised density."""
        sigma = self.deviation(p)
        reach = self.offset * sigma + 0.5 * ETA * self.bandwidth
        if self.offset == 0.0:
            return self._cut(p, 0.0, sigma)[0]
        grid, densities = self.densities(p, -reach, reach)
        b = float(grid[np.argmin(densities + self._penalty(grid, sigma))])
        step = self.bandwidth / RESOLUTION
        low, high = b - step, b + step
        near = np.abs(p - b) < REACH * self.bandwidth + step
        few = replace(self, shares=self.shares[near])
        q = p[near]
        cut, curvature = few._cut(q, b, sigma)
        for _ in range(N_NEWTON):
            if abs(cut.slope) <= FLAT * self._steepness * self.bandwidth:
                break
            low, high = (cut.threshold, high) if cut.slope < 0.0 else (low, cut.threshold)
            if curvature > 0.0:
                b = cut.threshold - cut.slope / curvature
            else:  # to where the penalty beyond the edge of the slab is as steep
                edge = self.offset * sigma + 0.5 * abs(cut.slope) / self._steepness
                b = -edge if cut.slope > 0.0 else edge
            b = b if low < b < high else 0.5 * (low + high)
            cut, curvature = few._cut(q, b, sigma)
        return cut

    def value_and_gradient(self, v: NDArray) -> tuple[Cut, NDArray]:
        r"""Return the lowest cut across v, and the gradient (d,) of :math:`\varphi(v / |v|)`.

        By the envelope theorem the minimising b may be held fixed. The gradient at a unit vector
        is :math:`\sum_i c_i x_i` with :math:`c_i = q_i (b - p_i) K_h(b - p_i) / h^2 - q_i p_i
        \alpha / \sigma_v` times the slope of the penalty. It is projected onto the tangent space
        of the sphere.
        """
        length = float(np.linalg.norm(v))
        u = v / length
        p = self.projections(u)
        cut = self.lowest(p)
        return cut, self.gradient(u, p, cut) / length

    def gradient(self, u: NDArray, p: NDArray, cut: Cut) -> NDArray:
        """Return the gradient of the penalised density at a unit vector, for a given cut."""
        away = (cut.threshold - p) / self.bandwidth
        c = self.shares * self._kernel(cut.threshold - p) * away / self.bandwidth
        sigma = self.deviation(p)
        beyond = abs(cut.threshold) - self.offset * sigma
        if beyond > 0.0 and sigma > 0.0 and self.offset > 0.0:
            c -= self.shares * p * (2.0 * self._steepness * beyond * self.offset / sigma)
        gradient = self.combine(c)
        return np.asarray(gradient - u * float(u @ gradient))

    def certificate(self, v: NDArray) -> Certificate:
        """Return the lowest density across v, with the norms of its derivatives in v and b."""
        cut, gradient = self.value_and_gradient(v / np.linalg.norm(v))
        residuals = {"gradient": float(np.linalg.norm(gradient)), "slope": abs(cut.slope)}
        if self.offset == 0.0:
            residuals["slope"] = 0.0  # the cut is fixed at the mean
        return Certificate(cut.value, residuals)

    def relative_depth(self, p: NDArray, b: float) -> float:
        r"""Return the depth of the valley at b relative to the density there.

        This is :math:`(\min(m_1, m_2) - I) / I`, with :math:`m_1, m_2` the maximum densities on
        the two sides; 0 unless the density at b is below both.
        """
        h = self.bandwidth
        counted = p[self.shares > 0]
        low, high = min(float(counted.min()), b) - h, max(float(counted.max()), b) + h
        reach = 0.5 * (MAX_STEPS - 2) * h / RESOLUTION
        low, high = max(low, b - reach), min(high, b + reach)
        grid, densities = self.densities(p, low, high)
        there = max(self.density(p, b)[0], np.finfo(np.float64).tiny)
        split = int(np.clip(np.searchsorted(grid, b), 1, grid.size - 1))
        lower = min(densities[:split].max(), densities[split:].max())
        return float(max(lower - there, 0.0) / there)

    @cached_property
    def _steepness(self) -> float:
        """L / eta."""
        return float(HEIGHT * np.exp(-0.5) / (ETA * self.bandwidth**3))

    def _kernel(self, away: NDArray) -> NDArray:
        return np.asarray((HEIGHT / self.bandwidth) * np.exp(-0.5 * (away / self.bandwidth) ** 2))

    def _penalty(self, b: NDArray, sigma: float) -> NDArray:
        beyond = np.maximum(np.abs(b) - self.offset * sigma, 0.0)
        return self._steepness * beyond**2

    def _cut(self, p: NDArray, b: float, sigma: float) -> tuple[Cut, float]:
        """Return the cut at b, and the second derivative of its penalised density in b."""
        density, slope, curvature = self.density(p, b)
        beyond = max(abs(b) - self.offset * sigma, 0.0)
        value = density + self._steepness * beyond**2
        slope += 2.0 * self._steepness * beyond * (1.0 if b > 0.0 else -1.0)
        curvature += 2.0 * self._steepness * (beyond > 0.0)
        return Cut(b, density, value, slope), curvature
