"""The Cholesky feature map: exact features of a kernel from a triangular factor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from volmar.rows._kernel_map import KernelMap
from volmar.rows._validation import as_matrix

__all__ = ["CholeskyMap"]

# How far L L' may be from K, relative to K, before K is called indefinite.
_RESIDUAL = 1e-8


class CholeskyMap(KernelMap):
    """Features z(x) = L⁻¹ k(P, x), with K(P, P) = L L' for as many points P as K has rank.

    Pivoted Cholesky takes the training points in turn, each time the one that the features so far
    represent worst, and stops when what is left is rounding noise; a singular kernel matrix needs
    no jitter. On the training points z(x)' z(y) = k(x, y) exactly. It costs n r² instead of the
    n³ of an eigendecomposition, and new points need the kernel at the r pivots only.

    Parameters
    ----------
    kernel : str or callable, default="rbf"
        As for `NystroemMap`, or "precomputed": then `fit` takes the n × n kernel matrix of the
        training points and `transform` the kernel between new points and these.
    gamma, degree, coef0, kernel_params
        As for `NystroemMap`.

    Attributes
    ----------
    n_components : int
        The numerical rank r of the kernel matrix, known after `fit`.
    pivots_ : ndarray of shape (r,)
        The indices of the pivots P among the training points.
    n_features_in_ : int
        The number of features of X.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import CholeskyMap
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> Z = CholeskyMap("poly", degree=2, gamma=1.0).fit(X).transform(X)
    >>> Z.shape, bool(np.allclose(Z @ Z.T, (X @ X.T + 1) ** 2))
    ((30, 6), True)
    """

    def __init__(
        self,
        kernel: str | Callable[..., Any] = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            kernel, gamma=gamma, degree=degree, coef0=coef0, kernel_params=kernel_params
        )

    def fit(self, X: Any) -> Self:
        """Factor the kernel matrix of the rows of X (or X itself, precomputed)."""
        X = as_matrix(X)
        points, matrix, tolerance = self._training_kernel(X)
        scale = float(np.abs(matrix).max())
        if not np.isfinite(scale):
            raise ValueError("the kernel matrix holds NaN or infinity. Check X and the kernel.")
        if matrix.diagonal().max() <= 0:
            raise ValueError(
                "no point has a positive kernel value with itself, so that no feature can "
                "represent it. Use a positive semidefinite kernel."
            )
        factor, order, rank, _ = lapack.dpstrf(matrix, tol=tolerance * scale, lower=1)
        order = order - 1  # LAPACK counts from one
        lower = np.tril(factor)[:, :rank]
        _check_factor(matrix, lower, order, max(_RESIDUAL, tolerance) * scale)
        self.pivots_ = order[:rank]
        self._points = None if points is None else points[self.pivots_]
        self._lower = np.ascontiguousarray(lower[:rank])
        self._set_fitted(int(rank), X.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map rows (or rows of kernel values) to features, in the dtype of X."""
        X = self._check_new(X)
        if self._points is None:
            values = X[:, self.pivots_].astype(np.float64, copy=False)
        else:
            values = self._cross_kernel(X, self._points)
        features = linalg.solve_triangular(self._lower, values.T, lower=True).T
        return features.astype(X.dtype, copy=False)


def _check_factor(
    matrix: np.ndarray, lower: np.ndarray, order: np.ndarray, tolerance: float
) -> None:
    """Raise unless K = L L', by its diagonal and its action on one vector: n² instead of n² r.

    Where both agree the remainder K - L L' has no diagonal, and an indefinite one of that kind
    would have to be orthogonal to a random vector to go unseen.
    """
    probe = np.random.RandomState(0).standard_normal(order.size)
    residual = (matrix @ probe)[order] - lower @ (lower.T @ probe[order])
    own = matrix.diagonal()[order] - np.einsum("ij,ij->i", lower, lower)
    if max(np.abs(residual).max() / order.size, np.abs(own).max()) > tolerance:
        raise ValueError(
            "the kernel matrix is not positive semidefinite, so that no Cholesky factor exists. "
            "Use another kernel, or KernelPCAMap, which drops the negative part."
        )
