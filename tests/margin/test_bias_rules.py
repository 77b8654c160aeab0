"""Cuts of scores, against all labellings."""

import itertools

import numpy as np
import pytest

from volmar.margin.iter_svr import lowest_loss_cut, widest_gap_cut


def loss_of(g, labels):
    """Minimum L1 loss over a common bias, by trying every kink."""
    y = 2.0 * labels - 1
    return min(np.abs(y - g - b).sum() for b in y - g)


@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("floor", [1.0, 3.0])
def test_lowest_loss_cut_is_the_best_of_all_labellings(rng, size, floor):
    every = [np.array(bits) for bits in itertools.product([0, 1], repeat=8)]
    allowed = [y for y in every if floor <= y.sum() <= 8 - floor]
    for _ in range(5):
        g = size * rng.standard_normal(8)
        cut = lowest_loss_cut(g, floor, 0.0)
        best = min(loss_of(g, y) for y in allowed)
        assert loss_of(g, cut.labels) == pytest.approx(best, rel=1e-10)
        assert floor <= cut.labels.sum() <= 8 - floor
        np.testing.assert_array_equal(g + cut.bias > 0, cut.labels == 1)


def test_small_scores_are_cut_as_unevenly_as_allowed(rng):
    g = 1e-3 * rng.standard_normal(50)
    for floor in (1, 5, 20):
        labels = lowest_loss_cut(g, floor, 0.0).labels
        assert min(labels.sum(), 50 - labels.sum()) == floor


def test_widest_gap_cut(rng):
    g = np.concatenate([rng.uniform(-3, -2, 30), rng.uniform(0, 1, 20), [40.0]])
    np.testing.assert_array_equal(widest_gap_cut(g, 1, 0.0).labels, g > 30)
    cut = widest_gap_cut(g, 5, 0.0)
    np.testing.assert_array_equal(cut.labels, g > -1.5)
    assert -cut.bias == pytest.approx(0.5 * (g[:30].max() + g[30:].min()))


def test_where_no_cut_is_even_enough_the_most_even_one_is_made():
    g = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 5.0])
    for rule in (widest_gap_cut, lowest_loss_cut):
        np.testing.assert_array_equal(rule(g, 3, 0.0).labels, [0, 0, 0, 0, 1, 1])


@pytest.mark.parametrize("rule", [widest_gap_cut, lowest_loss_cut])
def test_neighbouring_numbers_can_be_cut(rule):
    """The middle of two neighbours in floating point is one of them."""
    for low in (1e8, 3.0, np.nextafter(3.0, 4.0), -5.0):
        g = np.array([low, np.nextafter(low, np.inf)])
        cut = rule(g, 1, 0.0)
        np.testing.assert_array_equal(cut.labels, [0, 1])
        np.testing.assert_array_equal(g + cut.bias > 0, [False, True])
