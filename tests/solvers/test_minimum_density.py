"""The density on hyperplanes: gradients by differences, binning against sums, certificates."""

from dataclasses import replace

import numpy as np
import pytest

from volmar.solvers.hyperplane_density import ETA, HEIGHT, RESOLUTION, HyperplaneDensity
from volmar.solvers.minimum_density import (
    MinimumDensityResult,
    descend,
    minimum_density,
    refined,
    visible_depth,
)
from volmar.solvers.result import Status

LIMITS = {"max_iter": 200, "tol": 1e-8}


def problem_of(X, weights=None, *, offset=0.9, bandwidth=None):
    shares = np.full(len(X), 1.0 / len(X)) if weights is None else weights / weights.sum()
    X = X - shares @ X
    h = 0.9 * len(X) ** -0.2 if bandwidth is None else bandwidth
    return HyperplaneDensity(lambda v: X @ v, lambda c: c @ X, shares, h, offset)


def exact(problem, p, b):
    """Return the penalised density of cuts b by its definition, row by row."""
    h, b = problem.bandwidth, np.atleast_1d(b)
    kernels = np.exp(-((b[:, None] - p) ** 2) / (2 * h**2)) / (np.sqrt(2 * np.pi) * h)
    steepness = 1 / (np.exp(0.5) * h**2 * np.sqrt(2 * np.pi)) / (ETA * h)
    sigma = np.sqrt(problem.shares @ p**2)
    beyond = np.maximum(np.abs(b) - problem.offset * sigma, 0.0)
    return kernels @ problem.shares + steepness * beyond**2


def two_groups(rng, n=200, d=4, share=0.4, apart=5.0):
    X = rng.standard_normal((n, d))
    X[: int(share * n), 0] += apart
    return X


@pytest.mark.parametrize("offset", [0.0, 0.2, 0.9, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_is_that_of_differences(seed, offset):
    rng = np.random.default_rng(seed)
    X = two_groups(rng, share=rng.uniform(0.1, 0.5))
    problem = problem_of(X, rng.uniform(0.5, 2.0, len(X)), offset=offset)
    v = 2.0 * rng.standard_normal(4)
    _, gradient = problem.value_and_gradient(v)
    step = 1e-5
    differences = [
        (problem.value_and_gradient(v + e)[0].value - problem.value_and_gradient(v - e)[0].value)
        / (2 * step)
        for e in step * np.eye(4)
    ]
    np.testing.assert_allclose(gradient, differences, atol=1e-8)
    assert abs(gradient @ v) < 1e-12  # along the sphere


@pytest.mark.parametrize("offset", [0.1, 0.5, 0.9, 2.0])
def test_lowest_cut_is_the_lowest_of_many(rng, offset):
    X = two_groups(rng)
    problem = problem_of(X, rng.integers(0, 3, len(X)).astype(float), offset=offset)
    for v in rng.standard_normal((5, 4)):
        p = problem.projections(v)
        cut = problem.lowest(p)
        sigma = problem.deviation(p)
        many = np.linspace(-3 * sigma, 3 * sigma, 20_001)
        assert cut.value == pytest.approx(exact(problem, p, cut.threshold)[0], abs=1e-12)
        assert cut.value <= exact(problem, p, many).min() + 1e-9
        assert abs(cut.threshold) <= offset * sigma + 0.5 * ETA * problem.bandwidth
        assert abs(cut.slope) < 1e-6


@pytest.mark.parametrize("bandwidth", [0.05, 0.3, 2.0])
def test_binned_densities_are_within_their_bound(rng, bandwidth):
    X = two_groups(rng, n=500)
    problem = problem_of(X, rng.uniform(0.0, 2.0, 500), offset=0.0, bandwidth=bandwidth)
    p = problem.projections(rng.standard_normal(4))
    grid, densities = problem.densities(p, -2.0, 3.0)
    kernels = np.exp(-0.5 * ((grid[:, None] - p) / bandwidth) ** 2) * HEIGHT / bandwidth
    errors = np.abs(densities - kernels @ problem.shares)
    assert grid[1] - grid[0] == pytest.approx(bandwidth / RESOLUTION)
    assert grid[0] == -2.0
    assert grid[-1] >= 3.0
    assert 0 < errors.max() <= HEIGHT / bandwidth / (8 * RESOLUTION**2)


def test_density_has_the_derivatives_of_differences(rng):
    X = two_groups(rng)
    problem = problem_of(X)
    p = problem.projections(rng.standard_normal(4))
    density, slope, curvature = problem.density(p, 0.3)
    (below, *_), (above, *_) = problem.density(p, 0.3 - 1e-4), problem.density(p, 0.3 + 1e-4)
    assert slope == pytest.approx((above - below) / 2e-4, abs=1e-6)
    assert curvature == pytest.approx((above - 2 * density + below) / 1e-8, abs=1e-4)


def test_relative_depth_by_its_definition(rng):
    X = two_groups(rng, apart=6.0)
    problem = problem_of(X, offset=0.9)
    p = problem.projections(np.eye(4)[0])
    b = problem.lowest(p).threshold
    places = np.linspace(p.min(), p.max(), 4001)
    free = replace(problem, offset=1e9)
    densities, there = exact(free, p, places), exact(free, p, b)[0]
    lower = min(densities[places < b].max(), densities[places > b].max())
    assert problem.relative_depth(p, b) == pytest.approx((lower - there) / there, rel=0.02)
    assert problem.relative_depth(p, float(p.max()) + 1.0) == 0.0
    assert problem.relative_depth(p, float(p.min()) - 1.0) == 0.0


def test_descent_is_certified_and_never_rises(rng):
    problem = problem_of(two_groups(rng))
    for v in rng.standard_normal((5, 4)):
        start = problem.value_and_gradient(v)[0].value
        found = descend(problem, v, **LIMITS)
        assert found.status is Status.CONVERGED
        assert found.is_stationary(1e-3)
        assert np.all(np.diff([start, *found.history]) <= 1e-12)
        assert np.linalg.norm(found.normal) == pytest.approx(1.0)
        again = found.check(problem)
        assert again.objective == pytest.approx(found.objective, abs=1e-12)
        assert again.residuals == pytest.approx(dict(found.residuals), abs=1e-9)
        np.testing.assert_array_equal(
            found.labels, problem.projections(found.normal) > found.threshold
        )


def test_no_direction_nearby_is_lower(rng):
    problem = problem_of(two_groups(rng))
    found = descend(problem, np.eye(4)[0], **LIMITS)
    for turn in rng.standard_normal((50, 4)):
        near = problem.value_and_gradient(found.normal + 0.01 * turn)[0].value
        assert near >= found.objective - 1e-6


def test_best_in_the_plane_by_brute_force(rng):
    """No local minimum from 1000 directions in the plane is deeper than the result."""
    X = rng.standard_normal((300, 2)) @ np.array([[2.0, 0.3], [0.0, 0.4]])
    X[:120] += [0.6, 1.9]
    problem = problem_of(X / X.std())
    found = minimum_density(
        problem, list(np.eye(2)), [0.0, 0.45, 0.9], noise=np.zeros(2), min_share=0.02, **LIMITS
    )
    angles = np.linspace(0, np.pi, 1000, endpoint=False)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    cuts = [problem.value_and_gradient(v)[0] for v in directions]
    values = np.array([cut.value for cut in cuts])
    is_minimum = (values <= np.roll(values, 1)) & (values <= np.roll(values, -1))
    depths = [
        problem.relative_depth(problem.projections(directions[i]), cuts[i].threshold)
        for i in np.flatnonzero(is_minimum)
    ]
    assert found.relative_depth >= 0.97 * max(depths)
    assert found.check(replace(problem, offset=found.offset)).objective == pytest.approx(
        found.objective, abs=1e-12
    )


def test_a_start_at_a_small_group_stays_there(rng):
    """From a cut at the mean, the descent reaches a group outside the first slabs."""
    X = two_groups(rng, n=1000, d=10, share=0.1, apart=6.0)
    problem = problem_of(X / X.std(axis=0))
    found = minimum_density(
        problem, [np.eye(10)[0]], [0.0, 0.7, 1.4], noise=np.zeros(10), min_share=0.02, **LIMITS
    )
    assert found.labels.sum() in range(90, 111)
    assert found.offset == 1.4


def test_sides_below_the_minimum_share_lose(rng):
    X = rng.standard_normal((300, 1))
    X[:3], X[3:6] = 14.0, -14.0
    X[150:] += 3.0
    problem = problem_of(X / X.std(), bandwidth=0.1)
    start = [np.ones(1)]
    sizes = []
    for share in (0.0, 0.05):
        found = minimum_density(
            problem, start, [0.0, 3.0], noise=np.zeros(1), min_share=share, **LIMITS
        )
        sizes.append(int(min(found.labels.sum(), 300 - found.labels.sum())))
    assert sizes[0] == 3
    assert sizes[1] > 100


def test_all_rows_on_one_side_is_the_cut_at_the_mean(rng):
    X = rng.exponential(size=(60, 1)) ** 4
    problem = problem_of(X / X.std(), offset=3.0, bandwidth=0.05)
    found = refined(MinimumDensityResult(np.inf, normal=np.ones(1)), problem, **LIMITS)
    assert 0 < found.labels.sum() < 60


def test_noise_hides_the_gaps_of_integers(rng):
    """The gap between 0 and 1 is not a valley, but that between 0..3 and 9..12 is."""
    X = rng.integers(0, 2, 400).astype(float)[:, None]
    X -= X.mean()
    problem = problem_of(X)
    narrow = replace(problem, bandwidth=0.1)
    assert visible_depth(narrow, np.ones(1), None, np.zeros(1)) > 100
    assert visible_depth(narrow, np.ones(1), None, np.array([4.0 / 12])) == 0.0
    X = (rng.integers(0, 4, 400) + 9.0 * rng.integers(0, 2, 400))[:, None]
    narrow = problem_of(X, bandwidth=0.2)
    assert visible_depth(narrow, np.ones(1), None, np.array([1.0 / 12])) > 1.0
