"""Moments of all rows and of clusters, accumulated over batches of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from volmar.rows.protocol import Moments, RowSource
from volmar.rows.standardized import Standardized, standardized_columns
from volmar.separation.discriminants import MultiwaySeparationResult, discriminants_of
from volmar.separation.gep import RegularizedCorrelation, SeparationResult, bound


class SummedRows(NamedTuple):
    """Number, weight and mean of rows that were not kept, for use in `Standardized`."""

    n_rows: int
    total_weight: float
    center: NDArray

    def mean(self) -> NDArray:
        """Return the mean of the rows."""
        return self.center


@dataclass(frozen=True, eq=False)
class BatchMoments:
    r"""Weight, mean and second moments of rows, and weights and means of their k clusters.

    Each batch is summed about its own mean, and batches are combined by

    .. math:: M = M_1 + M_2 + \frac{n_1 n_2}{n_1 + n_2}\, \delta\delta',

    with :math:`\delta` the difference of the two means. No precision is lost if the rows are far
    from zero or drift. The state has (k + d) d numbers for any number of rows, and d² more for
    two clusters (`second_of_1`, the second moments of cluster 1 about its mean).
    """

    n_rows: int
    n_batches: int
    weight: NDArray[np.float64]
    means: NDArray[np.float64]
    second: NDArray[np.float64]
    second_of_1: NDArray[np.float64] | None = None

    @classmethod
    def of_rows(cls, rows: RowSource, labels: NDArray, k: int) -> Self:
        """Return the moments of one batch with labels 0 to k - 1, in O(n d²)."""
        mean = rows.mean()
        weight, means = np.zeros(k), np.tile(mean, (k, 1))
        for j in range(k):
            part = rows.moments(labels == j, center=mean, second=False)
            weight[j] = part.weight
            if part.weight > 0:
                means[j] = part.mean
        second_of_1 = None
        if k == 2:
            second_of_1 = np.zeros((mean.size, mean.size))
            if weight[1] > 0:
                second_of_1 = _second(rows.moments(labels == 1, center=means[1]))
        second = _second(rows.moments(center=mean))
        return cls(rows.n_rows, 1, weight, means, second, second_of_1)

    @property
    def total_weight(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum())

    @property
    def mean(self) -> NDArray:
        """Mean of all rows."""
        return self.weight @ self.means / self.total_weight

    def joined(self, other: Self) -> Self:
        """Return the moments of the union of the rows."""
        second_of_1 = None
        if self.second_of_1 is not None and other.second_of_1 is not None:
            second_of_1 = _joined(
                (float(self.weight[1]), self.means[1], self.second_of_1),
                (float(other.weight[1]), other.means[1], other.second_of_1),
            )
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        return type(self)(
            self.n_rows + other.n_rows,
            self.n_batches + other.n_batches,
            weight,
            self.means + share[:, None] * (other.means - self.means),
            _joined(
                (self.total_weight, self.mean, self.second),
                (other.total_weight, other.mean, other.second),
            ),
            second_of_1,
        )

    def standardized(self) -> Standardized:
        """Return the units and correlations of all rows, computed from the moments alone."""
        rows: Any = SummedRows(self.n_rows, self.total_weight, self.mean)
        zeros = np.zeros(self.mean.size)
        return standardized_columns(
            rows, (rows, Moments(zeros, self.total_weight, zeros, self.second))
        )

    def sides(self, z: Standardized) -> tuple[Moments, Moments]:
        """Return the moments of two clusters about the mean of all rows."""
        if self.second_of_1 is None:
            raise ValueError(f"sides needs 2 clusters, and there are {self.weight.size}.")
        weight, shift = float(self.weight[1]), self.means[1] - z.mean
        second = self.second_of_1 + weight * np.outer(shift, shift)
        one = Moments(np.zeros(shift.size), weight, weight * shift, second)
        return z.moments - one, one


def _second(moments: Moments) -> NDArray:
    """Convert moments to second moments about the mean of the rows."""
    return moments.covariance() * moments.weight


def _joined(one: tuple[float, NDArray, NDArray], other: tuple[float, NDArray, NDArray]) -> NDArray:
    """Combine (weight, mean, second moments) of two sets of rows to their second moments."""
    if other[0] == 0.0:
        return one[2]
    shift = other[1] - one[1]
    return one[2] + other[2] + one[0] * (other[0] / (one[0] + other[0])) * np.outer(shift, shift)


def clusters_from_moments(
    moments: BatchMoments, z: Standardized, reg: float
) -> MultiwaySeparationResult:
    """Return the discriminants of more than two clusters (see `discriminants.refine_from`)."""
    means = z.from_rows((moments.means - z.mean).T)
    regularized = RegularizedCorrelation(z.correlation, reg)
    shares = moments.weight / moments.total_weight
    directions, offsets, separation = discriminants_of(regularized, shares, means)
    return MultiwaySeparationResult(
        objective=-separation,
        n_iter=moments.n_batches,
        history=(-separation,),
        directions=directions,
        offsets=offsets,
    )


def hyperplane_from_moments(
    moments: BatchMoments, z: Standardized, reg: float
) -> SeparationResult:
    r"""Return the hyperplane along which Theorem 2's bound is largest for two clusters.

    Its normal :math:`(R + \lambda I)^{-1} (\mu_1 - \mu_0)` has the direction of the difference of
    the two discriminants. The cut is where these are equal, midway between the means.
    """
    means = z.from_rows((moments.means - z.mean).T)
    difference = means[:, 1] - means[:, 0]
    w = RegularizedCorrelation(z.correlation, reg).solve(difference)
    share = float(moments.weight[1]) / moments.total_weight
    explained = share * (1.0 - share) * float(difference @ w)
    kappa2 = float(bound(np.array(explained), np.array(share)))
    return SeparationResult(
        objective=-kappa2,
        n_iter=moments.n_batches,
        history=(-kappa2,),
        w=w,
        threshold=0.5 * float(w @ (means[:, 0] + means[:, 1])),
        lower_bound=kappa2 / (1.0 + kappa2),
        reg=reg,
    )
