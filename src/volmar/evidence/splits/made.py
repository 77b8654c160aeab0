"""Choice of the final split, along a valley, after held-out rows have confirmed a split."""

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

# Minimum depth of a valley that is a gap. It cuts no cluster, and no other split is tried.
GAP = 0.9
# Partitions with at least this share of the largest significance are compared by depth.
ABOUT_AS_CLEAR = 0.5


def make_split(
    X: Any,
    rng: np.random.Generator,
    *,
    by_direction: bool = True,
    directions: Sequence[NDArray] = (),
) -> LinearCells | None:
    """Return the split of all rows with the deepest valley.

    The split is either the hyperplane across the direction in which two groups are clearest, or a
    division of the cells of a partition into two sides. Cells with a shallow valley between them
    stay on the same side, so that no cluster is cut.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    rng : Generator
        Random generator of the samples of rows and of the starts.
    by_direction : bool, default=True
        Whether the hyperplane is a candidate. Use False if held-out rows have confirmed only the
        partition.
    directions : sequence of ndarray of shape (d,), default=()
        Directions that are known to separate two groups. If empty, a direction is searched for.

    Returns
    -------
    LinearCells or None
        The split; None if there is no valley.
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
    """Return, for each direction with a valley, its depth and the hyperplane through it."""
    W = np.column_stack(directions)
    scores = dithered_scores(lambda rows: np.asarray(rows @ W), X, column_resolutions(X), rng)
    valleys = deepest_valleys(list(scores.T))
    return [
        (valley.depth, LinearCells.hyperplane(w, valley.place))
        for w, valley in zip(directions, valleys, strict=True)
        if valley.depth > 0
    ]
