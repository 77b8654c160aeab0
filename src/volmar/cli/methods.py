"""Parsing of the options for methods, numbers of clusters and settings."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from volmar.cli.console import UsageError
from volmar.table_clusterer.estimator import new_clusterer

__all__ = ["DEFAULT", "make_method", "parse_number", "parse_settings"]

# MSPC does not depend on the units of the columns, and its time is linear in the rows.
DEFAULT = "MSPC"


def parse_number(text: str, minimum: int) -> int | str:
    """Return --n-clusters as an int of at least `minimum`, or "auto"."""
    if text == "auto":
        return text
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < minimum:
        raise UsageError(
            f"--n-clusters must be a whole number of at least {minimum}, or auto, got {text!r}."
        )
    return count


def parse_size(option: str, text: str | None) -> float | None:
    """Return a cluster size: a whole number of rows, or a share between 0 and 1."""
    if text is None:
        return None
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if 1.0 <= size < 2.0**53 and size == int(size) and "." not in text:
        return int(size)
    if not 0.0 < size < 1.0:
        raise UsageError(
            f"{option} takes a whole number of rows, or a share between 0 and 1, got {text!r}."
        )
    return size


def parse_settings(given: Sequence[str]) -> dict[str, Any]:
    """Return settings from NAME=VALUE; values are JSON, true, false, none, or else text."""
    settings: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise UsageError(f"--set takes NAME=VALUE, such as C=2, got {text!r}.")
        if name.strip() in ("n_clusters", "random_state"):
            option = {"n_clusters": "--n-clusters", "random_state": "--seed"}[name.strip()]
            raise UsageError(f"--set cannot change {name.strip()}, got {text!r}. Use {option}.")
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
    except RecursionError:
        raise UsageError(f"--set {text[:20]}...: brackets are nested too deeply.") from None
    return tuple(value) if isinstance(value, list) else value


def make_method(name: str, n_clusters: Any, seed: int, settings: dict[str, Any]) -> Any:
    """Return a new clusterer of the given class name, with the given settings."""
    estimator = new_clusterer(name, "--method ", n_clusters=n_clusters, random_state=seed)
    known = estimator.get_params()
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--set {setting}: {name} has no such parameter.{hint} Its parameters are "
                f"{', '.join(sorted(known))}."
            )
    return estimator.set_params(**settings)
