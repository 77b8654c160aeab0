"""Rows in groups, and their test."""

import numpy as np
from sklearn.cluster import KMeans


def blobs(n=240, distance=6.0, share=0.5, d=4, seed=0):
    """Normal rows, a random fraction of which is shifted along the second feature."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[: round(share * n), 1] += distance
    return X


def groups(n=400, distance=6.0, share=0.5, d=4, seed=0):
    """Normal rows, the first fraction of which is shifted along the second feature."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[: round(share * n), 1] += distance
    return X


def ring(n=400, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angle), np.sin(angle)]) + noise * rng.normal(size=(n, 2))


def kmeans(k=2, seed=0):
    return KMeans(k, n_init=2, random_state=seed)


def two(n=300, distance=7.0, seed=0):
    """Two groups along the first of three columns."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    y = (np.arange(n) % 2).astype(np.int64)
    X[:, 0] += distance * y
    return X, y


def overlapping_groups(rng, k=4, n=80, d=3, spread=3.0):
    """Overlapping groups of different sizes, and labels that are wrong for some rows."""
    y = np.sort(rng.choice(k, n, p=np.arange(1, k + 1) / (k * (k + 1) / 2)))
    y[:k] = np.arange(k)
    X = spread * rng.standard_normal((k, d))[y] + rng.standard_normal((n, d))
    return X, np.where(rng.random(n) < 0.15, rng.integers(0, k, n), y)
