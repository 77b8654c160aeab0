"""Spectral baselines: normalised cut (Shi, Malik 2000), NSC (Ng, Jordan and Weiss 2002)."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize

from volmar._checks import check_count
from volmar.base.clusterer import Clusterer, two_column_scores
from volmar.base.validation import check_cluster_size
from volmar.graphs.graph import SpectralGraph, build_graph, spectral_graph
from volmar.metrics import normalized_cut
from volmar.solvers import Result, Status


class SpectralBaseline(Clusterer):
    """Attributes and warnings of a method that uses the eigenvectors of a graph."""

    def _publish(self, problem: SpectralGraph, result: Any) -> None:  # noqa: ARG002 -- one signature
        self.eigenvalues_ = problem.pairs.values
        self.n_neighbors_ = problem.graph.n_neighbors
        self.sigma_ = problem.graph.sigma
        self._spectral_graph = problem

    def _status_words(self, result: Any) -> str:
        if result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        return self._spectral_graph.words


@dataclass(frozen=True, repr=False)
class CutResult(Result):
    """Labels, with the entries of the eigenvector that was cut and the threshold on them.

    `sign` is 1 if cluster 1 is above the threshold, -1 if it is below.
    """

    _signed = ("sign",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    coordinate: NDArray = field(default_factory=lambda: np.empty(0))
    threshold: float = 0.0
    sign: float = 1.0


def cuts_along(W: Any, order: NDArray) -> NDArray:
    """Return the normalised cut of the first t + 1 of `order` against the rest, t = 0, ..., n - 2.

    A node that joins the first side adds its edges to later nodes to the cut and removes its edges
    to earlier nodes: cut_t = sum_{i <= t} (later_i - earlier_i). This takes one pass over W.
    """
    rank = np.empty(order.size, dtype=np.intp)
    rank[order] = np.arange(order.size)
    if sparse.issparse(W):
        coo = W.tocoo()
        rows, columns = rank[coo.coords[0]], rank[coo.coords[1]]
        signed = np.where(columns > rows, coo.data, np.where(columns < rows, -coo.data, 0.0))
        change: NDArray = np.bincount(rows, signed, order.size)
        volume: NDArray = np.bincount(rows, coo.data, order.size)
    else:
        change, volume = np.empty(order.size), np.empty(order.size)
        for start in range(0, order.size, 256):  # a dense matrix of signs would be as large as W
            nodes = order[start : start + 256]
            side = np.sign(rank - rank[nodes][:, None])
            change[start : start + 256] = np.einsum("ij,ij->i", W[nodes], side)
            volume[start : start + 256] = W[nodes].sum(axis=1, dtype=np.float64)
    # Each side is summed from its own end, and the cut from the end with the smaller volume. A
    # difference of large sums would lose a side of tiny volume.
    inside, outside = np.cumsum(volume)[:-1], np.cumsum(volume[::-1])[-2::-1]
    front, back = np.cumsum(change)[:-1], -np.cumsum(change[::-1])[-2::-1]
    cut = np.maximum(np.where(inside <= outside, front, back), 0.0)
    return _share(cut, inside) + _share(cut, outside)


def _share(cut: NDArray, volume: NDArray) -> NDArray:
    """Return cut / volume; 1 for isolated nodes, as in `volmar.metrics.normalized_cut`."""
    return np.divide(cut, volume, out=np.ones_like(cut), where=volume > 0)


def normalized_cut_search(problem: SpectralGraph, min_size: int) -> CutResult:
    """Find the threshold on the second eigenvector of (D - W, D) with the lowest normalised cut.

    Every threshold between distinct values with at least `min_size` rows on both sides is tried.
    The second eigenvalue of L_sym is a lower bound of two-way cuts; the difference is the gap.
    """
    coordinate = problem.coordinates[:, 1]
    order = np.argsort(coordinate, kind="stable")
    values = coordinate[order]
    n = order.size
    # Values that differ by less than the rounding error of eigenvectors are not separated. The
    # scale is that of all nodes together (sum d_i y_i^2 = 1). The largest value would not do: it
    # may belong to a node of tiny degree and be rounding error divided by the root of its degree.
    apart = np.diff(values) > 1e-10 / np.sqrt(problem.graph.degrees.sum() or 1.0)
    allowed = apart & (np.arange(1, n) >= min_size) & (np.arange(n - 1, 0, -1) >= min_size)
    cuts = np.where(allowed, cuts_along(problem.graph.W, order), np.inf)
    best = int(np.argmin(cuts))
    if not np.isfinite(cuts[best]):
        remedy = "Lower min_cluster_size, or check" if min_size > 1 else "Check"
        raise ValueError(
            f"no cut has {min_size} row(s) with edges on both sides, because the graph does not "
            f"distinguish the rows. {remedy} that the rows differ and similarities are not all "
            "zero."
        )
    threshold = (values[best] + values[best + 1]) / 2
    return CutResult(
        objective=float(cuts[best]),
        gap=max(float(cuts[best]) - problem.bound, 0.0),
        residuals={"eigenvectors": float(problem.pairs.residuals.max())},
        status=Status.DEGENERATE if problem.is_degenerate else Status.CONVERGED,
        n_iter=1,
        history=(float(cuts[best]),),
        labels=(coordinate > threshold).astype(np.int64),
        coordinate=coordinate,
        threshold=float(threshold),
    )


class NormalizedCut(SpectralBaseline):
    r"""Two-way normalised cut of Shi and Malik (2000), with an exact threshold search.

    Minimises :math:`cut(A, B) / vol(A) + cut(A, B) / vol(B)` over thresholds on the second
    eigenvector of :math:`(D - W) y = \lambda D y`. All n - 1 thresholds are tried in one pass over
    the graph. The coordinate of a new row x is :math:`\sum_j p_{xj} y_j / (1 - \lambda)`, where
    :math:`p_{xj}` are its similarities to the training rows, normalised to sum to 1.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters. If larger than 2, the rows are split recursively (see `tree_`). The
        cluster with the largest square root of its size divided by the normalised cut of its
        split is split next.
    {affinity}
    {sigma}
    {n_neighbors}
    min_cluster_size : int or float, default=1
        Minimum cluster size, a count or a fraction of all rows of at most 0.5.
    random_state : int, RandomState or None, default=None
        Not used, present for API consistency. The method is deterministic.

    Attributes
    ----------
    {labels_}
    {recursive:tree_}
    {n_neighbors_}
    {sigma_}
    eigenvalues_ : ndarray of shape (2,)
        The two smallest eigenvalues of :math:`L_{sym}`.
    objective_ : float
        Normalised cut of the labels.
    result_ : CutResult
        Certified result. `gap` is `objective_` less the second eigenvalue, a lower bound of all
        two-way cuts.
    n_iter_ : int
        Always 1.
    {graph:n_features_in_}

    See Also
    --------
    NormalizedSpectralClustering : Any number of clusters, by k-means on several eigenvectors.

    Notes
    -----
    `decision_function` is the coordinate less the threshold.

    Scale the features first if their units differ (`sklearn.preprocessing.StandardScaler`),
    because the graph depends on distances only. `labels_` comes from the training graph, but
    `predict` uses only the similarities of a row to the training rows. It may therefore assign a
    few training rows at the border differently. It also assigns rows far from all training rows,
    without a warning.

    Examples
    --------
    >>> from volmar import NormalizedCut
    >>> from volmar.datasets import make_two_moons
    >>> from volmar.metrics import clustering_error
    >>> X, y = make_two_moons(300, random_state=0)
    >>> model = NormalizedCut().fit(X)
    >>> clustering_error(y, model.labels_)
    0.0
    """

    _multiway = "recursive"

    def __init__(
        self,
        n_clusters: int = 2,
        *,
        affinity: Any = "density_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        min_cluster_size: float = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.min_cluster_size = min_cluster_size
        self.random_state = random_state

    def _scores(self, X: Any) -> NDArray:
        result = self.result_
        return result.sign * (self._spectral_graph.extended(X)[:, 1] - result.threshold)

    def _check_parameters(self) -> None:
        check_cluster_size(self.min_cluster_size)

    def _problem(self, X: Any, weights: NDArray | None) -> SpectralGraph:  # noqa: ARG002 -- no weights here
        graph = build_graph(X, self.affinity, sigma=self.sigma, n_neighbors=self.n_neighbors)
        return spectral_graph(graph, 2, 2)

    def _run(self, problem: SpectralGraph, seed: int) -> CutResult:  # noqa: ARG002 -- deterministic
        size, n = self.min_cluster_size, problem.graph.W.shape[0]
        counted = int(size) if isinstance(size, Integral) else int(np.ceil(size * n - 1e-9))
        if 2 * counted > n:
            raise ValueError(
                f"min_cluster_size={size} requires {counted} rows in each of 2 clusters, but X "
                f"has {n} rows. Lower it to at most {n // 2} rows."
            )
        return normalized_cut_search(problem, counted)

    def _split_worth(self, model: Any, probability: float, /) -> float:  # noqa: ARG002 -- one signature
        """Return the reciprocal of the normalised cut.

        The separation along an eigenvector is not a useful criterion. If a part contains several
        clusters, the eigenvector has a level for each of them, and even a homogeneous cluster has
        a separation probability of 0.8.
        """
        return 1.0 / max(model.objective_, np.finfo(float).eps)


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


class NormalizedSpectralClustering(SpectralBaseline):
    r"""Normalised spectral clustering of Ng, Jordan and Weiss (2002), extended to new rows.

    The rows of the matrix of the k leading eigenvectors of :math:`D^{-1/2} W D^{-1/2}` are scaled
    to unit length and clustered by k-means. The coordinates of a new row x are
    :math:`\sum_j p_{xj} v_j / \sqrt{d_j}`, divided by the eigenvalue, where :math:`p_{xj}` are its
    similarities to the training rows, normalised to sum to 1. It is assigned to the nearest
    centre.

    Parameters
    ----------
    n_clusters : int, default=2
        Number of clusters.
    {affinity}
    {sigma}
    {n_neighbors}
    n_init : int, default=10
        Number of starts of k-means.
    random_state : int, RandomState or None, default=None
        Random seed of k-means.

    Attributes
    ----------
    {labels_}
    {n_neighbors_}
    {sigma_}
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
    {graph:n_features_in_}

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
        n_clusters: int = 2,
        *,
        affinity: Any = "density_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        n_init: int = 10,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.n_init = n_init
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
        super()._publish(problem, result)
        self.embedding_ = result.embedding
