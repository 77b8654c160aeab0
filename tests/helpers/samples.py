"""One-dimensional samples shared by tests."""

import numpy as np

from volmar.evidence.densities import GRID, grid_shares


def known_samples():
    rng = np.random.default_rng(11)
    yield rng.normal(size=150)
    yield rng.exponential(size=400)
    yield rng.standard_t(3, 300)
    yield rng.random(200)
    yield np.concatenate([rng.normal(size=150), rng.normal(4, 0.5, 40)])
    yield np.concatenate([rng.normal(size=100), rng.normal(5, 1, 100), rng.normal(9, 1, 60)])


def binned(*samples):
    """Return fractions of points on a grid of 2.2 times the width of the middle 90 %."""
    found = []
    for x in samples:
        low, high = np.quantile(x, [0.05, 0.95])
        u = ((x - low) / (high - low) + 0.6) / 2.2
        u = u[(u >= 0) & (u <= 1)] * (GRID - 1)
        found.append(grid_shares(u[None, :], np.ones((1, u.size)), GRID)[0])
    return np.array(found)


def two_normals(n=200, distance=5.0, share=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) + distance * (np.arange(n) < share * n)


NULLS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "t3": lambda rng, n: rng.standard_t(3, n),
}


def has_one_hump(values):
    steps = [step for step in np.sign(np.diff(values)) if step]
    return steps == sorted(steps, reverse=True)
