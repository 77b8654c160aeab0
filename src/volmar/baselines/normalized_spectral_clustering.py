"""Normalised spectral clustering (Ng, Jordan and Weiss 2002), the papers' method NSC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from volmar.base import Clusterer, Result, Status
from volmar.base.clusterer import two_column_scores
from volmar.base.validation import check_count
from volmar.graphs.graph import SpectralGraph, build_graph, spectral_graph
from volmar.metrics import normalized_cut


@dataclass(frozen=True, repr=False)
class SpectralResult(Result):
    """Labels, with the embedding and the k-means centres from which they are derived."""

    _per_cluster: ClassVar = {"centers": 0}

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    embedding: NDArray = field(default_factory=lambda: np.empty((0, 0)))
    centers: NDArray = field(default_factory=lambda: np.empty((0, 0)))


def spectral_clustering(problem: SpectralGraph, *, n_init: int, seed: int) -> SpectralResult:
    """Cluster the unit rows of the eigenvectors by k-means.

    The normalised cut of any k clusters is at least the sum of the k smallest eigenvalues of
    L_sym (Ky Fan). The cut found less that sum is therefore a certified gap.
    """
    n_clusters = problem.n_clusters
    # A zero row (an isolated node) stays zero.
    embedding = normalize(problem.pairs.vectors[:, :n_clusters])
    kmeans = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(embedding)
    # With fewer distinct rows than clusters, some labels do not occur.
    present, labels = np.unique(kmeans.labels_, return_inverse=True)
    objective = normalized_cut(problem.graph.W, labels)
    return SpectralResult(
        objective=objective,
        gap=max(objective - problem.bound, 0.0),
        residuals={"eigenvectors": float(problem.pairs.residuals[:n_clusters].max())},
        status=Status.DEGENERATE if problem.is_degenerate else Status.CONVERGED,
        n_iter=int(kmeans.n_iter_),
        history=(objective,),
        labels=labels,
        embedding=embedding,
        centers=kmeans.cluster_centers_[present],
    )


class NormalizedSpectralClustering(Clusterer):
    r"""Normalised spectral clustering of Ng, Jordan and Weiss (2002), extended to new rows.

    The rows of the matrix of the k leading eigenvectors of :math:`D^{-1/2} W D^{-1/2}` are scaled
    to unit length and clustered by k-means. The coordinates of a new row x are
    :math:`\sum_j p_{xj} v_j / \sqrt{d_j}`, divided by the eigenvalue, where :math:`p_{xj}` are its
    similarities to the training rows, normalised to sum to 1. It is assigned to the nearest
    centre.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. If "auto", the rows are split recursively, and a split is made only if
        held-out rows confirm it by their distances to its border (see
        `volmar.evidence.split_test` and `tree_`).
    affinity : str, callable or Similarity, default="density_scaling"
        Similarity of rows: "density_scaling" (locally scaled and weighted by the density, see
        `volmar.graphs.density_scaling_similarity`), "local_scaling" (both on the graph of nearest
        neighbours), "gaussian", "cosine_knn", "nearest_neighbors" or "precomputed". Affinities
        given by name have no self-loops. A recipe such as ``GaussianSimilarity(sigma="mean/4")``,
        a function f(X, Y) of similarities or a matrix is used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Number of neighbours, for affinities that use neighbours. If None, log2(n) + 3 for
        "density_scaling" and 7 for the others.
    n_init : int, default=10
        Number of starts of k-means.
    alpha : float, default=0.05
        Significance level of the tests with n_clusters="auto", from 0.001 to 0.5: the probability
        of one or more false splits. Small values make the tests slower. Not used otherwise.
    max_clusters : int, optional
        Maximum number of clusters with n_clusters="auto". If None, there is no limit. The
        strongest splits are made first, and a warning is issued if further splits are left out.
    random_state : int, RandomState or None, default=None
        Random seed of k-means.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Cluster of each training row. Clusters are numbered by size, 0 is the largest.
    n_neighbors_ : int or None
        Number of neighbours of the similarity graph; None for affinities without neighbours.
    sigma_ : float or None
        Width of the Gaussian similarity as a number; None for other affinities.
    eigenvalues_ : ndarray of shape (n_clusters + 1,)
        Smallest eigenvalues of :math:`L_{sym}`, one more than is used. A large difference between
        the last two supports the number of clusters.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Rows of unit length to which k-means is applied.
    objective_ : float
        Normalised cut of the labels.
    result_ : SpectralResult
        Certified result. `gap` is `objective_` less the sum of the eigenvalues used, a lower bound
        for any k clusters.
    n_iter_ : int
        Number of iterations of k-means.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    NormalizedCut : The best threshold on one eigenvector, for two clusters.
    sklearn.cluster.SpectralClustering : Without `predict`, eigenvalues and certificate.

    Notes
    -----
    For two clusters, `decision_function` is the squared distance to centre 0 of the embedding less
    that to centre 1. For more, it is the negative squared distance to each centre, up to a
    constant per row.

    Two related methods in JMLR have no class here. Shi and Malik's k-way cut, k-means on the
    eigenvectors of :math:`D^{-1} W` without unit rows, is `sklearn.cluster.SpectralClustering`
    with ``affinity="precomputed"``. Unnormalised spectral clustering of two clusters is
    ``SoftLabelMVC(Q=f, balance=0.0, reg=1e8)``, where ``f(W)`` is ``laplacian(W,
    kind="unnormalized")`` plus a small multiple of the identity.

    Scale the features first if their units differ (`sklearn.preprocessing.StandardScaler`),
    because the graph depends on distances only. `labels_` comes from the training graph, but
    `predict` uses only the similarities of a row to the training rows. It may therefore assign a
    few training rows at the border differently. It also assigns rows far from all training rows,
    without a warning.

    Examples
    --------
    >>> from volmar import NormalizedSpectralClustering
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_moons(300, random_state=0)
    >>> model = NormalizedSpectralClustering(random_state=0).fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _min_clusters = 1

    def __init__(
        self,
        n_clusters: int | str = 2,
        *,
        affinity: Any = "density_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        n_init: int = 10,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.n_init = n_init
        self.alpha = alpha
        self.max_clusters = max_clusters
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        rows = normalize(self._spectral_graph.extended(X))
        centers = self.result_.centers
        # Squared distances less |row|^2, which is the same for all centres.
        return two_column_scores(2 * rows @ centers.T - (centers**2).sum(axis=1))

    def _check_parameters(self) -> None:
        check_count("n_init", self.n_init)

    def _n_starts(self) -> int:
        return 1  # k-means restarts by itself

    def _problem(self, X: Any, weights: NDArray | None) -> SpectralGraph:  # noqa: ARG002 -- no weights here
        graph = build_graph(X, self.affinity, sigma=self.sigma, n_neighbors=self.n_neighbors)
        return spectral_graph(graph, self.n_clusters, min(self.n_clusters + 1, X.shape[0]))

    def _run(self, problem: SpectralGraph, seed: int) -> SpectralResult:
        return spectral_clustering(problem, n_init=self.n_init, seed=seed)

    def _publish(self, problem: SpectralGraph, result: SpectralResult) -> None:
        self.eigenvalues_ = problem.pairs.values
        self.n_neighbors_ = problem.graph.n_neighbors
        self.sigma_ = problem.graph.sigma
        self.embedding_ = result.embedding
        self._spectral_graph = problem

    def _status_words(self, result: Any) -> str:
        if result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        return self._spectral_graph.words
