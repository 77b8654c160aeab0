"""The search for borders of any shape in rows, and the evidence for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from volmar.evidence.linear import Cut, clearest_pair, hyperplane, linear_split
from volmar.evidence.pairs import LinearCells
from volmar.evidence.space import Rows
from volmar.evidence.splits import MIN_EFFECT, Found, Partition, borders_found, partition_of

# Shares of the level: curved borders, the clearest hyperplane, the clearest pair of cells.
SHARES = {"any": (0.6, 0.3, 0.1), "curved": (1.0, 0.0, 0.0), "linear": (1.0, 0.75, 0.25)}


@dataclass(eq=False)
class Searched:
    """The borders of rows: joins of a `partition`, or a linear split by `search` into `cells`.

    `confirmed` are the numbers of those that count, the clearest first.
    """

    partition: Partition | None = None
    cells: LinearCells | None = None
    search: Callable[..., Cut | None] | None = None
    found: list[Found] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)


def searched(
    rows: Rows, min_rows: int, alpha: float, rng: np.random.Generator, *, shapes: str = "any"
) -> Searched:
    """Return the borders of rows, and those that are confirmed.

    Each kind of border has its share of the level. Hyperplanes are tried where no
    curved border is confirmed; of those that are not confirmed, the clearer kind is kept.
    """
    best = Searched()
    if len(rows.X) < 2 * min_rows or not np.ptp(rows.X, axis=0).any():
        return best
    curved, *linear = SHARES[shapes]
    if shapes != "linear":
        partition = partition_of(rows.near, min_rows)
        if partition is not None:
            found = borders_found(rows.near, partition, min_rows, curved * alpha, rng)
            found = [one.of_family(curved) for one in found]
            best = Searched(partition, found=found, confirmed=_confirmed(found, alpha))
    if best.confirmed or shapes == "curved":
        return best
    largest = max((one.effect for one in best.found), default=0.0)
    for search, share in zip((hyperplane, clearest_pair), linear, strict=True):
        split = linear_split(rows.X, rng, search=search)
        if split is None:
            continue
        cells, one = split
        one = one.of_family(share)
        confirmed = _confirmed([one], alpha)
        if confirmed or one.effect > largest:
            best = Searched(None, cells, search, [one], confirmed)
            largest = one.effect
        if confirmed:
            break
    return best


def _confirmed(found: list[Found], alpha: float) -> list[int]:
    significant = [j for j, one in enumerate(found) if one.p_value <= alpha]
    large = [j for j in significant if found[j].effect >= MIN_EFFECT]
    return sorted(large, key=lambda j: -found[j].effect)
