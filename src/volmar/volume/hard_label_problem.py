"""The matrix Q of hard-label maximum volume clustering, and bounds on its weight `reg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackNoConvergence

from volmar._eigen import eigenvalues, eigsh
from volmar.operators import SPDOperator

# Above this size the extreme eigenvalues are computed by the Lanczos method.
DENSE_UP_TO = 500


@dataclass(frozen=True)
class HardLabelProblem:
    r"""Q = W + I/n, shifted to be positive semi-definite, or a given Q.

    Because the diagonal of M is 1 and \|a\| = 1, adding c I to Q subtracts :math:`\gamma c` from
    the objective of the relaxation and adds it to eta. M, a and the labels do not change.
    """

    Q: Any  # ndarray or CSR matrix
    shift: float  # c; 0 if W + I/n is positive semi-definite
    largest: float  # bound on the largest eigenvalue of Q

    @classmethod
    def of(cls, W: Any) -> HardLabelProblem:
        """Return the problem for a dense or sparse similarity matrix W."""
        n = W.shape[0]
        Q = _raised(W, 1.0 / n)
        low, high = spectrum_ends(Q)
        # By rounding, a semi-definite matrix may have eigenvalues just below zero.
        shift = -low if low < -1e-12 * high else 0.0
        return cls(_raised(Q, shift) if shift else Q, shift, high + shift)

    @classmethod
    def given(cls, operator: SPDOperator) -> HardLabelProblem:
        """Return the problem for a given Q; raise an error if it is not positive definite."""
        Q = _matrix_of(operator)
        low, high = spectrum_ends(Q)
        if low <= 1e-13 * max(abs(low), high):
            raise ValueError(
                f"Q must be positive definite, but its smallest eigenvalue is {low:.3g}. Add a "
                "multiple of the identity to it."
            )
        return cls(Q, 0.0, high)

    def safe_reg(self, C: float) -> float:
        r"""Return a reg up to which eta is not positive for any M.

        Let :math:`H = \gamma Q \circ M` and a the maximiser at eta = 0. Because M is a correlation
        matrix, no eigenvalue of H exceeds :math:`\gamma` times the largest eigenvalue of Q. If
        \|a\| < 1, fewer than :math:`1 / C^2` entries are at C, and the other m have
        :math:`(Ha)_i \ge 1`. Then :math:`\sqrt m \le \|Ha\| < \gamma \lambda_1(Q)`. Hence
        \|a\| is at least 1 up to :math:`\gamma = \sqrt m / \lambda_1(Q)`, and a negative or zero
        eta brings it back to 1.
        """
        n = self.Q.shape[0]
        n_at_end = int(np.ceil(1 / min(C, 1.0) ** 2 - 1e-9)) - 1
        return float(np.sqrt(max(n - n_at_end, 1)) / self.largest)


def spectrum_ends(Q: Any) -> tuple[float, float]:
    """Return a lower and an upper bound on the eigenvalues of a symmetric matrix.

    For more than 500 rows they are computed by the Lanczos method, widened by the residuals. If it
    does not converge, they are the bounds of Gershgorin's theorem.
    """
    n = Q.shape[0]
    if n <= DENSE_UP_TO:
        values = eigenvalues(Q.toarray() if sparse.issparse(Q) else Q)
        return float(values[0]), float(values[-1])
    radii = np.asarray(abs(Q).sum(axis=1)).ravel() - np.abs(Q.diagonal())
    low = float((Q.diagonal() - radii).min())
    high = float((Q.diagonal() + radii).max())
    is_definite = low >= 0 or _is_definite(Q)
    low = max(low, 0.0 if is_definite else _end(Q, "SA", low))
    return low, min(high, _end(Q, "LA", high))


def _is_definite(Q: Any) -> bool:
    """Return whether a dense Q has a Cholesky factor; False for a sparse Q, which is not tried."""
    if sparse.issparse(Q):
        return False
    try:
        linalg.cholesky(Q, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return False
    return True


def _end(Q: Any, which: str, otherwise: float) -> float:
    v0 = np.random.default_rng(0).standard_normal(Q.shape[0])
    try:
        value, vector = eigsh(Q, k=1, which=which, tol=1e-4, v0=v0, maxiter=500)
    except ArpackNoConvergence:
        return otherwise
    residual = float(np.linalg.norm(Q @ vector[:, 0] - value[0] * vector[:, 0]))
    return float(value[0]) + (residual if which == "LA" else -residual)


def _matrix_of(operator: SPDOperator) -> Any:
    matrix = getattr(operator, "matrix", None)
    if matrix is None:
        return np.asarray(operator.matvec(np.eye(operator.n)), dtype=np.float64)
    return _raised(matrix.astype(np.float64), float(getattr(operator, "shift", 0.0)))


def _raised(Q: Any, by: float) -> Any:
    if sparse.issparse(Q):
        return sparse.csr_matrix(Q + by * sparse.identity(Q.shape[0]))
    raised: NDArray = Q.copy()
    raised.flat[:: len(raised) + 1] += by
    return raised
