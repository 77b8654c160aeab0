"""Rows under the RBF kernel as in the SKMMC paper: a few basis vectors for each combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar._checks import check_random_state
from volmar._memory import require_memory
from volmar.base.validation import check_count, check_number
from volmar.margin.feature_space.basis import BasisExpansion, BasisHyperplane
from volmar.margin.feature_space.basis_search import Field, KernelRows, far_mean, rbf, squares
from volmar.margin.feature_space.space import FeatureSpace
from volmar.rows.kernel import shifted

# Delta of Algorithm 4: the squared step at which a search ends, in the units of the rows.
DELTA = 0.01
# Number of rows averaged for a start, maximum number of steps of a search, and of restarts.
N_AVERAGED, MAX_STEPS, MAX_RESTARTS = 3, 100, 5
# A step below this multiple of the rounding error of b is rounding.
ROUNDINGS = 4.0


@dataclass(frozen=True)
class SparseVector:
    """The vector sum_k c_k phi(b_k), and its inner products with phi(x_i) of every row."""

    vectors: NDArray
    coefficients: NDArray
    image: NDArray

    def __neg__(self) -> SparseVector:
        return SparseVector(self.vectors, -self.coefficients, -self.image)


class PrintedBasisSpace(FeatureSpace):
    r"""Rows in the feature space of the RBF kernel, with Algorithm 4 of SKMMC for combinations.

    `vector` approximates :math:`\Psi = \sum_i v_i \phi(x_i)` by
    :math:`\hat\Psi = \sum_{j \le N} \beta_j \phi(b_j)`, with N separate basis vectors (eq. 27;
    N = 1 in the paper): fixed points of eq. 46 and 47 with coefficients of eq. 49. Only `scores`
    are centred; they have mean 0 by the intercept of eq. 23. Combinations share no vectors. `mean`
    is :math:`\hat\Psi_0` of eq. 26.

    As printed, a search starts at the mean of rows drawn at random and ends once a squared step is
    at most 0.01, in the units of the rows. A search that runs into 0/0 or does not converge is
    restarted; `n_diverged` counts the restarts. After six such starts, the visited b with the
    largest :math:`|\langle \Psi, \phi(b) \rangle|` is used. A repeated b makes eq. 49 singular;
    its solution of minimum norm is used.
    """

    has_equal_lengths = True

    def __init__(
        self,
        X: Any,
        weights: NDArray | None = None,
        *,
        gamma: float,
        n_basis: int = 1,
        random_state: Any = None,
    ):
        self.gamma = check_number("gamma", gamma, low=0.0, open_low=True)
        self.n_basis = check_count("n_basis", n_basis)
        self.random_state, self.random = random_state, check_random_state(random_state)
        self.X, self.weights = X, weights
        self.n_rows, self.dtype = X.shape[0], X.dtype
        self.shares = shares = None if weights is None else weights / weights.sum()
        self._p = np.full(self.n_rows, 1.0 / self.n_rows) if shares is None else shares
        self._weighing = np.flatnonzero(self._p)
        self.offset = far_mean(X)
        self.rows = KernelRows(shifted(X, self.offset), self.gamma)
        self.n_passes = self.n_diverged = 0
        self.mean = self.vector(self._p)

    def vector(self, v: NDArray) -> SparseVector:
        """Return the approximation of sum_i v_i phi(x_i) by separate basis vectors."""
        require_memory(
            float(self.n_basis * self.n_rows * self.dtype.itemsize),
            f"the kernel values of another cut with {self.n_rows} rows",
            "Lower max_iter, or use fewer rows.",
        )
        v = v.astype(np.float64, copy=False)
        vectors, images = np.empty((0, self.X.shape[1])), np.empty((0, self.n_rows))
        beta = np.empty(0)
        for _ in range(self.n_basis):
            b = self._fixed_point(Field(self.rows, v, vectors, beta))
            vectors = np.vstack([vectors, b])
            images = np.vstack([images, self.rows.kernel(b)])
            beta = np.linalg.lstsq(self._kernel(vectors, vectors), images @ v, rcond=None)[0]
        self.n_passes += self.n_basis
        return SparseVector(vectors, beta, beta @ images)

    def inner(self, vector: SparseVector, others: Sequence[SparseVector]) -> NDArray:
        """Return the inner products of a vector with others."""
        left = vector.coefficients @ self._kernel(
            vector.vectors, np.concatenate([other.vectors for other in others])
        )
        ends = np.cumsum([len(other.coefficients) for other in others])[:-1]
        parts = np.split(left, ends)
        return np.array([part @ b.coefficients for part, b in zip(parts, others, strict=True)])

    def combination(self, vectors: Sequence[SparseVector], weights: NDArray) -> SparseVector:
        """Return sum_k weights_k vectors_k, with the basis vectors of all of them."""
        image = np.zeros(self.n_rows)
        for weight, one in zip(weights, vectors, strict=True):
            if weight:
                image += weight * one.image
        parts = [w * one.coefficients for w, one in zip(weights, vectors, strict=True)]
        basis = np.concatenate([one.vectors for one in vectors])
        return SparseVector(basis, np.concatenate(parts), image)

    def scores(self, w: SparseVector) -> NDArray:
        """Return <w, phi(x_i)> + b of every row, with b of eq. 23, so that their mean is 0."""
        return (w.image - self._p @ w.image).astype(self.dtype)

    # ------------------------------------------------------------------ of a fit

    def hyperplane(self, normal: SparseVector, rho: float, t: float) -> BasisHyperplane:
        """Return basis vectors and their coefficients."""
        means = np.array([self._p @ self.rows.kernel(b) for b in normal.vectors])
        vectors = normal.vectors if self.offset is None else normal.vectors + self.offset
        coefficients = normal.coefficients / rho
        expansion = BasisExpansion(vectors, coefficients, means, self.gamma, self.offset)
        return BasisHyperplane(expansion, t / rho)

    def start_rows(self) -> Any:
        """Return the rows."""
        return self.X

    def reweighted(self, weights: NDArray) -> PrintedBasisSpace:
        """Return the same rows with other weights."""
        return PrintedBasisSpace(
            self.X,
            weights,
            gamma=self.gamma,
            n_basis=self.n_basis,
            random_state=self.random_state,
        )

    # ------------------------------------------------------------------ Algorithm 4

    def _kernel(self, A: NDArray, B: NDArray) -> NDArray:
        return rbf(A @ B.T, squares(A)[:, None], squares(B), self.gamma)

    def _fixed_point(self, field: Field) -> NDArray:
        """Return a fixed point of eq. 46 and 47, from the mean of a few rows drawn at random."""
        best, largest = np.zeros(self.X.shape[1]), -1.0
        for _ in range(1 + MAX_RESTARTS):
            few = min(N_AVERAGED, self._weighing.size)
            drawn = self.random.choice(self._weighing, few, replace=False)
            b = np.mean([self.rows.row(i) for i in drawn], axis=0)
            for _ in range(MAX_STEPS):
                terms = field.terms(b)
                self.n_passes += 1
                value = float(terms[0].sum()) - float(terms[1].sum())
                if abs(value) > largest:
                    best, largest = b, abs(value)
                with np.errstate(all="ignore"):
                    after = field.fixed_point(terms, value)
                    square = float(np.sum((after - b) ** 2))
                    size = float(np.sum(after**2))
                if not np.isfinite(square + size):
                    break  # 0/0, or a b whose kernel values are 0
                b = after
                if square <= max(DELTA, (ROUNDINGS * np.finfo(b.dtype).eps) ** 2 * size):
                    return b
            self.n_diverged += 1
        return best
