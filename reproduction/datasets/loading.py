"""`load`: load a benchmark data set by name, optionally sampled and scaled."""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils import Bunch

from reproduction.datasets.registry import GENERATED, Base, Generated, Task, find_task
from reproduction.datasets.sources import Stored, read
from volmar import datasets as generators
from volmar._checks import check_choice, check_count

_SCALES = ("minmax", "symmetric", "standard", "unit", "tfidf")
_MISSING = ("keep", "drop", "mean")


def load(
    name: str,
    *,
    realization: int | None = None,
    n_samples: int | None = None,
    scale: str | None = None,
    missing: str | None = None,
    data_home: str | os.PathLike[str] | None = None,
) -> Bunch:
    """Load a data set of the papers by name.

    By default, feature values are returned as stored, without scaling, centring or imputation.

    Parameters
    ----------
    name : str
        One of `list_datasets`, or a pair of classes such as ``"mnist-4v9"``. The class named first
        gets label 0.
    realization : int, default=None
        Number of the random sample, from 1. For an ``ida-*`` data set without `n_samples`, it is
        the training part of that realization of the collection if the file has it, and a seeded
        random split of the same size otherwise (`DESCR` states which). If None, the whole data set
        is returned, or sample 1 if `n_samples` is given.
    n_samples : int, default=None
        Size of a random subset. It is drawn without regard to the classes, as in the JMLR paper,
        so a small one may miss a class. The draw depends only on the name, the size, the number
        `realization` and the order of the stored rows. For an ``ida-*`` data set, it is also drawn
        from all rows, because the fixed realizations have a fixed size. If None, all rows are
        returned.
    scale : {"minmax", "symmetric", "standard", "unit", "tfidf"}, default=None
        Scaling of the features over all rows of the data set, before sampling:

        - "minmax": range 0 to 1;
        - "symmetric": range -1 to 1;
        - "standard": mean 0 and standard deviation 1;
        - "unit": grey values scaled to [0, 1] by their known range (MNIST and USPS divided by 255,
          digits by 16);
        - "tfidf": term counts weighted by the `TfidfTransformer` of scikit-learn over all 18846
          documents, before the choice of groups, as in the JMLR paper.

        If None, features are not scaled.
    missing : {"keep", "drop", "mean"}, default=None
        How to handle missing values: keep NaN, drop their rows, or replace them by the mean of the
        feature over the rows of the data set. If None, "drop" for breast, which gives the number
        of rows in the papers, and "keep" for all others.
    data_home : path, default=None
        Folder with the data files, see `data_folder`. Data sets that are not in the folder are
        fetched from OpenML if they are available there.

    Returns
    -------
    data : Bunch
        Dictionary-like object with the attributes

        - `X`: ndarray, or CSR array for ``20news*`` and ``adult*``; float32 for ``mnist*``,
          ``isolet*``, ``covtype*`` and ``usps-9298*``, and float64 for others;
        - `y`: integer labels from 0;
        - `target_names`: list of str;
        - `feature_names`: list of str, or None;
        - `name`: str;
        - `source`: "file", "openml", "scikit-learn" or "generator";
        - `DESCR`: description of the data set, its size, origin and preparation, and its
          differences from the papers.

    Examples
    --------
    >>> from volmar.datasets import load
    >>> data = load("digits-3v8", scale="unit")
    >>> data.X.shape, data.target_names, float(data.X.max())
    ((357, 64), ['3', '8'], 1.0)
    >>> load("digits-3v8", n_samples=50, realization=2).X.shape
    (50, 64)
    """
    for argument, count in (("realization", realization), ("n_samples", n_samples)):
        if count is not None:
            check_count(argument, count)
    for argument, word, options in (("scale", scale, _SCALES), ("missing", missing, _MISSING)):
        if word is not None:
            check_choice(argument, word, options)
    if isinstance(name, str) and name in GENERATED:
        return _generated(GENERATED[name], realization, n_samples, scale)
    task = find_task(name)
    _check_scale(scale, name, task.base)
    size = _sampling_size(task, realization, n_samples)
    stored = read(task.base, data_home, file_only=task.file_only)
    X, y, feature_names = _select(task, stored, tfidf=scale == "tfidf")
    X, y, missing_text = _treat_missing(X, y, missing or task.base.missing)
    X = _scale(X, scale, task.base.grey)
    rows_text = f"all {len(y)}"
    if size is not None:
        from_collection = n_samples is None and task.n_samples is None
        rows, rows_text = _sample(name, stored, len(y), size, realization or 1, from_collection)
        X, y = X[rows], y[rows]
    return _bunch(
        name,
        task.base.about,
        X,
        y,
        [label for label, _ in task.groups],
        feature_names=feature_names,
        source=stored.source,
        notes={
            "Origin": stored.origin,
            "Rows": rows_text,
            "Missing values": missing_text,
            "Scaling": scale or "none",
            "Differs from the papers": "; ".join(filter(None, (task.base.differs, task.differs))),
        },
    )


def _generated(
    row: Generated, realization: int | None, n_samples: int | None, scale: str | None
) -> Bunch:
    if scale in ("unit", "tfidf"):
        raise ValueError(
            f"scale={scale!r} is not available for {row.name!r}. Use 'minmax' or 'standard'."
        )
    size, number = n_samples or 200, realization or 1
    seed = np.random.SeedSequence(_entropy(row.name, size, number)).generate_state(1)[0]
    X, y = getattr(generators, row.function)(size, random_state=int(seed))
    return _bunch(
        row.name,
        row.about,
        _scale(X, scale, None),
        y,
        ["0", "1"],
        feature_names=None,
        source="generator",
        notes={
            "Origin": f"volmar.datasets.{row.function}",
            "Rows": f"draw {number} of {size} rows",
            "Scaling": scale or "none",
            "Differs from the papers": row.differs,
        },
    )


def _select(
    task: Task, stored: Stored, *, tfidf: bool
) -> tuple[Any, np.ndarray, list[str] | None]:
    """Return the rows of the classes of a task, their labels, and the names of features."""
    base, X, codes = task.base, stored.X, stored.y
    if tfidf:
        X = sp.csr_array(TfidfTransformer().fit_transform(X.astype(float)))
    label_of = {code: label for label, (_, group) in enumerate(task.groups) for code in group}
    labels = np.array([label_of.get(code, -1) for code in codes.tolist()])
    rows = stored.extras[task.rows] if task.rows else np.arange(len(codes))
    rows = rows[labels[rows] >= 0]
    X = X[rows].astype(base.dtype)
    names = list(stored.feature_names) or None
    if task.first_column:
        X = np.column_stack([stored.extras[task.first_column][rows], X])
        names = [task.first_column, *names] if names else None
    return X, labels[rows], names


def _treat_missing(X: Any, y: np.ndarray, missing: str) -> tuple[Any, np.ndarray, str]:
    unknown = np.isnan(X.data if sp.issparse(X) else X)
    if not unknown.any():
        return X, y, "none"
    n_rows = int(unknown.any(axis=1).sum())
    text = f"{int(unknown.sum())} in {n_rows} of {len(y)} rows, "
    if missing == "drop":
        known = ~unknown.any(axis=1)
        return X[known], y[known], text + "these rows dropped"
    if missing == "mean":
        return np.where(unknown, np.nanmean(X, axis=0), X), y, text + "replaced by the mean"
    return X, y, text + "kept as NaN"


def _check_scale(scale: str | None, name: str, base: Base) -> None:
    if scale == "tfidf" and not base.text:
        raise ValueError(
            f"scale='tfidf' needs term counts, and {name!r} has none. Use it with '20news'."
        )
    if scale == "unit" and base.grey is None:
        raise ValueError(
            f"scale='unit' needs grey values, and {name!r} has none. Use 'minmax' or 'standard'."
        )
    if base.sparse and scale in ("minmax", "symmetric", "standard"):
        raise ValueError(
            f"scale={scale!r} would make the sparse data set {name!r} dense. Use scale=None"
            + (" or 'tfidf'." if base.text else ": its features are 0 or 1.")
        )


def _scale(X: Any, scale: str | None, grey: tuple[float, float] | None) -> Any:
    if scale == "unit" and grey is not None:
        return (X - X.dtype.type(grey[0])) / X.dtype.type(grey[1] - grey[0])
    scalers = {
        "minmax": MinMaxScaler(),
        "symmetric": MinMaxScaler(feature_range=(-1.0, 1.0)),
        "standard": StandardScaler(),
    }
    return scalers[scale].fit_transform(X) if scale in scalers else X


def _sampling_size(task: Task, realization: int | None, n_samples: int | None) -> int | None:
    """Return the number of rows to draw, None for all. Errors come before any file is read."""
    if task.n_samples is not None and n_samples not in (None, task.n_samples):
        raise ValueError(
            f"n_samples must be {task.n_samples} or None for {task.name!r}, got {n_samples}. "
            f"Draw other sizes from {task.base.name!r}."
        )
    size = n_samples or task.n_samples
    if size is not None or realization is None:
        return size
    if task.base.n_train is None:
        raise ValueError(
            f"realization={realization} needs n_samples, because {task.name!r} has no fixed "
            "realizations. Give n_samples, the size of the random sample."
        )
    return task.base.n_train


def _sample(
    name: str, stored: Stored, n: int, size: int, number: int, from_collection: bool
) -> tuple[np.ndarray, str]:
    """Return the row numbers of a sample, and a description of the sample."""
    if size > n:
        raise ValueError(
            f"n_samples must be at most {n}, the number of rows of {name!r}, got {size}."
        )
    drawn = np.random.default_rng(_entropy(name, size, number)).permutation(n)[:size]
    if not from_collection:
        return drawn, f"seeded random sample {number}, {size} of {n}"
    fixed = np.flatnonzero(stored.extras.get("realization", np.array([])) == number)
    if fixed.size:
        train = stored.extras["train_index"][fixed[0]]
        return train, f"training part of realization {number} of the collection, {size} of {n}"
    text = f"seeded random split {number}, {size} of {n}: the file has no such realization"
    return drawn, text


def _entropy(name: str, size: int, number: int) -> list[int]:
    return [zlib.crc32(name.encode()), size, number]


def _bunch(
    name: str,
    about: str,
    X: Any,
    y: np.ndarray,
    target_names: list[str],
    *,
    feature_names: list[str] | None,
    source: str,
    notes: dict[str, str],
) -> Bunch:
    counts = np.bincount(y, minlength=len(target_names))
    classes = ", ".join(f"{label} {n}" for label, n in zip(target_names, counts, strict=True))
    lines = [f"{name}: {about}", "", f"Size: {X.shape[0]} x {X.shape[1]} ({X.dtype})"]
    lines.append(f"Classes: {classes}")
    lines += [f"{title}: {text}" for title, text in notes.items() if text]
    return Bunch(
        X=X,
        y=y,
        target_names=target_names,
        feature_names=feature_names,
        name=name,
        source=source,
        DESCR="\n".join(lines) + "\n",
    )
