"""Minimum density hyperplanes for two clusters (Pavlidis, Hofmeyr and Tasoulis, JMLR 2016)."""

import numpy as np
from scipy.optimize import minimize

NAME = "minimum density hyperplane"
# Starts, half-widths of the slab in standard deviations, and the minimum share of a side.
N_STARTS, OFFSETS, MIN_SHARE = 10, (0.0, 0.3, 0.6, 0.9), 0.02


def available() -> bool:
    return True


def fit_predict(X, n_clusters, seed):
    """Return the sides of the hyperplane with the deepest valley of those found from all starts.

    L-BFGS minimises the kernel density on the hyperplane v'z = b within a slab around the mean,
    which grows from step to step. Columns are standardised.
    """
    if n_clusters != 2:
        raise ValueError(f"n_clusters={n_clusters} must be 2.")
    Z = X - X.mean(axis=0)
    deviation = Z.std(axis=0)
    Z = Z[:, deviation > 0] / deviation[deviation > 0]
    values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
    Z /= np.sqrt(values[-1])
    h = 0.9 * len(Z) ** -0.2
    found = []
    for start in _starts(Z, values, vectors, h, np.random.default_rng(seed)):
        v = start
        for offset in OFFSETS:
            v = minimize(
                _objective, 5.0 * v, (Z, h, offset), "L-BFGS-B", jac=True, options={"ftol": 1e-5}
            ).x
            v = v / np.linalg.norm(v)
            p = Z @ v
            b = _lowest(p, h, offset)
            share = np.mean(p > b)
            found.append((min(share, 1 - share) >= MIN_SHARE, _depth(p, b, h), p > b))
    return max(found, key=lambda one: one[:2])[2].astype(int)


def _starts(Z, values, vectors, h, rng):
    """Return the first principal direction, then the directions with the deepest valleys."""
    spread = np.sqrt(np.maximum(values, 0.0))[:, None]
    drawn = vectors @ (spread * rng.standard_normal((len(values), 2 * N_STARTS)))
    others = np.hstack([vectors[:, -2 : -2 * N_STARTS : -1], drawn, np.eye(len(values))])
    others /= np.linalg.norm(others, axis=0)
    depths = [_depth(p, _lowest(p, h, OFFSETS[-1]), h) for p in (Z @ others).T]
    best = np.argsort(depths)[::-1][: N_STARTS - 1]
    return [vectors[:, -1], *others[:, best].T]


def _densities(p, grid, h):
    """Return the kernel density at equidistant points at most h / 8 apart, from binned rows."""
    step = grid[1] - grid[0]
    reach = int(np.ceil(8 * h / step))
    bins = len(grid) + 2 * reach
    place = np.rint((p - grid[0]) / step).astype(int) + reach
    counts = np.bincount(place[(place >= 0) & (place < bins)], minlength=bins)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / h) ** 2)
    return np.convolve(counts, kernel, "valid") / (len(p) * h * np.sqrt(2 * np.pi))


def _grid(low, high, h):
    return np.linspace(low, high, max(3, int(np.ceil((high - low) / (h / 8))) + 1))


def _steepness(h):
    """Return L / eta: L is the largest slope of the density, and eta = h / 10."""
    return 10.0 * np.exp(-0.5) / (np.sqrt(2 * np.pi) * h**3)


def _lowest(p, h, offset):
    """Return the cut b with the lowest penalised density."""
    if offset == 0.0:
        return 0.0
    edge = offset * p.std()
    grid = _grid(-edge - 0.05 * h, edge + 0.05 * h, h)
    penalty = _steepness(h) * np.maximum(np.abs(grid) - edge, 0.0) ** 2
    return float(grid[np.argmin(_densities(p, grid, h) + penalty)])


def _objective(w, Z, h, offset):
    """Return the lowest penalised density across w and its gradient, b held fixed."""
    length = np.linalg.norm(w)
    v = w / length
    p = Z @ v
    b, sigma = _lowest(p, h, offset), p.std()
    away = (b - p) / h
    kernel = np.exp(-0.5 * away**2) / (len(p) * h * np.sqrt(2 * np.pi))
    beyond = max(abs(b) - offset * sigma, 0.0)
    weights = kernel * away / h - 2 * _steepness(h) * beyond * offset * p / (sigma * len(p))
    gradient = weights @ Z
    value = kernel.sum() + _steepness(h) * beyond**2
    return value, (gradient - v * (v @ gradient)) / length


def _depth(p, b, h):
    """Return the depth of the valley at b relative to the density there."""
    there = max(_densities(p, np.array([b, b + h / 8]), h)[0], 1e-300)
    below, above = (
        _densities(p, _grid(*ends, h), h).max()
        for ends in ((min(p.min(), b) - h, b), (b, max(p.max(), b) + h))
    )
    return max(min(below, above) - there, 0.0) / there
