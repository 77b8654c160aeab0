"""Matrices with and without reflections."""

import functools
import itertools
import math

import numpy as np
from hypothesis import strategies as st

from volmar.graphs import gaussian_similarity, laplacian

SIGMA = 1 / math.sqrt(2)


def kernel(X, sigma=SIGMA):
    return gaussian_similarity(X, sigma=sigma)


def shifted_laplacian(X, sigma=SIGMA):
    return laplacian(kernel(X, sigma)) + np.eye(len(X)) / len(X)


@functools.cache
def involutions(n):
    """All permutations but the identity that are their own inverses."""
    identity = tuple(range(n))
    return [
        np.array(p)
        for p in itertools.permutations(identity)
        if p != identity and all(p[p[i]] == i for i in identity)
    ]


def all_axes(Q, threshold):
    return [
        p
        for p in involutions(len(Q))
        if np.abs(Q - Q[np.ix_(p, p)]).max() <= threshold + 1e-15 * np.abs(Q).max()
    ]


def is_an_axis(Q, axis, threshold):
    identity = np.arange(len(Q))
    return (
        not np.array_equal(axis, identity)
        and np.array_equal(axis[axis], identity)
        and np.abs(Q - Q[np.ix_(axis, axis)]).max() <= threshold
    )


@st.composite
def small_matrices(draw, max_rows=7, max_value=2):
    n = draw(st.integers(2, max_rows))
    size = n * (n + 1) // 2
    entries = draw(st.lists(st.integers(0, max_value), min_size=size, max_size=size))
    Q = np.zeros((n, n))
    Q[np.triu_indices(n)] = entries
    return Q + np.triu(Q, 1).T


def polygon(n):
    angles = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angles), np.sin(angles)])
