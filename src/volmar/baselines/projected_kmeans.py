"""K-means on linearly projected rows, the common base of discriminative k-means and LDA-KM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from volmar._warn import quiet_fit
from volmar.base import Status, WeightedClusterer
from volmar.base.clusterer import two_column_scores
from volmar.base.numbering import nearest_by_size
from volmar.base.validation import check_count, check_number, check_start_labels
from volmar.rows import Standardized, as_rows, standardized

# Centres count as near each other if their squared distance is below this multiple of the rounding
# error of products.
APART = 100.0


def varying(X: Any, weights: NDArray | None) -> Standardized:
    """Return X standardised; raise an error if all rows are equal."""
    z = standardized(as_rows(X, sample_weight=weights))
    refuse_equal(z.kept.size > 0)
    return z


def refuse_equal(differ: bool) -> None:
    """Raise an error unless the rows `differ`."""
    if not differ:
        raise ValueError(
            "all rows of X (of positive weight) are equal, so that there are no clusters to "
            "find. Use n_clusters=1."
        )


def projected(X: Any, mean: NDArray, A: NDArray) -> NDArray:
    """Return (X - 1 mean') A in the dtype of X.

    Dense X is first centred by the mean rounded to its dtype, which preserves the precision of
    float32 rows far from zero. Sparse X stays sparse.
    """
    return projected_moved(*moved(X, mean), A)


def moved(X: Any, mean: NDArray) -> tuple[Any, NDArray]:
    """Return X less the mean rounded to its dtype (sparse X unchanged), and the remaining mean."""
    if sparse.issparse(X):
        return X, mean
    pivot = mean.astype(X.dtype)
    return X - pivot, mean - pivot


def projected_moved(X: Any, rest: NDArray, A: NDArray) -> NDArray:
    """Return (X - 1 rest') A in the dtype of X, for X and rest from `moved`."""
    A = A.astype(X.dtype)
    points: NDArray = X @ A
    points -= (rest @ A).astype(A.dtype)
    return points


def regular_cholesky(matrix: NDArray, reg: float, dtype: Any) -> NDArray:
    """Return the lower Cholesky factor of a matrix; raise an error if it is nearly singular."""
    lower, info = linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    reciprocal_condition = 0.0
    if info == 0:
        norm = np.abs(matrix).sum(axis=0).max()
        reciprocal_condition, _ = linalg.lapack.dpocon(lower, norm, uplo="L")
    # The entries are sums of products, computed in the precision of the data.
    if reciprocal_condition < matrix.shape[0] * np.finfo(dtype).eps:
        raise ValueError(singular_text(reg, dtype))
    return lower


def singular_text(reg: float, dtype: Any) -> str:
    """Return the message for a `reg` that leaves the covariance singular."""
    return (
        f"the covariance of X is singular in {np.dtype(dtype)} with reg={reg:g}. Features are "
        "linearly dependent, or there are fewer rows than features. Raise reg."
    )


def drawn_centres(X: Any, n_clusters: int, weights: NDArray, seed: int) -> NDArray:
    """Return rows drawn by k-means++: n_clusters, or fewer if there are fewer distinct rows.

    Rows are drawn by inverting the cumulative weights, in their order along a random direction.
    That order does not depend on the order of the input, and equal rows are adjacent in it.
    Permuted rows, or two copies of a row instead of a weight of 2, therefore get the same start
    from the same seed. (scikit-learn's k-means++ has neither property.)
    """
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(X.shape[1]).astype(X.dtype)
    order = np.argsort(X @ direction, kind="stable")
    nearest = np.ones(X.shape[0])
    drawn: list[int] = []
    for _ in range(n_clusters):
        density = (weights * nearest)[order]
        cumulated = np.cumsum(density)
        if cumulated[-1] <= 0:
            break
        draw = np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")
        # A subnormal number times a factor below 1 may be rounded back to itself.
        drawn.append(int(order[min(draw, np.flatnonzero(density)[-1])]))
        row = X[drawn[-1:]]
        squared = euclidean_distances(X, row, squared=True).ravel().astype(np.float64)
        squared[drawn[-1]] = 0.0
        nearest = np.minimum(nearest, squared) if len(drawn) > 1 else squared
    centres = X[drawn]
    return centres.toarray() if sparse.issparse(centres) else centres


def kmeans_labels(
    X: Any, centres: NDArray, weights: NDArray, max_iter: int
) -> tuple[NDArray, int, bool]:
    """Return the labels of k-means from `centres`, its iterations, and whether it converged.

    scikit-learn moves the farthest row to a cluster that becomes empty. Clusters that stay empty
    are removed, and the labels are consecutive.
    """
    model = KMeans(len(centres), init=centres, n_init=1, max_iter=max_iter, tol=0.0)
    quiet_fit(model, X, weights)  # the estimator reports fewer distinct rows than clusters
    labels = np.unique(model.labels_, return_inverse=True)[1]
    return labels, model.n_iter_, model.n_iter_ < max_iter


def weighted_means(
    points: NDArray, labels: NDArray, weights: NDArray, n_clusters: int
) -> tuple[NDArray, NDArray]:
    """Return the means, shape (k, p), and weights of the clusters; NaN means without weight."""
    members = sparse.csr_array(
        (weights, (labels, np.arange(labels.size))), shape=(n_clusters, labels.size)
    )
    mass = np.bincount(labels, weights, n_clusters)
    means = np.full((n_clusters, points.shape[1]), np.nan)
    np.divide(members @ points, mass[:, None], out=means, where=mass[:, None] > 0)
    return means, mass


def distance_scores(points: NDArray, centres: NDArray) -> NDArray:
    """Return negative squared distances to the centres, up to a constant per point, (n, k).

    The squares are expanded, without the norms of the points. For centres that are near each other
    and far from zero, which happens with outliers, the expansion would leave only rounding error.
    There the distances are computed directly.
    """
    if _are_apart(points, centres):
        scores = 2.0 * (points @ centres.T.astype(points.dtype))
        return scores - np.einsum("kp,kp->k", centres, centres)
    scores = np.empty((len(points), len(centres)))
    for c, centre in enumerate(centres):
        away = points - centre
        scores[:, c] = -np.einsum("ip,ip->i", away, away)
    return scores


def _are_apart(points: NDArray, centres: NDArray) -> bool:
    """Return whether all squared distances between centres are well above rounding error."""
    rounding = _rounding(points) * np.abs(centres).max(initial=0.0)
    return bool(pdist(centres, "sqeuclidean").min(initial=np.inf) > APART * rounding)


def _rounding(points: NDArray) -> float:
    """Bound the rounding error of products of points with a vector of entries up to 1."""
    epsilon = float(np.finfo(points.dtype).eps)
    return 10 * points.shape[1] * epsilon * float(np.abs(points).max(initial=0.0))


def would_move(points: NDArray, centres: NDArray, labels: NDArray) -> NDArray:
    """Return a mask of rows that are closer to another centre than to their own, beyond rounding.

    A cluster without weight has a NaN centre, and none of its rows stays there.
    """
    known = ~np.isnan(centres[:, 0])
    scores = np.full((len(points), len(centres)), -np.inf)
    scores[:, known] = distance_scores(points, centres[known])
    own = scores[np.arange(labels.size), labels]
    slack: Any = _rounding(points)
    if _are_apart(points, centres[known]):
        slack *= np.abs(centres[known]).max(initial=0.0)
    else:
        slack *= np.sqrt(np.where(known[labels], -own, 0.0))
    return scores.max(axis=1) > own + slack


class ProjectedKMeans(WeightedClusterer):
    """Clustering by the nearest mean of the projected rows ``components_ (x - mean_)``.

    A problem has a method `seen(result)`, which returns the rows as projected by `predict`, and a
    method `certificate(labels)`.
    """

    n_init: Any
    max_iter: Any
    reg: Any
    init: Any

    def _check_parameters(self) -> None:
        check_number("reg", self.reg, low=0.0)
        check_count("n_init", self.n_init)
        check_count("max_iter", self.max_iter)

    def _n_starts(self) -> int:
        return self.n_init if isinstance(self.init, str) else 1

    def _given_labels(self, n_rows: int) -> NDArray | None:
        """Return the labels to start from; None if `init` is a string."""
        if isinstance(self.init, str):
            return None
        return check_start_labels("init", self.init, n_rows, self.n_clusters)

    def _finish(self, problem: Any, result: Any, weights: Any) -> None:
        """Set the labels to those of `predict`, and leave out clusters without rows.

        They may differ from the solver's for rows without weight or after max_iter iterations.
        """
        known = np.flatnonzero(~np.isnan(result.centers[:, 0]))
        scores = distance_scores(problem.seen(result), result.centers[known])
        labels, order = nearest_by_size(scores, weights, self._cluster_order)
        if not np.array_equal(known[order][labels], result.labels):
            result = replace(result, **vars(problem.certificate(labels)))
        if order.size < self.n_clusters and result.status.ok:
            result = replace(result, status=Status.DEGENERATE)
        result = replace(result, labels=labels, centers=result.centers[known[order]])
        self._set_result(result)
        self._publish(problem, result)

    def _set_projection(self, components: NDArray, mean: NDArray, result: Any) -> None:
        self.components_: NDArray = components
        self.mean_: NDArray = mean
        self.cluster_centers_: NDArray = result.centers

    def _status_words(self, result: Any) -> str:
        if result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        return (
            f"Found {len(result.centers)} clusters, but n_clusters={self.n_clusters}. With "
            f"reg={self.reg:g}, no further rows of positive weight are distinct up to rounding. "
            "Lower n_clusters, check X for outliers, or use another reg."
        )

    def _scores(self, X: Any) -> NDArray:
        if len(self.cluster_centers_) == 1:
            return np.zeros(X.shape[0])
        points = projected(X, self.mean_, self.components_.T)
        return two_column_scores(distance_scores(points, self.cluster_centers_))
