"""Data with fewer distinct rows than n_clusters: every distinct row becomes a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from volmar._clones import silent_clone
from volmar._warn import warn_user
from volmar.rows import is_in_memory

# Maximum number of entries compared at once.
MAX_ENTRIES = 2**16


def fit_distinct(model: Any, X: Any, weights: Any) -> bool:
    """Fit one cluster per distinct row if X has fewer distinct rows than n_clusters.

    Return whether this was done. It is not done if `init` holds labels, nor if all rows are equal
    and the method cannot find a single cluster: the method itself then raises an error.
    """
    if not (is_in_memory(X) and isinstance(getattr(model, "init", ""), str)):
        return False
    if model._is_pairwise() and not hasattr(model, "kernel"):
        return False  # nodes of a graph with the same edges need not be copies
    n_distinct = count_distinct_rows(X, weights, model.n_clusters)
    if not model._min_clusters <= n_distinct < model.n_clusters:
        return False
    fewer = silent_clone(model).set_params(n_clusters=n_distinct)
    model._hand_on(fewer)._fit_rows(X, weights)  # the fit of `model` warns of its status
    model._take_over(fewer)
    warn_user(
        f"Found {n_distinct} clusters where n_clusters={model.n_clusters}: X has only "
        f"{n_distinct} different rows of positive weight. Lower n_clusters.",
        ConvergenceWarning,
    )
    return True


def count_distinct_rows(X: Any, weights: NDArray | None, most: int) -> int:
    """Return the number of distinct rows of positive weight, at most `most`.

    Rows are read only until `most` distinct rows are found, usually the first few.
    """
    counted = np.arange(X.shape[0]) if weights is None else np.flatnonzero(weights > 0)
    step = max(1, MAX_ENTRIES // max(X.shape[1], 1))
    seen: set[bytes] = set()
    start = 0
    while start < counted.size and len(seen) < most:
        # The first `most` rows are nearly always enough.
        stop = start + (min(most, step) if start == 0 else step)
        rows = X[counted[start:stop]]
        dense = rows.toarray() if sparse.issparse(rows) else rows
        seen.update(row.tobytes() for row in dense + 0.0)  # -0.0 is 0.0
        start = stop
    return min(len(seen), most)
