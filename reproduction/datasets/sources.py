"""Read a base data set from a folder of files, scikit-learn or OpenML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from reproduction.datasets.registry import Base

_VARIABLE = "VOLMAR_DATA"


@dataclass(frozen=True)
class Stored:
    """A base data set: features, labels as codes of the registry, and other arrays of the file."""

    X: Any
    y: np.ndarray
    source: str
    origin: str
    feature_names: tuple[str, ...]
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the folder of the data files, or None if there is none.

    It is the first of `data_home`, the environment variable VOLMAR_DATA, and the folder
    ``shared/data`` beside the checkout if the package runs from one.

    Parameters
    ----------
    data_home : path, default=None
        Folder that takes precedence over the other two.

    Returns
    -------
    folder : Path or None
        The folder.

    Raises
    ------
    FileNotFoundError
        If `data_home` or VOLMAR_DATA is not an existing folder.
    """
    for what, value in (("data_home", data_home), (_VARIABLE, os.environ.get(_VARIABLE))):
        if value:
            folder = Path(value).expanduser()
            if not folder.is_dir():
                raise FileNotFoundError(
                    f"{what}={str(value)!r} is not a folder. Give the folder with the .npz files."
                )
            return folder
    root = Path(__file__).resolve().parents[2]
    beside = root.parent / "shared" / "data"
    return beside if (root / "pyproject.toml").is_file() and beside.is_dir() else None


def read(
    base: Base, data_home: str | os.PathLike[str] | None = None, *, file_only: bool = False
) -> Stored:
    """Read a base data set from its source, and check its size and class counts.

    With `file_only`, OpenML is not used, because its copy lacks some arrays of the file.
    """
    if base.sklearn:
        return _read_sklearn(base)
    folder = data_folder(data_home)
    if folder is not None and (folder / base.file).is_file():
        return _read_file(base, folder)
    if base.openml_id is not None and not file_only:
        return _read_openml(base)
    looked = f"which is not in {folder}" if folder else "and no data folder is set"
    raise FileNotFoundError(
        f"{base.name!r} needs the file {base.file}, {looked}. Put the file into a folder, and "
        f"give the folder as data_home or in the environment variable {_VARIABLE}."
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
            raise FileNotFoundError(
                f"{path.name}, the labels of {base.file}, is not in {folder}. Put it there."
            )
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
            f"Try again with a network connection, or put {base.file} into a folder, and give the "
            f"folder as data_home or in the environment variable {_VARIABLE}."
        ) from error
    X = _decode_features(bunch.data, bunch.feature_names, bunch.categories or {})
    y = _decode_labels(base, bunch.target, where)
    _check(base, X, y, where, counts=base.openml_counts)
    names = base.feature_names or tuple(str(name) for name in bunch.feature_names)
    origin = f"{where}; the order of its rows, and so a random sample, may differ from the file"
    return Stored(X, y, "openml", origin, names)


def _decode_features(
    X: Any, feature_names: list[str], categories: Mapping[str, list[str]]
) -> np.ndarray:
    """Decode nominal features, which OpenML codes by their position in the ARFF header.

    Categories that are numbers become these numbers. Others become their alphabetical rank among
    the values that occur, as in the files.
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
            f"{where} is not {base.name!r}: it has the labels {unknown}, and {sorted(code_of)} "
            f"are expected. Use the file {base.file}."
        )
    return np.array([code_of[word] for word in words.tolist()])


def _plain(label: object) -> str:
    """Return a label without the quotes of some ARFF headers, and '1' for 1.0 and '1.'."""
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
    """Raise `ValueError` if the size or class counts differ from those of the registry."""
    codes = [row.code for row in base.classes]
    expected = list(counts or [row.count for row in base.classes])
    shape = (sum(expected) + unlabelled, base.n_features)
    found = [int(np.count_nonzero(y == code)) for code in codes]
    if tuple(X.shape) != shape or y.shape != shape[:1] or found != expected:
        raise ValueError(
            f"{where} is not {base.name!r} as in the papers: it has shape {tuple(X.shape)} and "
            f"class counts {found}, and {shape} and {expected} are expected. Use another copy."
        )
