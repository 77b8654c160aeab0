"""Rows of features that are computed as they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar.rows._validation import as_matrix
from volmar.rows.protocol import FeatureMap
from volmar.rows.tiled import TiledRows

__all__ = ["MappedRows"]


class MappedRows(TiledRows):
    """The rows of ``feature_map.transform(X)``, computed tile by tile in every pass.

    The n × D features are never held at once. Where they fit in memory,
    ``DenseRows(feature_map.transform(X))`` computes them once and is much faster.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        The points, dense or sparse.
    feature_map : fitted feature map
        Anything whose ``transform`` turns rows into rows of a dense array: `NystroemMap`,
        `KernelPCAMap`, or a transformer of scikit-learn's.
    sample_weight : array of shape (n,), optional
        Sample weights, not negative.
    offset : array of shape (D,), optional
        The rows are seen as z(x_i) - offset.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import MappedRows, NystroemMap
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> feature_map = NystroemMap("rbf", landmarks=20, random_state=0).fit(X)
    >>> MappedRows(X, feature_map).n_features
    20
    """

    def __init__(
        self,
        X: Any,
        feature_map: FeatureMap,
        *,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> None:
        self.X = as_matrix(X)
        self.feature_map = feature_map
        first = feature_map.transform(self.X[:1])
        if not isinstance(first, np.ndarray):
            raise TypeError(
                f"feature_map.transform must return a dense array, got {type(first).__name__}."
            )
        shape = (self.X.shape[0], first.shape[1])
        super().__init__(shape, first.dtype, sample_weight, offset)

    @property
    def _widest(self) -> int:
        return max(self.n_features, self.X.shape[1])

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        return self.feature_map.transform(self.X[rows])
