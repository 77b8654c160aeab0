"""The Gaussian similarity exp(-|x_i - x_j|² / 2σ²)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar import _memory
from volmar.graphs.bandwidth import parse_sigma, resolve_sigma
from volmar.graphs.distances import (
    BLOCK_ELEMENTS,
    centre,
    scale_exponents,
    shift,
    squared_distances,
    symmetric_exponentials,
)
from volmar.graphs.validation import MatrixLike, check_new_points, check_points

__all__ = ["GaussianSimilarity", "gaussian_similarity"]


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianSimilarity:
    """Recipe for the dense Gaussian similarity; see `gaussian_similarity` for the parameters."""

    sigma: float | str = "mean"
    self_loops: bool = True

    def __post_init__(self) -> None:
        parse_sigma(self.sigma)

    def build(self, X: MatrixLike) -> tuple[NDArray, GaussianExtension]:
        """Compute the similarities of all pairs, and the extension to new points."""
        X = check_points(X)
        require_dense(X.shape[0], X.dtype, "Gaussian")
        sigma = resolve_sigma(X, self.sigma)
        origin = centre(X)
        rows = shift(X, origin)
        W = symmetric_exponentials(rows, lambda D, *_: scale_exponents(D, sigma, sigma), X.dtype)
        if not self.self_loops:
            np.fill_diagonal(W, 0.0)
        return W, GaussianExtension(rows, origin, sigma)


class ExponentialExtension:
    """Similarities exp(E) of new points to the training points; subclasses compute E."""

    def __call__(self, X_new: MatrixLike) -> Any:
        """Return similarities of shape (m, n), dense or CSR like the graph."""
        return self._rows(X_new, lambda exponents: np.exp(exponents, out=exponents))

    def weights(self, X_new: MatrixLike) -> Any:
        """Return similarities divided by their row sums, without underflow for far points."""
        return self._rows(X_new, _softmax)

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> Any:
        """Return `function` of the exponents, which it may overwrite."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class GaussianExtension(ExponentialExtension):
    """Gaussian similarities of new points to the training points, with the fitted width."""

    rows: Any
    origin: NDArray | None
    sigma: float

    def _rows(self, X_new: MatrixLike, function: Callable[[NDArray], NDArray]) -> NDArray:
        X_new = check_new_points(X_new, self.rows)
        require_extension(X_new.shape[0], self.rows)
        D = squared_distances(shift(X_new, self.origin), self.rows)
        exponents = scale_exponents(D, self.sigma, self.sigma)
        return function(exponents).astype(self.rows.dtype, copy=False)


def gaussian_similarity(
    X: MatrixLike, *, sigma: float | str = "mean", self_loops: bool = True
) -> NDArray:
    """Compute the dense Gaussian similarity ``W_ij = exp(-|x_i - x_j|² / 2σ²)``.

    This is the similarity of JMLR 2013, section 8.1.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The points.
    sigma : float or str, default="mean"
        Width of the Gaussian, or a rule for it; see `resolve_sigma`.
    self_loops : bool, default=True
        Whether W_ii = 1, as in the JMLR paper. If False, W_ii = 0 (Ng, Jordan and Weiss).

    Returns
    -------
    ndarray of shape (n, n)
        Similarities in X's float dtype, exactly symmetric.

    Examples
    --------
    >>> from volmar.graphs import gaussian_similarity
    >>> gaussian_similarity([[0.0], [1.0]], sigma=1.0).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    """
    return GaussianSimilarity(sigma=sigma, self_loops=self_loops).build(X)[0]


def _softmax(exponents: NDArray) -> NDArray:
    """Return exp(E_ij) / Σ_j exp(E_ij), in place; subtract the largest exponent of a row first."""
    largest = exponents.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        row = int(np.argmin(np.isfinite(largest)))
        raise ValueError(
            f"row {row} of X is too far from every training row: all its similarities are 0. Use "
            "a larger sigma, or leave the row out."
        )
    exponents -= largest
    np.exp(exponents, out=exponents)
    exponents /= exponents.sum(axis=1, keepdims=True)
    return exponents


def require_dense(n: int, dtype: np.dtype, name: str) -> None:
    """Raise an error before allocating a dense similarity that does not fit into memory."""
    _memory.require_memory(
        n * n * dtype.itemsize + 4 * 8 * BLOCK_ELEMENTS,
        f"A dense {name} similarity of {n} points",
        "Use a sparse graph (local_scaling_similarity with graph='knn', or "
        "cosine_knn_similarity), or fewer points.",
    )


def require_extension(n_new: int, rows: Any) -> None:
    """Raise an error if the similarities of the new points do not fit into memory."""
    itemsize = rows.dtype.itemsize
    _memory.require_memory(
        n_new * rows.shape[0] * (8 if itemsize == 8 else 8 + itemsize),
        f"The dense similarity of {n_new} new points to {rows.shape[0]} training points",
        "Pass the new points in smaller batches.",
    )
