"""Rows as a user gives them: checked once, never edited, copied only where that is needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, validate_data

from volmar._checks import check_magnitude

__all__ = [
    "FLOATS",
    "check_labelled_rows",
    "check_matrix",
    "check_rows",
    "checking",
    "kind_of_classes",
    "refuse_masked",
]

#: Types that are kept; others become the first.
FLOATS = [np.float64, np.float32]
# Characters of a message of scikit-learn that are shown.
_LONGEST = 600
# How messages begin that NumPy has for values that are no numbers: they name no argument.
_NO_NUMBERS = (
    "could not convert",
    "setting an array element",
    "float() argument",
    "must be real number",
    "Cannot cast",
    "cannot convert",
    "int too",
    "The DType",
    "Complex data",
)


def check_rows(
    X: Any, *, estimator: Any, reset: bool, accept_sparse: bool = True, min_rows: int = 1
) -> Any:
    """Return the rows of an estimator, dense or CSR, in float64 or float32.

    They are finite and of a size that can be squared. CSR is sorted, without duplicates, with
    32-bit indices where these suffice. What is so already is not copied, nothing is edited, and
    the memory may be read-only. `reset` sets the estimator's number and names of features, and
    compares them otherwise.
    """
    with checking(X, "X"):
        rows = validate_data(estimator, X, reset=reset, **_options(accept_sparse, min_rows))
    return _prepared(rows, may_be_small=not reset)


def check_labelled_rows(
    X: Any, y: Any, *, estimator: Any, accept_sparse: bool = True, min_rows: int = 1
) -> tuple[Any, NDArray]:
    """Return rows, as `check_rows` does, and a label for each."""
    refuse_masked(y, "y")
    with checking(X, "X"):
        rows, y = validate_data(estimator, X, y, **_options(accept_sparse, min_rows))
    return _prepared(rows), y


def check_matrix(
    X: Any,
    *,
    name: str = "X",
    accept_sparse: bool = True,
    min_rows: int = 1,
    is_scaled: bool = True,
    may_be_small: bool = False,
) -> Any:
    """Return a matrix that is no estimator's, as `check_rows` does.

    Without `is_scaled` entries may be of any size, and `may_be_small` is for new rows.
    """
    with checking(X, name):
        matrix = check_array(X, input_name=name, **_options(accept_sparse, min_rows))
    return _prepared(matrix, name, is_scaled=is_scaled, may_be_small=may_be_small)


def kind_of_classes(y: Any) -> str:
    """Return scikit-learn's name for the kind of labels that are classes, and refuse others.

    Its warning that there may be too many classes is left out: the estimators say what they need.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check_classification_targets(y)
        return str(type_of_target(y, input_name="y", raise_unknown=True))


def refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array with masked entries: what is hidden would be used."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_masked = int(np.ma.count_masked(values))
        raise ValueError(
            f"{name} is a masked array with {n_masked} masked entries, which would be used as if "
            f"they were not. Fill them, by {name}.filled(...), or pass a table with missing "
            "values to TableClusterer(missing=...)."
        )


def _options(accept_sparse: bool, min_rows: int) -> dict[str, Any]:
    return {
        "accept_sparse": "csr" if accept_sparse else False,
        "dtype": FLOATS,
        "ensure_min_samples": min_rows,
    }


@contextmanager
def checking(X: Any, name: str) -> Iterator[None]:
    """Refuse what scikit-learn does not see, and name the argument where NumPy does not."""
    refuse_masked(X, name)
    _check_indices(X, name)
    try:
        with np.errstate(all="ignore"):  # wider types overflow to infinity, which is refused
            yield
    except OverflowError as error:
        raise ValueError(f"{name} must hold numbers that fit float64: {error}.") from error
    except (TypeError, ValueError) as error:
        if str(error).startswith("Complex data"):  # followed by the whole matrix
            raise ValueError(
                f"Complex data not supported: {name} must hold real numbers. Pass real and "
                "imaginary parts as columns of their own."
            ) from error
        if type(error).__name__ == "DuplicateError":  # of narwhals, by which frames are read
            raise ValueError(
                f"{name} has several columns of the same name: {' '.join(str(error).split())}. "
                f"Give each its own, or pass an array, such as {name}.to_numpy()."
            ) from error
        kind, text = TypeError if isinstance(error, TypeError) else ValueError, str(error)
        if len(text) > _LONGEST:  # it holds the whole of X
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        if text.startswith(_NO_NUMBERS):
            raise kind(
                f"{name} must be a table of real numbers: {text.splitlines()[0]}. A DataFrame of "
                "other columns can be passed to TableClusterer."
            ) from error
        if text != str(error):
            raise kind(text) from error
        raise


def _check_indices(X: Any, name: str) -> None:
    """Refuse indices of a compressed matrix that are out of range: compiled code trusts them."""
    if not sparse.issparse(X) or X.format not in ("csr", "csc", "bsr"):
        return
    n_major, n_minor = X.shape if X.format != "csc" else X.shape[::-1]
    if X.format == "bsr":
        n_major, n_minor = n_major // X.blocksize[0], n_minor // X.blocksize[1]
    indices, indptr = X.indices, X.indptr
    is_right = (
        indptr.shape == (n_major + 1,)
        and indptr[0] == 0
        and indptr[-1] <= min(len(indices), len(X.data))
        and bool((indptr[1:] >= indptr[:-1]).all())
    )
    used = indices[: indptr[-1]] if is_right else indices
    if not is_right or (used.size and not (used.min() >= 0 and used.max() < n_minor)):
        raise ValueError(
            f"{name} is a sparse matrix with indices outside its shape {X.shape}: it was put "
            "together from wrong arrays. Check data, indices and indptr."
        )


def _prepared(
    X: Any, name: str = "X", *, is_scaled: bool = True, may_be_small: bool = False
) -> Any:
    if is_scaled:
        check_magnitude(X, name=name, may_be_small=may_be_small)
    if not sparse.issparse(X):
        return X
    X = _with_short_indices(X)
    if not X.has_canonical_format:  # scikit-learn's kernels would sort it in place
        X = X.copy()
        X.sum_duplicates()
    return X


def _with_short_indices(X: Any) -> Any:
    """Return a CSR matrix with 32-bit indices if they fit, sharing its values.

    Readers of svmlight files and products of matrices give 64-bit ones, which scikit-learn's
    k-means does not take, and which need twice the memory.
    """
    if X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    if max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    short = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return type(X)(short, shape=X.shape)
