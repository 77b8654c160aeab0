"""The locally scaled similarity weighted by the density, on a connected graph of neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin_min

from volmar._eigen import eigsh
from volmar._warn import quiet_fit
from volmar.graphs.copies import Copies, distinct_rows
from volmar.graphs.distances import candidate_distances
from volmar.graphs.neighbors import (
    ExactSearch,
    NeighborRecipe,
    NeighborSearch,
    spatial_order,
    symmetrize,
)
from volmar.graphs.similarities import ExponentialExtension
from volmar.graphs.validation import MatrixLike, check_n_neighbors, check_points, refuse_constant

# ---- density scaling


# From this number of rows on, rows are sorted by a k-d tree, so that neighbours are in the cache.
REORDERED_FROM = 50_000
# Distances within this factor are equal.
SAME = 1.0 + 1e-9
# Width of the kernel: k / USUAL_NEIGHBORS times the distance of nearest neighbours.
USUAL_NEIGHBORS = 9
# Above this value of -log, the kernel falls as a power of the distance: see `_log_kernel`.
TAIL = 9.0
# Limits of the local scales, relative to their median, in the weight of the density. All denser
# places count alike, and so do places whose neighbours are more than a hundred times as far away.
DENSEST, SPARSEST = 0.8, 100.0


def default_n_neighbors(n: int) -> int:
    """Return the number of neighbours for n rows: log2(n) + 3, rounded, at most n - 1.

    The scale of a row has a relative noise of 1 / sqrt(k) in terms of its density, and does not
    resolve structure narrower than k neighbours. Therefore k grows with n, but slowly, because the
    search takes longer for more neighbours.
    """
    return min(round(np.log2(n)) + 3, n - 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityScalingSimilarity(NeighborRecipe):
    """Recipe for the density-scaled similarity; parameters as in `density_scaling_similarity`."""

    n_neighbors: int | None = None
    n_edges: int = 10
    exponent: float = 3.0
    self_loops: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.n_edges, bool) or not isinstance(self.n_edges, Integral):
            raise TypeError(f"n_edges must be an integer; got {self.n_edges!r}.")
        if self.n_edges < 1:
            raise ValueError(f"n_edges must be at least 1; got {self.n_edges}.")
        if not self.exponent >= 0 or not np.isfinite(self.exponent):
            raise ValueError(f"exponent must be a number of at least 0; got {self.exponent!r}.")

    def build(self, X: MatrixLike) -> tuple[Any, DensityScalingExtension]:
        """Build the similarity, and its extension to new points."""
        X = check_points(X)
        n = X.shape[0]
        k = default_n_neighbors(n) if self.n_neighbors is None else self.n_neighbors
        k = check_n_neighbors(k, n)
        refuse_constant(X)
        search, copies, near = self._neighbors(X, max(k, int(self.n_edges)))
        scales = _local_scales(near, copies.counts, k, X.shape[1])
        edges = _nearest(near, int(self.n_edges))
        del near
        edges = _with_edges(edges, joining_edges(search.rows, edges))
        similarities = np.exp(scales.log_similarities(edges, self.exponent))
        points = sp.csr_array((similarities, edges.indices, edges.indptr), shape=edges.shape)
        del edges
        own = np.exp(-2 * self.exponent * np.log(scales.relative))
        if copies.exist:
            W = copies.spread(points).maximum(copies.ties(own))
            W = symmetrize(_with_short_indices(W), "union")
        else:
            W = copies.spread(symmetrize(_with_short_indices(points), "union"))
            W.sort_indices()
        W = W.astype(X.dtype, copy=False)
        if self.self_loops:
            loops = own[copies.point].astype(W.dtype)
            W = sp.csr_array(W + sp.diags_array(loops, format="csr"))
        n_near = min(max(k, int(self.n_edges)), copies.counts.size - 1)
        extension = DensityScalingExtension(
            search, copies, scales, k, n_near, float(self.exponent)
        )
        return W, extension

    def _neighbors(self, X: Any, n_edges: int) -> tuple[NeighborSearch, Copies, Any]:
        """Search for the nearest other points; if rows coincide, among the distinct points."""
        order = spatial_order(X) if X.shape[0] >= REORDERED_FROM else None
        copies = Copies.none(np.arange(X.shape[0]) if order is None else order)
        points = X if order is None else X[order]
        search = self.search(points)
        near = self._near(search, points, n_edges)
        if near.data.min() == 0:
            points, group = distinct_rows(X)
            copies = Copies(group, np.bincount(group))
            if copies.exist:
                search = self.search(points)
                near = self._near(search, points, n_edges)
        return search, copies, near

    def _near(self, search: NeighborSearch, points: Any, n_edges: int) -> Any:
        """Return distances to the nearest neighbours, and to those tied with the last of them."""
        n = points.shape[0]
        n_edges = min(n_edges, n - 1)
        if n_edges == n - 1:
            return search.graph(n_edges)
        found = search.graph(n_edges + 1)
        distances = found.data.reshape(n, n_edges + 1)
        tied = np.flatnonzero(distances[:, -1] <= distances[:, -2] * SAME)
        keep = np.ones(distances.shape, dtype=bool)
        keep[:, -1] = False
        if not tied.size:
            return _kept(found, keep)
        # Neighbours tied with the last are kept too, up to this multiple of the number of edges.
        width = min(4 * n_edges, n - 1)
        more = search.query(points[tied], width)
        radius = distances[tied, -2]
        wide = more.data.reshape(tied.size, width)
        wanted = (wide <= radius[:, None] * SAME) & (
            more.indices.reshape(wide.shape) != tied[:, None]
        )
        keep[tied] = False
        places = (tied[np.nonzero(wanted)[0]], more.indices.reshape(wide.shape)[wanted])
        return _with_edges(_kept(found, keep), sp.coo_array((wide[wanted], places), shape=(n, n)))


@dataclass(frozen=True, eq=False)
class LocalScales:
    """Local scales of the p points.

    `radius` (p,) is the distance within which a point has k neighbours, counting copies; it is
    positive. `relative` (p,) is the scale of the density divided by its median, between DENSEST
    and SPARSEST. `width` is the width of the kernel in units of the radius.
    """

    radius: NDArray
    relative: NDArray
    width: float

    def log_similarities(self, edges: Any, exponent: float) -> NDArray:
        """Return the logarithms of the similarities along edges, given their distances."""
        rows = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
        columns = edges.indices
        logs = np.log(self.relative)
        return _log_kernel(
            edges.data, self.radius[rows], self.radius[columns], self.width
        ) - exponent * (logs[rows] + logs[columns])


@dataclass(frozen=True, eq=False)
class DensityScalingExtension(ExponentialExtension):
    """Density-scaled similarities of new points to the training points.

    The scale of a new point is as in `LocalScalingExtension`, where every copy of a training point
    counts. The sum of the similarities of copies is stored at the first of them. The density at
    the new point itself is left out, because it is the same for all its similarities.
    """

    search: NeighborSearch
    copies: Copies
    scales: LocalScales
    n_neighbors: int
    n_edges: int
    exponent: float

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> Any:
        near = self.search.query(X_new, self.n_edges)
        m = near.shape[0]
        columns = near.indices.reshape(m, self.n_edges)
        distances = near.data.reshape(m, self.n_edges).astype(np.float64)
        counts = self.copies.counts[columns]
        short = (np.cumsum(counts, axis=1) < self.n_neighbors).sum(axis=1)
        rank = np.minimum(short, self.n_edges - 1)
        own = np.take_along_axis(distances, rank[:, None], axis=1).ravel()
        own = np.where(own > 0, own, self.scales.radius[columns[:, 0]])
        logs = _log_kernel(distances, own[:, None], self.scales.radius[columns], self.scales.width)
        logs += np.log(counts) - self.exponent * np.log(self.scales.relative[columns])
        data = function(logs).ravel().astype(near.dtype, copy=False)
        columns = self.copies.first[near.indices].astype(near.indices.dtype)
        return sp.csr_array((data, columns, near.indptr), shape=(m, self.copies.n_rows))


def density_scaling_similarity(
    X: MatrixLike,
    *,
    n_neighbors: int | None = None,
    n_edges: int = 10,
    exponent: float = 3.0,
    self_loops: bool = False,
    random_state: int | np.random.RandomState | None = None,
    n_jobs: int | None = None,
) -> Any:
    r"""Compute the locally scaled similarity of nearest neighbours, weighted by the density.

    .. math:: W_{ij} = \exp\left(-\frac{|x_i - x_j|^2}{2 c^2 s_i s_j}\right)
              \left(\frac{\bar s^2}{s_i s_j}\right)^b

    Here :math:`s_i` is the distance from :math:`x_i` to its k-th nearest neighbour, :math:`\bar s`
    the median of these distances, and b the `exponent`.

    *Density.* In d dimensions :math:`s \propto \rho^{-1/d}` for a density :math:`\rho`, and the
    graph of nearest neighbours measures the roughness of a function f by
    :math:`\int \rho^{1 + (2b - 2) / d} |\nabla f|^2`. With b = 0 (local scaling), this is
    :math:`\int |\nabla f|^2` in the plane: a cut through a valley of the density costs as much as
    one through a mode. b = 1 gives :math:`\int \rho |\nabla f|^2` in any number of dimensions, and
    b = 2 gives :math:`\int \rho^2 |\nabla f|^2` in the plane, as with a Gaussian similarity of one
    width. In many dimensions, where densities vary by orders of magnitude, any b is close to
    b = 1. The ratio :math:`s_i / \bar s` is clipped to the range from 0.8 to 100. Sparse places
    lose weight, and all dense places count alike. Otherwise a single dense place could have most
    of the weight of the graph. For the same reason, the default b = 3 can be higher than 2.

    *Width.* c is the root mean square of (distance to the nearest neighbour) / :math:`s_i`, times
    k / 9, at least 2 / k and at most 1. In any dimension, the kernel is about as wide as the
    distance between neighbours, so that few rows on a curve are not connected to the next curve.
    It is wider for many rows, to bridge random gaps. If the exponent of the kernel is below -9,
    the kernel falls as a power of the distance instead, :math:`9 e^{-9} / |\text{exponent}|`, so
    that outliers and far pieces stay connected.

    *Connectedness.* An edge joins two points if one of them is among the `n_edges` nearest
    neighbours of the other, or tied with the last of these. Components of the graph are joined by
    short edges (see `volmar.graphs.density_scaling`).

    *Copies.* Neighbours are distinct points. Rows that coincide are joined to each other, and each
    of them counts: if m > k rows are within the distance that should contain k, :math:`s_i` is
    scaled by :math:`(k / m)^{1/d}` for the density.

    `n_neighbors` is k of the local scale (None: log2(n) + 3, rounded), `n_edges` the number of
    nearest neighbours that a row is joined to, and `exponent` b, the weight of the density. The
    diagonal is 0 without `self_loops`. The result is CSR, exactly symmetric, in X's float dtype.
    """
    spec = DensityScalingSimilarity(
        n_neighbors=n_neighbors,
        n_edges=n_edges,
        exponent=exponent,
        self_loops=self_loops,
        random_state=random_state,
        n_jobs=n_jobs,
    )
    return spec.build(X)[0]


def _log_kernel(
    distances: NDArray, row_radius: NDArray, column_radius: NDArray, width: float
) -> NDArray:
    """Return the logarithm of the kernel: -t up to t = TAIL, then log(TAIL / t) - TAIL.

    Here t = d² / (2 c² s_i s_j). The two branches meet at t = TAIL. A Gaussian alone would cut off
    every outlier, and would not show which of several far pieces are nearer.
    """
    # Two divisions, so that no product under- or overflows.
    with np.errstate(over="ignore"):
        ratio = (distances / row_radius) * (distances / column_radius)
        t = np.minimum(ratio / (2 * width**2), np.finfo(np.float64).max)
    return -np.minimum(t, TAIL) - np.log(np.maximum(t / TAIL, 1.0))


def _local_scales(near: Any, counts: NDArray, k: int, n_features: int) -> LocalScales:
    """Compute scales from the distances to the nearest points, nearest first, and the copies."""
    lengths = np.diff(near.indptr)
    starts = near.indptr[:-1]
    distances = near.data.astype(np.float64, copy=False)
    if counts.size == counts.sum():  # the rank of a neighbour
        within = np.arange(1, near.nnz + 1, dtype=near.indptr.dtype)
        within -= np.repeat(starts, lengths)
    else:
        mass = counts[near.indices]
        total = np.cumsum(mass)
        within = total - np.repeat(total[starts] - mass[starts] - (counts - 1), lengths)
    # Index of the k-th neighbour, counting copies, and of the last one tied with it.
    first = np.minimum(_count(within < k, starts), lengths - 1)
    radius = distances[starts + first]
    last = _count(distances <= np.repeat(radius * SAME, lengths), starts) - 1
    found = np.maximum(within[starts + last], k)
    positive = radius[radius > 0]
    smallest = positive.min() if positive.size else 1.0
    nearest = np.maximum(distances[starts], np.where(radius > 0, 0.0, smallest))
    radius = np.maximum(radius, smallest)
    scale = radius
    if (found > k).any():
        end = starts + lengths - 1
        dimension = _dimension(within[end] / found, distances[end] / radius, n_features)
        scale = radius * (k / found) ** (1 / dimension)
    # Weighted by the number of copies of each point.
    median = _weighted_median(scale, counts)
    apart = np.sqrt(np.average((nearest / radius) ** 2, weights=counts))
    width = float(apart * k / USUAL_NEIGHBORS)
    return LocalScales(
        radius,
        np.clip(scale / median, DENSEST, SPARSEST),
        # At most the local scale, and at least the mean distance of rows on a curve, 2 / k of it.
        # Narrower kernels would turn random gaps between few rows into borders.
        min(max(width, 2.0 / k), 1.0),
    )


def _count(mask: NDArray, starts: NDArray) -> NDArray:
    """Count the true entries of each segment."""
    return np.add.reduceat(mask, starts, dtype=np.intp)


def _dimension(mass_ratio: NDArray, radius_ratio: NDArray, n_features: int) -> float:
    """Return the exponent of the growth of row counts with the distance, 1 to n_features."""
    wider = radius_ratio > SAME
    if not wider.any():
        return float(n_features)
    growth = np.log(mass_ratio[wider]).sum() / np.log(radius_ratio[wider]).sum()
    return float(np.clip(growth, 1.0, max(1, n_features)))


def _weighted_median(values: NDArray, counts: NDArray) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(counts[order])
    return float(values[order[np.searchsorted(total, total[-1] / 2)]])


def _nearest(near: Any, n_edges: int) -> Any:
    """Return edges to the first `n_edges` neighbours of each row, and to ties with the last."""
    lengths = np.diff(near.indptr)
    if lengths.max() <= n_edges:
        return near
    last = near.data[near.indptr[:-1] + np.minimum(n_edges, lengths) - 1]
    return _kept(near, near.data <= np.repeat(last * SAME, lengths))


def _kept(near: Any, keep: NDArray) -> Any:
    """Return the entries of a graph for which `keep` is True."""
    mask = keep.ravel()
    indptr = np.concatenate([[0], np.cumsum(mask)])[near.indptr].astype(near.indptr.dtype)
    return sp.csr_array((near.data[mask], near.indices[mask], indptr), shape=near.shape)


def _with_edges(near: Any, extra: Any) -> Any:
    """Return the edges of both graphs, row by row, those of `near` first, with stored zeros."""
    if not extra.nnz:
        return near
    a, b = near.tocoo(), extra.tocoo()
    coords = tuple(np.concatenate(pair) for pair in zip(a.coords, b.coords, strict=True))
    data = np.concatenate([a.data, b.data])
    order = np.argsort(coords[0], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(coords[0], minlength=near.shape[0]))])
    return sp.csr_array((data[order], coords[1][order], indptr), shape=near.shape)


def _with_short_indices(graph: Any) -> Any:
    """Use 32-bit indices if they fit: 64-bit ones double the size, and solvers may refuse them."""
    if max(graph.nnz, graph.shape[0]) >= 2**30:  # edges are mirrored after this
        return graph
    indices, indptr = (a.astype(np.int32, copy=False) for a in (graph.indices, graph.indptr))
    return sp.csr_array((graph.data, indices, indptr), shape=graph.shape)


# ---- joining


# If a component has at most SMALL rows, the nearest row outside is among the SMALL + 1 nearest
# neighbours of its rows.
SMALL = 32
# Number of rows from which the search in a larger component starts, and its maximum number of
# steps.
N_TRIED = 100
MAX_STEPS = 10


def joining_edges(rows: Any, graph: Any) -> Any:
    """Find short edges that join the connected components of a graph.

    This is Borůvka's minimum spanning tree of the components. Every component except the largest
    is joined to the nearest row outside. This is repeated with the merged components until one is
    left. In a component of more than `SMALL` rows, the nearest pair is found by alternation: from
    the best of `N_TRIED` rows to the nearest row outside, then to the row of the component nearest
    to that, and so on. The search ends at a pair of mutual nearest rows. It is short, and nearly
    always the shortest.

    Edges of the graph count in either direction, and stored zeros are edges. Returns the distances
    along the new edges as a CSR array, in one direction each.
    """
    n = rows.shape[0]
    edges = sp.csr_array((np.ones(graph.indices.size), graph.indices, graph.indptr), shape=(n, n))
    n_pieces, piece = csgraph.connected_components(edges, directed=False)
    found = [np.empty((0, 2), dtype=np.intp)]
    while n_pieces > 1:
        sizes = np.bincount(piece)
        sizes[np.argmax(sizes)] = 0
        small = np.flatnonzero((sizes > 0) & (sizes <= SMALL))
        new = _ways_out_of_small(rows, piece, small)
        new += [_way_out(rows, piece == one) for one in np.flatnonzero(sizes > SMALL)]
        # Two components may have found the same edge from both sides.
        pairs = np.unique(np.sort(new, axis=1), axis=0)
        found.append(pairs)
        between = sp.coo_array((np.ones(len(pairs)), tuple(piece[pairs.T])), shape=(n_pieces,) * 2)
        n_pieces, merged = csgraph.connected_components(between, directed=False)
        piece = merged[piece]
    row, column = np.concatenate(found).T
    distances = candidate_distances(rows[row], rows, column[:, None], "euclidean").ravel()
    return sp.coo_array((distances.astype(rows.dtype), (row, column)), shape=(n, n)).tocsr()


def _ways_out_of_small(rows: Any, piece: NDArray, small: NDArray) -> list[tuple[int, int]]:
    """Return the nearest pair (inside, outside) of each small component, by a single search."""
    inside = np.flatnonzero(np.isin(piece, small))
    if not inside.size:
        return []
    k = min(SMALL + 1, rows.shape[0])
    near = ExactSearch(rows, None).near(rows[inside], k)
    distances = candidate_distances(rows[inside], rows, near, "euclidean")
    outside = piece[near] != piece[inside][:, None]
    distances = np.where(outside, distances, np.inf)
    column = np.argmin(distances, axis=1)
    length = np.take_along_axis(distances, column[:, None], axis=1).ravel()
    order = np.lexsort((length, piece[inside]))
    first = order[np.unique(piece[inside][order], return_index=True)[1]]
    return [(int(inside[i]), int(near[i, column[i]])) for i in first]


def _way_out(rows: Any, inside: NDArray) -> tuple[int, int]:
    """Return a pair of rows (inside, outside) that are mutual nearest neighbours."""
    members, others = np.flatnonzero(inside), np.flatnonzero(~inside)
    rows_inside, rows_outside = rows[members], rows[others]
    tried = np.arange(0, members.size, max(1, members.size // N_TRIED))
    near, distances = pairwise_distances_argmin_min(rows_inside[tried], rows_outside)
    best = int(np.argmin(distances))
    i, j = int(tried[best]), int(near[best])
    for _ in range(MAX_STEPS):
        back = int(pairwise_distances_argmin_min(rows_outside[[j]], rows_inside)[0][0])
        out = int(pairwise_distances_argmin_min(rows_inside[[back]], rows_outside)[0][0])
        if (back, out) == (i, j):
            break
        i, j = back, out
    return int(members[i]), int(others[j])


# ---- cut graph


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
        near = NeighborSearch(distinct, exact=True).graph(k)
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
        # Similarity added to all pairs of rows, relative to the mean degree, to connect the graph
        # before computing eigenvectors. It makes cutting off a few stray rows expensive.
        joined = 0.001 * W.sum() / self.masses.sum()
        degrees = W.sum(axis=1) + joined * self.masses
        # Three eigenvectors are searched for two clusters. On rings, the first ones vary
        # along the rings.
        n_vectors = k if k > 2 else min(4, self.n_distinct - 1)
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
        # Minimum share of the rows on each side of such a cut.
        cuts[np.minimum(left, right) < 0.02 * (left + right)] = np.inf
        best = int(np.argmin(cuts))
        y = np.zeros(len(scores), dtype=np.int64)
        y[order[best + 1 :]] = 1
        return float(cuts[best]), np.abs(y - y[0])  # the first row is in cluster 0


def _leading_vectors(W: Any, masses: NDArray, joined: float, degrees: NDArray, k: int) -> NDArray:
    """Return the k leading eigenvectors of D^-1/2 (W + joined m m' / sum(m)) D^-1/2."""
    n, root = len(degrees), 1.0 / np.sqrt(degrees)
    S = (sp.diags_array(root) @ W @ sp.diags_array(root)).tocsr()
    u = root * masses * np.sqrt(joined / masses.sum())
    # Maximum number of rows for which LAPACK computes the eigenvectors.
    if n > max(100, 2 * k + 1):
        operator = LinearOperator((n, n), matvec=lambda x: S @ x + u * (u @ x), dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(n)
        try:
            values, vectors = eigsh(operator, k=k, which="LA", v0=start, tol=1e-4, maxiter=20 * n)
            return vectors[:, np.argsort(-values)]
        except ArpackNoConvergence:
            pass  # LAPACK is slower, but always converges
    return np.linalg.eigh(S.toarray() + np.outer(u, u))[1][:, ::-1][:, :k]
