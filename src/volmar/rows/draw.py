"""Rows drawn at random: the same ones in memory and in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.rows.blocks.vector import RowVector


def drawn_rows(n_rows: int, weights: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of positive weight without replacement.

    Which ones depends on the generator, on `n_rows` and on which weights are 0, and not on how
    the rows are cut into blocks.

    Parameters
    ----------
    n_rows : int
        Number of all rows.
    weights : ndarray of shape (n,), RowVector or None
        Their weights.
    count : int
        How many to draw; all, where there are no more.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    ndarray of int
        Numbers of rows, ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import drawn_rows
    >>> drawn_rows(5, np.array([1.0, 0.0, 1.0, 0.0, 2.0]), 10, np.random.default_rng(0))
    array([0, 2, 4])
    """
    size = n_rows if weights is None else int(np.count_nonzero(weights))
    is_part = size > count
    ranks = np.sort(rng.choice(size, count, replace=False)) if is_part else np.arange(size)
    if weights is None:
        return ranks
    if isinstance(weights, RowVector):
        return (weights > 0).first_beyond(ranks)
    return np.flatnonzero(weights)[ranks]


def drawn_by_weight(n_rows: int, weights: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows with probabilities in proportion to their weights, with replacement.

    Without weights they are drawn without replacement. Which ones does not depend on how the rows
    are cut into blocks.

    Parameters
    ----------
    n_rows : int
        Number of all rows.
    weights : ndarray of shape (n,), RowVector or None
        Their weights.
    count : int
        How many to draw.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    ndarray of int
        Numbers of rows, ascending.
    """
    if weights is None:
        return drawn_rows(n_rows, None, count, rng)
    return first_beyond(weights, np.sort(rng.random(count)) * float(weights.sum()))


def first_beyond(weights: Any, targets: np.ndarray) -> np.ndarray:
    """Return the numbers of the first rows where the running sum of weights is above each target.

    Parameters
    ----------
    weights : ndarray of shape (n,) or RowVector
        Not negative.
    targets : ndarray of shape (m,)
        Of a target that the whole sum is not above, it is the last row with a weight.
    """
    if isinstance(weights, RowVector):
        return weights.first_beyond(targets)
    found = np.searchsorted(np.cumsum(weights), targets, side="right")
    return np.minimum(found, np.flatnonzero(weights)[-1])
