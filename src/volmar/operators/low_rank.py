"""Q = c I + sign Z Z' with a thin Z (Nyström-type similarities): every answer in O(n r)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from volmar.operators.protocol import (
    EigenPairs,
    FloatArray,
    Solution,
    SPDOperator,
    certified_pairs,
    check_block,
    check_n_pairs,
    check_solution,
    relative_residual,
)


class LowRankOperator(SPDOperator):
    """Q = c I + sign Z Z' through the thin singular value decomposition of Z.

    With Z = U S V', Q has the eigenvalues ``c + sign S^2`` on the columns of U and c on the
    rest, so that Woodbury's formula becomes a correction on U's columns:
    ``(Q + s I)^-1 b = b / (c + s) + U [1 / (c + sign S^2 + s) - 1 / (c + s)] U'b``.

    Parameters
    ----------
    Z : array of shape (n, r)
        Thin factor.
    c : float
        Multiple of the identity.
    sign : {-1, +1}, default=-1
        -1 for Laplacian-type Q (c I - Z Z'), +1 for similarity-type Q.
    random_state : int, default=0
        Seed of the basis returned for the eigenvalue c, whose eigenspace is arbitrary.
    """

    def __init__(self, Z, *, c, sign=-1, random_state=0):
        if sign not in (-1, 1):
            raise ValueError(f"sign must be -1 or 1, got {sign!r}.")
        Z = np.asarray(Z)
        if Z.ndim != 2 or not Z.size or not np.isfinite(Z).all() or not np.isfinite(c):
            raise ValueError(
                f"Z must be a finite array (n, r) and c finite, got shape {Z.shape}, c={c}."
            )
        self.n = Z.shape[0]
        self.c = float(c)
        self.random_state = random_state
        # Not through the Gram matrix: it squares the condition number, and U'U = I is lost.
        basis, triangle = linalg.qr(Z.astype(np.float64, copy=False), mode="economic")
        left, values, _ = linalg.svd(triangle, full_matrices=False)
        kept = values > values[0] * np.finfo(np.float64).eps * max(Z.shape)
        self._squares = values[kept] ** 2
        self._U = basis @ left[:, kept]
        self._on_U = self.c + sign * self._squares
        if self.bounds[0] <= 0:
            raise ValueError(
                f"c I {'+' if sign > 0 else '-'} Z Z' must be positive definite: c is {c} and the "
                f"largest eigenvalue of Z Z' is {values[0] ** 2:.6g}. Take a larger c."
            )

    def matvec(self, x: FloatArray) -> FloatArray:
        """Return Q x, for a vector or a block of columns."""
        return self.c * x + self._spectral(self._on_U - self.c, x)

    @property
    def bounds(self) -> tuple[float, float]:
        """The exact smallest and largest eigenvalue of Q."""
        values = [self.c] if self._squares.size < self.n else []
        return (
            float(min([*values, *self._on_U])),
            float(max([*values, *self._on_U])),
        )

    def solve(self, shift: float, block: ArrayLike, *, rtol: float = 1e-8) -> Solution:  # noqa: ARG002 -- direct: no tolerance to choose
        """Solve (Q + shift I) X = block in O(n r) a column."""
        B, is_vector = check_block(block, self.n)
        with np.errstate(all="ignore"):
            on_rest = np.float64(1.0) / (self.c + shift)
            X = on_rest * B + self._spectral(1.0 / (self._on_U + shift) - on_rest, B)
            residual = relative_residual(B - self.matvec(X) - shift * X, B)
        check_solution(X, residual, shift)
        return Solution(X[:, 0] if is_vector else X, residual, 0, "woodbury")

    def smallest_eigenpairs(self, k: int, *, tol: float = 1e-6) -> EigenPairs:  # noqa: ARG002 -- exact
        """Return the k smallest eigenpairs, exact; vectors for the eigenvalue c are arbitrary."""
        check_n_pairs(k, self.n)
        n_rest = min(k, self.n - self._squares.size)
        values = np.concatenate([self._on_U, np.full(n_rest, self.c)])
        chosen = np.argsort(values, kind="stable")[:k]
        vectors = np.empty((self.n, k))
        on_U = chosen < self._on_U.size
        vectors[:, on_U] = self._U[:, chosen[on_U]]
        if not on_U.all():
            vectors[:, ~on_U] = self._complement(int((~on_U).sum()))
        return certified_pairs(self, values[chosen], vectors, "low-rank")

    def _spectral(self, weights: FloatArray, x: FloatArray) -> FloatArray:
        coefficients = self._U.T @ x
        return self._U @ (weights * coefficients.T).T

    def _complement(self, m: int) -> FloatArray:
        block = np.random.default_rng(self.random_state).standard_normal((self.n, m))
        for _ in range(2):  # the second sweep removes the first one's rounding
            block = linalg.qr(block - self._U @ (self._U.T @ block), mode="economic")[0]
        return block
