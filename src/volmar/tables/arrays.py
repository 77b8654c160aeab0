"""Tables in NPY, NPZ and libsvm files: dense or sparse arrays, fully checked."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from volmar._memory import require_memory
from volmar._npy import read_array
from volmar.tables.errors import (
    TableError,
    one_line,
    open_bytes,
    quoted_names,
    refuse_wide,
)

__all__ = ["read_libsvm", "read_numpy"]

_ZIP = b"PK\x03\x04", b"PK\x05\x06"  # the second one begins a zip file without members
# Index arrays of each sparse format, in the order of the constructors of SciPy.
_PARTS = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "bsr": ("indices", "indptr"),
    "coo": ("row", "col"),
    "dia": ("offsets",),
}
_FEWER = "Save fewer rows or columns."
_UNFIT = (
    "holds a sparse matrix whose arrays do not fit together. Save it again with "
    "scipy.sparse.save_npz."
)


def read_numpy(path: Path) -> Any:
    """Return the array of an NPY file, or the table of an NPZ file as an array or CSR array."""
    try:
        with path.open("rb") as file:
            is_zip = file.read(4) in _ZIP
            file.seek(0)
            if is_zip:
                with zipfile.ZipFile(file) as members:
                    table = _table_of(path, members)
            else:
                table = read_array(file, path.stat().st_size)
    except (TableError, MemoryError):
        raise
    except Exception as error:  # NumPy parses the header as Python, which may raise anything
        if "values of type" in str(error) or "magic string" in str(error):
            raise TableError(
                f"{path.name} holds Python objects or is not a NumPy file. Objects are not read, "
                "because that could execute code. Save only numbers, with "
                "numpy.save(file, array.astype(float))."
            ) from error
        raise TableError(
            f"{path.name} cannot be read as a NumPy file: {one_line(error)}. Save it again."
        ) from error
    return table if sp.issparse(table) else _checked_array(path.name, table)


def _table_of(path: Path, members: zipfile.ZipFile) -> Any:
    """Return the table of an NPZ file: its sparse matrix, the array X, or the only matrix."""
    infos = {info.filename.removesuffix(".npy"): info for info in members.infolist()}
    if len(infos) < len(members.infolist()):
        raise TableError(f"{path.name} has two arrays with the same name. Save it again.")
    is_sparse = {"shape", "format"} <= set(infos)
    names = ["X"] if "X" in infos and not is_sparse else list(infos)
    # Checked before anything is decompressed.
    n_bytes = sum(infos[name].file_size for name in names)
    require_memory(n_bytes, f"the content of {path.name}", _FEWER)
    arrays = {}
    for name in names:
        with members.open(infos[name]) as file:
            arrays[name] = read_array(file, infos[name].file_size)
    if is_sparse:
        return _as_sparse(path.name, arrays)
    tables = arrays if "X" in arrays else {k: v for k, v in arrays.items() if v.ndim == 2}
    if len(tables) == 1:
        return next(iter(tables.values()))
    found = f"{len(tables)} ({quoted_names(tables)})" if tables else "none"
    raise TableError(
        f"{path.name} must have exactly one two-dimensional array, got {found}. "
        "Name the table 'X', with numpy.savez(file, X=table)."
    )


def _checked_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "biuf":
        raise TableError(
            f"{name} must hold numbers, got values of dtype {array.dtype}. Save them as float64, "
            "or save the table as CSV or Parquet."
        )
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise TableError(
            f"{name} must hold an array of rows and columns, got the shape {array.shape}. "
            "Reshape it with array.reshape(len(array), -1)."
        )
    if 0 in array.shape:
        raise TableError(
            f"{name} holds an empty array of shape {array.shape}. Give a file with rows."
        )
    refuse_wide(name, array.shape[1])
    if array.dtype.itemsize > 8:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values count as missing
            return array.astype(np.float64)
    return array


def _as_sparse(name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the sparse matrix of the arrays that `scipy.sparse.save_npz` writes."""
    kind, shape, data = (arrays.get(part) for part in ("format", "shape", "data"))
    word = kind.item() if kind is not None and kind.size == 1 else ""
    layout = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    parts = [arrays.get(part) for part in _PARTS.get(layout, ())]
    sound = (
        data is not None
        and shape is not None
        and len(parts) > 0
        and shape.dtype.kind in "iu"
        and shape.shape == (2,)
        and data.dtype.kind in "biuf"
        and data.ndim == {"bsr": 3, "dia": 2}.get(layout, 1)
        and all(part is not None and part.ndim == 1 for part in parts)
        and all(part is not None and part.dtype.kind in "iu" for part in parts)
    )
    if not sound or data is None or shape is None:
        raise TableError(f"{name} {_UNFIT}")
    size = tuple(int(n) for n in shape)
    _refuse_size(name, size, data.size)
    with np.errstate(over="ignore"):
        values = data.astype(np.float64)
    inner: Any = (values, *parts) if layout != "coo" else (values, tuple(parts))
    try:
        matrix = getattr(sp, f"{layout}_array")(inner, shape=size)
        if layout in ("csr", "csc", "bsr"):
            # Compiled code uses these indices without a check of their range.
            matrix.check_format(full_check=True)
        return checked_csr(name, sp.csr_array(matrix))
    except TableError:
        raise
    except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise TableError(f"{name} {_UNFIT}") from error


def _refuse_size(name: str, shape: tuple[int, ...], n_values: int) -> None:
    """Raise an error for a matrix that is empty, too wide, or too large for the memory."""
    if min(shape) < 1:
        raise TableError(f"{name} holds an empty matrix of shape {shape}. Give a file with rows.")
    refuse_wide(name, shape[1])
    # The row pointers, and two copies (one sorted) of the values and indices.
    require_memory(8.0 * shape[0] + 32.0 * n_values, f"the matrix of {name}", _FEWER)


def checked_csr(name: str, X: Any) -> Any:
    """Return a CSR array without duplicate entries.

    Indices have 32 bits if they fit, because many estimators of scikit-learn need that.
    """
    _refuse_size(name, X.shape, X.nnz)
    X.check_format(full_check=True)
    X.sum_duplicates()
    if max(X.nnz, *X.shape) >= 2**31:
        return X
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_array((X.data, indices, indptr), shape=X.shape)


def read_libsvm(path: Path) -> tuple[Any, NDArray[Any] | None]:
    """Return the CSR array of a libsvm file, and its labels. None if all labels are equal."""
    from sklearn.datasets import load_svmlight_file

    try:
        with open_bytes(path) as file:
            X, truth = load_svmlight_file(file)
    except (ValueError, OSError, EOFError, OverflowError, zlib.error) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(
            f"{path.name} cannot be read as libsvm: {one_line(error)}. Write every line as "
            "'label column:value column:value ...'."
        ) from error
    if 0 in X.shape:
        raise TableError(f"{path.name} has no rows with values. Give a file with rows.")
    # Files without labels have 0 in their place.
    is_labelled = bool((truth != truth[0]).any()) and bool(np.isfinite(truth).all())
    return checked_csr(path.name, sp.csr_array(X)), truth if is_labelled else None
