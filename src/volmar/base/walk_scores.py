"""Scores of held-out rows by a clustering whose border may be curved."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.evidence import Border, column_resolutions, dithered, dithered_scores
from volmar.evidence.border_walk import rows_kept

__all__ = ["fitted_border", "walk_scores"]


def walk_scores(
    model: Any, seen: Any, unseen: Any, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the signed distances of held-out rows to the border between two fitted clusters.

    They stand for the scores of a hyperplane where the model has none: `volmar.evidence.hump_test`
    is valid for them. Columns of few values are dithered in all rows
    (`volmar.evidence.dithered`).

    Parameters
    ----------
    model : clusterer
        Fitted to the seen rows, with two clusters in `labels_`; rows of label -1 are noise and
        belong to neither.
    seen : matrix of shape (m, d)
        Rows that the model was fitted to, dense or CSR.
    unseen : matrix of shape (n, d)
        Held-out rows.
    rng : Generator
        Draws the noise, and from the seen rows where there are many.

    Returns
    -------
    ndarray of shape (n,)
        Positive for the cluster with the larger label; all 0 where there is one cluster.
    """
    resolutions = column_resolutions(seen)
    border = fitted_border(model.labels_, seen, resolutions, rng, name=type(model).__name__)
    return dithered_scores(border.distances, unseen, resolutions, rng)


def fitted_border(
    labels: Any, seen: Any, resolutions: NDArray, rng: np.random.Generator, *, name: str
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
    return Border(dithered(seen[members[kept]], resolutions, rng), sides[kept], rng)
