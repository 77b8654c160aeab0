"""A coarse copy of a large sparse matrix: preconditioner, rough eigenvectors, LOBPCG."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, LinearOperator, SuperLU, lobpcg

from volmar._eigen import eigsh
from volmar.operators.fill import factorise, predicted_fill
from volmar.operators.protocol import FloatArray

# Rows for each row of the coarse matrix, at least: on locally scaled k-NN graphs in two dimensions
# some 50 iterations at 11 (three rounds), 90 at 35 and 150 at 120.
RATIO = 8
# Edges whose strengths are told apart at a time: it takes several arrays of their number.
JITTERED = 2**20
# A round that leaves more than this share of the nodes gains nothing.
STALLED = 0.8
# A coarse matrix above this size is made coarser while its factors would be fuller than that.
SMALL = 2000
MAX_FILL = 15.0


class TwoLevel:
    r"""Additive two-level approximation of the inverse of a symmetric positive definite matrix.

    Nodes are joined along the strongest edge of each, the groups that result are joined in the
    same way, and so on until there are few enough (Boruvka's rounds). With T the matrix of the
    groups' members, scaled so that T'T = I and that T holds `near_null`,

    .. math:: A^{-1} \approx D^{-1} + T (T'AT)^{-1} T'

    where D is the diagonal of A. The first term deals with what differs between neighbours, the
    second, factorised, with what differs between far ends of the graph, so that the number of
    conjugate gradient iterations hardly grows with n. Pieces that hang together by edges many
    orders weaker than their own are what it does badly.
    """

    def __init__(self, A: sparse.csr_matrix, near_null: FloatArray | None = None):
        n = A.shape[0]
        # Isolated nodes have no degree; any weight serves them.
        near_null = np.ones(n) if near_null is None else np.where(near_null, near_null, 1.0)
        self._inverse_diagonal = 1.0 / A.diagonal()
        self.groups, self.coarse = _coarse(A, near_null)
        self._restriction = sparse.csr_matrix(self.groups.T)
        self._factor: SuperLU = factorise(sparse.csc_matrix(self.coarse))

    def precondition(self, R: FloatArray) -> FloatArray:
        """Approximate A^-1 R, for a vector or a block of columns."""
        if R.shape[1:] == (1,):  # a slower way through scipy than a vector's
            return self.precondition(R[:, 0])[:, None]
        Z = self.groups @ self._factor.solve(self._restriction @ R)
        Z += R * (self._inverse_diagonal if R.ndim == 1 else self._inverse_diagonal[:, None])
        return Z

    @property
    def preconditioner(self) -> LinearOperator:
        """`precondition` as a linear operator."""
        n = self._inverse_diagonal.size
        return LinearOperator(
            (n, n), matvec=self.precondition, matmat=self.precondition, dtype=np.float64
        )

    def coarse_eigenvectors(self, k: int, seed: int) -> FloatArray | None:
        """Smallest eigenvectors of T'AT, carried back: a start, not an answer."""
        m = self.coarse.shape[0]
        if k >= m:
            return None
        if m <= max(500, 20 * k):
            vectors = linalg.eigh(self.coarse.toarray(), subset_by_index=(0, k - 1))[1]
            return self.groups @ vectors
        inverse = LinearOperator((m, m), matvec=self._factor.solve, dtype=np.float64)
        v0 = np.random.default_rng(seed).standard_normal(m)
        try:
            vectors = eigsh(inverse, k=k, which="LA", tol=1e-2, v0=v0, maxiter=20)[1]
        except ArpackError:
            return None
        return self.groups @ vectors[:, ::-1]


def lobpcg_smallest(
    Q: sparse.csr_matrix, two_level: TwoLevel, known: FloatArray, k: int, *, tol: float, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Smallest k eigenpairs orthogonal to `known`, by LOBPCG; the last ones without convergence.

    It starts from the coarse matrix's eigenvectors. A guard vector rides along: it speeds up the
    last wanted pair, and a value that the coarse matrix missed among the wanted ones comes in
    through it. `known` must be exact.
    """
    start = two_level.coarse_eigenvectors(known.shape[1] + k + 1, seed)
    if start is None:
        start = np.random.default_rng(seed).standard_normal((Q.shape[0], k + 1))
    start = start[:, -(k + 1) :]
    with warnings.catch_warnings():
        # LOBPCG warns when the guard has not converged; the wanted ones are checked below.
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(3):
            values, start = lobpcg(
                Q,
                start,
                Y=known if known.size else None,
                M=two_level.preconditioner,
                tol=0.5 * tol,
                maxiter=40,
                largest=False,
            )
            order = np.argsort(values)[:k]
            found = start[:, order]
            if np.all(np.linalg.norm(Q @ found - found * values[order], axis=0) <= tol):
                break
    return values[order], found


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
    """Return how many groups strongest edges make, the group of each node, and nodes without any.

    Edges of equal strength (unweighted graphs) are told apart by a hash of their ends: if every
    node took its first edge, a path would become one group in one round.
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
    """Factors between 1 and 1 + 1e-6 that depend on the unordered pair only."""
    low = np.minimum(i, j).astype(np.uint64)
    high = np.maximum(i, j).astype(np.uint64)
    mixed = low * np.uint64(0x9E3779B97F4A7C15) ^ high * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return 1.0 + 1e-6 * (mixed >> np.uint64(40)).astype(np.float64) / 2**24
