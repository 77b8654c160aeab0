"""Clustering by squared-loss mutual information (Sugiyama and others 2011), the method SMIC."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_choice, shown
from volmar.base import Clusterer, Result, Status
from volmar.base.clusterer import two_column_scores
from volmar.base.warn import warn_user
from volmar.graphs.copies import distinct_rows
from volmar.graphs.graph import Graph, build_graph
from volmar.operators import as_operator

ROUNDING = ("posterior", "difference")
# Eigenvalues below this part of the largest are not divided by: Lanczos settles them no better.
SMALLEST_RATIO = 1e-6
# Eigenvalues closer than this part of the largest are equal, and their eigenvectors any basis.
SAME_RATIO = 1e-9
# |phi'1| below this part of its largest possible value, sqrt(n), is zero with rounding on it.
ZERO_SUM = 1e-8
# Eigenvectors whose means over rows that coincide have a norm below this are one of those alone.
NO_FUNCTION = 1e-6
# Entries of an eigenvector below this part of its largest are zeros with rounding on them.
ZERO_ENTRY = 1e-12


@dataclass(frozen=True, repr=False)
class SMICResult(Result):
    """Labels, with the functions on the rows that they are the largest of.

    Attributes
    ----------
    objective : float
        1/2 - k / (2n) sum_y phi_y' K^2 phi_y: the paper's approximate squared-loss mutual
        information, eq. (16) for k = 2, with its sign changed.
    gap : float
        NaN: the eigenvectors solve their own problem exactly, but no bound says how much of it
        the rounding to labels loses.
    residuals : mapping of str to float
        ``"eigenvectors"``: largest ``|K phi_y - lambda_y phi_y|`` over the largest row sum of K.
    labels : ndarray of shape (n,)
        Consecutive from 0; clusters that no row goes to are left out.
    shares : ndarray of shape (n, c)
        phi~_y / max(0, phi~_y)'1 of the clusters that have rows, phi~_y itself with
        rounding="difference".
    divisors : ndarray of shape (c,)
        lambda_y / lambda_1 of the same; 1 where lambda_y is not to be divided by.
    """

    _per_cluster: ClassVar = {"shares": 1, "divisors": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    shares: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    divisors: NDArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class KernelSpectrum:
    """A graph with the leading eigenpairs of its similarity matrix K = W, diagonal included.

    The eigenvalues are the algebraically largest in descending order, one more than is used; the
    residuals are ``|K phi_y - lambda_y phi_y|`` over the largest row sum of K. `points` says which
    rows coincide, where it is known: the point of each row.
    """

    graph: Graph
    values: NDArray
    vectors: NDArray
    residuals: NDArray
    points: NDArray | None = None

    @property
    def functions(self) -> NDArray:
        """The eigenvectors, as functions of the points: rows that coincide have their mean.

        A graph of nearest neighbours gives one of many copies of a row the edge to a row far away,
        and its entry alone would part it from the others.
        """
        if self.points is None:
            return self.vectors
        counts = np.bincount(self.points)
        sums = [np.bincount(self.points, column) for column in self.vectors.T]
        return (np.column_stack(sums) / counts[:, None])[self.points]

    @property
    def is_inside_copies(self) -> bool:
        """Whether an eigenvector tells nothing apart but rows that coincide."""
        norms = np.linalg.norm(self.functions, axis=0)
        return self.points is not None and bool((norms <= NO_FUNCTION).any())

    @property
    def n_clusters(self) -> int:
        """How many eigenvectors are used."""
        return self.vectors.shape[1]

    @property
    def is_extensible(self) -> NDArray:
        """Which eigenvalues in use are positive, and settled well enough to divide by."""
        return self.values[: self.n_clusters] > SMALLEST_RATIO * self.values[0]

    @property
    def is_degenerate(self) -> bool:
        """Whether K does not determine as many clusters as are wanted.

        Its graph has more components than that, an eigenvalue in use is not positive, an
        eigenvector is one of rows that coincide, or an eigenvalue in use is as large as its
        successor and the eigenvectors of both are any basis of a plane.
        """
        return bool(
            self.graph.components[0] > self.n_clusters
            or self.is_inside_copies
            or not self.is_extensible.all()
            or np.any(-np.diff(self.values) <= SAME_RATIO * self.values[0])
        )

    def words(self, n_unseen: int) -> str:
        """Return what K does not determine, and what to do; `n_unseen` rows have no eigenvector.

        Where there are more components than clusters, some rows are unseen for that reason.
        """
        n_groups, k = int(self.is_extensible.sum()), self.n_clusters
        if self.graph.components[0] > k:
            return self.graph.component_words(k)
        if n_groups < k:
            return (
                f"The graph holds at most {n_groups} group(s): eigenvalue {n_groups + 1} of the "
                f"similarities is {self.values[n_groups]:.3g}, which is not positive beside the "
                f"first, {self.values[0]:.3g}, so that new rows cannot be told by its "
                "eigenvector. Ask for fewer clusters, or use a smaller n_neighbors or sigma."
            )
        if self.is_inside_copies:
            return (
                "An eigenvector of the similarities tells nothing apart but rows that coincide. "
                "Use affinity='density_scaling', which takes them for one point, or fewer "
                "clusters."
            )
        if n_unseen:
            return (
                f"{n_unseen} of {self.vectors.shape[0]} rows are out of sight of the {k} leading "
                "eigenvectors, which live on a part of the graph with large similarities, and go "
                "to cluster 0. Use a larger n_neighbors or sigma, or NormalizedSpectralClustering."
            )
        return (
            "Eigenvalues of the similarities are equal, and other eigenvectors, with other "
            "clusters, are as good. Use another number of clusters, or another affinity."
        )


def kernel_spectrum(
    graph: Graph, n_clusters: int, points: NDArray | None = None
) -> KernelSpectrum:
    """Compute the leading eigenpairs of K, and warn of stray rows."""
    graph.warn_of_components(n_clusters)
    # No eigenvalue of a nonnegative matrix is larger in magnitude than its largest row sum.
    ceiling = float(graph.degrees.max())
    if ceiling < np.finfo(np.float64).tiny:
        raise ValueError(
            "no row of X is similar to any row: all similarities are zero. Use a larger sigma, or "
            "another affinity."
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

    With rounding="difference" the values are not divided, label_i = argmax_y phi~_yi (JMLR remark
    2 for two clusters, where the sign of phi~_1 - phi~_2 decides).

    Clipping at zero does not change which y is largest in a row that has a positive entry, and in
    a row without one it would make all equal: labels are taken from the values before it.
    """
    n, n_clusters = problem.vectors.shape
    to_values = signed_functions if rounding == "difference" else positive_shares
    shares = to_values(problem.functions, problem.residuals)
    # Numbers of clusters that no row goes to are left out.
    present, labels = np.unique(np.argmax(shares, axis=1), return_inverse=True)
    n_unseen = int((shares == 0).all(axis=1).sum())
    _warn_of_labels(present.size, n_clusters)
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


def _warn_of_labels(n_present: int, n_clusters: int) -> None:
    if n_present < n_clusters:
        warn_user(
            f"Only {n_present} of n_clusters={n_clusters} clusters have rows: the other "
            "eigenvectors are largest nowhere. Ask for fewer clusters, or use another affinity.",
        )


def signed_functions(vectors: NDArray, residuals: NDArray) -> NDArray:
    """Return phi~_y = phi_y sign(phi_y'1), with sign(0) = 1.

    Entries that are nothing but rounding are zeros: whole components of a disconnected graph would
    otherwise be shared out by it.
    """
    noise = np.maximum(ZERO_ENTRY * np.abs(vectors).max(axis=0), residuals)
    clean = np.where(np.abs(vectors) > noise, vectors, 0.0)
    return clean * np.where(clean.sum(axis=0) < -ZERO_SUM * np.sqrt(len(clean)), -1.0, 1.0)


def positive_shares(vectors: NDArray, residuals: NDArray) -> NDArray:
    """Return phi~_y / max(0, phi~_y)'1, and zeros for a phi~_y of zeros.

    Any other column has a positive entry, because its sum is not negative.
    """
    signed = signed_functions(vectors, residuals)
    sums = np.maximum(signed, 0.0).sum(axis=0)
    return signed / np.where(sums > 0, sums, 1.0)


class SMIC(Clusterer):
    r"""Squared-loss mutual information clustering of Sugiyama and others (2011), with new rows.

    The posterior of cluster y is modelled as :math:`\sum_i \alpha_{yi} K(x, x_i)`. With clusters
    of equal probability the squared-loss mutual information between rows and clusters is then
    approximately :math:`\frac{k}{2n} \sum_y \alpha_y' K^2 \alpha_y - \frac{1}{2}` (JMLR eq. 16 for
    k = 2), and largest among orthonormal :math:`\alpha_y` at the k leading eigenvectors
    :math:`\phi_y` of K (eq. 17 and 18). With
    :math:`\tilde\phi_y = \phi_y \, sign(\phi_y' 1)`, row i goes to

    .. math:: \arg\max_y \max(0, \tilde\phi_y)_i \, / \, \max(0, \tilde\phi_y)' 1,

    and a new row x to

    .. math:: \arg\max_y \max\Bigl(0, \sum_i K(x, x_i) \tilde\phi_{yi}\Bigr) \, / \,
        (\lambda_y \max(0, \tilde\phi_y)' 1).

    Rows that coincide have the mean of their entries of an eigenvector, and so one label.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. "auto": as many as held-out rows confirm, by splitting again; a split
        is tested by the distances of rows to its border (see `volmar.evidence.split_test` and
        `tree_`).
    affinity : str, callable or Similarity, default="local_scaling"
        The kernel K: "local_scaling" (on the graph of nearest neighbours), "density_scaling" (the
        default of the other graph methods; weights that differ from place to place do harm here,
        where K is not normalised by its row sums), "gaussian", "cosine_knn", "nearest_neighbors"
        (see `volmar.graphs`) or "precomputed". Named ones come without self-loops; a recipe such
        as ``GaussianSimilarity(sigma="mean/4")``, a function f(X, Y) of similarities or a matrix
        is used as given. Entries must not be negative.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Neighbours of the similarities on nearest neighbours; if not given, 7, and log2(n) + 3 for
        "density_scaling".
    rounding : {"posterior", "difference"}, default="posterior"
        How two eigenvectors become labels: by the posteriors above (Sugiyama and others), or by
        the sign of :math:`\tilde\phi_1 - \tilde\phi_2`, which JMLR proposes (remark 2), for at
        most two clusters. On two groups that are alike that difference is zero in one of them, and
        rounding decides.
    alpha : float, default=0.05
        Level of the tests of n_clusters="auto" (not used otherwise): the probability of any split
        too many. From 0.001, for which tests take longer, to 0.5.
    max_clusters : int, optional
        Maximum number of clusters, only with n_clusters="auto"; no limit if not given. The
        strongest splits are made first, and a warning is given where others are left.
    random_state : int, RandomState or None, default=None
        Taken for the sake of one interface: the method is deterministic.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row, by size: 0 is the largest. A cluster that no row goes to is
        left out, with a warning.
    n_neighbors_ : int or None
        Number of neighbours that the similarity was built with; None where it has none.
    sigma_ : float or None
        Width of the Gaussian similarity, the number used; None where it has none.
    eigenvalues_ : ndarray of shape (n_clusters + 1,)
        Largest eigenvalues of K, one more than was used.
    objective_ : float
        :math:`\frac{1}{2} - \frac{k}{2n} \sum_y \lambda_y^2`, the information with its sign
        changed.
    result_ : SMICResult
        Certified result: residuals of the eigenvectors. `gap` is NaN, because no bound says what
        the rounding of eigenvectors to labels loses.
    n_iter_ : int
        Always 1.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    NormalizedSpectralClustering : Eigenvectors of the similarities normalised by the degrees.

    Notes
    -----
    *Which eigenvectors.* Those of the algebraically largest eigenvalues. For a positive
    semidefinite K they are eq. 17 and 18's. Other similarities become so when a constant is added
    to their diagonal, which moves all eigenvalues alike and leaves the eigenvectors as they are:
    it makes no difference to `labels_` whether the diagonal is 0 or 1, and eigenvectors of large
    negative eigenvalues, which part rows from their own neighbours, are not taken.

    *New rows.* :math:`\lambda_y` is the eigenvalue of K as it is used. Where K is given with its
    diagonal (a kernel matrix, a recipe with self-loops, a callable) the rule gives training rows
    their `labels_` again, because :math:`K \phi_y = \lambda_y \phi_y`. Named affinities have no
    diagonal, as a new row has no similarity to itself, and `predict` may place a few training rows
    at the border differently. An eigenvalue that is not positive is not divided by: `fit`
    warns of it, and the largest one is taken in its place. `predict` places rows far from all
    training rows too, without a word.

    *Clipping at zero* changes nothing in a row that has a positive value, as every row of a
    connected graph has: the first eigenvector is positive there. In a row that has none it would
    make all clusters equal, and the largest of the unclipped values decides. Where a row's values
    are all zero up to rounding (no eigenvector in use reaches its part of the graph)
    it goes to cluster 0; `fit` warns of such rows, and `result_.status` is DEGENERATE.

    `decision_function` is, without the clipping (and with rounding="difference" without the
    division by :math:`\max(0, \tilde\phi_y)' 1`),
    :math:`\sum_i K(x, x_i) \tilde\phi_{yi} / (\lambda_y \max(0, \tilde\phi_y)' 1)` times
    :math:`\lambda_1 / \sum_i K(x, x_i)`, a factor that is the same for all clusters: a
    column for each cluster, or for two clusters the second less the first.

    K is not normalised by its row sums, so that the leading eigenvectors may share one region of
    large row sums among them and leave the rest to whatever is largest there. Scale the features
    first where their units differ (`sklearn.preprocessing.StandardScaler`): the graph sees
    distances only.

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
        n_clusters: int | str = 2,
        *,
        affinity: Any = "local_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        rounding: str = "posterior",
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.rounding = rounding
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        functions = self.result_.shares / self.result_.divisors
        return two_column_scores(np.asarray(self._row_weights(X) @ functions))

    def _check_parameters(self) -> None:
        check_choice("rounding", self.rounding, ROUNDING)
        is_many = isinstance(self.n_clusters, Integral) and int(self.n_clusters) > 2
        if self.rounding == "difference" and is_many:
            raise ValueError(
                f"rounding='difference' is a rule for two clusters, got "
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
        self._row_weights = problem.graph.row_weights
        n_unseen = int((result.shares == 0).all(axis=1).sum())
        self._words = "" if result.status.ok else problem.words(n_unseen)

    def _status_words(self, result: Any) -> str:
        return self._words if isinstance(result, SMICResult) else super()._status_words(result)
