"""Summary of a table for drift tests under one model, in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# Number of quantile bins of the first table in which distances from the centres are counted.
N_BINS = 10


@dataclass(frozen=True)
class CategoryCounts:
    """Numbers of rows: of the frequent values of a categorical column, of others, and missing."""

    counts: dict[str, int]
    n_other: int = 0
    n_missing: int = 0

    @classmethod
    def of_codes(
        cls, codes: NDArray, values: Sequence[str], known: Mapping[str, int] | None = None
    ) -> Self:
        """Return counts of values from their codes, -1 for missing values.

        All values in `known` are counted separately, and at most 100 others.
        """
        n = np.bincount(codes[codes >= 0], minlength=len(values))
        order = np.argsort(-n, kind="stable").tolist()
        kept = [i for i in order if known is not None and values[i] in known]
        new = [i for i in order if known is None or values[i] not in known]
        kept += new[:100]
        counts = {str(values[i]): int(n[i]) for i in kept if n[i] > 0}
        return cls(counts, int(n.sum()) - sum(counts.values()), int(np.sum(codes < 0)))

    def joined(self, other: Self) -> Self:
        """Return the counts of both sets of rows together."""
        names = dict.fromkeys([*self.counts, *other.counts])
        counts = {name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names}
        return type(self)(counts, self.n_other + other.n_other, self.n_missing + other.n_missing)


@dataclass(frozen=True, eq=False)
class DriftSummary:
    """Sizes, means and variances of clusters, and distances of rows from the centres.

    The centres, the scale of each column and the quantiles of the distances are those of the first
    table. The summary of a second table is made with the first as its `reference`.

    `means` and `squares` (k, d) are the means in each cluster and the sums of squared deviations
    from them. `centers` are the means of the first table, zero for clusters without rows, and
    `scales` (d,) the standard deviations within its clusters, 1 for constant columns. `edges` (k,
    9) are the deciles of the distances of its rows from their centre, and `distance_counts` (k,
    10) the numbers of rows between them. `missing` counts the missing values of numerical columns
    that have any, `n_left_out` the rows without a cluster.
    """

    names: list[str]
    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]
    centers: NDArray[np.float64]
    scales: NDArray[np.float64]
    edges: NDArray[np.float64]
    distance_counts: NDArray[np.int64]
    categories: dict[str, CategoryCounts] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    n_left_out: int = 0

    @property
    def n_rows(self) -> int:
        """Number of rows with a cluster."""
        return int(self.counts.sum())

    @classmethod
    def of_rows(
        cls,
        X: Any,
        labels: NDArray,
        k: int,
        names: Sequence[str],
        *,
        reference: DriftSummary | None = None,
    ) -> Self:
        """Return the summary of rows, dense or CSR, with clusters 0 to k - 1, in O(n d).

        Rows with a negative label are left out and counted in `n_left_out`. Without a `reference`,
        the rows are the first table.
        """
        inside = np.flatnonzero(labels >= 0)
        n_left_out = labels.size - inside.size
        if n_left_out:
            X, labels = X[inside], labels[inside]
        counts = np.bincount(labels, minlength=k)
        means, squares = moments_within(X, labels, counts)
        if reference is not None:
            centers, scales, edges = reference.centers, reference.scales, reference.edges
            distances = _distances(X, labels, centers, scales)
        else:
            within = squares.sum(axis=0) / max(labels.size - np.count_nonzero(counts), 1)
            varies = within > 1e-24 * np.square(means).max(axis=0, initial=0.0)
            centers, scales = means, np.where(varies, np.sqrt(within), 1.0)
            distances = _distances(X, labels, means, scales, counts)
            edges = np.zeros((k, N_BINS - 1))
            for j in np.flatnonzero(counts):
                edges[j] = np.quantile(distances[labels == j], np.arange(1, N_BINS) / N_BINS)
        moments = (counts, means, squares, centers, scales)
        found = _counted(distances, labels, edges)
        return cls(list(names), *moments, edges, found, n_left_out=n_left_out)

    def joined(self, other: Self) -> Self:
        """Return the summary of both sets of rows, which must have the same reference."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1)
        shift = other.means - self.means
        squares = self.squares + other.squares + (share * self.counts)[:, None] * shift**2
        names = dict.fromkeys([*self.missing, *other.missing])
        return replace(
            self,
            counts=counts,
            means=self.means + share[:, None] * shift,
            squares=squares,
            distance_counts=self.distance_counts + other.distance_counts,
            categories={
                name: one.joined(other.categories[name])
                for name, one in self.categories.items()
                if name in other.categories
            },
            missing={n: self.missing.get(n, 0) + other.missing.get(n, 0) for n in names},
            n_left_out=self.n_left_out + other.n_left_out,
        )

    @property
    def variances(self) -> NDArray[np.float64]:
        """Variance of each column in each cluster, (k, d); 0 for clusters of one row."""
        return self.squares / np.maximum(self.counts - 1, 1)[:, None]

    def median_distances(self) -> NDArray[np.float64]:
        """Return the median distance of the rows of each cluster, interpolated between deciles."""
        medians = np.full(self.counts.size, np.nan)
        for j in np.flatnonzero(self.distance_counts.sum(axis=1)):
            below = np.cumsum(self.distance_counts[j])[:-1] / self.distance_counts[j].sum()
            medians[j] = np.interp(0.5, below, self.edges[j])
        return medians


def moments_within(X: Any, labels: NDArray, counts: NDArray) -> tuple[NDArray, NDArray]:
    """Return the mean and the sum of squared deviations of each cluster and column."""
    k, d = counts.size, X.shape[1]
    member = sparse.csr_array(
        (np.ones(labels.size), (labels, np.arange(labels.size))), shape=(k, labels.size)
    )
    mass = np.maximum(counts, 1)[:, None]
    if sparse.issparse(X):
        means = (member @ X).toarray() / mass
        squares = (member @ X.multiply(X).tocsr()).toarray() - counts[:, None] * means**2
        return means, np.maximum(squares, 0.0)
    means, squares = np.zeros((k, d)), np.zeros((k, d))
    for part in _tiles(*X.shape):
        means += member[:, part] @ np.asarray(X[part], dtype=np.float64)
    means /= mass
    for part in _tiles(*X.shape):
        squares += member[:, part] @ np.square(X[part] - means[labels[part]])
    return means, squares


def _distances(
    X: Any, labels: NDArray, centers: NDArray, scales: NDArray, counts: NDArray | None = None
) -> NDArray:
    r"""Return the root mean square of (x - centre) / scale over the columns, for each row.

    With `counts`, the rows are those from which centres and scales were estimated. Each row is
    then left out of its own centre and scale, to make the distances comparable with those of new
    rows. With f = n / (n - 1) for a cluster of n rows and :math:`\nu` degrees of freedom, the
    square of a column is

    .. math:: \frac{f^2 (x - m)^2}{s_{-}^2}, \qquad
              s_{-}^2 = \frac{\nu s^2 - f (x - m)^2}{\nu - 1}.
    """
    n, d = X.shape
    leave, nu = np.ones(centers.shape[0]), 0
    if counts is not None:
        leave = np.where(counts > 1, counts / np.maximum(counts - 1, 1), 0.0)
        nu = n - np.count_nonzero(counts)
    if sparse.issparse(X):
        Z = X.multiply(1.0 / scales).tocsr()
        own = centers / scales
        inner = np.asarray((Z @ own.T)[np.arange(n), labels])
        square = np.asarray(Z.multiply(Z).sum(axis=1)).ravel() - 2.0 * inner
        square += np.square(own).sum(axis=1)[labels]
        return leave[labels] * np.sqrt(np.maximum(square, 0.0) / d)  # scales include the row
    found = np.empty(n)
    for part in _tiles(n, d):
        square = np.square((X[part] - centers[labels[part]]) / scales)
        if nu > 2:
            f = leave[labels[part], None]
            square = f**2 * square * (nu - 1) / np.maximum(nu - f * square, 1.0)
        found[part] = np.sqrt(square.mean(axis=1))
    return found


def _counted(distances: NDArray, labels: NDArray, edges: NDArray) -> NDArray[np.int64]:
    """Return the number of rows of each cluster between the edges of its distances."""
    k = edges.shape[0]
    found = np.zeros((k, N_BINS), dtype=np.int64)
    for j in range(k):
        place = np.searchsorted(edges[j], distances[labels == j], side="left")
        found[j] = np.bincount(place, minlength=N_BINS)
    return found


def _tiles(n: int, d: int) -> Iterator[slice]:
    step = max(1, 2**20 // max(d, 1))
    for start in range(0, n, step):
        yield slice(start, start + step)
