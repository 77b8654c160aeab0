"""Two normal components on a grid, and the index made of them."""

import math

import numpy as np
import pytest
from helpers.samples import NULLS, binned, known_samples, two_normals
from scipy.stats import norm

from volmar.evidence.modes.densities import GRID
from volmar.evidence.modes.mixture import N_STEPS, NARROWEST, STARTS, _components, two_group_index


def test_a_step_never_lowers_the_likelihood():
    shares = binned(*known_samples())
    grid = np.linspace(0, 1, GRID)
    mean, square = shares @ grid, shares @ grid**2
    for quantile in STARTS:
        second = np.where(np.cumsum(shares, axis=1) > quantile, 0.98, 0.02)
        last = -np.inf
        for _ in range(N_STEPS):
            logs = _components(shares, second, grid, grid**2, mean, square)
            likelihood = (shares * np.logaddexp(*logs)).sum(axis=1)
            assert (likelihood >= last - 1e-10).all()
            last = likelihood
            second = np.exp(logs[1] - np.logaddexp(*logs))


def test_components_are_weighted_normals():
    """Against the density of scipy, less the constant, at the weighted moments."""
    shares = binned(two_normals(share=0.3))
    grid = np.linspace(0, 1, GRID)
    second = np.linspace(0.01, 0.99, GRID)[None, :]
    logs = _components(shares, second, grid, grid**2, shares @ grid, shares @ grid**2)
    for found, part in zip(logs, (1 - second, second), strict=True):
        weights = (shares * part)[0]
        center = np.average(grid, weights=weights)
        deviation = math.sqrt(np.average((grid - center) ** 2, weights=weights))
        assert deviation > NARROWEST
        expected = norm.logpdf(grid, center, deviation) + math.log(weights.sum())
        np.testing.assert_allclose(found[0] - 0.5 * math.log(2 * math.pi), expected, atol=1e-8)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.06])
def test_the_index_prefers_groups_to_skew_and_tails(share):
    rng = np.random.default_rng(2)
    plain = [NULLS[name](rng, 400) for name in ("normal", "t3", "exponential")]
    index = two_group_index(binned(two_normals(400, 4.0, share), *plain))
    assert (index >= 0).all()
    assert index[0] > 100 * index[1:3].max()
    assert index[0] > index[3]


def test_the_index_takes_each_sample_by_itself():
    samples = list(known_samples())
    together = two_group_index(binned(*samples))
    alone = [two_group_index(binned(x))[0] for x in samples]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    assert two_group_index(np.empty((0, GRID))).shape == (0,)
    mirrored = two_group_index(binned(*samples)[:, ::-1])
    np.testing.assert_allclose(mirrored[[4, 5]], together[[4, 5]], rtol=0.05)


def test_a_sample_at_two_places_has_a_finite_index():
    shares = np.zeros((2, GRID))
    shares[0, [60, 200]] = 0.5
    shares[1, 100] = 1.0
    index = two_group_index(shares)
    assert np.isfinite(index).all()
    assert index[0] > 100 * index[1]
