"""Tests of candidate splits on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from volmar._checks import check_number
from volmar._vectors import check_vector
from volmar.evidence.densities import deepest_valleys
from volmar.evidence.dither import column_resolutions, dithered, dithered_scores
from volmar.evidence.humps import deepest_valley, hump_test
from volmar.evidence.pairs import CellPair, LinearCells, clearest_pairs
from volmar.evidence.two_groups import SearchedRows, n_searched, searched_rows, two_group_direction
from volmar.evidence.way_around import MAX_ROWS, has_way_around
from volmar.metrics.separation_bound import separation_along

# Number of times the rows are split in halves. With LARGE or more rows, once is enough.
N_SPLITS, LARGE = 3, 20_000
# Minimum number of rows. A test needs at least half of that number.
FEWEST_ROWS = 40


def combine_p_values(p_values: ArrayLike, *, share: float = 1.0 / 3.0) -> float:
    r"""Combine p-values of the same hypothesis, under any dependence between them.

    The combined p-value is :math:`\min(1, Q_\gamma(p) / \gamma)`, where :math:`Q_\gamma` is the
    smallest p-value that a share :math:`\gamma` of them does not exceed. It is valid under any
    dependence: the expected share of valid p-values below :math:`\alpha \gamma` is at most
    :math:`\alpha \gamma`. By Markov's inequality, the probability that this share reaches
    :math:`\gamma` is at most :math:`\alpha`. :math:`\gamma = 1/2` gives twice the median, and
    :math:`\gamma = 1/m` Bonferroni's rule. Choose the share before the p-values are known.

    N. Meinshausen, L. Meier, P. Bühlmann (2009), P-values for high-dimensional regression, Journal
    of the American Statistical Association 104.
    """
    p = check_vector("p_values", p_values)
    wrong = ~((p >= 0) & (p <= 1))
    if wrong.any():
        raise ValueError(
            f"p_values must be numbers between 0 and 1, got {p[wrong][0]} at position "
            f"{np.argmax(wrong)}."
        )
    share = check_number("share", share, low=0.0, high=1.0, open_low=True)
    # In floating point, a product such as 0.1 * 30 may be slightly above the exact integer.
    rank = max(math.ceil(share * p.size * (1.0 - 1e-12)), 1)
    return min(1.0, float(np.partition(p, rank - 1)[rank - 1]) / share)


class Scorer(NamedTuple):
    """A function whose scores of rows increase across a border, for at most `most_rows` rows.

    `direction` (d,) is the normal if the border is a hyperplane.
    """

    scores: Callable[[Any], NDArray]
    most_rows: int | None = None
    direction: NDArray | None = None


class SeenRows:
    """The rows of X with these `numbers`, from which a candidate learns."""

    def __init__(self, X: Any, numbers: NDArray, seed: int):
        self.X, self.numbers, self.seed = X, numbers, seed

    @cached_property
    def rows(self) -> Any:
        """The seen rows."""
        return self.X[self.numbers]

    @cached_property
    def searched(self) -> SearchedRows:
        """The seen rows, or a sample of them, in the coordinates of the search."""
        rng, numbers = np.random.default_rng(self.seed), self.numbers
        most = n_searched(self.X.shape[1])
        if numbers.size > most:
            numbers = np.sort(rng.choice(numbers, most, replace=False))
        return searched_rows(self.X[numbers], rng)


@dataclass(frozen=True)
class Candidate:
    """A method that finds a split of the rows, with its `share` of the level.

    `learn` maps the seen rows and a generator to a `Scorer` (if `has_one_border`), a `CellPair`,
    or None without a split. Scores of two halves that agree are tested together.
    """

    learn: Callable[[SeenRows, np.random.Generator], Any]
    share: float = 1.0
    has_one_border: bool = True


@dataclass(frozen=True, eq=False)
class HeldOutTest:
    """Outcome of the test of candidate splits on held-out rows (see `SplitTestResult`).

    `sides` (2, n) are the scores of all rows by the border of each of the first two halves,
    `candidate` is the index of the candidate with the smallest p-value, and `directions` are the
    normals of the hyperplanes of the last two halves.
    """

    p_value: float
    candidate: int
    p_values: tuple[float, ...]
    scores: NDArray = field(repr=False)
    sides: NDArray = field(repr=False)
    has_way_around: bool = False
    p_minimum: float = 0.0
    directions: tuple[NDArray, ...] = field(default=(), repr=False)

    @property
    def separation(self) -> float:
        """Separation probability along the held-out scores, cut at their deepest valley."""
        return separation_along(self.scores, self.scores > deepest_valley(self.scores))


def _learn_direction(seen: SeenRows, rng: np.random.Generator) -> Scorer | None:
    w = two_group_direction(seen.searched, rng)
    return Scorer(lambda rows: np.asarray(rows @ w).ravel(), direction=w) if w.any() else None


def _learn_pair(seen: SeenRows, rng: np.random.Generator) -> CellPair | None:
    pairs = clearest_pairs(seen.searched, rng)
    return max(pairs, key=lambda pair: pair.significance, default=None)


#: Candidate: the direction in which rows look most like two groups.
DIRECTION = Candidate(_learn_direction, share=0.7)
#: Candidate: the clearest pair of clusters of a partition, in its convex region.
PAIR = Candidate(_learn_pair, share=0.3, has_one_border=False)
LINEAR: tuple[Candidate, ...] = (DIRECTION, PAIR)


def held_out_test(
    X: Any,
    candidates: Sequence[Candidate],
    *,
    level: float,
    rng: np.random.Generator,
    n_splits: int | None = None,
    stop_early: bool = True,
    tell: Callable[[], None] | None = None,
) -> HeldOutTest:
    r"""Test whether rows have more than one mode along scores learnt from other rows.

    This is the test that `split_test` describes, for any candidates. Let :math:`s_c` be the shares
    of the level (0.7 for the direction, 0.3 for the pair). The p-value is
    :math:`\min_c p_c / s_c`, where :math:`p_c` combines the p-values of one candidate
    (`combine_p_values`).

    With `stop_early`, the test ends when the p-value is at most the level, or when all p-values of
    the first halves are above 0.5. Tests that are not made count as p-values of 1. `tell` is
    called after each of the `n_splits` splits.
    """
    n = X.shape[0]
    n_splits = n_splits or (1 if n >= LARGE else N_SPLITS)
    scores_and_sides = np.zeros(n), np.zeros((2, n))
    if n < FEWEST_ROWS:
        return HeldOutTest(1.0, 0, (), *scores_and_sides)
    resolutions = column_resolutions(X)
    judged = [_Judged(one, n_splits, level) for one in candidates]
    made: list[float] = []
    directions: tuple[NDArray, ...] = ()
    for split in range(n_splits):
        order = rng.permutation(n)
        halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        seen = [SeenRows(X, half, int(rng.integers(2**31 - 1))) for half in halves]
        latest: list[float] = []
        for number, one in enumerate(judged):
            learnt = [one.candidate.learn(half, rng) for half in seen]
            rows = _Rows(X, resolutions, rng)
            if one.candidate.has_one_border:
                scored = _Scored(*rows.some(halves, learnt), learnt)
                latest += one.test_border(scored)
                directions = scored.directions or directions
                if split == 0 and number == 0:
                    scores_and_sides = scored.held_out, scored.sides
            else:
                latest += one.test_regions(rows, halves, learnt)
            if stop_early and one.p_value <= level:
                break
        made += latest
        if tell is not None:
            tell()
        # If the first two halves show nothing, the others are not tried.
        if stop_early and (
            min(one.p_value for one in judged) <= level or (split == 0 and min(latest) > 0.5)
        ):
            break
    best = min(range(len(judged)), key=lambda i: judged[i].p_value)
    around = any(one.has_way_around for one in judged)
    # The minimum is the p-value if no draw had reached the statistic in any test.
    p_value, p_minimum = judged[best].p_value, judged[best].combined(judged[best].minima)
    return HeldOutTest(
        p_value, best, tuple(made), *scores_and_sides, around, p_minimum, directions
    )


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows, the resolutions of their columns, and a random generator."""

    X: Any
    resolutions: NDArray
    rng: np.random.Generator

    def some(
        self, halves: tuple[NDArray, NDArray], learnt: list[Scorer | None]
    ) -> tuple[_Rows, tuple[NDArray, NDArray]]:
        """Return the rows to score, a sample of both halves, and the new indices of the halves."""
        limits = [one.most_rows for one in learnt if one is not None and one.most_rows]
        most = min(limits, default=self.X.shape[0])
        if self.X.shape[0] <= most:
            return self, halves
        chosen = [self.rng.choice(half, most // 2, replace=False) for half in halves]
        few = _Rows(self.X[np.concatenate(chosen)], self.resolutions, self.rng)
        return few, (np.arange(most // 2), np.arange(most // 2, 2 * (most // 2)))

    def scores(self, score: Callable[[Any], NDArray], rows: NDArray) -> NDArray:
        """Return scores of dithered rows."""
        return dithered_scores(score, self.X[rows], self.resolutions, self.rng)

    def are_connected(self, scores: NDArray, rows: NDArray) -> bool:
        """Return whether rows connect the two sides of the valley of their scores."""
        # Sorting more rows than this would take longer than it is worth.
        step = max(1, scores.size // 10_000)
        scores, rows = scores[::step], rows[::step]
        if scores.size > MAX_ROWS:
            kept = np.argsort(scores)[np.linspace(0, scores.size - 1, MAX_ROWS).astype(np.int64)]
            scores, rows = scores[kept], rows[kept]
        return has_way_around(dithered(self.X[rows], self.resolutions, self.rng), scores)


class _Scored:
    """Two halves, each scored by the border that the other has learnt."""

    def __init__(self, rows: _Rows, halves: tuple[NDArray, NDArray], learnt: list[Scorer | None]):
        self.rows, self.unseen = rows, halves[::-1]
        n = rows.X.shape[0]
        self.held_out, self.sides = np.zeros(n), np.zeros((2, n))
        has_noise = rows.resolutions.any()
        for number, (scorer, unseen) in enumerate(zip(learnt, self.unseen, strict=True)):
            if scorer is None:
                continue
            everywhere = scorer.scores(rows.X)
            centre, unit = float(everywhere.mean()), float(everywhere.std())
            unit = unit if unit > 0 else 1.0
            self.sides[number] = (everywhere - centre) / unit
            again = rows.scores(scorer.scores, unseen) if has_noise else everywhere[unseen]
            self.held_out[unseen] = (again - centre) / unit
        self.directions = tuple(
            one.direction for one in learnt if one is not None and one.direction is not None
        )
        self.agreement = _correlation(*self.sides)
        if self.agreement < 0:  # the sides of the second half have the opposite sign
            self.sides[1] *= -1.0
            self.held_out[halves[0]] *= -1.0


def _correlation(a: NDArray, b: NDArray) -> float:
    step = max(1, a.size // 2000)
    a, b = a[::step] - a[::step].mean(), b[::step] - b[::step].mean()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0 else 0.0


class _Judged:
    """A candidate and its p-values."""

    def __init__(self, candidate: Candidate, n_splits: int, level: float):
        self.candidate = candidate
        self.n_p_values = n_splits * (1 if candidate.has_one_border else 2)
        self.p_values: list[float] = []
        self.minima: list[float] = []
        self.has_way_around = False
        # One or two p-values are combined by Bonferroni's rule, through the smallest.
        self.quantile = max(1.0 / 3.0, 1.0 / self.n_p_values)
        # The smallest p-value must be well below the level.
        smallest = candidate.share * level * self.quantile / 4.0
        self.n_draws = max(2000, int(np.ceil(1.0 / smallest)))

    @property
    def p_value(self) -> float:
        """P-value combined over the tests that were made; the others count as 1."""
        return self.combined(self.p_values)

    def combined(self, p_values: list[float]) -> float:
        rest = np.ones(self.n_p_values - len(p_values))
        combined = combine_p_values([*p_values, *rest], share=self.quantile)
        return min(1.0, combined / self.candidate.share)

    def test_border(self, scored: _Scored) -> list[float]:
        minimum = 1.0 / (1.0 + self.n_draws)
        everything = np.arange(scored.held_out.size)
        # Halves that have found the same split are tested together.
        if abs(scored.agreement) >= 0.8:
            p_value = self._p_value(scored.rows, scored.held_out, everything)
        else:
            each = [
                self._p_value(scored.rows, scored.held_out[unseen], unseen, (side, everything))
                for unseen, side in zip(scored.unseen, scored.sides, strict=True)
            ]
            p_value = min(1.0, 2.0 * min(each))
            minimum *= 2.0
        self.p_values.append(p_value)
        self.minima.append(minimum)
        return [p_value]

    def test_regions(
        self, rows: _Rows, halves: tuple[NDArray, NDArray], learnt: list[CellPair | None]
    ) -> list[float]:
        """Return the p-values of both halves, each combined over regions by Fisher's method.

        Given the assignment of rows to regions, samples of different regions are independent.
        """
        found = []
        for regions, unseen in zip(learnt, halves[::-1], strict=True):
            p_values = [1.0]
            if regions is not None:
                samples = regions.samples(rows.scores(regions.functions, unseen))
                p_values = [self._p_value(rows, scores, unseen[kept]) for scores, kept in samples]
            found.append(fisher_p_value(p_values))
            minimum = 1.0 / (1.0 + self.n_draws)
            self.minima.append(fisher_p_value([minimum] * len(p_values)))
        self.p_values += found
        return found

    def _p_value(
        self,
        among: _Rows,
        scores: NDArray,
        rows: NDArray,
        around: tuple[NDArray, NDArray] | None = None,
    ) -> float:
        """Return the p-value of scores; `around` has more scores and rows to find a way around."""
        if scores.size < FEWEST_ROWS // 2:
            return 1.0
        p_value = hump_test(scores, among.rng, n_draws=self.n_draws).p_value
        # Only for small p-values, because neighbours take longer than draws.
        if p_value <= 0.05 and among.are_connected(*(around or (scores, rows))):
            self.has_way_around = True
            return 1.0
        return p_value


def fisher_p_value(p_values: Sequence[float]) -> float:
    r"""Combine independent p-values by Fisher's method.

    The result is :math:`P(\chi^2_{2m} \ge -2 \sum \log p_i)`.
    """
    return float(special.gammaincc(len(p_values), -np.sum(np.log(p_values))))


def make_split(
    X: Any,
    rng: np.random.Generator,
    *,
    by_direction: bool = True,
    directions: Sequence[NDArray] = (),
) -> LinearCells | None:
    """Return the split of all rows with the deepest valley; None if there is no valley.

    The split is either the hyperplane across the direction in which two groups are clearest, or a
    division of the cells of a partition into two sides. Cells with a shallow valley between them
    stay on the same side, so that no cluster is cut. Without `by_direction`, only the partition is
    used, because held-out rows have confirmed only that. `directions` are known to separate two
    groups; if there are none, one is searched for.
    """
    rows = searched_rows(X, rng)
    found: list[tuple[float, LinearCells]] = []
    if by_direction:
        W = np.column_stack(directions or [two_group_direction(rows, rng)])
        scores = dithered_scores(lambda rows: np.asarray(rows @ W), X, column_resolutions(X), rng)
        found = [
            (valley.depth, LinearCells.hyperplane(w, valley.place))
            for w, valley in zip(W.T, deepest_valleys(list(scores.T)), strict=True)
            if valley.depth > 0
        ]
        widest = max(found, key=lambda one: one[0], default=None)
        # Such a valley is a gap. It cuts no cluster, and no other split is tried.
        if widest is not None and widest[0] >= 0.9:
            return widest[1]
    pairs = clearest_pairs(rows, rng)
    largest = max((pair.significance for pair in pairs), default=0.0)
    # Partitions with at least this share of the largest significance are compared by depth.
    clear = [pair for pair in pairs if pair.significance >= 0.5 * largest]
    found += [(pair.depth, pair.cells) for pair in clear]
    return max(found, key=lambda one: one[0])[1] if found else None
