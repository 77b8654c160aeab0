"""Graph Laplacians, degrees and connected components."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse import csgraph

from volmar import _memory
from volmar.graphs.validation import MatrixLike, check_similarity

_KINDS = ("unnormalized", "symmetric", "random_walk")
_BLOCK_ROWS = 256


def degrees(W: MatrixLike, *, check: bool = True) -> NDArray:
    """Compute the degrees d_i = Σ_j W_ij, including the diagonal, in float64.

    ``check=False`` saves a few passes over a W that is already validated.
    """
    W = check_similarity(W) if check else W
    if sp.issparse(W):
        return np.asarray(W.astype(np.float64, copy=False).sum(axis=1)).ravel()
    return W.sum(axis=1, dtype=np.float64)


def laplacian(W: MatrixLike, *, kind: str = "symmetric", check: bool = True) -> Any:
    """Compute the Laplacian of a similarity matrix.

    With D the diagonal matrix of the degrees,

    - ``"unnormalized"``: L = D - W;
    - ``"symmetric"``: L_sym = I - D^{-1/2} W D^{-1/2}, eigenvalues in [0, 2];
    - ``"random_walk"``: L_rw = I - D^{-1} W.

    For a node without edges (degree zero), D^{-1/2} is set to 0. Its row of L_sym and L_rw is then
    a unit vector, which is an eigenvector with eigenvalue 1, not 0.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {', '.join(_KINDS)}; got {kind!r}.")
    W = check_similarity(W) if check else W
    n = W.shape[0]
    d = degrees(W, check=False)
    own = W.diagonal().astype(np.float64)
    # Below the smallest normal number of the dtype, the reciprocal of a degree overflows. Such
    # nodes count as isolated.
    connected = d >= np.finfo(W.dtype).tiny
    inverse = np.divide(1.0, d, out=np.zeros(n), where=connected)
    if kind == "unnormalized":
        left, right, diagonal = np.ones(n), np.ones(n), d - own
    elif kind == "symmetric":
        root = np.sqrt(inverse)
        left, right, diagonal = root, root, 1.0 - own * inverse
    else:
        left, right, diagonal = inverse, np.ones(n), 1.0 - own * inverse
    if sp.issparse(W):
        return _scale_sparse(W, left, right, diagonal)
    # In a normalised Laplacian the largest entries are near 1. Entries below the root of the
    # smallest number do not affect a sum, but their products are subnormal numbers, with which
    # processors are a hundred times slower.
    negligible = 0.0 if kind == "unnormalized" else float(np.sqrt(np.finfo(W.dtype).tiny))
    return _scale_dense(W, left, right, diagonal, negligible)


def connected_components(W: MatrixLike, *, check: bool = True) -> tuple[int, NDArray]:
    """Find the connected components of the graph whose edges are the positive entries of W."""
    W = check_similarity(W) if check else W
    if not sp.issparse(W):
        return _dense_components(W)
    if W.data.min(initial=1.0) == 0:
        W = W.copy()
        W.eliminate_zeros()
    count, labels = csgraph.connected_components(W, directed=False)
    return int(count), labels.astype(np.intp)


def component_message(labels: MatrixLike) -> str:
    """Return a message on a disconnected graph: components, smallest sizes, remedy."""
    sizes = np.sort(np.bincount(np.unique(np.asarray(labels), return_inverse=True)[1]))
    if len(sizes) <= 1:
        return ""
    smallest = ", ".join(str(size) for size in sizes[: min(3, len(sizes) - 1)])
    return (
        f"The graph has {len(sizes)} connected components (smallest: {smallest} of {sizes.sum()} "
        "points). A split between components cuts no edge, so that small components are split off "
        "first. Raise n_neighbors or sigma until the graph is connected, or drop the outlying "
        "points."
    )


def _scale_dense(
    W: NDArray, left: NDArray, right: NDArray, diagonal: NDArray, negligible: float
) -> NDArray:
    n = W.shape[0]
    _memory.require_memory(
        W.nbytes + _BLOCK_ROWS * n * 8,
        f"The dense Laplacian of {n} nodes",
        "Use a sparse similarity (local scaling with graph='knn', or cosine k-NN).",
    )
    L = np.empty_like(W)
    for start in range(0, n, _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        # left_i right_j first: W_ij left_i right_j would not be exactly symmetric.
        factors = -left[rows, None] * right
        np.multiply(factors, W[rows], out=factors)
        if negligible:
            factors[factors > -negligible] = 0.0
        L[rows] = factors
    np.fill_diagonal(L, diagonal)
    return L


def _scale_sparse(W: Any, left: NDArray, right: NDArray, diagonal: NDArray) -> Any:
    rows = np.repeat(np.arange(W.shape[0]), np.diff(W.indptr))
    off = rows != W.indices
    data = np.where(off, -left[rows] * right[W.indices] * W.data, 0.0).astype(W.dtype)
    scaled = sp.csr_array((data, W.indices, W.indptr), shape=W.shape)
    L = sp.csr_array(scaled + sp.diags_array(diagonal.astype(W.dtype), format="csr"))
    L.sort_indices()
    return L


def _dense_components(W: NDArray) -> tuple[int, NDArray]:
    """Find components by breadth-first search over the rows of W, without a sparse copy of W."""
    n = W.shape[0]
    labels = np.full(n, -1, dtype=np.intp)
    count = 0
    for seed in range(n):
        if labels[seed] >= 0:
            continue
        labels[seed] = count
        frontier = np.array([seed])
        while frontier.size and (labels < 0).any():
            reached = np.zeros(n, dtype=bool)
            for start in range(0, frontier.size, _BLOCK_ROWS):
                reached |= (W[frontier[start : start + _BLOCK_ROWS]] > 0).any(axis=0)
            frontier = np.flatnonzero(reached & (labels < 0))
            labels[frontier] = count
        count += 1
    return count, labels
