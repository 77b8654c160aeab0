"""Validation of points, numbers of neighbours and precomputed similarities."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from volmar._checks import check_magnitude, check_symmetric, shown
from volmar._input import check_matrix

#: An array, anything `numpy.asarray` takes, a data frame, or a scipy sparse matrix or array.
MatrixLike: TypeAlias = Any


def check_points(X: MatrixLike) -> Any:
    """Return points as a finite float array or canonical CSR array; float32 stays float32."""
    X = check_matrix(X, min_rows=2, may_be_small=True)
    return sp.csr_array(X) if sp.issparse(X) else X


def check_new_points(X: MatrixLike, rows: Any) -> Any:
    """Check new points, and return them in the dtype and format of the training points."""
    X = check_matrix(X, name="X_new", may_be_small=True)
    if X.shape[1] != rows.shape[1]:
        raise ValueError(
            f"X_new has {X.shape[1]} features, but the graph was built on {rows.shape[1]}. "
            "Pass the same columns."
        )
    if X.dtype.itemsize > rows.dtype.itemsize:
        check_magnitude(X, name="X_new", dtype=rows.dtype, may_be_small=True)
    if sp.issparse(X):
        X = sp.csr_array(X) if sp.issparse(rows) else X.toarray()
    elif sp.issparse(rows):
        X = sp.csr_array(X)
    return X.astype(rows.dtype, copy=False)


def check_n_neighbors(n_neighbors: int, n_points: int) -> int:
    """Return a valid number of neighbours, between 1 and n_points - 1."""
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, Integral):
        raise TypeError(f"n_neighbors must be an integer; got {shown(n_neighbors)}.")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1; got {shown(n_neighbors)}.")
    if n_neighbors >= n_points:
        raise ValueError(
            f"n_neighbors={shown(n_neighbors)} needs at least {shown(n_neighbors + 1)} points, "
            f"but there are {n_points}. Lower n_neighbors to at most {n_points - 1}."
        )
    return int(n_neighbors)


def is_constant(X: Any) -> bool:
    """Return whether all rows are the same point."""
    if sp.issparse(X):
        return bool((X.max(axis=0).toarray() == X.min(axis=0).toarray()).all())
    return bool((X[0] == X).all())


def refuse_constant(X: Any) -> None:
    """Raise ValueError if all points are the same, because they have no local scale."""
    if is_constant(X):
        raise ValueError(
            f"all {X.shape[0]} rows of X are the same point, so there is no local scale. Check "
            "that X was loaded correctly."
        )


def check_similarity(W: MatrixLike, *, name: str = "W") -> Any:
    """Validate a precomputed similarity matrix. The diagonal is used as given.

    If W and its transpose differ only by rounding (1e-8 of the largest similarity, 1e-5 in
    float32), their mean is returned, else W itself.
    """
    W = check_matrix(W, name=name, min_rows=2, is_scaled=False)
    if W.shape[0] != W.shape[1]:
        raise ValueError(
            f"{name} has shape {W.shape}, but a precomputed similarity has one row and one column "
            "per point. To start from points, use a named affinity instead of 'precomputed'."
        )
    if sp.issparse(W):
        W = sp.csr_array(W)
    check_nonnegative(W, name)
    if check_symmetric(W, name, tol=1e-5 if W.dtype == np.float32 else 1e-8) == 0:
        return W
    half = W.dtype.type(0.5)
    return sp.csr_array(half * (W + W.T)) if sp.issparse(W) else half * (W + W.T)


def check_nonnegative(W: Any, name: str) -> None:
    """Raise ValueError if any similarity is negative."""
    lowest = W.data.min(initial=0.0) if sp.issparse(W) else W.min(initial=0.0)
    if lowest < 0:
        raise ValueError(
            f"{name} has negative entries (smallest {lowest:.3g}), but similarities must be "
            "nonnegative. Clip them with np.maximum(W, 0), or use another similarity."
        )


def rows_over_sums(S: Any, *, points: str) -> Any:
    """Divide rows of nonnegative similarities by their sums, in float64."""
    total = np.asarray(S.sum(axis=1, dtype=np.float64)).ravel()
    if np.any(total <= 0):
        row = int(np.argmin(total))
        raise ValueError(
            f"row {row} of {points} has no positive similarity to any training row. Leave it out, "
            "or use an affinity that is positive for it."
        )
    if not sp.issparse(S):
        return S / total[:, None]
    S = sp.csr_array(S, dtype=np.float64, copy=True)
    # Entries are divided directly, because the reciprocal of a tiny sum would overflow.
    S.data /= np.repeat(total, np.diff(S.indptr))
    return S
