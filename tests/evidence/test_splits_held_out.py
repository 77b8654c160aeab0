"""Tests of splits on held-out rows: seen rows, combined p-values, level and power."""

import numpy as np
import pytest
from helpers.groups import groups, outcome, ring
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import combine_pvalues

from volmar.evidence import held_out as module
from volmar.evidence.held_out import DIRECTION, PAIR, Candidate, combine_p_values, fisher_p_value
from volmar.evidence.humps import HumpTest


class Axis:
    """Scores by one column."""

    most_rows = direction = None

    def __init__(self, column, sign=1.0):
        self.column, self.sign = column, sign

    def scores(self, rows):
        return self.sign * (rows @ np.eye(rows.shape[1])[self.column])


class Bands:
    """Scores by one column, in bands of another column."""

    def __init__(self, column=1, other=0, places=(-np.inf, np.inf)):
        self.column, self.other, self.places = column, other, places

    def functions(self, rows):
        return np.asarray(rows @ np.eye(rows.shape[1])[:, [self.column, self.other]])

    def samples(self, values):
        bands = np.digitize(values[:, 1], self.places)
        kept = [np.flatnonzero(bands == band) for band in range(1, len(self.places))]
        return [(values[rows, 0], rows) for rows in kept]


def axes(*scorers, **options):
    """Return a candidate that learns the given scorers one after the other."""
    rest = list(scorers)
    return Candidate(lambda seen, rng: rest.pop(0), **options)


def told_p_values(monkeypatch, p_values):
    """Make the tests return these p-values, and return the sizes of the tested samples."""
    rest, sizes = list(p_values), []

    def hump_test(scores, rng, *, n_draws):
        sizes.append(scores.size)
        return HumpTest(0.0, rest.pop(0))

    monkeypatch.setattr(module, "hump_test", hump_test)
    monkeypatch.setattr(module, "has_way_around", lambda rows, scores: False)
    return sizes


# ---------------------------------------------------------------------- halves


@pytest.mark.parametrize("n", [100, 101])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_seen_and_held_out_rows_never_overlap(n, convert):
    """A row is held out once in each split in halves, and tested by the other half.

    The second column has ties, so that held-out rows are dithered and scored separately.
    """
    X = np.column_stack([np.arange(1.0, n + 1), np.arange(n) % 2])
    seen, scored = [], []

    class Recorder:
        most_rows = direction = None

        def scores(self, rows):
            dense = rows.toarray() if sparse.issparse(rows) else rows
            scored.append(dense[:, 0])
            return dense[:, 0]

    def learn(half, rng):
        rows = half.rows.toarray() if sparse.issparse(half.rows) else half.rows
        seen.append(rows[:, 0])
        return Recorder()

    found = outcome(convert(X), [Candidate(learn)], stop_early=False)
    assert len(seen) == 6
    assert len(found.p_values) == 3  # both halves score alike: tested together
    assert found.p_value > 0.05  # equally spaced points have one mode
    held_out = [rows for rows in scored if rows.size < n]
    assert len(held_out) == 6
    for fitted, judged in zip(seen, held_out, strict=True):
        assert not set(fitted) & set(judged)
        assert sorted([*fitted, *judged]) == X[:, 0].tolist()
    for first, second in zip(held_out[::2], held_out[1::2], strict=True):
        assert sorted([*first, *second]) == X[:, 0].tolist()


def test_the_search_sees_the_rows_of_its_half_only():
    """Other held-out rows do not change what a half learns."""
    X, learnt = groups(200), []

    def learn(half, rng):
        found = DIRECTION.learn(half, np.random.default_rng(0))
        learnt.append(found.scores(np.eye(4)))
        return found

    order = np.random.default_rng(3).permutation(200)
    first = np.sort(order[:100])
    other = X.copy()
    other[first] = np.random.default_rng(1).normal(size=(100, 4)) * [1.0, 4.0, 2.0, 9.0]
    for rows in (X, other):
        outcome(rows, [Candidate(learn)], seed=3, n_splits=1)
    np.testing.assert_array_equal(learnt[1], learnt[3])
    assert not np.allclose(learnt[0], learnt[2])


def test_scores_are_those_of_the_other_half():
    X = groups(200)
    found = outcome(X, [axes(Axis(1), Axis(0))], seed=3, n_splits=1)
    order = np.random.default_rng(3).permutation(200)
    unit = (X - X.mean(axis=0)) / X.std(axis=0)
    flip = np.sign(np.corrcoef(X[:, 0], X[:, 1])[0, 1])
    np.testing.assert_allclose(found.sides, [unit[:, 1], flip * unit[:, 0]])
    np.testing.assert_allclose(found.scores[order[100:]], unit[order[100:], 1])
    np.testing.assert_allclose(found.scores[order[:100]], flip * unit[order[:100], 0])


def test_halves_with_other_signs_have_found_the_same_split():
    X = groups(200)
    found = outcome(X, [axes(Axis(1), Axis(1, sign=-3.0))], n_splits=1)
    np.testing.assert_allclose(found.sides[0], found.sides[1])
    np.testing.assert_allclose(found.scores, (X[:, 1] - X[:, 1].mean()) / X[:, 1].std())
    assert found.p_value < 0.05
    assert found.separation > 0.85


def test_halves_that_agree_are_tested_together(monkeypatch):
    X = groups(200)
    sizes = told_p_values(monkeypatch, [0.3])
    assert outcome(X, [axes(Axis(1), Axis(1))], n_splits=1).p_values == (0.3,)
    assert sizes == [200]
    # Twice the smaller p-value if the halves do not agree.
    sizes = told_p_values(monkeypatch, [0.3, 0.2])
    assert outcome(X, [axes(Axis(1), Axis(0))], n_splits=1).p_values == (0.4,)
    assert sizes == [100, 100]
    # A candidate with several borders is never tested together.
    sizes = told_p_values(monkeypatch, [0.3, 0.2])
    one = axes(Bands(), Bands(), has_one_border=False)
    assert outcome(X, [one], n_splits=1).p_values == pytest.approx((0.3, 0.2))
    assert sizes == [100, 100]


def test_rows_outside_a_region_are_not_tested(monkeypatch):
    X = groups(200)
    sizes = told_p_values(monkeypatch, [0.3, 0.2])
    bands = [Bands(places=(0.0, np.inf)) for _ in range(2)]
    outcome(X, [axes(*bands, has_one_border=False)], n_splits=1)
    assert sum(sizes) == np.count_nonzero(X[:, 0] > 0)
    # Fewer than 20 are not tested at all.
    sizes = told_p_values(monkeypatch, [])
    bands = [Bands(places=(1.5, np.inf)) for _ in range(2)]
    found = outcome(X, [axes(*bands, has_one_border=False)], n_splits=1)
    assert sizes == []
    assert found.p_values == (1.0, 1.0)


def test_regions_are_combined_by_fishers_rule(monkeypatch):
    X = groups(200)
    p_values = [0.05, 0.2, 0.4, 0.3, 0.6, 0.1]
    sizes = told_p_values(monkeypatch, p_values)
    places = (-np.inf, -0.4, 0.4, np.inf)
    bands = axes(Bands(places=places), Bands(places=places), has_one_border=False)
    found = outcome(X, [bands], n_splits=1)
    assert sum(sizes) == 200
    expected = [combine_pvalues(three).pvalue for three in (p_values[:3], p_values[3:])]
    np.testing.assert_allclose(found.p_values, expected)
    assert found.p_value == pytest.approx(2 * min(expected))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6))
def test_fishers_rule(p_values):
    expected = combine_pvalues(p_values).pvalue
    assert fisher_p_value(p_values) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def test_regions_of_dithered_sparse_rows_in_blocks(monkeypatch):
    """Rows that are made dense block by block keep their regions."""
    monkeypatch.setattr("volmar.evidence.dither.BLOCK", 50)
    X = np.column_stack([np.arange(200) % 2, np.random.default_rng(0).integers(0, 30, 200)])
    sizes = []
    for rows in (X.astype(float), sparse.csr_array(X.astype(float))):
        sizes += [told_p_values(monkeypatch, [0.3, 0.2])]
        bands = [Bands(0, 1, places=(15.0, np.inf)) for _ in range(2)]
        outcome(rows, [axes(*bands, has_one_border=False)], n_splits=1)
    assert abs(sum(sizes[0]) - sum(sizes[1])) < 15
    assert abs(sum(sizes[0]) - np.count_nonzero(X[:, 1] > 15)) < 15


# ---------------------------------------------------------------------- p-values


def test_p_values_are_combined_by_the_rule(monkeypatch):
    """Direction 7/10 of the level, pair 3/10; a third of the p-values each."""
    X = groups(200)
    direction = axes(*[Axis(1) for _ in range(6)], share=0.7)
    pair = axes(*[Bands(2) for _ in range(6)], share=0.3, has_one_border=False)
    p_values = [0.06, 0.5, 0.4, 0.2, 0.3, 0.1, 0.7, 0.08, 0.9]
    told_p_values(monkeypatch, p_values)
    found = outcome(X, [direction, pair], stop_early=False)
    assert found.p_values == pytest.approx(tuple(p_values))
    # The smallest of three p-values, the second smallest of six.
    assert combine_p_values([0.06, 0.2, 0.7]) == pytest.approx(3 * 0.06)
    expected = [3 * 0.06 / 0.7, 3 * 0.1 / 0.3]
    assert found.p_value == pytest.approx(min(1.0, *expected))
    assert found.candidate == 0


def test_the_pair_may_decide(monkeypatch):
    X = groups(200)
    direction = axes(*[Axis(1) for _ in range(6)], share=0.7)
    pair = axes(*[Bands(2) for _ in range(6)], share=0.3, has_one_border=False)
    told_p_values(monkeypatch, [0.9, 0.001, 0.002, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9])
    found = outcome(X, [direction, pair], stop_early=False)
    assert found.candidate == 1
    assert found.p_value == pytest.approx(3 * 0.002 / 0.3)


@pytest.mark.parametrize("has_one_border", [True, False])
def test_of_one_split_in_halves_the_rule_is_bonferronis(monkeypatch, has_one_border):
    X = groups(200)
    told_p_values(monkeypatch, [0.01, 0.9])
    kind = Axis if has_one_border else Bands
    one = axes(kind(1), kind(1), has_one_border=has_one_border)
    expected = 0.01 if has_one_border else 0.02
    assert outcome(X, [one], n_splits=1).p_value == pytest.approx(expected)


def test_looking_ends_where_nothing_can_change(monkeypatch):
    X = groups(200)

    def looks(p_values):
        told_p_values(monkeypatch, p_values)
        direction = axes(*[Axis(1) for _ in range(6)], share=0.7)
        pair = axes(*[Bands(2) for _ in range(6)], share=0.3, has_one_border=False)
        return outcome(X, [direction, pair])

    # At most the level after one test: 3 p / 0.7.
    assert looks([0.01]).p_values == (0.01,)
    # Hopeless after the first halves.
    assert looks([0.6, 0.7, 0.8]).p_value == 1.0
    # Not hopeless: all tests are made.
    many = [0.4] * 9
    assert looks(many).p_values == pytest.approx(tuple(many))
    # The test stops at the second p-value of the pair that is small enough.
    two = (0.9, 0.001, 0.9, 0.9, 0.001, 0.9)
    assert looks(two).p_values == pytest.approx(two)


def test_smaller_levels_have_more_draws(monkeypatch):
    draws = []
    exact = module.hump_test

    def spied(scores, rng, *, n_draws):
        draws.append(n_draws)
        return exact(scores, rng, n_draws=n_draws)

    monkeypatch.setattr(module, "hump_test", spied)
    X = groups(200)
    for level in (0.05, 0.01, 0.001):
        found = outcome(X, [DIRECTION], level=level)
        assert found.p_value <= level / 4
    # The p-value of no draw above is 1 / (draws + 1), three of which over 0.7 are at most a
    # quarter of the level.
    assert draws == [2000, 2000, 17143]


@pytest.mark.parametrize("seed", range(3))
def test_stopping_early_does_not_change_the_decision(seed):
    for X in (groups(300, seed=seed), np.random.default_rng(seed).normal(size=(300, 4))):
        early, late = (outcome(X, seed=seed, stop_early=stop) for stop in (True, False))
        assert (early.p_value <= 0.05) == (late.p_value <= 0.05)
        assert len(early.p_values) <= len(late.p_values) == 9
        np.testing.assert_array_equal(early.scores, late.scores)


def test_the_smallest_p_value_is_that_of_no_draw():
    X = groups(240)
    found = outcome(X, [DIRECTION], n_splits=1)
    assert found.p_value == found.p_minimum == pytest.approx(1 / 2001 / 0.7)
    noise = outcome(np.random.default_rng(0).normal(size=(240, 4)), stop_early=False)
    assert 0 < noise.p_minimum < noise.p_value


def test_progress_is_told_after_each_split():
    told = []
    X = np.random.default_rng(0).normal(size=(100, 2))
    outcome(X, [DIRECTION], stop_early=False, tell=lambda: told.append(1))
    assert len(told) == 3


def test_many_rows_are_split_once(monkeypatch):
    monkeypatch.setattr(module, "LARGE", 200)
    X = groups(200)
    assert len(outcome(X, stop_early=False).p_values) == 3
    assert len(outcome(X, stop_early=False, n_splits=2).p_values) == 6


# ---------------------------------------------------------------------- what cannot be tested


def test_few_rows_say_nothing():
    found = outcome(groups(39))
    assert found.p_value == 1.0
    assert found.p_values == ()
    assert found.separation == 0.0
    assert found.scores.shape == (39,)
    assert outcome(groups(40, distance=30.0)).p_values != ()


def test_a_candidate_that_finds_nothing():
    X = groups(200)
    found = outcome(X, [Candidate(lambda seen, rng: None)])
    assert found.p_value == 1.0
    assert not found.scores.any()
    assert found.separation == 0.0
    # Only one half has a p-value, which is doubled.
    half = outcome(X, [axes(Axis(1), None)], n_splits=1)
    assert half.p_value <= 0.05
    assert np.count_nonzero(half.scores) == 100


def test_constant_rows():
    found = outcome(np.full((100, 3), 2.0))
    assert found.p_value == 1.0
    assert found.separation == 0.0


def test_a_way_around_is_not_counted(monkeypatch):
    """The two modes of a ring along a line."""
    scorers = [Axis(0) for _ in range(6)]
    found = outcome(ring(800), [axes(*scorers)], stop_early=False)
    assert found.has_way_around
    assert found.p_value == 1.0
    assert found.p_values == (1.0, 1.0, 1.0)
    monkeypatch.setattr(module, "has_way_around", lambda rows, scores: False)
    assert outcome(ring(800), [axes(*[Axis(0) for _ in range(6)])]).p_value <= 0.05


# ---------------------------------------------------------------------- kinds of rows


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X.astype(np.float32),
        sparse.csr_array,
        sparse.csr_matrix,
        lambda X: 1e90 * X,
        lambda X: 1e-90 * X,
        lambda X: X * [1e-8, 1e8, 1.0, 1e3],
        lambda X: np.hstack([X, np.full((len(X), 2), 5.0)]),
        lambda X: X[:, [1]],
        lambda X: np.round(10 * X),
    ],
    ids=["f4", "csr", "csr matrix", "huge", "tiny", "mixed", "constant", "one", "rounded"],
)
def test_rows_of_every_kind(change):
    assert outcome(change(groups(240))).p_value <= 0.05
    noise = np.random.default_rng(3).normal(size=(240, 4))
    assert outcome(change(noise)).p_value > 0.05


def test_sparse_rows_are_tested_as_dense_ones():
    X = groups(200)
    dense, thin = outcome(X), outcome(sparse.csr_array(X))
    assert dense.p_values == thin.p_values
    np.testing.assert_allclose(dense.scores, thin.scores, atol=1e-9)


# ---------------------------------------------------------------------- level and power


NULLS = {
    "normal": lambda rng: rng.normal(size=(400, 4)),
    "uniform": lambda rng: rng.random((400, 2)),
    "exponential": lambda rng: rng.exponential(size=(400, 3)),
    "ring": lambda rng: ring(400, int(rng.integers(1000))),
}


@pytest.mark.parametrize(
    ("n_draws", "at_most"), [(6, 1), pytest.param(20, 3, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("null", NULLS)
def test_one_group_is_rarely_split(null, n_draws, at_most):
    rejected = 0
    for seed in range(n_draws):
        X = NULLS[null](np.random.default_rng(seed))
        rejected += outcome(X, seed=seed).p_value <= 0.05
    assert rejected <= at_most


def test_pairs_of_a_ring_are_not_apart():
    rejected = sum(
        outcome(ring(400, seed), [PAIR], seed=seed).p_value <= 0.05 for seed in range(10)
    )
    assert rejected <= 1


def test_power_at_four_standard_deviations():
    found = sum(outcome(groups(400, 4.0, seed=s), seed=s).p_value <= 0.05 for s in range(10))
    assert found >= 8


def test_power_at_three_standard_deviations():
    """A worse search would show if about half of the groups are found; the minimum is 0.4."""
    found = sum(outcome(groups(600, 3.0, d=10, seed=s), seed=s).p_value <= 0.05 for s in range(30))
    assert found >= 12


def test_a_small_group_is_found():
    found = sum(
        outcome(groups(600, 5.0, share=0.1, d=10, seed=s), seed=s).p_value <= 0.05
        for s in range(10)
    )
    assert found >= 8
