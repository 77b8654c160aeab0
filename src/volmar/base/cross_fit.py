"""Judge a split by rows that had no part in finding it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.base.recursion import separation_along
from volmar.evidence import combine_p_values, hump_test
from volmar.rows import column_resolutions, dithered_scores

__all__ = ["Judged", "cross_fit"]

# How often the rows are parted; from so many rows on once is enough.
N_SPLITS = 3
LARGE = 20_000
# Draws of the test for every unit of one over the level: the least p-value is well below it.
DRAWS_FOR_LEVEL = 8.0
FEWEST_DRAWS = 400


class Judged(NamedTuple):
    """P-value of one hump, and the separation along held-out scores."""

    p_value: float
    separation: float


def cross_fit(
    fit: Callable[[Any, NDArray | None, int], Any],
    X: Any,
    weights: NDArray | None,
    *,
    seed: int,
    level: float,
) -> Judged:
    """Test whether rows have more than one hump along hyperplanes learnt from other rows.

    The rows are parted at random into halves; a hyperplane is learnt on each and the scores of the
    other are tested for one hump (`volmar.evidence.hump_test`). That is repeated, and the p-values
    are combined by a rule that is valid under any dependence. Scores must be linear in the rows:
    a curved score can have two humps where the rows have one. Columns of few values are dithered
    in the rows that are tested (`volmar.rows.dithered`): a binary column is no gap by itself.

    Parameters
    ----------
    fit : callable
        From rows, their weights and a seed to a fitted clusterer for two with a linear
        `decision_function`.
    X : matrix of shape (n, d)
        Rows.
    weights : ndarray of shape (n,) or None
        Sample weights, for the fits alone: a row is one observation, whatever its weight.
    seed : int
        Of halves, fits and draws.
    level : float
        Level at which the p-value will be looked at; the smaller it is the more is drawn.
    """
    n = X.shape[0]
    rng = np.random.default_rng(seed)
    n_draws = max(FEWEST_DRAWS, int(np.ceil(DRAWS_FOR_LEVEL / level)))
    resolutions = column_resolutions(X)
    p_values, separations = [], []
    for _ in range(1 if n >= LARGE else N_SPLITS):
        order = rng.permutation(n)
        halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
        for seen, unseen in (halves, halves[::-1]):
            w = None if weights is None else weights[seen]
            try:
                model = fit(X[seen], w, int(rng.integers(2**31 - 1)))
            except ValueError:
                p_values.append(1.0)
                separations.append(0.0)
                continue
            scores = dithered_scores(model.decision_function, X[unseen], resolutions, rng)
            counted = scores if weights is None else scores[weights[unseen] > 0]
            p_values.append(hump_test(counted, rng, n_draws=n_draws).p_value)
            w = None if weights is None else weights[unseen]
            separations.append(separation_along(scores, scores > 0, w))
    return Judged(combine_p_values(p_values), float(np.mean(separations)))
