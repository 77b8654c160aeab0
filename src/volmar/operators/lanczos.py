"""Lanczos iterations for the smallest eigenvalues, with a check for missed eigenvalues."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import ArpackError, LinearOperator

from volmar._eigen import eigsh
from volmar.operators.protocol import FloatArray

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
