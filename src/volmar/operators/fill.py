"""Prediction of the fill of the triangular factors of a large sparse matrix."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

# Numbers of nodes of the two balls that are factorised.
SIZES = (500, 2000)
# A graph is an expander if the fraction of edges inside a ball of 500 nodes is below this value.
# The fraction is 0.92 for k-NN graphs in two dimensions, 0.78 in three, 0.6 in five, 0.45 in eight
# and 0.3 in sixteen.
OPEN = 0.55
# Fraction of all n^2 entries that the factors of an expander are assumed to fill.
EXPANDER_FILL = 0.1


def factorise(A: sparse.csc_matrix) -> SuperLU:
    """Return the LU factors of a symmetric sparse matrix, with symmetric ordering and pivoting."""
    return splu(
        A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


def predicted_fill(Q: sparse.csr_matrix, enough: float = np.inf) -> float:
    """Predict nnz(L + U) / nnz(Q) of `factorise` without factorising Q.

    Minimum-degree fill grows as a power of n that depends on the shape of the graph: about n log n
    for planar-like graphs (k-NN in two dimensions), n^2 for expanders (k-NN in many dimensions).
    Two breadth-first balls around the same node are factorised, and the power between their fills
    is extrapolated to n. Balls lose the edges across their border, which are most edges of an
    expander. The prediction is therefore too low for expanders, but by a factor, not by a power.
    The shape may vary within a graph: of three nodes, the one with the largest fraction of edges
    leaving its small ball is used. If this fraction alone implies a fill above `enough`, nothing
    is factorised.
    """
    n = Q.shape[0]
    if n <= SIZES[-1]:
        return _factor_nnz(Q) / max(Q.nnz, 1)
    inside, node = _most_open(Q)
    # If many edges leave the ball, it is nearly a tree and useless for a prediction. The graph is
    # like a random sparse graph, whose factors fill a fraction of all n^2 entries.
    expander = EXPANDER_FILL * n**2 / Q.nnz if inside < OPEN else 0.0
    if expander > enough:
        return expander
    ball = _ball_around(Q, node, SIZES[1])
    small, large = (_factor_nnz(Q[ball[:m]][:, ball[:m]]) for m in SIZES)
    power = np.log(large / small) / np.log(SIZES[1] / SIZES[0])
    return max(float(large * (n / SIZES[1]) ** max(power, 1.0) / Q.nnz), expander)


def is_expander(Q: sparse.csr_matrix) -> bool:
    """Return whether the graph is high-dimensional, with short paths between all nodes.

    All but a few eigenvalues are then far from zero, so plain iterations converge quickly.
    """
    return Q.shape[0] > SIZES[-1] and _most_open(Q)[0] < OPEN


def _most_open(Q: sparse.csr_matrix) -> tuple[float, int]:
    """Return the smallest fraction of edges inside a ball around one of three nodes, and it."""
    n = Q.shape[0]
    nodes = [int(np.argmax(np.diff(Q.indptr))), *np.random.default_rng(0).integers(n, size=2)]
    return min((_share_inside(Q, _ball_around(Q, int(one), SIZES[0])), int(one)) for one in nodes)


def _share_inside(Q: sparse.csr_matrix, nodes: np.ndarray) -> float:
    """Return the fraction of the edges of the given nodes that end at one of them."""
    return float(Q[nodes][:, nodes].nnz / max(int(np.diff(Q.indptr)[nodes].sum()), 1))


def _ball_around(Q: sparse.csr_matrix, node: int, size: int) -> np.ndarray:
    """Return the nodes nearest to a node by the number of edges.

    If the component of the node is smaller, the ball continues from the first node outside it.
    """
    seen = np.zeros(Q.shape[0], dtype=bool)
    ball, count, shell = [], 0, np.array([node])
    while count < size:
        seen[shell] = True
        ball.append(shell)
        count += shell.size
        around = np.unique(Q[shell].indices)
        shell = around[~seen[around]]
        if not shell.size:
            shell = np.flatnonzero(~seen)[:1]
    return np.concatenate(ball)[:size]


def _factor_nnz(A: sparse.csr_matrix) -> int:
    # Only the pattern matters. Diagonally dominant values ensure that it is not singular.
    pattern = abs(A) + sparse.identity(A.shape[0], format="csr")
    dominant = pattern + sparse.diags_array(np.asarray(pattern.sum(axis=1)).ravel())
    return int(factorise(sparse.csc_matrix(dominant)).nnz)
