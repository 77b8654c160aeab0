"""Operators with a sparse matrix, with methods chosen by the shape of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, SuperLU, lobpcg, splu
from sklearn.exceptions import ConvergenceWarning

from volmar import _memory
from volmar._warn import warn_user, without_warnings
from volmar.operators.protocol import (
    MAX_ANGLE,
    EigenPairs,
    FloatArray,
    Found,
    MatrixOperator,
    certified_pairs,
    complete_pairs,
    conjugate_gradients,
    exceeds,
    expected_iterations,
    lanczos_smallest,
    largest_eigenpairs,
    largest_outside,
    smallest_by_inverse,
)

# ---- sparse


# Maximum predicted fill for which Q is factorised.
MAX_FILL = 15.0
# Size below which factors are always cheap, and eigenpairs are computed by LAPACK.
DENSE_BELOW = 700
# Maximum size for LAPACK if iterations fail. It takes minutes at this size.
DENSE_UP_TO = 5000
# Size from which a coarse copy of Q is faster than factors of Q itself.
TWO_LEVEL_FROM = 30_000
# Size from which vectors do not fit the cache, and products depend on the order of the rows.
REORDERED_FROM = 100_000
# Maximum expected number of iterations for which only the diagonal is used as preconditioner.
SHORT_RUN = 60
MAX_ITER = 1000


class SparseOperator(MatrixOperator):
    """Q = matrix + shift I with a sparse symmetric `matrix`; parameters of `as_operator`.

    Solves use conjugate gradients if the condition number implies few iterations, or if the graph
    is high-dimensional (`volmar.operators.sparse.is_expander`). Otherwise, or if these do not
    converge soon, LU is used for n below 30,000 and a predicted fill of at most 15 (graphs of low
    dimension), and conjugate gradients with the two-level preconditioner of
    `volmar.operators.sparse` in all other cases.

    Eigenpairs of small matrices are computed by LAPACK. Lanczos is used for high-dimensional
    graphs, and below 30,000 rows if the fill is large. Otherwise shift-invert is used below 30,000
    rows, and two-level LOBPCG for more.

    From 100,000 rows on, computations use a copy with neighbours close to each other (reverse
    Cuthill-McKee), for which products are up to four times as fast. High-dimensional graphs have
    no such order.
    """

    _two_level: tuple[float, TwoLevel] | None = None
    _local: tuple[np.ndarray, SparseOperator] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Exclude factors and coarse copies, which cannot be pickled but can be recomputed."""
        return super().__getstate__() | {"_two_level": None, "_local": None}

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self._shifted_product(self.shift, x)

    def _shifted_product(self, shift: float, x: FloatArray) -> FloatArray:
        # SciPy's product with a block is slower than its products with a few vectors.
        # Maximum number of columns for which single products are faster than a product with a
        # block.
        if x.ndim == 2 and x.shape[1] <= 4:
            image = np.empty(x.shape, order="F")
            for j in range(x.shape[1]):
                image[:, j] = self.matrix @ x[:, j]
        else:
            image = self.matrix @ x
        image += shift * x
        return image

    @cached_property
    def fill(self) -> float:
        """Predicted nnz(L + U) / nnz(Q) of a factorisation; a lower bound if it is above 15."""
        return predicted_fill(self.matrix, enough=MAX_FILL)

    @cached_property
    def is_expander(self) -> bool:
        """Whether plain iterations converge quickly: see `volmar.operators.sparse`."""
        return is_expander(self.matrix)

    @property
    def lu_is_cheap(self) -> bool:
        """Whether Q is small, or its factors are not much fuller than Q and fit in memory."""
        if self.n < DENSE_BELOW:
            return True
        # 12 bytes per entry of the factors, and as much again while they are computed.
        n_bytes = 24 * self.fill * self.matrix.nnz
        return self.fill <= MAX_FILL and n_bytes < _memory.available_memory()

    @property
    def local(self) -> tuple[np.ndarray, SparseOperator] | None:
        """An order of rows with neighbours close to each other, and Q in this order.

        It is None for small matrices and expanders, whose products would not become faster.
        """
        if self._local is None and self.n >= REORDERED_FROM and not self.is_expander:
            order = reverse_cuthill_mckee(self.matrix, symmetric_mode=True)
            rank = np.empty_like(order)
            rank[order] = np.arange(self.n, dtype=order.dtype)
            rows = self.matrix[order]
            rows.indices = rank[rows.indices].astype(rows.indices.dtype, copy=False)
            rows.has_sorted_indices = False
            rows.sort_indices()
            self._local = order, _LocalOperator(self, rows, order)
        return self._local

    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        if self.local is None:
            return self._solve_here(shift, B, rtol)
        order, there = self.local
        found, n_iter, method = there._solve_here(shift, B[order], rtol)
        X = np.empty_like(found)
        X[order] = found
        return X, n_iter, method

    def _solve_here(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        # Gershgorin's lower bound is loose; with a nonnegative shift, Q stays positive definite.
        if shift < 0 and self.bounds[0] + shift <= 0:
            return self.factorised(shift).solve(B), 0, "lu"
        short = expected_iterations(self.bounds, shift, rtol) <= SHORT_RUN
        if short or self.is_expander:
            diagonal = self.matrix.diagonal()[:, None] + self.shift + shift
            X, n_iter, done = self._iterate(shift, B, rtol, lambda r: r / diagonal, 2 * SHORT_RUN)
            if done:
                return X, n_iter, "cg"
        if self.n < TWO_LEVEL_FROM and self.lu_is_cheap:
            return self.factorised(shift).solve(B), 0, "lu"
        precondition = self.coarse_copy(shift).precondition
        X, n_iter, done = self._iterate(shift, B, rtol, precondition, MAX_ITER)
        if not done and self.lu_is_cheap:
            return self.factorised(shift).solve(B), 0, "lu"
        return X, n_iter, "two-level"

    def _iterate(
        self,
        shift: float,
        B: FloatArray,
        rtol: float,
        precondition: Callable[[FloatArray], FloatArray],
        max_iter: int,
    ) -> tuple[FloatArray, int, bool]:
        known, lowest = self._known, self.bounds[0] + shift
        start = known @ (known.T @ B) / lowest if known.size and lowest > 0 else None
        return conjugate_gradients(
            lambda x: self._shifted_product(self.shift + shift, x),
            B,
            rtol=rtol,
            max_iter=max_iter,
            precondition=precondition,
            start=start,
        )

    def factorised(self, shift: float) -> SuperLU:
        """Return the LU factors of Q + shift I."""
        if self._factor is not None and self._factor[0] == shift:
            return self._factor[1]
        if self.n >= DENSE_BELOW:
            _memory.require_memory(
                24 * self.fill * self.matrix.nnz,
                f"factorising the sparse {self.n} x {self.n} matrix (predicted fill "
                f"{self.fill:.0f})",
                "Use a sparser graph (fewer neighbours) or a nonnegative shift.",
            )
        with _refusing_singular(shift):
            self._factor = (shift, factorise(sparse.csc_matrix(self._shifted(shift))))
        return self._factor[1]

    def coarse_copy(self, shift: float) -> TwoLevel:
        """Return the coarse copy of Q + shift I, which contains the known null space."""
        if self._two_level is None or self._two_level[0] != shift:
            known = self._known
            near_null = known @ known.sum(axis=0) if known.size else None
            with _refusing_singular(shift):
                self._two_level = (shift, TwoLevel(self._shifted(shift), near_null))
        return self._two_level[1]

    def _shifted(self, shift: float) -> sparse.csr_matrix:
        diagonal = sparse.identity(self.n, format="csr") * (self.shift + shift)
        return sparse.csr_matrix(self.matrix + diagonal)

    def _smallest(self, k: int, tol: float) -> EigenPairs:
        if self.local is None:
            return self._smallest_here(k, tol)
        order, there = self.local
        pairs = there._smallest_here(k, tol)
        vectors = np.empty_like(pairs.vectors)
        vectors[order] = pairs.vectors
        return replace(pairs, vectors=vectors)

    def _smallest_here(self, k: int, tol: float) -> EigenPairs:
        if self.n < DENSE_BELOW or k > self.n // 20:
            return _by_lapack(self, k)
        known = self._known[:, :k]
        best: EigenPairs | None = None
        for find in _eigensolvers(self):
            found = complete_pairs(self, known, k, partial(find, self, known, tol))
            if found is None:
                continue
            pairs = found[0]
            if self._are_accurate(*found, tol):
                return pairs
            if best is None or pairs.residuals.max() < best.residuals.max():
                best = pairs
        if self.n <= DENSE_UP_TO or best is None:
            return _by_lapack(self, k)
        residual, spread = best.residuals.max(), best.values[-1] - best.values[0]
        if residual > min(tol * self.scale, spread):
            warn_user(
                f"Eigenvectors of the sparse {self.n} x {self.n} matrix have a residual of "
                f"{residual:.1e}, but their eigenvalues are within {spread:.1e} of each other. "
                "Clusters found from them may be wrong. Use a graph with more neighbours, or "
                "fewer rows.",
                ConvergenceWarning,
            )
        return best


class _LocalOperator(SparseOperator):
    """An operator with its rows and columns in another order."""

    def __init__(self, given: SparseOperator, matrix: sparse.csr_matrix, order: np.ndarray):
        self.matrix, self.shift, self.n = matrix, given.shift, given.n
        self.random_state, self._given_bounds = given.random_state, given._given_bounds
        self._known, self._factor = given._known[order], None
        self.is_expander = given.is_expander


@contextmanager
def _refusing_singular(shift: float) -> Iterator[None]:
    """Replace SuperLU's "exactly singular" by an error with a remedy."""
    try:
        yield
    except RuntimeError as error:
        raise np.linalg.LinAlgError(
            f"Q + shift I is singular at shift={shift:g}. Use another shift."
        ) from error


# -------------------------------------------------------------------------------- eigenpairs

# Function of Q, known eigenvectors, a tolerance and the number of further eigenpairs to find.
Eigensolver = Callable[[SparseOperator, FloatArray, float, int], Found]


def _eigensolvers(Q: SparseOperator) -> list[Eigensolver]:
    """Return the eigensolvers to try, in order; `SparseOperator` describes the choice."""
    if Q.n >= TWO_LEVEL_FROM and not Q.is_expander:
        return [_by_lobpcg, _by_shift_invert, _by_lanczos]
    if Q.is_expander or Q.fill > MAX_FILL:
        return [_by_lanczos, _by_lobpcg]
    return [_by_shift_invert, _by_lobpcg, _by_lanczos]


def _by_lanczos(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:
    found = lanczos_smallest(Q.matvec, known, m, ceiling=Q.bounds[1], tol=tol, seed=Q.random_state)
    return None if found is None else (*found, "lanczos")


def _by_shift_invert(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:  # noqa: ARG001 -- one signature for all
    if not Q.lu_is_cheap:
        return None
    # From TWO_LEVEL_FROM on, solves do not use the factors of the first pole.
    for pole in Q._poles if Q.n < TWO_LEVEL_FROM else Q._poles[-1:]:
        found = smallest_by_inverse(Q.factorised(pole).solve, known, m, seed=Q.random_state)
        if found is not None:
            return found[0] - pole, found[1], found[2] - pole, "shift-invert"
    return None


def _by_lobpcg(Q: SparseOperator, known: FloatArray, tol: float, m: int) -> Found:
    # The preconditioner must be nonsingular; the size of its shift hardly matters.
    first, last = Q._poles[0], Q._poles[-1]
    shift = first + 1e-7 * Q.scale if first else 0.0
    values, vectors, following = lobpcg_smallest(
        Q.matrix,
        Q.coarse_copy(shift),
        known,
        m,
        tol=tol * Q.scale,
        offset=last - shift,
        seed=Q.random_state,
    )
    values, ceiling = values + Q.shift, Q.bounds[1]
    # Maximum tolerance for which eigenpairs are checked for missed values.
    if tol <= 1e-4:
        outside = largest_outside(
            lambda x: ceiling * x - Q.matvec(x),
            np.hstack([known, vectors]),
            np.random.default_rng(Q.random_state),
            24,
        )
        if exceeds(outside, ceiling - float(values.max()), tol):
            return None  # a value below these was missed
    return values, vectors, following + Q.shift, "lobpcg"


def _by_lapack(Q: SparseOperator, k: int) -> EigenPairs:
    _memory.require_memory(
        2 * 8.0 * Q.n**2,
        f"dense eigenpairs of the {Q.n} x {Q.n} matrix (iterative solvers failed or k = {k} is a "
        "large part of n)",
        "Request fewer eigenpairs, or use a larger tol.",
    )
    values, vectors = linalg.eigh(
        Q.matrix.toarray(), subset_by_index=(0, k - 1), check_finite=False
    )
    return certified_pairs(Q, values + Q.shift, vectors, "dense")


# ---- two level


# Number of edges whose strengths are made distinct at a time, with several arrays of this size.
JITTERED = 2**20
# A coarse matrix above this size is made coarser while its predicted fill exceeds `MAX_FILL`.
SMALL = 2000


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
    # Minimum number of rows per row of the coarse matrix. On locally scaled k-NN graphs in two
    # dimensions, ratios of 11 (three rounds), 35 and 120 took about 50, 90 and 150 iterations.
    while coarse.shape[0] > n / 8 or (
        coarse.shape[0] > SMALL and predicted_fill(coarse, enough=MAX_FILL) > MAX_FILL
    ):
        m = coarse.shape[0]
        count, group, n_alone = _join_strongest(coarse)
        # Coarsening stops when a round keeps more than this fraction of the nodes.
        if count - n_alone > 0.8 * (m - n_alone) or m == n_alone:
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


# ---- fill


# Numbers of nodes of the two balls that are factorised.
SIZES = (500, 2000)
# A graph is an expander if the fraction of edges inside a ball of 500 nodes is below this value.
# The fraction is 0.92 for k-NN graphs in two dimensions, 0.78 in three, 0.6 in five, 0.45 in eight
# and 0.3 in sixteen.
OPEN = 0.55


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
    # Fraction of all n^2 entries that the factors of an expander are assumed to fill.
    expander = 0.1 * n**2 / Q.nnz if inside < OPEN else 0.0
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
