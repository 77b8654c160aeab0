"""Fit the clusterer of a table, and count its clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmar.base import Clusterer
from volmar.base.blocks import RefusedBlocksError

__all__ = ["fit_to_blocks", "fit_to_rows", "is_guided", "names_note", "number_found"]


def fit_to_blocks(model: Any, X: Any, tell: Callable[[int, int], None]) -> bool:
    """Fit a clusterer to a dask array. Return False if it does not accept one."""
    if not isinstance(model, Clusterer):
        return False
    try:
        fit_to_rows(model, X, tell)
    except RefusedBlocksError:
        return False
    return True


def fit_to_rows(model: Any, X: Any, tell: Callable[[int, int], None], **known: NDArray) -> None:
    """Fit a clusterer. Clusterers of volmar report their progress to `tell`."""
    if not isinstance(model, Clusterer):
        model.fit(X)
        return
    model._tell = tell
    try:
        model.fit(X, **known)
    finally:
        del model._tell


def is_guided(model: Any, known: dict[str, NDArray]) -> bool:
    """Return whether labels, links or a maximum size constrain the rows of the fit."""
    return bool(known) or getattr(model, "max_cluster_size", None) is not None


def number_found(model: Any, labels: NDArray, wanted: int | str) -> int:
    """Return the number of clusters that were found or requested."""
    if hasattr(model, "classes_") and isinstance(model, Clusterer):
        return len(model.classes_)
    if not isinstance(wanted, str):
        return int(wanted)
    return model.tree_.n_leaves if hasattr(model, "tree_") else int(np.max(labels)) + 1


def names_note(clusterer: Any) -> list[str]:
    """Return a note with the names of the clusters, for reports that show numbers."""
    names = getattr(clusterer, "cluster_names_", ())
    listed = ", ".join(f"{number} is {name!r}" for number, name in enumerate(names))
    return [f"clusters have the names in column {clusterer.seeds!r}: {listed}"] if names else []
