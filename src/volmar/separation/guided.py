"""Clusters that respect known labels, links and sizes, in memory and in blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.guidance.guide import EmptyClusterError, Guide
from volmar.rows.anywhere import bin_sums, drawn_rows, reweighted
from volmar.rows.cluster_sums import ClusterSums, cluster_sums
from volmar.rows.protocol import RowSource
from volmar.rows.standardized import Standardized
from volmar.separation.discriminants import MultiwaySeparationResult, refine_from
from volmar.separation.gep import (
    N_BINS,
    RegularizedCorrelation,
    ScanCut,
    SeparationResult,
    best_split_between,
    bound_of_sides,
    edge_split,
    mean_difference,
    scan_edges,
    separation_gep,
)
from volmar.separation.problem import SeparatingPlanes, SeparationRows


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
    # If the minimum sizes cannot be met, require only that no cluster is empty.
    for limits in (floors, np.zeros(guide.k)):
        result: SeparationResult | MultiwaySeparationResult
        if guide.k == 2:
            scan, least = GuidedScan(guide, rows.z.rows.weights), float(limits.max())
            cut = start.labels.astype(bool)
            result = _split_from(rows.z, rows.regularized, cut, scan, least, momentum, steps)
        else:
            last = np.zeros(guide.k)

            def relabel(
                source: RowSource, ways: NDArray, offsets: NDArray, before: Any, last: Any = last
            ) -> ClusterSums:
                placed = guide.place(source.scores(ways) + offsets, last)
                last[:] = placed.offsets  # a good start for the next step
                return cluster_sums(source, placed.labels, guide.k, before)

            ends = {"min_weight": limits, "keeps_best": True, **steps}
            result = refine_from(rows.z, rows.regularized, start, relabel, **ends)[0]
        if result.history:
            return result
    raise EmptyClusterError(guide.k)


def _split_from(
    z: Standardized,
    regularized: RegularizedCorrelation,
    start: Any,
    scan: Any,
    min_weight: float,
    momentum: float,
    steps: dict[str, Any],
) -> SeparationResult:
    w = regularized.solve(mean_difference(z, start))
    ends = {"min_weight": min_weight, "momentum": momentum, **steps}
    return separation_gep(z, regularized, w, scan=scan, start=start, **ends)


class GuidedScan:
    """Scan for `separation_gep`: the best cut of a projection among the labels a guide allows.

    Rows of a unit change sides together, at the weighted mean of their projections. Known rows
    keep their sides. The best such cut is found exactly by a sort. Size limits and cannot-link
    pairs then move further rows, and the bound is that of the final labels.
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


# --------- clusters of rows in blocks with some known labels: first of a sample, then of all rows

# Number of rows drawn for the sample, and maximum number of additional rows with a label.
DRAWN_ROWS, MAX_SEEDS = 20_000, 10_000


def seeded_sample(
    X: Any, weights: Any, seeds: Any, n_classes: int, seed: int
) -> tuple[Any, NDArray | None, NDArray]:
    """Return random rows and the first rows with a label, at least one of each class.

    X and `seeds` (-1 if unknown) are in blocks. Returns the rows, their weights and seeds. Takes a
    few passes, and two more for each class that is missing among the first `MAX_SEEDS` labels.
    """
    n_known = int((seeds >= 0).sum())
    known = (seeds >= 0).first_beyond(np.arange(min(n_known, MAX_SEEDS)))
    chosen = [drawn_rows(X.shape[0], weights, DRAWN_ROWS, np.random.default_rng(seed)), known]
    if n_known > MAX_SEEDS:
        missing = np.setdiff1d(np.arange(n_classes), seeds[known])
        chosen += [(seeds == c).first_beyond(np.arange(1)) for c in missing]
    rows = np.unique(np.concatenate(chosen))
    return X[rows], None if weights is None else weights[rows], seeds[rows]


def seeded_clusters(
    rows: SeparationRows,
    seeds: Any,
    planes: SeparatingPlanes,
    found: Any,
    *,
    momentum: float,
    **steps: Any,
) -> Any:
    """Continue from the hyperplanes of a sample and their result `found` with all rows.

    Seeded rows keep their labels in all sums. If no step is valid, or max_iter=0, the hyperplanes
    of the sample are returned.
    """
    z, k = rows.z, max(np.shape(planes.coefficients)[1:], default=2)
    regularized = rows.with_reg(rows.reg)
    directions = z.direction(planes.coefficients)
    offsets = (z.mean - planes.mean) @ planes.coefficients - planes.threshold
    if k == 2:
        start = np.where(seeds >= 0, seeds == 1, z.scores(directions) > -offsets)
        scan = SeededScan(z, seeds)
        result = _split_from(z, regularized, start, scan, 0.0, momentum, steps)
        moved = replace(found, labels=start, w=directions, threshold=float(-offsets))
        return result if result.history else moved

    def relabel(source: RowSource, ways: NDArray, constants: NDArray, before: Any) -> ClusterSums:
        labels = np.argmax(source.scores(ways) + constants, axis=1)
        return cluster_sums(source, np.where(seeds >= 0, seeds, labels), k, before)

    first = relabel(z.rows, z.of_rows(directions), offsets, None)
    known = seeds.distinct()[0]
    floors = np.minimum(np.full(k, rows.min_weight), first.weight)
    floors[known[known >= 0]] = 0.0
    clusters, _ = refine_from(
        z, regularized, first, relabel, min_weight=floors, keeps_best=True, **steps
    )
    moved = replace(found, labels=first.labels, directions=directions, offsets=offsets)
    return clusters if clusters.history else moved


class SeededScan:
    """Scan for `separation_gep`: the best cut between bins, with seeded rows on their sides.

    Like `histogram_scan`, but seeded rows of cluster 0 count in the first bin, below every cut,
    and those of cluster 1 in the last bin. Takes two passes.
    """

    def __init__(self, z: Standardized, seeds: Any):
        self.seeds = seeds
        self.known = cluster_sums(z.rows, np.where(seeds >= 0, seeds, 2), 3)
        free = (seeds < 0).astype(np.float64)
        weights = z.rows.weights
        self.free = reweighted(z.rows, free if weights is None else weights * free)

    def __call__(
        self, z: Standardized, w: NDArray, labels: Any, variance: float, min_weight: float
    ) -> ScanCut:
        """Return the best cut along w; the arguments are those of `histogram_scan`."""
        edges = scan_edges(z, w)
        if edges is None:
            return ScanCut(labels, 0.0, -np.inf, 0.0)
        direction = z.of_rows(w)
        bins = bin_sums(self.free, direction, edges[0], edges[-1], N_BINS)
        bins = bins._replace(  # copies, because the sums of a pass are cached
            weight=bins.weight.copy(), scores=bins.scores.copy(), vectors=bins.vectors.copy()
        )
        for side, place in ((0, 0), (1, -1)):
            bins.weight[place] += self.known.weight[side]
            bins.scores[place] += float(self.known.vectors[side] @ direction)
            bins.vectors[place] += self.known.vectors[side]
        found = edge_split(bins, edges, variance, min_weight)
        above = edges[:-1] >= found.threshold
        weight, total = float(bins.weight[above].sum()), z.rows.total_weight
        if not np.isfinite(found.kappa2) or bins.scores[~above].sum() > 0:
            return ScanCut(labels, 0.0, -np.inf, 0.0)
        sums = z.from_rows(bins.vectors[above].sum(axis=0))
        difference = sums * (total / (weight * (total - weight)))
        proposed = np.where(self.seeds >= 0, self.seeds == 1, z.scores(w) > found.threshold)
        return ScanCut(proposed, *found, float(np.mean(proposed != labels)), difference)
