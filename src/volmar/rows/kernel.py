"""Kernels given by a name or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import kernel_metrics

from volmar._checks import is_finite, shown
from volmar.rows.gaussian import gaussian_sums

# Maximum number of kernel values that are held at a time when rows are scored.
KERNEL_BLOCK = 2**23
# Kernels of scikit-learn whose compiled code supports neither read-only memory nor sparse rows.
NEEDS_WRITABLE = ("chi2", "additive_chi2")


class Kernel:
    """A kernel k(x, y), evaluated between two sets of rows.

    Parameters
    ----------
    kernel : str or callable
        A name known to `sklearn.metrics.pairwise.pairwise_kernels`; a function
        ``kernel(X, Y, **kernel_params)`` of two *matrices*, shapes (m, d) and (p, d), that
        returns the (m, p) kernel matrix, as for `sklearn.svm.SVC`; or "precomputed" if the given
        matrix already is the kernel matrix. A precomputed kernel cannot be evaluated.
    gamma : float, optional
        Coefficient of "rbf", "laplacian", "poly", "sigmoid" and "chi2". If None, scikit-learn's
        default is used, 1 / n_features (1 for "chi2").
    degree : float, default=3
        Degree of "poly".
    coef0 : float, default=1
        Constant of "poly" and "sigmoid".
    kernel_params : mapping, optional
        Arguments of a callable kernel.

    Notes
    -----
    As in scikit-learn, a named kernel uses those of gamma, degree and coef0 that it has, and
    ignores the others. The kernel matrix of float32 points is float32.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows import Kernel
    >>> Kernel("rbf", gamma=1.0)(np.array([[0.0]]), np.array([[0.0], [1.0]])).round(3)
    array([[1.   , 0.368]])
    """

    def __init__(
        self,
        kernel: str | Callable[..., Any],
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: Mapping[str, Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self._function: Callable[..., Any] | None = None
        self._arguments: dict[str, Any] = dict(kernel_params or {})
        if not (isinstance(kernel, str) or callable(kernel)):
            raise TypeError(
                f"kernel must be a name or a callable that takes two matrices, got "
                f"{shown(kernel)}."
            )
        if callable(kernel):
            if gamma is not None:
                raise ValueError(
                    f"gamma={shown(gamma)} has no meaning for a callable kernel. Pass it in "
                    "kernel_params instead."
                )
            self._function = kernel
            return
        if kernel_params:
            raise ValueError(
                f"kernel_params={shown(dict(kernel_params))} is only for callable kernels, but "
                f"kernel is {kernel!r}. Use gamma, degree and coef0."
            )
        if kernel == "precomputed":
            return
        functions = kernel_metrics()
        if kernel not in functions:
            raise ValueError(
                f"kernel={shown(kernel)} is not known. Use one of {sorted(functions)} or a "
                "callable that takes two matrices."
            )
        self._function = functions[kernel]
        offered = {"gamma": gamma, "degree": degree, "coef0": coef0}
        taken = inspect.signature(functions[kernel]).parameters
        self._arguments = {
            name: value for name, value in offered.items() if name in taken and value is not None
        }

    def gamma(self, n_features: int) -> float | None:
        """Return the coefficient gamma for rows with `n_features` features.

        It is None for kernels without gamma and for callable kernels.
        """
        if self._function is None or callable(self.kernel):
            return None
        parameter = inspect.signature(self._function).parameters.get("gamma")
        if parameter is None:
            return None
        value = self._arguments.get("gamma", parameter.default)
        return 1.0 / n_features if value is None else float(value)

    @property
    def precomputed(self) -> bool:
        """Whether the user's matrix is the kernel matrix itself."""
        return self._function is None

    def __call__(self, X: Any, Y: Any) -> np.ndarray:
        """Return the kernel matrix between the rows of X and those of Y, dense."""
        if self._function is None:
            raise ValueError("kernel='precomputed' cannot be evaluated between points.")
        if self.kernel in NEEDS_WRITABLE:
            if sparse.issparse(X) or sparse.issparse(Y):
                raise TypeError(
                    f"kernel={self.kernel!r} does not support sparse X. Pass X.toarray(), or use "
                    "another kernel."
                )
            X, Y = _writable(X), _writable(Y)
        with np.errstate(all="ignore"):  # overflow is refused below
            try:
                matrix = self._function(X, Y, **self._arguments)
            except ValueError as error:
                if type(error).__name__ != "InvalidParameterError":  # of scikit-learn
                    raise
                raise ValueError(f"kernel={self.kernel!r} cannot be computed: {error}") from error
        matrix = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)
        if matrix.shape != (X.shape[0], Y.shape[0]):
            raise ValueError(
                f"the callable kernel returned shape {matrix.shape} for matrices of shapes "
                f"{X.shape} and {Y.shape}, not {(X.shape[0], Y.shape[0])}. A function of two "
                "single points can be wrapped by sklearn.metrics.pairwise.pairwise_kernels."
            )
        if matrix.dtype.kind in "biu":
            matrix = matrix.astype(np.float64)
        elif matrix.dtype.kind != "f":
            raise TypeError(
                f"kernel={self.kernel!r} returned values of type {matrix.dtype}. It must return "
                "real numbers."
            )
        if not is_finite(matrix):
            raise ValueError(
                f"kernel={self.kernel!r} has NaN or infinite values on X. Scale X, or check the "
                f"kernel's parameters {self._arguments}."
            )
        return matrix

    def sums(
        self, X: Any, points: Any, coefficients: np.ndarray, offset: np.ndarray | None = None
    ) -> np.ndarray:
        """Return sum_j c_j k(x - offset, p_j) for every row x of X.

        Kernel values are computed block by block. For "rbf" and dense rows, `gaussian_sums` is
        used, which may compute in float32.
        """
        is_dense = not (sparse.issparse(X) or sparse.issparse(points))
        if self.kernel == "rbf" and is_dense:
            gamma = self._arguments.get("gamma", 1.0 / X.shape[1])
            return gaussian_sums(X, points, gamma, coefficients, offset)
        step = max(1, KERNEL_BLOCK // max(points.shape))
        blocks = [
            self(shifted(X[i : i + step], offset), points) @ coefficients
            for i in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks)


def shifted(X: Any, offset: np.ndarray | None) -> Any:
    """Return rows minus `offset` in their dtype; sparse rows become dense if there is one."""
    if offset is None:
        return X
    rows = X.toarray() if sparse.issparse(X) else X
    return (rows - offset).astype(X.dtype, copy=False)


def _writable(X: Any) -> Any:
    """Return X, or a copy if it is a read-only array, as those of data frames are."""
    return X if sparse.issparse(X) or X.flags.writeable else X.copy()
