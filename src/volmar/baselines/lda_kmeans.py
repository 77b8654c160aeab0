"""LDA-KM of Ding and Li (2007): alternating discriminant analysis and k-means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from volmar._checks import fix_signs
from volmar.base import Result, Status
from volmar.base.validation import check_choice, check_number
from volmar.baselines.projected_kmeans import (
    ProjectedKMeans,
    drawn_centres,
    kmeans_labels,
    moved,
    projected_moved,
    regular_cholesky,
    varying,
    would_move,
)
from volmar.rows import Standardized
from volmar.solvers.result import Certificate

# Maximum number of iterations of k-means, on the features for a start or in the subspace.
KMEANS_ITERATIONS = 300
# With a larger multiple of the identity, the correlations would be below rounding error.
LARGEST_REG = 1e15


@dataclass(frozen=True)
class DiscriminantSubspace:
    """Discriminant directions of a labelling, in standardised coordinates.

    W'(S_w + reg I)W = I; a direction along which the means do not differ is 0. `centres` are the
    means in the subspace, NaN for a cluster without weight. `objective` is
    log det(S_w + reg I) - log det(R + reg I), and `rounding` bounds its rounding error.
    """

    W: NDArray
    centres: NDArray
    objective: float
    rounding: float


@dataclass(frozen=True)
class LDAProblem:
    """Minimise det(S_w + reg I) / det(R + reg I) over labels, R the correlation matrix of z.

    Dense rows `X` are centred by their rounded mean, sparse ones are not; `rest` is the part of
    `mean` that was not subtracted. `z` are the standardised rows. `lower` is the Cholesky factor
    of R + reg I, which does not depend on the labels.
    """

    X: Any
    z: Standardized
    weights: NDArray
    lower: NDArray
    mean: NDArray
    rest: NDArray

    def subspace(self, labels: NDArray, n_clusters: int) -> DiscriminantSubspace:
        """Solve S_b w = rho (S_w + reg I) w for its min(k - 1, p) largest rho.

        With R = S_w + S_b and L L' = R + reg I it is B u = e u for u = L'w, B = L^-1 S_b L^-T and
        e = rho / (1 + rho). B = G G' has rank below k, where the columns of G are
        sqrt(share_c) L^-1 mean_c, and the thin singular value decomposition of G is sufficient.
        """
        mass = np.bincount(labels, self.weights, n_clusters)
        share = mass / mass.sum()
        sums = [self.z.combine(self.weights * (labels == c)) for c in range(n_clusters)]
        means = np.column_stack(sums) / np.where(mass > 0, mass, 1.0)
        G = linalg.solve_triangular(self.lower, means, lower=True) * np.sqrt(share)
        U, singular, _ = linalg.svd(G, full_matrices=False)
        m = min(n_clusters - 1, U.shape[0])
        eps = float(np.finfo(self.X.dtype).eps)
        # 1 - e is the part of the scatter within clusters. It is zero only without a regulariser
        # and if the clusters have no spread along a direction.
        within = np.maximum(1.0 - singular[:m] ** 2, eps)
        U = U[:, :m] * np.where(singular[:m] > eps, 1.0 / np.sqrt(within), 0.0)
        U = fix_signs(U)
        W = linalg.solve_triangular(self.lower, U, lower=True, trans="T")
        centres = means.T @ W
        centres[mass == 0] = np.nan
        rounding = 10 * n_clusters * eps / within.min()
        return DiscriminantSubspace(W, centres, float(np.log(within).sum()), float(rounding))

    def points(self, space: DiscriminantSubspace) -> NDArray:
        """Return the rows in the subspace, shape (n, m)."""
        return np.column_stack([self.z.scores(w) for w in space.W.T])

    def seen(self, result: LDAKMeansResult) -> NDArray:
        """Return the rows in the subspace, shape (n, m), as computed by `predict`."""
        return projected_moved(self.X, self.rest, self.z.coefficients(result.W))

    def certificate(
        self, labels: NDArray, space: DiscriminantSubspace | None = None
    ) -> Certificate:
        """Compute the objective, and the fraction of the weight that is closer to another mean."""
        if space is None:
            space = self.subspace(labels, max(int(labels.max()) + 1, 2))
        moves = would_move(self.points(space), space.centres, labels)
        share = float(self.weights[moves].sum() / self.weights.sum())
        return Certificate(space.objective, {"moves": share})


@dataclass(frozen=True, repr=False)
class LDAKMeansResult(Result):
    """Labels with their discriminant directions; the residual "moves" is zero at a fixed point.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Cluster of each row.
    W : ndarray of shape (p, m)
        Discriminant directions of the clusters, in standardised coordinates.
    centers : ndarray of shape (k, m)
        Cluster means in the subspace.
    """

    _solution: ClassVar = ("labels",)
    _per_cluster: ClassVar = {"centers": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    W: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    centers: NDArray = field(default_factory=lambda: np.empty((0, 0)))


def lda_kmeans(
    problem: LDAProblem,
    labels: NDArray,
    n_clusters: int,
    *,
    max_iter: int = 100,
    tol: float = 1e-4,
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
    total = problem.weights.sum()
    space = problem.subspace(labels, n_clusters)
    history = [space.objective]
    status, n_iter = Status.MAX_ITER, 0
    for n_iter in range(1, max_iter + 1):  # noqa: B007 -- the count is part of the result
        points = problem.points(space)
        if problem.weights[would_move(points, space.centres, labels)].sum() <= tol * total:
            status = Status.CONVERGED
            break
        known = space.centres[~np.isnan(space.centres[:, 0])]
        proposed, _, _ = kmeans_labels(points, known, problem.weights, KMEANS_ITERATIONS)
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
    covariance :math:`\Sigma = S_w + S_b` (divided by the total weight), and :math:`\rho` is `reg`.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. If "auto", the rows are split recursively, and a split is made only if
        held-out rows confirm it by their distances to its border (see
        `volmar.evidence.split_test` and `tree_`).
    reg : float, default=1.0
        Regulariser from 0 to 1e15. The variance of each feature within clusters is increased by
        `reg` times its variance over all rows. With 0, the covariance of X must not be singular.
        Constant features are left out.
    init : "k-means", array of shape (n_samples,) or fitted clusterer, default="k-means"
        If "k-means", start from k-means on the features as given. If an array, the labels to start
        from. If a clusterer fitted to the same columns, its clusters are the start, and clusters
        that match keep their numbers.
    n_init : int, default=10
        Number of starts, each from one run of k-means. The one with the lowest objective is kept.
        If `init` gives labels, there is a single start.
    max_iter : int, default=100
        Maximum number of alternations per start.
    tol : float, default=1e-4
        Stopping tolerance: the maximum fraction of the weight that would still move. With fewer
        than 10,000 rows, the default requires that no row moves.
    alpha : float, default=0.05
        Significance level of the tests with n_clusters="auto", from 0.001 to 0.5: the probability
        of one or more false splits. Small values make the tests slower. Not used otherwise.
    max_clusters : int, optional
        Maximum number of clusters with n_clusters="auto". If None, there is no limit. The
        strongest splits are made first, and a warning is issued if further splits are left out.
    random_state : int, RandomState or None, default=None
        Random seed of the starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest.
    components_ : ndarray of shape (min(n_clusters - 1, n_varying_features), n_features)
        The discriminant directions, in the units of X.
    mean_ : ndarray of shape (n_features,)
        Weighted mean of X.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Cluster means in the subspace, whose coordinates are ``components_ (x - mean_)``.
    objective_ : float
        :math:`\log\det(S_w + \rho\Lambda) - \log\det(\Sigma + \rho\Lambda)`, the logarithm of
        Wilks' lambda. It is 0 for clusters with the same mean, and lower for better separation.
    n_iter_ : int
        Number of alternations of the start that was kept.
    result_ : LDAKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the weight that is
        closer to the mean of another cluster in the subspace.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    volmar.baselines.discriminative_kmeans.DiscriminativeKMeans :
        k-means on whitened rows, the total scatter form of the same idea.

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
    >>> from volmar.baselines.lda_kmeans import LDAKMeans
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
        n_clusters: int | str = 2,
        *,
        reg: float = 1.0,
        init: Any = "k-means",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-4,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reg = reg
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("reg", self.reg, low=0.0, high=LARGEST_REG)
        check_number("tol", self.tol, low=0.0, high=1.0)
        if isinstance(self.init, str):
            check_choice("init", self.init, ["k-means"])

    def _problem(self, X: Any, weights: NDArray | None) -> LDAProblem:
        self._given_labels(X.shape[0])  # raises an error before the computation starts
        z = varying(X, weights)
        mean = z.mean
        # Projections of float32 rows far from zero would lose precision.
        X, rest = moved(X, mean)
        if not sparse.issparse(X):
            z = varying(X, weights)
        matrix = z.correlation + self.reg * np.eye(z.size)
        lower = regular_cholesky(matrix, self.reg, X.dtype)
        weights = np.ones(X.shape[0]) if weights is None else weights
        return LDAProblem(X, z, weights, lower, mean, rest)

    def _run(self, problem: LDAProblem, seed: int) -> LDAKMeansResult:
        X, weights = problem.X, problem.weights
        labels = self._given_labels(X.shape[0])
        if labels is None:
            centres = drawn_centres(X, self.n_clusters, weights, seed)
            labels = kmeans_labels(X, centres, weights, KMEANS_ITERATIONS)[0]
        return lda_kmeans(problem, labels, self.n_clusters, max_iter=self.max_iter, tol=self.tol)

    def _publish(self, problem: LDAProblem, result: LDAKMeansResult) -> None:
        self._set_projection(problem.z.coefficients(result.W).T, problem.mean, result)
