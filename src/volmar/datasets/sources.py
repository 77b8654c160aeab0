"""Where a base data set is read from: a folder of files, scikit-learn, or OpenML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from volmar.datasets.registry import Base

__all__ = ["Stored", "data_folder", "read"]

_VARIABLE = "VOLMAR_DATA"


@dataclass(frozen=True)
class Stored:
    """A base set as read: features, labels as codes of the registry, and the file's extras."""

    X: Any
    y: np.ndarray
    source: str
    origin: str
    feature_names: tuple[str, ...]
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path | None:
    """Folder the data files are read from, or None when there is none.

    The first of: `data_home`, the environment variable VOLMAR_DATA, and the folder
    ``shared/data`` beside the checkout when the package runs from one.

    Parameters
    ----------
    data_home : path, default=None
        A folder that goes before the other two.

    Returns
    -------
    folder : Path or None

    Raises
    ------
    FileNotFoundError
        When `data_home` or VOLMAR_DATA names a folder that does not exist.
    """
    for what, value in (("data_home", data_home), (_VARIABLE, os.environ.get(_VARIABLE))):
        if value:
            folder = Path(value).expanduser()
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"{what}={str(value)!r} is not a folder; give the folder with the .npz files"
                )
            return folder
    root = Path(__file__).resolve().parents[3]
    beside = root.parent / "shared" / "data"
    return beside if (root / "pyproject.toml").is_file() and beside.is_dir() else None


def read(
    base: Base, data_home: str | os.PathLike[str] | None = None, *, file_only: bool = False
) -> Stored:
    """Read a base set from where it is, and check its size and class counts.

    `file_only`: only the file will do, because it has arrays that OpenML's copy lacks.
    """
    if base.sklearn:
        return _read_sklearn(base)
    folder = data_folder(data_home)
    if folder is not None and (folder / base.file).is_file():
        return _read_file(base, folder)
    if base.openml_id is not None and not file_only:
        return _read_openml(base)
    looked = f"it is not in {folder}" if folder else "no data folder is set"
    raise FileNotFoundError(
        f"{base.name!r} is read from the file {base.file}, and {looked}; put the file into a "
        f"folder and name that folder by data_home or the environment variable {_VARIABLE}"
    )


def _read_sklearn(base: Base) -> Stored:
    bunch = getattr(datasets, base.sklearn)()
    _check(base, bunch.data, bunch.target, f"scikit-learn's {base.sklearn}")
    names = tuple(str(name) for name in bunch.feature_names)
    return Stored(
        bunch.data, bunch.target, "scikit-learn", f"sklearn.datasets.{base.sklearn}", names
    )


def _read_file(base: Base, folder: Path) -> Stored:
    path = folder / base.file
    if base.sparse:
        X: Any = sp.csr_array(sp.load_npz(path))
        path = folder / base.file.replace(".npz", "_labels.npz")
        if not path.is_file():
            raise FileNotFoundError(f"{base.file} is in {folder} without its labels {path.name}")
    with np.load(path, allow_pickle=False) as arrays:
        if not base.sparse:
            X = arrays["X"]
        y = arrays["y"]
        extras = {key: arrays[key] for key in arrays.files if key not in ("X", "y")}
    _check(base, X, y, f"the file {base.file}", unlabelled=base.unlabelled)
    names = tuple(str(word) for word in extras.get("vocabulary", base.feature_names))
    return Stored(X, y, "file", f"the file {base.file}; {base.origin}", names, extras)


def _read_openml(base: Base) -> Stored:
    where = f"OpenML data set {base.openml_id}"
    try:
        bunch = datasets.fetch_openml(data_id=base.openml_id, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"{base.name!r} could not be read from OpenML (data set {base.openml_id}): {error}. "
            f"Try again with a network connection, or put {base.file} into a folder and name "
            f"that folder by data_home or the environment variable {_VARIABLE}"
        ) from error
    X = _decode_features(bunch.data, bunch.feature_names, bunch.categories or {})
    y = _decode_labels(base, bunch.target, where)
    _check(base, X, y, where, counts=base.openml_counts)
    names = base.feature_names or tuple(str(name) for name in bunch.feature_names)
    origin = (
        f"{where}; its rows may stand in another order than the file's, and a sampling with them"
    )
    return Stored(X, y, "openml", origin, names)


def _decode_features(
    X: Any, feature_names: list[str], categories: Mapping[str, list[str]]
) -> np.ndarray:
    """Undo OpenML's coding of nominal features by position in the ARFF header.

    Categories that are numbers become these numbers; others their alphabetical rank among
    the values that occur, which is how the files are coded.
    """
    X = X.toarray() if sp.issparse(X) else X
    if not set(feature_names) & set(categories):
        return X
    X = np.array(X, dtype=float)
    for column, name in enumerate(feature_names):
        if name not in categories:
            continue
        words = np.array([_plain(word) for word in categories[name]])
        known = np.isfinite(X[:, column])
        values = words[X[known, column].astype(int)]
        try:
            X[known, column] = values.astype(float)
        except ValueError:
            X[known, column] = np.unique(values, return_inverse=True)[1]
    return X


def _decode_labels(base: Base, target: np.ndarray, where: str) -> np.ndarray:
    labels = base.openml_labels or [row.label for row in base.classes]
    code_of = {label: row.code for label, row in zip(labels, base.classes, strict=True)}
    words = np.array([_plain(label) for label in target])
    unknown = sorted(set(words.tolist()) - set(code_of))
    if unknown:
        raise ValueError(
            f"{where} has labels {unknown} that {base.name!r} does not know (it expects "
            f"{sorted(code_of)}): it is another set; use the file {base.file} instead"
        )
    return np.array([code_of[word] for word in words.tolist()])


def _plain(label: object) -> str:
    """Label without the quotes some ARFF headers keep, and '1' for 1.0 and '1.'."""
    word = str(label).strip().strip("'\"")
    try:
        number = float(word)
    except ValueError:
        return word
    return str(int(number)) if number.is_integer() else word


def _check(
    base: Base,
    X: Any,
    y: np.ndarray,
    where: str,
    *,
    counts: tuple[int, ...] = (),
    unlabelled: int = 0,
) -> None:
    """Refuse a copy whose size or class counts are not those of the registry."""
    codes = [row.code for row in base.classes]
    expected = list(counts or [row.count for row in base.classes])
    shape = (sum(expected) + unlabelled, base.n_features)
    found = [int(np.count_nonzero(y == code)) for code in codes]
    if tuple(X.shape) != shape or y.shape != shape[:1] or found != expected:
        raise ValueError(
            f"{where} is not the {base.name!r} of the papers: it has shape {tuple(X.shape)} and "
            f"class counts {found}, where {shape} and {expected} are known; use another copy"
        )
