"""Dithering: a value is known only to within the resolution of its column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["column_resolutions", "dithered", "dithered_scores"]

# Rows from which resolutions are computed: so many entries, within these limits.
FEWEST_ROWS, MOST_ROWS, MOST_ENTRIES = 100, 500, 64_000
# Entries of sparse rows that are made dense at once.
BLOCK = 4_000_000
# Steps below this share of the standard deviation leave no gap that a test could see.
NEGLIGIBLE = 0.05


def column_resolutions(X: Any) -> NDArray[np.float64]:
    """Return the resolution of each column: the median step between its distinct values.

    Columns without ties are continuous, and so are those with steps below a twentieth of their
    standard deviation: their resolution is 0.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows, dense or CSR. At most 500 of them (100 where there are many columns), evenly spaced,
        are looked at.

    Returns
    -------
    ndarray of shape (d,)
        In the units of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import column_resolutions
    >>> column_resolutions(np.array([[0.0, 1.3], [1.0, 2.2], [1.0, 3.4], [0.0, 0.1]]))
    array([1., 0.])
    """
    n, d = X.shape
    most = int(np.clip(MOST_ENTRIES // max(d, 1), FEWEST_ROWS, MOST_ROWS))
    few = X[:: max(1, -(-n // most))]
    few = few.toarray() if sparse.issparse(few) else np.asarray(few)
    unit = np.maximum(np.abs(few).max(axis=0, initial=0.0), np.finfo(few.dtype).tiny)
    few = few / unit  # steps and squares of any magnitude are numbers
    steps = np.sort(np.diff(np.sort(few, axis=0), axis=0), axis=0).astype(np.float64)
    m, n_ties = len(steps), np.count_nonzero(steps == 0, axis=0)
    has_ties = (n_ties > 0) & (n_ties < m)
    # The ties come first: the median of what follows them.
    last = max(m - 1, 0)
    places = [np.minimum((n_ties + m - 1 + odd) // 2, last) for odd in (0, 1)]
    medians = np.zeros(d)
    if m:
        medians = 0.5 * sum(np.take_along_axis(steps, at[None, :], axis=0)[0] for at in places)
    resolutions = np.where(has_ties, medians, 0.0)
    deviations = few.std(axis=0, dtype=np.float64)
    return np.where(resolutions > NEGLIGIBLE * deviations, resolutions * unit, 0.0)


def dithered(X: Any, resolutions: NDArray, rng: np.random.Generator) -> Any:
    """Return rows with uniform noise of the width of each column's resolution.

    A binary column becomes a step without a valley, integers of a wide range hardly change. Only
    what looks for gaps may see such rows: clusters are labels of the rows as they are.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Rows; sparse ones come back dense where there is noise to add.
    resolutions : ndarray of shape (d,)
        Of `column_resolutions`.
    rng : Generator
        Draws the noise.

    Returns
    -------
    matrix of shape (n, d)
        In the dtype of X; X itself where all resolutions are 0.
    """
    columns = np.flatnonzero(resolutions)
    if columns.size == 0:
        return X
    rows = X.toarray() if sparse.issparse(X) else np.array(X)
    noise = rng.uniform(-0.5, 0.5, (rows.shape[0], columns.size)) * resolutions[columns]
    rows[:, columns] += noise.astype(rows.dtype)
    return rows


def dithered_scores(
    score: Callable[[Any], NDArray], X: Any, resolutions: NDArray, rng: np.random.Generator
) -> NDArray:
    """Return the scores of dithered rows; sparse ones are dense a block at a time.

    Parameters
    ----------
    score : callable
        From rows to scores of shape (n,).
    X : matrix of shape (n, d)
        Rows, dense or CSR.
    resolutions : ndarray of shape (d,)
        Of `column_resolutions`.
    rng : Generator
        Draws the noise.
    """
    if not sparse.issparse(X) or not resolutions.any():
        return score(dithered(X, resolutions, rng))
    step = max(1, BLOCK // X.shape[1])
    blocks = range(0, X.shape[0], step)
    return np.concatenate([score(dithered(X[i : i + step], resolutions, rng)) for i in blocks])
