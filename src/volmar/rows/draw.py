"""Random draws of rows, which are the same in memory and in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.rows.blocks.vector import RowVector


def drawn_rows(n_rows: int, weights: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of positive weight without replacement.

    The draw depends on the generator, on `n_rows` and on the positions of zero weights, but not on
    the division of the rows into blocks.

    Parameters
    ----------
    n_rows : int
        Number of all rows.
    weights : ndarray of shape (n,), RowVector or None
        Sample weights. If None, all rows can be drawn.
    count : int
        Number of rows to draw. All rows are returned if there are no more.
    rng : numpy.random.Generator
        Random number generator.

    Returns
    -------
    ndarray of int
        Row numbers in ascending order.

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
    """Draw rows with probabilities proportional to their weights, with replacement.

    Without weights, rows are drawn without replacement. The draw does not depend on the division
    of the rows into blocks.

    Parameters
    ----------
    n_rows : int
        Number of all rows.
    weights : ndarray of shape (n,), RowVector or None
        Sample weights.
    count : int
        Number of rows to draw.
    rng : numpy.random.Generator
        Random number generator.

    Returns
    -------
    ndarray of int
        Row numbers in ascending order.
    """
    if weights is None:
        return drawn_rows(n_rows, None, count, rng)
    return first_beyond(weights, np.sort(rng.random(count)) * float(weights.sum()))


def first_beyond(weights: Any, targets: np.ndarray) -> np.ndarray:
    """Return for each target the first row at which the cumulative weight exceeds it.

    Parameters
    ----------
    weights : ndarray of shape (n,) or RowVector
        Non-negative weights.
    targets : ndarray of shape (m,)
        Targets. If the total weight does not exceed a target, the last row of positive weight is
        returned for it.
    """
    if isinstance(weights, RowVector):
        return weights.first_beyond(targets)
    found = np.searchsorted(np.cumsum(weights), targets, side="right")
    return np.minimum(found, np.flatnonzero(weights)[-1])
