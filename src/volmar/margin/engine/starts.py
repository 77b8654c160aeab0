"""Initial labels: k-means, kernel k-means, principal components, random or spectral."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from volmar._warn import collecting, quiet_fit
from volmar.graphs.graph import build_graph
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.feature_space.space import VectorSpace
from volmar.rows import as_rows, constant_vector, drawn_rows, is_in_memory, take_rows
from volmar.solvers import Status

# Number of steps of power iteration, enough for the signs; no more precision is needed.
POWER_STEPS = 20
# Maximum number of steps of k-means in a feature space.
MAX_STEPS = 100


def k_means_start(X: Any, weights: NDArray | None, seed: int) -> NDArray:
    """Return the labels of k-means with two clusters."""
    # If all rows are identical, the margin methods report it themselves.
    return quiet_fit(KMeans(2, n_init=1, random_state=seed), X, weights).labels_


def k_way_start(X: Any, k: int, weights: Any, seed: int, *, n_init: int, max_rows: int) -> Any:
    """Return the labels of k-means with k clusters, the best of `n_init` runs.

    Centres come from a sample of at most `max_rows` rows, and each row gets the nearest one. Some
    of the k labels are missing if there are too few rows.
    """
    pool = drawn_rows(X.shape[0], weights, max_rows, np.random.default_rng(seed))
    if pool.size < k:
        return constant_vector(as_rows(X), 0, np.int64)
    few = None if weights is None else weights[pool]
    # The caller reports too few different rows itself.
    model = quiet_fit(KMeans(k, n_init=n_init, random_state=seed), take_rows(X, pool), few)
    if is_in_memory(X) and pool.size == X.shape[0]:
        return model.labels_
    return nearest_center(X, model.cluster_centers_)


def nearest_center(X: Any, centers: NDArray) -> Any:
    """Return the index of the centre nearest to each row.

    With the mean m of the centres, it maximises (x - m)'(c - m) - |c - m|^2 / 2 over centres c.
    """
    centers = centers.astype(np.float64)
    mean = centers.mean(axis=0)
    offsets = 0.5 * (mean @ mean - np.einsum("ij,ij->i", centers, centers))
    scores = as_rows(X).scores((centers - mean).T)
    return np.argmax(scores + offsets.astype(scores.dtype), axis=1)


def principal_scores(space: VectorSpace, k: int, rng: np.random.Generator) -> NDArray:
    """Return the scores of the rows along the k leading principal components, shape (n, k)."""
    f = rng.standard_normal((space.n_rows, k)).astype(space.dtype)
    for _ in range(POWER_STEPS):
        f = np.linalg.qr(_scores_of(space, f))[0].astype(space.dtype, copy=False)
    # Z Z'P f. For orthonormal columns f the products are variances; scores scale with the root.
    images = _scores_of(space, f)
    variances = np.maximum(np.einsum("ij,ij->j", f, images), 0.0)
    return f * np.sqrt(variances)


def principal_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the signs along the leading principal component, a relaxation of k-means."""
    f = rng.standard_normal(space.n_rows).astype(space.dtype)
    for _ in range(POWER_STEPS):
        f = _scores_of(space, f)
        size = float(np.abs(f).max())
        if size == 0.0:
            break
        f /= f.dtype.type(size)
    return f > 0


def random_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the signs along a random combination of the rows with positive weight."""
    v = np.zeros(space.n_rows, dtype=space.dtype)
    rows = slice(None) if space.shares is None else np.flatnonzero(space.shares)
    v[rows] = rng.standard_normal(v[rows].size)
    return _scores_of(space, v) > 0


def _scores_of(space: VectorSpace, v: NDArray) -> NDArray:
    v = v / space.n_rows if space.shares is None else (v.T * space.shares).T
    return space.scores(space.vector(v.astype(space.dtype, copy=False)))


def kernel_k_means_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    r"""Return the labels of k-means with two clusters in a feature space.

    The start is `principal_start`. With centred rows and shares :math:`r_0 + r_1 = 1` the means
    are :math:`\mu_1 = r_0 w` and :math:`\mu_0 = -r_1 w` for :math:`w = \mu_1 - \mu_0`. A row z is
    nearer to :math:`\mu_1` if :math:`\langle w, z \rangle > (r_0 - r_1) |w|^2 / 2`, so a step is
    one vector and its scores. The within-cluster sum of squares, which is the total one minus
    :math:`n r_0 r_1 |w|^2`, never rises.
    """
    labels = principal_start(space, rng)
    shares = np.full(space.n_rows, 1.0 / space.n_rows) if space.shares is None else space.shares
    for _ in range(MAX_STEPS):
        share = float(shares @ labels)
        if not 0.0 < share < 1.0:
            break
        v = shares * np.where(labels, 1.0 / share, -1.0 / (1.0 - share))
        w = space.vector(v.astype(space.dtype))
        square = float(space.inner(w, [w])[0])
        nearer = space.scores(w) > 0.5 * (1.0 - 2.0 * share) * square
        if np.array_equal(nearer, labels) or nearer.all() or not nearer.any():
            break
        labels = nearer
    return labels


def spectral_start(X: Any) -> NDArray:
    """Return the two sides of the second eigenvector of a graph, cut at its mean.

    The graph is the default of the graph methods: similarities of nearest neighbours, locally
    scaled and weighted by the density.
    """
    with collecting():  # rough eigenvectors are a fine start
        graph = build_graph(X, "density_scaling")
        pairs = graph.normalized_operator(1.0 / X.shape[0]).smallest_eigenpairs(2, tol=1e-3)
    vector = pairs.vectors[:, 1] * graph.inverse_roots
    return vector > np.average(vector, weights=graph.degrees + np.finfo(float).tiny)


def best_start(
    problem: MarginProblem, candidates: Iterable[NDArray], *, C: float, tol: float
) -> MarginResult:
    """Descend from each start at a small C, and return the result with the lowest J.

    Rows, C and balance are the same for all starts, so their J can be compared.
    """
    best: MarginResult | None = None
    for labels in candidates:
        result = maximise_margin(problem, labels, C=C, tol=tol)
        usable = result.status in (Status.CONVERGED, Status.CYCLE, Status.MAX_ITER)
        if best is None or (usable and (result.objective < best.objective or not best.rho > 0)):
            best = result
    if best is None:
        raise ValueError("there is no start to choose from. n_init must be at least 1.")
    return best
