"""K-means on linearly projected rows: what discriminative k-means and LDA-KM share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from volmar.base import Status, WeightedClusterer
from volmar.base.clusterer import two_column_scores
from volmar.base.numbering import nearest_by_size
from volmar.base.validation import check_count, check_number, check_start_labels
from volmar.rows import Standardized, as_rows, standardized

# Centres whose squared distance is less than so many roundings of products are near each other.
APART = 100.0


def varying(X: Any, weights: NDArray | None) -> Standardized:
    """Return X in standard deviations; refuse rows that are all equal."""
    z = standardized(as_rows(X, sample_weight=weights))
    refuse_equal(z.kept.size > 0)
    return z


def refuse_equal(differ: bool) -> None:
    """Raise where rows do not differ."""
    if not differ:
        raise ValueError(
            "all rows of X (of positive weight) are equal: there is nothing to tell clusters "
            "apart. Use n_clusters=1."
        )


def projected(X: Any, mean: NDArray, A: NDArray) -> NDArray:
    """(X - 1 mean') A in the dtype of X.

    Dense X is moved first, by the mean as rounded to its dtype: float32 rows far from zero keep
    the digits of their spread. Sparse X stays sparse.
    """
    return projected_moved(*moved(X, mean), A)


def moved(X: Any, mean: NDArray) -> tuple[Any, NDArray]:
    """Return X less its mean as rounded to its dtype, sparse X as it is, and what is left."""
    if sparse.issparse(X):
        return X, mean
    pivot = mean.astype(X.dtype)
    return X - pivot, mean - pivot


def projected_moved(X: Any, rest: NDArray, A: NDArray) -> NDArray:
    """(X - 1 rest') A in the dtype of X, as it is `moved`."""
    A = A.astype(X.dtype)
    points: NDArray = X @ A
    points -= (rest @ A).astype(A.dtype)
    return points


def regular_cholesky(matrix: NDArray, reg: float, dtype: Any) -> NDArray:
    """Lower Cholesky factor of a matrix of near unit diagonal, refused where it is singular."""
    lower, info = linalg.lapack.dpotrf(matrix, lower=1, clean=1)
    reciprocal_condition = 0.0
    if info == 0:
        norm = np.abs(matrix).sum(axis=0).max()
        reciprocal_condition, _ = linalg.lapack.dpocon(lower, norm, uplo="L")
    # The entries are sums of products in the precision of the data.
    if reciprocal_condition < matrix.shape[0] * np.finfo(dtype).eps:
        raise ValueError(singular_text(reg, dtype))
    return lower


def singular_text(reg: float, dtype: Any) -> str:
    """Return the message for a `reg` that leaves the covariance singular."""
    return (
        f"reg={reg:g} leaves the covariance of X singular in {np.dtype(dtype)}: features "
        "depend on each other, or there are fewer rows than features. Raise reg."
    )


def drawn_centres(X: Any, n_clusters: int, weights: NDArray, seed: int) -> NDArray:
    """Rows drawn by k-means++, shape (at most n_clusters, d): fewer if no more differ.

    Rows are drawn by the inverse of the cumulated weights along their order in a random direction.
    That order does not depend on how the rows are sorted, and equal rows stand side by side in it:
    permuted rows, or a row written twice instead of weighted twice, get the same start from the
    same seed. (scikit-learn's k-means++ has neither property.)
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
        # The smallest numbers times less than 1 are themselves.
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
    """Labels of k-means from `centres`, its iterations, and whether no row moves any more.

    A cluster that runs empty is given the farthest row by scikit-learn; numbers of clusters that
    stay empty are closed up.
    """
    model = KMeans(len(centres), init=centres, n_init=1, max_iter=max_iter, tol=0.0)
    with (
        warnings.catch_warnings()
    ):  # fewer different rows than clusters: reported by the estimator
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, sample_weight=weights)
    labels = np.unique(model.labels_, return_inverse=True)[1]
    return labels, model.n_iter_, model.n_iter_ < max_iter


def weighted_means(
    points: NDArray, labels: NDArray, weights: NDArray, n_clusters: int
) -> tuple[NDArray, NDArray]:
    """Means, shape (k, p), and weights of the clusters; the mean of a weightless one is NaN."""
    members = sparse.csr_array(
        (weights, (labels, np.arange(labels.size))), shape=(n_clusters, labels.size)
    )
    mass = np.bincount(labels, weights, n_clusters)
    means = np.full((n_clusters, points.shape[1]), np.nan)
    np.divide(members @ points, mass[:, None], out=means, where=mass[:, None] > 0)
    return means, mass


def distance_scores(points: NDArray, centres: NDArray) -> NDArray:
    """Negative squared distance of points to centres, up to a constant of each point, (n, k).

    The squares are expanded, without the norms of the points, but for centres that are near each
    other and far from zero, as they are beside outliers: there it would leave rounding only.
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
    """Whether all squared distances between centres are well above the rounding of products."""
    rounding = _rounding(points) * np.abs(centres).max(initial=0.0)
    return bool(pdist(centres, "sqeuclidean").min(initial=np.inf) > APART * rounding)


def _rounding(points: NDArray) -> float:
    """Bound of the rounding of a product of points with a vector whose entries are at most 1."""
    epsilon = float(np.finfo(points.dtype).eps)
    return 10 * points.shape[1] * epsilon * float(np.abs(points).max(initial=0.0))


def would_move(points: NDArray, centres: NDArray, labels: NDArray) -> NDArray:
    """Rows that lie nearer to another centre than to their own, by more than rounding.

    A centre of NaN is that of a cluster without weight: no row stays there.
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
    """Clusters by the nearest mean of the rows ``components_ (x - mean_)``.

    A problem has `seen(result)`, the rows as `predict` sees them, and a `certificate` of labels.
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
        """Return the labels to start from; None where `init` names a rule."""
        if isinstance(self.init, str):
            return None
        return check_start_labels("init", self.init, n_rows, self.n_clusters)

    def _finish(self, problem: Any, result: Any, weights: Any) -> None:
        """Give rows the labels that `predict` gives them; clusters without rows are left out.

        Rows of no weight, or of a run that the limit of iterations ended, may have other labels.
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
            f"Found {len(result.centers)} clusters where n_clusters={self.n_clusters}: no other "
            f"rows of positive weight are told apart, beside the largest and with "
            f"reg={self.reg:g}. Lower n_clusters, check X for outliers, or use another reg."
        )

    def _scores(self, X: Any) -> NDArray:
        if len(self.cluster_centers_) == 1:
            return np.zeros(X.shape[0])
        points = projected(X, self.mean_, self.components_.T)
        return two_column_scores(distance_scores(points, self.cluster_centers_))
