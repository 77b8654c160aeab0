"""Rows with a few labels."""

import numpy as np

from volmar.datasets import make_two_moons


def ring(n):
    """L_sym + I/n of a ring: all degrees are the same, and its lowest eigenvector constant."""
    L = np.eye(n) - (np.roll(np.eye(n), 1, axis=1) + np.roll(np.eye(n), -1, axis=1)) / 2
    return L + np.eye(n) / n


def some_labels(truth, per_class, seed=0):
    """Return labels with -1 for all rows except the given number of rows per class."""
    rng, classes = np.random.default_rng(seed), np.unique(truth)
    y = np.full(truth.size, -1)
    for c, count in zip(classes, np.broadcast_to(per_class, classes.size), strict=True):
        y[rng.choice(np.flatnonzero(truth == c), count, replace=False)] = c
    return y


def moons(n=300, seed=0, per_class=3, **settings):
    X, truth = make_two_moons(n, random_state=seed, **settings)
    return X, truth, some_labels(truth, per_class, seed)
