"""The problem of generalised maximum margin clustering, without the inverse kernel matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volmar._eigen import eigenpairs
from volmar.solvers.packing_sdp import best_multiple

# Eigenvalues below n times this share of the largest are zero up to rounding.
ROUNDING = float(np.finfo(np.float64).eps)
# A kernel matrix may be this far from semidefinite, relative to its largest eigenvalue.
INDEFINITE = 1e-8
# If another term is this much larger than the kernel, the kernel is lost in double precision.
LARGEST_PART = 1e12


@dataclass(frozen=True)
class GMMCProblem:
    r"""Generalised maximum margin clustering and its convex relaxation (JMLR eq. 23 and 24).

    Eq. 23 is a support vector machine that also minimises over labels. With the kernel matrix
    :math:`K + \delta I`, scores :math:`u_i = f(x_i) = \sum_j (K + \delta I)_{ij} \alpha_j + b` and
    :math:`\lambda = -b` it reads

    .. math:: \min_{u, \lambda} \; (u + \lambda 1)' (K + \delta I)^{-1} (u + \lambda 1)
              + C_e (1'u)^2 \quad \text{s.t.} \quad u_i^2 \ge 1 :

    the squared norm of f and a penalty on the sum of the scores, with every row outside the margin
    on either side. With a finite C rows may be inside it at a cost of
    :math:`C \max(0, 1 - u_i^2)`. Eq. 24 is the dual of the relaxation in which :math:`u u'` is
    replaced by any positive semidefinite matrix.

    Attributes
    ----------
    K : ndarray of shape (n, n)
        Kernel matrix, symmetric.
    C : float or None
        :math:`C_\delta`, the bound on :math:`\gamma`; None for the hard margin.
    balance_weight : float
        :math:`C_e`, positive.
    shift : float
        :math:`\delta`, not negative.

    Notes
    -----
    *From eq. 24 to features.* Write K for the shifted matrix and
    :math:`B = (I; 1') K^{-1} (I, 1) + C_e (1; 0)(1', 0)`. The first part has the null vector (1;
    -1), on which the second is :math:`C_e n^2`. B is therefore positive definite for every
    positive definite K and :math:`C_e > 0`, and :math:`\gamma = 0` lies in the interior. (Without
    :math:`C_e` the null vector leaves only :math:`\gamma = 0`. The term does not only fix a
    translation, as the paper says: without it all rows could be in one cluster at no cost.) The
    last row of W does not contain :math:`\gamma`, and its diagonal entry is :math:`1'K^{-1}1 > 0`.
    Its Schur complement turns :math:`W \succeq 0` into

    .. math:: M - Diag(\gamma) \succeq 0, \qquad
              M = K^{-1} - \frac{K^{-1} 1 1' K^{-1}}{1' K^{-1} 1} + C_e 1 1'
                = (HKH)^+ + C_e 1 1'

    with the centring matrix :math:`H = I - 1 1' / n`, since the first two terms times HKH are H.
    M is block diagonal in 1 and its complement, and

    .. math:: M^{-1} = HKH + \frac{1 1'}{C_e n^2} = F F'.

    The columns of F are the kernel principal components of the rows, and a constant feature of
    size :math:`1 / (n \sqrt{C_e})`: the intercept, with the weight :math:`C_e`. Congruence with F
    gives :math:`I - F' Diag(\gamma) F \succeq 0`, the packing problem of
    `volmar.solvers.solve_packing_sdp`. It contains no inverse of K, and avoids the instability for
    which the paper shifts K: the shift may be zero, and :math:`C_e` arbitrarily large.

    *The decision function.* :math:`W w = 0` for :math:`w = (u; \lambda)` is
    :math:`M u = \gamma \circ u` with :math:`\lambda = -1'K^{-1}u / 1'K^{-1}1`. So
    :math:`u = F F' \beta` with :math:`\beta = \gamma \circ u`, and the function is

    .. math:: f(x) = \sum_j \alpha_j k(x_j, x) + b, \qquad \alpha = H \beta, \qquad
              b = \frac{1'\beta}{C_e n^2} - \frac1n 1' K \alpha .

    :math:`\gamma_i |u_i|` is the multiplier of row i, and rows with :math:`\gamma_i = 0` are not
    support vectors.
    """

    K: NDArray
    C: float | None
    balance_weight: float
    shift: float

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.K)

    @cached_property
    def _components(self) -> tuple[NDArray, NDArray]:
        """Positive eigenvalues of H (K + shift I) H in ascending order, and their vectors."""
        means = self.K.mean(axis=1) + self.shift / self.n
        centred = self.K - means - means[:, None] + float(means.mean())
        centred.flat[:: self.n + 1] += self.shift
        values, vectors = eigenpairs(0.5 * (centred + centred.T))
        largest = max(abs(values[0]), values[-1])
        if values[0] < -INDEFINITE * largest:
            raise ValueError(
                "the kernel matrix must be positive semidefinite, but the smallest eigenvalue of "
                f"the centred matrix is {values[0] - self.shift:.3g}. Use "
                f"shift={1.01 * (self.shift - values[0]):.3g} or more, or another kernel."
            )
        kept = values > self.n * ROUNDING * largest
        return values[kept], vectors[:, kept]

    @cached_property
    def features(self) -> NDArray:
        """F of shape (n, r) with F F' = H (K + shift I) H + 11' / (C_e n^2)."""
        values, vectors = self._components
        constant = np.full((self.n, 1), 1.0 / (self.n * np.sqrt(self.balance_weight)))
        return np.hstack([vectors * np.sqrt(values), constant])

    @property
    def smallest_penalty(self) -> float:
        """C up to which every row is inside the margin, 1 / the largest eigenvalue of F F'."""
        values, _ = self._components
        return float(1.0 / max(values.max(initial=0.0), 1.0 / (self.n * self.balance_weight)))

    @property
    def upper(self) -> float | None:
        """C, or None if it is so large that it has no effect.

        The diagonal of the packing constraint bounds every entry of gamma by the inverse of the
        entry of F F'.
        """
        smallest = float(np.sum(self.features**2, axis=1).min())
        return None if self.C is None or self.C * smallest > LARGEST_PART else self.C

    def check_scales(self) -> None:
        """Raise an error if the kernel is lost to rounding beside shift or balance weight."""
        size = float(np.abs(self.K).max())
        if self.shift > LARGEST_PART * size:
            raise ValueError(
                f"shift={self.shift:.3g} is too large for a kernel whose largest value is "
                f"{size:.3g}. Lower it. The default is the mean of the diagonal divided by n."
            )
        if self.balance_weight * self.n**2 * LARGEST_PART * size < 1.0:
            raise ValueError(
                f"balance_weight={self.balance_weight:.3g} is too small for a kernel whose "
                f"largest value is {size:.3g}. Raise it. The default is 1e4."
            )

    def scores(self, beta: NDArray) -> NDArray:
        """Return u = F F' beta, the scores of the training rows under the shifted kernel."""
        return self.features @ (self.features.T @ beta)

    def objective(self, beta: NDArray) -> float:
        """Return the value of eq. 23 at the scores of `beta`, at their best scale.

        Scores t u give a matrix of rank one in the relaxation. No labels, with any scores, have a
        value below the optimum of the relaxation.
        """
        weights = self.features.T @ beta
        return best_multiple(float(weights @ weights), self.scores(beta) ** 2, self.C)[0]

    def complementarity(self, g: NDArray, beta: NDArray) -> float:
        """Return u'(M - Diag(g))u over u'Mu at the scores u of `beta`; zero if M u = g u."""
        weights = self.features.T @ beta
        return abs(float(1.0 - g @ self.scores(beta) ** 2 / (weights @ weights)))

    def expansion(self, beta: NDArray) -> tuple[NDArray, float]:
        """Return alpha and the intercept b of f(x) = sum_j alpha_j k(x_j, x) + b."""
        alpha = beta - beta.mean()
        constant = float(beta.sum()) / (self.balance_weight * self.n**2)
        return alpha, constant - float(np.mean(self.K @ alpha + self.shift * alpha))
