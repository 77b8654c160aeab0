r"""Search for violated labellings: the cuts of LGMMC.

For weights alpha of the rows the most violated labelling maximises the convex function
|sum_i alpha_i y_i z_i|^2 over y in {-1, 1}^n with |sum_i y_i| at most a limit. That is NP-hard.
Its linearisation at a labelling, sum_i y_i alpha_i <z_i, v> with v = sum_j alpha_j y_j z_j, is
maximised by sorting. The maximiser is never worse than the labelling of the linearisation.

A row of weight w_i represents w_i copies with the same label: alpha_i is their sum, alpha_i / w_i
that of a single copy, and the limit applies to |sum_i w_i y_i|. If it binds, the linearisation is
a knapsack problem, which is NP-hard itself. Sorting by alpha_i f_i / w_i solves its relaxation, in
which one row is split between the sides. That row, and others that do not fit, change sides as a
whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator

from volmar._eigen import eigsh
from volmar.margin.feature_space.space import VectorSpace

MAX_STEPS = 100
# A relative rise of a square below this is rounding.
ROUNDING = 1e-9
# Relative increase of the eigenvalue bound for safety, and residual of its eigenvector. The
# residual is much smaller: a larger one could miss larger eigenvalues if many are similar.
WIDENING, RESIDUAL = 1e-3, 1e-6
# Maximum number of rows for which the eigenvalue is computed by LAPACK.
DENSE = 50


@dataclass(frozen=True)
class Labelling:
    """Labels -1 or 1 (int8), the vector sum_i alpha_i y_i z_i, and its squared norm."""

    y: NDArray
    vector: Any
    square: float


def balanced_labels(
    f: NDArray, alpha: NDArray, limit: float, weights: NDArray | None = None
) -> NDArray:
    """Return the labels y, ``|sum(y)| <= limit``, that maximise sum_i y_i alpha_i f_i.

    These are the signs of f if they are balanced; otherwise the rows with the lowest cost change
    sides. Rows with an alpha of 0 have no cost and change first, those nearest to zero before
    others.

    With weights of the rows, the constraint is ``|sum(weights * y)| <= limit``. If it binds, the
    labels are below the maximum by at most 2 alpha_i |f_i|, for the row i that the relaxation
    splits.
    """
    if weights is not None:
        return _balanced_by_weight(f, alpha, limit, weights)
    n, allowed = f.size, int(limit)
    n_positive = int(np.count_nonzero(f > 0))
    low, high = (n - allowed + 1) // 2, (n + allowed) // 2
    if low <= n_positive <= high:
        return np.where(f > 0, 1, -1).astype(np.int8)
    order = np.lexsort((f, alpha * f))
    y = np.full(n, -1, dtype=np.int8)
    y[order[n - min(max(n_positive, low), high) :]] = 1
    return y


def _balanced_by_weight(f: NDArray, alpha: NDArray, limit: float, weights: NDArray) -> NDArray:
    """Return signs of f, except for rows that do not fit on the heavier side.

    Because one of them did not fit, the side has more weight than `room` minus the weight of that
    row. This is enough, because the limit is at least the weight of any row.
    """
    y = np.where(f > 0, 1, -1).astype(np.int8)
    excess = float(weights @ y)
    if abs(excess) <= limit:
        return y
    side = 1 if excess > 0 else -1
    room = 0.5 * (float(weights.sum()) + limit)
    rows = np.flatnonzero((y == side) & (weights > 0))
    # Cost per weight of changing sides. The rows with the highest cost stay, as many as fit.
    height = side * f[rows]
    left = rows[np.lexsort((height, alpha[rows] / weights[rows] * height))[::-1]]
    y[rows] = -side
    while left.size:
        fits = int(np.searchsorted(np.cumsum(weights[left]), room, side="right"))
        y[left[:fits]] = side
        room -= float(weights[left[:fits]].sum())
        left = left[fits + 1 :]
        left = left[weights[left] <= room]
    return y


def climb(
    source: VectorSpace,
    alpha: NDArray,
    y: NDArray,
    limit: float,
    weights: NDArray | None = None,
) -> Labelling:
    """Relabel by sorting until the square stops rising; never worse than the start.

    `limit`, the maximum of ``|sum(y)|``, must be at least 1 if n is odd. With weights it is the
    maximum of ``|sum(weights * y)|``, and must be at least the largest weight.
    """
    best = measure(source, alpha, y)
    for _ in range(MAX_STEPS):
        y = balanced_labels(source.scores(best.vector), alpha, limit, weights)
        if np.array_equal(y, best.y):
            break
        following = measure(source, alpha, y)
        if following.square <= best.square * (1.0 + ROUNDING):
            break
        best = following
    return best


def measure(source: VectorSpace, alpha: NDArray, y: NDArray) -> Labelling:
    """Return a labelling with its vector, in one pass."""
    vector = source.vector((alpha * y).astype(source.dtype, copy=False))
    return Labelling(y, vector, float(source.inner(vector, [vector])[0]))


def largest_possible_square(
    source: VectorSpace, alpha: NDArray, rng: np.random.Generator
) -> float:
    r"""Return an upper bound of the square of every labelling, balanced or not.

    By the inequality of Cauchy and Schwarz, with weights alpha of sum 1,
    :math:`|\sum_i \alpha_i y_i z_i|^2 = \max_{|u|=1} (\sum_i \alpha_i y_i z_i'u)^2 \le
    \max_{|u|=1} \sum_i \alpha_i (z_i'u)^2`,
    the largest eigenvalue of the weighted covariance. It does not change if a row is replaced by
    copies that share its alpha, which may then have any labels. For many rows it is found by
    Lanczos iterations with a random start, and increased by a thousandth: a larger eigenvalue
    would have a share of at most a thousandth in the vector found, although the iterations
    increase its share in the start. Infinity is returned if they do not converge.
    """
    rows = np.flatnonzero(alpha > 0)
    root = np.sqrt(alpha[rows])
    scaled = np.zeros(alpha.size, dtype=source.dtype)

    def matvec(x: NDArray) -> NDArray:
        scaled[rows] = root * x.ravel()
        return root * source.scores(source.vector(scaled))[rows]

    n = rows.size
    if n <= DENSE:
        columns = np.column_stack([matvec(e) for e in np.eye(n)])
        rounding = n * float(np.finfo(source.dtype).eps)
        return float(np.linalg.eigvalsh(0.5 * (columns + columns.T))[-1]) * (1.0 + rounding)
    operator = LinearOperator((n, n), matvec=matvec, dtype=np.float64)
    try:
        value = eigsh(
            operator,
            k=1,
            v0=rng.standard_normal(n),
            tol=RESIDUAL,
            maxiter=300,
            return_eigenvectors=False,
        )[0]
    except ArpackNoConvergence:
        return float("inf")
    return float(value) * (1.0 + WIDENING)
