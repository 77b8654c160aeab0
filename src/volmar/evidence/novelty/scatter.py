"""Centres and a covariance for each cluster, and distances of rows to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from volmar._warn import quiet_fit

__all__ = ["ClusterScatter", "Sketch"]

# Rows with more columns are reduced to this number of columns by a random sketch.
WIDE = 256
# Up to FULL columns the full covariance is used; beyond, its RANK leading eigenvectors.
FULL, RANK = 100, 16
# Maximum number of cells of a cluster, and the minimum mean number of rows per cell. Cells let a
# cluster be of any shape.
MAX_CELLS, CELL_ROWS = 30, 20
# Maximum number of rows from which the cells of a cluster are found.
MAX_CELL_ROWS = 2000
# Prior weight of the pooled covariance, as a number of rows per column.
PRIOR = 0.3
# Minimum eigenvalue of a covariance, relative to the mean eigenvalue.
FLOOR = 1e-3
# Maximum number of entries of all eigenvectors. With more, clusters share the pooled eigenvectors.
MAX_ENTRIES = 2**23
# Number of rows whose distances are computed at once.
BLOCK = 8192


@dataclass(frozen=True)
class Sketch:
    """A random linear map from many columns to `WIDE` columns, independent of the data.

    Every column is added, with a random sign, to one random column of the result (a count sketch).
    Inner products are preserved in expectation, and the cost is linear in the nonzero entries.

    Attributes
    ----------
    bucket : ndarray of int, shape (d,)
        Column of the result that each column is added to.
    sign : ndarray of int, shape (d,)
        Sign of each column, 1 or -1.
    """

    bucket: NDArray[np.int64]
    sign: NDArray[np.int64]

    @classmethod
    def draw(cls, d: int, rng: np.random.RandomState) -> Self:
        """Draw a random sketch of d columns."""
        return cls(
            rng.randint(WIDE, size=d).astype(np.int64),
            (2 * rng.randint(2, size=d) - 1).astype(np.int64),
        )

    def of(self, X: Any) -> NDArray[np.float64]:
        """Return the sketch of rows, dense or CSR."""
        d = self.bucket.size
        matrix = sparse.csr_array(
            (self.sign.astype(np.float64), (np.arange(d), self.bucket)), shape=(d, WIDE)
        )
        found = X @ matrix
        return found.toarray() if sparse.issparse(found) else np.asarray(found)


@dataclass(frozen=True)
class ClusterScatter:
    r"""Centres and covariances of clusters, in standardised columns.

    The rows of a cluster are divided into cells by k-means. All cells of a cluster share one
    covariance, that of the rows about the centres of their cells. It is shrunk towards the pooled
    covariance, which is in turn shrunk towards a multiple of the identity (oracle approximating
    shrinkage). The distance of a row is the smallest squared Mahalanobis distance to a centre of
    its cluster. With more than 100 columns, the leading 16 eigenvectors are kept, and all other
    directions share one variance:

    .. math:: \|T\|^2_{1/\lambda} + \left(\|z\|^2 - \|T\|^2\right) / \sigma^2, \quad T = V'z .

    Attributes
    ----------
    n_features : int
        Number of columns of the rows.
    sketch : Sketch or None
        Map that reduces rows with more than 256 columns; None with fewer columns.
    mean, scale : ndarray of shape (q,)
        Mean and scale by which columns are standardised.
    starts : ndarray of int, shape (n_clusters + 1,)
        Cluster j has the centres ``starts[j]`` to ``starts[j + 1] - 1``.
    centers : ndarray of shape (n_centers, q)
        Centres of the cells.
    axes : ndarray of shape (n_clusters or 1, q, r)
        Eigenvectors of the covariances. If clusters are very many, they share one set.
    variances : ndarray of shape (n_clusters or 1, r)
        Their eigenvalues.
    noise : ndarray of shape (n_clusters or 1,)
        Variance of all other directions; infinity if r = q.
    """

    n_features: int
    sketch: Sketch | None
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    starts: NDArray[np.int64]
    centers: NDArray[np.float64]
    axes: NDArray[np.float64]
    variances: NDArray[np.float64]
    noise: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        X: Any,
        labels: NDArray,
        weights: NDArray,
        *,
        n_clusters: int,
        sketch: Sketch | None,
        seed: int,
    ) -> Self:
        """Estimate the centres and covariances of clusters from labelled rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows, dense or CSR; finite.
        labels : ndarray of int, shape (n,)
            Cluster of each row, numbered from 0. A cluster may have no rows.
        weights : ndarray of shape (n,)
            Positive weights of the rows.
        n_clusters : int
            Number of clusters.
        sketch : Sketch or None
            Sketch of the columns. Required with more than `WIDE` columns.
        seed : int
            Random seed of k-means.
        """
        rows = _reduced(X, sketch)
        mean = np.average(rows, axis=0, weights=weights)
        rows = rows - mean
        scale = np.sqrt(np.average(rows**2, axis=0, weights=weights))
        tiny = 1e-12 * np.maximum(np.abs(mean), 1.0)
        scale = np.where(scale > tiny, scale, np.maximum(np.abs(mean), 1.0))
        rows /= scale
        q = rows.shape[1]
        centers, apart, degrees = _centred(rows, labels, weights, n_clusters, seed)
        pooled = _shrunk(sum(map(_product, apart), np.zeros((q, q))), sum(degrees))
        r = q if q <= FULL else RANK
        is_shared = n_clusters * q * r > MAX_ENTRIES
        covariances = [pooled] if is_shared else map(_towards(pooled), apart, degrees)
        factors = [_factors(covariance, r) for covariance in covariances]
        starts = np.cumsum([0, *map(len, centers)]).astype(np.int64)
        return cls(
            int(X.shape[1]),
            sketch,
            mean,
            scale,
            starts,
            np.concatenate(centers),
            np.array([one[0] for one in factors]),
            np.array([one[1] for one in factors]),
            np.array([one[2] for one in factors]),
        )

    def distances(self, X: Any, labels: NDArray) -> NDArray[np.float64]:
        """Return the squared distance of each row to the nearest centre of its cluster.

        It is infinity for a cluster without centres, and if the computation overflows.
        """
        out = np.full(X.shape[0], np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, X.shape[0], BLOCK):
                part = slice(start, start + BLOCK)
                rows = (_reduced(X[part], self.sketch) - self.mean) / self.scale
                for j in np.unique(labels[part]):
                    inside = np.flatnonzero(labels[part] == j)
                    out[start + inside] = self._in_cluster(rows[inside], int(j))
        out[np.isnan(out)] = np.inf
        return out

    def _in_cluster(self, rows: NDArray, j: int) -> NDArray[np.float64]:
        centers = self.centers[self.starts[j] : self.starts[j + 1]]
        if not len(centers):
            return np.full(len(rows), np.inf)
        j = min(j, len(self.axes) - 1)
        axes = self.axes[j]
        white = axes / np.sqrt(self.variances[j])
        found = cdist(rows @ white, centers @ white, "sqeuclidean")
        if np.isfinite(self.noise[j]):
            inside = cdist(rows @ axes, centers @ axes, "sqeuclidean")
            outside = cdist(rows, centers, "sqeuclidean") - inside
            found += np.maximum(outside, 0.0) / self.noise[j]
        return found.min(axis=1)


def _reduced(X: Any, sketch: Sketch | None) -> NDArray[np.float64]:
    if sketch is not None:
        return sketch.of(X)
    rows = X.toarray() if sparse.issparse(X) else X
    return np.asarray(rows, dtype=np.float64)


def _centred(
    rows: NDArray, labels: NDArray, weights: NDArray, n_clusters: int, seed: int
) -> tuple[list[NDArray], list[NDArray], list[float]]:
    """Return, for each cluster, its centres, its centred rows and its degrees of freedom.

    Centred rows are multiplied by the square root of their weight. The mean weight is 1 in each
    cluster.
    """
    centers, apart, degrees = [], [], []
    for j in range(n_clusters):
        own = rows[labels == j]
        if not len(own):
            found, rest = own, own
        else:
            w = weights[labels == j]
            w = w * (len(own) / w.sum())
            found, cells = _cells(own, w, seed)
            rest = (own - found[cells]) * np.sqrt(w)[:, None]
        centers.append(found)
        apart.append(rest)
        degrees.append(float(max(len(own) - len(found), 0)))
    return centers, apart, degrees


def _product(rows: NDArray) -> NDArray:
    return rows.T @ rows


def _towards(pooled: NDArray) -> Callable[[NDArray, float], NDArray]:
    """Return a function for a cluster's covariance, shrunk to the pooled one by `PRIOR` rows."""
    prior = PRIOR * len(pooled)
    return lambda rows, degrees: (_product(rows) + prior * pooled) / (degrees + prior)


def _factors(covariance: NDArray, r: int) -> tuple[NDArray, NDArray, float]:
    """Return r leading eigenvectors, their eigenvalues, and the mean of the other eigenvalues."""
    q = len(covariance)
    level = float(np.trace(covariance)) / q
    values, axes = eigh(covariance, subset_by_index=(q - r, q - 1))
    if values.size < r:  # LAPACK may return fewer if many eigenvalues are equal
        values, axes = (part[..., -r:] for part in eigh(covariance))
    noise = np.inf if r == q else (level * q - float(values.sum())) / (q - r)
    return axes, np.maximum(values, FLOOR * level), max(noise, FLOOR * level)


def _cells(rows: NDArray, weights: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Return weighted means of the cells of a cluster, and the cell of each row."""
    n_cells = min(MAX_CELLS, len(rows) // CELL_ROWS)
    if n_cells < 2:
        return np.average(rows, axis=0, weights=weights)[None], np.zeros(len(rows), dtype=np.intp)
    from sklearn.cluster import KMeans

    few = slice(None, None, -(-len(rows) // MAX_CELL_ROWS))
    start = KMeans(n_cells, n_init=1, random_state=seed)
    quiet_fit(start, rows[few], weights[few])  # there may be fewer distinct rows than cells
    cells = np.unique(start.predict(rows), return_inverse=True)[1].ravel()
    one = sparse.csr_array((weights, (cells, np.arange(len(rows)))))
    return (one @ rows) / one.sum(axis=1)[:, None], cells


def _shrunk(products: NDArray, n: float) -> NDArray:
    """Return the covariance of n degrees of freedom, shrunk towards a multiple of the identity.

    The weight is that of Chen, Wiesel, Eldar and Hero, *Shrinkage algorithms for MMSE covariance
    estimation*, IEEE Transactions on Signal Processing 58 (2010), equation 23. Without any scatter
    the result is the identity, because columns are standardised.
    """
    q = len(products)
    covariance = products / max(n, 1.0)
    trace, square = float(np.trace(covariance)), float((covariance**2).sum())
    if trace <= 0:
        return np.eye(q)
    above = (1 - 2 / q) * square + trace**2
    below = (n + 1 - 2 / q) * (square - trace**2 / q)
    weight = 1.0 if below <= above else above / below
    return (1 - weight) * covariance + weight * trace / q * np.eye(q)
