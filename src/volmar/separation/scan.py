"""The best labels along a direction: from all cuts, or from those between a few bins."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from volmar.rows import Standardized, bin_sums
from volmar.separation.bound import best_split, edge_split

__all__ = ["ExactScan", "HistogramScan", "Scan", "ScanCut", "mean_difference"]

# Bins within this many standard deviations of the projection on either side; the first and the
# last take what is beyond. One is an eighty-fifth of a standard deviation wide.
N_BINS, N_DEVIATIONS = 1024, 6.0


class ScanCut(NamedTuple):
    """The labels of a cut of a projection: rows above the threshold.

    `kappa2` is Theorem 2's bound on kappa^2, -inf where no cut is allowed; `moves` the share of
    the rows whose label is another than before; `difference` the mean of the labelled rows less
    that of the others, where it is known already.
    """

    labels: Any
    threshold: float
    kappa2: float
    moves: float
    difference: NDArray | None = None


class Scan(Protocol):
    """Finds the best cut along a direction, and the difference of the means of its sides."""

    def cut(self, w: NDArray, labels: Any, variance: float) -> ScanCut:
        """Return the best cut of z'w; `labels` are those before, `variance` the regularised."""

    def difference(self, cut: ScanCut) -> NDArray:
        """Return the mean of the labelled rows less that of the others."""


class ExactScan:
    """All cuts of rows in memory, by sorting (or sorting what a histogram leaves open)."""

    def __init__(self, z: Standardized, min_weight: float):
        self.z, self.min_weight = z, min_weight

    def cut(self, w: NDArray, labels: Any, variance: float) -> ScanCut:
        """Return the best cut: one pass."""
        p = self.z.scores(w)
        found = best_split(p, self.z.rows.weights, variance, self.min_weight)
        proposed = p > found.threshold
        return ScanCut(proposed, *found, float(np.mean(proposed != labels)))

    def difference(self, cut: ScanCut) -> NDArray:
        """Return the difference of the means: one pass."""
        return mean_difference(self.z, cut.labels)


class HistogramScan:
    """The cuts between 1024 bins within 6 standard deviations.

    One pass brings the weight, the sum of the projections and the sum of the rows of each bin, so
    that the bound of every cut between bins, and the means of its sides, are exact.
    """

    def __init__(self, z: Standardized, min_weight: float):
        self.z, self.min_weight = z, min_weight

    def cut(self, w: NDArray, labels: Any, variance: float) -> ScanCut:
        """Return the best cut: one pass."""
        z = self.z
        high = N_DEVIATIONS * float(np.sqrt(max(w @ (z.correlation @ w), 0.0)))
        if not high > 0:
            return ScanCut(labels, 0.0, -np.inf, 0.0)
        # The mean is in the middle of a bin: many rows may lie there, and on no side of an edge.
        low, high = -high - high / N_BINS, high - high / N_BINS
        bins = bin_sums(z.rows, z.coefficients(w), low, high, N_BINS, labels)
        edges = np.linspace(low, high, N_BINS + 1)
        found = edge_split(bins, edges, variance, self.min_weight)
        above = edges[:-1] >= found.threshold
        # Labelled rows that are below now, and others that are above.
        moved = bins.labelled[~above].sum() + (bins.rows - bins.labelled)[above].sum()
        weight, total = float(bins.weight[above].sum()), z.rows.total_weight
        difference = None
        if 0 < weight < total:
            sums = bins.vectors[above].sum(axis=0) / z.scale
            difference = sums[z.kept] * (total / (weight * (total - weight)))
        proposed = z.scores(w) > found.threshold
        return ScanCut(proposed, *found, float(moved) / z.rows.n_rows, difference)

    def difference(self, cut: ScanCut) -> NDArray:
        """Return the difference of the means, which the pass of the cut brought."""
        if cut.difference is None:
            raise ValueError("a cut with all rows on one side has no difference of means.")
        return cut.difference


def mean_difference(z: Standardized, mask: Any) -> NDArray:
    """Return the mean of the masked rows less that of the others, in z: one pass.

    With the whole centred, it is sum_1 total / (weight_1 (total - weight_1)).
    """
    v = mask.astype(z.rows.dtype) if z.rows.weights is None else z.rows.weights * mask
    weight, sums = z.rows.in_one_pass(lambda: (float(v.sum(dtype=np.float64)), z.combine(v)))
    total = z.rows.total_weight
    return sums * (total / (weight * (total - weight)))
