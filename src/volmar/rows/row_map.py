"""Rows by their directions: unit length, after the weights of words and a truncated SVD."""

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

# Sparse rows of more columns than this are text; of fewer they could be dense as well.
TEXT_COLUMNS = 1000
# Singular vectors to which text is reduced, unless a number is given.
TEXT_COMPONENTS = 100
# Power iterations of the randomised decomposition, as in scikit-learn's TruncatedSVD.
N_ITER = 5


@dataclass(frozen=True, eq=False)
class RowMap:
    """A fitted map of rows to rows of unit length; a row of zeros stays one.

    With u(x) = x / ‖x‖ and V the matrix of `components`, a row x becomes u(x) or u(V u(x)). Where
    there is an `idf`, the counts of words in x are first replaced by (1 + ln x_j) idf_j.

    Attributes
    ----------
    idf : ndarray of shape (n_features,) or None
        Weights of the columns, where these are counts of words.
    components : ndarray of shape (n_components, n_features) or None
        Directions that are kept, orthonormal.
    """

    idf: NDArray[np.float64] | None = None
    components: NDArray[np.float64] | None = None

    @property
    def is_reduced(self) -> bool:
        """Whether rows have other columns than those of X."""
        return self.components is not None

    def transform(self, X: Any) -> Any:
        """Return rows of unit length, in the dtype of X: CSR where X is and none are reduced."""
        rows = unit_rows(X if self.idf is None else _weighted(X, self.idf))
        if self.components is None:
            return rows
        return unit_rows(rows @ self.components.T.astype(rows.dtype))


def unit_rows(X: Any) -> Any:
    """Return rows, dense or CSR, divided by their length; rows of zeros stay as they are."""
    lengths = row_norms(X)
    lengths[lengths == 0.0] = 1.0
    if not sparse.issparse(X):
        return X / lengths[:, None]
    data = X.data / np.repeat(lengths, np.diff(X.indptr)).astype(X.dtype)
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def is_text(X: Any) -> bool:
    """Whether rows are handled as text: sparse, in memory or in blocks, with many columns."""
    return X.shape[1] > TEXT_COLUMNS and has_sparse_rows(as_rows(X))


def fit_row_map(
    X: Any,
    *,
    text_components: int | str | None = None,
    weights: NDArray | None = None,
    seed: int = 0,
) -> RowMap:
    r"""Return the map to rows of unit length, fitted to rows in memory.

    Text (see `is_text`) whose entries are whole numbers, not negative, is taken as counts of
    words. A count c of word j becomes

    .. math:: (1 + \ln c) \, idf_j, \qquad idf_j = 1 + \ln \frac{1 + n}{1 + n_j},

    where :math:`n_j` of the n rows have the word (their weights, with weights): as by
    scikit-learn's ``TfidfTransformer(sublinear_tf=True)``. Other entries are taken as weighted
    already.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        The rows.
    text_components : int, "auto" or None, default=None
        Number of leading right singular vectors of the rows of unit length to which sparse rows
        are reduced, at most as many as there are. With a number all sparse rows are handled as
        text. "auto" is 100 for text, and None keeps all directions.
    weights : ndarray of shape (n,), optional
        Weights of the rows; 2 is the same as writing the row twice, up to the accuracy of the
        singular vectors.
    seed : int, default=0
        Seed of the randomised decomposition.

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
    """Return (1 + ln count) idf of every count, and refuse entries that are no counts."""
    is_sparse = sparse.issparse(X)
    counts = X.data if is_sparse else X
    if not _are_counts(counts):
        raise ValueError(
            "X must hold counts of words, whole numbers that are not negative, as the rows of the "
            "fit did. Pass counts, or fit the model to weighted rows."
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
