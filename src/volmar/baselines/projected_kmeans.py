"""K-means on projected rows: discriminative k-means (Ye 2007) and LDA-KM (Ding and Li 2007)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

from volmar._checks import check_choice, check_count, check_number, fix_signs
from volmar._eigen import eigenpairs
from volmar._memory import require_memory
from volmar._warn import quiet_fit
from volmar.base.clusterer import Clusterer, two_column_scores
from volmar.base.numbering import nearest_by_size
from volmar.base.validation import check_start_labels
from volmar.rows.anywhere import as_rows
from volmar.rows.standardized import RowSpace, Standardized, row_space, standardized
from volmar.solvers import Result, Status
from volmar.solvers.result import Certificate

# Maximum number of iterations of k-means, on the features for a start or in the subspace.
KMEANS_ITERATIONS = 300
# With a larger multiple of the identity, the correlations would be below rounding error.
LARGEST_REG = 1e15


# ---- shared by both methods


def varying(X: NDArray) -> Standardized:
    """Return X standardised; raise an error if all rows are equal."""
    z = standardized(as_rows(X))
    _refuse_equal(z.kept)
    return z


def _refuse_equal(kept: NDArray) -> None:
    if kept.size == 0:
        raise ValueError(
            "all rows of X are equal, so that there are no clusters to find. Use n_clusters=1."
        )


def projected(X: NDArray, mean: NDArray, A: NDArray) -> NDArray:
    """Return (X - 1 mean') A in the dtype of X.

    X is first centred by the mean rounded to its dtype, which preserves the precision of float32
    rows far from zero.
    """
    A, pivot = A.astype(X.dtype), mean.astype(X.dtype)
    points: NDArray = (X - pivot) @ A
    points -= ((mean - pivot) @ A).astype(A.dtype)
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
        raise ValueError(_singular_text(reg, dtype))
    return lower


def _singular_text(reg: float, dtype: Any) -> str:
    return (
        f"the covariance of X is singular in {np.dtype(dtype)} with reg={reg:g}. Features are "
        "linearly dependent, or there are fewer rows than features. Raise reg."
    )


def kmeans(X: NDArray, k: int, init: Any, max_iter: int, seed: int | None = None) -> KMeans:
    """Run k-means once. Its labels are consecutive, also if clusters stay empty."""
    model = KMeans(k, init=init, n_init=1, max_iter=max_iter, tol=0.0, random_state=seed)
    quiet_fit(model, X)  # the estimator reports fewer distinct rows than clusters
    model.labels_ = np.unique(model.labels_, return_inverse=True)[1]
    return model


def cluster_means(points: NDArray, labels: NDArray, n_clusters: int) -> NDArray:
    """Return the means of the clusters, shape (k, p), NaN for a cluster without rows."""
    means = np.full((n_clusters, points.shape[1]), np.nan)
    for c in np.unique(labels):
        means[c] = points[labels == c].mean(axis=0, dtype=np.float64)
    return means


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
    return bool(pdist(centres, "sqeuclidean").min(initial=np.inf) > 100.0 * rounding)


def _rounding(points: NDArray) -> float:
    """Bound the rounding error of products of points with a vector of entries up to 1."""
    epsilon = float(np.finfo(points.dtype).eps)
    return 10 * points.shape[1] * epsilon * float(np.abs(points).max(initial=0.0))


def moving_share(points: NDArray, centres: NDArray, labels: NDArray) -> float:
    """Return the fraction of rows that are closer to another centre, beyond rounding."""
    known, own_column = np.unique(labels, return_inverse=True)
    centres = centres[known]
    scores = distance_scores(points, centres)
    own = scores[np.arange(labels.size), own_column]
    slack: Any = _rounding(points)
    slack *= np.abs(centres).max() if _are_apart(points, centres) else np.sqrt(-own)
    return float(np.mean(scores.max(axis=1) > own + slack))


class ProjectedKMeans(Clusterer):
    """Clustering by the nearest mean of the projected rows ``components_ (x - mean_)``.

    A problem has a method `seen(result)`, which returns the rows as projected by `predict`, and a
    method `certificate(labels)`.
    """

    _accepts_sparse = False

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

        They may differ from the solver's after max_iter iterations.
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
            f"reg={self.reg:g}, no further rows are distinct up to rounding. Lower n_clusters, "
            "check X for outliers, or use another reg."
        )

    def _scores(self, X: Any) -> NDArray:
        if len(self.cluster_centers_) == 1:
            return np.zeros(X.shape[0])
        points = projected(X, self.mean_, self.components_.T)
        return two_column_scores(distance_scores(points, self.cluster_centers_))


# ---- discriminative k-means


def whitening(z: Standardized, reg: float) -> NDArray:
    """Return A, shape (d, p), with A A' = (Sigma + rho I)^-1 on the p features that vary.

    rho is `reg` times the mean variance of these features. With s the square root of the diagonal
    of Sigma + rho I and L L' the Cholesky factorisation of (Sigma + rho I) / (s s'),
    A = diag(1 / s) L^-T. Because of the unit diagonal, the accuracy of the factorisation depends
    on the correlations only, not on the units of the features.
    """
    sd = z.scale[z.kept]
    s = np.hypot(sd, np.sqrt(reg) * np.linalg.norm(sd) / np.sqrt(sd.size))
    matrix = z.correlation * np.outer(sd / s, sd / s)
    np.fill_diagonal(matrix, 1.0)  # sd^2 / s^2 + rho / s^2
    lower = regular_cholesky(matrix, reg, z.rows.dtype)
    inverse = linalg.solve_triangular(lower, np.eye(s.size), lower=True)
    A = np.zeros((z.scale.size, s.size))
    A[z.kept] = inverse.T / s[:, None]
    return A


def spanned_whitening(span: RowSpace, reg: float) -> tuple[NDArray, NDArray]:
    """Return the whitened rows (n, r) and A (d, r), for more columns than rows.

    A A' is (Sigma + rho I)^-1 on the span of the rows, with rho as in `whitening`. On its
    orthogonal complement the latter is I / rho, which adds the same amount to the squared
    distances of a row to all means.
    """
    values, vectors = eigenpairs(span.correlation)
    size = span.kept.size
    rho = reg * values.sum() / size
    if rho <= size * np.finfo(span.Z.source.dtype).eps * values[-1]:
        raise ValueError(_singular_text(reg, span.Z.source.dtype))
    W = vectors / np.sqrt(np.maximum(values, 0.0) + rho)
    A = span.coefficients(W)
    signs = np.sign((A * fix_signs(A)).sum(axis=0))
    return span.scores(W) * signs, A * signs


@dataclass(frozen=True)
class WhitenedProblem:
    """K-means on the whitened rows Y = (X - 1 mean') A."""

    X: NDArray
    Y: NDArray
    mean: NDArray
    A: NDArray
    n_clusters: int

    def seen(self, result: DiscriminativeKMeansResult) -> NDArray:  # noqa: ARG002 -- one protocol
        """Return the whitened rows as computed by `predict`."""
        return projected(self.X, self.mean, self.A)

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective, and the fraction of the rows that are closer to another mean."""
        centres = cluster_means(self.Y, labels, self.n_clusters)
        deviations = self.Y - centres[labels]
        objective = float(np.einsum("ij,ij->", deviations, deviations) / len(self.Y))
        return Certificate(objective, {"moves": moving_share(self.Y, centres, labels)})


@dataclass(frozen=True, repr=False)
class DiscriminativeKMeansResult(Result):
    """Labels and whitened means; the residual "moves" is zero at a fixed point."""

    _solution: ClassVar = ("labels",)
    _per_cluster: ClassVar = {"centers": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    centers: NDArray = field(default_factory=lambda: np.empty((0, 0)))


class DiscriminativeKMeans(ProjectedKMeans):
    r"""Discriminative k-means (Ye, Zhao and Wu 2007), the method Dis-KM of the MSPC paper.

    Kernel k-means with the kernel :math:`I - (I + XX'/\lambda)^{-1}` of the centred rows X. By
    Woodbury's identity

    .. math:: I - (I + XX'/\lambda)^{-1} = X (X'X + \lambda I)^{-1} X',

    which is the linear kernel of the rows :math:`(X'X + \lambda I)^{-1/2} x_i`. The method is
    therefore k-means on whitened rows. Its time is linear in the number of rows, and no n x n
    matrix is formed.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    reg : float, default=1.0
        Regulariser, relative to the mean variance of the features: :math:`\lambda` is `reg` times
        this variance and the number of rows, so that the same `reg` suits a sample and all rows,
        in any unit common to the features. Must not be negative. With 0, the covariance of X must
        not be singular. Constant features are left out.
    init : "k-means++" or array of shape (n_samples,), default="k-means++"
        Method to draw a start, or the labels to start from.
    n_init : int, default=10
        Number of starts. The one with the lowest objective is kept. If `init` gives labels, there
        is a single start.
    max_iter : int, default=300
        Maximum number of iterations per start.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    components_ : ndarray of shape (n_components, n_features)
        The whitening matrix A'. Rows are transformed to ``A'(x - mean_)``, with
        A A' = (Sigma + rho I)^-1 on the span of the rows (see Notes). The number of components is
        the number of features that vary or, with more features than rows, the dimension of that
        span.
    mean_ : ndarray of shape (n_features,)
        Mean of X.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Cluster means of the whitened rows.
    objective_ : float
        Mean of the squared distances of whitened rows to the means of their clusters, the
        objective of kernel k-means with the kernel above.
    n_iter_ : int
        Number of iterations of the start that was kept.
    result_ : DiscriminativeKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the rows that one
        more iteration would move.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    LDAKMeans : Has a regulariser in the units of the features.

    Notes
    -----
    Labels enter only through the between-cluster scatter: the objective is
    :math:`\mathrm{tr}\,(\Sigma + \rho I)^{-1}\Sigma - \mathrm{tr}\,(\Sigma + \rho I)^{-1} S_b`
    with :math:`\rho` = `reg` times the mean variance of the features. The clusters thus maximise
    the ratio of linear discriminant analysis in its total scatter form. A large `reg` gives plain
    k-means. With `reg` = 0 the clusters are invariant to invertible linear maps of the features.
    In between, the units of the features relative to each other matter, because the same number is
    added to the variance of every feature: scale the features first.

    For two clusters, `decision_function` is the squared distance to the mean of cluster 0 less
    that to the mean of cluster 1 in whitened coordinates. For more, it is the negative squared
    distance to each mean, up to a constant per row.

    References
    ----------
    J. Ye, Z. Zhao and M. Wu (2007). Discriminative k-means for clustering. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import DiscriminativeKMeans
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> X[50:, 0] += 6
    >>> X[:, 1] *= 20  # an uninformative feature of large variance, which misleads k-means
    >>> model = DiscriminativeKMeans(reg=0.01, random_state=0).fit(X)
    >>> bool(np.ptp(model.labels_[:50]) == np.ptp(model.labels_[50:]) == 0)
    True
    """

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        reg: float = 1.0,
        init: Any = "k-means++",
        n_init: int = 10,
        max_iter: int = 300,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reg = reg
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.init, str):
            check_choice("init", self.init, ["k-means++"])

    def _problem(self, X: NDArray, weights: Any) -> WhitenedProblem:  # noqa: ARG002 -- no weights here
        n, d = X.shape
        self._given_labels(n)  # raises an error before the computation starts
        require_memory(
            4.0 * X.dtype.itemsize * n * d,
            f"the whitened copy of {n} rows with {d} features",
            "Cluster a sample and use predict for the rest, or reduce the features first, e.g. by "
            "TruncatedSVD.",
        )
        if d > n:
            span = row_space(as_rows(X), standardize=False)
            _refuse_equal(span.kept)
            Y, A = spanned_whitening(span, self.reg)
            return WhitenedProblem(X, Y, span.mean, A, self.n_clusters)
        z = varying(X)
        A = whitening(z, self.reg)
        return WhitenedProblem(X, projected(X, z.mean, A), z.mean, A, self.n_clusters)

    def _run(self, problem: WhitenedProblem, seed: int) -> DiscriminativeKMeansResult:
        Y, k = problem.Y, self.n_clusters
        start = self._given_labels(len(Y))
        init = self.init if start is None else cluster_means(Y, start, k)
        model = kmeans(Y, k, init, self.max_iter, seed)
        certificate = problem.certificate(model.labels_)
        centres = cluster_means(Y, model.labels_, k)
        status = Status.MAX_ITER
        if np.isnan(centres).any():
            status = Status.DEGENERATE
        elif model.n_iter_ < self.max_iter or certificate.residuals["moves"] == 0:
            status = Status.CONVERGED
        return DiscriminativeKMeansResult(
            **vars(certificate),
            status=status,
            n_iter=model.n_iter_,
            history=(certificate.objective,),
            labels=model.labels_,
            centers=centres,
        )

    def _publish(self, problem: WhitenedProblem, result: DiscriminativeKMeansResult) -> None:
        self._set_projection(problem.A.T.copy(), problem.mean, result)


# ---- LDA-KM


@dataclass(frozen=True)
class DiscriminantSubspace:
    """Discriminant directions of a labelling, in standardised coordinates.

    W'(S_w + reg I)W = I; a direction along which the means do not differ is 0. `centres` are the
    means in the subspace, NaN for a cluster without rows. `objective` is
    log det(S_w + reg I) - log det(R + reg I), and `rounding` bounds its rounding error.
    """

    W: NDArray
    centres: NDArray
    objective: float
    rounding: float


@dataclass(frozen=True)
class LDAProblem:
    """Minimise det(S_w + reg I) / det(R + reg I) over labels, R the correlation matrix of z.

    `z` are the standardised rows, and `lower` is the Cholesky factor of R + reg I, which does not
    depend on the labels.
    """

    X: NDArray
    z: Standardized
    lower: NDArray
    mean: NDArray

    def subspace(self, labels: NDArray, n_clusters: int) -> DiscriminantSubspace:
        """Solve S_b w = rho (S_w + reg I) w for its min(k - 1, p) largest rho.

        With R = S_w + S_b and L L' = R + reg I it is B u = e u for u = L'w, B = L^-1 S_b L^-T and
        e = rho / (1 + rho). B = G G' has rank below k, where the columns of G are
        sqrt(share_c) L^-1 mean_c, and the thin singular value decomposition of G is sufficient.
        """
        sizes = np.bincount(labels, minlength=n_clusters)
        sums = [self.z.combine((labels == c).astype(float)) for c in range(n_clusters)]
        means = np.column_stack(sums) / np.maximum(sizes, 1)
        roots = np.sqrt(sizes / labels.size)
        G = linalg.solve_triangular(self.lower, means, lower=True) * roots
        U, singular, _ = linalg.svd(G, full_matrices=False)
        m = min(n_clusters - 1, U.shape[0])
        eps = float(np.finfo(self.X.dtype).eps)
        # 1 - e is the part of the scatter within clusters. It is zero only without a regulariser
        # and if the clusters have no spread along a direction.
        within = np.maximum(1.0 - singular[:m] ** 2, eps)
        U = fix_signs(U[:, :m] * np.where(singular[:m] > eps, 1.0 / np.sqrt(within), 0.0))
        W = linalg.solve_triangular(self.lower, U, lower=True, trans="T")
        centres = means.T @ W
        centres[sizes == 0] = np.nan
        rounding = 10 * n_clusters * eps / within.min()
        return DiscriminantSubspace(W, centres, float(np.log(within).sum()), float(rounding))

    def points(self, space: DiscriminantSubspace) -> NDArray:
        """Return the rows in the subspace, shape (n, m)."""
        return np.column_stack([self.z.scores(w) for w in space.W.T])

    def seen(self, result: LDAKMeansResult) -> NDArray:
        """Return the rows in the subspace, shape (n, m), as computed by `predict`."""
        return projected(self.X, self.mean, self.z.coefficients(result.W))

    def certificate(
        self, labels: NDArray, space: DiscriminantSubspace | None = None
    ) -> Certificate:
        """Compute the objective, and the fraction of the rows that are closer to another mean."""
        if space is None:
            space = self.subspace(labels, max(int(labels.max()) + 1, 2))
        moves = moving_share(self.points(space), space.centres, labels)
        return Certificate(space.objective, {"moves": moves})


@dataclass(frozen=True, repr=False)
class LDAKMeansResult(Result):
    """Labels with their discriminant directions; the residual "moves" is zero at a fixed point.

    `W`, shape (p, m), are the directions in standardised coordinates, `centers` the cluster means
    in the subspace.
    """

    _solution: ClassVar = ("labels",)
    _per_cluster: ClassVar = {"centers": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    W: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    centers: NDArray = field(default_factory=lambda: np.empty((0, 0)))


def lda_kmeans(
    problem: LDAProblem, labels: NDArray, n_clusters: int, *, max_iter: int, tol: float
) -> LDAKMeansResult:
    """Alternate discriminant analysis and k-means in its subspace from `labels`.

    The objective decreases at every step. In the subspace of the current labels,
    A = W'(S_w + reg I)W = I. k-means decreases tr A, and log det A becomes negative because
    log det A <= tr A - m. In this subspace, the ratio
    det(W'(S_w + reg I)W) / det(W'(R + reg I)W) of the new labels is therefore smaller than that of
    the old ones. In the subspace of the new labels it is smaller still, because all generalised
    eigenvalues of S_w + reg I and R + reg I are at most 1. Labels can recur only by rounding. If
    the objective does not decrease, the previous labels are returned, with `Status.CYCLE` if it
    increases by more than the rounding error.
    """
    space = problem.subspace(labels, n_clusters)
    history = [space.objective]
    status, n_iter = Status.MAX_ITER, 0
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        points = problem.points(space)
        if moving_share(points, space.centres, labels) <= tol:
            status = Status.CONVERGED
            break
        known = space.centres[~np.isnan(space.centres[:, 0])]
        proposed = kmeans(points, len(known), known, KMEANS_ITERATIONS).labels_
        next_space = problem.subspace(proposed, n_clusters)
        if next_space.objective >= space.objective:
            risen = next_space.objective > space.objective + space.rounding
            status = Status.CYCLE if risen else Status.CONVERGED
            break
        labels, space = proposed, next_space
        history.append(space.objective)
    if np.isnan(space.centres).any():
        status = Status.DEGENERATE
    return LDAKMeansResult(
        **vars(problem.certificate(labels, space)),
        status=status,
        n_iter=n_iter,
        history=tuple(history),
        labels=labels,
        W=space.W,
        centers=space.centres,
    )


class LDAKMeans(ProjectedKMeans):
    r"""Alternating linear discriminant analysis and k-means (Ding and Li 2007), LDA-KM.

    Starts from k-means on the features as given. Each iteration computes the n_clusters - 1
    directions that maximise the scatter between clusters relative to that within clusters,

    .. math:: \max_w \; w'S_b w \,/\, w'(S_w + \rho \Lambda) w, \qquad
       \Lambda = \mathrm{diag}(\Sigma),

    scaled to :math:`w'(S_w + \rho\Lambda)w = 1` as in discriminant analysis, and runs k-means in
    that subspace from the current means, until no row moves. Scatters are on the scale of the
    covariance :math:`\Sigma = S_w + S_b` (divided by n), and :math:`\rho` is `reg`.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    reg : float, default=1.0
        Regulariser from 0 to 1e15. The variance of each feature within clusters is increased by
        `reg` times its variance over all rows. With 0, the covariance of X must not be singular.
        Constant features are left out.
    init : "k-means" or array of shape (n_samples,), default="k-means"
        If "k-means", start from k-means on the features as given. If an array, the labels to start
        from.
    n_init : int, default=10
        Number of starts, each from one run of k-means. The one with the lowest objective is kept.
        If `init` gives labels, there is a single start.
    max_iter : int, default=100
        Maximum number of alternations per start.
    tol : float, default=1e-4
        Stopping tolerance: the maximum fraction of the rows that would still move. With fewer
        than 10,000 rows, the default requires that no row moves.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    {labels_}
    components_ : ndarray of shape (min(n_clusters - 1, n_varying_features), n_features)
        The discriminant directions, in the units of X.
    mean_ : ndarray of shape (n_features,)
        Mean of X.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Cluster means in the subspace, whose coordinates are ``components_ (x - mean_)``.
    objective_ : float
        :math:`\log\det(S_w + \rho\Lambda) - \log\det(\Sigma + \rho\Lambda)`, the logarithm of
        Wilks' lambda. It is 0 for clusters with the same mean, and lower for better separation.
    n_iter_ : int
        Number of alternations of the start that was kept.
    result_ : LDAKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the rows that are
        closer to the mean of another cluster in the subspace.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    DiscriminativeKMeans : k-means on whitened rows, the total scatter form of the same idea.

    Notes
    -----
    The objective decreases at every step (see `lda_kmeans`), so labels do not recur. The paper
    maximises the trace form, :math:`\mathrm{tr}\,(S_w + \rho\Lambda)^{-1} S_b`. It orders
    labellings with two clusters in the same way, but for more clusters it can decrease during the
    iteration.

    If `init` gives labels, scaling the features only changes the units of `components_`, because
    :math:`\Lambda` is scaled with them. The start by k-means does depend on the units: scale the
    features first if their units differ.

    With two clusters there is one direction, :math:`(\Sigma + \rho\Lambda)^{-1}(m_1 - m_0)` up to
    its length, and the threshold along it is half-way between the means.

    For two clusters, `decision_function` is the squared distance in the subspace to the mean of
    cluster 0 less that to the mean of cluster 1. For more, it is the negative squared distance to
    each mean, up to a constant per row.

    References
    ----------
    C. Ding and T. Li (2007). Adaptive dimension reduction using discriminant analysis and k-means
    clustering. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar import LDAKMeans
    >>> X = np.random.default_rng(0).standard_normal((100, 3))
    >>> X[:50] += 4
    >>> model = LDAKMeans(random_state=0).fit(X)
    >>> np.bincount(model.labels_)
    array([50, 50])
    >>> model.components_.shape
    (1, 3)
    """

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        reg: float = 1.0,
        init: Any = "k-means",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reg = reg
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("reg", self.reg, low=0.0, high=LARGEST_REG)
        check_number("tol", self.tol, low=0.0, high=1.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["k-means"])

    def _problem(self, X: NDArray, weights: Any) -> LDAProblem:  # noqa: ARG002 -- no weights here
        self._given_labels(X.shape[0])  # raises an error before the computation starts
        mean = varying(X).mean
        # Projections of float32 rows far from zero would lose precision.
        z = varying(X - mean.astype(X.dtype))
        lower = regular_cholesky(z.correlation + self.reg * np.eye(z.size), self.reg, X.dtype)
        return LDAProblem(X, z, lower, mean)

    def _run(self, problem: LDAProblem, seed: int) -> LDAKMeansResult:
        labels = self._given_labels(len(problem.X))
        if labels is None:
            start = kmeans(problem.X, self.n_clusters, "k-means++", KMEANS_ITERATIONS, seed)
            labels = start.labels_
        return lda_kmeans(problem, labels, self.n_clusters, max_iter=self.max_iter, tol=self.tol)

    def _publish(self, problem: LDAProblem, result: LDAKMeansResult) -> None:
        self._set_projection(problem.z.coefficients(result.W).T, problem.mean, result)
