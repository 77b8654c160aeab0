"""Submatrix-information symmetry by sorting: two partitions with the same y'Qy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Entries of Q come rounded, and so does a sum over them: differences within this many units in the
# last place of the sum of |Q_ij| are taken for ties.
ROUNDING = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ClosestPartitions:
    r"""The two partitions whose values of y'Qy are closest.

    Attributes
    ----------
    gap : float
        Smallest sum of (20) in absolute value, over the largest \|Q_ij\|; 0 for a tie.
    tied : bool
        Whether it is zero, up to rounding.
    first, second : ndarray of shape (n,)
        The partitions, -1 and 1.
    """

    gap: float
    tied: bool
    first: NDArray[np.int8]
    second: NDArray[np.int8]


def closest_partitions(Q: NDArray) -> ClosestPartitions:
    r"""Find the two partitions of least difference in y'Qy, among all pairs, in O(n 2^n).

    JMLR definition 5 asks for signs :math:`\delta` and a part K of the rows, neither empty nor all
    of them, with (eq. 20)

    .. math:: \Bigl(\sum_{k \in K} \delta_k e_k\Bigr)' Q
              \Bigl(\sum_{k \notin K} \delta_k e_k\Bigr) = 0.

    The left side is a quarter of :math:`y'Qy - z'Qz`, with y the signs :math:`\delta` and z the
    same signs turned over outside K. So (20) has a solution just where two partitions y and z,
    neither equal nor opposite, share their value, and sorting the :math:`2^{n-1}` values finds it;
    going through every K and every :math:`\delta` would take :math:`4^n` sums.

    Parameters
    ----------
    Q : ndarray of shape (n, n)
        Symmetric matrix, of 2 rows at least.
    """
    n = len(Q)
    values = _values(Q)
    order = np.argsort(values, kind="stable")
    closest = int(np.argmin(np.diff(values[order])))
    first, second = (_signs(int(code), n) for code in order[closest : closest + 2])
    same = first == second
    products = Q[np.ix_(same, ~same)] * np.outer(first[same], first[~same])
    gap = abs(math.fsum(products.ravel()))
    tied = gap <= ROUNDING * float(np.abs(Q).sum())
    scale = float(np.abs(Q).max()) or 1.0
    return ClosestPartitions(0.0 if tied else gap / scale, tied, first, second)


def _values(Q: NDArray) -> NDArray[np.float64]:
    """Return (y'Qy - trace) / 2 of all y whose first entry is 1; bit i of the place is y_{i+1}."""
    values = np.zeros(1)
    for k in range(1, len(Q)):
        field = np.full(1, Q[k, 0])  # Q[k, :k] y of the same y, in the same order
        for i in range(1, k):
            field = np.concatenate([field + Q[k, i], field - Q[k, i]])
        values = np.concatenate([values + field, values - field])
    return values


def _signs(code: int, n: int) -> NDArray[np.int8]:
    bits = (code >> np.arange(n - 1)) & 1
    return np.concatenate([[1], 1 - 2 * bits]).astype(np.int8)
