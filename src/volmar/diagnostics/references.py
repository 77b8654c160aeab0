"""Noise to compare with, where a split is curved and a test of its scores has no level."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.evidence import valley_mass

__all__ = ["KINDS", "reference_masses", "reference_p_value"]

# Noise with one hump: a round one, and one with a flat top and sharp edges.
KINDS = ("normal", "uniform")
# Sets of each kind; both halves of a set count.
N_SETS = 50

Scorer = Callable[[Any], NDArray]


def draw(X: Any, kind: str, rng: np.random.Generator) -> NDArray:
    """Return as many rows of noise as X has, with its mean and covariance.

    "normal", or "uniform" over a box along the principal axes.
    """
    dense = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    mean = dense.mean(axis=0)
    _, sizes, axes = np.linalg.svd(dense - mean, full_matrices=False)
    deviations = sizes / np.sqrt(len(dense))
    shape = (len(dense), sizes.size)
    if kind == "normal":
        z = rng.standard_normal(shape)
    else:
        z = np.sqrt(12.0) * rng.uniform(-0.5, 0.5, shape)
    return mean + (z * deviations) @ axes


def reference_masses(
    X: Any,
    fit: Callable[[Any], Scorer],
    rng: np.random.Generator,
    *,
    n_sets: int = N_SETS,
    tell: Callable[[], None] | None = None,
) -> dict[str, NDArray]:
    """Return the valleys of held-out scores on noise, by its kind: two for each set.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows whose mean and covariance the noise has.
    fit : callable
        From rows to what scores rows, as for the rows themselves.
    rng : Generator
        Draws.
    n_sets : int, default=50
        Sets of each kind of noise.
    tell : callable, optional
        Called after each set.
    """
    n = X.shape[0]
    masses: dict[str, NDArray] = {}
    for kind in KINDS:
        found = []
        for _ in range(n_sets):
            noise = draw(X, kind, rng)
            halves = noise[: n // 2], noise[n // 2 :]
            for seen, unseen in (halves, halves[::-1]):
                # Noise that cannot be split has no valley; the rows' own fits do the warning.
                with suppress(ValueError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found.append(valley_mass(fit(seen)(unseen)))
            if tell is not None:
                tell()
        masses[kind] = np.concatenate([found, np.zeros(2 * n_sets - len(found))])
    return masses


def reference_p_value(mass: float, masses: dict[str, NDArray]) -> float:
    """Return the larger of the p-values by each kind of noise."""
    return max(
        (1 + int(np.count_nonzero(noise >= mass))) / (1 + noise.size) for noise in masses.values()
    )
