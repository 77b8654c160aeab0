"""The split that is made where held-out rows have confirmed one: in a valley, through no mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.evidence.dither import column_resolutions, dithered_scores
from volmar.evidence.modes.valleys import deepest_valleys
from volmar.evidence.splits.cells import LinearCells
from volmar.evidence.splits.pairs import clearest_pairs
from volmar.evidence.splits.searched import searched_rows
from volmar.evidence.splits.two_groups import two_group_direction

__all__ = ["make_split"]

# Of partitions whose clearest pair is about as significant as the best, the deepest is taken.
ABOUT_AS_CLEAR = 0.5


def make_split(
    X: Any, rng: np.random.Generator, *, by_direction: bool = True
) -> LinearCells | None:
    """Return the split of all rows whose valley is deepest.

    It is the hyperplane across the direction that shows two groups best, or the cells of a
    partition in two groups: cells with a shallow valley between them stay together, so that no
    cluster is cut.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    rng : Generator
        Draws rows and starts.
    by_direction : bool, default=True
        Whether the hyperplane may be taken. It may not where held-out rows have confirmed the
        partition only.

    Returns
    -------
    LinearCells or None
        None where there is no valley.
    """
    rows = searched_rows(X, rng)
    found: list[tuple[float, LinearCells]] = []
    if by_direction:
        w = two_group_direction(rows, rng)
        scores = dithered_scores(
            lambda some: np.asarray(some @ w).ravel(), X, column_resolutions(X), rng
        )
        valley = deepest_valleys([scores])[0]
        if valley.depth > 0:
            found.append((valley.depth, LinearCells.hyperplane(w, valley.place)))
    pairs = clearest_pairs(rows, rng)
    largest = max((pair.significance for pair in pairs), default=0.0)
    clear = [pair for pair in pairs if pair.significance >= ABOUT_AS_CLEAR * largest]
    found += [(pair.depth, pair.cells) for pair in clear]
    return max(found, key=lambda one: one[0])[1] if found else None
