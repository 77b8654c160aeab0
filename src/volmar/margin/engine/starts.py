"""Labels to start from: k-means, principal components, random, of the kernel or of a graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from volmar.graphs.graph import build_graph
from volmar.margin.engine.descent import MarginResult, maximise_margin
from volmar.margin.engine.problem import MarginProblem
from volmar.margin.feature_space.space import VectorSpace
from volmar.rows import as_rows, constant_vector, drawn_rows, is_in_memory, take_rows
from volmar.solvers import Status

# Steps of power iteration: enough for the signs, which are all that is asked for.
POWER_STEPS = 20
# Steps of k-means in a feature space.
MAX_STEPS = 100


def k_means_start(X: Any, weights: NDArray | None, seed: int) -> NDArray:
    """Return the labels of k-means."""
    with warnings.catch_warnings():
        # Of rows that are all the same the margin says so itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return KMeans(2, n_init=1, random_state=seed).fit_predict(X, sample_weight=weights)


def k_way_start(X: Any, k: int, weights: Any, seed: int, *, n_init: int, most_rows: int) -> Any:
    """Return the labels of k-means for k clusters: centres from a sample, the nearest of each row.

    The best of `n_init` runs. Some of the k labels are missing where rows are too few.
    """
    pool = drawn_rows(X.shape[0], weights, most_rows, np.random.default_rng(seed))
    if pool.size < k:
        return constant_vector(as_rows(X), 0, np.int64)
    few = None if weights is None else weights[pool]
    model = KMeans(k, n_init=n_init, random_state=seed)
    with warnings.catch_warnings():
        # Of too few different rows the caller says so itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(take_rows(X, pool), sample_weight=few)
    if is_in_memory(X) and pool.size == X.shape[0]:
        return model.labels_
    return nearest_center(X, model.cluster_centers_)


def nearest_center(X: Any, centers: NDArray) -> Any:
    """Return the number of the centre that is nearest to each row.

    About the mean m of the centres c: the largest (x - m)'(c - m) - |c - m|^2 / 2.
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
    # Z Z'P f: of orthonormal columns f the variances, of which scores have the root.
    images = _scores_of(space, f)
    variances = np.maximum(np.einsum("ij,ij->j", f, images), 0.0)
    return f * np.sqrt(variances)


def principal_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the sides of the mean along the leading principal component: k-means, relaxed."""
    f = rng.standard_normal(space.n_rows).astype(space.dtype)
    for _ in range(POWER_STEPS):
        f = _scores_of(space, f)
        size = float(np.abs(f).max())
        if size == 0.0:
            break
        f /= f.dtype.type(size)
    return f > 0


def random_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    """Return the sides of the mean along a random combination of the rows that weigh."""
    v = np.zeros(space.n_rows, dtype=space.dtype)
    rows = slice(None) if space.shares is None else np.flatnonzero(space.shares)
    v[rows] = rng.standard_normal(v[rows].size)
    return _scores_of(space, v) > 0


def _scores_of(space: VectorSpace, v: NDArray) -> NDArray:
    v = v / space.n_rows if space.shares is None else (v.T * space.shares).T
    return space.scores(space.vector(v.astype(space.dtype, copy=False)))


def kernel_k_means_start(space: VectorSpace, rng: np.random.Generator) -> NDArray:
    r"""Return the labels of two-means in the feature space of the space.

    From the sides of the leading principal component. With centred rows and the shares
    :math:`r_0 + r_1 = 1` the means are :math:`\mu_1 = r_0 w`, :math:`\mu_0 = -r_1 w` for
    :math:`w = \mu_1 - \mu_0`, so that a row z is nearer to the second where
    :math:`\langle w, z \rangle > (r_0 - r_1) |w|^2 / 2`: a step is one cut and its scores. The sum
    of squares within, which is that of all rows less :math:`n r_0 r_1 |w|^2`, never rises.
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
    """Return the sides of the mean of the second eigenvector of the rows' graph.

    The graph is the default of the graph methods: similarities of the nearest neighbours, locally
    scaled and weighted by the density.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rough eigenvectors are a fine start
        graph = build_graph(X, "density_scaling")
        pairs = graph.normalized_operator(1.0 / X.shape[0]).smallest_eigenpairs(2, tol=1e-3)
    vector = pairs.vectors[:, 1] * graph.inverse_roots
    return vector > np.average(vector, weights=graph.degrees + np.finfo(float).tiny)


def best_start(
    problem: MarginProblem, candidates: Iterable[NDArray], *, C: float, tol: float
) -> MarginResult:
    """Descend from each start at a small C, and return the one with the lowest J.

    J compares starts: the rows, C and the balance are the same for all.
    """
    best: MarginResult | None = None
    for labels in candidates:
        result = maximise_margin(problem, labels, C=C, tol=tol)
        usable = result.status in (Status.CONVERGED, Status.CYCLE, Status.MAX_ITER)
        if best is None or (usable and (result.objective < best.objective or not best.rho > 0)):
            best = result
    if best is None:
        raise ValueError("there is no start to choose from; n_init must be at least 1.")
    return best
