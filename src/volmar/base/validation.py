"""Checks of the input of an estimator; also exports those of `volmar._checks`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volmar._checks import (
    check_count,
    check_number,
    shown,
)


def check_n_clusters(n_clusters: Any, n_samples: int) -> int:
    """Return `n_clusters`; raise an error if X has fewer rows."""
    n_clusters = check_count("n_clusters", n_clusters)
    if n_clusters > n_samples:
        raise ValueError(
            f"n_clusters={n_clusters} is more than the number of rows: X has "
            f"n_samples={n_samples}. Lower n_clusters."
        )
    return n_clusters


def refuse_text(n_clusters: Any) -> None:
    """Raise an error if `n_clusters` is a string, such as "auto"."""
    if not isinstance(n_clusters, str):
        return
    raise ValueError(
        f"n_clusters must be a number, got {shown(n_clusters)}. Use volmar.AutoClusterer, which "
        'finds the number: AutoClusterer(shapes="linear") tries hyperplanes only, '
        'AutoClusterer(shapes="curved") borders of any shape.'
    )


def check_cluster_size(size: Any) -> None:
    """Raise an error unless `min_cluster_size` is a count or a fraction of at most 0.5."""
    if isinstance(size, Integral):
        check_count("min_cluster_size", size)
    else:
        check_number("min_cluster_size", size, low=0.0, high=0.5, open_low=True)


def check_start_labels(name: str, labels: ArrayLike, n_samples: int, n_clusters: int) -> NDArray:
    """Return start labels as integers 0 to n_clusters - 1, with every cluster present."""
    given = np.asarray(labels)
    if given.shape != (n_samples,):
        raise ValueError(
            f"{name} must hold one label per row, shape ({n_samples},), got shape {given.shape}."
        )
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(f"{name} holds NaN, which is not a label. Give every row a label.")
    try:
        values, consecutive = np.unique(given, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"{name} holds labels of types that cannot be compared ({error}). Give all labels as "
            "integers, or all as strings."
        ) from error
    if values.size != n_clusters:
        raise ValueError(
            f"{name} must hold n_clusters={n_clusters} different labels, got {values.size}."
        )
    return consecutive
