"""Candidates whose border may be curved: held-out rows are scored by their distance to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.border_walk import Border, rows_kept
from volmar.evidence.dither import column_resolutions, dithered
from volmar.evidence.splits.held_out import Candidate, Scorer, SeenRows

# Rows that walk to a border. In many dimensions a walk is the longer the nearer it starts, because
# the nearest row of the other side lies sideways: a shallow valley that more rows would show.
MOST_WALKS = 1000

__all__ = ["MOST_WALKS", "fitted_border", "walk_candidate"]


def fitted_border(
    labels: Any,
    seen: Any,
    resolutions: NDArray,
    rng: np.random.Generator,
    *,
    name: str,
    transform: Callable[[Any], Any] | None = None,
) -> Border:
    """Return the border between the two clusters of seen rows, which are dithered.

    Parameters
    ----------
    labels : array-like of shape (m,)
        Clusters of the seen rows; -1 is noise.
    seen : matrix of shape (m, d)
        The seen rows.
    resolutions : ndarray of shape (d,)
        Of `volmar.evidence.column_resolutions`.
    rng : Generator
        Draws the noise.
    name : str
        Of the estimator, for an error.
    transform : callable, optional
        From rows to those in which distances are measured; the rows themselves if not given.
    """
    labels = np.asarray(labels)
    found = np.unique(labels[labels >= 0])
    if found.size > 2:
        raise ValueError(
            f"estimator {name} found {found.size} clusters, and a split has two. Use n_clusters=2."
        )
    members = np.flatnonzero(labels >= 0)
    sides = labels[members] == (found[-1] if found.size == 2 else -1)
    # Noise makes sparse rows dense: only those that are kept.
    kept = rows_kept(sides, seen.shape[1], rng)
    rows = dithered(seen[members[kept]], resolutions, rng)
    return Border(rows if transform is None else transform(rows), sides[kept], rng)


def walk_candidate(fit: Callable[[Any, int], Any]) -> Candidate:
    """Return the candidate that tests a split with a border of any shape.

    Parameters
    ----------
    fit : callable
        From rows and a seed to a clusterer fitted to them, with two clusters in `labels_`.
    """

    def learn(seen: SeenRows, rng: np.random.Generator) -> Scorer | None:
        try:
            model = fit(seen.rows, int(rng.integers(2**31 - 1)))
        except ValueError:
            return None
        resolutions = column_resolutions(seen.rows)
        name = type(model).__name__
        border = fitted_border(model.labels_, seen.rows, resolutions, rng, name=name)
        return Scorer(border.distances, MOST_WALKS)

    return Candidate(learn)
