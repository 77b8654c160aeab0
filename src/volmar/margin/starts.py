"""Labels to start from, and the choice among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from volmar.margin.engine import MarginResult, maximise_margin
from volmar.margin.problem import MarginProblem
from volmar.margin.sources import CutSource
from volmar.solvers import Status

__all__ = ["best_start", "k_means_start", "principal_start", "random_start"]

# Steps of power iteration: enough for the signs, which are all that is asked for.
POWER_STEPS = 20


def k_means_start(X: Any, weights: NDArray | None, seed: int, n_init: int = 1) -> NDArray:
    """Return the labels of k-means."""
    with warnings.catch_warnings():
        # Of rows that are all the same the margin says so itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(2, n_init=n_init, random_state=seed).fit_predict(X, sample_weight=weights)


def principal_start(source: CutSource, rng: np.random.Generator) -> NDArray:
    """Return the sides of the mean along the leading principal component: k-means, relaxed."""
    f = rng.standard_normal(source.n_rows).astype(source.dtype)
    for _ in range(POWER_STEPS):
        f = _scores_of(source, f)
        size = float(np.abs(f).max())
        if size == 0.0:
            break
        f /= f.dtype.type(size)
    return f > 0


def random_start(source: CutSource, rng: np.random.Generator) -> NDArray:
    """Return the sides of the mean along a random combination of the rows."""
    return _scores_of(source, rng.standard_normal(source.n_rows).astype(source.dtype)) > 0


def _scores_of(source: CutSource, v: NDArray) -> NDArray:
    v = v / source.n_rows if source.shares is None else v * source.shares
    return source.scores(source.vector(v.astype(source.dtype, copy=False)))


def best_start(
    problem: MarginProblem, candidates: Iterable[NDArray], *, C: float, tol: float
) -> MarginResult:
    """Descend from each start at a small C, and return the one with the lowest J.

    J compares starts: the rows, C and the balance are the same for all.
    """
    best: MarginResult | None = None
    for labels in candidates:
        result = maximise_margin(problem, labels, C=C, tol=tol)
        usable = result.status in (Status.CONVERGED, Status.CYCLE, Status.MAX_ITER)
        if best is None or (usable and (result.objective < best.objective or not best.rho > 0)):
            best = result
    if best is None:
        raise ValueError("there is no start to choose from; n_init must be at least 1.")
    return best
