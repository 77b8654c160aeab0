"""The base class of the feature maps, and the positive part of a kernel matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import NotFittedError

from volmar._checks import check_symmetric, fix_signs
from volmar._eigen import eigenpairs
from volmar._memory import require_memory
from volmar._warn import warn_user
from volmar.rows._validation import as_matrix
from volmar.rows.kernel import Kernel

# Relative size below which an eigenvalue of a float64 kernel matrix counts as rounding error.
_RELATIVE_RANK = 1e-12
# Fraction of the eigenvalues' weight that may be negative without a warning.
_NEGATIVE_SHARE = 0.01


def rank_tolerance(size: int, dtype: Any) -> float:
    """Return the relative size below which an eigenvalue counts as rounding error."""
    return max(_RELATIVE_RANK, size * float(np.finfo(dtype).eps))


class KernelMap:
    """Base class of the feature maps, with the kernel, the checks and the memory test.

    A subclass calls `_set_fitted` at the end of its `fit`.
    """

    def __init__(self, kernel: str | Callable[..., Any], **parameters: Any) -> None:
        self._kernel = Kernel(kernel, **parameters)
        self._n_components = 0
        self.n_features_in_: int | None = None

    @property
    def n_components(self) -> int:
        """The number of features, available after `fit`."""
        self._check_fitted()
        return self._n_components

    @property
    def kernel(self) -> str | Callable[..., Any]:
        """The name of the kernel, or the kernel function."""
        return self._kernel.kernel

    @property
    def gamma(self) -> float | None:
        """The coefficient gamma in use after `fit`, or None for kernels without gamma."""
        self._check_fitted()
        return self._kernel.gamma(self.n_features_in_ or 1)

    def _set_fitted(self, n_components: int, n_features: int) -> None:
        self._n_components = n_components
        self.n_features_in_ = n_features

    def _check_fitted(self) -> None:
        if self.n_features_in_ is None:
            raise NotFittedError(f"{type(self).__name__} has not been fitted. Call fit(X) first.")

    def _check_new(self, X: Any) -> Any:
        """Check that the map is fitted, and that X has the same number of features as in fit."""
        self._check_fitted()
        X = as_matrix(X)
        if X.shape[1] != self.n_features_in_:
            what = "columns (training points)" if self._kernel.precomputed else "features"
            raise ValueError(
                f"X has {X.shape[1]} {what}, but the map was fitted to {self.n_features_in_}."
            )
        return X

    def _cross_kernel(self, X: Any, points: Any) -> np.ndarray:
        n, m = X.shape[0], points.shape[0]
        require_memory(
            2 * n * m * max(X.dtype.itemsize, points.dtype.itemsize),
            f"The kernel between {n} rows and {m} points",
            "Use MappedRows, which computes the features tile by tile.",
        )
        return self._kernel(X, points)

    def _training_kernel(self, X: Any) -> tuple[Any, np.ndarray, float]:
        """Return the points (None if precomputed), their kernel matrix and its rank tolerance.

        The matrix is a new float64 array. float32 points are converted to float64 first, since an
        exact factor of a matrix rounded to float32 would not be a factor of the kernel.
        """
        n = X.shape[0]
        require_memory(
            4 * 8 * n**2, f"The kernel matrix of {n} points", "Use NystroemMap instead."
        )
        if not self._kernel.precomputed:
            points = X.astype(np.float64)  # a copy: the map outlives X
            return points, self._symmetric_kernel(points), rank_tolerance(n, np.float64)
        if sparse.issparse(X):
            raise TypeError("a precomputed kernel matrix must be dense. Pass K.toarray().")
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                "with kernel='precomputed', fit takes the square kernel matrix of the training "
                f"points, got shape {X.shape}."
            )
        check_symmetric(X, "K", what="the kernel matrix")
        return None, X.astype(np.float64), rank_tolerance(n, X.dtype)

    def _symmetric_kernel(self, points: Any) -> np.ndarray:
        matrix = np.array(self._kernel(points, points), dtype=np.float64)
        check_symmetric(matrix, "K", what="the kernel matrix")
        return matrix


def positive_part(
    matrix: np.ndarray,
    tolerance: float,
    *,
    scale: float = 0.0,
    n_components: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive eigenvalues, largest first, and their eigenvectors.

    Eigenvalues below `tolerance` times the maximum of the largest eigenvalue, the largest entry
    and `scale` (the size of the numbers that the matrix was computed from) are dropped, since
    their inverse roots would be noise. The entry of largest modulus of each eigenvector is made
    positive, so that the result does not depend on LAPACK's signs. Since trace = Σ λ, the weight
    of the negative eigenvalues is at least Σ_{computed λ > 0} λ - trace; they need not be
    computed.
    """
    m = matrix.shape[0]
    leading = None if n_components is None else (m - n_components, m - 1)
    values, vectors = eigenpairs(matrix, leading)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > tolerance * max(values[0], scale, np.abs(matrix).max())
    if not kept.any():
        raise ValueError(
            "the kernel matrix has no positive eigenvalue above rounding error: all the points "
            "look alike to this kernel. Check that X is not constant, and the kernel's parameters."
        )
    values, vectors = values[kept], vectors[:, kept]
    positive = float(values.sum())
    negative = max(positive - float(np.trace(matrix)), 0.0)
    if negative > _NEGATIVE_SHARE * (positive + negative):
        warn_user(
            f"the kernel is not positive semidefinite: {negative / (positive + negative):.0%} of "
            "its eigenvalues' weight is negative and is dropped. The features approximate only "
            "its positive part. Use a positive semidefinite kernel (e.g. 'rbf') to avoid this."
        )
    return values, np.ascontiguousarray(fix_signs(vectors))
