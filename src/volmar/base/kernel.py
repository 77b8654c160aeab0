"""What estimators with a `kernel` share: its parameters, its matrix, its sums over new rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import check_symmetric
from volmar.base.validation import check_number
from volmar.rows import Kernel, scale_gamma

# Kernel values held at a time when new rows are scored.
KERNEL_BLOCK = 2**23


@dataclass(frozen=True)
class KernelExpansion:
    """Functions f(x) = sum_j c_j k(x_j, x) of the training rows x_j.

    Attributes
    ----------
    kernel : Kernel
        k.
    rows : matrix or None
        The x_j less `offset`; None where kernel values are given instead of rows.
    offset : ndarray of shape (n_features,) or None
        What is taken off new rows, too; None for nothing.
    """

    kernel: Kernel
    rows: Any
    offset: NDArray | None

    def __call__(self, X: Any, coefficients: NDArray) -> NDArray:
        """Evaluate f at new rows, or at rows of given kernel values; a column for a function."""
        if self.rows is None:
            return np.asarray(X @ coefficients)
        # A block of kernel values at a time: all of them would be n_new x n_training.
        step = max(1, KERNEL_BLOCK // max(self.rows.shape))
        blocks = [
            self.kernel(_shifted(X[i : i + step], self.offset), self.rows) @ coefficients
            for i in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks)


class KernelMixin:
    """The parameters `kernel`, `gamma`, `degree`, `coef0` and `kernel_params` of a `Clusterer`.

    `_check_kernel` is for `_check_parameters`, `_kernel_matrix` for `_problem`; the expansion that
    comes with the matrix is all that `_scores` needs of the training rows. The estimator declares
    the five parameters in its own __init__, checks memory before it asks for the matrix, and
    stands behind the mixin: ``class Method(KernelMixin, Clusterer)``.
    """

    #: Kernels under which the method's clusters do not change when all rows are moved: moving them
    #: to their mean first keeps the digits that an offset would eat.
    _kernels_of_differences: ClassVar[tuple[str, ...]] = ("rbf", "laplacian")

    #: Words that gamma may be, for an error.
    _gamma_words: ClassVar[str] = "'scale'"

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    kernel_params: Any

    def _check_kernel(self) -> None:
        """Raise a clear error for parameters of the kernel that no data could make right."""
        self._check_gamma()
        if self.kernel_params is not None and not isinstance(self.kernel_params, Mapping):
            raise TypeError(
                "kernel_params must be a dict of arguments for a callable kernel, or None, got "
                f"{self.kernel_params!r}."
            )
        named = self.kernel if isinstance(self.kernel, str) else None
        if named in ("poly", "polynomial"):
            check_number("degree", self.degree, low=0.0, open_low=True)
        if named in ("poly", "polynomial", "sigmoid"):
            check_number("coef0", self.coef0)

    def _check_gamma(self) -> None:
        if isinstance(self.gamma, str):
            _factor_of_scale(self.gamma, self._gamma_words)
        elif self.gamma is not None:
            check_number("gamma", self.gamma, low=0.0, open_low=True)

    def _kernel_matrix(
        self, X: Any, weights: NDArray | None = None
    ) -> tuple[NDArray, KernelExpansion]:
        """Return the dense kernel matrix of the training rows, and expansions in them.

        Its dtype is that of the rows. `weights` count in gamma="scale".
        """
        kernel = Kernel(
            self.kernel,
            gamma=self._resolved_gamma(X, weights),
            degree=self.degree,
            coef0=self.coef0,
            kernel_params=self.kernel_params,
        )
        rows, offset = None, None
        if kernel.precomputed:
            K = X.toarray() if sparse.issparse(X) else X
        else:
            if self.kernel in self._kernels_of_differences and not sparse.issparse(X):
                offset = X.mean(axis=0, dtype=np.float64)
            rows = _shifted(X, offset)
            K = kernel(rows, rows)
        check_symmetric(K, "K", what="the kernel matrix")
        return K, KernelExpansion(kernel, rows, offset)

    def _resolved_gamma(self, X: Any, weights: NDArray | None) -> float | None:
        if not isinstance(self.gamma, str):
            return self.gamma
        if not isinstance(self.kernel, str) or self.kernel == "precomputed":
            return None
        return _factor_of_scale(self.gamma) * scale_gamma(X, weights)


_RULE = re.compile(r"(?:(?P<factor>[\d.]+)\s*\*\s*)?scale(?:\s*/\s*(?P<divisor>[\d.]+))?")


def _factor_of_scale(gamma: str, words: str = "'scale'") -> float:
    """Return 4 for "4*scale", 0.25 for "scale/4" and 1 for "scale"; refuse anything else."""
    match = _RULE.fullmatch(gamma.strip())
    try:
        factor, divisor = (float(match[name] or 1) for name in ("factor", "divisor"))  # type: ignore[index]
        value = factor / divisor
    except (TypeError, ValueError, ZeroDivisionError):
        value = 0.0
    if not 0.0 < value < math.inf:
        raise ValueError(
            f"gamma must be a positive number, None, {words} or a multiple of it such as "
            f"'4*scale' or 'scale/4', got {gamma!r}."
        )
    return value


def _shifted(X: Any, offset: NDArray | None) -> Any:
    """Rows less `offset`, in their own dtype; dense where there is an offset."""
    if offset is None:
        return X
    rows = X.toarray() if sparse.issparse(X) else X
    return (rows - offset).astype(X.dtype, copy=False)
