"""Conversion of arrays, sparse matrices and dask collections to row sources."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from volmar._memory import require_memory
from volmar.rows.blocks.convert import as_beside, as_table, is_dask
from volmar.rows.blocks.source import BlockRows
from volmar.rows.blocks.table import BlockTable
from volmar.rows.protocol import FeatureMap, RowSource, ScoringMap
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import DenseRows, MappedRows

# Maximum size of a feature matrix that is held in memory.
FEATURE_BYTES = 2**28


def as_rows(X: Any, *, sample_weight: Any = None) -> RowSource:
    """Return the row source of an array, a sparse matrix or a dask collection.

    Parameters
    ----------
    X : array, sparse matrix, dask array or DataFrame of shape (n, d)
        The rows. float32 and float64 arrays in C or Fortran order are used without a copy.
        Integers are converted to float64, and sparse formats to CSR. NaN and infinity are not
        checked.
    sample_weight : array of shape (n,), optional
        Non-negative sample weights. If None, every row has weight 1.

    Returns
    -------
    DenseRows, SparseRows or BlockRows

    Examples
    --------
    >>> from scipy import sparse
    >>> from volmar.rows import as_rows
    >>> as_rows(sparse.eye_array(3, format="csr")).mean().round(3)
    array([0.333, 0.333, 0.333])
    """
    if isinstance(X, BlockTable) or is_dask(X):
        table = as_table(X)
        if sample_weight is None:
            return BlockRows(table)
        return BlockRows(table, as_beside(table, sample_weight, "sample_weight"))
    if sparse.issparse(X):
        return SparseRows(X, sample_weight=sample_weight)
    return DenseRows(X, sample_weight=sample_weight)


def features_of(feature_map: FeatureMap, X: Any) -> Any:
    """Return the features of the rows of X, as an array or as a table in the blocks of X.

    Parameters
    ----------
    feature_map : FeatureMap
        A fitted map.
    X : array, sparse matrix or BlockTable of shape (n, d)
        The rows.

    Returns
    -------
    ndarray of shape (n, D) or BlockTable
    """
    if isinstance(X, BlockTable):
        return X.mapped(feature_map)
    n, size = X.shape[0], feature_map.transform(X[:1]).nbytes
    require_memory(
        2.0 * n * size,
        f"{size // X.dtype.itemsize} features of {n} rows",
        "Use fewer landmarks, or cluster a sample and use predict for the rest.",
    )
    return feature_map.transform(X)


def mapped_scores(feature_map: FeatureMap, X: Any, w: np.ndarray) -> Any:
    """Return the products of w with the features of the rows of X, computed tile by tile.

    Parameters
    ----------
    feature_map : FeatureMap
        A fitted map.
    X : array, sparse matrix or BlockTable of shape (n, d)
        The rows.
    w : ndarray of shape (D,) or (D, k)
        Directions.
    """
    if isinstance(X, BlockTable):
        return as_rows(X.mapped(feature_map)).scores(w)
    if isinstance(feature_map, ScoringMap):
        return feature_map.scores(X, w)
    return MappedRows(X, feature_map).scores(w)


def mapped_rows(feature_map: FeatureMap, X: Any, *, sample_weight: Any = None) -> RowSource:
    """Return the row source of the features of the rows of X.

    Feature matrices of up to 256 MB are held in memory. Larger ones, and features of rows in
    blocks, are computed in every pass.

    Parameters
    ----------
    feature_map : FeatureMap
        A fitted map.
    X : array, sparse matrix or BlockTable of shape (n, d)
        The rows.
    sample_weight : vector over the rows, optional
        Sample weights.
    """
    if isinstance(X, BlockTable):
        return as_rows(X.mapped(feature_map), sample_weight=sample_weight)
    width = feature_map.transform(X[:1]).shape[1]
    if X.shape[0] * width * X.dtype.itemsize > FEATURE_BYTES:
        return MappedRows(X, feature_map, sample_weight=sample_weight)
    return as_rows(feature_map.transform(X), sample_weight=sample_weight)


def scale_gamma(X: Any, sample_weight: Any = None) -> float:
    """Return scikit-learn's gamma="scale": 1 / (n_features * variance of all entries of X).

    Parameters
    ----------
    X : array or sparse matrix of shape (n, d)
        The rows.
    sample_weight : array of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    float
        The coefficient gamma; 1 if X is constant.
    """
    rows = as_rows(X, sample_weight=sample_weight)
    # Variance within the features plus variance between their means.
    within = rows.centered().mean_squared_norm() / rows.n_features
    variance = within + float(rows.mean().var())
    return 1.0 / (rows.n_features * variance) if variance > 0 else 1.0
