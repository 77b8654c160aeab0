"""Many projections at once: their binned densities, and the deepest valley of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from volmar.evidence.modes.densities import missing_mass, smoothed
from volmar.evidence.modes.folded import FoldedSample, folded_sample

__all__ = ["Valley", "binned", "deepest_valleys", "valleys_of"]

# Bins of a projection: about three in a bandwidth.
N_BINS = 64
# Valleys below this share of the mode are rounding.
NO_VALLEY = 1e-6
# Integral of the squared Gaussian kernel, in bandwidths: the variance of a density estimate f of n
# points is this times f / n.
KERNEL_SQUARE = 0.5 / np.sqrt(np.pi)


class Valley(NamedTuple):
    """The deepest valley of a smoothed density.

    Attributes
    ----------
    place : float
        Where it is; NaN without one.
    depth : float
        One less the density there over that of the lower of the modes beside it: 0 without a
        valley, 1 for an empty gap.
    significance : float
        The difference of these densities in standard errors.
    """

    place: float
    depth: float
    significance: float


NO = Valley(float("nan"), 0.0, 0.0)


def binned(samples: Sequence[NDArray]) -> tuple[list[FoldedSample | None], NDArray, NDArray]:
    """Return samples on their grids, their shares in `N_BINS` bins, and smoothed densities.

    Samples without width are None, and have no row in shares and densities. Densities are shares
    of a sample in a bandwidth.
    """
    found = [folded_sample(np.asarray(x, dtype=np.float64)) for x in samples]
    folded = [sample for sample in found if sample is not None]
    if not folded:
        return found, np.empty((0, N_BINS)), np.empty((0, N_BINS))
    shares = np.array([_rebinned(sample.shares) for sample in folded])
    bandwidths = np.array([[N_BINS / (sample.shares.size * sample.step)] for sample in folded])
    return found, shares, smoothed(shares, bandwidths) * bandwidths


def _rebinned(shares: NDArray) -> NDArray:
    size = shares.size
    return np.bincount(np.arange(size) * N_BINS // size, shares, N_BINS)


def deepest_valleys(samples: Sequence[NDArray]) -> list[Valley]:
    """Return the valley of each sample that is deepest; see `Valley`."""
    found, _, densities = binned(samples)
    return valleys_of(found, densities)


def valleys_of(found: list[FoldedSample | None], densities: NDArray) -> list[Valley]:
    """Return the deepest valleys of what `binned` returns."""
    missing = missing_mass(densities)
    rows = iter(zip(missing, densities, strict=True))
    valleys = []
    for sample in found:
        if sample is None:
            valleys.append(NO)
            continue
        lack, density = next(rows)
        at = int(np.argmax(lack))
        if lack[at] <= NO_VALLEY * density.max():
            valleys.append(NO)
            continue
        place = sample.value_at((at + 0.5) * sample.shares.size / N_BINS - 0.5)
        lower = lack[at] + density[at]
        error = np.sqrt(KERNEL_SQUARE * (lower + density[at]) / sample.n)
        valleys.append(Valley(place, float(lack[at] / lower), float(lack[at] / error)))
    return valleys
