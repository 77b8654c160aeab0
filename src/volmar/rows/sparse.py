"""Rows of a sparse matrix, centred implicitly."""

# ruff: noqa: D102 -- described at RowSource

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from scipy import sparse

from volmar.rows._validation import as_block, as_matrix, selected_rows
from volmar.rows.moments import Moments
from volmar.rows.protocol import RowSource
from volmar.rows.tiled import TiledRows

# Fraction of non-zeros above which products of dense tiles are faster than the sparse product
# (measured equal at 0.1 for d = 100, 784 and 3000).
_DENSE_PRODUCT = 0.1
_BLOCK_ROWS = 65536


class SparseRows(TiledRows):
    """The rows of a sparse matrix, kept in CSR.

    Centring is implicit: Xw - offset'w and X'v - (Σv) offset. Second moments are the sparse
    product X'X, in float64, with rank-one corrections for the centre. Its error is relative to
    the square of the data, not of the centred data, which is harmless if most entries are 0.
    If a tenth or more of the entries are non-zero, tiles are made dense and centred instead.

    Parameters
    ----------
    X : sparse matrix or array of shape (n, d)
        The data. CSR in float32 or float64 is used without a copy; other formats are converted.
    sample_weight : array of shape (n,), optional
        Non-negative sample weights. If None, every row has weight 1.
    offset : array of shape (d,), optional
        Implicit centre: the rows as seen are x_i - offset. If None, there is no offset.
    """

    def __init__(self, X: Any, *, sample_weight: Any = None, offset: Any = None) -> None:
        if not sparse.issparse(X):
            raise TypeError(f"X must be sparse, got {type(X).__name__}. Use DenseRows or as_rows.")
        self.X = as_matrix(X)
        super().__init__(self.X.shape, self.X.dtype, sample_weight, offset)

    def scores(self, w: np.ndarray) -> np.ndarray:
        w = as_block(w, self.n_features, "w", "feature", self.dtype)
        return self._without_offset(self.X @ w, w)

    def combine(self, v: np.ndarray) -> np.ndarray:
        v = as_block(v, self.n_rows, "v", "row", self.dtype)
        total = np.zeros((self.n_features, *v.shape[1:]))
        for rows, block in self._blocks(None):
            product = block.T @ v[rows]
            total += product.toarray() if sparse.issparse(product) else product
        return self._without_offsets(total.T, v)

    def mean(self) -> np.ndarray:
        if self._mean is None:
            zero = np.zeros(self.n_features)
            self._mean = self._sparse_moments(None, zero, second=False).mean
        return self._mean.copy()

    def moments(
        self,
        mask: np.ndarray | None = None,
        *,
        center: np.ndarray | None = None,
        second: bool = True,
    ) -> Moments:
        if second and self.X.nnz >= _DENSE_PRODUCT * self.n_rows * self.n_features:
            return super().moments(mask, center=center, second=second)
        index = None if mask is None else selected_rows(mask, self.n_rows)
        return self._sparse_moments(index, self._center(center), second=second)

    def centered_with_moments(self) -> tuple[Self, Moments]:
        """Return `centered()`, and the moments about the mean, by two passes."""
        return RowSource.centered_with_moments(self)

    def mean_squared_norm(self) -> float:
        """Return the weighted mean of ``|x_i - offset|²``.

        Stored entries and zeros are summed separately, as sum (x_ij - o_j)² + sum_j o_j² (weight
        of the rows without an entry in column j). No digits cancel, even for a large offset.
        """
        offset = np.zeros(self.n_features) if self.offset is None else self.offset
        squares, present = 0.0, np.zeros(self.n_features)
        for rows, block in self._blocks(None):
            per_row = np.ones(block.shape[0]) if self.weights is None else self.weights[rows]
            weights = np.repeat(per_row, np.diff(block.indptr))
            centred = block.data - offset[block.indices]
            squares += float(np.einsum("i,i,i->", weights, centred, centred))
            present += np.bincount(block.indices, weights, self.n_features)
        absent = np.maximum(self.total_weight - present, 0.0)
        return (squares + float(absent @ offset**2)) / self.total_weight

    def _sparse_moments(
        self, index: np.ndarray | None, center: np.ndarray, *, second: bool
    ) -> Moments:
        weight, total = 0.0, np.zeros(self.n_features)
        products = self._empty_second() if second else None
        for rows, block in self._blocks(index):
            scaled, root, block_weight = self._weighted(block, rows)
            weight += block_weight
            total += scaled.T @ root
            if products is not None:
                products = products + (scaled.T @ scaled)
        origin = np.zeros(self.n_features) if self.offset is None else -self.offset
        return Moments(origin, weight, total, products).shifted(center)

    def _tile(self, rows: slice | np.ndarray) -> np.ndarray:
        return self.X[rows].toarray()

    def _blocks(self, index: np.ndarray | None) -> Iterator[tuple[slice | np.ndarray, Any]]:
        """Yield blocks of rows in CSR; blocks of consecutive rows are views of the data."""
        n = self.n_rows if index is None else index.size
        for start in range(0, n, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, n)
            if index is not None:
                rows = index[start:stop]
                yield rows, self.X[rows]
                continue
            first, last = self.X.indptr[start], self.X.indptr[stop]
            arrays = (
                self.X.data[first:last],
                self.X.indices[first:last],
                self.X.indptr[start : stop + 1] - first,
            )
            shape = (stop - start, self.n_features)
            yield slice(start, stop), sparse.csr_array(arrays, shape=shape)

    def _weighted(self, block: Any, rows: slice | np.ndarray) -> tuple[Any, np.ndarray, float]:
        """Return the rows times √w_i, in float64, the roots √w_i and Σw_i."""
        block = block.astype(np.float64, copy=False)
        if self.weights is None:
            return block, np.ones(block.shape[0]), float(block.shape[0])
        weights = self.weights[rows]
        root = np.sqrt(weights)
        scaled = block.copy()
        scaled.data *= np.repeat(root, np.diff(block.indptr))
        return scaled, root, float(weights.sum())
