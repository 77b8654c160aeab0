"""Clusters that respect known labels, links and sizes: a cut for two, else discriminants."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import EmptyClusterError, Guide
from volmar.rows import ClusterSums, RowSource, Standardized, cluster_sums
from volmar.separation.bound import best_split_between, bound_of_sides
from volmar.separation.discriminants import refine_from
from volmar.separation.gep import ScanCut, SeparationResult, mean_difference, separation_gep
from volmar.separation.problem import SeparationRows
from volmar.separation.relabelling import MultiwaySeparationResult


def guided_clusters(
    rows: SeparationRows, guide: Guide, labels: NDArray, *, momentum: float, **steps: Any
) -> SeparationResult | MultiwaySeparationResult:
    """Return clusters of rows in memory that the guide allows, starting from `labels`.

    Two clusters are separated by the hyperplane that maximises Theorem 2's bound
    (`separation_gep`), more by linear discriminants (`refine_from`). The guide assigns the rows
    given their scores. Clusters with a known row may have any size. The minimum of the others is
    that of `rows` or the weight at the start, whichever is smaller.
    """
    start = cluster_sums(rows.z.rows, labels, guide.k)
    floors = np.minimum(np.full(guide.k, rows.min_weight), start.weight)
    floors[np.unique(guide.seeds[guide.seeds >= 0])] = 0.0
    run = _guided_split if guide.k == 2 else _guided_discriminants
    # If the minimum sizes cannot be met, require only that no cluster is empty.
    for limits in (floors, np.zeros(guide.k)):
        result = run(rows, guide, start, limits, momentum, steps)
        if result.history:
            return result
    raise EmptyClusterError(guide.k)


def _guided_split(
    rows: SeparationRows,
    guide: Guide,
    start: ClusterSums,
    floors: NDArray,
    momentum: float,
    steps: dict[str, Any],
) -> SeparationResult:
    z, labels = rows.z, start.labels.astype(bool)
    return separation_gep(
        z,
        rows.regularized,
        rows.regularized.solve(mean_difference(z, labels)),
        min_weight=float(floors.max()),
        scan=GuidedScan(guide, z.rows.weights),
        momentum=momentum,
        start=labels,
        **steps,
    )


def _guided_discriminants(
    rows: SeparationRows,
    guide: Guide,
    start: ClusterSums,
    floors: NDArray,
    momentum: float,  # noqa: ARG001 -- used for two clusters only
    steps: dict[str, Any],
) -> MultiwaySeparationResult:
    last = np.zeros(guide.k)

    def relabel(
        source: RowSource, directions: NDArray, offsets: NDArray, before: Any
    ) -> ClusterSums:
        placed = guide.place(source.scores(directions) + offsets, last)
        last[:] = placed.offsets  # a good start for the next step
        return cluster_sums(source, placed.labels, guide.k, before)

    return refine_from(
        rows.z, rows.regularized, start, relabel, min_weight=floors, keeps_best=True, **steps
    )[0]


class GuidedScan:
    """Scan for `separation_gep`: the best cut of a projection among the labels a guide allows.

    Rows of a unit change sides together, at the weighted mean of their projections. Known rows
    keep their sides. The best such cut is found exactly by a sort. Size limits and cannot-link
    pairs then move further rows, and the bound is that of the final labels.

    Parameters
    ----------
    guide : Guide
        Known labels, links and size limits of two clusters.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
    """

    def __init__(self, guide: Guide, weights: NDArray | None):
        n = guide.seeds.size
        self.guide = guide
        self.units = np.arange(n) if guide.units is None else guide.units
        self.weights = np.ones(n) if weights is None else weights.astype(np.float64)
        self.mass = np.bincount(self.units, self.weights)
        sides = np.full(self.mass.size, -1)
        known = guide.seeds >= 0
        sides[self.units[known]] = guide.seeds[known]
        self.below = sides == 0
        self.free = (sides < 0) & (self.mass > 0)
        self.total = float(self.mass.sum())

    def __call__(
        self, z: Standardized, w: NDArray, labels: NDArray, variance: float, min_weight: float
    ) -> ScanCut:
        """Return the best cut along w; the arguments are those of `exact_scan`."""
        p = z.scores(w).astype(np.float64)
        weighted = self.weights * p
        sums = np.bincount(self.units, weighted, minlength=self.mass.size)
        below = float(self.mass[self.below].sum()), float(sums[self.below].sum())
        found = best_split_between(
            sums[self.free] / self.mass[self.free],
            self.mass[self.free],
            below,
            self.total,
            variance,
            min_weight,
        )
        threshold = found.threshold
        if not np.isfinite(found.kappa2):
            # No allowed cut: use the midpoint of the means.
            sides = labels.astype(np.intp)
            means = np.bincount(sides, weighted, 2) / np.bincount(sides, self.weights, 2)
            threshold = float(means.mean())
        placed = self.guide.place_sides(p - threshold).labels.astype(bool)
        kappa2 = bound_of_sides(
            float(weighted[~placed].sum()),
            float(self.weights[~placed].sum()),
            self.total,
            variance,
            min_weight,
        )
        return ScanCut(placed, threshold, kappa2, float(np.mean(placed != labels)))
