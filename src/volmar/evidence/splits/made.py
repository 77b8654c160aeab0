"""The split that is made where held-out rows have confirmed one: in a valley, through no mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.dither import column_resolutions, dithered_scores
from volmar.evidence.modes.valleys import deepest_valleys
from volmar.evidence.splits.cells import LinearCells
from volmar.evidence.splits.pairs import clearest_pairs
from volmar.evidence.splits.searched import searched_rows
from volmar.evidence.splits.two_groups import two_group_direction

__all__ = ["make_split"]

# A valley so deep is a gap, which cuts no cluster: no other split is looked for.
GAP = 0.9
# Of partitions whose clearest pair is about as significant as the best, the deepest is taken.
ABOUT_AS_CLEAR = 0.5


def make_split(
    X: Any,
    rng: np.random.Generator,
    *,
    by_direction: bool = True,
    directions: Sequence[NDArray] = (),
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
    directions : sequence of ndarray of shape (d,)
        Directions that are known to show two groups, so that none is searched.

    Returns
    -------
    LinearCells or None
        None where there is no valley.
    """
    rows = searched_rows(X, rng)
    found: list[tuple[float, LinearCells]] = []
    if by_direction:
        found = _hyperplanes(X, directions or [two_group_direction(rows, rng)], rng)
        widest = max(found, key=lambda one: one[0], default=None)
        if widest is not None and widest[0] >= GAP:
            return widest[1]
    pairs = clearest_pairs(rows, rng)
    largest = max((pair.significance for pair in pairs), default=0.0)
    clear = [pair for pair in pairs if pair.significance >= ABOUT_AS_CLEAR * largest]
    found += [(pair.depth, pair.cells) for pair in clear]
    return max(found, key=lambda one: one[0])[1] if found else None


def _hyperplanes(
    X: Any, directions: Sequence[NDArray], rng: np.random.Generator
) -> list[tuple[float, LinearCells]]:
    """Return the split in the deepest valley along each direction that has one, and its depth."""
    W = np.column_stack(directions)
    scores = dithered_scores(lambda rows: np.asarray(rows @ W), X, column_resolutions(X), rng)
    valleys = deepest_valleys(list(scores.T))
    return [
        (valley.depth, LinearCells.hyperplane(w, valley.place))
        for w, valley in zip(directions, valleys, strict=True)
        if valley.depth > 0
    ]
