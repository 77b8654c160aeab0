"""The rows of a separation problem, as all starts see them, and scores by separating planes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar.rows import DenseRows, RowSpace, SparseRows, Standardized
from volmar.separation.gep import RegularizedCorrelation


@dataclass(frozen=True)
class SeparationRows:
    """Rows in units of their standard deviations, with what does not depend on the labels.

    X are the rows, or their features under the kernel whose `feature_map` it is, and z the same,
    standardised. `min_weight` is the minimum weight of a cluster.
    """

    X: Any
    z: Standardized
    regularized: RegularizedCorrelation
    feature_map: Any
    min_weight: float

    @property
    def given(self) -> Any:
        """Rows in the units of the user, for k-means: only distances count."""
        return self.z.own_units if isinstance(self.z, RowSpace) else self.X

    @property
    def scaled(self) -> Any:
        """Rows in standard deviations, for k-means."""
        if isinstance(self.z, RowSpace):
            return self.z.T
        scale = 1.0 / self.z.scale
        rows = self.X.multiply(scale).tocsr() if sparse.issparse(self.X) else self.X * scale
        return rows.astype(self.X.dtype, copy=False)

    @property
    def min_share(self) -> float:
        """Minimum share of a cluster."""
        return self.min_weight / self.z.rows.total_weight

    def with_reg(self, reg: float) -> RegularizedCorrelation:
        """Return R + reg I: the one there is, where it has this `reg`."""
        if reg == self.regularized.reg:
            return self.regularized
        return RegularizedCorrelation(self.z.correlation, reg)


@dataclass(frozen=True)
class SeparatingPlanes:
    """Hyperplanes in the coordinates of the data, or of features of the `feature_map`.

    Rows less `mean`, times the `coefficients` (d,) or (d, m), are cut at `threshold`, and scores
    are in units of `unit`. `pairs` (m, 2) are the two clusters that each direction separates; None
    for a direction a cluster, or one.
    """

    mean: NDArray
    coefficients: NDArray
    threshold: Any
    unit: float = 1.0
    pairs: NDArray | None = None
    feature_map: Any = None

    def __call__(self, X: Any) -> NDArray:
        """Return the scores of rows, dense or CSR: (n,), or (n, k) of more than two clusters."""
        if self.feature_map is not None:
            X = self.feature_map.transform(X)
        kind = DenseRows if isinstance(X, np.ndarray) else SparseRows
        rows = kind(X, offset=self.mean)
        scores = rows.scores(self.coefficients) - np.asarray(self.threshold, dtype=rows.dtype)
        scores /= rows.dtype.type(self.unit)
        if self.pairs is None:
            return scores
        return least_scores(scores, self.pairs, int(self.pairs.max()) + 1)


def planes_of(rows: SeparationRows, w: NDArray, threshold: Any, **more: Any) -> SeparatingPlanes:
    """Return the planes of directions w of standardised rows."""
    z, features = rows.z, rows.feature_map
    return SeparatingPlanes(z.mean, z.coefficients(w), threshold, feature_map=features, **more)


def least_scores(scores: NDArray, pairs: NDArray, k: int) -> NDArray:
    """Return for each row and cluster the least of its scores against the others, (n, k)."""
    least = np.full((scores.shape[0], k), np.inf, dtype=scores.dtype)
    for column, (one, other) in zip(scores.T, pairs, strict=True):
        np.minimum(least[:, one], column, out=least[:, one])
        np.minimum(least[:, other], -column, out=least[:, other])
    return least
