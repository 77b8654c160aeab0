"""Clustering by squared-loss mutual information (Sugiyama and others 2011), the method SMIC."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_choice, shown
from volmar._warn import warn_user
from volmar.base.clusterer import Clusterer, two_column_scores
from volmar.graphs.copies import distinct_rows
from volmar.graphs.graph import Graph, build_graph, row_weights
from volmar.operators import as_operator
from volmar.solvers import Result, Status

# Smaller eigenvalues, as a fraction of the largest, are not used as divisors, because the Lanczos
# method does not compute them accurately enough. An eigenvector whose average over identical rows
# has a smaller norm only separates such rows from each other.
SMALLEST_RATIO = 1e-6


@dataclass(frozen=True, repr=False)
class SMICResult(Result):
    """Labels, and the functions of the rows whose argmax gives the labels.

    The objective is 1/2 - k / (2n) sum_y phi_y' K^2 phi_y: the paper's approximate squared-loss
    mutual information, eq. (16) for k = 2, with its sign changed. The gap is NaN: the eigenvectors
    solve the relaxed problem exactly, but there is no bound on the loss from rounding them to
    labels. The residual "eigenvectors" is the maximum of ``|K phi_y - lambda_y phi_y|``, divided
    by the largest row sum of K. Empty clusters are left out. For the others, `shares` are
    phi~_y / max(0, phi~_y)'1 (phi~_y itself with rounding="difference"), and `divisors` are
    lambda_y / lambda_1, or 1 if lambda_y is too small to divide by.
    """

    _per_cluster: ClassVar = {"shares": 1, "divisors": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    shares: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    divisors: NDArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class KernelSpectrum:
    """A graph with the leading eigenpairs of its similarity matrix K = W, diagonal included.

    The eigenvalues are the algebraically largest in descending order, one more than is used. The
    residuals are ``|K phi_y - lambda_y phi_y|`` divided by the largest row sum of K. `points` is
    the index of the distinct row that each row equals, or None.
    """

    graph: Graph
    values: NDArray
    vectors: NDArray
    residuals: NDArray
    points: NDArray | None = None

    @property
    def functions(self) -> NDArray:
        """The eigenvectors, averaged over identical rows.

        In a graph of nearest neighbours, only one of many copies of a row may have an edge to a
        distant row, and its entry would separate it from the other copies.
        """
        if self.points is None:
            return self.vectors
        counts = np.bincount(self.points)
        sums = [np.bincount(self.points, column) for column in self.vectors.T]
        return (np.column_stack(sums) / counts[:, None])[self.points]

    @property
    def is_inside_copies(self) -> bool:
        """Whether an eigenvector only separates identical rows from each other."""
        norms = np.linalg.norm(self.functions, axis=0)
        return self.points is not None and bool((norms <= SMALLEST_RATIO).any())

    @property
    def n_clusters(self) -> int:
        """Number of eigenvectors in use."""
        return self.vectors.shape[1]

    @property
    def is_extensible(self) -> NDArray:
        """Mask of the eigenvalues in use that are positive and accurate enough to divide by."""
        return self.values[: self.n_clusters] > SMALLEST_RATIO * self.values[0]

    @property
    def is_degenerate(self) -> bool:
        """Whether K does not determine `n_clusters` clusters.

        This is the case if its graph has more components than clusters, if an eigenvalue in use is
        not positive, if an eigenvector only separates identical rows, or if an eigenvalue in use
        equals its successor, so that their eigenvectors are an arbitrary basis of a plane.
        """
        return bool(
            self.graph.components[0] > self.n_clusters
            or self.is_inside_copies
            or not self.is_extensible.all()
            or np.any(-np.diff(self.values) <= 1e-9 * self.values[0])
        )

    def words(self, n_unseen: int) -> str:
        """Return a message on why K does not determine the clusters, with a remedy.

        All eigenvectors in use are zero on `n_unseen` rows. With more components than clusters,
        some rows are unseen for that reason.
        """
        n_groups, k = int(self.is_extensible.sum()), self.n_clusters
        if self.graph.components[0] > k:
            return self.graph.component_words(k)
        if n_groups < k:
            return (
                f"The graph determines at most {n_groups} cluster(s). Eigenvalue {n_groups + 1} "
                f"of the similarities is {self.values[n_groups]:.3g}, which is not positive "
                f"relative to the first, {self.values[0]:.3g}, so that its eigenvector cannot be "
                "extended to new rows. Lower n_clusters, or use a smaller n_neighbors or sigma."
            )
        if self.is_inside_copies:
            return (
                "An eigenvector of the similarities only separates identical rows. Use "
                "affinity='density_scaling', which merges them, or lower n_clusters."
            )
        if n_unseen:
            return (
                f"The {k} leading eigenvectors are concentrated on a part of the graph with large "
                f"similarities. They are zero on {n_unseen} of {self.vectors.shape[0]} rows, "
                "which are put into cluster 0. Use a larger n_neighbors or sigma, or "
                "NormalizedSpectralClustering."
            )
        return (
            "Eigenvalues of the similarities are equal, so that other eigenvectors, with other "
            "clusters, are equally good. Use another n_clusters or another affinity."
        )


def kernel_spectrum(
    graph: Graph, n_clusters: int, points: NDArray | None = None
) -> KernelSpectrum:
    """Compute the leading eigenpairs of K, and warn about small components of the graph."""
    graph.warn_of_components(n_clusters)
    # The largest row sum of a nonnegative matrix bounds the magnitude of its eigenvalues.
    ceiling = float(graph.degrees.max())
    if ceiling < np.finfo(np.float64).tiny:
        raise ValueError(
            "all similarities between rows of X are zero. Use a larger sigma, or another affinity."
        )
    scaled = graph.W.astype(np.float64, copy=False) * (-1.0 / ceiling)
    n_pairs = min(n_clusters + 1, scaled.shape[0])
    pairs = as_operator(scaled, shift=1.0, bounds=(-1.0, 1.0)).smallest_eigenpairs(n_pairs)
    return KernelSpectrum(
        graph,
        values=ceiling * (1.0 - pairs.values),
        vectors=pairs.vectors[:, :n_clusters],
        residuals=pairs.residuals[:n_clusters],
        points=points,
    )


def information_maximization(
    problem: KernelSpectrum, *, rounding: str = "posterior"
) -> SMICResult:
    """Round the eigenvectors to labels, label_i = argmax_y max(0, phi~_y)_i / max(0, phi~_y)'1.

    With rounding="difference" there is no division, label_i = argmax_y phi~_yi (JMLR remark 2, for
    two clusters: the sign of phi~_1 - phi~_2).

    Labels are taken from the values before clipping at zero. Clipping does not change the argmax
    of a row with a positive entry, and it would make all entries of any other row equal.
    """
    n, n_clusters = problem.vectors.shape
    to_values = signed_functions if rounding == "difference" else positive_shares
    shares = to_values(problem.functions, problem.residuals)
    # Empty clusters are left out.
    present, labels = np.unique(np.argmax(shares, axis=1), return_inverse=True)
    n_unseen = int((shares == 0).all(axis=1).sum())
    if present.size < n_clusters:
        warn_user(
            f"Only {present.size} of n_clusters={n_clusters} clusters have rows, because the "
            "other eigenvectors are not the largest in any row. Lower n_clusters, or use another "
            "affinity."
        )
    values = problem.values[:n_clusters]
    divisors = np.where(problem.is_extensible, values / values[0], 1.0)
    objective = 0.5 - n_clusters / (2 * n) * float(values @ values)
    undetermined = problem.is_degenerate or n_unseen > 0
    return SMICResult(
        objective=objective,
        residuals={"eigenvectors": float(problem.residuals.max())},
        status=Status.DEGENERATE if undetermined else Status.CONVERGED,
        n_iter=1,
        history=(objective,),
        labels=labels,
        shares=shares[:, present],
        divisors=divisors[present],
    )


def signed_functions(vectors: NDArray, residuals: NDArray) -> NDArray:
    """Return phi~_y = phi_y sign(phi_y'1), with sign(0) = 1.

    Entries within rounding error are set to zero. Otherwise rounding would decide the labels of
    whole components of a disconnected graph.
    """
    noise = np.maximum(1e-12 * np.abs(vectors).max(axis=0), residuals)
    clean = np.where(np.abs(vectors) > noise, vectors, 0.0)
    return clean * np.where(clean.sum(axis=0) < -1e-8 * np.sqrt(len(clean)), -1.0, 1.0)


def positive_shares(vectors: NDArray, residuals: NDArray) -> NDArray:
    """Return phi~_y / max(0, phi~_y)'1, and zeros if phi~_y is zero.

    Any other column has a positive entry, because its sum is not negative.
    """
    signed = signed_functions(vectors, residuals)
    sums = np.maximum(signed, 0.0).sum(axis=0)
    return signed / np.where(sums > 0, sums, 1.0)


class SMIC(Clusterer):
    r"""Squared-loss mutual information clustering of Sugiyama and others (2011).

    The posterior of cluster y is modelled as :math:`\sum_i \alpha_{yi} K(x, x_i)`. With clusters
    of equal probability, the squared-loss mutual information between rows and clusters is
    approximately :math:`\frac{k}{2n} \sum_y \alpha_y' K^2 \alpha_y - \frac{1}{2}` (JMLR eq. 16 for
    k = 2). Its maximum over orthonormal :math:`\alpha_y` is at the k leading eigenvectors
    :math:`\phi_y` of K (eq. 17 and 18). With
    :math:`\tilde\phi_y = \phi_y \, sign(\phi_y' 1)`, row i is assigned to

    .. math:: \arg\max_y \max(0, \tilde\phi_y)_i \, / \, \max(0, \tilde\phi_y)' 1,

    and a new row x to

    .. math:: \arg\max_y \max\Bigl(0, \sum_i K(x, x_i) \tilde\phi_{yi}\Bigr) \, / \,
        (\lambda_y \max(0, \tilde\phi_y)' 1).

    Eigenvector entries are averaged over identical rows, which therefore have the same label.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    affinity : str, callable or Similarity, default="local_scaling"
        The kernel K: "local_scaling" (on the graph of nearest neighbours), "density_scaling" (the
        default of the other graph methods; its varying weights are harmful here, because K is not
        normalised by its row sums), "gaussian", "cosine_knn", "nearest_neighbors" (see
        `volmar.graphs`) or "precomputed". Affinities given by name have no self-loops. A recipe
        such as ``GaussianSimilarity(sigma="mean/4")``, a function f(X, Y) of similarities or a
        matrix is used as given. Entries must not be negative.
    {sigma}
    {n_neighbors}
    rounding : {"posterior", "difference"}, default="posterior"
        Rule that assigns labels. "posterior" uses the posteriors above (Sugiyama and others).
        "difference", for at most two clusters, uses the sign of
        :math:`\tilde\phi_1 - \tilde\phi_2` as proposed in JMLR (remark 2). If both groups have the
        same structure, that difference is zero in one of them and determined by rounding.
    random_state : int, RandomState or None, default=None
        Not used, present for API consistency. The method is deterministic.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest. Empty
        clusters are left out, with a warning.
    {n_neighbors_}
    {sigma_}
    eigenvalues_ : ndarray of shape (n_clusters + 1,)
        Largest eigenvalues of K, one more than is used.
    objective_ : float
        :math:`\frac{1}{2} - \frac{k}{2n} \sum_y \lambda_y^2`, the negative information.
    result_ : SMICResult
        Certified result, with residuals of the eigenvectors. `gap` is NaN, because there is no
        bound on the loss from rounding eigenvectors to labels.
    n_iter_ : int
        Always 1.
    {graph:n_features_in_}

    See Also
    --------
    NormalizedSpectralClustering : Eigenvectors of the similarities normalised by the degrees.

    Notes
    -----
    *Choice of eigenvectors.* The eigenvectors are those of the algebraically largest eigenvalues.
    For a positive semidefinite K they are those of eq. 17 and 18. Other similarities become
    positive semidefinite by adding a constant to their diagonal, which shifts all eigenvalues and
    does not change the eigenvectors. It therefore makes no difference to `labels_` whether the
    diagonal is 0 or 1. Eigenvectors of large negative eigenvalues, which separate rows from their
    own neighbours, are not used.

    *New rows.* :math:`\lambda_y` is the eigenvalue of K as used. If K is given with its diagonal
    (a kernel matrix, a recipe with self-loops, a callable), `predict` reproduces the `labels_` of
    training rows, because :math:`K \phi_y = \lambda_y \phi_y`. Affinities given by name have no
    diagonal, because a new row has no similarity to itself, and `predict` may assign a few
    training rows at the border differently. For an eigenvalue that is not positive, `fit` warns,
    and the largest eigenvalue is used as divisor. `predict` also assigns rows far from all
    training rows, without a warning.

    *Clipping at zero* has no effect in a row with a positive value. In a connected graph every row
    has one, because the first eigenvector is positive. In a row without one, clipping would make
    all clusters equal, and the largest unclipped value decides. If all values of a row are zero up
    to rounding (all eigenvectors in use vanish on its part of the graph), it is put into cluster
    0; `fit` warns about such rows, and `result_.status` is DEGENERATE.

    `decision_function` is
    :math:`\sum_i K(x, x_i) \tilde\phi_{yi} / (\lambda_y \max(0, \tilde\phi_y)' 1)` times
    :math:`\lambda_1 / \sum_i K(x, x_i)`, a factor that is the same for all clusters. The values
    are not clipped, and with rounding="difference" there is no division by
    :math:`\max(0, \tilde\phi_y)' 1`. There is one column per cluster; for two clusters, the result
    is the second column less the first.

    Because K is not normalised by its row sums, all leading eigenvectors may be concentrated on
    one region with large row sums, so that the labels of the remaining rows are not meaningful.
    Scale the features first if their units differ (`sklearn.preprocessing.StandardScaler`),
    because the graph depends on distances only.

    References
    ----------
    M. Sugiyama, M. Yamada, M. Kimura, H. Hachiya. On information-maximization clustering: tuning
    parameter selection and analytic solution. ICML 2011.

    Examples
    --------
    >>> from volmar import SMIC
    >>> from volmar.datasets import make_two_gaussians
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_gaussians(300, random_state=0)
    >>> model = SMIC().fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _min_clusters = 1

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        affinity: Any = "local_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        rounding: str = "posterior",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.rounding = rounding
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        functions = self.result_.shares / self.result_.divisors
        return two_column_scores(np.asarray(row_weights(self._extension, X) @ functions))

    def _check_parameters(self) -> None:
        check_choice("rounding", self.rounding, ("posterior", "difference"))
        is_many = isinstance(self.n_clusters, Integral) and int(self.n_clusters) > 2
        if self.rounding == "difference" and is_many:
            raise ValueError(
                "rounding='difference' is defined for two clusters only, got "
                f"n_clusters={shown(self.n_clusters)}. Use rounding='posterior'."
            )

    def _problem(self, X: Any, weights: NDArray | None) -> KernelSpectrum:  # noqa: ARG002 -- no weights here
        graph = build_graph(X, self.affinity, sigma=self.sigma, n_neighbors=self.n_neighbors)
        points = None if self._is_pairwise() else distinct_rows(X)[1]
        has_copies = points is not None and int(points.max()) + 1 < points.size
        return kernel_spectrum(graph, self.n_clusters, points if has_copies else None)

    def _run(self, problem: KernelSpectrum, seed: int) -> SMICResult:  # noqa: ARG002 -- deterministic
        return information_maximization(problem, rounding=self.rounding)

    def _publish(self, problem: KernelSpectrum, result: SMICResult) -> None:
        self.eigenvalues_ = problem.values
        self.n_neighbors_ = problem.graph.n_neighbors
        self.sigma_ = problem.graph.sigma
        self._extension = problem.graph.extension
        n_unseen = int((result.shares == 0).all(axis=1).sum())
        self._words = "" if result.status.ok else problem.words(n_unseen)

    def _status_words(self, result: Any) -> str:
        return self._words if isinstance(result, SMICResult) else super()._status_words(result)
