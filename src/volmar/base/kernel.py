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

from volmar._checks import check_symmetric, shown
from volmar.base.validation import check_count, check_number
from volmar.rows import Kernel, as_rows, counted_rows, scale_gamma
from volmar.rows.kernel import shifted

# Up to this many rows methods on a feature map take a kernel exactly, at O(n^3) ...
EXACT_KERNEL_UP_TO = 1000
# ... and by this many landmarks beyond, or where landmarks are asked for without their number.
N_LANDMARKS = 100


@dataclass(frozen=True)
class KernelExpansion:
    """Functions f(x) = sum_j c_j k(x_j, x) of the training rows x_j.

    `rows` are the x_j less `offset`, which is taken off new rows, too; None where kernel values
    are given instead of rows.
    """

    kernel: Kernel
    rows: Any
    offset: NDArray | None

    @property
    def gamma(self) -> float | None:
        """Coefficient of the kernel; None where it has none, or kernel values are given."""
        return None if self.rows is None else self.kernel.gamma(self.rows.shape[1])

    def __call__(self, X: Any, coefficients: NDArray) -> NDArray:
        """Evaluate f at new rows, or at rows of given kernel values; a column for a function."""
        if self.rows is None:
            return np.asarray(X @ coefficients)
        return self.kernel.sums(X, self.rows, coefficients, self.offset)


class KernelMixin:
    """The parameters `kernel`, `gamma`, `degree`, `coef0` and `kernel_params` of an estimator.

    `_check_kernel` is for the check of parameters; `_kernel_arguments` for a feature map, or
    `_kernel_matrix` for the matrix and the expansion that scores new rows. The estimator declares
    the five parameters in its own __init__, checks memory before it asks for the matrix, and
    stands behind the mixin: ``class Method(KernelMixin, Clusterer)``.
    """

    #: Kernels under which the method's clusters do not change when all rows are moved: moving them
    #: to their mean first keeps the digits that an offset would eat.
    _kernels_of_differences: ClassVar[tuple[str, ...]] = ("rbf", "laplacian")

    #: Rules that gamma may be, for an error.
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
        """Raise a clear error for parameters of the kernel that are wrong for any data."""
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
        """Return gamma, or the rule that "auto" stands for in methods that know it."""
        return self.gamma

    def _check_gamma(self) -> None:
        rule = self._gamma_rule()
        if isinstance(rule, str):
            _parse_gamma(rule, self._gamma_words)
        elif rule is not None:
            check_number("gamma", rule, low=0.0, open_low=True)

    def _kernel_arguments(self, X: Any, weights: Any) -> dict[str, Any]:
        """Return the arguments of `Kernel` and of the feature maps; `weights` count in gamma."""
        return {
            "kernel": self.kernel,
            "gamma": self._resolved_gamma(X, weights),
            "degree": self.degree,
            "coef0": self.coef0,
            "kernel_params": self.kernel_params,
        }

    def _feature_map(self, X: Any, weights: Any, n_components: int | None = None) -> Any:
        """Return a fitted map to features whose inner products are those of the kernel.

        X are the rows or a precomputed kernel matrix; rows of weight 0 are left out, and weights
        do not count otherwise but in gamma. `n_components` is the number of landmarks, or of
        leading components of a precomputed kernel; None takes up to 1000 rows and a precomputed
        kernel exactly, and 100 landmarks beyond.
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
        """Return the dense kernel matrix of the rows, in their dtype, and expansions in them."""
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
                # The model outlives X, which may change. And a product of one array with itself
                # is rounded in another way than that of two, such as X and rows from a file.
                rows = X.copy()
        check_symmetric(K, "K", what="the kernel matrix")
        return K, KernelExpansion(kernel, rows, offset)

    def _scales_gamma(self) -> bool:
        """Whether gamma follows from the rows."""
        is_named = isinstance(self.kernel, str) and self.kernel != "precomputed"
        return is_named and isinstance(self.gamma, str)

    def _resolved_gamma(self, X: Any, weights: Any) -> float | None:
        rule = self._gamma_rule()
        if not isinstance(rule, str):
            return rule
        return gamma_by_rule(rule, X, weights) if self._scales_gamma() else None


def used_gamma(kernel: Any, gamma: float | None, X: Any) -> float | None:
    """Return the coefficient of a kernel on the rows of X, None for a kernel without one."""
    return None if callable(kernel) else Kernel(kernel, gamma=gamma).gamma(X.shape[1])


def gamma_by_rule(rule: str, X: Any, weights: Any) -> float:
    """Return gamma by a rule: a multiple of "scale" or of "rms", such as "4*scale" or "rms/4".

    "scale" is scikit-learn's, 1 / (n_features * variance of all entries of X). "rms" is the
    Gaussian kernel whose standard deviation is the root of the mean squared distance of two rows:
    a quarter of "scale" where the columns have the same mean.
    """
    factor, name = _parse_gamma(rule)
    if name == "scale":
        return factor * scale_gamma(X, weights)
    square = as_rows(X, sample_weight=weights).centered().mean_squared_norm()
    if square == 0.0:
        raise ValueError(
            f"gamma={rule!r} measures the distances between rows, and all rows of X (with a "
            "weight) are the same. Give gamma as a number, or check that X was loaded correctly."
        )
    return factor / (4.0 * square)


_RULE = re.compile(r"(?:([\d.]+)\s*\*\s*)?(scale|rms)(?:\s*/\s*([\d.]+))?")


def _parse_gamma(gamma: str, words: str = "'scale', 'rms'") -> tuple[float, str]:
    """Return factor and name of a rule: (4, "scale") for "4*scale"; refuse anything else."""
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
