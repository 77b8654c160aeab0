"""Rows that belong to no cluster: distances within clusters, calibrated on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from volmar._checks import check_count, check_random_state
from volmar._input import check_matrix
from volmar._warn import quiet_fit
from volmar._weights import rescaled_sample_weight

# ----------------------- centres and a covariance for each cluster, and distances of rows to them

# Rows with more columns are reduced to this number of columns by a random sketch.
WIDE = 256
# Up to FULL columns the full covariance is used; beyond, its RANK leading eigenvectors.
FULL, RANK = 100, 16
# Maximum number of cells of a cluster, and the minimum mean number of rows per cell. Cells let a
# cluster be of any shape.
MAX_CELLS, CELL_ROWS = 30, 20
# Prior weight of the pooled covariance, as a number of rows per column.
PRIOR = 0.3
# Maximum number of entries of all eigenvectors. With more, clusters share the pooled eigenvectors.
MAX_ENTRIES = 2**23


@dataclass(frozen=True)
class Sketch:
    """A random linear map from many columns to `WIDE` columns, independent of the data.

    Every column is added, with a random sign, to one random column of the result (a count sketch).
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

    Cluster j has the `centers` from ``starts[j]`` to ``starts[j + 1] - 1``. `axes` (k, q, r) and
    `variances` (k, r) are eigenvectors and eigenvalues of the covariances, `noise` (k,) is the
    variance of all other directions, infinity if r = q. Very many clusters share one set.
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
        """Estimate the centres and covariances of clusters from labelled rows."""
        rows = _reduced(X, sketch)
        mean = np.average(rows, axis=0, weights=weights)
        rows = rows - mean
        scale = np.sqrt(np.average(rows**2, axis=0, weights=weights))
        tiny = 1e-12 * np.maximum(np.abs(mean), 1.0)
        scale = np.where(scale > tiny, scale, np.maximum(np.abs(mean), 1.0))
        rows /= scale
        q = rows.shape[1]
        centers, apart, degrees = _centred(rows, labels, weights, n_clusters, seed)
        products = [rest.T @ rest for rest in apart]
        pooled = _shrunk(sum(products, np.zeros((q, q))), sum(degrees))
        r = q if q <= FULL else RANK
        covariances, prior = [pooled], PRIOR * q
        if n_clusters * q * r <= MAX_ENTRIES:
            each = zip(products, degrees, strict=True)
            covariances = [(one + prior * pooled) / (free + prior) for one, free in each]
        factors = zip(*(_factors(covariance, r) for covariance in covariances), strict=True)
        starts = np.cumsum([0, *map(len, centers)]).astype(np.int64)
        kept = mean, scale, starts, np.concatenate(centers), *map(np.array, factors)
        return cls(int(X.shape[1]), sketch, *kept)

    def distances(self, X: Any, labels: NDArray) -> NDArray[np.float64]:
        """Return the squared distance of each row to the nearest centre of its cluster.

        It is infinity for a cluster without centres, and if the computation overflows.
        """
        out = np.full(X.shape[0], np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, X.shape[0], 8192):
                part = slice(start, start + 8192)
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

    Centred rows are multiplied by the root of their weight, which is 1 on average.
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


def _factors(covariance: NDArray, r: int) -> tuple[NDArray, NDArray, float]:
    """Return r leading eigenvectors, their eigenvalues, and the mean of the other eigenvalues."""
    q = len(covariance)
    level = float(np.trace(covariance)) / q
    values, axes = eigh(covariance, subset_by_index=(q - r, q - 1))
    if values.size < r:  # LAPACK may return fewer if many eigenvalues are equal
        values, axes = (part[..., -r:] for part in eigh(covariance))
    noise = np.inf if r == q else (level * q - float(values.sum())) / (q - r)
    return axes, np.maximum(values, 1e-3 * level), max(noise, 1e-3 * level)


def _cells(rows: NDArray, weights: NDArray, seed: int) -> tuple[NDArray, NDArray]:
    """Return weighted means of the cells of a cluster, and the cell of each row."""
    n_cells = min(MAX_CELLS, len(rows) // CELL_ROWS)
    if n_cells < 2:
        return np.average(rows, axis=0, weights=weights)[None], np.zeros(len(rows), dtype=np.intp)
    from sklearn.cluster import KMeans

    few = slice(None, None, -(-len(rows) // 2000))
    start = KMeans(n_cells, n_init=1, random_state=seed)
    quiet_fit(start, rows[few], weights[few])  # there may be fewer distinct rows than cells
    cells = np.unique(start.predict(rows), return_inverse=True)[1].ravel()
    one = sparse.csr_array((weights, (cells, np.arange(len(rows)))))
    return (one @ rows) / one.sum(axis=1)[:, None], cells


def _shrunk(products: NDArray, n: float) -> NDArray:
    """Return the covariance of n degrees of freedom, shrunk towards a multiple of the identity.

    The weight is that of Chen, Wiesel, Eldar and Hero, *Shrinkage algorithms for MMSE covariance
    estimation*, IEEE Transactions on Signal Processing 58 (2010), equation 23.
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


# ------------ p-values of new rows: whether they lie farther out than other rows of their cluster


@dataclass(frozen=True, repr=False)
class ClusterNovelty:
    r"""P-values of rows that measure how far out they lie in their clusters.

    The p-value of a row is

    .. math:: p = \frac{1 + \#\{i : d_i \ge d\}}{1 + n_j}

    where d is the distance of the row in its cluster j, and :math:`d_i` are the distances of the
    :math:`n_j` rows that the cluster was calibrated with. Each :math:`d_i` is cross-validated: the
    row's own fold (of 5 to 20) is left out. For new rows from the same source, the p-value is at
    most alpha with a probability of about alpha or slightly less, for two reasons. Centres and
    covariances of all rows are a little closer to a new row than those without a fold are to the
    rows of the fold, and distances that are not stored are rounded up. The p-values do not assume
    any shape of the clusters. The shape only affects how well novel rows are detected.

    Attributes
    ----------
    scatter : ClusterScatter
        Centres and covariances.
    starts : ndarray of int, shape (n_clusters + 1,)
        Cluster j has the distances ``starts[j]`` to ``starts[j + 1] - 1``.
    distances : ndarray of shape (m,)
        Distances of the calibration, in ascending order for each cluster, at most 1,000 for each.
    counts : ndarray of shape (m,)
        Number of rows of the cluster that are farther out than the next smaller distance. It is an
        upper bound for a row in between.
    n_rows : ndarray of shape (n_clusters,)
        Number of rows that each cluster was calibrated with.
    """

    scatter: ClusterScatter
    starts: NDArray[np.int64]
    distances: NDArray[np.float64]
    counts: NDArray[np.float64]
    n_rows: NDArray[np.int64]

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.n_rows)

    @property
    def min_p_values(self) -> NDArray[np.float64]:
        """The smallest p-value of each cluster, 1 / (1 + number of rows)."""
        return np.asarray(1.0 / (1.0 + self.n_rows), dtype=np.float64)

    def __repr__(self) -> str:
        """Return the number of clusters and of calibration rows."""
        return f"ClusterNovelty(n_clusters={self.n_clusters}, n_rows={int(self.n_rows.sum())})"

    def p_values(
        self, X: Any, labels: ArrayLike, outlying: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return the p-value of each row in its cluster; small for a novel row.

        Parameters
        ----------
        X : array of shape (n, d)
            Rows, dense or CSR.
        labels : array of int, shape (n,)
            Cluster of each row, predicted by the model that was calibrated. A row labelled -1 has
            the p-value 0.
        outlying : ndarray of bool, shape (n,), optional
            Rows that are farther out than X shows, such as those of which an extreme value was
            filled in. They have the smallest p-value of all clusters.

        Returns
        -------
        ndarray of shape (n,)
            P-values between 0 and 1.
        """
        rows = check_matrix(X, may_be_small=True)
        if rows.shape[1] != self.scatter.n_features:
            raise ValueError(
                f"X has {rows.shape[1]} columns, but the calibration had "
                f"{self.scatter.n_features}. Pass rows with the same columns."
            )
        codes = _checked_labels(labels, rows.shape[0], self.n_clusters)
        out = np.zeros(rows.shape[0])
        inside = codes >= 0
        if not inside.all():
            rows, codes = rows[np.flatnonzero(inside)], codes[inside]
        found = self.scatter.distances(rows, codes)
        values = np.ones(len(codes))
        for j in np.unique(codes):
            kept = slice(self.starts[j], self.starts[j + 1])
            counts = np.append(self.counts[kept], 0.0)
            place = np.searchsorted(self.distances[kept], found[codes == j], side="left")
            values[codes == j] = (1.0 + counts[place]) / (1.0 + self.n_rows[j])
        if outlying is not None:
            values[outlying[inside]] = self.min_p_values.min()
        out[inside] = values
        return out


def calibrate_novelty(
    X: Any,
    labels: ArrayLike,
    *,
    n_clusters: int | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> ClusterNovelty:
    """Calibrate the distances of rows in given clusters, to detect novel rows later.

    The cost is linear in the number of rows. Clusterers of volmar call this function in
    `fit_novelty`. It works with any other model that labels new rows.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, dense or CSR.
    labels : array of int, shape (n,)
        Cluster of each row, from 0, as the model predicts it. Rows labelled -1 are left out.
    n_clusters : int, optional
        Number of clusters. If None, the largest label plus one.
    sample_weight : array of shape (n,), optional
        Relative weights of the rows. Rows with weight 0 are left out.
    random_state : int, RandomState or None, default=None
        Random seed of the samples and folds of the rows.

    Returns
    -------
    ClusterNovelty

    Notes
    -----
    If a cluster has more than 10,000 rows, a random sample of 10,000 is used. With n rows the
    smallest p-value is 1 / (n + 1), so that a cluster of fewer than 99 rows rejects no row at
    level 0.01. A cluster of fewer than two rows cannot be calibrated, and all its p-values are 1.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.cluster import KMeans
    >>> from volmar.datasets import make_blobs
    >>> from volmar.evidence import calibrate_novelty
    >>> X, _ = make_blobs(600, random_state=0)
    >>> model = KMeans(2, n_init=1, random_state=0).fit(X)
    >>> novelty = calibrate_novelty(X, model.labels_, random_state=0)
    >>> strangers = X.mean(axis=0) + [[0.0, 100.0]]
    >>> bool(novelty.p_values(strangers, model.predict(strangers))[0] < 0.01)
    True
    """
    rows = check_matrix(X)
    n = rows.shape[0]
    codes = _checked_labels(labels, n, None)
    k = int(codes.max(initial=-1)) + 1
    if n_clusters is not None and check_count("n_clusters", n_clusters) < k:
        raise ValueError(
            f"n_clusters={n_clusters} is less than the largest label plus one, {k}. Raise "
            "n_clusters."
        )
    k = k if n_clusters is None else int(n_clusters)
    if k == 0:
        raise ValueError("labels has no cluster: all labels are -1. Pass rows with a cluster.")
    weights = rescaled_sample_weight(sample_weight, n)
    rng = check_random_state(random_state)
    chosen, folds = _folds(codes, weights, k, rows.shape[1], rng)
    rows, codes = rows[chosen], codes[chosen]
    weights = np.ones(len(chosen)) if weights is None else weights[chosen]
    d = rows.shape[1]
    sketch = Sketch.draw(d, rng) if d > WIDE else None
    seed = int(rng.randint(2**31 - 1))

    def fitted(used: NDArray) -> ClusterScatter:
        return ClusterScatter.fit(
            rows[used], codes[used], weights[used], n_clusters=k, sketch=sketch, seed=seed
        )

    found = np.full(len(chosen), np.inf)
    for fold in range(int(folds.max(initial=-1)) + 1):
        out = np.flatnonzero(folds == fold)
        used = np.flatnonzero(folds != fold)
        found[out] = fitted(used).distances(rows[out], codes[out])
    found = np.minimum(found, np.finfo(np.float64).max)
    return _summary(fitted(np.arange(len(chosen))), found, codes, weights, folds, k)


def _folds(
    codes: NDArray, weights: NDArray | None, k: int, d: int, rng: np.random.RandomState
) -> tuple[NDArray, NDArray]:
    """Return the rows in use and the fold of each row; -1 in clusters of fewer than two rows."""
    chosen, folds = [], []
    for j in range(k):
        inside = codes == j if weights is None else (codes == j) & (weights > 0)
        # More rows hardly change small p-values.
        own = rng.permutation(np.flatnonzero(inside))[:10_000]
        chosen.append(own)
        n_folds = _n_folds(own.size, d)
        part = np.arange(own.size) % max(n_folds, 1)
        folds.append(part if n_folds > 1 else np.full(own.size, -1))
    return np.concatenate(chosen), np.concatenate(folds)


def _n_folds(n: int, d: int) -> int:
    """Return the number of folds of n rows with d columns.

    Leaving out m of n rows raises a squared distance in r directions by a factor of about
    1 + m (r + 1) / n^2. The relative standard deviation of the distance is sqrt(2 / r).
    """
    r = d if d <= FULL else RANK
    # More folds are used if leaving out a fold would raise squared distances by more than 0.05
    # standard deviations, which would make the p-values of new rows too large.
    left_out = 0.05 * np.sqrt(2.0 / r) * n**2 / (r + 1)
    wanted = int(np.ceil(n / max(left_out, 1.0)))
    return min(max(wanted, 5), 20, n)


def _summary(
    scatter: ClusterScatter,
    found: NDArray,
    codes: NDArray,
    weights: NDArray,
    folds: NDArray,
    k: int,
) -> ClusterNovelty:
    """Return the calibration with the 500 largest distances of each cluster and 500 others."""
    kept_distances, kept_counts, starts, n_rows = [], [], [0], []
    for j in range(k):
        inside = np.flatnonzero((codes == j) & (folds >= 0))
        order = inside[np.argsort(found[inside], kind="stable")]
        m = order.size
        w = weights[order] * (m / weights[order].sum()) if m else weights[order]
        others = np.linspace(0, m - 1, min(500, m)).astype(np.intp)
        largest = np.arange(max(m - 500, 0), m)
        places = np.unique(np.concatenate([others, largest]))
        values = found[order]
        distances = np.unique(values[places])
        # Weight of the rows beyond each distance. The weights of a cluster sum to m.
        total = np.concatenate([[0.0], np.cumsum(w)])
        beyond = m - total[np.searchsorted(values, distances, side="right")]
        counts = np.concatenate([[float(m)], beyond[:-1]]) if m else np.empty(0)
        kept_distances.append(distances)
        kept_counts.append(np.clip(counts, 0.0, float(m)))
        starts.append(starts[-1] + distances.size)
        n_rows.append(m)
    distances, counts = np.concatenate(kept_distances), np.concatenate(kept_counts)
    ends, sizes = (np.array(one, dtype=np.int64) for one in (starts, n_rows))
    return ClusterNovelty(scatter, ends, distances, counts, sizes)


def _checked_labels(labels: ArrayLike, n: int, k: int | None) -> NDArray[np.int64]:
    codes = np.asarray(labels)
    if codes.shape != (n,) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be an array of integers of shape ({n},), got dtype {codes.dtype} and "
            f"shape {codes.shape}. Pass the cluster of each row, numbered from 0."
        )
    codes = codes.astype(np.int64)
    high = (n if k is None else k) - 1
    if codes.size and (codes.min() < -1 or codes.max() > high):
        wrong = codes[(codes < -1) | (codes > high)][0]
        raise ValueError(
            f"labels holds {wrong}, but clusters are numbered from 0 to {high}, and -1 stands for "
            "no cluster. Pass the labels that the model predicts."
        )
    return codes
