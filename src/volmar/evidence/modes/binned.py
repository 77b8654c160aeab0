"""Binning of many samples at once, on the grids of the mode test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import smoothed
from volmar.evidence.modes.folded import (
    MIN_SIZE,
    OVERHANG,
    FoldedSample,
    bandwidth_of,
    folded_sample,
    is_far_group,
    middle_nine_tenths,
)

__all__ = ["N_BINS", "BinnedSamples", "binned"]

# Number of bins of a sample, about three per bandwidth.
N_BINS = 64


@dataclass(frozen=True, eq=False)
class BinnedSamples:
    """Samples in `N_BINS` bins each; the shares of a sample without width are 0.

    Attributes
    ----------
    shares : ndarray of shape (m, N_BINS)
        Share of each sample in its bins.
    n : ndarray of shape (m,)
        Number of values in the bins.
    low, bandwidth : ndarray of shape (m,)
        The 5th percentile and the bandwidth of each sample.
    start, step : ndarray of shape (m,)
        Start and width of the bins, in bandwidths from `low`.
    folds : dict of int to FoldedSample
        Samples with a folded tail, by their index.
    """

    shares: NDArray[np.float64]
    n: NDArray[np.int64]
    low: NDArray[np.float64]
    bandwidth: NDArray[np.float64]
    start: NDArray[np.float64]
    step: NDArray[np.float64]
    folds: dict[int, FoldedSample]

    @cached_property
    def densities(self) -> NDArray[np.float64]:
        """Smoothed densities (m, N_BINS), as shares per bandwidth."""
        widths = 1.0 / self.step[:, None]
        return smoothed(self.shares, widths) * widths

    def values_at(self, bins: NDArray) -> NDArray[np.float64]:
        """Return the value (m,) of each sample at a position in units of its bins."""
        places = self.start + bins * self.step
        for i, sample in self.folds.items():
            places[i] = np.interp(places[i], sample.folded, sample.unfolded)
        return np.asarray(self.low + self.bandwidth * places)


def binned(samples: Sequence[NDArray]) -> BinnedSamples:
    """Bin samples, each on its grid from `folded_sample`."""
    m = len(samples)
    samples = [x if x.size else np.zeros(1) for x in samples]
    sizes = np.array([x.size for x in samples], dtype=np.int64)
    is_table = m > 0 and bool((sizes == sizes[0]).all())
    values = np.array(samples, dtype=np.float64) if is_table else np.concatenate([[], *samples])

    def spread(a: NDArray) -> NDArray:
        return a[:, None] if is_table else np.repeat(a, sizes)

    low, high = middle_nine_tenths(values, None if is_table else sizes)
    bandwidth = bandwidth_of(sizes, high - low)
    usable = (sizes >= MIN_SIZE) & (bandwidth > 0)
    bandwidth = np.where(usable, bandwidth, 1.0)
    width = np.where(usable, (high - low) / bandwidth, 1.0)
    start, step = -OVERHANG * width, (1.0 + 2.0 * OVERHANG) * width / N_BINS
    # Two more bins, for values beyond the others on either side.
    with np.errstate(over="ignore"):
        values = (values - spread(low)) / spread(bandwidth * step)
        values += spread(1.0 - start / step)
    at = np.clip(values, 0, N_BINS + 1, out=values).astype(np.int64)
    at += spread((N_BINS + 2) * np.arange(m))
    counts = np.bincount(at.ravel(), minlength=m * (N_BINS + 2)).reshape(m, N_BINS + 2)
    n = counts[:, 1:-1].sum(axis=1)
    shares = counts[:, 1:-1] / np.maximum(n, 1)[:, None]
    folds = {}
    for i in np.flatnonzero(usable & is_far_group(counts[:, [0, -1]].max(axis=1), sizes)):
        sample = folded_sample(np.asarray(samples[i], dtype=np.float64))
        if sample is None:
            usable[i] = False
            continue
        folds[int(i)] = sample
        size = sample.shares.size
        shares[i] = np.bincount(np.arange(size) * N_BINS // size, sample.shares, N_BINS)
        n[i], step[i] = sample.n, size * sample.step / N_BINS
        start[i] = sample.start - 0.5 * sample.step
    shares[~usable | (n < MIN_SIZE)] = 0.0
    return BinnedSamples(shares, n, low, bandwidth, start, step, folds)
