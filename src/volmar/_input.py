"""Checks of rows given by a user. Input is never modified, and copied only if necessary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, validate_data

from volmar._checks import check_magnitude, shown

#: Supported dtypes; others are converted to the first.
FLOATS = [np.float64, np.float32]
# Prefixes of NumPy's messages about values that are not numbers. They do not name the argument.
_NOT_NUMBERS: tuple[str, ...] = (
    "could not convert",
    "setting an array element",
    "float() argument",
    "int too",
)
_NOT_NUMBERS += (
    "must be real number",
    "Cannot cast",
    "cannot convert",
    "The DType",
    "Complex data",
)


def check_rows(
    X: Any, *, estimator: Any, reset: bool, accept_sparse: bool = True, min_rows: int = 1
) -> Any:
    """Return the rows of an estimator, dense or CSR, in float64 or float32.

    Values must be finite, and their squares must fit the dtype. A CSR matrix is returned sorted,
    without duplicates, with 32-bit indices if they suffice. With `reset`, the number and names of
    features are set on the estimator; otherwise they are compared with those it has.
    """
    with checking(X, "X"):
        rows = validate_data(estimator, X, reset=reset, **_options(accept_sparse, min_rows))
    return _prepared(rows, may_be_small=not reset)


def check_labelled_rows(
    X: Any, y: Any, *, estimator: Any, accept_sparse: bool = True, min_rows: int = 1
) -> tuple[Any, NDArray]:
    """Return rows as `check_rows` does, and one label per row."""
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
    """Check a matrix as `check_rows` does, without an estimator.

    Entries may have any magnitude unless `is_scaled`; small ones, as in rows to predict, pass with
    `may_be_small`.
    """
    with checking(X, name):
        matrix = check_array(X, input_name=name, **_options(accept_sparse, min_rows))
    return _prepared(matrix, name, is_scaled=is_scaled, may_be_small=may_be_small)


def kind_of_classes(y: Any) -> str:
    """Return scikit-learn's type of a classification target, and refuse other targets.

    Labels of one column are given three times each, without repetitions: scikit-learn warns of a
    large number of classes, which the estimators check themselves.
    """
    if np.ndim(y) == 1:
        y = np.repeat(np.unique(y), 3)
    check_classification_targets(y)
    return str(type_of_target(y, input_name="y", raise_unknown=True))


def refuse_masked(values: Any, name: str) -> None:
    """Refuse a masked array with masked entries, whose hidden values would be used."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        n_masked = int(np.ma.count_masked(values))
        raise ValueError(
            f"{name} is a masked array with {n_masked} masked entries. The mask would be ignored. "
            f"Fill the entries with {name}.filled(...), or pass a table with missing values to "
            "TableClusterer(missing=...)."
        )


def known_values(values: Any, name: str, n_samples: int) -> tuple[NDArray, NDArray[np.bool_]]:
    """Return one value per row as an array, and which of the values are known.

    Unknown are -1 (also as text), None, NaN, NaT, pandas.NA, blank text and masked entries. A
    value for which this cannot be decided is refused.

    >>> known_values(["a", -1, None, "", "b"], "y", 5)[1].tolist()
    [True, False, False, False, True]
    """
    if isinstance(values, (list, tuple)):
        # NumPy would convert -1 and NaN to text beside a string.
        given = np.fromiter(values, dtype=object, count=len(values))
    else:
        given = np.asarray(values)
    if given.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one value per row, shape ({n_samples},), got shape {given.shape}. "
            "Use -1 or None for rows whose value is unknown."
        )
    kind = given.dtype.kind
    if kind == "u" and given.size and given.max() == np.iinfo(given.dtype).max:
        raise ValueError(
            f"{name} has dtype {given.dtype} and the value {given.max()}, which -1 becomes in "
            f"this dtype. Give {name} in a signed dtype, with -1 for rows whose value is unknown."
        )
    if kind in "biufc":
        known = (given == given) & (given != -1)  # noqa: PLR0124 -- NaN
    elif kind in "mM":
        known = ~np.isnat(given)
    else:
        known = np.fromiter(
            (_is_known(value, name, row) for row, value in enumerate(given.tolist())),
            dtype=bool,
            count=n_samples,
        )
    return given, known & ~np.ma.getmaskarray(values) if np.ma.isMA(values) else known


def _is_known(value: Any, name: str, row: int) -> bool:
    if value is None or value is np.ma.masked:
        return False
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            f"{name} must hold one integer or string per row, got {shown(value)} in row {row}. "
            "Use -1 or None for rows whose value is unknown."
        ) from None
    if isinstance(value, (str, bytes)):
        text = value if isinstance(value, str) else value.decode(errors="replace")
        if text in ("nan", "NaN", "NaT", "None", "<NA>"):
            raise ValueError(
                f"{name} has the text {text!r} in row {row}, which may be a missing value that "
                "was converted to text. Use None for rows whose value is unknown, and other "
                "names for the rest."
            )
        return text.strip() not in ("", "-1", "-1.0")  # NumPy writes -1 so beside strings
    try:
        return bool(value == value != -1)  # noqa: PLR0124 -- NaN and NaT
    except TypeError:  # pandas.NA is neither equal nor different
        return False


def _options(accept_sparse: bool, min_rows: int) -> dict[str, Any]:
    return {
        "accept_sparse": "csr" if accept_sparse else False,
        "dtype": FLOATS,
        "ensure_min_samples": min_rows,
    }


@contextmanager
def checking(X: Any, name: str) -> Iterator[None]:
    """Refuse input that scikit-learn would accept wrongly, and complete messages of NumPy."""
    refuse_masked(X, name)
    _check_indices(X, name)
    try:
        with np.errstate(all="ignore"):  # wider dtypes overflow to infinity, which is refused
            yield
    except OverflowError as error:
        raise ValueError(f"{name} must hold numbers that fit float64: {error}.") from error
    except (TypeError, ValueError) as error:
        if str(error).startswith("Complex data"):  # followed by the whole matrix
            raise ValueError(
                f"Complex data not supported: {name} must hold real numbers. Pass the real and "
                "imaginary parts as separate columns."
            ) from error
        if type(error).__name__ == "DuplicateError":  # from narwhals, which reads data frames
            raise ValueError(
                f"{name} has several columns of the same name: {' '.join(str(error).split())}. "
                f"Rename the columns, or pass an array, such as {name}.to_numpy()."
            ) from error
        kind, text = TypeError if isinstance(error, TypeError) else ValueError, str(error)
        if len(text) > 600:  # it contains the whole of X
            text = f"{text[:300]} ... {text[-300:]}"
        if text.startswith(_NOT_NUMBERS):
            raise kind(
                f"{name} must be a table of real numbers: {text.splitlines()[0]}. Use "
                "TableClusterer for a DataFrame with other columns."
            ) from error
        if text != str(error):
            raise kind(text) from error
        raise


def _check_indices(X: Any, name: str) -> None:
    """Refuse a compressed matrix with indices out of range, which compiled code does not check."""
    if not sparse.issparse(X) or X.format not in ("csr", "csc", "bsr"):
        return
    n_major, n_minor = X.shape if X.format != "csc" else X.shape[::-1]
    if X.format == "bsr":
        n_major, n_minor = n_major // X.blocksize[0], n_minor // X.blocksize[1]
    indices, indptr = X.indices, X.indptr
    is_valid = (
        indptr.shape == (n_major + 1,)
        and indptr[0] == 0
        and indptr[-1] <= min(len(indices), len(X.data))
        and bool((indptr[1:] >= indptr[:-1]).all())
    )
    used = indices[: indptr[-1]] if is_valid else indices
    if not is_valid or (used.size and not (used.min() >= 0 and used.max() < n_minor)):
        raise ValueError(
            f"{name} is a sparse matrix with indices outside its shape {X.shape}. Check its data, "
            "indices and indptr."
        )


def _prepared(
    X: Any, name: str = "X", *, is_scaled: bool = True, may_be_small: bool = False
) -> Any:
    if is_scaled:
        check_magnitude(X, name=name, may_be_small=may_be_small)
    if not sparse.issparse(X):
        return X
    X = with_short_indices(X)
    if not X.has_canonical_format:  # scikit-learn's kernels would sort it in place
        X = X.copy()
        X.sum_duplicates()
    return X


def with_short_indices(X: Any) -> Any:
    """Return a CSR matrix with 32-bit indices if they fit, sharing its values.

    Matrix products and readers of svmlight files return 64 bits, which k-means does not accept.
    """
    if X.indices.dtype == X.indptr.dtype == np.int32:
        return X
    if max(X.nnz, *X.shape) > np.iinfo(np.int32).max:
        return X
    short = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    return type(X)(short, shape=X.shape)
