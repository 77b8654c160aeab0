"""Clusters of rows in blocks with some known labels: first of a sample, then of all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.rows import (
    ClusterSums,
    RowSource,
    Standardized,
    bin_sums,
    cluster_sums,
    drawn_rows,
    reweighted,
)
from volmar.separation.bound import edge_split
from volmar.separation.discriminants import refine_from
from volmar.separation.gep import (
    N_BINS,
    RegularizedCorrelation,
    ScanCut,
    mean_difference,
    scan_edges,
    separation_gep,
)
from volmar.separation.problem import SeparatingPlanes, SeparationRows

# Number of rows drawn for the sample, and maximum number of additional rows with a label.
DRAWN_ROWS, MAX_SEEDS = 20_000, 10_000


class SeededSample(NamedTuple):
    """Rows of a sample, their weights, and their seeds: known labels, -1 if unknown."""

    X: Any
    weights: NDArray | None
    seeds: NDArray


def seeded_sample(X: Any, weights: Any, seeds: Any, n_classes: int, seed: int) -> SeededSample:
    """Return random rows and the first rows with a label, at least one of each class.

    X and `seeds` (-1 if unknown) are in blocks. Takes a few passes, and two more for each class
    that is missing among the first `MAX_SEEDS` labels.
    """
    n_known = int((seeds >= 0).sum())
    known = (seeds >= 0).first_beyond(np.arange(min(n_known, MAX_SEEDS)))
    chosen = [drawn_rows(X.shape[0], weights, DRAWN_ROWS, np.random.default_rng(seed)), known]
    if n_known > MAX_SEEDS:
        missing = np.setdiff1d(np.arange(n_classes), seeds[known])
        chosen += [(seeds == c).first_beyond(np.arange(1)) for c in missing]
    rows = np.unique(np.concatenate(chosen))
    return SeededSample(X[rows], None if weights is None else weights[rows], seeds[rows])


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
        result = _seeded_split(z, regularized, seeds, start, momentum, steps)
        moved = replace(found, labels=start, w=directions, threshold=float(-offsets))
        return result if result.history else moved

    def relabel(source: RowSource, ways: NDArray, constants: NDArray, before: Any) -> ClusterSums:
        labels = np.argmax(source.scores(ways) + constants, axis=1)
        return cluster_sums(source, np.where(seeds >= 0, seeds, labels), k, before)

    first = relabel(z.rows, z.of_rows(directions), offsets, None)
    known = seeds.distinct()[0]
    floors = np.minimum(np.full(k, rows.min_weight), first.weight)
    floors[known[known >= 0]] = 0.0
    result, _ = refine_from(
        z, regularized, first, relabel, min_weight=floors, keeps_best=True, **steps
    )
    moved = replace(found, labels=first.labels, directions=directions, offsets=offsets)
    return result if result.history else moved


def _seeded_split(
    z: Standardized,
    regularized: RegularizedCorrelation,
    seeds: Any,
    start: Any,
    momentum: float,
    steps: dict[str, Any],
) -> Any:
    w = regularized.solve(mean_difference(z, start))
    scan = SeededScan(z, seeds)
    return separation_gep(
        z, regularized, w, min_weight=0.0, scan=scan, momentum=momentum, start=start, **steps
    )


class SeededScan:
    """Scan for `separation_gep`: the best cut between bins, with seeded rows on their sides.

    Like `histogram_scan`, but seeded rows of cluster 0 count in the first bin, below every cut,
    and those of cluster 1 in the last bin. Takes two passes.

    Parameters
    ----------
    z : Standardized
        The rows.
    seeds : vector over the rows
        Known cluster of each row, 0 or 1; -1 if unknown.
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
