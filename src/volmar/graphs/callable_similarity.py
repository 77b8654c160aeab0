"""A similarity given as a function of two sets of points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from volmar._input import check_matrix
from volmar.graphs.validation import (
    MatrixLike,
    check_new_points,
    check_nonnegative,
    check_points,
    check_similarity,
    rows_over_sums,
)

__all__ = ["CallableSimilarity"]


@dataclass(frozen=True, eq=False)
class CallableSimilarity:
    """Recipe for the similarity ``W = function(X, X)``, used as given, diagonal included.

    Parameters
    ----------
    function : callable
        ``function(X, Y)`` takes two sets of rows, dense or CSR as the training points are, and
        returns their nonnegative similarities, dense or sparse, of shape (len(X), len(Y));
        ``function(X, X)`` must be symmetric. Bind parameters with `functools.partial`. Estimators
        fitted with it can be pickled if the function can.

    Examples
    --------
    >>> from sklearn.metrics.pairwise import laplacian_kernel
    >>> from volmar.graphs import CallableSimilarity
    >>> W, extension = CallableSimilarity(laplacian_kernel).build([[0.0], [1.0]])
    >>> W.round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    >>> extension.weights([[0.0]]).round(3)
    array([[0.731, 0.269]])
    """

    function: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        if isinstance(self.function, type) or not callable(self.function):
            what = self.function if isinstance(self.function, type) else type(self.function)
            raise TypeError(
                "function must be a callable that takes two sets of rows and returns their "
                f"similarities, such as sklearn.metrics.pairwise.rbf_kernel; got {what.__name__}."
            )

    def build(self, X: MatrixLike) -> tuple[Any, CallableExtension]:
        """Build the similarity, and its extension to new points."""
        X = check_points(X)
        W = check_similarity(_matrix(self.function, X, X, "affinity(X, X)"), name="affinity(X, X)")
        # A copy, because the caller may change X before new points are compared with it.
        return W, CallableExtension(self.function, X.copy())


@dataclass(frozen=True, eq=False)
class CallableExtension:
    """Similarities of new points to the training points, by the function itself."""

    function: Callable[[Any, Any], Any]
    rows: Any

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), dense or CSR like the output of the function."""
        X_new = check_new_points(X_new, self.rows)
        name = "affinity(X_new, X)"
        S = _matrix(self.function, X_new, self.rows, name)
        S = check_matrix(S, name=name, is_scaled=False)
        check_nonnegative(S, name)
        return S

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities divided by their row sums; raise ValueError if a row has none."""
        return rows_over_sums(self(X_new), points="X_new")


def _matrix(function: Callable[[Any, Any], Any], A: Any, B: Any, name: str) -> Any:
    """Call the function, and check that it returns one entry for each pair of rows."""
    S = function(A, B)
    S = S if sp.issparse(S) else np.asarray(S)
    if S.shape != (A.shape[0], B.shape[0]):
        raise ValueError(
            f"{name} has shape {S.shape} and must have {(A.shape[0], B.shape[0])}. An affinity "
            "takes two sets of rows and returns a similarity for each pair, like "
            "sklearn.metrics.pairwise.rbf_kernel."
        )
    return S
