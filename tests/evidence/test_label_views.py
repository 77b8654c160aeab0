"""Discriminants, regions and thresholds of given clusters."""

import importlib

import numpy as np
import pytest
from helpers.groups import two
from helpers.label_tests import three
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

MODULE = importlib.import_module("volmar.evidence.label_test")


def halves(n):
    order = np.random.default_rng(5).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


def view_of(X, y, k, d_wide=None, monkeypatch=None):
    if d_wide is not None:
        monkeypatch.setattr(MODULE, "WIDE", d_wide)
    first, second = halves(X.shape[0])
    rng = np.random.default_rng(0)
    return MODULE.split_view(X, y, k, first, second, np.zeros(X.shape[1]), rng)


def test_discriminants_are_those_of_linear_discriminant_analysis(monkeypatch):
    monkeypatch.setattr(MODULE, "REG", 0.0)
    X, y = three(4.0)
    found = view_of(X, y, 3).discriminants(np.arange(3))
    lda = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3)
    seen, held_out = halves(600)
    expected = lda.fit(X[seen], y[seen]).decision_function(X[held_out])
    difference = found.held_out - found.held_out[:, :1]
    np.testing.assert_allclose(difference, expected - expected[:, :1], rtol=1e-2, atol=0.2)


def test_groups_are_as_if_learnt_anew():
    X, y = three(4.0)
    pieces = y + 3 * (X[:, 1] > X[:, 1].mean())
    found, codes = np.unique(pieces, return_inverse=True)
    groups = found % 3
    merged = view_of(X, codes, groups.size).discriminants(groups)
    anew = view_of(X, groups[codes], 3).discriminants(np.arange(3))
    # The unit of the regulariser is the deviation within the given clusters, which differs.
    np.testing.assert_allclose(merged.distances, anew.distances, rtol=0.2)
    np.testing.assert_array_equal(merged.groups, anew.groups)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_many_columns_have_the_same_scores(form, monkeypatch):
    X, y = two(120)
    X = np.column_stack([X, np.random.default_rng(3).normal(size=(120, 20))])
    narrow = view_of(X, y, 2).discriminants(np.arange(2))
    wide = view_of(form(X), y, 2, 5, monkeypatch).discriminants(np.arange(2))
    np.testing.assert_allclose(wide.held_out, narrow.held_out, atol=1e-8)
    np.testing.assert_allclose(wide.distances, narrow.distances)


def test_regions_are_convex_and_hold_both_groups():
    y = np.arange(900) % 3
    at = np.array([[0.0, 0.0], [4.0, 0.0], [9.0, 1.0]])
    X = at[y] + 0.6 * np.random.default_rng(0).normal(size=(900, 2))
    found = view_of(X, y, 3).discriminants(np.arange(3))
    held = y[halves(900)[1]]
    for a, b, other in ((0, 1, 2), (1, 2, 0)):
        inside = np.zeros(held.size, dtype=bool)
        inside[found.pair(a, b).rows] = True
        assert inside[held == a].mean() > 0.95
        assert inside[held == b].mean() > 0.95
        assert inside[held == other].mean() < 0.05
        # The region is convex: the midpoint of two rows inside is inside.
        f = found.held_out
        pairs = np.random.default_rng(1).choice(np.flatnonzero(inside), (2, 200))
        middle = 0.5 * (f[pairs[0]] + f[pairs[1]])
        moved = MODULE.Discriminants(found.seen, middle, found.distances, found.groups)
        assert moved.pair(a, b).rows.size == 200


def test_far_rows_of_a_much_larger_side_are_left_out():
    first, second = np.arange(1.0, 101.0), -np.arange(1.0, 11.0)
    kept = MODULE.without_far_rows(np.concatenate([first, second]), first, second)
    assert kept.size == 10 + 40
    assert first[kept[0] : 40].max() == 40.0
    turned = MODULE.without_far_rows(np.concatenate([-first, -second]), -second, -first)
    np.testing.assert_array_equal(turned, kept)
    assert MODULE.without_far_rows(second, second, second).size == 10


def test_side_error_is_that_of_the_best_threshold():
    assert MODULE.side_error(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 0.0
    assert MODULE.side_error(np.array([0.0, 3.0]), np.array([1.0, 2.0])) == 0.25
    assert MODULE.side_error(np.zeros(4), np.ones(4)) == 0.5


def test_thresholds_at_the_border():
    assert MODULE.thresholds(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == (1.0, 2.0)
    low, high = MODULE.thresholds(np.arange(100.0), np.arange(100.0))
    assert low > high
    rng = np.random.default_rng(0)
    low, high = MODULE.thresholds(rng.normal(size=1000) + 4.0, rng.normal(size=1000))
    assert 0.8 < low < 1.6
    assert 2.4 < high < 3.2


def test_levels_are_holms():
    p = np.array([0.5, 0.001, 0.02, 0.013])
    np.testing.assert_allclose(MODULE._holm_levels(p, 0.05), [0.05, 0.05 / 4, 0.025, 0.05 / 3])
    assert (p <= MODULE._holm_levels(p, 0.05)).tolist() == [False, True, True, True]
    # Nothing after the first p-value above its level, even if it is below its own level.
    p = np.array([0.03, 0.04, 0.045])
    assert not (p <= MODULE._holm_levels(p, 0.05)).any()
    assert MODULE._holm_levels(np.empty(0), 0.05).size == 0


def test_p_values_that_cannot_change_the_outcome_are_not_computed():
    assert MODULE._settled([0.01, 0.01], 6, 0.01) == [1.0] * 4
    assert MODULE._settled([0.01, 0.02], 6, 0.01) == []
    assert MODULE._settled([0.01], 2, 0.01) == [1.0]
