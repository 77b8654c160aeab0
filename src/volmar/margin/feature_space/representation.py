"""The parameters `kernel`, `method` and `n_landmarks`, and the feature spaces they select."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from volmar._checks import check_random_state
from volmar._memory import require_memory
from volmar.base.kernel import EXACT_KERNEL_UP_TO, KernelMixin
from volmar.base.validation import check_choice, check_count
from volmar.margin.feature_space.kernel import KernelSpace
from volmar.margin.feature_space.linear import LandmarkSpace, LinearSpace
from volmar.rows import NystroemMap, drawn_rows, features_of, is_in_memory


class KernelRepresentation(KernelMixin):
    """Mixin that represents rows under a kernel, exactly or by landmarks."""

    # Rows are centred in the feature space, where a shift does not change the linear kernel.
    _kernels_of_differences = ("rbf", "laplacian", "linear")

    #: Values of `method`.
    _methods: ClassVar[tuple[str, ...]] = ("exact", "nystroem")
    #: Whether n_landmarks=None is allowed.
    _chooses_landmarks: ClassVar[bool] = False

    random_state: Any
    method: str
    n_landmarks: int | None

    def _check_representation(self) -> None:
        """Check the kernel, and whether `method` can represent it."""
        self._check_kernel()
        check_choice("method", self.method, self._methods)
        if self.n_landmarks is not None or not self._chooses_landmarks:
            check_count("n_landmarks", self.n_landmarks, low=2)
        if self.method == "nystroem" and self.kernel == "precomputed":
            raise ValueError(
                "method='nystroem' needs rows as landmarks, but kernel='precomputed'. Use "
                "method='exact', or give rows and the name of a kernel."
            )

    def _is_linear(self) -> bool:
        """Return whether the rows themselves are used, without a kernel."""
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _is_exact(self, n: int) -> bool:
        """Return whether n rows are represented by their whole kernel matrix."""
        if self.method == "auto":
            return n <= EXACT_KERNEL_UP_TO or self.kernel == "precomputed"
        return self.method == "exact"

    def _count_of_landmarks(self) -> Any:
        return self.n_landmarks

    def _centers(self) -> bool:
        """Return whether rows are centred in the feature space."""
        return True

    def _feature_space(self, X: Any, weights: Any) -> KernelSpace | LinearSpace:
        """Return the rows in the feature space of the kernel.

        Landmarks are rows drawn at random; to find them by k-means would take longer than the fit.
        """
        if self._is_linear():
            return LinearSpace(X, weights, center=self._centers())
        n = X.shape[0]
        if self._is_exact(n) and is_in_memory(X):
            require_memory(
                3.0 * 8 * n**2,
                f"the kernel matrix of {n} rows",
                "Use method='nystroem', or cluster a sample and use predict for the rest.",
            )
            K, expansion = self._kernel_matrix(X.astype(np.float64, copy=False), weights)
            return KernelSpace(K, weights, expansion, center=self._centers())
        n_counted = n if weights is None else int(np.count_nonzero(weights))
        count = min(self._count_of_landmarks(), n_counted)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        feature_map = NystroemMap(
            landmarks=drawn_rows(n, weights, count, rng), **self._kernel_arguments(X, weights)
        ).fit(X)
        features = features_of(feature_map, X)
        return LandmarkSpace(feature_map, features, weights, center=self._centers())
