"""The two-way normalised cut of Shi and Malik (2000)."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.base import Clusterer, Result, Status
from volmar.base.validation import check_cluster_size
from volmar.graphs.graph import SpectralGraph, build_graph, spectral_graph

# Rows of a dense W that are looked at together.
BLOCK_ROWS = 256


@dataclass(frozen=True, repr=False)
class CutResult(Result):
    """Labels, with the coordinate that was cut and where.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Clusters.
    coordinate : ndarray of shape (n,)
        The coordinate.
    threshold : float
        Where it was cut.
    sign : float
        1 where cluster 1 is above the threshold, -1 where it is below.
    """

    _signed = ("sign",)

    labels: NDArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    coordinate: NDArray = field(default_factory=lambda: np.empty(0))
    threshold: float = 0.0
    sign: float = 1.0


def cuts_along(W: Any, order: NDArray) -> NDArray:
    """Normalised cut of {the first t + 1 of `order`} against the rest, for t = 0, ..., n - 2.

    A node that joins the first side adds its edges to later nodes to the cut and takes its edges
    to earlier ones away: cut_t = sum_{i <= t} (later_i - earlier_i), all in one pass over W.
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
        for start in range(0, order.size, BLOCK_ROWS):
            nodes = order[start : start + BLOCK_ROWS]
            side = np.sign(rank - rank[nodes][:, None])
            change[start : start + BLOCK_ROWS] = np.einsum("ij,ij->i", W[nodes], side)
            volume[start : start + BLOCK_ROWS] = W[nodes].sum(axis=1, dtype=np.float64)
    # Both sides are summed from their own end, and the cut from the lighter one: a difference of
    # large sums would drown a side of tiny volume.
    inside, outside = np.cumsum(volume)[:-1], np.cumsum(volume[::-1])[-2::-1]
    front, back = np.cumsum(change)[:-1], -np.cumsum(change[::-1])[-2::-1]
    cut = np.maximum(np.where(inside <= outside, front, back), 0.0)
    return _share(cut, inside) + _share(cut, outside)


def _share(cut: NDArray, volume: NDArray) -> NDArray:
    """Cut / volume; 1 for a side of isolated nodes, as in `volmar.metrics.normalized_cut`."""
    return np.divide(cut, volume, out=np.ones_like(cut), where=volume > 0)


def normalized_cut_search(problem: SpectralGraph, min_size: int) -> CutResult:
    """Cut the second generalised eigenvector of (D - W, D) where the normalised cut is lowest.

    Every threshold between different values with at least `min_size` rows on both sides is
    tried. No two-way cut is below the second eigenvalue of L_sym: the difference is the gap.
    """
    coordinate = problem.coordinates[:, 1]
    order = np.argsort(coordinate, kind="stable")
    values = coordinate[order]
    n = order.size
    # Eigenvectors carry rounding: values closer than that are the same and stay together. The
    # scale is that of all nodes together (sum d_i y_i^2 = 1): the largest value may be a weak
    # node's, and nothing but rounding over the root of its degree.
    apart = np.diff(values) > 1e-10 / np.sqrt(problem.graph.degrees.sum() or 1.0)
    allowed = apart & (np.arange(1, n) >= min_size) & (np.arange(n - 1, 0, -1) >= min_size)
    cuts = np.where(allowed, cuts_along(problem.graph.W, order), np.inf)
    best = int(np.argmin(cuts))
    if not np.isfinite(cuts[best]):
        remedy = "Lower min_cluster_size, or check" if min_size > 1 else "Check"
        raise ValueError(
            f"no cut leaves {min_size} row(s) with edges on both sides: the graph does not tell "
            f"the rows apart. {remedy} that the rows differ and similarities are not all zero."
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


class NormalizedCut(Clusterer):
    r"""Two-way normalised cut of Shi and Malik (2000), with an exact threshold search.

    Minimises :math:`cut(A, B) / vol(A) + cut(A, B) / vol(B)` over thresholds on the second
    eigenvector of :math:`(D - W) y = \lambda D y`. All n - 1 thresholds are tried in one pass over
    the graph. A new row x has the coordinate :math:`\sum_j p_{xj} y_j / (1 - \lambda)`, where
    :math:`p_{xj}` are its similarities to the training rows divided by their sum.

    Parameters
    ----------
    n_clusters : int or "auto", default=2
        Number of clusters. More than 2 are found by splitting again: the part whose split
        separates best is split next (see `tree_`): by the root of its size over its normalised
        cut. "auto": only where held-out rows confirm the split, by their distances to its border
        (see `volmar.evidence.split_test`).
    affinity : str, callable or Similarity, default="density_scaling"
        How similar rows are: "density_scaling" (locally scaled and weighted by the density, see
        `volmar.graphs.density_scaling_similarity`), "local_scaling" (both on the graph of nearest
        neighbours), "gaussian", "cosine_knn", "nearest_neighbors" or "precomputed". Named ones
        come without self-loops; a recipe such as ``GaussianSimilarity(sigma="mean/4")``, a
        function f(X, Y) of similarities or a matrix is used as given.
    sigma : float or str, optional
        Width of the Gaussian similarity, a number or a rule such as "mean/4".
    n_neighbors : int, optional
        Neighbours of the similarities on nearest neighbours; if not given, log2(n) + 3 for
        "density_scaling" and 7 for the others.
    min_cluster_size : int or float, default=1
        Minimum size of a cluster, a count or a fraction of all rows of at most 0.5.
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
        Cluster of each training row, by size: 0 is the largest.
    tree_ : SplitTree
        The splits, where there are more than two clusters; what belongs to one hyperplane is then
        found at ``tree_.splits()[i].model``, not here.
    n_neighbors_ : int or None
        Number of neighbours that the similarity was built with; None where it has none.
    sigma_ : float or None
        Width of the Gaussian similarity, the number used; None where it has none.
    eigenvalues_ : ndarray of shape (2,)
        The two smallest eigenvalues of :math:`L_{sym}`.
    objective_ : float
        Normalised cut of the labels.
    result_ : CutResult
        Certified result; `gap` is `objective_` less the second eigenvalue, which no two-way cut
        can undercut.
    n_iter_ : int
        Always 1.
    n_features_in_ : int
        Number of features (of training rows, with affinity="precomputed").

    See Also
    --------
    NormalizedSpectralClustering : Any number of clusters, by k-means on several eigenvectors.

    Notes
    -----
    `decision_function` is the coordinate less the threshold.

    Scale the features first where their units differ (`sklearn.preprocessing.StandardScaler`): the
    graph sees distances only. `labels_` belong to the training graph; `predict` sees a row through
    its similarities to the training rows alone, so that it may place a few training rows at the
    border differently. It places rows far from all training rows too, without a word.

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
        n_clusters: int | str = 2,
        *,
        affinity: Any = "density_scaling",
        sigma: float | str | None = None,
        n_neighbors: int | None = None,
        min_cluster_size: float = 1,
        alpha: float = 0.05,
        max_clusters: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.affinity = affinity
        self.sigma = sigma
        self.n_neighbors = n_neighbors
        self.min_cluster_size = min_cluster_size
        self.alpha = alpha
        self.max_clusters = max_clusters
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
                f"min_cluster_size={size} asks for {counted} rows in each of 2 clusters and X "
                f"has {n}. Lower it to at most {n // 2}."
            )
        return normalized_cut_search(problem, counted)

    def _split_worth(self, model: Any, probability: float, /) -> float:  # noqa: ARG002 -- one signature
        """Return the reciprocal of the normalised cut.

        The separation along an eigenvector is no guide: a part of several clusters has a level
        for each of them, and one homogeneous cluster is separated with a probability of 0.8.
        """
        return 1.0 / max(model.objective_, np.finfo(float).eps)

    def _publish(self, problem: SpectralGraph, result: CutResult) -> None:  # noqa: ARG002 -- one signature
        self.eigenvalues_ = problem.pairs.values
        self.n_neighbors_ = problem.graph.n_neighbors
        self.sigma_ = problem.graph.sigma
        self._spectral_graph = problem

    def _status_words(self, result: Any) -> str:
        if result.status is not Status.DEGENERATE:
            return super()._status_words(result)
        return self._spectral_graph.words
