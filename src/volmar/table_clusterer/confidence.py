"""Confidence that a row belongs to its cluster rather than to the next best one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._warn import warn_user

__all__ = ["confidence_of", "score_slopes", "warn_of_empty"]

# Maximum number of values to which the mixture is fitted: evenly spaced quantiles of the scores.
N_VALUES = 2000
N_STEPS, TOLERANCE = 200, 1e-4
# Share of the scores that is clipped at each end: one outlier would widen both distributions.
TRIMMED = 0.005


def score_slopes(scores: NDArray, labels: NDArray) -> dict[tuple[int, int], float]:
    r"""Return the slope of the logit for each pair of neighbouring clusters.

    For the rows of two clusters, the difference t of the two scores is modelled as a mixture of
    two normal distributions with a common variance, fitted by maximum likelihood (EM, which starts
    from the clusters). The log-odds are then linear in t with slope
    :math:`(\mu_a - \mu_b) / \sigma^2`.

    The smaller number of a pair comes first. A pair is left out if no row has its best and
    second-best scores in these two clusters.
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
    """Return the confidence of each row, from 0.5 (on the border between clusters) to 1.

    It is the logistic function of the slope times the difference between the scores of the row's
    cluster and the next best one. With a single cluster it is 1.
    """
    matrix = _columns(scores)
    labels = np.asarray(labels)
    if not slopes:
        return np.ones(len(labels))
    other = _next_best(matrix, labels)
    rows = np.arange(len(labels))
    lead = np.maximum(matrix[rows, labels] - matrix[rows, other], 0.0)
    # A pair without a fitted slope gets the smallest slope, which gives the lowest confidence.
    table = np.full((matrix.shape[1],) * 2, min(slopes.values()))
    for (a, b), slope in slopes.items():
        table[a, b] = table[b, a] = slope
    return 1.0 / (1.0 + np.exp(-np.minimum(table[labels, other] * lead, 700.0)))


def _columns(scores: NDArray) -> NDArray:
    """Return one column per cluster. A single score per row is that of the second of two."""
    scores = np.asarray(scores, dtype=np.float64)
    return scores if scores.ndim == 2 else np.column_stack([np.zeros(len(scores)), scores])


def _next_best(matrix: NDArray, labels: NDArray) -> NDArray[np.intp]:
    others = matrix.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    return np.argmax(others, axis=1)


def _slope(t: NDArray, is_second: NDArray) -> float:
    """Return the slope of the logit of the second group in t, 0 if there is only one group."""
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
        # Limit the slope: the variance of two groups of equal values would be 0.
        variance = max(float(variance), 1e-4)
        before, slope = slope, float(upper - lower) / variance
        logit = np.log(share / (1 - share)) + slope * (values - (upper + lower) / 2)
        second = 1.0 / (1.0 + np.exp(-np.clip(logit, -700.0, 700.0)))
        if abs(slope - before) <= TOLERANCE * abs(slope):
            break
    return max(slope, 0.0) / unit


def warn_of_empty(model: Any, labels: NDArray) -> None:
    """Warn about clusters that were fitted to dithered rows and have no row of the table."""
    wanted = model.get_params(deep=False)["n_clusters"]
    n_clusters = model.tree_.n_leaves if isinstance(wanted, str) else int(wanted)
    if empty := sorted(set(range(n_clusters)) - set(labels.tolist())):
        warn_user(
            f"Cluster {', '.join(map(str, empty))} of {n_clusters} has no rows. The clusters were "
            "fitted to rows with added noise, and many rows have equal values. Lower n_clusters."
        )
