"""Rows as they are, or in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from volmar._memory import require_memory
from volmar.base.kernel import KernelMixin
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LinearSpace


class KernelRepresentation(KernelMixin):
    """Mixin that represents rows by their whole kernel matrix, or as they are if it is linear."""

    # Rows are centred in the feature space, where a shift does not change the linear kernel.
    _kernels_of_differences = ("rbf", "laplacian", "linear")
    #: Advice for a kernel matrix that does not fit into memory.
    _memory_remedy = "Cluster a sample and use predict for the rest."

    def _centers(self) -> bool:
        """Return whether rows are centred in the feature space."""
        return True

    def _feature_space(self, X: Any, weights: Any) -> KernelSpace | LinearSpace:
        """Return the rows in the feature space of the kernel."""
        if self._is_linear():
            return LinearSpace(X, weights, center=self._centers())
        n = X.shape[0]
        require_memory(3.0 * 8 * n**2, f"the kernel matrix of {n} rows", self._memory_remedy)
        K, expansion = self._kernel_matrix(X.astype(np.float64, copy=False), weights)
        return KernelSpace(K, weights, expansion, center=self._centers())
