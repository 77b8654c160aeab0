"""The parameters `kernel`, `method` and `n_landmarks`, and the feature spaces they ask for."""

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
    """Rows under the kernel of an estimator: exactly, or by landmarks."""

    # Rows are centred in the feature space, where the linear kernel does not mind a shift either.
    _kernels_of_differences = ("rbf", "laplacian", "linear")

    #: Values of `method`.
    _methods: ClassVar[tuple[str, ...]] = ("exact", "nystroem")
    #: Whether n_landmarks=None is allowed.
    _chooses_landmarks: ClassVar[bool] = False

    random_state: Any
    method: str
    n_landmarks: int | None

    def _check_representation(self) -> None:
        """Check the kernel, and whether it can be represented as asked for."""
        self._check_kernel()
        check_choice("method", self.method, self._methods)
        if self.n_landmarks is not None or not self._chooses_landmarks:
            check_count("n_landmarks", self.n_landmarks, low=2)
        if self.method == "nystroem" and self.kernel == "precomputed":
            raise ValueError(
                "method='nystroem' needs rows to take landmarks from, and kernel is "
                "'precomputed'. Use method='exact', or give rows and a kernel's name."
            )

    def _is_linear(self) -> bool:
        """Whether the rows are taken as they are."""
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _is_exact(self, n: int) -> bool:
        """Whether n rows are represented by their whole kernel matrix."""
        if self.method == "auto":
            return n <= EXACT_KERNEL_UP_TO or self.kernel == "precomputed"
        return self.method == "exact"

    def _count_of_landmarks(self) -> Any:
        return self.n_landmarks

    def _centers(self) -> bool:
        """Whether rows are centred in the feature space."""
        return True

    def _feature_space(self, X: Any, weights: Any) -> KernelSpace | LinearSpace:
        """Return the rows under the kernel.

        Landmarks are rows drawn at random: k-means for them would take longer than the fit.
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
