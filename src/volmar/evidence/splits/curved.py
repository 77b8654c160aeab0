"""Candidate splits with a curved border, which score held-out rows by their distance to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.border_walk import Border, rows_kept
from volmar.evidence.dither import column_resolutions, dithered
from volmar.evidence.splits.held_out import Candidate, Scorer, SeenRows

# Maximum number of rows whose distance to a border is computed. In many dimensions, distances of
# rows close to the border are too large, because the nearest row of the other side lies sideways.
# This makes a shallow valley, which a test with more rows would detect.
MAX_WALKS = 1000

__all__ = ["MAX_WALKS", "fitted_border", "walk_candidate"]


def fitted_border(
    labels: Any,
    seen: Any,
    resolutions: NDArray,
    rng: np.random.Generator,
    *,
    name: str,
    transform: Callable[[Any], Any] | None = None,
) -> Border:
    """Return the border between two clusters of seen rows, after dithering.

    Parameters
    ----------
    labels : array-like of shape (m,)
        Clusters of the seen rows; -1 for noise, which is left out.
    seen : matrix of shape (m, d)
        The seen rows.
    resolutions : ndarray of shape (d,)
        Resolutions from `volmar.evidence.column_resolutions`.
    rng : Generator
        Random generator of the sample and of the noise.
    name : str
        Name of the estimator, for error messages.
    transform : callable, optional
        Function that maps rows to the space in which distances are measured. If None, distances
        are between the rows themselves.
    """
    labels = np.asarray(labels)
    found = np.unique(labels[labels >= 0])
    if found.size > 2:
        raise ValueError(
            f"estimator {name} found {found.size} clusters, but a split has two. Use n_clusters=2."
        )
    if found.size == 0:
        raise ValueError(
            f"estimator {name} labelled all {labels.size} rows of a half -1 (noise), so there is "
            "no split to test. Change its parameters."
        )
    members = np.flatnonzero(labels >= 0)
    sides = labels[members] == (found[-1] if found.size == 2 else -1)
    # Dithering makes sparse rows dense, so only the rows that are kept are dithered.
    kept = rows_kept(sides, seen.shape[1], rng)
    rows = dithered(seen[members[kept]], resolutions, rng)
    return Border(rows if transform is None else transform(rows), sides[kept], rng)


def walk_candidate(fit: Callable[[Any, int], Any]) -> Candidate:
    """Return a candidate for `held_out_test` whose split may have a border of any shape.

    Parameters
    ----------
    fit : callable
        Function of rows and a seed that returns a clusterer fitted to the rows, with two clusters
        in `labels_`.
    """

    def learn(seen: SeenRows, rng: np.random.Generator) -> Scorer | None:
        try:
            model = fit(seen.rows, int(rng.integers(2**31 - 1)))
        except ValueError:
            return None
        resolutions = column_resolutions(seen.rows)
        name = type(model).__name__
        border = fitted_border(model.labels_, seen.rows, resolutions, rng, name=name)
        return Scorer(border.distances, MAX_WALKS)

    return Candidate(learn)
