"""The power of an equivalence class, which the volume of JMLR eq. 1 approximates."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import issparse
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr, ndtri

from volmar._checks import check_count, check_random_state, check_symmetric
from volmar._input import check_matrix
from volmar._threads import one_thread
from volmar._vectors import check_vector

__all__ = ["ClassPower", "class_power"]

# Maximum number of rows, which is the dimension of the integral.
MAX_ROWS = 1000
# Number of random shifts of the lattice. Their spread gives the error estimate.
N_SHIFTS = 16


class ClassPower(NamedTuple):
    """Power and volume of an equivalence class.

    Attributes
    ----------
    power : float
        Probability of the class among all hypotheses. It may underflow; `log_power` does not.
    relative_error : float
        Standard error of `power` divided by `power`. A value near 1 means that nearly all lattice
        points missed the class and that `power` is unreliable: Q is too ill-conditioned, or there
        are too many rows.
    log_power, log_volume : float
        Natural logarithms of the power and of the geometric volume of the class.
    """

    power: float
    relative_error: float
    log_power: float
    log_volume: float


@one_thread()
def class_power(
    h: ArrayLike, Q: Any, *, n_points: int = 8192, random_state: Any = 0
) -> ClassPower:
    r"""Power of the equivalence class of h: the share of all hypotheses with the same signs.

    The hypotheses are uniformly distributed in the ellipsoid
    :math:`E = \{h : h^\top Q h \le 1\}`. A class :math:`H_k` is the intersection of E with an
    orthant (JMLR section 2):

    .. math:: P(H_k) = V(H_k) / V(E), \qquad V(H_k) = \int_{H_k} dh, \qquad
              V(E) = \frac{\pi^{n/2}}{\Gamma(n/2 + 1)} \det(Q)^{-1/2}

    An orthant is a cone, and the direction of a random point of the ellipsoid is distributed like
    that of a draw from :math:`N(0, Q^{-1})`. The power is therefore the probability that such a
    draw has the signs of h. It is integrated one variable after the other (Genz), over a lattice
    of points. `volume` is the papers' approximation, where a small value means a large power.

    Parameters
    ----------
    h : array-like of shape (n,)
        Soft responses, or labels of ±1. Only the signs matter, and no entry may be zero.
    Q : array-like, sparse matrix or operator with `matvec`, of shape (n, n)
        Symmetric positive definite matrix of pairwise information, with at most 1,000 rows.
    n_points : int, default=8192
        Number of lattice points, divided among 16 random shifts. The error falls about as
        1 / n_points for a few rows, and as 1 / sqrt(n_points) for many.
    random_state : int, RandomState or None, default=0
        Random seed of the shifts.

    Returns
    -------
    ClassPower
        Power, its relative standard error, and the logarithms of power and volume.

    See Also
    --------
    volume : The approximation used by maximum volume clustering.

    Examples
    --------
    >>> import numpy as np
    >>> found = class_power([1, -1], np.eye(2))
    >>> round(found.power, 12)
    0.25
    >>> float(np.exp(found.log_volume).round(6))  # a quarter of the disc, pi / 4
    0.785398
    """
    y = np.sign(check_vector("h", h))
    if not y.all():
        raise ValueError(
            f"h must not have entries of 0, got 0 at position {np.argmin(np.abs(y))}. Give labels "
            "as -1 and 1."
        )
    check_count("n_points", n_points, low=N_SHIFTS)
    upper = _reversed_factor(_dense(Q, y.size))
    # With Q = U U' the lower Cholesky factor of Q^-1 is U^-T. The scale of its rows does not
    # affect the signs.
    factor = solve_triangular(upper, np.eye(y.size), lower=False, trans="T") * np.outer(y, y)
    rng = check_random_state(random_state)
    logs = np.array([_log_orthant(factor, n_points // N_SHIFTS, rng) for _ in range(N_SHIFTS)])
    log_power = float(logsumexp(logs) - np.log(N_SHIFTS))
    power = float(np.exp(log_power))
    error = float(np.std(np.exp(logs - log_power), ddof=1) / np.sqrt(N_SHIFTS))
    n = y.size
    log_ellipsoid = n / 2 * np.log(np.pi) - gammaln(n / 2 + 1) - np.log(np.diag(upper)).sum()
    return ClassPower(power, error, log_power, float(log_power + log_ellipsoid))


def _dense(Q: Any, n: int) -> NDArray[np.float64]:
    if n > MAX_ROWS:
        raise ValueError(
            f"h has {n} entries, but class_power supports at most {MAX_ROWS}, the dimension of "
            "its integral. Use `volume`, its approximation."
        )
    if hasattr(Q, "matvec"):
        Q = Q.matvec(np.eye(n))
    matrix = Q.toarray() if issparse(Q) else Q
    Q = check_matrix(matrix, name="Q", accept_sparse=False, is_scaled=False).astype(np.float64)
    if Q.shape != (n, n):
        raise ValueError(f"Q must be of shape ({n}, {n}) for {n} responses, got {Q.shape}.")
    check_symmetric(Q, "Q")
    return Q


def _reversed_factor(Q: NDArray) -> NDArray:
    """Return the upper triangular U with Q = U U'."""
    try:
        return cholesky(Q[::-1, ::-1], lower=True)[::-1, ::-1]
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "Q must be positive definite; otherwise the ellipsoid is unbounded. Add a multiple of "
            "the identity to Q."
        ) from error


def _log_orthant(factor: NDArray, n_points: int, rng: np.random.RandomState) -> float:
    """Return the log probability that all entries of factor @ z are positive, z standard normal.

    Given z_1 to z_{i-1}, entry i is positive if z_i > -t with
    t = sum_j factor_ij z_j / factor_ii, which has probability Phi(t). z_i is then drawn from this
    tail by the i-th coordinate of a lattice point, which is shifted at random and folded to be
    periodic.
    """
    n = len(factor)
    generators = np.sqrt(_primes(n))
    places = np.arange(1, n_points + 1)[:, None] * generators + rng.random_sample(n)
    uniform = np.abs(2 * (places % 1.0) - 1)
    uniform = np.clip(uniform, 1e-16, 1 - 1e-16)
    z = np.zeros((n_points, n))
    logs = np.zeros(n_points)
    for i in range(n):
        t = z[:, :i] @ factor[i, :i] / factor[i, i]
        logs += log_ndtr(t)
        z[:, i] = -ndtri(np.maximum(ndtr(t), np.finfo(float).tiny) * uniform[:, i])
    return float(logsumexp(logs) - np.log(n_points))


def _primes(count: int) -> NDArray:
    """Return the first `count` primes, by a sieve."""
    limit = max(16, int(count * (np.log(count + 1) + np.log(np.log(count + 3)) + 1)))
    sieve = np.ones(limit, dtype=bool)
    sieve[:2] = False
    for i in range(2, int(limit**0.5) + 1):
        sieve[i * i :: i] = sieve[i * i :: i] & (not sieve[i])
    return np.flatnonzero(sieve)[:count].astype(np.float64)
