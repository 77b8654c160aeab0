"""How clearly each row belongs to its cluster rather than the next one; clusters without rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["confidence_of", "score_slopes", "warn_of_empty"]

# Values that two normal distributions are fitted to: quantiles of the scores, evenly spaced.
N_VALUES = 2000
N_STEPS, TOLERANCE = 200, 1e-4
# Scores beyond these shares of the rows are moved in: one outlier would widen both groups.
TRIMMED = 0.005


def score_slopes(scores: NDArray, labels: NDArray) -> dict[tuple[int, int], float]:
    r"""Return the slope of the logit for each pair of clusters that are next to each other.

    Of the rows of two clusters the difference of their two scores, t, is taken as a mixture of two
    normal distributions with one variance, fitted by maximum likelihood (EM, which starts from the
    clusters). Then the log-odds are linear in t with slope :math:`(\mu_a - \mu_b) / \sigma^2`.

    The smaller number of a pair comes first. Pairs in which no row has its best and its
    second-best score are left out.
    """
    matrix = _columns(scores)
    labels = np.asarray(labels)
    if matrix.shape[1] < 2 or np.unique(labels).size < 2:
        return {}
    pairs = np.sort(np.column_stack([labels, _next_best(matrix, labels)]), axis=1)
    slopes = {}
    for a, b in np.unique(pairs, axis=0):
        rows = np.flatnonzero((labels == a) | (labels == b))
        slopes[int(a), int(b)] = _slope(matrix[rows, b] - matrix[rows, a], labels[rows] == b)
    return slopes


def confidence_of(
    scores: NDArray, labels: NDArray, slopes: dict[tuple[int, int], float]
) -> NDArray[np.float64]:
    """Return a number from 0.5 (on the border) to 1 for each row, of the fit or new.

    It is the logistic function of slope times the lead of the row's cluster over the next one, and
    1 where there is a single cluster.
    """
    matrix = _columns(scores)
    labels = np.asarray(labels)
    if not slopes:
        return np.ones(len(labels))
    other = _next_best(matrix, labels)
    rows = np.arange(len(labels))
    lead = np.maximum(matrix[rows, labels] - matrix[rows, other], 0.0)
    # A pair that no row of the fit was between gets the smallest slope, the careful choice.
    table = np.full((matrix.shape[1],) * 2, min(slopes.values()))
    for (a, b), slope in slopes.items():
        table[a, b] = table[b, a] = slope
    return 1.0 / (1.0 + np.exp(-np.minimum(table[labels, other] * lead, 700.0)))


def _columns(scores: NDArray) -> NDArray:
    """Return a column for each cluster; one score a row is that of the second of two."""
    scores = np.asarray(scores, dtype=np.float64)
    return scores if scores.ndim == 2 else np.column_stack([np.zeros(len(scores)), scores])


def _next_best(matrix: NDArray, labels: NDArray) -> NDArray[np.intp]:
    others = matrix.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    return np.argmax(others, axis=1)


def _slope(t: NDArray, is_second: NDArray) -> float:
    """Return the slope of the logit of the second group in t, 0 where there are not two."""
    if np.ptp(t) == 0 or is_second.all() or not is_second.any():
        return 0.0
    order = np.argsort(t, kind="stable")
    if len(t) > N_VALUES:
        order = order[np.linspace(0, len(t) - 1, N_VALUES).astype(np.intp)]
    second = is_second[order].astype(np.float64)
    values = t[order]
    low, high = np.quantile(values, [TRIMMED, 1 - TRIMMED])
    values = np.clip(values, low, high)
    unit = float(values.std()) or 1.0
    values = values / unit
    slope = 0.0
    for _ in range(N_STEPS):
        share = np.clip(second.mean(), 1e-6, 1 - 1e-6)
        upper = second @ values / (share * len(values))
        lower = (1 - second) @ values / ((1 - share) * len(values))
        variance = np.mean(second * (values - upper) ** 2 + (1 - second) * (values - lower) ** 2)
        # Two single values would have no spread at all: no slope is steeper than this one.
        variance = max(float(variance), 1e-4)
        before, slope = slope, float(upper - lower) / variance
        logit = np.log(share / (1 - share)) + slope * (values - (upper + lower) / 2)
        second = 1.0 / (1.0 + np.exp(-np.clip(logit, -700.0, 700.0)))
        if abs(slope - before) <= TOLERANCE * abs(slope):
            break
    return max(slope, 0.0) / unit


def warn_of_empty(model: Any, labels: NDArray) -> None:
    """Warn of clusters of a model that no row of the table, as it is, belongs to."""
    wanted = model.get_params(deep=False)["n_clusters"]
    n_clusters = model.tree_.n_leaves if isinstance(wanted, str) else int(wanted)
    if empty := sorted(set(range(n_clusters)) - set(labels.tolist())):
        warnings.warn(
            f"No row is in cluster {', '.join(map(str, empty))} of the {n_clusters} that were "
            "found among rows with noise, because rows share their values. Lower n_clusters.",
            UserWarning,
            stacklevel=2,
        )
