"""How full the triangular factors of a large sparse matrix would be, from two small pieces."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import SuperLU, splu

SIZES = (500, 2000)
MOST_LEAVE = 0.5
EXPANDER_FILL = 0.1


def factorise(A: sparse.csc_matrix) -> SuperLU:
    """LU of a symmetric sparse matrix with an ordering and pivoting that keep the symmetry."""
    return splu(
        A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


def predicted_fill(Q: sparse.csr_matrix, enough: float = np.inf) -> float:
    """Predict nnz(L + U) / nnz(Q) of `factorise` without factorising Q.

    Minimum-degree fill grows as a power of n that depends on the shape of the graph: about n
    log n for planar-like graphs (k-NN in two dimensions), n^2 for expanders (k-NN in many). Two
    breadth-first balls around the same node are factorised and the power between their fills is
    carried on to n. Balls lose the edges across their border, which is most of them in an
    expander, so the prediction errs on the low side there, but by factors, not by powers. A graph
    may be of one shape here and of another there: the largest of three nodes counts, and the
    search ends where it is above `enough`.
    """
    n = Q.shape[0]
    if n <= SIZES[-1]:
        return _factor_nnz(Q) / max(Q.nnz, 1)
    nodes = [int(np.argmax(np.diff(Q.indptr))), *np.random.default_rng(0).integers(n, size=2)]
    fill = 0.0
    for node in nodes:
        fill = max(fill, _fill_around(Q, int(node)))
        if fill > enough:
            break
    return fill


def _fill_around(Q: sparse.csr_matrix, node: int) -> float:
    n = Q.shape[0]
    order = breadth_first_order(Q, node, directed=False, return_predecessors=False)
    if order.size < SIZES[-1]:  # a small component: complete the ball from the others
        order = np.concatenate([order, np.setdiff1d(np.arange(n), order)])
    balls = [Q[order[:m]][:, order[:m]] for m in SIZES]
    small, large = map(_factor_nnz, balls)
    power = np.log(large / small) / np.log(SIZES[1] / SIZES[0])
    fill = float(large * (n / SIZES[1]) ** max(power, 1.0) / Q.nnz)
    # Where most edges leave the ball it is nearly a tree and says nothing: a random sparse graph,
    # whose factors fill a share of the whole square.
    if balls[1].nnz < MOST_LEAVE * np.diff(Q.indptr)[order[: SIZES[1]]].sum():
        fill = max(fill, EXPANDER_FILL * n**2 / Q.nnz)
    return fill


def _factor_nnz(A: sparse.csr_matrix) -> int:
    # Diagonally dominant values: only the pattern matters, and it must not be singular.
    pattern = abs(A) + sparse.identity(A.shape[0], format="csr")
    dominant = pattern + sparse.diags_array(np.asarray(pattern.sum(axis=1)).ravel())
    return int(factorise(sparse.csc_matrix(dominant)).nnz)
