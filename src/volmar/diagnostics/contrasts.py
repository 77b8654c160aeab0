"""Comparison of each cluster with the others by feature: means, effect sizes, t statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["Contrasts", "Standardised", "contrasts", "standardised"]

# Number of rows of a dense table that are processed at a time.
CHUNK = 50_000


@dataclass(frozen=True)
class Standardised:
    """Features in units of their standard deviations; a feature is ``values * scale + centre``.

    Dense `values` (n, p) are centred, with 0 for missing values. `known` is a mask of the values
    that are not missing, None if there are none missing. Sparse values are not centred. `varies`
    is a mask of the features that are not constant.
    """

    values: Any
    known: NDArray | None
    centre: NDArray
    scale: NDArray
    varies: NDArray

    def take(self, rows: NDArray) -> Standardised:
        """Return the given rows, on the same scale."""
        known = None if self.known is None else self.known[rows]
        return Standardised(self.values[rows], known, self.centre, self.scale, self.varies)


def standardised(values: Any) -> Standardised:
    """Return features in units of their standard deviations, without overflow."""
    if sparse.issparse(values):
        size = np.maximum(abs(values).max(axis=0).toarray().ravel(), np.finfo(float).tiny)
        scaled = values @ sparse.diags_array(1.0 / size)
        n = values.shape[0]
        mean = np.asarray(scaled.sum(axis=0)).ravel() / n
        square = np.asarray(scaled.multiply(scaled).sum(axis=0)).ravel() / n
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        varies = spread > 1e-7 * np.abs(mean)
        spread = np.where(varies, spread, 1.0)
        scaled = sparse.csr_array(scaled @ sparse.diags_array(1.0 / spread))
        return Standardised(scaled, None, np.zeros(size.size), size * spread, varies)
    missing = np.isnan(values)
    known = ~missing if missing.any() else None
    size = np.fmax.reduce(np.abs(values), axis=0, initial=np.finfo(float).tiny)
    out = values / size
    if known is not None:
        out[missing] = 0.0
    count = values.shape[0] if known is None else np.maximum(known.sum(axis=0), 1)
    # A two-pass computation of the standard deviation, to limit rounding errors.
    mean = out.sum(axis=0) / count
    out -= mean
    if known is not None:
        out[missing] = 0.0
    spread = np.sqrt(np.einsum("ij,ij->j", out, out) / count)
    varies = spread > 1e-14 * np.maximum(np.abs(mean), np.finfo(float).tiny)
    out /= np.where(varies, spread, 1.0)
    out[:, ~varies] = 0.0
    return Standardised(out, known, mean * size, size * np.where(varies, spread, 1.0), varies)


@dataclass(frozen=True)
class Contrasts:
    """Comparison of each of k clusters with the rows of the other clusters, without noise.

    `inside` and `outside` (k, p) are means of the known values in standardised units, NaN if there
    are none. `effect` is their difference divided by the pooled standard deviation; it is 0 for
    equal means and infinite if neither side varies. `t` is the difference divided by its standard
    error for a cluster drawn at random from the rows, ``diff / sqrt(v (1 / n_in + 1 / n_out))``
    with v the variance of all rows. It is an increasing function of the pooled t statistic, has
    mean 0 over random draws for any distribution of the feature, and is finite if neither side
    varies.
    """

    inside: NDArray
    outside: NDArray
    effect: NDArray
    t: NDArray


def contrasts(rows: Standardised, codes: NDArray, k: int) -> Contrasts:
    """Compare each of the clusters 0 to k - 1 with the others; a code of -1 is noise."""
    count, total, square = _sums(rows, codes, k)
    rest_count, rest_total = count.sum(axis=0) - count, total.sum(axis=0) - total
    with np.errstate(divide="ignore", invalid="ignore"):
        inside, outside = total / count, rest_total / rest_count
        within = np.maximum(square - total * inside, 0.0)
        rest_within = square.sum(axis=0) - square - rest_total * outside
        n_both = count + rest_count
        pooled = np.sqrt((within + np.maximum(rest_within, 0.0)) / np.maximum(n_both - 2, 1))
        mean = total.sum(axis=0) / n_both
        variance = np.maximum(square.sum(axis=0) / n_both - mean**2, 0.0)
        difference = inside - outside
        # Smaller values are rounding error of the difference of two sums of squares.
        flat = pooled <= 1e-7 * np.sqrt(variance)
        effect = np.where(flat, np.sign(difference) * np.inf, difference / pooled)
        effect = np.where(np.abs(difference) <= 1e-12, 0.0, effect)
        t = difference / np.sqrt(variance * (1.0 / count + 1.0 / rest_count))
    empty = (count == 0) | (rest_count == 0)
    effect = np.where(empty, np.nan, effect)
    t = np.where(empty | ~np.isfinite(t) | ~rows.varies, 0.0, t)
    return Contrasts(inside, outside, effect, t)


def _sums(rows: Standardised, codes: NDArray, k: int) -> tuple[NDArray, NDArray, NDArray]:
    """Return counts, sums and sums of squares of the known values by cluster."""
    n, p = rows.values.shape
    inside = np.flatnonzero(codes >= 0)
    member = sparse.csr_array((np.ones(inside.size), (codes[inside], inside)), shape=(k, n))
    sizes = np.bincount(codes[inside], minlength=k).astype(np.float64)
    count = np.repeat(sizes[:, None], p, axis=1)
    if sparse.issparse(rows.values):
        total = (member @ rows.values).toarray()
        return count, total, (member @ rows.values.multiply(rows.values)).toarray()
    total, square = np.zeros((k, p)), np.zeros((k, p))
    for start in range(0, n, CHUNK):
        block, some = rows.values[start : start + CHUNK], member[:, start : start + CHUNK]
        total += some @ block
        square += some @ block**2
    if rows.known is not None:
        count = member @ rows.known.astype(np.float64)
    return count, total, square
