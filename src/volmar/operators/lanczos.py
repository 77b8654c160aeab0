"""Lanczos for the lower end of a spectrum, with a check against skipped eigenvalues."""

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
) -> tuple[FloatArray, FloatArray] | None:
    """Smallest eigenpairs by Lanczos on ``ceiling I - Q``, or None where it does not converge.

    Krylov spaces do not change with the shift, ARPACK's stopping test does: relative to
    eigenvalues of Q near zero it would never be met, relative to ``ceiling`` it means a residual
    of tol times the norm of Q. `max_iter` counts restarts of about 20 products each.
    """
    found = largest_eigenpairs(
        lambda x: ceiling * x - matvec(x), known, k, tol=tol, seed=seed, max_iter=max_iter
    )
    return None if found is None else (ceiling - found[0], found[1])


def smallest_by_inverse(
    solve: Product, known: FloatArray, k: int, *, seed: int
) -> tuple[FloatArray, FloatArray] | None:
    """Smallest eigenpairs of a positive definite matrix, by Lanczos on its inverse."""
    found = largest_eigenpairs(
        solve,
        known,
        k,
        # Relative to the inverse, whose largest values may be close where Q has a shift of its
        # own, as L + I/n does.
        tol=1e-10,
        seed=seed,
        max_iter=50,
        n_basis=max(2 * k + 4, 8),
        # The largest of all cannot be one of several that were skipped.
        n_check=0 if k == 1 else 8,
    )
    return None if found is None else (1.0 / found[0], found[1])


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
) -> tuple[FloatArray, FloatArray] | None:
    """Largest k eigenpairs orthogonal to `known`, none skipped; None without convergence.

    A single Krylov sequence sees one vector of each eigenspace, so a repeated eigenvalue (the
    zeros of a disconnected graph's Laplacian) can be skipped and the residuals of what was found
    are perfect all the same. Lanczos is therefore run once more in the orthogonal complement of
    what was found; whatever shows up there above the smallest of the found is taken in.

    `known` must be exact and orthonormal (approximate vectors would spoil all others), `tol` is
    relative to the eigenvalues, `n_basis` the Krylov vectors between restarts. With 12 steps of
    the check in the complement it missed zeros of graphs with many small components, with 24 none
    was seen to be missed; an inverse, whose top is far apart from the rest, needs fewer.
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
        for _ in range(k):
            found = np.hstack([known, vectors])
            if not n_check or not is_skipped(product, values.min(), found, rng, tol, n_check):
                break
            direction = run(1, found)[1]
            values, vectors = _merge(product, np.hstack([vectors, direction]), k)
    except ArpackError:  # includes ArpackNoConvergence
        return None
    return values, vectors


def is_skipped(
    product: Product,
    smallest: float,
    vectors: FloatArray,
    rng: np.random.Generator,
    tol: float,
    n_steps: int,
) -> bool:
    """Whether a short Lanczos run in the complement finds a value above the smallest one found.

    Ritz values are lower bounds of the largest eigenvalue there, so a yes is a proof; a no is not.
    """
    inside = _deflated(product, vectors)
    n = vectors.shape[0]
    n_steps = min(n_steps, n - vectors.shape[1])
    if n_steps < 1:
        return False
    basis = np.zeros((n, n_steps))
    diagonal, off = np.zeros(n_steps), np.zeros(n_steps)
    q = _outside(rng.standard_normal((n,)), vectors)
    for j in range(n_steps):
        norm = np.linalg.norm(q)
        off[j] = norm
        # The first vector has its own scale, later ones that of the operator.
        if norm <= (1e-12 * max(abs(smallest), abs(diagonal[0])) if j else 1e-12):
            n_steps = j
            break
        basis[:, j] = q / norm
        q = inside(basis[:, j])
        diagonal[j] = basis[:, j] @ q
        # Twice is enough (Kahan): one sweep leaves rounding that a second removes.
        for _ in range(2):
            q -= basis[:, : j + 1] @ (basis[:, : j + 1].T @ q)
    if n_steps == 0:
        return False
    top = linalg.eigvalsh_tridiagonal(diagonal[:n_steps], off[1:n_steps])[-1]
    return bool(top > smallest + tol * max(abs(smallest), np.finfo(float).tiny))


def _outside(x: FloatArray, vectors: FloatArray) -> FloatArray:
    return x - vectors @ (vectors.T @ x)


def _deflated(product: Product, vectors: FloatArray) -> Product:
    if vectors.shape[1] == 0:
        return product

    def apply(x: FloatArray) -> FloatArray:
        return _outside(product(_outside(x.ravel(), vectors)), vectors)

    return apply


def _merge(product: Product, vectors: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Rayleigh-Ritz on the span of `vectors`, keeping the k largest."""
    basis = linalg.qr(vectors, mode="economic")[0]
    image = np.column_stack([product(basis[:, j]) for j in range(basis.shape[1])])
    small = basis.T @ image
    values, rotation = linalg.eigh((small + small.T) / 2)
    return values[-k:], basis @ rotation[:, -k:]
