"""The interface of a symmetric positive definite matrix Q, and its results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackError, LinearOperator
from sklearn.exceptions import ConvergenceWarning

from volmar._checks import fix_signs
from volmar._eigen import eigsh
from volmar._warn import warn_user

# ---- protocol


FloatArray = NDArray[np.floating]
# Eigenvalues, eigenvectors, an estimate of the next eigenvalue (NaN if unknown) and the method;
# None if it did not converge.
Found = tuple[FloatArray, FloatArray, float, str] | None
# Eigenvalues that differ by less than this fraction of the norm of Q need not be separated.
SAME = 1e-9
# Maximum residual as a fraction of the distance of the next eigenvalue from the smallest, which
# bounds the angle between the computed eigenvectors and the exact ones.
MAX_ANGLE = 0.1


@dataclass(frozen=True)
class Solution:
    """Solution of (Q + shift I) X = B with its residual.

    `residual` is the largest relative residual over the columns. `n_iter` is 0 for a direct solve.
    `method` is "cholesky", "lu", "cg" or "two-level".
    """

    x: FloatArray
    residual: float
    n_iter: int
    method: str


@dataclass(frozen=True)
class EigenPairs:
    """The smallest eigenvalues of Q, ascending, with unit eigenvectors of fixed signs.

    `residuals` are ``|Q v_j - values_j v_j|``, recomputed from Q. The entry of largest magnitude
    of each vector is positive. `method` is "dense", "lanczos", "shift-invert", "lobpcg", or
    "known" if the eigenvectors were given.
    """

    values: FloatArray
    vectors: FloatArray
    residuals: FloatArray
    method: str


class SPDOperator(ABC):
    """Abstract base class of a symmetric positive definite matrix Q.

    Back ends store Q in different ways and differ only in cost. Algorithms written against this
    class run on dense and sparse Q.
    """

    n: int

    @abstractmethod
    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""

    @abstractmethod
    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block, for a vector or several columns at once.

        `shift` may be negative as long as the matrix is not singular. Iterative back ends then
        factorise the matrix, because conjugate gradients need a positive definite one.
        """

    @abstractmethod
    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs with residuals of at most tol times the norm of Q.

        Residuals are also small compared with the distance of eigenvalue k + 1 from the first:
        eigenvectors of 1e-12 are not confused with those of 1e-7, for any tol.
        """

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """An interval that contains all eigenvalues of Q."""

    def anchored(self, rows: NDArray[np.bool_]) -> SPDOperator:  # noqa: ARG002 -- needs the matrix
        """Return Q with its diagonal doubled at the given rows; Q itself if that is unknown."""
        return self


class MatrixOperator(SPDOperator):
    """Q = matrix + shift I with a symmetric matrix.

    Parameters are those of `as_operator`. Factors are kept for the next solve with the same shift.
    The choice of methods depends only on the matrix, not on earlier calls.
    """

    def __init__(
        self,
        matrix: Any,
        *,
        shift: float = 0.0,
        bounds: tuple[float, float] | None = None,
        null_space: FloatArray | None = None,
        random_state: int = 0,
    ):
        check_matrix(matrix)
        self.matrix = sparse.csr_matrix(matrix) if sparse.issparse(matrix) else matrix
        self.shift = float(shift)
        self.n = matrix.shape[0]
        self.random_state = random_state
        self._given_bounds = bounds
        self._known = exact_null_space(self.matrix, null_space, bounds)
        self._factor: tuple[float, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Exclude factors from the pickle: they are large and can be recomputed."""
        return self.__dict__ | {"_factor": None}

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """An interval that contains all eigenvalues of Q."""
        low, high = self._given_bounds or gershgorin(self.matrix)
        return low + self.shift, high + self.shift

    @property
    def scale(self) -> float:
        """An upper bound on the norm of Q."""
        return max(map(abs, self.bounds))

    @property
    def _poles(self) -> list[float]:
        """Shifts that make Q positive definite, to try in turn for eigenpairs by the inverse.

        Zero if possible, because solves need the same factors. The inverse of L + I/n does not
        separate eigenvalues of L far below 1/n. The last shift therefore makes Q nearly singular.
        """
        if not self._given_bounds:  # Gershgorin's bound is loose; Q is positive definite
            return [2 * SAME * self.scale]
        last = SAME * self.scale - self.bounds[0]
        return [0.0, last] if last < 0 else [last]

    def _are_accurate(self, pairs: EigenPairs, following: float, tol: float) -> bool:
        """Return whether the residuals are small, given an estimate of the next eigenvalue."""
        spread = np.fmax(following, pairs.values[-1]) - pairs.values[0]
        goal = MAX_ANGLE * max(float(spread), SAME * self.scale / MAX_ANGLE)
        return bool(np.all(pairs.residuals <= min(tol * self.scale, goal)))

    def anchored(self, rows: NDArray[np.bool_]) -> SPDOperator:
        """Return Q with its diagonal doubled at the given rows."""
        own = np.where(rows, self.matrix.diagonal() + self.shift, 0.0)
        more = sparse.diags_array(own) if sparse.issparse(self.matrix) else np.diag(own)
        low, high = self._given_bounds or gershgorin(self.matrix)
        bounds = low + min(own.min(), 0.0), high + max(own.max(), 0.0)
        return type(self)(self.matrix + more, shift=self.shift, bounds=bounds)

    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:
        """Solve (Q + shift I) X = block; the methods are described at the class."""
        B = np.asarray(block, dtype=np.float64)
        if B.ndim not in (1, 2) or B.shape[0] != self.n:
            raise ValueError(
                f"block must have {self.n} rows (the size of Q), got shape {B.shape}."
            )
        if B.size == 0 or not np.isfinite(B).all():
            raise ValueError("block must have at least one column and only finite entries.")
        columns = B[:, None] if B.ndim == 1 else B
        X, n_iter, method = self._solve(shift, columns, rtol)
        with np.errstate(all="ignore"):  # a singular matrix is refused just below
            sizes = np.linalg.norm(columns, axis=0)
            rest = np.linalg.norm(columns - self.matvec(X) - shift * X, axis=0)
            residual = float(np.max(rest / np.where(sizes > 0, sizes, 1.0)))
        if method in ("cholesky", "lu"):
            if not np.isfinite(X).all() or not residual < 1e-3:
                raise np.linalg.LinAlgError(
                    f"Q + shift I is singular or nearly so at shift={shift:g} (relative residual "
                    f"{residual:.1e}). Use another shift."
                )
        elif not residual <= 10 * rtol:
            warn_user(
                f"Conjugate gradients stopped after {n_iter} iterations with a relative residual "
                f"of {residual:.1e} (requested {rtol:.1e}). Use a larger shift.",
                ConvergenceWarning,
            )
        return Solution(X.reshape(B.shape), residual, n_iter, method)

    @abstractmethod
    def _solve(self, shift: float, B: FloatArray, rtol: float) -> tuple[FloatArray, int, str]:
        """Return the solution for columns B, the number of iterations and the method."""

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:
        """Return the k smallest eigenpairs; the methods are described at the class."""
        if not isinstance(k, Integral) or not 1 <= k <= self.n:
            raise ValueError(f"k must be between 1 and {self.n} (the size of Q), got {k!r}.")
        return self._smallest(k, tol)

    @abstractmethod
    def _smallest(self, k: int, tol: float) -> EigenPairs: ...


def gershgorin(matrix: Any) -> tuple[float, float]:
    """Return the interval of Gershgorin's discs of a symmetric matrix, dense or sparse."""
    diagonal = matrix.diagonal()
    radius = np.asarray(abs(matrix).sum(axis=1)).ravel() - np.abs(diagonal)
    return float((diagonal - radius).min()), float((diagonal + radius).max())


def check_matrix(matrix: Any) -> None:
    """Raise a ValueError unless the matrix is square, finite and symmetric.

    Symmetry is tested by x'Ay = y'Ax for two random vectors, which takes two products.
    """
    if (
        getattr(matrix, "ndim", 0) != 2
        or matrix.shape[0] != matrix.shape[1]
        or not matrix.shape[0]
    ):
        raise ValueError(
            "matrix must be a square array or sparse matrix, got "
            f"{getattr(matrix, 'shape', type(matrix).__name__)}."
        )
    x, y = np.random.default_rng(0).standard_normal((2, matrix.shape[0]))
    images = matrix @ x, matrix @ y
    if not all(np.isfinite(image).all() for image in images):
        raise ValueError("matrix must be finite, but it has NaN or infinite entries.")
    size = float(np.linalg.norm(images[0]) * np.linalg.norm(y)) or 1.0
    difference = abs(float(y @ images[0] - x @ images[1]))
    if difference > 1e-6 * size:
        raise ValueError("matrix must be symmetric. Use (matrix + matrix.T) / 2.")


def expected_iterations(bounds: tuple[float, float], shift: float, rtol: float) -> float:
    """Estimate the number of conjugate gradient iterations, sqrt(condition) log(2 / rtol) / 2.

    It is infinite if the bounds do not imply that the matrix is positive definite.
    """
    low, high = (bound + shift for bound in bounds)
    return float(np.sqrt(high / low) * np.log(2 / rtol) / 2) if low > 0 else np.inf


def exact_null_space(
    matrix: Any, null_space: FloatArray | None, bounds: tuple[float, float] | None
) -> FloatArray:
    """Return the given vectors, orthonormalised, if they are eigenvectors at the lower bound.

    Errors in them would affect the eigenpairs computed in their complement. Vectors that are not
    exact up to rounding are therefore ignored.
    """
    if null_space is None or bounds is None:
        return np.empty((matrix.shape[0], 0))
    block = np.asarray(null_space, dtype=np.float64).reshape(matrix.shape[0], -1)
    basis = np.linalg.qr(block)[0]
    residual = np.linalg.norm(matrix @ basis - bounds[0] * basis, axis=0)
    exact = residual <= 1e-12 * max(map(abs, bounds))
    return basis if exact.all() else np.empty((matrix.shape[0], 0))


def certified_pairs(
    operator: SPDOperator, values: FloatArray, vectors: FloatArray, method: str
) -> EigenPairs:
    """Return sorted eigenpairs with fixed signs, and residuals recomputed from Q."""
    order = np.argsort(values, kind="stable")
    values, vectors = values[order], fix_signs(vectors[:, order])
    residuals = np.linalg.norm(operator.matvec(vectors) - vectors * values, axis=0)
    return EigenPairs(values, vectors, residuals, method)


def complete_pairs(
    operator: SPDOperator, known: FloatArray, k: int, find: Callable[[int], Found]
) -> tuple[EigenPairs, float] | None:
    """Return k eigenpairs, and an estimate of the next eigenvalue (NaN if unknown).

    The pairs are the known ones of the lowest eigenvalue, and the rest from `find`.
    """
    n_known = known.shape[1]
    values = np.full(n_known, operator.bounds[0])
    if n_known == k:
        return certified_pairs(operator, values, known, "known"), np.nan
    found = find(k - n_known)
    if found is None:
        return None
    values, vectors = np.concatenate([values, found[0]]), np.hstack([known, found[1]])
    return certified_pairs(operator, values, vectors, found[3]), found[2]


# ---- lanczos


Product = Callable[[FloatArray], FloatArray]


def lanczos_smallest(
    matvec: Product,
    known: FloatArray,
    k: int,
    *,
    ceiling: float,
    tol: float,
    seed: int,
    max_iter: int = 40,
) -> tuple[FloatArray, FloatArray, float] | None:
    """Return the smallest eigenpairs by Lanczos on ``ceiling I - Q``, or None if it fails.

    Krylov spaces do not depend on the shift, but ARPACK's stopping criterion does. Relative to
    eigenvalues of Q near zero it would never be met; relative to ``ceiling`` it means a residual
    of tol times the norm of Q. `max_iter` is the number of restarts, of about 20 products each.
    The third value is an estimate of the next eigenvalue.
    """
    found = largest_eigenpairs(
        lambda x: ceiling * x - matvec(x), known, k, tol=tol, seed=seed, max_iter=max_iter
    )
    return None if found is None else (ceiling - found[0], found[1], ceiling - found[2])


def smallest_by_inverse(
    solve: Product, known: FloatArray, k: int, *, seed: int
) -> tuple[FloatArray, FloatArray, float] | None:
    """Return the smallest eigenpairs of a positive definite matrix, by Lanczos on its inverse.

    The third value is an estimate of the next eigenvalue, NaN for k = 1.
    """
    found = largest_eigenpairs(
        solve,
        known,
        k,
        # Relative to the inverse, whose largest eigenvalues may be close to each other if Q
        # contains a shift, as L + I/n does.
        tol=1e-10,
        seed=seed,
        max_iter=20,
        n_basis=max(2 * k + 4, 8),
        # For k = 1, a missed copy of the same eigenvalue does not matter.
        n_check=0 if k == 1 else 8,
    )
    return None if found is None else (1.0 / found[0], found[1], 1.0 / found[2])


def largest_eigenpairs(
    product: Product,
    known: FloatArray,
    k: int,
    *,
    tol: float,
    seed: int,
    max_iter: int,
    n_basis: int | None = None,
    n_check: int = 24,
) -> tuple[FloatArray, FloatArray, float] | None:
    """Return the k largest eigenpairs orthogonal to `known`, or None without convergence.

    A Krylov sequence contains one vector of each eigenspace. Copies of a repeated eigenvalue (the
    zeros of the Laplacian of a disconnected graph) can therefore be missed although the residuals
    of the found pairs are small. Lanczos is run again in the orthogonal complement of the found
    vectors. Eigenvalues there that exceed the smallest found one are added. The third value is the
    largest Ritz value that remains there, NaN if `n_check` is 0.

    `known` must be exact and orthonormal, since errors in it would affect all other vectors. `tol`
    is relative to the eigenvalues, and `n_basis` is the number of Krylov vectors between restarts.
    With 12 steps, the check in the complement missed zeros of graphs with many small components.
    With 24, no miss was observed. An inverse, whose largest eigenvalues are well separated from
    the others, needs fewer.
    """
    rng = np.random.default_rng(seed)
    n = known.shape[0]

    def run(m: int, outside: FloatArray) -> tuple[FloatArray, FloatArray]:
        return eigsh(
            LinearOperator((n, n), matvec=_deflated(product, outside), dtype=np.float64),
            k=m,
            which="LA",
            v0=_outside(rng.standard_normal((n,)), outside),
            tol=0.1 * tol,
            maxiter=max_iter,
            ncv=min(n, n_basis or max(2 * m + 1, 20)),
        )

    try:
        values, vectors = run(k, known)
        outside = np.nan
        for _ in range(k if n_check else 0):
            found = np.hstack([known, vectors])
            outside = largest_outside(product, found, rng, n_check)
            if not exceeds(outside, values.min(), tol):
                break
            direction = run(1, found)[1]
            values, vectors = _merge(product, np.hstack([vectors, direction]), k)
    except ArpackError:  # includes ArpackNoConvergence
        return None
    return values, vectors, outside


def exceeds(outside: float, smallest: float, tol: float) -> bool:
    """Return whether a value in the complement proves that `smallest` is not the smallest."""
    return bool(outside > smallest + tol * max(abs(smallest), np.finfo(float).tiny))


def largest_outside(
    product: Product, vectors: FloatArray, rng: np.random.Generator, n_steps: int
) -> float:
    """Return the largest Ritz value of a short Lanczos run in the complement of the vectors.

    It is a lower bound of the largest eigenvalue there; NaN if there is no complement.
    """
    inside = _deflated(product, vectors)
    n = vectors.shape[0]
    n_steps = min(n_steps, n - vectors.shape[1])
    if n_steps < 1:
        return np.nan
    basis = np.zeros((n, n_steps))
    diagonal, off = np.zeros(n_steps), np.zeros(n_steps)
    q = _outside(rng.standard_normal((n,)), vectors)
    for j in range(n_steps):
        norm = np.linalg.norm(q)
        off[j] = norm
        # The first vector is random; the norms of later ones scale with the operator.
        if norm <= (1e-12 * abs(diagonal[0]) if j else 1e-12):
            n_steps = j
            break
        basis[:, j] = q / norm
        q = inside(basis[:, j])
        diagonal[j] = basis[:, j] @ q
        # Two orthogonalisations are enough (Kahan): the second removes the rounding of the first.
        for _ in range(2):
            q -= basis[:, : j + 1] @ (basis[:, : j + 1].T @ q)
    if n_steps == 0:
        return np.nan
    return float(linalg.eigvalsh_tridiagonal(diagonal[:n_steps], off[1:n_steps])[-1])


def _outside(x: FloatArray, vectors: FloatArray) -> FloatArray:
    return x - vectors @ (vectors.T @ x)


def _deflated(product: Product, vectors: FloatArray) -> Product:
    if vectors.shape[1] == 0:
        return product

    def apply(x: FloatArray) -> FloatArray:
        return _outside(product(_outside(x.ravel(), vectors)), vectors)

    return apply


def _merge(product: Product, vectors: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the k largest Ritz pairs on the span of `vectors`."""
    basis = linalg.qr(vectors, mode="economic")[0]
    image = np.column_stack([product(basis[:, j]) for j in range(basis.shape[1])])
    small = basis.T @ image
    values, rotation = linalg.eigh((small + small.T) / 2)
    return values[-k:], basis @ rotation[:, -k:]


# ---- conjugate gradients


def conjugate_gradients(
    product: Callable[[FloatArray], FloatArray],
    B: FloatArray,
    *,
    rtol: float,
    max_iter: int,
    precondition: Callable[[FloatArray], FloatArray],
    start: FloatArray | None = None,
) -> tuple[FloatArray, int, bool]:
    """Solve A X = B for all columns of B, with one product with A per iteration.

    Columns that have converged are removed from the iteration. Returns the last iterate, the
    number of iterations, and whether the residual of every column is at most rtol times the norm
    of its right-hand side.
    """
    X = np.zeros_like(B) if start is None else start.copy()
    R = B - product(X) if start is not None else B.copy()
    goal = rtol * np.linalg.norm(B, axis=0)
    active = np.flatnonzero(np.linalg.norm(R, axis=0) > goal)
    if active.size == 0:
        return X, 0, True
    # Active columns are copies, written back to X when they are removed.
    x, r = X[:, active], R[:, active]
    p = precondition(r).copy()  # precondition may return its argument
    rz = _dots(r, p)
    step = np.empty_like(r)
    for iteration in range(1, max_iter + 1):
        Ap = product(p)
        curvature = _dots(p, Ap)
        if not np.all(curvature > 0):  # not positive definite, or NaN
            X[:, active] = x
            return X, iteration, False
        alpha = rz / curvature
        x += np.multiply(p, alpha, out=step)
        r -= np.multiply(Ap, alpha, out=step)
        open_ = ~(np.sqrt(_dots(r, r)) <= goal[active])
        if not open_.all():
            X[:, active] = x
            if not open_.any():
                return X, iteration, True
            active, x, r, p, rz = active[open_], x[:, open_], r[:, open_], p[:, open_], rz[open_]
            step = np.empty_like(r)
        z = precondition(r)
        rz_next = _dots(r, z)
        p *= rz_next / rz
        p += z
        rz = rz_next
    X[:, active] = x
    return X, max_iter, False


def _dots(U: FloatArray, V: FloatArray) -> FloatArray:
    if U.shape[1] == 1:
        return np.array([U[:, 0] @ V[:, 0]])
    return np.einsum("ij,ij->j", U, V)
