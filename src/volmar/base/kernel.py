"""Shared code of estimators with a `kernel`: parameters, kernel matrix, scores of new rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from volmar._checks import check_symmetric, shown
from volmar.base.validation import check_count, check_number
from volmar.rows import Kernel, as_rows, counted_rows, scale_gamma
from volmar.rows.kernel import shifted

# Maximum number of rows for which feature maps are exact, in O(n^3) time.
EXACT_KERNEL_UP_TO = 1000
# Number of landmarks for more rows, or if landmarks are requested without a number.
N_LANDMARKS = 100


@dataclass(frozen=True)
class KernelExpansion:
    """Functions f(x) = sum_j c_j k(x_j, x) of the training rows x_j.

    `rows` are the x_j minus `offset`, which is also subtracted from new rows. `rows` is None if
    kernel values are given instead of rows.
    """

    kernel: Kernel
    rows: Any
    offset: NDArray | None

    @property
    def gamma(self) -> float | None:
        """Coefficient of the kernel; None if it has none or if kernel values are given."""
        return None if self.rows is None else self.kernel.gamma(self.rows.shape[1])

    def __call__(self, X: Any, coefficients: NDArray) -> NDArray:
        """Evaluate functions f, one per column of coefficients, at new rows or kernel values."""
        if self.rows is None:
            return np.asarray(X @ coefficients)
        return self.kernel.sums(X, self.rows, coefficients, self.offset)


class KernelMixin:
    """The parameters `kernel`, `gamma`, `degree`, `coef0` and `kernel_params` of an estimator.

    `_check_kernel` checks the parameters, `_kernel_arguments` returns the arguments of a feature
    map, and `_kernel_matrix` returns the matrix and the expansion that scores new rows. The
    estimator declares the five parameters in its own __init__, and checks memory before it
    requests the matrix. The mixin comes first in the bases:
    ``class Method(KernelMixin, Clusterer)``.
    """

    #: Kernels for which a shift of all rows does not change the clusters. Rows are then centred
    #: first, because a large offset would cost digits.
    _kernels_of_differences: ClassVar[tuple[str, ...]] = ("rbf", "laplacian")

    #: Valid rules for gamma, for error messages.
    _gamma_words: ClassVar[str] = "'scale', 'rms'"

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    kernel_params: Any
    random_state: Any

    def _is_linear(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "linear"

    def _check_kernel(self) -> None:
        """Raise a clear error for kernel parameters that are invalid for any data."""
        self._check_gamma()
        if self.kernel_params is not None and not isinstance(self.kernel_params, Mapping):
            raise TypeError(
                "kernel_params must be a dict of arguments for a callable kernel, or None, got "
                f"{shown(self.kernel_params)}."
            )
        if isinstance(self.kernel, type) or not (
            isinstance(self.kernel, str) or callable(self.kernel)
        ):
            raise TypeError(
                "kernel must be a name or a callable that takes two matrices, got "
                f"{shown(self.kernel)}."
            )
        check_number("degree", self.degree, low=1.0)
        check_number("coef0", self.coef0)

    def _gamma_rule(self) -> Any:
        """Return gamma, or the rule used for "auto" in methods that support it."""
        return self.gamma

    def _check_gamma(self) -> None:
        rule = self._gamma_rule()
        if isinstance(rule, str):
            _parse_gamma(rule, self._gamma_words)
        elif rule is not None:
            check_number("gamma", rule, low=0.0, open_low=True)

    def _kernel_arguments(self, X: Any, weights: Any) -> dict[str, Any]:
        """Return the arguments of `Kernel` and of feature maps; gamma depends on `weights`."""
        return {
            "kernel": self.kernel,
            "gamma": self._resolved_gamma(X, weights),
            "degree": self.degree,
            "coef0": self.coef0,
            "kernel_params": self.kernel_params,
        }

    def _feature_map(self, X: Any, weights: Any, n_components: int | None = None) -> Any:
        """Return a fitted map to features whose inner products are the kernel values.

        X holds the rows, or a precomputed kernel matrix. Rows of weight 0 are left out; apart from
        that, weights affect only gamma. `n_components` is the number of landmarks, or of leading
        components of a precomputed kernel. If None, the map is exact for up to 1000 rows and for a
        precomputed kernel, and uses 100 landmarks otherwise.
        """
        from volmar.rows import KernelPCAMap, NystroemMap

        arguments = self._kernel_arguments(X, weights)
        is_precomputed = self.kernel == "precomputed"
        points = X if is_precomputed else counted_rows(X, weights)
        n = points.shape[0]
        if n_components is not None:
            n_components = check_count("n_components", n_components, high=n)
        if is_precomputed or (n_components is None and n <= EXACT_KERNEL_UP_TO):
            return KernelPCAMap(n_components, **arguments).fit(points)
        count = N_LANDMARKS if n_components is None else n_components
        landmarks = NystroemMap(**arguments, landmarks=count, random_state=self.random_state)
        return landmarks.fit(points)

    def _kernel_matrix(
        self, X: Any, weights: NDArray | None = None
    ) -> tuple[NDArray, KernelExpansion]:
        """Return the dense kernel matrix of the rows, in their dtype, and its expansion."""
        kernel = Kernel(**self._kernel_arguments(X, weights))
        rows, offset = None, None
        if kernel.precomputed:
            K = X.toarray() if sparse.issparse(X) else X
        else:
            if self.kernel in self._kernels_of_differences and not sparse.issparse(X):
                offset = X.mean(axis=0, dtype=np.float64)
            rows = shifted(X, offset)
            K = kernel(rows, rows)
            if rows is X:
                # The caller may change X later. Also, the product of an array with itself is
                # rounded differently from the product of two equal arrays.
                rows = X.copy()
        check_symmetric(K, "K", what="the kernel matrix")
        return K, KernelExpansion(kernel, rows, offset)

    def _scales_gamma(self) -> bool:
        """Return whether gamma is computed from the rows."""
        is_named = isinstance(self.kernel, str) and self.kernel != "precomputed"
        return is_named and isinstance(self.gamma, str)

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        rule = self._gamma_rule()
        if not isinstance(rule, str):
            return rule
        return gamma_by_rule(rule, X, weights) if self._scales_gamma() else None


def used_gamma(kernel: Any, gamma: float | None, X: Any) -> float | None:
    """Return the coefficient of a kernel on the rows of X, or None if it has none."""
    return None if callable(kernel) else Kernel(kernel, gamma=gamma).gamma(X.shape[1])


def gamma_by_rule(rule: str, X: Any, weights: Any) -> float:
    """Return gamma by a rule: a multiple of "scale" or of "rms", such as "4*scale" or "rms/4".

    "scale" is scikit-learn's rule, 1 / (n_features * variance of all entries of X). With "rms",
    the standard deviation of the Gaussian kernel is the root mean squared distance of two rows.
    This gamma is a quarter of "scale" if all columns have the same mean.
    """
    factor, name = _parse_gamma(rule)
    if name == "scale":
        return factor * scale_gamma(X, weights)
    square = as_rows(X, sample_weight=weights).centered().mean_squared_norm()
    if square == 0.0:
        raise ValueError(
            f"gamma={rule!r} depends on the distances between rows, but all rows of X with "
            "positive weight are equal. Give gamma as a number, or check that X was loaded "
            "correctly."
        )
    return factor / (4.0 * square)


_RULE = re.compile(r"(?:([\d.]+)\s*\*\s*)?(scale|rms)(?:\s*/\s*([\d.]+))?")


def _parse_gamma(gamma: str, words: str = "'scale', 'rms'") -> tuple[float, str]:
    """Return factor and name of a rule, such as (4, "scale") for "4*scale"."""
    match = _RULE.fullmatch(gamma.strip())
    try:
        factor = float(match[1] or 1) / float(match[3] or 1)  # type: ignore[index]
    except (TypeError, ValueError, ZeroDivisionError):
        factor = 0.0
    if match is None or not 0.0 < factor < math.inf:
        raise ValueError(
            f"gamma must be a positive number, None, {words} or a multiple of a rule "
            f"such as '4*scale' or 'scale/4', got {gamma!r}."
        )
    return factor, match[2]
