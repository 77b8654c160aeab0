"""The minimax probability problem: the direction that best separates two pairs of moments."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from volmar.solvers.result import Result, Status

MAX_STEPS = 60


@dataclass(frozen=True, repr=False)
class MinimaxProbabilityResult(Result):
    """Solution of the minimax probability problem for two means and covariances.

    `w` is scaled so that w'(mean1 - mean2) = 1, and `kappa` is 1 / (s1 + s2) with the standard
    deviations s_k = sqrt(w'S_k w). `objective` is -kappa. For any two distributions with these
    moments, a row lies on the correct side with at least `probability`, kappa^2 / (1 + kappa^2).
    `t`, the weight of the second covariance, is a good start for a similar problem.
    """

    w: NDArray = field(default_factory=lambda: np.empty(0))
    kappa: float = 0.0
    probability: float = 0.0
    s1: float = 0.0
    s2: float = 0.0
    t: float = 0.5

    def intercept(self, mean1: NDArray) -> float:
        """Return b of the hyperplane w'x + b = 0 with class 1 on its positive side.

        b = -(w'mean1 - kappa s1) = -(w'mean2 + kappa s2), so that both classes have the same
        worst-case probability.
        """
        return float(self.kappa * self.s1 - self.w @ mean1)


def solve_minimax_probability(
    difference: NDArray,
    covariance1: NDArray,
    covariance2: NDArray,
    *,
    t: float = 0.5,
    tol: float = 1e-9,
) -> MinimaxProbabilityResult:
    r"""Maximise :math:`w'd / (\sqrt{w'S_1 w} + \sqrt{w'S_2 w})` (Lanckriet 2003; MSPC eq. 2).

    By stationarity the problem is one-dimensional: the solution is
    :math:`w(t) = [(1 - t) S_1 + t S_2]^{-1} d` at the root of :math:`(1 - t) s_1 - t s_2`. Every t
    gives a lower and an upper bound, because :math:`m_1 - (1 - t) S_1 w = m_2 + t S_2 w` is in
    both ellipsoids of radius :math:`\max((1 - t) s_1, t s_2)`. Therefore
    :math:`w'd / (s_1 + s_2) \le \kappa^* \le \max((1 - t) s_1, t s_2)`, and the gap is available
    at no extra cost. The root is found by a bracketed secant method, with one Cholesky
    factorisation per step.

    Parameters
    ----------
    difference : ndarray of shape (d,)
        Difference of the means, mean1 - mean2.
    covariance1, covariance2 : ndarray of shape (d, d)
        Covariances, symmetric positive definite, with the regularisation added.
    t : float, default=0.5
        Start of the search; the `t` of a similar problem saves steps.
    tol : float, default=1e-9
        Relative gap of kappa at which to stop.

    Returns
    -------
    MinimaxProbabilityResult
        The status is DEGENERATE, with w = 0, if the means coincide.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the covariances are singular. Regularise them.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.solvers import solve_minimax_probability
    >>> result = solve_minimax_probability(np.array([4.0, 0.0]), np.eye(2), np.eye(2))
    >>> round(result.kappa, 6), round(result.probability, 6)
    (2.0, 0.8)
    """
    if not np.any(difference):
        return MinimaxProbabilityResult(
            objective=-0.0, gap=0.0, status=Status.DEGENERATE, w=np.zeros_like(difference)
        )
    low, high = 0.0, 1.0
    previous: tuple[float, float] | None = None
    history = []
    t = float(np.clip(t, 1e-3, 1 - 1e-3))
    while True:
        w, s1, s2 = _direction(difference, covariance1, covariance2, t)
        scale = float(w @ difference)
        kappa, upper = scale / (s1 + s2), max((1 - t) * s1, t * s2)
        history.append(-kappa)
        value = (1 - t) * s1 - t * s2
        done = upper - kappa <= tol * upper
        if done or high - low < 1e-15 or len(history) == MAX_STEPS:
            break
        low, high = (t, high) if value > 0 else (low, t)
        here = (t, value)
        t = _next(previous, here, low, high, s1 / (s1 + s2))
        previous = here
    return MinimaxProbabilityResult(
        objective=-kappa,
        gap=max(upper - kappa, 0.0),
        residuals={"balance": abs(value) / upper},
        status=Status.CONVERGED if done else Status.MAX_ITER,
        n_iter=len(history),
        history=tuple(history),
        w=w / scale,
        kappa=kappa,
        probability=kappa**2 / (1 + kappa**2),
        s1=s1 / scale,
        s2=s2 / scale,
        t=t,
    )


def _next(
    previous: tuple[float, float] | None,
    here: tuple[float, float],
    low: float,
    high: float,
    fixed_point: float,
) -> float:
    """Return a secant step (at first a fixed-point step), or a bisection outside the bracket."""
    t = fixed_point
    if previous is not None and previous[1] != here[1]:
        t = here[0] - here[1] * (here[0] - previous[0]) / (here[1] - previous[1])
    return t if low < t < high else 0.5 * (low + high)


def _direction(
    difference: NDArray, S1: NDArray, S2: NDArray, t: float
) -> tuple[NDArray, float, float]:
    mixed = (1 - t) * S1
    mixed += t * S2
    factor = linalg.cho_factor(mixed, lower=True, overwrite_a=True, check_finite=False)
    w = linalg.cho_solve(factor, difference, check_finite=False)
    # Rounding may make this negative for a nearly singular covariance.
    s1, s2 = (float(np.sqrt(max(w @ (S @ w), 0.0))) for S in (S1, S2))
    if not s1 + s2 > 0.0:
        raise linalg.LinAlgError("the covariances have no variance along the best direction.")
    return w, s1, s2
