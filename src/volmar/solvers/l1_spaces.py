"""Where an L1 regression takes place: features held as rows, or the feature space of a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, cg

from volmar.rows import RowSource
from volmar.solvers.cutting_plane_certificate import NotAGramMatrixError

__all__ = ["FeatureSpace", "KernelSpace", "RegressionSpace"]

# From here on the second moments of the features cost more than conjugate gradients.
DIRECT_UP_TO = 1500
CG_STEPS = 50
CG_TOL = 0.05
# Rows from which second moments are estimated, per feature: a direction needs no more.
ROWS_PER_FEATURE = 8
LEAST_ROWS = 400
# Products with K that show whether it is a kernel, and the share of its size that is ignored.
KRYLOV_STEPS = 20
INDEFINITE = 1e-5
# Degrees of freedom for an active row from which all of them can be fitted.
FITTED = 0.9


class RegressionSpace(ABC):
    """Rows z_i, centred at their weighted mean, and vectors that are combinations of them.

    A vector is an array, in whatever form the space keeps it: sums and multiples of vectors are
    those of the arrays.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    weights : ndarray of shape (n,) or None
        s_i: what a row's loss is multiplied by; None for 1.
    n_passes : int
        Products with the data so far.
    """

    n_rows: int
    weights: NDArray | None
    n_passes: int

    @abstractmethod
    def zero(self) -> NDArray:
        """Return the vector 0."""

    @abstractmethod
    def combine(self, v: NDArray) -> NDArray:
        """Return the vector sum_i v_i z_i, where the v_i have sum 0: one pass."""

    @abstractmethod
    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row, in float64: one pass, where they are not known."""

    @abstractmethod
    def inner(self, one: NDArray, other: NDArray) -> float:
        """Return the inner product of two vectors."""

    def refreshed(self, w: NDArray) -> NDArray:
        """Return w without the roundings of the sums that led to it."""
        return w

    @abstractmethod
    def newton_direction(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        """Return x with (I + stiffness * sum_A s_i (z_i - m)(z_i - m)') x = g, about.

        m is the weighted mean of the rows of A.
        """

    @abstractmethod
    def fits(self, active: NDArray) -> bool:
        """Whether some vector has any scores one likes at the active rows, about."""

    def is_gram(self) -> bool:
        """Whether no vector is seen to have a negative square."""
        return True

    @abstractmethod
    def mean_squared_norm(self) -> float:
        """Return the weighted mean of |z_i|^2."""

    @abstractmethod
    def rounding(self) -> float:
        """Return what `mean_squared_norm` can be of rows that are all the same."""


class FeatureSpace(RegressionSpace):
    """Rows of a data matrix, dense or sparse, or of their features under a map.

    Parameters
    ----------
    rows : RowSource
        The rows, with their weights; they are centred implicitly.
    """

    def __init__(self, rows: RowSource):
        self.rows = rows.centered()
        self.n_rows, self.weights = rows.n_rows, rows.weights
        self.n_passes = 0

    def zero(self) -> NDArray:
        """Return 0, shape (d,)."""
        return np.zeros(self.rows.n_features)

    def combine(self, v: NDArray) -> NDArray:
        """Return sum_i v_i z_i, shape (d,)."""
        self.n_passes += 1
        return self.rows.combine(v)

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row."""
        self.n_passes += 1
        return self.rows.scores(w).astype(np.float64, copy=False)

    def inner(self, one: NDArray, other: NDArray) -> float:
        """Return the inner product."""
        return float(one @ other)

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of |z_i|^2."""
        return self.rows.mean_squared_norm()

    def rounding(self) -> float:
        """Return a few roundings of the mean, squared."""
        offset = 0.0 if self.rows.offset is None else float(np.linalg.norm(self.rows.offset))
        return (8.0 * np.finfo(self.rows.dtype).eps * offset) ** 2

    def fits(self, active: NDArray) -> bool:
        """Whether there are no more rows than coefficients, the intercept among them."""
        return int(np.count_nonzero(active)) <= self.rows.n_features + 1

    def newton_direction(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        """Return x by second moments of the active rows, or by conjugate gradients.

        Where very many rows are active, an even sample of them stands for all: any positive
        definite matrix gives a direction of descent, and the certificate does not depend on it.
        """
        d = self.rows.n_features
        if d > DIRECT_UP_TO:
            return self._by_conjugate_gradients(g, active, stiffness)
        index = np.flatnonzero(active)
        step = max(1, index.size // max(LEAST_ROWS, ROWS_PER_FEATURE * d))
        if step > 1:
            active = np.zeros_like(active)
            active[index[::step]] = True
            stiffness *= step
        self.n_passes += 1
        moments = self.rows.moments(active, center=np.zeros(d))
        if moments.weight <= 0 or moments.second is None:
            return g.copy()
        H = moments.second - np.outer(moments.sum, moments.sum / moments.weight)
        H *= stiffness
        H.flat[:: d + 1] += 1.0
        return _solved(H, g, self.rows.dtype)

    def _by_conjugate_gradients(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        s = active.astype(np.float64) if self.weights is None else active * self.weights
        total = s.sum()
        if total <= 0:
            return g.copy()

        def product(x: NDArray) -> NDArray:
            f = self.scores(x)
            return x + stiffness * self.combine(s * (f - s @ f / total))

        H: Any = LinearOperator((g.size, g.size), matvec=product, dtype=np.float64)
        return cg(H, g, rtol=CG_TOL, maxiter=CG_STEPS)[0]


class KernelSpace(RegressionSpace):
    """Rows in the feature space of a kernel matrix.

    A vector sum_i v_i z_i is kept as its coefficients and its products with all z_i, stacked in
    one array of shape (2, n): inner products and scores then need no further pass.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Kernel matrix, symmetric, positive semi-definite. It is not copied; centring is implicit.
    weights : ndarray of shape (n,), optional
        s_i.
    """

    def __init__(self, K: NDArray, weights: NDArray | None = None):
        self.K = K
        self.n_rows, self.weights = K.shape[0], weights
        self.shares = (
            np.full(self.n_rows, 1.0 / self.n_rows) if weights is None else weights / weights.sum()
        )
        self._ridge = np.finfo(K.dtype).eps * float(np.abs(K.diagonal()).max())
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], self.n_rows)
        self._freedom = 0.0
        self.n_passes = 0

    def zero(self) -> NDArray:
        """Return 0, shape (2, n)."""
        return np.zeros((2, self.n_rows))

    def combine(self, v: NDArray) -> NDArray:
        """Return coefficients and products, shape (2, n)."""
        self.n_passes += 1
        image = (self.K @ v.astype(self.K.dtype, copy=False)).astype(np.float64, copy=False)
        return np.stack([v, image - self.shares @ image])

    def scores(self, w: NDArray) -> NDArray:
        """Return <w, z_i> of every row, which is part of w."""
        return w[1]

    def inner(self, one: NDArray, other: NDArray) -> float:
        """Return the inner product: coefficients have sum 0, so that the centre drops out."""
        return float(one[0] @ other[1])

    def refreshed(self, w: NDArray) -> NDArray:
        """Return w from its coefficients, of sum 0: sum_i s_i z_i is zero."""
        return self.combine(w[0] - w[0].sum() * self.shares)

    def is_gram(self) -> bool:
        """Whether v'Kv >= 0, about, for all v of sum 0 in a small Krylov space of rows that weigh.

        Where it is not, neither is the kernel positive semi-definite: the regression then has no
        lower bound. Large negative eigenvalues show in a few products with K.
        """
        n, weighs = self.n_rows, self.shares > 0
        v = np.random.default_rng(0).standard_normal(n)
        basis, images = np.zeros((0, n)), np.zeros((0, n))
        for _ in range(KRYLOV_STEPS):
            before = float(np.linalg.norm(v))
            for _ in range(2):
                v = np.where(weighs, v - v[weighs].mean(), 0.0)
                v = v - (basis @ v) @ basis
            size = float(np.linalg.norm(v))
            if size <= 1e-6 * before:  # nothing new but rounding
                break
            v = v / size
            image = self.combine(v)[1]
            basis, images = np.vstack([basis, v]), np.vstack([images, image])
            v = image
        if not basis.size:
            return True
        # Each of n^2 values may have been rounded to float32 by whoever computed them.
        rounding = n * float(np.finfo(np.float32).eps) * float(np.abs(self.K.diagonal()).max())
        ritz = np.linalg.eigvalsh(0.5 * (basis @ images.T + images @ basis.T))
        return bool(ritz[0] >= -(INDEFINITE * np.abs(ritz).max() + rounding))

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of K_ii less the weighted mean of all K_ij."""
        p = self.shares
        self.n_passes += 1
        return float(p @ self.K.diagonal() - p @ (self.K @ p.astype(self.K.dtype, copy=False)))

    def rounding(self) -> float:
        """Return a few roundings of the kernel's values."""
        return 64.0 * self._ridge

    def fits(self, active: NDArray) -> bool:  # noqa: ARG002 -- the rows of the last step
        """Whether the last Newton step had about as many degrees of freedom as active rows."""
        return self._freedom > FITTED

    def newton_direction(self, g: NDArray, active: NDArray, stiffness: float) -> NDArray:
        """Return x by the matrix inversion lemma: a system as large as the set of active rows.

        x = g - sum_A t_i z_i with (K_AA + diag(1 / (stiffness s_A))) t + mu 1 = <g, z>_A and
        sum t = 0, mu being the multiplier of the latter. For such t the means of K_AA do not
        matter; left in, those of rows far from the origin would eat the digits of the sum.
        """
        A = np.flatnonzero(active)
        if A.size == 0:
            return g.copy()
        self.n_passes += 1
        s = np.ones(A.size) if self.weights is None else self.weights[A]
        system = self.K[np.ix_(A, A)].astype(np.float64, copy=False)
        means = system.mean(axis=0)
        system -= means
        system -= (means - means.mean())[:, None]
        system.flat[:: A.size + 1] += 1.0 / (stiffness * s) + self._ridge
        # tr(K_AA (K_AA + D)^-1) = |A| - tr(D (K_AA + D)^-1), whose last term a random probe tells.
        probe = self._signs[A]
        right = np.column_stack([g[1][A] - g[1][A].mean(), np.ones(A.size), probe])
        t, ones, probed = _solved(system, right, self.K.dtype).T
        stiff = float(probe @ (probed / s)) / stiffness
        self._freedom = (A.size + 1 - stiff) / A.size
        t -= ones * (t.sum() / ones.sum())
        change = np.zeros(self.n_rows)
        change[A] = t
        return g - self.combine(change)


def _solved(A: NDArray, right: NDArray, dtype: Any) -> NDArray:
    """Return A^-1 right for a positive definite A, which `dtype` may have rounded out of that."""
    rounding = float(np.finfo(dtype).eps) * float(np.abs(A.diagonal()).max())
    for ridge in (0.0, 1e2, 1e4, 1e6, 1e8):
        shifted = A.copy()
        shifted.flat[:: A.shape[0] + 1] += ridge * rounding
        try:
            factor = linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        return linalg.cho_solve(factor, right, check_finite=False)
    raise NotAGramMatrixError(
        "the kernel matrix is not positive semi-definite on these rows. Use another kernel, or "
        "clip its negative eigenvalues."
    )
