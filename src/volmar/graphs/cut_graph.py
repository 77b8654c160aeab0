"""Graphs of nearest neighbours: initial labels, and a cut that compares any labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator
from sklearn.cluster import KMeans

from volmar._eigen import eigsh
from volmar._warn import quiet_fit
from volmar.graphs.copies import Copies
from volmar.graphs.neighbors import NeighborSearch, symmetrize

__all__ = ["CutGraph"]

# Similarity added to all pairs of rows, relative to the mean degree, to connect the graph before
# computing eigenvectors. It makes cutting off a few stray rows expensive.
JOINED = 0.001
# Number of eigenvectors that are searched for two clusters. On rings, the first ones vary along
# the rings.
N_VECTORS = 3
# Minimum share of the rows on each side of such a cut.
SMALLEST_SIDE = 0.02
# Maximum number of rows for which LAPACK computes the eigenvectors.
DENSE = 100


class CutGraph:
    r"""Graphs of the nearest neighbours of the distinct rows.

    Let :math:`s_i` be the distance of row i to its neighbour number :math:`q = \log_2 n - 2`, and
    s the median of these distances. Each row and its 2 q + 1 nearest neighbours have similarities

    .. math:: W^{(b)}_{ij} = m_i m_j \exp\Bigl(-\frac{|x_i - x_j|^2}{s_i s_j}\Bigr)
              \Bigl(\frac{s^2}{s_i s_j}\Bigr)^b ,

    where :math:`m_i` is the number of copies of a row, or their total weight. With b = 0, edges
    are as strong in sparse places as in dense ones. With b > 0, a valley of the density is cheap
    to cut. The number of neighbours grows with n, because a row on a thin ring of few rows has few
    neighbours on it. Copies of a row are a single row of the graph: they neither use up its
    neighbours nor make its scale zero, and a duplicated row equals a row of weight 2.

    `distinct` (m, d) are the distinct rows, at least two, `group` (n,) the index of the distinct
    row of each row, and `weights` (n,) are positive. `scale` is s, a typical distance between
    neighbours; 0 if most rows are closer than float64 can resolve.
    """

    def __init__(self, distinct: Any, group: NDArray, weights: NDArray | None = None):
        n = self.n_distinct = distinct.shape[0]
        self._group = group
        self._first = Copies(group, np.bincount(group)).first
        self.masses = np.bincount(group, weights, n).astype(np.float64)
        q = max(3, round(np.log2(n)) - 2)
        k = min(2 * q + 1, n - 1)
        near = NeighborSearch(distinct, neighbors="exact").graph(k)
        self._distances = near.data.astype(np.float64).reshape(n, k)
        self._neighbors = near.indices.reshape(n, k)
        scales = self._distances[:, min(q, k) - 1]
        self.scale = float(np.median(scales))
        self._scales = np.maximum(scales, max(1e-9 * scales.max(), np.finfo(float).tiny))
        self._judge = self._similarities(1.0)

    def _similarities(self, b: float) -> Any:
        n, k = self._neighbors.shape
        D, columns = self._distances, self._neighbors
        products = self._scales[:, None] * self._scales[columns]
        W = np.exp(-(D**2) / products)
        if b > 0:
            W *= (np.median(self._scales) ** 2 / products) ** b
        W *= self.masses[:, None] * self.masses[columns]
        directed = sp.csr_array(
            (W.ravel(), columns.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n)
        )
        return symmetrize(directed)

    def shares(self, labels: NDArray) -> NDArray:
        """Return the share of the total weight in each cluster."""
        sizes = np.bincount(labels[self._first], self.masses)
        return sizes / sizes.sum()

    def cut(self, labels: NDArray) -> float:
        r"""Return the ratio cut of k clusters: the similarity that is cut per row of a cluster.

        .. math:: \frac1k \sum_{c=1}^k \frac{1}{\bar d\, m(c)} \sum_{i \in c, j \notin c}
                  W^{(1)}_{ij}, \qquad m(c) = \sum_{i \in c} m_i

        in units of the mean degree :math:`\bar d` of a row. It depends only on the rows and the
        labels, so that it can compare labels of different kernels and methods. The size of a
        cluster is its number of rows, not the sum of their degrees, to which rows in sparse places
        would hardly contribute.
        """
        y = labels[self._first]
        k = int(y.max()) + 1
        members = np.zeros((self.n_distinct, k))
        members[np.arange(y.size), y] = 1.0
        degrees = self._judge.sum(axis=1)
        sizes = self.masses @ members
        if k < 2 or not sizes.all():
            return np.inf
        within = np.einsum("ij,ij->j", members, self._judge @ members)
        return float(np.mean((degrees @ members - within) / sizes) * sizes.sum() / degrees.sum())

    def labels(self, k: int, b: float) -> NDArray:
        """Return k >= 2 clusters of the rows: spectral clustering of the graph with exponent b.

        Two clusters are the sides of a threshold along one of the leading eigenvectors, the one
        with the lowest `cut`. For more clusters, k-means is applied to the rows of the leading k
        eigenvectors, scaled to unit length.
        """
        W = self._similarities(b)
        joined = JOINED * W.sum() / self.masses.sum()
        degrees = W.sum(axis=1) + joined * self.masses
        n_vectors = k if k > 2 else min(1 + N_VECTORS, self.n_distinct - 1)
        U = _leading_vectors(W, self.masses, joined, degrees, n_vectors)
        if k == 2:
            sides = [self._best_sides(u / np.sqrt(degrees)) for u in U.T[1:]]
            y = min(sides, key=lambda found: found[0])[1]
        else:
            U = U / np.maximum(np.linalg.norm(U, axis=1), np.finfo(float).tiny)[:, None]
            y = quiet_fit(KMeans(k, n_init=10, random_state=0), U, self.masses).labels_
        return y[self._group]

    def _best_sides(self, scores: NDArray) -> tuple[float, NDArray]:
        """Return the lowest cut of any threshold on the scores, and its sides."""
        order = np.argsort(scores, kind="stable")
        P = self._judge[order][:, order]
        left = np.cumsum(self.masses[order])[:-1]
        right = self.masses.sum() - left
        # A row adds its edges to later rows, and removes those to earlier ones.
        changes = P.sum(axis=1) - 2.0 * sp.tril(P, -1).sum(axis=1)
        cuts = np.maximum(np.cumsum(changes)[:-1], 0.0) * (1.0 / left + 1.0 / right)
        cuts[np.minimum(left, right) < SMALLEST_SIDE * (left + right)] = np.inf
        best = int(np.argmin(cuts))
        y = np.zeros(len(scores), dtype=np.int64)
        y[order[best + 1 :]] = 1
        return float(cuts[best]), np.abs(y - y[0])  # the first row is in cluster 0


def _leading_vectors(W: Any, masses: NDArray, joined: float, degrees: NDArray, k: int) -> NDArray:
    """Return the k leading eigenvectors of D^-1/2 (W + joined m m' / sum(m)) D^-1/2."""
    n, root = len(degrees), 1.0 / np.sqrt(degrees)
    S = (sp.diags_array(root) @ W @ sp.diags_array(root)).tocsr()
    u = root * masses * np.sqrt(joined / masses.sum())
    if n > max(DENSE, 2 * k + 1):
        operator = LinearOperator((n, n), matvec=lambda x: S @ x + u * (u @ x), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        try:
            values, vectors = eigsh(operator, k=k, which="LA", v0=start, tol=1e-4, maxiter=20 * n)
            return vectors[:, np.argsort(-values)]
        except ArpackNoConvergence:
            pass  # LAPACK is slower, but always converges
    return np.linalg.eigh(S.toarray() + np.outer(u, u))[1][:, ::-1][:, :k]
