"""Sums of Gaussian kernels at many rows, computed without the kernel matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

# Number of kernel values of a tile, which stay in the cache from the product to the sum.
TILE_VALUES = 2**17
# Maximum number of rows for which float64 is always used.
FLOAT64_UP_TO = 4096
# Maximum error of float32 sums, as a fraction of the standard deviation of the sums.
FLOAT32_LOSS = 1e-3
# Maximum of gamma R^2 for which exponents are expanded; beyond it, rounding shows in the sums.
LARGEST_EXPONENT = 1e9
# Number of points at which the standard deviation of the sums is measured.
PROBES = 200


def gaussian_sums(
    X: NDArray, points: NDArray, gamma: float, coefficients: NDArray, offset: NDArray | None = None
) -> NDArray:
    r"""Return :math:`f(x) = \sum_j c_j \exp(-\gamma |x - p_j|^2)` for every row x of X.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows, float32 or float64.
    points : ndarray of shape (m, d)
        The points p_j.
    gamma : float
        Kernel coefficient.
    coefficients : ndarray of shape (m,) or (m, k)
        The coefficients c_j of one function, or of k functions.
    offset : ndarray of shape (d,), optional
        Offset that is subtracted from the rows of X. It has been subtracted from `points` already.

    Returns
    -------
    ndarray of shape (n,) or (n, k)
        The sums, float64.

    Notes
    -----
    The exponents :math:`2\gamma x'p_j - \gamma |x|^2 - \gamma |p_j|^2`, about the mean of the
    points, take one matrix product per tile. More than 4096 rows are computed in float32 if the
    error bound :math:`\epsilon \sum_j |c_j| (1 + 4 \gamma R^2)`, with R the largest distance of a
    point from the mean of the points, is below 1e-3 of the standard deviation of f at the points.
    Otherwise float64 is used. The bound assumes that all rounding errors add up; measured errors
    are a tenth of it or less. If :math:`\gamma R^2` is above 1e9, which outliers can cause,
    rounding would make exponents positive. Differences of rows and points are then squared
    instead.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows.gaussian import gaussian_sums
    >>> gaussian_sums(np.array([[0.0], [1.0]]), np.array([[0.0]]), 1.0, np.array([2.0])).round(3)
    array([2.   , 0.736])
    """
    if len(points) == 0:
        return np.zeros((len(X), *coefficients.shape[1:]))
    centre = points.mean(axis=0, dtype=np.float64)
    # In the dtype of the rows, from which it is subtracted without a conversion.
    shift = (centre if offset is None else centre + offset).astype(X.dtype)
    centred = points - (shift.astype(np.float64) if offset is None else shift - offset)
    if gamma * np.einsum("ij,ij->i", centred, centred).max() > LARGEST_EXPONENT:
        return _sums_of_differences(X, points, gamma, coefficients, offset)
    dtype: Any = np.float64
    if X.shape[0] > FLOAT64_UP_TO and _takes_float32(centred, gamma, coefficients):
        dtype = np.float32
    return _tiled_sums(X, shift, centred, gamma, coefficients, dtype)


def _sums_of_differences(
    X: NDArray, points: NDArray, gamma: float, coefficients: NDArray, offset: NDArray | None
) -> NDArray:
    """Return the sums at the rows of X minus `offset`, from differences to every point."""
    sums = np.empty((len(X), *coefficients.shape[1:]))
    step = max(1, TILE_VALUES // max(points.shape))
    for start in range(0, len(X), step):
        rows = X[start : start + step].astype(np.float64)
        if offset is not None:
            rows -= offset
        kernel = np.exp(-gamma * cdist(rows, points, "sqeuclidean"))
        sums[start : start + step] = kernel @ coefficients
    return sums


def _takes_float32(points: NDArray, gamma: float, coefficients: NDArray) -> bool:
    """Return whether float32 sums are accurate to `FLOAT32_LOSS`; `points` are centred."""
    radius = float(np.einsum("ij,ij->i", points, points).max())
    size = np.abs(coefficients).sum(axis=0) * (1.0 + 4.0 * gamma * radius)
    probes = points[:: -(-len(points) // PROBES)]
    values = _tiled_sums(
        probes, np.zeros(points.shape[1]), points, gamma, coefficients, np.float64
    )
    rounding = float(np.finfo(np.float32).eps)
    return bool(np.all(rounding * size <= FLOAT32_LOSS * values.std(axis=0)))


def _tiled_sums(
    X: NDArray, shift: NDArray, points: NDArray, gamma: float, coefficients: NDArray, dtype: Any
) -> NDArray:
    """Return the sums at the rows of X minus `shift`; `points` are centred."""
    n, (m, d) = X.shape[0], points.shape
    # The exponents are the products of (x, |x|^2, 1) with this matrix.
    factor = np.empty((d + 2, m), dtype=dtype)
    factor[:d] = 2.0 * gamma * points.T
    factor[d] = -gamma
    factor[d + 1] = -gamma * np.einsum("ij,ij->i", points, points)
    c = coefficients.astype(dtype)
    step = max(1, min(n, TILE_VALUES // max(m, d)))
    tile, values = np.ones((step, d + 2), dtype=dtype), np.empty((step, m), dtype=dtype)
    # Differences of float64 rows are rounded to float32, not the rows.
    wide = np.empty((step, d)) if X.dtype.itemsize > tile.itemsize else tile[:, :d]
    shift = shift.astype(wide.dtype, copy=False)
    sums = np.empty((n, *c.shape[1:]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n, step):
            rows = X[start : start + step]
            part, kernel = tile[: len(rows)], values[: len(rows)]
            np.subtract(rows, shift, out=wide[: len(rows)])
            if wide.dtype != dtype:
                part[:, :d] = wide[: len(rows)]
            np.einsum("ij,ij->i", part[:, :d], part[:, :d], out=part[:, d])
            np.matmul(part, factor, out=kernel)
            total = np.exp(kernel, out=kernel) @ c
            if dtype == np.float32 and not np.isfinite(total).all():  # squares overflow float32
                total = _tiled_sums(rows, shift, points, gamma, coefficients, np.float64)
            sums[start : start + len(rows)] = total
    return sums
