"""Discriminative k-means of Ye, Zhao and Wu (2007): k-means on whitened rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar._checks import fix_signs
from volmar._eigen import eigenpairs
from volmar._memory import require_memory
from volmar.base import Result, Status
from volmar.base.validation import check_choice
from volmar.baselines.projected_kmeans import (
    ProjectedKMeans,
    drawn_centres,
    kmeans_labels,
    projected,
    refuse_equal,
    regular_cholesky,
    singular_text,
    varying,
    weighted_means,
    would_move,
)
from volmar.rows import RowSpace, Standardized, as_rows, row_space
from volmar.solvers.result import Certificate


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
    distances of a row to all means. The coordinates are principal components, which do not change
    if a row of weight 2 is replaced by two copies.
    """
    values, vectors = eigenpairs(span.correlation)
    size = span.kept.size
    rho = reg * values.sum() / size
    if rho <= size * np.finfo(span.Z.source.dtype).eps * values[-1]:
        raise ValueError(singular_text(reg, span.Z.source.dtype))
    W = vectors / np.sqrt(np.maximum(values, 0.0) + rho)
    A = span.coefficients(W)
    signs = np.sign((A * fix_signs(A)).sum(axis=0))
    return span.scores(W) * signs, A * signs


@dataclass(frozen=True)
class WhitenedProblem:
    """K-means on the whitened rows Y = (X - 1 mean') A."""

    X: Any
    Y: NDArray
    weights: NDArray
    mean: NDArray
    A: NDArray
    n_clusters: int

    def seen(self, result: DiscriminativeKMeansResult) -> NDArray:  # noqa: ARG002 -- one protocol
        """Return the whitened rows as computed by `predict`."""
        return projected(self.X, self.mean, self.A)

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective, and the fraction of the weight that is closer to another mean."""
        centres, _ = weighted_means(self.Y, labels, self.weights, self.n_clusters)
        weighs = self.weights > 0
        deviations = self.Y[weighs] - centres[labels[weighs]]
        squared = np.einsum("ij,ij->i", deviations, deviations)
        total = self.weights.sum()
        objective = float(self.weights[weighs] @ squared / total)
        moves = would_move(self.Y, centres, labels)
        return Certificate(objective, {"moves": float(self.weights[moves].sum() / total)})


@dataclass(frozen=True, repr=False)
class DiscriminativeKMeansResult(Result):
    """Labels and whitened means; the residual "moves" is zero at a fixed point."""

    _solution: ClassVar = ("labels",)
    _per_cluster: ClassVar = {"centers": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    centers: NDArray = field(default_factory=lambda: np.empty((0, 0)))


def discriminative_kmeans(
    problem: WhitenedProblem, centres: NDArray, *, max_iter: int = 300
) -> DiscriminativeKMeansResult:
    """Run k-means on whitened rows from `centres`, and certify its labels."""
    Y, weights = problem.Y, problem.weights
    labels, n_iter, converged = kmeans_labels(Y, centres, weights, max_iter)
    centres, mass = weighted_means(Y, labels, weights, problem.n_clusters)
    certificate = problem.certificate(labels)
    status = Status.MAX_ITER
    if np.any(mass == 0):
        status = Status.DEGENERATE
    elif converged or certificate.residuals["moves"] == 0:
        status = Status.CONVERGED
    return DiscriminativeKMeansResult(
        **vars(certificate),
        status=status,
        n_iter=n_iter,
        history=(certificate.objective,),
        labels=labels,
        centers=centres,
    )


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
    n_clusters : int or "auto", default=2
        Number of clusters. If "auto", the rows are split recursively, and a split is made only if
        held-out rows confirm it by their distances to its border (see
        `volmar.evidence.split_test` and `tree_`).
    reg : float, default=1.0
        Regulariser, relative to the mean variance of the features: :math:`\lambda` is `reg` times
        this variance and the total weight of the rows (n without weights), so that the same `reg`
        suits a sample and all rows, in any unit common to the features. Must not be negative. With
        0, the covariance of X must not be singular. Constant features are left out.
    init : "k-means++", array of shape (n_samples,) or fitted clusterer, default="k-means++"
        Method to draw a start, or the labels to start from. If a clusterer fitted to the same
        columns, its clusters are the start, and clusters that match keep their numbers.
    n_init : int, default=10
        Number of starts. The one with the lowest objective is kept. If `init` gives labels, there
        is a single start.
    max_iter : int, default=300
        Maximum number of iterations per start.
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
    components_ : ndarray of shape (n_components, n_features)
        The whitening matrix A'. Rows are transformed to ``A'(x - mean_)``, with
        A A' = (Sigma + rho I)^-1 on the span of the rows (see Notes). The number of components is
        the number of features that vary or, with more features than rows, the dimension of that
        span.
    mean_ : ndarray of shape (n_features,)
        Weighted mean of X.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Cluster means of the whitened rows.
    objective_ : float
        Weighted mean of the squared distances of whitened rows to the means of their clusters,
        the objective of kernel k-means with the kernel above.
    n_iter_ : int
        Number of iterations of the start that was kept.
    result_ : DiscriminativeKMeansResult
        Certified result of the solver. Its residual "moves" is the fraction of the weight that one
        more iteration would move.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    volmar.baselines.lda_kmeans.LDAKMeans : Has a regulariser in the units of the features.

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

    Sparse X is not densified for centring, but its whitened rows are dense.

    References
    ----------
    J. Ye, Z. Zhao and M. Wu (2007). Discriminative k-means for clustering. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.baselines.discriminative_kmeans import DiscriminativeKMeans
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> X[50:, 0] += 6
    >>> X[:, 1] *= 20  # an uninformative feature of large variance, which misleads k-means
    >>> model = DiscriminativeKMeans(reg=0.01, random_state=0).fit(X)
    >>> bool(np.ptp(model.labels_[:50]) == np.ptp(model.labels_[50:]) == 0)
    True
    """

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        reg: float = 1.0,
        init: Any = "k-means++",
        n_init: int = 10,
        max_iter: int = 300,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.reg = reg
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.init, str):
            check_choice("init", self.init, ["k-means++"])

    def _problem(self, X: Any, weights: NDArray | None) -> WhitenedProblem:
        n, d = X.shape
        self._given_labels(n)  # raises an error before the computation starts
        require_memory(
            4.0 * X.dtype.itemsize * n * d,
            f"the dense whitened copy of {n} rows with {d} features",
            "Cluster a sample and use predict for the rest, or reduce the features first, e.g. by "
            "TruncatedSVD.",
        )
        of_rows = np.ones(n) if weights is None else weights
        if d > n:
            span = row_space(as_rows(X, sample_weight=weights), standardize=False)
            refuse_equal(span.kept.size > 0)
            Y, A = spanned_whitening(span, self.reg)
            return WhitenedProblem(X, Y, of_rows, span.mean, A, self.n_clusters)
        z = varying(X, weights)
        A = whitening(z, self.reg)
        Y = projected(X, z.mean, A)
        return WhitenedProblem(X, Y, of_rows, z.mean, A, self.n_clusters)

    def _run(self, problem: WhitenedProblem, seed: int) -> DiscriminativeKMeansResult:
        Y, weights = problem.Y, problem.weights
        labels = self._given_labels(len(Y))
        if labels is None:
            centres = drawn_centres(Y, self.n_clusters, weights, seed)
        else:
            centres, mass = weighted_means(Y, labels, weights, self.n_clusters)
            centres = centres[mass > 0]
        return discriminative_kmeans(problem, centres, max_iter=self.max_iter)

    def _publish(self, problem: WhitenedProblem, result: DiscriminativeKMeansResult) -> None:
        self._set_projection(problem.A.T.copy(), problem.mean, result)
