"""Densities on a grid: valleys, bins, smoothing."""

import itertools

import numpy as np
import pytest
from helpers.samples import has_one_hump
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from volmar.evidence import densities
from volmar.evidence.densities import GRID, grid_shares, valleys_at

# ---------------------------------------------------------------------- filling the valleys


SMALL = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@given(SMALL)
@settings(max_examples=60, deadline=None)
def test_fill_is_the_least_mass_that_leaves_one_hump(values):
    """Compare with all unimodal functions above a few integers; an optimal one has integers."""
    candidates = itertools.product(*[range(value, max(values) + 1) for value in values])
    least = min(sum(one) for one in candidates if has_one_hump(one)) - sum(values)
    mass = densities.missing_mass(np.array([values, values[::-1]], dtype=float))
    assert mass.sum(axis=1) == pytest.approx(least)


def test_fill_of_a_valley_by_hand():
    # Up to the lower of the two peaks, 2, on either side of the valley.
    assert densities.missing_mass(np.array([[0, 3, 1, 0, 2, 0.0]])).sum() == 1 + 2
    assert densities.missing_mass(np.array([[0, 1, 3, 3, 2.0]])).sum() == 0


# ---------------------------------------------------------------------- the grid


@given(st.lists(st.floats(0, GRID - 1), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_bins_keep_the_mass_and_the_mean(u):
    u = np.array([u, u[::-1]])
    shares = grid_shares(u, np.ones(u.shape), GRID)
    assert shares.shape == (2, GRID)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_allclose(shares @ np.arange(GRID), u.mean(axis=1), atol=1e-9)
    # No mass moves further than a step.
    np.testing.assert_array_less(shares @ np.arange(GRID) ** 2, (u**2).mean(axis=1) + 0.2501)


@pytest.mark.parametrize("width", [28.5, 16.6, 3.3])
def test_smoothing_is_the_convolution_with_a_gaussian(width):
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(GRID, 0.1), size=3)
    distances = np.subtract.outer(np.arange(GRID), np.arange(GRID))
    direct = shares @ norm.pdf(distances, scale=width)
    np.testing.assert_allclose(densities.smoothed(shares, width), direct, atol=1e-7)


def test_far_points_are_left_out():
    x = np.random.default_rng(0).normal(size=200)
    x = np.sort(np.concatenate([x, x + 6]))
    cuts = np.array([3.0])
    near = valleys_at(x[None, :], cuts)
    far = valleys_at(np.sort(np.append(x, [1e6, -1e9]))[None, :], cuts)
    assert far.mass == pytest.approx(near.mass, rel=0.05)
    assert far.depth == pytest.approx(near.depth, rel=0.02)
    assert near.depth > 0.7
    flat = valleys_at(np.sort(np.append(np.zeros(190), [-1.0, 1.0]))[None, :], cuts)
    assert flat.mass == flat.depth == 0


def test_a_small_group_beyond_the_cut_is_seen_and_a_tail_is_not(rng):
    for size in (12, 15, 19):  # of 400: less than a twentieth
        x = np.sort(np.append(rng.standard_normal(400 - size), 8 + rng.standard_normal(size)))
        for sample, cut in ((x, 4.5), (np.sort(-x), -4.5)):
            found = valleys_at(sample[None, :], np.array([cut]))
            assert found.depth[0] > 0.5
            assert found.mass[0] > 0.01  # 0.003 without the group
    tail = np.sort(rng.exponential(size=400))
    assert valleys_at(tail[None, :], np.array([tail[-15]])).depth[0] < 0.1
