"""Scores of rows by separating hyperplanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.rows import DenseRows, SparseRows
from volmar.separation.pairwise_machines import least_scores
from volmar.separation.problem import SeparationRows

__all__ = ["SeparatingPlanes", "planes_of"]


@dataclass(frozen=True)
class SeparatingPlanes:
    """Hyperplanes in the coordinates of the data, or of features.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Taken off rows first.
    coefficients : ndarray of shape (d,) or (d, m)
        Directions.
    threshold : float or ndarray of shape (m,)
        Where they are cut.
    unit : float
        Scores are in units of it.
    pairs : ndarray of shape (m, 2) or None
        The two clusters that each direction separates; None for a direction a cluster, or one.
    feature_map : FeatureMap or None
        From rows to features.
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
