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
    """Matrix A, shape (d, p), with A A' = (Sigma + reg I)^-1 on the p features that vary.

    With s the root of the diagonal of Sigma + reg I and L L' the Cholesky factorisation of
    (Sigma + reg I) / (s s'), A = diag(1 / s) L^-T. The unit diagonal makes the factorisation as
    good as the correlations allow, whatever the units of the features.
    """
    sd = z.scale[z.kept]
    s = np.hypot(sd, np.sqrt(reg))
    matrix = z.correlation * np.outer(sd / s, sd / s)
    np.fill_diagonal(matrix, 1.0)  # sd^2 / s^2 + reg / s^2
    lower = regular_cholesky(matrix, reg, z.rows.dtype)
    inverse = linalg.solve_triangular(lower, np.eye(s.size), lower=True)
    A = np.zeros((z.scale.size, s.size))
    A[z.kept] = inverse.T / s[:, None]
    return A


def spanned_whitening(span: RowSpace, reg: float) -> tuple[NDArray, NDArray]:
    """Return the whitened rows (n, r) and A (d, r) of more columns than rows.

    A A' is (Sigma + reg I)^-1 on the span of the rows. Beyond, that is I / reg, which moves a row
    away from all means alike. The coordinates are principal components: copies of rows in the
    place of weights do not change them.
    """
    values, vectors = eigenpairs(span.correlation)
    size = span.kept.size
    if reg <= size * np.finfo(span.Z.source.dtype).eps * values[-1]:
        raise ValueError(singular_text(reg, span.Z.source.dtype))
    W = vectors / np.sqrt(np.maximum(values, 0.0) + reg)
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
        """Whitened rows as `predict` computes them."""
        return projected(self.X, self.mean, self.A)

    def certificate(self, labels: NDArray) -> Certificate:
        """Compute the objective, and the share of weight that lies nearer to another mean."""
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

    the linear kernel of the rows :math:`(X'X + \lambda I)^{-1/2} x_i`. It is therefore k-means on
    whitened rows: time is linear in the number of rows, and no n x n matrix is formed.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. "auto": as many as held-out rows confirm, by splitting again; a split
        is tested by the distances of rows to its border (see `volmar.evidence.split_test` and
        `tree_`).
    reg : float, default=1.0
        Regulariser, on the scale of the covariance: :math:`\lambda` = `reg` times the total weight
        of the rows (n without weights), so that the same `reg` fits a sample and the whole. Not
        negative; with 0 the covariance of X must be regular. Features that do not vary are left
        out.
    init : "k-means++", array of shape (n_samples,) or fitted clusterer, default="k-means++"
        How a start is drawn, the labels to start from, or a fitted clusterer of the same columns,
        whose clusters are the start, and keep their numbers where they match.
    n_init : int, default=10
        Number of starts; the one with the lowest objective is kept. Given labels are one start.
    max_iter : int, default=300
        Maximum number of iterations of a start.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest.
    components_ : ndarray of shape (n_components, n_features)
        The whitening A': a row is seen as ``A'(x - mean_)``, with A A' = (Sigma + reg I)^-1 on the
        span of the rows. There are as many components as features that vary, or, with more
        features than rows, as dimensions of that span.
    mean_ : ndarray of shape (n_features,)
        Weighted mean of X.
    cluster_centers_ : ndarray of shape (n_clusters, n_components)
        Means of the clusters, whitened.
    objective_ : float
        Weighted mean of the squared distances of whitened rows to the means of their clusters:
        the objective of kernel k-means with the kernel above.
    n_iter_ : int
        Iterations of the start that was kept.
    result_ : DiscriminativeKMeansResult
        The solver's certified result; its residual "moves" is the share of weight that one more
        iteration would move.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    volmar.baselines.lda_kmeans.LDAKMeans : Its regulariser follows the units of the features.

    Notes
    -----
    Labels enter only through the between-cluster scatter: the objective is
    :math:`\mathrm{tr}\,(\Sigma + \rho I)^{-1}\Sigma - \mathrm{tr}\,(\Sigma + \rho I)^{-1} S_b`
    with :math:`\rho` = `reg`, so that the clusters maximise the ratio of linear discriminant
    analysis in its total scatter form. A large `reg` gives plain k-means, `reg` = 0 clusters that
    no invertible linear map of the features changes. In between the units of X matter, because
    `reg` is added to the variance of every feature alike: scale the features first.

    `decision_function` is, for two clusters, the squared distance to the mean of cluster 0 less
    that to the mean of cluster 1 in whitened coordinates, and for more the negative squared
    distance to each mean, up to a constant of each row.

    Sparse X is not centred in place, but its whitened rows are dense.

    References
    ----------
    J. Ye, Z. Zhao and M. Wu (2007). Discriminative k-means for clustering. NIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.baselines.discriminative_kmeans import DiscriminativeKMeans
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> X[50:, 0] += 6
    >>> X[:, 1] *= 20  # a wide feature that says nothing leads k-means astray
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
        self._given_labels(n)  # refused before anything is computed
        require_memory(
            4.0 * X.dtype.itemsize * n * d,
            f"the dense whitened copy of {n} rows of {d} features",
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
