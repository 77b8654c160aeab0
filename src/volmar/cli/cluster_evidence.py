"""How many clusters ``volmar cluster`` looks for, and the evidence for them."""

from __future__ import annotations

import shlex
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from volmar.cli.console import Stages
from volmar.cli.methods import DEFAULT, make_method

if TYPE_CHECKING:
    from volmar.cli.cluster import Asked, Found

__all__ = ["best_split", "command_for_two", "decide"]

# A split that no evidence supports is fitted where the search took less than these seconds, and
# there are no more rows.
QUICK_SEARCH, MOST_ROWS = 5.0, 20_000


def decide(asked: Asked, X: Any, found: Found, tell: Any) -> None:
    """Find the number of clusters, by the evidence or as given, and what supports it."""
    from volmar.report import evidence_of

    wanted = asked.wanted()
    found.n_found = wanted or 0
    if wanted != 1:
        number = "auto" if wanted is None else wanted
        model = make_method(asked.method, number, asked.seed, asked.settings).fit(X)
        if wanted is None:
            found.n_found = int(model.tree_.n_leaves)
        found.evidence += evidence_of(
            model, X, model.labels_, n_clusters=number, random_state=asked.seed, progress=tell
        )
        if found.n_found > 1:
            found.model = model
    if found.n_found == 1 and wanted is None and asked.split_anyway:
        found.n_found = 2
        found.warnings.append("The split was asked for (--split-anyway); no evidence supports it.")


def command_for_two(asked: Asked) -> str:
    """Return the command that splits the same rows in two."""
    words = ["volmar", "cluster", asked.source]
    if asked.method.lower() != DEFAULT.lower():
        words += ["--method", asked.method]
    words += ["--n-clusters", "2"]
    for option, names in (("--columns", asked.columns), ("--drop", asked.drop)):
        for name in names:
            words += [option, name]
    if asked.id_column is not None:
        words += ["--id", asked.id_column]
    for option, value, usual in (
        ("--scale", asked.scale, "standard"),
        ("--missing", asked.missing, "error"),
        ("--seed", str(asked.seed), "0"),
    ):
        if value != usual:
            words += [option, value]
    for name, value in asked.settings.items():
        words += ["--set", f"{name}={_as_setting(value)}"]
    return shlex.join(words)


def _as_setting(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def best_split(asked: Asked, X: Any, found: Found, stages: Stages) -> Any:
    """Return the split in two that no evidence supports, where it takes little time."""
    from volmar.report import BestSplit

    searched = stages.seconds.get("looking for groups", np.inf)
    if found.n_found > 1 or asked.wanted() is not None or not found.evidence:
        return None
    if searched > QUICK_SEARCH or X.shape[0] > MOST_ROWS:
        return None
    with stages.stage("splitting in two"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = make_method(asked.method, 2, asked.seed, asked.settings).fit(X)
            scores = model.decision_function(X)
        except (ValueError, MemoryError):
            return None
    if np.unique(model.labels_).size < 2:
        return None
    return BestSplit(model, model.labels_, scores, command_for_two(asked))
