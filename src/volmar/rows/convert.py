"""From what a user has to a row source."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from volmar._memory import require_memory
from volmar.rows.blocks.convert import as_beside, as_table, is_dask, mapped_blocks
from volmar.rows.blocks.source import BlockRows
from volmar.rows.blocks.table import BlockTable
from volmar.rows.protocol import FeatureMap, RowSource, ScoringMap
from volmar.rows.sparse import SparseRows
from volmar.rows.tiled import DenseRows, MappedRows

# Features up to this size are held at once.
FEATURE_BYTES = 2**28


def as_rows(X: Any, *, sample_weight: Any = None) -> RowSource:
    """Return the row source of an array or a sparse matrix.

    Parameters
    ----------
    X : array, sparse matrix, dask array or DataFrame of shape (n, d)
        float32 and float64 are kept, C and Fortran order too, without a copy; integers become
        float64 and other sparse formats CSR. NaN and infinity are left to the caller.
    sample_weight : array of shape (n,), optional
        Sample weights, not negative.

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
    """Return the features of the rows of X: an array, or a table in the blocks of X.

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


def rows_through(row_map: FeatureMap, X: Any) -> Any:
    """Return the rows that a map makes of those of X, in place of these, as rows or in blocks.

    In contrast to `features_of`, everything that looks at single rows sees those of the map, too.
    """
    if isinstance(X, BlockTable):
        return mapped_blocks(X, row_map.transform)
    return row_map.transform(X)


def mapped_scores(feature_map: FeatureMap, X: Any, w: np.ndarray) -> Any:
    """Return the products of w with the features of the rows of X, which are not held.

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

    Features of up to 256 MB are held; larger ones, and those of rows in blocks, are computed as
    they are read.

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
        1 where X is constant.
    """
    rows = as_rows(X, sample_weight=sample_weight)
    # Within the features, and between their means.
    within = rows.centered().mean_squared_norm() / rows.n_features
    variance = within + float(rows.mean().var())
    return 1.0 / (rows.n_features * variance) if variance > 0 else 1.0
