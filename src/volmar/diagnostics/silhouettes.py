"""Silhouettes of a sample of the rows, sorted within clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import silhouette_samples

from volmar._checks import check_count, check_random_state
from volmar._input import check_matrix
from volmar._text import counted
from volmar.metrics.contingency import distinct_labels, labels_of_rows, sampled_rows


@dataclass(frozen=True, eq=False)
class Silhouettes:
    """Silhouettes of sampled rows.

    `values` holds the silhouettes of each cluster in descending order, and `shares` the fraction
    of all rows in each cluster.
    """

    clusters: list[Any]
    values: list[NDArray] = field(repr=False)
    shares: NDArray
    n_sampled: int
    n_all: int

    @property
    def means(self) -> NDArray:
        """Mean silhouette of each cluster."""
        return np.array([one.mean() for one in self.values])

    @property
    def mean(self) -> float:
        """Mean silhouette of all rows, estimated from the sampled rows."""
        return float(self.shares @ self.means)

    @property
    def n_negative(self) -> int:
        """Number of sampled rows that are closer to another cluster than to their own."""
        return int(sum(np.count_nonzero(one < 0) for one in self.values))


def silhouettes(
    X: ArrayLike,
    labels: ArrayLike,
    *,
    max_rows: int = 2000,
    random_state: int | np.random.RandomState | None = None,
) -> Silhouettes:
    """Return the silhouettes of at most about `max_rows` rows, drawn from every cluster.

    A silhouette compares mean distances to clusters, so a higher sampling rate in small clusters
    does not bias it.
    """
    check_count("max_rows", max_rows, low=2)
    rows: Any = check_matrix(X)
    n = rows.shape[0]
    names, codes = distinct_labels(labels_of_rows(labels, n))
    if not 2 <= names.size < n:
        raise ValueError(
            f"labels has {counted(names.size, 'cluster')} of {n} rows. Silhouettes "
            "need at least two clusters, and fewer clusters than rows."
        )
    # At least ten rows of a small cluster, unless there are too many clusters.
    at_least = int(np.clip(max_rows // names.size, 1, 10))
    some = sampled_rows(codes, max_rows, check_random_state(random_state), at_least)
    if some.size == names.size:  # one row per cluster: all silhouettes are 0 by definition
        values = np.zeros(some.size)
    else:
        values = silhouette_samples(rows[some], codes[some])
    by_cluster = [np.sort(values[codes[some] == c])[::-1] for c in range(names.size)]
    shares = np.bincount(codes) / n
    return Silhouettes(names.tolist(), by_cluster, shares, some.size, n)
