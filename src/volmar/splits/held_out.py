"""Test splits on rows that were not used to find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volmar.evidence import (
    column_resolutions,
    combine_p_values,
    dip_test,
    dithered,
    dithered_scores,
    has_way_around,
    hump_test,
)
from volmar.evidence.humps import deepest_valley
from volmar.splits.along import separation_along
from volmar.splits.pairs import CellPair, clearest_pairs
from volmar.splits.searched import SearchedRows, searched_rows
from volmar.splits.two_groups import two_group_direction

__all__ = [
    "DIRECTION",
    "LINEAR",
    "PAIR",
    "Candidate",
    "HeldOutTest",
    "Scorer",
    "SeenRows",
    "held_out_test",
]

# Number of times the rows are split in halves; from so many rows on once is enough.
N_SPLITS = 3
LARGE = 20_000
# The minimum p-value is below the level by this factor.
BELOW_LEVEL = 4.0
FEWEST_DRAWS = 2000
# Fewer rows say nothing: a half of them is the least that a test takes.
FEWEST_ROWS = 40
# Halves whose scores correlate by so much have found the same split: rows are tested together.
AGREE = 0.8
# Valleys with p-values up to this are checked for a way around them.
SMALL = 0.05
# If all p-values of the first halves are above this the others are not looked at.
HOPELESS = 0.5
# Rows of which the agreement is found, and rows that are asked for a way around a valley.
AGREEMENT_ROWS, WAY_ROWS = 2000, 2000


class Scorer(Protocol):
    """What a candidate has learnt from the seen rows."""

    def scores(self, rows: Any) -> tuple[NDArray, NDArray | None]:
        """Return scores, and which rows they belong to: None for all."""


class SeenRows:
    """The rows that a candidate learns from.

    Parameters
    ----------
    rows : matrix of shape (n, d)
        Rows.
    seed : int
        Of the search.
    """

    def __init__(self, rows: Any, seed: int):
        self.rows, self.seed = rows, seed

    @cached_property
    def searched(self) -> SearchedRows:
        """The rows in the coordinates of the search."""
        return searched_rows(self.rows, np.random.default_rng(self.seed))


@dataclass(frozen=True)
class Candidate:
    """A way to find a split.

    Attributes
    ----------
    learn : callable
        From seen rows and a generator to a scorer, None where there is no split to be found.
    share : float
        Its share of the level; those of all candidates add up to 1.
    has_one_border : bool
        Whether scores of two halves that agree may be tested together.
    """

    learn: Callable[[SeenRows, np.random.Generator], Scorer | None]
    share: float = 1.0
    has_one_border: bool = True


@dataclass(frozen=True, eq=False)
class HeldOutTest:
    """What held-out rows say about a split.

    Attributes
    ----------
    p_value : float
        Of one group against more, over all candidates.
    candidate : int
        The candidate with the smallest p-value.
    p_values : tuple of float
        Of every test that was made.
    scores : ndarray of shape (n,)
        Held-out scores of the first candidate in the first two halves, in standard deviations.
    sides : ndarray of shape (2, n)
        Scores of all rows by what each of these halves has learnt, in the same units.
    has_way_around : bool
        Whether a valley was not counted because rows connect its sides around it.
    p_minimum : float
        Smallest p-value that the tests could have given: they make a limited number of draws. 0
        where it is not known.
    """

    p_value: float
    candidate: int
    p_values: tuple[float, ...]
    scores: NDArray = field(repr=False)
    sides: NDArray = field(repr=False)
    has_way_around: bool = False
    p_minimum: float = 0.0

    @property
    def separation(self) -> float:
        """Separation probability along the held-out scores, cut in their deepest valley."""
        return separation_along(self.scores, self.scores > deepest_valley(self.scores))


@dataclass(frozen=True, eq=False)
class _Hyperplane:
    w: NDArray

    def scores(self, rows: Any) -> tuple[NDArray, None]:
        return np.asarray(rows @ self.w).ravel(), None


def _learn_direction(seen: SeenRows, rng: np.random.Generator) -> _Hyperplane | None:
    w = two_group_direction(seen.searched, rng)
    return _Hyperplane(w) if w.any() else None


def _learn_pair(seen: SeenRows, rng: np.random.Generator) -> CellPair | None:
    pairs = clearest_pairs(seen.searched, rng)
    return max(pairs, key=lambda pair: pair.significance, default=None)


#: The direction in which rows look most like two groups.
DIRECTION = Candidate(_learn_direction, share=0.7)
#: The clearest pair of clusters of a partition, in its convex region.
PAIR = Candidate(_learn_pair, share=0.3, has_one_border=False)
LINEAR: tuple[Candidate, ...] = (DIRECTION, PAIR)


def held_out_test(
    X: Any,
    candidates: Sequence[Candidate],
    *,
    level: float,
    rng: np.random.Generator,
    n_splits: int | None = None,
    test: str = "humps",
    stop_early: bool = True,
    tell: Callable[[], None] | None = None,
) -> HeldOutTest:
    r"""Test whether rows have more than one mode along scores learnt from other rows.

    The rows are split at random into halves. Each candidate learns a split on either half, and
    the scores of the other half are tested (`volmar.evidence.hump_test`). Where both halves have
    found the same split, the scores of all rows are tested together, each by what the other half
    has learnt. This is repeated. With three repetitions and shares :math:`s_c` of the level
    (0.7 for the direction, 0.3 for the pair) the p-value is :math:`\min_c p_c / s_c`, where
    :math:`p_c` combines the p-values of one candidate (`volmar.evidence.combine_p_values`).

    A split that has a way around its valley (`volmar.evidence.has_way_around`) is not counted.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    candidates : sequence of Candidate
        Ways to find a split.
    level : float
        Level at which the p-value will be compared: the smaller, the more samples are drawn.
    rng : Generator
        Draws halves, starts and samples.
    n_splits : int, optional
        Number of times the rows are split in halves; 3 if not given, 1 from 20,000 rows on.
    test : {"humps", "dip"}, default="humps"
        The test of one mode.
    stop_early : bool, default=True
        Whether to stop when the p-value is at most the level, or when all p-values of the first
        halves are above 0.5. Tests that are not made count as p-values of 1.
    tell : callable, optional
        Called after each of the `n_splits`.
    """
    n = X.shape[0]
    n_splits = n_splits or (1 if n >= LARGE else N_SPLITS)
    nothing = HeldOutTest(1.0, 0, (), np.zeros(n), np.zeros((2, n)))
    if n < FEWEST_ROWS:
        return nothing
    resolutions = column_resolutions(X)
    judged = [_Judged(one, n_splits, level, test) for one in candidates]
    first = nothing
    made: list[float] = []
    for split in range(n_splits):
        order = rng.permutation(n)
        halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        seen = [SeenRows(X[half], int(rng.integers(2**31 - 1))) for half in halves]
        latest: list[float] = []
        for number, one in enumerate(judged):
            scorers = [one.candidate.learn(half, rng) for half in seen]
            parting = _Parting(X, halves, scorers, resolutions, rng)
            latest += one.look_at(parting, rng)
            if split == 0 and number == 0:
                first = HeldOutTest(1.0, 0, (), parting.held_out, parting.sides)
            if stop_early and one.p_value <= level:
                break
        made += latest
        if tell is not None:
            tell()
        if stop_early and (
            min(one.p_value for one in judged) <= level or (split == 0 and min(latest) > HOPELESS)
        ):
            break
    best = min(range(len(judged)), key=lambda i: judged[i].p_value)
    around = any(one.has_way_around for one in judged)
    return HeldOutTest(
        judged[best].p_value,
        best,
        tuple(made),
        first.scores,
        first.sides,
        around,
        judged[best].p_minimum,
    )


class _Parting:
    """Two halves, and what each of them has learnt."""

    def __init__(
        self,
        X: Any,
        halves: tuple[NDArray, NDArray],
        scorers: list[Scorer | None],
        resolutions: NDArray,
        rng: np.random.Generator,
    ):
        self.X, self.resolutions, self.rng = X, resolutions, rng
        n = X.shape[0]
        self.samples: list[tuple[NDArray, NDArray]] = []  # scores and rows of each half
        self.held_out, self.sides = np.zeros(n), np.zeros((2, n))
        for number, (scorer, unseen) in enumerate(zip(scorers, halves[::-1], strict=True)):
            if scorer is None:
                self.samples.append((np.empty(0), np.empty(0, dtype=np.int64)))
                continue
            scores, inside = _dithered(scorer, X[unseen], resolutions, rng)
            everywhere, _ = scorer.scores(X)
            centre, unit = float(everywhere.mean()), float(everywhere.std())
            unit = unit if unit > 0 else 1.0
            scores = (scores - centre) / unit
            self.sides[number] = (everywhere - centre) / unit
            self.held_out[unseen] = scores
            kept = np.ones(unseen.size, dtype=bool) if inside is None else inside
            self.samples.append((scores[kept], unseen[kept]))
        self.agreement = _correlation(*self.sides)
        if self.agreement < 0:  # the second half calls the other side positive
            self.sides[1] *= -1.0
            self.held_out[halves[0]] *= -1.0
            self.samples[1] = (-self.samples[1][0], self.samples[1][1])

    def is_around(self, scores: NDArray, rows: NDArray) -> bool:
        """Whether there is a way around the valley of scores of rows."""
        if scores.size > WAY_ROWS:
            kept = np.argsort(scores)[np.linspace(0, scores.size - 1, WAY_ROWS).astype(np.int64)]
            scores, rows = scores[kept], rows[kept]
        return has_way_around(dithered(self.X[rows], self.resolutions, self.rng), scores)


def _dithered(
    scorer: Scorer, rows: Any, resolutions: NDArray, rng: np.random.Generator
) -> tuple[NDArray, NDArray | None]:
    """Return scores of dithered rows, and which are inside."""
    insides: list[NDArray | None] = []

    def score(some: Any) -> NDArray:
        scores, inside = scorer.scores(some)
        insides.append(inside)
        return scores

    scores = dithered_scores(score, rows, resolutions, rng)
    known = [inside for inside in insides if inside is not None]
    return scores, np.concatenate(known) if known else None


def _correlation(a: NDArray, b: NDArray) -> float:
    step = max(1, a.size // AGREEMENT_ROWS)
    a, b = a[::step] - a[::step].mean(), b[::step] - b[::step].mean()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0 else 0.0


class _Judged:
    """A candidate and its p-values."""

    def __init__(self, candidate: Candidate, n_splits: int, level: float, test: str):
        self.candidate, self.test = candidate, test
        self.n_p_values = n_splits * (1 if candidate.has_one_border else 2)
        self.p_values: list[float] = []
        self.minima: list[float] = []
        self.has_way_around = False
        # Of one or two p-values the smallest counts, by Bonferroni's rule.
        self.quantile = max(1.0 / 3.0, 1.0 / self.n_p_values)
        smallest = candidate.share * level * self.quantile / BELOW_LEVEL
        self.n_draws = max(FEWEST_DRAWS, int(np.ceil(1.0 / smallest)))

    @property
    def p_value(self) -> float:
        """Combined over what was looked at; the rest counts as 1."""
        return self._combined(self.p_values)

    @property
    def p_minimum(self) -> float:
        """The p-value if no draw had reached the sample in any test that was made."""
        return self._combined(self.minima) if self.test == "humps" else 0.0

    def _combined(self, p_values: list[float]) -> float:
        rest = np.ones(self.n_p_values - len(p_values))
        combined = combine_p_values([*p_values, *rest], share=self.quantile)
        return min(1.0, combined / self.candidate.share)

    def look_at(self, parting: _Parting, rng: np.random.Generator) -> list[float]:
        samples = parting.samples
        minimum = 1.0 / (1.0 + self.n_draws)
        if self.candidate.has_one_border:
            if abs(parting.agreement) >= AGREE:
                scores, rows = (np.concatenate(parts) for parts in zip(*samples, strict=True))
                found = [self._test(scores, rows, parting, rng)]
            else:
                everything = [(side, np.arange(side.size)) for side in parting.sides]
                each = [
                    self._test(scores, rows, parting, rng, around)
                    for (scores, rows), around in zip(samples, everything, strict=True)
                ]
                found = [min(1.0, 2.0 * min(each))]
                minimum *= 2.0
        else:
            found = [self._test(scores, rows, parting, rng) for scores, rows in samples]
        self.p_values += found
        self.minima += [minimum] * len(found)
        return found

    def _test(
        self,
        scores: NDArray,
        rows: NDArray,
        parting: _Parting,
        rng: np.random.Generator,
        around: tuple[NDArray, NDArray] | None = None,
    ) -> float:
        """Return the p-value of scores of rows; a way around is looked for in more of them."""
        if scores.size < FEWEST_ROWS // 2:
            return 1.0
        if self.test == "dip":
            p_value = float(dip_test(scores).p_value)
        else:
            p_value = hump_test(scores, rng, n_draws=self.n_draws).p_value
        # Only where it matters: neighbours take longer than draws.
        if p_value <= SMALL and parting.is_around(*(around or (scores, rows))):
            self.has_way_around = True
            return 1.0
        return p_value
