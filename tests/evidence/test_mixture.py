"""Two normal components on a grid, and the index made of them."""

import math

import numpy as np
import pytest
from helpers.samples import NULLS, binned, known_samples, two_normals
from scipy.stats import norm

from volmar.evidence.densities import (
    GRID,
    NARROWEST,
    STARTS,
    _after_steps,
    _likelihoods,
    _logarithms,
    missing_mass,
    two_group_index,
)


def test_a_step_never_lowers_the_likelihood():
    """Equal up to single precision, in which the steps are computed."""
    shares = binned(*known_samples())
    for quantile in STARTS:
        second = np.where(np.cumsum(shares, axis=1) > quantile, 0.98, 0.02)
        last = -np.inf
        for _ in range(6 + 19):
            likelihood, _ = _likelihoods(shares, second)
            assert (likelihood >= last - 1e-5).all()
            last = likelihood
            second = _after_steps(shares, second, 1)


def test_components_are_weighted_normals():
    """Compare with scipy's density at the weighted moments, without the constant."""
    shares = binned(two_normals(share=0.3))
    grid = np.linspace(0, 1, GRID)
    powers = np.vstack([np.ones(GRID), grid, grid**2])
    second = np.linspace(0.01, 0.99, GRID)[None, :]
    coefficients = _logarithms(powers @ shares.T, powers @ (shares * second).T)
    logs = []
    for found, part in zip(coefficients, (1 - second, second), strict=True):
        weights = (shares * part)[0]
        center = np.average(grid, weights=weights)
        deviation = math.sqrt(np.average((grid - center) ** 2, weights=weights))
        assert deviation > NARROWEST
        logs.append(norm.logpdf(grid, center, deviation) + math.log(weights.sum()))
        values = found[:, 0] @ powers - 0.5 * math.log(2 * math.pi)
        np.testing.assert_allclose(values, logs[-1], atol=1e-8)
    likelihood, together = _likelihoods(shares, second)
    expected = np.logaddexp(*logs) + 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(together[0], expected, atol=1e-8)
    assert likelihood[0] == pytest.approx(shares[0] @ expected)
    # The E-step of EM: the share of the second component at each place.
    again = _after_steps(shares, second, 1)
    np.testing.assert_allclose(again[0], np.exp(logs[1] - np.logaddexp(*logs)), atol=1e-4)


def test_the_index_is_near_that_of_all_starts_in_double_precision():
    samples = [two_normals(400, distance, 0.3) for distance in (2.5, 3.5, 4.5, 5.5, 6.5)]
    shares = binned(*samples)
    grid = np.linspace(0, 1, GRID)
    found = two_group_index(shares)
    for one, index in zip(shares, found, strict=True):
        best = -np.inf
        for quantile in STARTS:
            second = np.where(np.cumsum(one) > quantile, 0.98, 0.02)[None, :]
            for _ in range(6 + 19 + 1):
                parts = [one * (1 - second[0]), one * second[0]]
                logs = []
                for part in parts:
                    center = np.average(grid, weights=part)
                    variance = max(np.average((grid - center) ** 2, weights=part), NARROWEST**2)
                    logs.append(norm.logpdf(grid, center, math.sqrt(variance)))
                    logs[-1] += math.log(part.sum())
                second = np.exp(logs[1] - np.logaddexp(*logs))[None, :]
            together = np.logaddexp(*logs)
            likelihood = one @ together
            if likelihood > best:
                best, density = likelihood, np.exp(together)
        center = one @ grid
        alone = one @ norm.logpdf(grid, center, math.sqrt(one @ (grid - center) ** 2))
        valley = missing_mass(density[None, :] / density.sum()).sum()
        assert index == pytest.approx(math.sqrt(valley + 1e-6) * (best - alone), rel=0.05)
    assert (np.diff(found) > 0).all()


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
    np.testing.assert_allclose(together, alone, rtol=1e-3)  # steps in single precision
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
