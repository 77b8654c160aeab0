"""Linear candidates: a hyperplane, or the clearest pair of cells of a partition.

They find groups in a few of many columns, where distances between rows show nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from volmar.evidence.borders import (
    WIDTH_RATIO,
    Borders,
    Strips,
    evidence_of_all,
    held_out_evidence,
    strips,
)
from volmar.evidence.densities import deepest_valleys
from volmar.evidence.modes import n_neighbors_of, neighbor_graph
from volmar.evidence.pairs import LinearCells, clearest_pairs, in_region
from volmar.evidence.space import Rows
from volmar.evidence.splits import (
    AGREEMENT,
    FEWEST_REPEATS,
    MIN_EFFECT,
    Found,
    Partition,
    borders_found,
    halves,
    partition_of,
)
from volmar.evidence.two_groups import SearchedRows, searched_rows, two_group_direction

# Widths of the strips, each sqrt(2) times the last, up to the median distance of rows to the cut.
N_WIDTHS = 8
# An effect along the graph counts as lower than that of the scores below this share of it.
AROUND = 2.0 / 3.0
# Maximum number of rows on which the plane of a split is tested.
MAX_IN_PLANE = 3000


class Cut(NamedTuple):
    """Cells on two sides, and the scores of rows across their border.

    `scores` returns NaN for rows outside of the region in which the border is tested.
    """

    cells: LinearCells
    scores: Callable[[NDArray], NDArray]


def hyperplane(rows: SearchedRows, X: NDArray, rng: np.random.Generator) -> Cut | None:
    """Return the cut in the deepest valley of the direction that looks most like two groups."""
    w = two_group_direction(rows, rng)
    scores = X @ w
    place = deepest_valleys([scores])[0].place
    if not np.isfinite(place):
        return None
    unit = float(scores.std()) or 1.0
    cells = LinearCells.hyperplane(w, place)
    return Cut(cells, lambda Z: (Z @ w - place) / unit)


def clearest_pair(rows: SearchedRows, X: NDArray, rng: np.random.Generator) -> Cut | None:
    """Return the clearest pair of cells of a partition, tested in its convex region."""
    pairs = clearest_pairs(rows, rng)
    if not pairs:
        return None
    best = max(pairs, key=lambda pair: pair.significance)
    i, j = best.pair

    def scores(Z: NDArray) -> NDArray[np.float64]:
        values = best.functions(Z)
        found = (values[:, j] - values[:, i]) / unit
        found[~in_region(values, i, j)] = np.nan
        return found

    unit = 1.0
    unit = float(np.nanstd(scores(X))) or 1.0
    return Cut(best.cells, scores)


def linear_split(
    X: NDArray, rng: np.random.Generator, *, search: Callable[..., Cut | None]
) -> tuple[LinearCells, Found] | None:
    """Return the cut of all rows by a search, and the evidence of held-out rows for it.

    Each half learns a cut, and its scores of the other half are counted in strips. The effect is
    not more than that in the space of the cut and two further directions, measured along the
    graph of the rows there: a ring or a bent band, seen from the side, has a valley in its scores,
    and none along the band.
    """
    cut = search(searched_rows(X, rng), X, rng)
    if cut is None:
        return None
    sides = cut.cells.predict(X).astype(bool)
    if not 0 < sides.sum() < sides.size:
        return None
    own = cut.scores(X)
    largest = np.nanmedian(np.abs(own))
    widths = largest * WIDTH_RATIO ** -np.arange(N_WIDTHS)[::-1]
    sums, agreed, n_halves = np.zeros((3, N_WIDTHS)), 0, 0
    for learnt, unseen in halves(len(X), rng):
        n_halves += 1
        half = search(searched_rows(X[learnt], rng), X[learnt], rng)
        if half is None:
            continue
        other = half.cells.predict(X).astype(bool)
        agree = min(other[sides].mean(), 1.0 - other[~sides].mean())
        disagree = min(1.0 - other[sides].mean(), other[~sides].mean())
        if max(agree, disagree) < AGREEMENT:
            continue
        scores = half.scores(X[unseen])
        sums += np.maximum(strips(scores[np.isfinite(scores)], widths), 0.0)
        agreed += 1
    repeats = agreed / max(n_halves, 1)
    if repeats < FEWEST_REPEATS:
        return cut.cells, Found(1.0, -1.0, repeats)
    found = held_out_evidence(Strips(*(sums * 2.0 * repeats / agreed)))
    effect = found.effect
    if effect >= MIN_EFFECT:
        around = effect_around(X, own, sides, rng)
        effect = effect if around >= AROUND * effect else min(effect, around)
    return cut.cells, Found(min(1.0, found.p_value / repeats), effect, repeats)


def held_out_scores(
    X: NDArray, rng: np.random.Generator, *, search: Callable[..., Cut | None]
) -> NDArray[np.float64]:
    """Return the scores of the rows of two halves, each by the cut of the other."""
    found, first = [np.zeros(0)], None
    for learnt, unseen in islice(halves(len(X), rng), 2):
        half = search(searched_rows(X[learnt], rng), X[learnt], rng)
        if half is None:
            continue
        scores, sides = half.scores(X[unseen]), half.cells.predict(X)
        first = sides if first is None else first
        sign = 1.0 if np.mean(sides == first) >= 0.5 else -1.0
        found.append(sign * scores[np.isfinite(scores)])
    return np.concatenate(found)


def effect_around(X: NDArray, scores: NDArray, sides: NDArray, rng: np.random.Generator) -> float:
    """Return the effect along the graph of rows in the space of a cut and two more directions.

    These are the directions in which rows at the border differ most from others: by their mean,
    and by their second moments.
    """
    known = np.flatnonzero(np.isfinite(scores))
    if known.size > MAX_IN_PLANE:
        known = np.sort(rng.choice(known, MAX_IN_PLANE, replace=False))
    Z, s = X[known] - X[known].mean(axis=0), scores[known]
    w = np.linalg.lstsq(Z - Z.mean(axis=0), s - s.mean(), rcond=None)[0]
    basis = [w / np.linalg.norm(w)]
    # Around an empty gap, the nearest tenth of the rows.
    size = np.abs(s)
    near = size <= max(0.5 * np.median(size), np.partition(size, size.size // 10)[size.size // 10])
    rest = Z - np.outer(Z @ basis[0], basis[0])
    if near.all():
        return -1.0
    shift = rest[near].mean(axis=0) - rest[~near].mean(axis=0)
    if np.linalg.norm(shift) > 0 and Z.shape[1] > 1:
        basis.append(shift / np.linalg.norm(shift))
        rest = rest - np.outer(rest @ basis[1], basis[1])
    if Z.shape[1] > 2:
        moments = [rest[one].T @ rest[one] / max(one.sum(), 1) for one in (near, ~near)]
        values, vectors = np.linalg.eigh(moments[0] - moments[1])
        basis.append(vectors[:, np.argmax(np.abs(values))])
    plane = Z @ np.array(basis).T
    # Other directions are shrunk to the spread of the scores, and never stretched: along a wide
    # group, distances would hide a gap across it.
    deviation = plane.std(axis=0)
    plane *= np.minimum(1.0, deviation[0] / np.maximum(deviation, 1e-300))
    cells = sides[known].astype(np.int64)
    tree = cKDTree(plane)
    k = n_neighbors_of(known.size)
    graph = neighbor_graph(plane, tree.query(plane, k + 1)[1][:, 1:])
    borders = Borders(plane, graph, cells, lambda points: cells[tree.query(points)[1]])
    return evidence_of_all(borders, np.array([-1, 1]), 1.0).effect


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
