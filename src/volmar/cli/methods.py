"""Methods by their names, and their settings by NAME=VALUE."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from volmar.cli.console import UsageError
from volmar.table_clusterer import clusterer_names

__all__ = ["DEFAULT", "clusterer_names", "make_method", "parse_settings"]

# Does not depend on the units of the columns, is linear in the rows, and tests every split.
DEFAULT = "MSPC"


def parse_settings(given: Sequence[str]) -> dict[str, Any]:
    """Return settings from NAME=VALUE: numbers, true, false, none and lists as such, else text."""
    settings: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes NAME=VALUE, C=2 say, got {text!r}.")
        if name.strip() in ("n_clusters", "random_state"):
            option = {"n_clusters": "--n-clusters", "random_state": "--seed"}[name.strip()]
            raise UsageError(f"--set {text!r}: use {option} for that.")
        settings[name.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


def make_method(name: str, n_clusters: Any, seed: int, settings: dict[str, Any]) -> Any:
    """Return a clusterer by its name."""
    import volmar

    kind = getattr(volmar, _known(name))
    estimator = kind(n_clusters=n_clusters)
    known = estimator.get_params()
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--set {setting}: {name} has no such parameter.{hint} It has "
                f"{', '.join(sorted(known))}."
            )
    estimator.set_params(**settings)
    if "random_state" in known:
        estimator.set_params(random_state=seed)
    return estimator


def _known(name: str) -> str:
    names = clusterer_names()
    for known in names:
        if known.lower() == name.lower():
            return known
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"--method {name!r} is not known.{hint} There are {', '.join(names)}.")
