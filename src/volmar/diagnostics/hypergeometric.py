"""An exact limit on the errors of a clustering, from labels of rows drawn at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp


def direct_limit(n: int, n_revealed: int, n_wrong: int, delta: float) -> int:
    """Return an upper limit of d_H from `n_wrong` of `n_revealed` labels drawn at random.

    The errors of either naming of the clusters have an upper limit that fails with probability
    delta / 2: the most errors among all rows with which so few among the revealed ones would be no
    less likely than that.
    """
    counts = (n_wrong, n_revealed - n_wrong)
    return min(n // 2, *(_most_errors(n, n_revealed, count, delta / 2) for count in counts))


def _most_errors(n: int, n_drawn: int, n_seen: int, level: float) -> int:
    """Largest number of errors among n with P(n_seen or fewer among those drawn) >= level."""

    def few(errors: int) -> float:
        k = np.arange(max(0, n_drawn - n + errors), min(n_seen, errors) + 1)
        logs = _choose(errors, k) + _choose(n - errors, n_drawn - k)
        return float(np.exp(logsumexp(logs) - _choose(n, np.array([n_drawn]))[0]))

    low, high = n_seen, n - n_drawn + n_seen  # as many as are sure to be possible
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if few(middle) >= level else (low, middle - 1)
    return low


def _choose(n: int, k: NDArray) -> NDArray:
    """Logarithms of binomial coefficients."""
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
