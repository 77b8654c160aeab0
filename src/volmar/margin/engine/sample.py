"""A sample of the rows on which the descent is made first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.margin.engine.problem import MarginProblem
from volmar.rows import drawn_rows

# Rows from which a sample goes first.
MANY_ROWS = 50_000
# Rows of the sample: a share of all and no more than that, but at least so many for a coordinate
# of two clusters, and of each of several, and only where all rows are several times as many.
SHARE, MAX_ROWS = 0.05, 100_000
ROWS_PER_COORDINATE, ROWS_OF_EACH, TIMES = 100, 20, 4


class Sample(NamedTuple):
    """The problem of some rows, whose vectors w are those of all, their labels and numbers."""

    problem: MarginProblem
    labels: NDArray
    chosen: NDArray


def first_sample(
    problem: MarginProblem, labels: Any, seed: int, n_clusters: int = 2
) -> Sample | None:
    """Return a sample from which few passes over all rows are left; None where it does not pay.

    Spaces whose vectors depend on the rows that they have (kernels) have none.
    """
    space: Any = problem.space
    n, d = space.n_rows, getattr(space, "n_coordinates", None)
    if d is None or n < MANY_ROWS:
        return None
    least = max(ROWS_PER_COORDINATE, ROWS_OF_EACH * n_clusters) * d
    size = max(min(int(SHARE * n), MAX_ROWS), least)
    if TIMES * size > n:
        return None
    chosen = drawn_rows(n, space.weights, size, np.random.default_rng(seed))
    part = problem.on(space.sampled(chosen), chosen)
    return None if part is None else Sample(part, labels[chosen], chosen)
