"""MSPC-MPM for k clusters: a minimax probability machine for each pair."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows import Standardized
from volmar.separation.mpm import ROUGH, machine, regular_moments
from volmar.separation.problem import SeparationRows, smallest_scores
from volmar.separation.relabelling import (
    MultiwaySeparationResult,
    Step,
    relabel_until_settled,
)
from volmar.separation.two_way import TwoWaySolver


def pairwise_machines(
    z: Standardized,
    labels: NDArray,
    k: int,
    reg: float,
    **ends: Any,
) -> MultiwaySeparationResult:
    r"""Alternate between the minimax probability machines of all pairs of clusters and labels.

    The machine of clusters i and j (MSPC eq. 3) has the score :math:`f_{ij}(z) = w_{ij}'z -
    b_{ij}`, positive for i, in units of the distance between the two means along w. A row joins
    the cluster :math:`\arg\max_i \min_j f_{ij}`. With two clusters this is the iteration of
    MSPC-MPM. `ends` are passed to `relabel_until_settled`, which describes how the run ends.
    """
    pairs = np.array(list(combinations(range(k), 2)))

    def step(labels: NDArray) -> Step:
        directions, offsets, mean = _machines(z, labels, k, reg, pairs)
        scores = smallest_scores(z.scores(directions) + offsets, pairs, k)
        new = np.argmax(scores, axis=1)
        sizes = np.bincount(new, z.rows.weights, k)
        moves = float(np.mean(new != labels))
        return Step(directions, offsets, mean, new, sizes, moves, new.tobytes())

    return relabel_until_settled(step, labels, pairs=pairs, **ends)


def _machines(
    z: Standardized, labels: NDArray, k: int, reg: float, pairs: NDArray
) -> tuple[NDArray, NDArray, float]:
    """Return directions (p, m), offsets (m,) and the mean probability of all pairs."""
    center = z.moments.center
    parts = [regular_moments(z, z.rows.moments(labels == j, center=center), reg) for j in range(k)]
    directions, offsets, probabilities = [], [], []
    for one, other in pairs:
        found = machine(parts[one], parts[other], reg, tol=ROUGH)
        unit = float(found.w @ (parts[one][0] - parts[other][0])) or 1.0
        directions.append(found.w / unit)
        offsets.append(found.intercept(parts[one][0]) / unit)
        probabilities.append(found.probability)
    return np.column_stack(directions), np.array(offsets), float(np.mean(probabilities))


def machines_from_start(
    rows: SeparationRows, k: int, seed: int, solver: TwoWaySolver, min_cluster_size: Any
) -> MultiwaySeparationResult:
    """Run `pairwise_machines` from k-means or given labels."""
    z = rows.z
    labels = solver.start_labels(rows, k, seed)
    found = np.count_nonzero(np.bincount(labels, z.rows.weights, minlength=k))
    if found < k:
        raise ValueError(
            f"the start has only {found} of n_clusters={k} clusters with rows of positive "
            "weight, because X has too few different rows. Lower n_clusters."
        )
    result = pairwise_machines(
        z, labels, k, solver.usual_reg, min_weight=rows.min_weight, **solver.steps
    )
    if not result.history:
        given = "" if min_cluster_size is None else f"={min_cluster_size}"
        raise ValueError(
            f"the first step makes a cluster smaller than min_cluster_size{given}. Use a smaller "
            "min_cluster_size or n_clusters, or give other labels as init."
        )
    return result
