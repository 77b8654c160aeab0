"""Distances in blocks: temporaries hold at most one block of rows against all points.

Squared distances are computed from a matrix product, |x|² + |y|² - 2⟨x, y⟩, in float64 for any
dtype of the data. The rounding error is about 1e-16 (|x|² + |y|²). Dense points are therefore
centred first. If a distance must be exact (the scale of a neighbourhood, zero for duplicates), use
`candidate_distances`, which takes differences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from volmar._checks import as_float, is_number, shown
from volmar.graphs.validation import MatrixLike, check_points, is_constant

# ---- distances


# 8 MiB of float64. A block is still in the cache for the elementwise passes after the product, and
# blocks are large enough that BLAS threads on a busy machine rarely wait for each other.
BLOCK_ELEMENTS = 2**20


def centre(X: Any) -> NDArray | None:
    """Return the mean of dense points in float64; None for sparse points, which stay sparse."""
    return None if sp.issparse(X) else X.mean(axis=0, dtype=np.float64)


def shift(X: Any, origin: NDArray | None) -> Any:
    """Return X minus the origin in X's dtype; the subtraction is in float64."""
    return X if origin is None else np.asarray(X - origin, dtype=X.dtype)


def squared_norms(X: Any) -> NDArray:
    """Return |x_i|² of float64 rows."""
    if sp.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X)


def row_peaks(X: Any) -> NDArray:
    """Return the largest absolute entry of each row, in float64."""
    peaks = abs(X).max(axis=1)
    return (peaks.toarray() if sp.issparse(peaks) else peaks).ravel().astype(np.float64)


def unit_rows(X: Any, peaks: NDArray) -> Any:
    """Scale rows to unit length, after dividing by their nonzero peaks to avoid underflow.

    (`sklearn.preprocessing.normalize` treats a float32 row shorter than about 1e-6 as zero.)
    """
    if not sp.issparse(X):
        rows = X / peaks[:, None]
        rows /= np.sqrt(squared_norms(rows))[:, None]
        return rows.astype(X.dtype, copy=False)
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    data = X.data / peaks[row]
    data /= np.sqrt(np.bincount(row, weights=data**2, minlength=X.shape[0]))[row]
    return sp.csr_array((data.astype(X.dtype), X.indices, X.indptr), shape=X.shape)


def squared_distances(A: Any, B: Any) -> NDArray:
    """Return all |a_i - b_j|² of two sets of rows, as a float64 array."""
    A, B = (M.astype(np.float64, copy=False) for M in (A, B))
    return _product_distances(A, B, squared_norms(A), squared_norms(B))


def _product_distances(A: Any, B: Any, a_norms: NDArray, b_norms: NDArray) -> NDArray:
    product = A @ B.T
    D = product.toarray() if sp.issparse(product) else product
    D *= -2.0
    D += a_norms[:, None]
    D += b_norms
    return np.maximum(D, 0.0, out=D)


def upper_blocks(X: Any) -> Iterator[tuple[int, int, NDArray]]:
    """Yield squared distances of rows start:stop to rows start:n, with an exactly zero diagonal.

    Yields ``(start, stop, D)`` with D of shape (stop - start, n - start). The blocks together hold
    the pairs of the upper triangle. The first stop - start columns of D are a full square.
    """
    n = X.shape[0]
    X = X.astype(np.float64, copy=False)
    norms = squared_norms(X)
    step = max(16, BLOCK_ELEMENTS // n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        D = _product_distances(X[start:stop], X[start:], norms[start:stop], norms[start:])
        np.fill_diagonal(D, 0.0)
        yield start, stop, D


def scale_exponents(
    D: NDArray, row_sigma: NDArray | float, column_sigma: NDArray | float
) -> NDArray:
    """Turn squared distances into -D_ij / (2 σ_i σ_j), in place.

    D is divided twice, because the product σ_i σ_j can underflow even if the quotient does not.
    """
    with np.errstate(over="ignore"):  # an exponent of -inf is a similarity of zero
        D /= row_sigma
        D /= column_sigma
    D *= -0.5
    return D


def symmetric_exponentials(
    X: Any, exponents: Callable[[NDArray, int, int], NDArray], dtype: np.dtype
) -> NDArray:
    """Return exp of `exponents(D, start, stop)` for all pairs; the upper triangle is mirrored.

    The exponential is computed once for each pair. This halves the most expensive step, and makes
    the matrix exactly symmetric.
    """
    n = X.shape[0]
    W = np.empty((n, n), dtype=dtype)
    for start, stop, D in upper_blocks(X):
        block = W[start:stop, start:]
        with np.errstate(over="ignore"):  # float32 cannot hold an exponent below -3e38
            block[...] = exponents(D, start, stop)
        np.exp(block, out=block)
        width = stop - start
        corner = block[:, :width]
        corner[...] = np.triu(corner) + np.triu(corner, 1).T
        W[stop:, start:stop] = block[:, width:].T
    return W


def candidate_distances(A: Any, B: Any, candidates: NDArray, metric: str) -> NDArray:
    """Return distances (m, w) of rows of A to candidate rows of B, from their coordinates.

    `candidates` (m, w) are indices into B. Euclidean distances are computed from differences (zero
    for duplicates), cosine distances as 1 - ⟨a, b⟩ of rows of unit length.
    """
    m, width = candidates.shape
    distances = np.empty((m, width))
    step = max(1, BLOCK_ELEMENTS // max(1, width * (1 if sp.issparse(A) else A.shape[1])))
    for start in range(0, m, step):
        rows = slice(start, min(start + step, m))
        compare = _compare_sparse if sp.issparse(A) else _compare_dense
        distances[rows] = compare(A[rows], B, candidates[rows], metric)
    return distances


def _compare_dense(A: NDArray, B: NDArray, candidates: NDArray, metric: str) -> NDArray:
    A = A.astype(np.float64, copy=False)
    near = B[candidates].astype(np.float64, copy=False)
    if metric == "cosine":
        return np.maximum(1.0 - np.einsum("id,ikd->ik", A, near), 0.0)
    near -= A[:, None, :]
    return np.sqrt(np.einsum("ikd,ikd->ik", near, near))


def _compare_sparse(A: Any, B: Any, candidates: NDArray, metric: str) -> NDArray:
    m, width = candidates.shape
    left = A.astype(np.float64)[np.repeat(np.arange(m), width)]
    right = B[candidates.ravel()].astype(np.float64)
    if metric == "cosine":
        products = np.asarray(left.multiply(right).sum(axis=1)).reshape(m, width)
        return np.maximum(1.0 - products, 0.0)
    return np.sqrt(squared_norms(left - right)).reshape(m, width)


# ---- bandwidth


_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RULE = re.compile(
    rf"\s*(?:(?P<factor>{_NUMBER})\s*\*\s*)?(?P<rule>[a-z]+)(?:\s*/\s*(?P<divisor>{_NUMBER}))?\s*"
)


def mean_distance(X: MatrixLike) -> float:
    """Compute the mean distance m_σ of the n (n - 1) / 2 pairs of points (JMLR 2013, eq. 27).

    The value is exact for any n and computed in blocks, in O(n² d) time and O(block · n) memory.
    For many more than 20,000 points, prefer `rms_distance`, which is linear in n.
    """
    X = _about_mean(X)
    n = X.shape[0]
    total = 0.0
    for start, stop, D in upper_blocks(X):
        np.sqrt(D, out=D)
        width = stop - start
        # The square block on the diagonal has each pair twice.
        total += 0.5 * float(D[:, :width].sum()) + float(D[:, width:].sum())
    return total / (n * (n - 1) / 2)


def rms_distance(X: MatrixLike) -> float:
    """Compute the root of the mean squared distance over all n² ordered pairs, sqrt(2 tr cov).

    This is the sqrt(γ) of the sparse kernel MMC paper (section 5), in the usual form: the zero
    distance of a point to itself counts, and cov divides by n. The cost is O(nd).
    """
    X = check_points(X)
    if sp.issparse(X):
        variances = mean_variance_axis(sp.csr_matrix(X.astype(np.float64)), axis=0)[1]
    else:
        variances = X.var(axis=0, dtype=np.float64)
    return math.sqrt(2.0 * float(variances.sum()))


def distance_range(X: MatrixLike) -> float:
    """Compute the largest minus the smallest distance over all pairs of points.

    This is the σ_0 of the multivariate-loss paper, which uses tenths of it for its normalised cut.
    The value is exact, at the cost of `mean_distance`.
    """
    X = _about_mean(X)
    smallest, largest = math.inf, 0.0
    for _, _, D in upper_blocks(X):
        largest = max(largest, float(D.max()))
        np.fill_diagonal(D, math.inf)  # leave out the distance of a point to itself
        smallest = min(smallest, float(D.min()))
    return math.sqrt(largest) - math.sqrt(smallest)


def resolve_sigma(X: MatrixLike, sigma: float | str = "mean") -> float:
    """Compute the width of a Gaussian similarity from a number or a rule.

    A rule is ``[factor *] rule [/ divisor]``. ``mean`` is the mean pairwise distance:
    ``"mean/10"`` is the width of the JMLR paper's artificial sets, ``"4*mean"`` to ``"mean/4"``
    its grid on the benchmarks. ``rms`` is the root mean squared distance: ``"0.25*rms"`` to
    ``"4*rms"`` is the grid of the sparse kernel MMC paper. ``range`` is the range of the
    distances: ``"0.1*range"`` to ``"range"`` is the grid of the multivariate-loss paper's
    normalised cut.
    """
    rule = parse_sigma(sigma)
    if isinstance(rule, float):
        return rule
    factor, name, divisor = rule
    X = check_points(X)
    if is_constant(X):
        raise ValueError(
            f"sigma={sigma!r} is computed from the distances between points, but all {X.shape[0]} "
            "rows of X are the same point. Give sigma as a number, or check that X was loaded "
            "correctly."
        )
    value = factor * _RULES[name](X) / divisor
    if not 0 < value < math.inf:
        raise ValueError(
            f"sigma={sigma!r} gives {value} on these points (the range of two points is zero, and "
            "factors can overflow). Give sigma as a number, or use 'mean'."
        )
    return value


def parse_sigma(sigma: float | str) -> float | tuple[float, str, float]:
    """Return a number as a float, and a rule as (factor, name, divisor); reject other values."""
    if isinstance(sigma, str):
        match = _RULE.fullmatch(sigma)
        if match and match["rule"] in _RULES:
            factor, divisor = (float(match[part] or 1) for part in ("factor", "divisor"))
            if 0 < factor < math.inf and 0 < divisor < math.inf:
                return factor, match["rule"], divisor
    elif is_number(sigma):
        number = as_float(sigma)
        if 0 < number < math.inf:
            return number
    raise ValueError(
        f"sigma must be a positive number or a rule such as 'mean', 'mean/10', '2*rms' or "
        f"'0.3*range' (a positive factor or divisor of {', '.join(_RULES)}); got {shown(sigma)}."
    )


def _about_mean(X: MatrixLike) -> Any:
    X = check_points(X)
    return shift(X, centre(X))


_RULES = {"mean": mean_distance, "rms": rms_distance, "range": distance_range}
