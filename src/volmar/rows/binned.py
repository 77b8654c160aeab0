"""Sums over the rows of each bin of their scores."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from volmar.rows.tiled import TiledRows

__all__ = ["BinSums", "tiled_bin_sums"]

# Rows that are summed into bins at a time: the sums are long, and made anew for each part.
BINNED_ROWS = 2**16


class BinSums(NamedTuple):
    """Sums over the rows of each of some bins.

    Attributes
    ----------
    weight : ndarray of shape (n_bins,)
        Weight of the rows.
    scores : ndarray of shape (n_bins,)
        Weighted sum of their scores.
    vectors : ndarray of shape (n_bins, d)
        Weighted sum of the rows as seen.
    rows, labelled : ndarray of shape (n_bins,)
        Number of rows, and of those among the given ones.
    """

    weight: np.ndarray
    scores: np.ndarray
    vectors: np.ndarray
    rows: np.ndarray
    labelled: np.ndarray


def tiled_bin_sums(
    source: TiledRows, w: np.ndarray, low: float, high: float, n_bins: int, labels: Any = None
) -> BinSums:
    """Return the sums of rows in memory (see `volmar.rows.bin_sums`)."""
    p = source.scores(w).astype(np.float64, copy=False)
    bins = np.clip((p - low) * (n_bins / (high - low)), 0, n_bins - 1).astype(np.int32)
    rows: Any = np.bincount(bins, None, n_bins)
    labelled = rows if labels is None else np.bincount(bins, labels, n_bins).astype(np.int64)
    weight: Any = rows.astype(np.float64)
    weighted = p
    if source.weights is not None:
        weight, weighted = np.bincount(bins, source.weights, n_bins), source.weights * p
    scores = np.bincount(bins, weighted, n_bins)
    vectors: Any = 0.0
    for start in range(0, source.n_rows, BINNED_ROWS):
        part = slice(start, min(start + BINNED_ROWS, source.n_rows))
        size = part.stop - part.start
        ones = np.ones(size) if source.weights is None else source.weights[part]
        # A column for each row, with its weight in the place of its bin.
        places = sparse.csc_array((ones, bins[part], np.arange(size + 1)), (n_bins, size))
        sums = places @ source._tile(part).astype(np.float64, copy=False)
        vectors = sums if start == 0 else vectors + sums
    if source.offset is not None:
        vectors -= np.outer(weight, source.offset)
    return BinSums(weight, scores, vectors, rows, labelled)
