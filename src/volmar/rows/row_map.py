"""Rows scaled to unit length, after optional tf-idf weights and a truncated SVD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import randomized_svd, row_norms

from volmar.rows.anywhere import has_sparse_rows
from volmar.rows.convert import as_rows

__all__ = ["RowMap", "fit_row_map", "is_text", "unit_rows"]

# Sparse rows with more columns than this are handled as text.
TEXT_COLUMNS = 1000
# Default number of singular vectors to which text is reduced.
TEXT_COMPONENTS = 100
# Power iterations of the randomised decomposition, as in scikit-learn's TruncatedSVD.
N_ITER = 5


@dataclass(frozen=True, eq=False)
class RowMap:
    """A fitted map of rows to rows of unit length. Rows of zeros are not changed.

    With u(x) = x / ‖x‖ and V the matrix of `components`, a row x becomes u(x) or u(V u(x)). If
    `idf` is not None, the counts of words in x are first replaced by (1 + ln x_j) idf_j.

    Attributes
    ----------
    idf : ndarray of shape (n_features,) or None
        Inverse document frequencies of the columns. None if the columns are not counts of words.
    components : ndarray of shape (n_components, n_features) or None
        Orthonormal directions to which rows are reduced. None if they are not reduced.
    """

    idf: NDArray[np.float64] | None = None
    components: NDArray[np.float64] | None = None

    @property
    def is_reduced(self) -> bool:
        """Whether rows are reduced to `components`, rather than keeping the columns of X."""
        return self.components is not None

    def transform(self, X: Any) -> Any:
        """Return rows of unit length, in the dtype of X; CSR if X is CSR and not reduced."""
        rows = unit_rows(X if self.idf is None else _weighted(X, self.idf))
        if self.components is None:
            return rows
        return unit_rows(rows @ self.components.T.astype(rows.dtype))


def unit_rows(X: Any) -> Any:
    """Return rows, dense or CSR, divided by their length. Rows of zeros are not changed."""
    lengths = row_norms(X)
    lengths[lengths == 0.0] = 1.0
    if not sparse.issparse(X):
        return X / lengths[:, None]
    data = X.data / np.repeat(lengths, np.diff(X.indptr)).astype(X.dtype)
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def is_text(X: Any) -> bool:
    """Return whether rows are handled as text: sparse with more than 1000 columns."""
    return X.shape[1] > TEXT_COLUMNS and has_sparse_rows(as_rows(X))


def fit_row_map(
    X: Any,
    *,
    text_components: int | str | None = None,
    weights: NDArray | None = None,
    seed: int = 0,
) -> RowMap:
    r"""Return the map to rows of unit length, fitted to rows in memory.

    If the entries of text (see `is_text`) are non-negative integers, they are treated as counts of
    words. A count c of word j becomes

    .. math:: (1 + \ln c) \, idf_j, \qquad idf_j = 1 + \ln \frac{1 + n}{1 + n_j},

    where :math:`n_j` of the n rows contain the word (total weights if `weights` are given). This
    is scikit-learn's ``TfidfTransformer(sublinear_tf=True)``. Other entries are assumed to be
    weighted already.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        The rows.
    text_components : int, "auto" or None, default=None
        Number of leading right singular vectors, of the rows of unit length, to which sparse rows
        are reduced. It is limited to the number of rows and columns. If an integer, all sparse
        rows are handled as text. "auto" is 100 for text. If None, rows are not reduced.
    weights : ndarray of shape (n,), optional
        Sample weights. A weight of 2 is equivalent to repeating the row, up to the accuracy of the
        singular vectors.
    seed : int, default=0
        Random seed of the randomised decomposition.

    Examples
    --------
    >>> import numpy as np
    >>> from volmar.rows.row_map import fit_row_map
    >>> X = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> fit_row_map(X).transform(X)
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    if weights is not None:
        counted = np.flatnonzero(weights > 0)
        X, weights = X[counted], np.asarray(weights)[counted]
    count = TEXT_COMPONENTS if isinstance(text_components, str) else text_components
    is_asked = count is text_components and count is not None
    as_text = is_text(X) or (is_asked and sparse.issparse(X))
    idf = _idf(X, weights) if as_text and _are_counts(X.data) else None
    if count is None or not as_text:
        return RowMap(idf)
    rows = RowMap(idf).transform(X)
    if weights is not None:
        rows = sparse.diags_array(np.sqrt(weights).astype(rows.dtype)) @ rows
    most = min(count, *rows.shape)
    components = randomized_svd(rows, most, n_iter=N_ITER, random_state=seed)[2]
    return RowMap(idf, components.astype(np.float64))


def _weighted(X: Any, idf: NDArray) -> Any:
    """Return (1 + ln count) idf for every count, and refuse entries that are not counts."""
    is_sparse = sparse.issparse(X)
    counts = X.data if is_sparse else X
    if not _are_counts(counts):
        raise ValueError(
            "X must contain counts of words (non-negative integers), as in fit. Pass counts, or "
            "fit the model to weighted rows."
        )
    with np.errstate(divide="ignore"):
        weights = np.where(counts > 0, 1.0 + np.log(counts), 0.0)
    factors = idf.astype(X.dtype)
    if not is_sparse:
        return weights * factors
    return type(X)((weights * factors[X.indices], X.indices, X.indptr), shape=X.shape)


def _are_counts(values: NDArray) -> bool:
    return bool((values >= 0).all() and (values == np.rint(values)).all())


def _idf(X: Any, weights: NDArray | None) -> NDArray[np.float64]:
    n, d = X.shape
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    present = (X.data != 0).astype(np.float64)
    if weights is not None:
        present *= weights[rows]
    total = float(n) if weights is None else float(weights.sum())
    return 1.0 + np.log((1.0 + total) / (1.0 + np.bincount(X.indices, present, minlength=d)))
