"""Clusterers by their names, and estimators that can be used as one."""

from __future__ import annotations

import difflib
from typing import Any

from sklearn.base import clone

import volmar

__all__ = ["clusterer_names", "new_clusterer"]


def clusterer_names() -> list[str]:
    """Return the names of the clusterers of the library."""
    return list(volmar.CLUSTERERS)


def new_clusterer(given: Any) -> Any:
    """Return a clusterer, not fitted, by its name or as a clone of an estimator."""
    if isinstance(given, str):
        return getattr(volmar, _known(given))()
    return _checked(given)


def _known(name: str) -> str:
    names = clusterer_names()
    for known in names:
        if known.lower() == name.lower():
            return known
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"clusterer={name!r} is not known.{hint} There are {', '.join(names)}.")


def _checked(given: Any) -> Any:
    """Return a clone of an estimator that can be used."""
    is_fit = not isinstance(given, type) and hasattr(given, "get_params")
    if not is_fit or "n_clusters" not in given.get_params(deep=False):
        raise TypeError(
            "clusterer must be the name of a clusterer of volmar, or a clusterer with a parameter "
            f"n_clusters, got {given!r:.80}."
        )
    if not hasattr(given, "predict"):
        raise TypeError(
            f"clusterer={type(given).__name__} has no predict, which new rows need. Use another "
            "one, such as MSPC or KMeans."
        )
    return clone(given)
