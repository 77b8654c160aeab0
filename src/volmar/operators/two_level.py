"""Coarse copies of large sparse matrices: preconditioner, starting vectors and LOBPCG."""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, SuperLU, lobpcg

from volmar._warn import without_warnings
from volmar.operators.fill import factorise, predicted_fill
from volmar.operators.lanczos import largest_eigenpairs
from volmar.operators.protocol import MAX_ANGLE, FloatArray

# Minimum number of rows per row of the coarse matrix. On locally scaled k-NN graphs in two
# dimensions, ratios of 11 (three rounds), 35 and 120 took about 50, 90 and 150 iterations.
RATIO = 8
# Number of edges whose strengths are made distinct at a time, with several arrays of this size.
JITTERED = 2**20
# Coarsening stops when a round keeps more than this fraction of the nodes.
STALLED = 0.8
# A coarse matrix above the first size is made coarser while its predicted fill exceeds the second.
SMALL = 2000
MAX_FILL = 15.0


class TwoLevel:
    r"""Additive two-level approximation of the inverse of a symmetric positive definite matrix.

    Each node is merged with another along its strongest edge, the resulting groups are merged in
    the same way, and so on until there are few enough (Boruvka's rounds). With T the membership
    matrix of the groups, scaled so that T'T = I and that `near_null` is in the range of T,

    .. math:: A^{-1} \approx D^{-1} + T (T'AT)^{-1} T'

    where D is the diagonal of A. The first term reduces errors that differ between neighbours. The
    second, which is factorised, reduces errors that vary over long distances in the graph. The
    number of conjugate gradient iterations therefore hardly grows with n. The approximation is
    poor if pieces of the graph are connected by edges that are weaker by many orders of magnitude
    than the edges inside them.
    """

    def __init__(self, A: sparse.csr_matrix, near_null: FloatArray | None = None):
        n = A.shape[0]
        # Isolated nodes have degree 0; any weight is valid for them.
        near_null = np.ones(n) if near_null is None else np.where(near_null, near_null, 1.0)
        self._inverse_diagonal = 1.0 / A.diagonal()
        self.groups, self.coarse = _coarse(A, near_null)
        self._restriction = sparse.csr_matrix(self.groups.T)
        self._factor: SuperLU = factorise(sparse.csc_matrix(self.coarse))

    def precondition(self, R: FloatArray) -> FloatArray:
        """Return an approximation of A^-1 R, for a vector or a block of columns."""
        if R.shape[1:] == (1,):  # SciPy is slower for one column than for a vector
            return self.precondition(R[:, 0])[:, None]
        Z = self.groups @ self._factor.solve(self._restriction @ R)
        Z += R * (self._inverse_diagonal if R.ndim == 1 else self._inverse_diagonal[:, None])
        return Z

    @property
    def preconditioner(self) -> LinearOperator:
        """The method `precondition` as a LinearOperator."""
        n = self._inverse_diagonal.size
        return LinearOperator(
            (n, n), matvec=self.precondition, matmat=self.precondition, dtype=np.float64
        )

    def coarse_eigenvectors(self, k: int, seed: int, offset: float = 0.0) -> FloatArray | None:
        """Return the smallest eigenvectors of T'AT, mapped back by T, as starting vectors.

        They are computed by the inverse of T'AT + offset I, which should be nearly singular.
        Pieces of the graph that are hardly connected have nearly the same eigenvalue. The search
        must not miss one of these.
        """
        m = self.coarse.shape[0]
        if k >= m:
            return None
        if m <= max(500, 20 * k):
            vectors = linalg.eigh(self.coarse.toarray(), subset_by_index=(0, k - 1))[1]
            return self.groups @ vectors
        factor = factorise(sparse.csc_matrix(self.coarse + offset * sparse.identity(m)))
        found = largest_eigenpairs(
            factor.solve, np.empty((m, 0)), k, tol=1e-2, seed=seed, max_iter=20, n_check=8
        )
        return None if found is None else self.groups @ found[1][:, np.argsort(-found[0])]


def lobpcg_smallest(
    Q: sparse.csr_matrix,
    two_level: TwoLevel,
    known: FloatArray,
    k: int,
    *,
    tol: float,
    offset: float,
    seed: int,
) -> tuple[FloatArray, FloatArray, float]:
    """Return the k smallest eigenpairs orthogonal to `known`, by LOBPCG, converged or not.

    It starts from the eigenvectors of the coarse matrix (`TwoLevel.coarse_eigenvectors`). One
    additional guard vector accelerates the convergence of the last requested pair, and makes it
    possible to find an eigenvalue that the coarse matrix missed. Its value is an estimate of the
    next eigenvalue. Iterations go on until residuals are small compared with it. `known` must be
    exact.
    """
    start = two_level.coarse_eigenvectors(known.shape[1] + k + 1, seed, offset)
    if start is None:
        start = np.random.default_rng(seed).standard_normal((Q.shape[0], k + 1))
    start = start[:, -(k + 1) :]
    for _ in range(3):
        # LOBPCG warns if the guard has not converged; the requested pairs are checked below.
        values, start = without_warnings(lobpcg)(
            Q,
            start,
            Y=known if known.size else None,
            M=two_level.preconditioner,
            tol=0.5 * tol,
            maxiter=40,
            largest=False,
        )
        order = np.argsort(values)
        following, order = float(values[order[-1]]), order[:k]
        found = start[:, order]
        lowest = float(known[:, 0] @ (Q @ known[:, 0])) if known.size else values[order[0]]
        residual = np.linalg.norm(Q @ found - found * values[order], axis=0).max()
        tol = min(tol, MAX_ANGLE * (following - float(lowest)))
        if residual <= tol:
            break
    return values[order], found, following


def _coarse(
    A: sparse.csr_matrix, near_null: FloatArray
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    n = A.shape[0]
    member = np.arange(n)
    coarse, weights = A, near_null
    while coarse.shape[0] > n / RATIO or (
        coarse.shape[0] > SMALL and predicted_fill(coarse, enough=MAX_FILL) > MAX_FILL
    ):
        m = coarse.shape[0]
        count, group, n_alone = _join_strongest(coarse)
        if count - n_alone > STALLED * (m - n_alone) or m == n_alone:
            break
        norms = np.sqrt(np.bincount(group, weights**2, count))
        T = sparse.csr_matrix((weights / norms[group], group, np.arange(m + 1)), shape=(m, count))
        coarse, weights = sparse.csr_matrix(T.T @ coarse @ T), norms
        member = group[member]
    groups = sparse.csr_matrix(
        (near_null / weights[member], member, np.arange(n + 1)), shape=(n, coarse.shape[0])
    )
    return groups, coarse


def _join_strongest(A: sparse.csr_matrix) -> tuple[int, np.ndarray, int]:
    """Return the number of groups, the group of each node, and the number of isolated nodes.

    Each node is joined with its neighbour along its strongest edge. Ties (unweighted graphs) are
    broken by a hash of the ends of an edge: if every node chose its first edge, a path would
    become a single group in one round.
    """
    n = A.shape[0]
    row = np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    strength = np.abs(A.data)
    strength[A.indices == row] = 0.0
    for start in range(0, A.nnz, JITTERED):
        part = slice(start, start + JITTERED)
        strength[part] *= _jitter(row[part], A.indices[part])
    filled = np.flatnonzero(np.diff(A.indptr))
    strongest = np.zeros(n)
    strongest[filled] = np.maximum.reduceat(strength, A.indptr[filled])
    # A node without edges points to itself.
    chosen = np.flatnonzero((strength == strongest[row]) & (strength > 0))[::-1]
    target = np.arange(n)
    target[row[chosen]] = A.indices[chosen]
    links = sparse.coo_matrix((np.ones(n, dtype=np.int8), (np.arange(n), target)), shape=(n, n))
    count, group = connected_components(links, directed=False)
    return count, group, int(np.sum(strongest == 0))


def _jitter(i: np.ndarray, j: np.ndarray) -> FloatArray:
    """Return factors between 1 and 1 + 1e-6 that depend only on the unordered pair."""
    low = np.minimum(i, j).astype(np.uint64)
    high = np.maximum(i, j).astype(np.uint64)
    mixed = low * np.uint64(0x9E3779B97F4A7C15) ^ high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return 1.0 + 1e-6 * (mixed >> np.uint64(40)).astype(np.float64) / 2**24
