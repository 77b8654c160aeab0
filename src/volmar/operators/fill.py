"""How full the triangular factors of a large sparse matrix would be, from two small pieces."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import SuperLU, splu

SIZES = (500, 2000)
# Share of edges inside a ball of 500 nodes: 0.92 on k-NN graphs in the plane, 0.78 in three
# dimensions, 0.6 in five, 0.45 in eight and 0.3 in sixteen.
OPEN = 0.55
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
    may be of one shape here and of another there: of three nodes, the one from whose small ball
    the largest share of edges leaves counts. Where that share alone puts the fill above `enough`,
    nothing is factorised.
    """
    n = Q.shape[0]
    if n <= SIZES[-1]:
        return _factor_nnz(Q) / max(Q.nnz, 1)
    inside, node = _most_open(Q)
    # Where many edges leave the ball it is nearly a tree and says nothing: a random sparse graph,
    # whose factors fill a share of the whole square.
    expander = EXPANDER_FILL * n**2 / Q.nnz if inside < OPEN else 0.0
    if expander > enough:
        return expander
    ball = _ball_around(Q, node, SIZES[1])
    small, large = (_factor_nnz(Q[ball[:m]][:, ball[:m]]) for m in SIZES)
    power = np.log(large / small) / np.log(SIZES[1] / SIZES[0])
    return max(float(large * (n / SIZES[1]) ** max(power, 1.0) / Q.nnz), expander)


def is_expander(Q: sparse.csr_matrix) -> bool:
    """Whether the graph is one of high dimension, in which everything is near everything.

    Eigenvalues are then far from zero but for a few, so that plain iterations are short.
    """
    return Q.shape[0] > SIZES[-1] and _most_open(Q)[0] < OPEN


def _most_open(Q: sparse.csr_matrix) -> tuple[float, int]:
    """Smallest share of edges inside a small ball around one of three nodes, and that node."""
    n = Q.shape[0]
    nodes = [int(np.argmax(np.diff(Q.indptr))), *np.random.default_rng(0).integers(n, size=2)]
    return min((_share_inside(Q, _ball_around(Q, int(one), SIZES[0])), int(one)) for one in nodes)


def _share_inside(Q: sparse.csr_matrix, nodes: np.ndarray) -> float:
    """Share of the edges of some nodes that lead to one of them."""
    return float(Q[nodes][:, nodes].nnz / max(int(np.diff(Q.indptr)[nodes].sum()), 1))


def _ball_around(Q: sparse.csr_matrix, node: int, size: int) -> np.ndarray:
    """Return the nodes nearest to one in steps along edges.

    Where the component of the node is smaller, the ball goes on from the first node outside.
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
    # Diagonally dominant values: only the pattern matters, and it must not be singular.
    pattern = abs(A) + sparse.identity(A.shape[0], format="csr")
    dominant = pattern + sparse.diags_array(np.asarray(pattern.sum(axis=1)).ravel())
    return int(factorise(sparse.csc_matrix(dominant)).nnz)
