"""Rows in the feature space of a kernel, represented by the whole kernel matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import ArpackError, LinearOperator

from volmar._eigen import eigsh
from volmar._memory import require_memory
from volmar.base.kernel import KernelExpansion, KernelMixin
from volmar.margin.feature_space.linear import LinearSpace, linear_space
from volmar.margin.feature_space.space import FeatureSpace, Hyperplane, plain, solve_definite

# An inner product, and a difference of squared lengths, below these shares of the largest kernel
# value are rounding.
ROUNDING, SAME_LENGTH = 1e-14, 1e-9
# Kernels that are positive semi-definite on all rows.
DEFINITE = ("rbf", "laplacian", "cosine", "chi2")
# A mean square of the rows below this multiple of the kernel's rounding error is rounding.
SPREAD_ROUNDINGS = 64.0


@dataclass(frozen=True)
class KernelHyperplane(Hyperplane):
    """sum_j coef_j k(x_j, x) + intercept, with one column per cluster if more than two."""

    expansion: KernelExpansion
    coef: NDArray
    intercept: Any

    def __call__(self, X: Any) -> NDArray:
        """Return the value of the expansion at each row."""
        f = self.expansion(X, self.coef)
        return f + f.dtype.type(self.intercept)


class KernelSpace(FeatureSpace):
    """Rows in the feature space of a kernel matrix K, which is not copied; centring is implicit.

    A vector sum_i v_i z_i is stored as its coefficients and its products with all z_i, stacked in
    one array of shape (2, n) or (2, n, k). Inner products and scores then need no further pass.
    Only hyperplanes need the `expansion`. With ``center=False`` rows are not centred.
    """

    def __init__(
        self,
        K: NDArray,
        weights: NDArray | None = None,
        expansion: KernelExpansion | None = None,
        *,
        center: bool = True,
    ):
        self.K, self.weights, self.expansion = K, weights, expansion
        self.is_centered = center
        self.n_rows, self.dtype = K.shape[0], K.dtype
        self.shares = None if weights is None else weights / weights.sum()
        self.n_passes = 0
        self.p = np.full(self.n_rows, 1.0 / self.n_rows) if self.shares is None else self.shares
        self._size = float(np.abs(K.diagonal()).max())

    @cached_property
    def has_equal_lengths(self) -> bool:  # type: ignore[override]
        """Whether the diagonal is constant."""
        return bool(np.ptp(self.K.diagonal()) <= SAME_LENGTH * self.K.max())

    def vector(self, v: NDArray) -> NDArray:
        """Return centred coefficients and the products K_c v, shape (2, n) or (2, n, k)."""
        self.n_passes += 1
        v = v.astype(np.float64)
        if self.is_centered:
            v -= np.multiply.outer(self.p, v.sum(axis=0))
        image = (self.K @ v.astype(self.dtype, copy=False)).astype(np.float64, copy=False)
        if self.is_centered:
            image = image - self.p @ image
        return np.stack([v, image])

    def inner(self, vector: NDArray, others: Sequence[NDArray]) -> NDArray:
        """Return the inner products of a vector with others; 0 if they are rounding."""
        products = np.array([other[0].ravel() @ vector[1].ravel() for other in others])
        sizes = np.array([np.abs(other[0]).sum() for other in others])
        floor = ROUNDING * self._size * np.abs(vector[0]).sum() * sizes
        return np.where(np.abs(products) <= floor, 0.0, products)

    def combination(self, vectors: Sequence[NDArray], weights: NDArray) -> NDArray:
        """Return the combination, shape (2, n) or (2, n, k)."""
        return np.tensordot(weights, np.stack(vectors), axes=1)

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row, which is stored in w."""
        return w[1].astype(self.dtype)

    def refreshed(self, w: NDArray) -> NDArray:
        """Return w recomputed from its coefficients; in long sums the products drift away."""
        return self.vector(w[0])

    # ------------------------------------------------------------------ of a fit

    def hyperplane(self, normal: NDArray, rho: float, t: Any) -> KernelHyperplane:
        """Return dual coefficients and intercept.

        f(x) is sum_j v_j k(x_j, x) minus its (weighted) mean over the training rows, plus t. The
        coefficients sum to zero, so the mean embedding drops out.
        """
        if self.expansion is None:
            raise ValueError("a hyperplane needs the expansion to score new rows.")
        v = normal[0]
        mean = 0.0
        if self.is_centered:
            mean = self.p @ (self.K @ v.astype(self.dtype, copy=False))
        return KernelHyperplane(self.expansion, v / rho, plain((t - mean) / rho))

    def start_rows(self) -> Any:
        """Return the training rows, or None for a precomputed kernel."""
        return None if self.expansion is None else self.expansion.rows

    def reweighted(self, weights: NDArray) -> KernelSpace:
        """Return the same rows with other weights."""
        return KernelSpace(self.K, weights, self.expansion, center=self.is_centered)

    def is_gram(self) -> bool:
        """Return whether v'Kv >= 0, up to rounding, for all v with sum 0.

        Otherwise a regression has no lower bound. Each of the n^2 values may have been rounded to
        float32.
        """
        means = self.K.mean(axis=0)
        centred = self.K - means - (means - means.mean())[:, None]
        n, size = self.n_rows, max(float(self.K.max()), -float(self.K.min()))
        centred.flat[:: n + 1] += n * float(np.finfo(np.float32).eps) * size
        try:
            linalg.cholesky(centred, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return False
        return True

    @cached_property
    def graph_axes(self) -> NDArray:
        """Return the leading eigenvectors, except the first, of the random walk with weights K.

        Groups of any shape that are weakly connected have different signs in one of them. There
        are no columns for a kernel with negative values, or if the iterations do not converge.
        """
        n = self.n_rows
        # Number of eigenvectors of the kernel's graph, which are starts of a search, and their
        # residual.
        n_axes = min(5, n - 2)
        degrees = self.K @ self.p
        if n_axes < 1 or self.K.min() < 0.0 or not degrees.min() > 0.0:
            return np.empty((n, 0))
        root = np.sqrt(self.p / degrees)

        def walk(x: NDArray) -> NDArray:
            return root * (self.K @ (root * x.ravel()).astype(self.dtype, copy=False))

        start = np.random.default_rng(0).standard_normal(n)
        operator = LinearOperator((n, n), matvec=walk, dtype=np.float64)
        try:
            values, vectors = eigsh(operator, k=n_axes + 1, which="LA", v0=start, tol=1e-3)
        except ArpackError:
            return np.empty((n, 0))
        images = self.K @ (root[:, None] * vectors[:, -2::-1]).astype(self.dtype, copy=False)
        return (images / degrees[:, None])[:, values[-2::-1] > 0.0]

    # ------------------------------------------------------------------ of a regression

    def mean_square(self) -> float:
        """Return the weighted mean of |z_i|^2, or 0 if it is rounding.

        It is negative only if K is not positive semi-definite.
        """
        self.n_passes += 1
        image = self.K @ self.p.astype(self.dtype, copy=False)
        square = float(self.p @ self.K.diagonal())
        if self.is_centered:
            square = float(self.p @ self.K.diagonal() - self.p @ image)
        rounding = SPREAD_ROUNDINGS * float(np.finfo(self.dtype).eps) * self._size
        return square if abs(square) > rounding else 0.0

    def newton_direction(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        """Return an approximate x with (I + stiffness sum_A (z_i - m)(z_i - m)') x = g.

        m is the mean of the active rows A. By the matrix inversion lemma, with a system of the
        size of A, x = g - sum_A t_i z_i with (K_AA + I / stiffness) t + mu 1 = <g, z>_A and
        sum t = 0, where mu is the multiplier of the latter. For such t the means of
        K_AA have no effect. They are subtracted, because for rows far from the origin they would
        cost digits of the sum.
        """
        A = np.flatnonzero(active)
        if A.size == 0:
            return g.copy()
        self.n_passes += 1
        system = self.K[np.ix_(A, A)].astype(np.float64, copy=False)
        means = system.mean(axis=0)
        system -= means
        system -= (means - means.mean())[:, None]
        ridge = float(np.finfo(self.dtype).eps) * self._size
        system.flat[:: A.size + 1] += 1.0 / stiffness + ridge
        right = np.column_stack([g[1][A] - g[1][A].mean(), np.ones(A.size)])
        t, ones = solve_definite(system, right, self.dtype).T
        t -= ones * (t.sum() / ones.sum())
        change = np.zeros(self.n_rows)
        change[A] = t
        return g - self.vector(change)


# ------------------------------------------------------------------ the parameters of estimators


def not_a_kernel(kernel: Any) -> ValueError:
    """Return the error for a kernel with negative eigenvalues."""
    return ValueError(
        f"kernel={kernel!r} is not positive semi-definite on these rows, so there is no margin. "
        "Use another kernel such as 'rbf' or other kernel parameters, or clip the negative "
        "eigenvalues of a precomputed kernel."
    )


class KernelRepresentation(KernelMixin):
    """Mixin that represents rows by their whole kernel matrix, or as they are if it is linear."""

    # Rows are centred in the feature space, where a shift does not change the linear kernel.
    _kernels_of_differences = ("rbf", "laplacian", "linear")
    #: Advice for a kernel matrix that does not fit into memory.
    _memory_remedy = "Cluster a sample and use predict for the rest."

    def _centers(self) -> bool:
        """Return whether rows are centred in the feature space."""
        return True

    def _feature_space(self, X: Any, weights: Any) -> KernelSpace | LinearSpace:
        """Return the rows in the feature space of the kernel."""
        if self._is_linear():
            if self._centers():
                return linear_space(X, weights)
            return LinearSpace(X, weights, center=False)
        n = X.shape[0]
        require_memory(3.0 * 8 * n**2, f"the kernel matrix of {n} rows", self._memory_remedy)
        K, expansion = self._kernel_matrix(X.astype(np.float64, copy=False), weights)
        return KernelSpace(K, weights, expansion, center=self._centers())

    def _spread(self, space: KernelSpace | LinearSpace) -> float:
        """Return the mean square of the rows; raise an error if there are no squares or none."""
        definite = isinstance(self.kernel, str) and self.kernel in DEFINITE
        square = space.mean_square()
        if square < 0.0 or not (definite or space.is_gram()):
            raise not_a_kernel(self.kernel)
        if square == 0.0:
            raise ValueError(
                f"all {space.n_rows} rows of X are identical under the kernel, so there is "
                "nothing to separate. Check that the rows of X differ, or use another kernel or "
                "gamma."
            )
        return square

    def _publish_hyperplane(self, hyperplane: Any) -> None:
        """Store a hyperplane with its coefficients, those of the features if it is linear."""
        self._hyperplane = hyperplane
        if self._is_linear():
            self.gamma_ = None
            self.coef_ = hyperplane.coef[None, :]
        else:
            self.gamma_ = hyperplane.expansion.gamma
            self.dual_coef_ = hyperplane.coef
        self.intercept_ = np.atleast_1d(hyperplane.intercept)

    def _scores(self, X: Any) -> NDArray:
        return self._hyperplane(X)
