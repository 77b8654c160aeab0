"""Find clusterers by name, and check estimators that are used as clusterers."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

import volmar


def clusterer_names() -> list[str]:
    """Return the names of the clusterers in volmar."""
    return list(volmar.CLUSTERERS)


def find_name(given: str, names: Sequence[str], argument: str) -> str:
    """Return the name that matches the given one, ignoring case.

    `argument` precedes the given name in the error message.
    """
    for known in names:
        if known.lower() == given.lower():
            return known
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise ValueError(f"{argument}{given!r} is not known.{hint} Choose from {', '.join(names)}.")


def new_clusterer(given: Any, argument: str = "clusterer=", **parameters: Any) -> Any:
    """Return an unfitted clusterer, by its name or as a clone of an estimator.

    Parameters that the clusterer does not have are ignored.
    """
    if isinstance(given, str):
        made = getattr(volmar, find_name(given, clusterer_names(), argument))()
    else:
        made = _checked(given)
    known = made.get_params(deep=False)
    return made.set_params(**{name: parameters[name] for name in parameters if name in known})


def _checked(given: Any) -> Any:
    """Return a clone of an estimator. Raise `TypeError` if it cannot be used."""
    is_fit = not isinstance(given, type) and hasattr(given, "get_params")
    if not is_fit or "n_clusters" not in given.get_params(deep=False):
        raise TypeError(
            "clusterer must be the name of a clusterer of volmar, or a clusterer with a parameter "
            f"n_clusters, got {given!r:.80}."
        )
    if not hasattr(given, "predict"):
        raise TypeError(
            f"clusterer must have a method predict, for new rows, got {type(given).__name__}. Use "
            "another one, such as MSPC or KMeans."
        )
    return clone(given)
