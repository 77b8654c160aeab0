"""The kernel PCA feature map: exact features of a centred kernel."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np

from volmar.rows._kernel_map import KernelMap, positive_part
from volmar.rows._validation import as_matrix
from volmar.rows.blocks.table import BlockTable


class KernelPCAMap(KernelMap):
    """Features of the centred kernel in the basis of its principal components.

    With k_c(x, y) = <φ(x) - m, φ(y) - m>, m the mean of the training points' φ, and the centred
    training kernel matrix K_c = U Λ U', the features are z(x) = Λ^{-1/2} U' (k(x) - K1/n). On the
    training points z(x)' z(y) = k_c(x, y) exactly when all components are kept. (The remaining
    terms of k_c(x) are constant over the training points, to which every column of U is
    orthogonal.)

    Parameters
    ----------
    n_components : int, optional
        The number of leading components to keep. If None, all components above rounding error are
        kept, at most n - 1.
    kernel : str or callable, default="rbf"
        The kernel, as for `NystroemMap`, or "precomputed". With "precomputed", `fit` takes the
        n × n kernel matrix of the training points, and `transform` the kernel between new points
        and training points.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel, as for `NystroemMap`.

    Attributes
    ----------
    n_components : int
        The number of components kept, available after `fit`.
    eigenvalues_ : ndarray of shape (n_components,)
        The eigenvalues Λ, largest first.
    n_features_in_ : int
        The number of features of X.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import KernelPCAMap
    >>> X = np.random.default_rng(0).normal(size=(30, 2))
    >>> Z = KernelPCAMap(kernel="linear").fit(X).transform(X)
    >>> Xc = X - X.mean(axis=0)
    >>> Z.shape, bool(np.allclose(Z @ Z.T, Xc @ Xc.T))
    ((30, 2), True)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: str | Callable[..., Any] = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            kernel, gamma=gamma, degree=degree, coef0=coef0, kernel_params=kernel_params
        )
        if n_components is not None and not isinstance(n_components, numbers.Integral):
            raise TypeError(f"n_components must be an integer or None, got {n_components!r}.")
        self._wanted_components = n_components

    def fit(self, X: Any) -> Self:
        """Decompose the centred kernel matrix of the rows of X (or X itself if precomputed)."""
        X = X[:] if isinstance(X, BlockTable) else as_matrix(X)
        points, matrix, tolerance = self._training_kernel(X)
        n = matrix.shape[0]
        wanted = self._wanted_components
        if wanted is not None and not 1 <= wanted <= n:
            raise ValueError(
                f"n_components={wanted} must be between 1 and the number of points, {n}, or None."
            )
        scale = float(np.abs(matrix).max())
        column_means = matrix.mean(axis=0)
        matrix -= column_means
        matrix -= column_means[:, np.newaxis] - column_means.mean()
        values, vectors = positive_part(matrix, tolerance, scale=scale, n_components=wanted)
        self._points = points
        self._column_means = column_means
        # Eigenvectors of small eigenvalues are orthogonal to 1 only to a few digits. With their
        # means subtracted, the projection also centres a row of kernel values.
        vectors -= vectors.mean(axis=0)
        self._projection = vectors / np.sqrt(values)
        self.eigenvalues_ = values
        self._set_fitted(values.size, X.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map rows (or rows of kernel values) to features, in the dtype of X."""
        X = self._check_new(X)
        values = X if self._points is None else self._cross_kernel(X, self._points)
        features = (values - self._column_means) @ self._projection
        return features.astype(X.dtype, copy=False)

    def scores(self, X: Any, w: np.ndarray) -> np.ndarray:
        """Return z(x)'w for every row, in the dtype of X, without computing features.

        See `gaussian_sums` for the precision of "rbf".
        """
        X = self._check_new(X)
        coefficients = self._projection @ w
        if self._points is None:
            sums = X @ coefficients
        else:
            sums = self._kernel.sums(X, self._points, coefficients)
        return (sums - self._column_means @ coefficients).astype(X.dtype, copy=False)
