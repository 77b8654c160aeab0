"""A sample of the rows, on which the descent runs first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.problem import MarginProblem
from volmar.rows import drawn_rows

# Minimum number of rows for which a sample is used.
MANY_ROWS = 50_000
# Size of the sample: this share of the rows, but at most MAX_ROWS.
SHARE, MAX_ROWS = 0.05, 100_000
# Minimum size of the sample: rows per coordinate for two clusters, and per coordinate and cluster
# for more. The data must have TIMES as many rows as the sample.
ROWS_PER_COORDINATE, ROWS_PER_CLUSTER, TIMES = 100, 20, 4


class Sample(NamedTuple):
    """The problem of some rows, with vectors w of the same space, their labels and indices."""

    problem: MarginProblem
    labels: NDArray
    chosen: NDArray


def first_sample(
    problem: MarginProblem, labels: Any, seed: int, n_clusters: int = 2
) -> Sample | None:
    """Return a sample to start from, which saves passes over all rows; None if it does not pay.

    There is no sample for spaces whose vectors depend on the rows (kernels).
    """
    space: Any = problem.space
    n, d = space.n_rows, getattr(space, "n_coordinates", None)
    if d is None or n < MANY_ROWS:
        return None
    minimum = max(ROWS_PER_COORDINATE, ROWS_PER_CLUSTER * n_clusters) * d
    size = max(min(int(SHARE * n), MAX_ROWS), minimum)
    if TIMES * size > n:
        return None
    chosen = drawn_rows(n, space.weights, size, np.random.default_rng(seed))
    part = problem.on(space.sampled(chosen), chosen)
    return None if part is None else Sample(part, labels[chosen], chosen)
